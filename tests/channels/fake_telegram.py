"""A fake Bot API server on loopback. It records messages and calls, and fails as a test configures it."""

# ruff: noqa: C901, N802, ASYNC109, TRY301  the methods have Telegram's names

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import defaultdict
from urllib.parse import parse_qs, unquote

from recollect.channels.bot.chat_markdown import utf16_length

TOKEN = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
ME = {"id": 99, "is_bot": True, "first_name": "Memory", "username": "memory_bot"}


class Refusal(Exception):
    def __init__(self, code, description, **parameters):
        self.code, self.description, self.parameters = code, description, parameters


DROP = "drop"
"""A fault: the connection is closed without an answer."""


class FakeTelegram:
    def __init__(self, token=TOKEN):
        self.token = token
        self.updates = []
        self.messages = defaultdict(dict)
        self.calls = []
        self.faults = defaultdict(list)
        self.files = {}
        self.presses = {}
        self.offsets = []
        self._ids = itertools.count(1000)
        self._update_ids = itertools.count(1)
        self._new_updates = asyncio.Condition()
        self._poll = None
        self._open = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    # Actions of people, and assertions

    async def post(self, text=None, chat=7, user=7, name="Ann", **message):
        """Post a message as a user, and return its id."""
        kind = "private" if chat > 0 else "supergroup"
        number = message.pop("message_id", None) or next(self._ids)
        body = {
            "message_id": number, "date": 1763287200, "chat": {"id": chat, "type": kind, "title": "A group"},
            "from": {"id": user, "is_bot": False, "first_name": name}, **message,
        }  # fmt: skip
        if text is not None:
            body["text"] = text
            body.setdefault("entities", entities(text))
        await self.push({"message": body})
        return number

    def buttons(self, chat=7):
        """Return the buttons in a chat: label to message id and callback data."""
        return {
            button["text"]: (number, button["callback_data"])
            for number, message in self.messages[chat].items()
            for row in message.get("reply_markup", {}).get("inline_keyboard", [])
            for button in row
        }

    async def press(self, button, chat=7, user=7):
        """Send the press of a button as a user, and return the text of the answer."""
        number, data = button
        id = f"q{next(self._ids)}"
        chat_data = {"id": chat, "type": "private" if chat > 0 else "supergroup", "title": "A group"}
        message = {"message_id": number, "date": 1763287200, "chat": chat_data, "from": ME, "text": "x"}
        sender = {"id": user, "is_bot": False, "first_name": "Ann"}
        query = {"id": id, "from": sender, "message": message, "chat_instance": "1", "data": data}
        await self.push({"callback_query": query})
        await self.wait_until(lambda: id in self.presses)
        return self.presses[id]

    async def push(self, update, **fields):
        update = {"update_id": next(self._update_ids), **update, **fields} if isinstance(update, dict) else update
        async with self._new_updates:
            self.updates.append(update)
            self._new_updates.notify_all()

    def texts(self, chat=7):
        return [message["text"] for message in self.messages[chat].values()]

    def calls_of(self, method):
        return [call for name, call in self.calls if name == method]

    async def wait_until(self, condition, seconds=90):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    # The Bot API

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._open.add(task)
        try:
            while await self._serve_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            if not self._server.is_serving():
                return
            raise
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve_request(self, reader, writer):
        line = (await reader.readline()).decode()
        if not line:
            return False
        _, path, _ = line.split(" ")
        headers = {}
        while (header := (await reader.readline()).decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        answer = await self._answer(unquote(path), body)
        if answer is None:
            return False
        status, content_type, payload = answer
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        await writer.drain()
        return True

    async def _answer(self, path, body):
        if path.startswith(f"/file/bot{self.token}/"):
            return 200, "application/octet-stream", self.files[path.rpartition("/")[2]]
        parameters = {}
        for name, values in parse_qs(body.decode(), keep_blank_values=True).items():
            try:
                parameters[name] = json.loads(values[0]) if name != "text" else values[0]
            except ValueError:
                parameters[name] = values[0]
        prefix, _, method = path.rpartition("/")
        try:
            if prefix != f"/bot{self.token}":
                raise Refusal(401, "Unauthorized")
            self.calls.append((method, parameters))
            if self.faults[method]:
                fault = self.faults[method].pop(0)
                if fault == DROP:
                    return None
                if isinstance(fault, bytes):
                    return 200, "application/json", fault
                if fault is not None:
                    raise fault
            result = await getattr(self, f"_{method}")(**parameters)
        except Refusal as refusal:
            error = {"ok": False, "error_code": refusal.code, "description": refusal.description}
            if refusal.parameters:
                error["parameters"] = refusal.parameters
            return refusal.code, "application/json", json.dumps(error).encode()
        return 200, "application/json", json.dumps({"ok": True, "result": result}).encode()

    async def _getMe(self):
        return {**ME, "can_join_groups": True}

    async def _setMyCommands(self, commands, **_):
        assert all(len(command["command"]) <= 32 and 1 <= len(command["description"]) <= 256 for command in commands)
        return True

    async def _getUpdates(self, offset=0, timeout=0, **_):
        self.offsets.append(offset)
        poll = self._poll = object()
        async with self._new_updates:
            self._new_updates.notify_all()
            self.updates = [u for u in self.updates if not isinstance(u, dict) or u.get("update_id", 0) >= offset]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._new_updates.wait_for(lambda: self.updates or self._poll is not poll)
        if self._poll is not poll:
            raise Refusal(
                409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
            )
        batch = self.updates[:100]
        self.updates = [u for u in self.updates if isinstance(u, dict) and "update_id" in u] if batch else self.updates
        return batch

    def _check(self, text, entities):
        if not text.strip() or utf16_length(text) > 4096:
            raise Refusal(400, "Bad Request: message text is empty or too long")
        for entity in entities or ():
            if entity["offset"] < 0 or entity["length"] < 1 or entity["offset"] + entity["length"] > utf16_length(text):
                raise Refusal(400, "Bad Request: entity out of range")

    async def _sendMessage(self, chat_id, text, entities=None, **rest):
        self._check(text, entities)
        number = next(self._ids)
        self.messages[chat_id][number] = {"text": text, "entities": entities or [], **rest}
        return {"message_id": number, "date": 1, "chat": {"id": chat_id, "type": "private"}, "from": ME, "text": text}

    async def _editMessageText(self, chat_id, message_id, text, entities=None, **rest):
        self._check(text, entities)
        message = self.messages[chat_id].get(message_id)
        if message is None:
            raise Refusal(400, "Bad Request: message to edit not found")
        if message["text"] == text and message["entities"] == (entities or []):
            raise Refusal(400, "Bad Request: message is not modified")
        message.update(text=text, entities=entities or [])
        message.pop("reply_markup", None)
        message.update(rest)
        return {
            "message_id": message_id,
            "date": 1,
            "chat": {"id": chat_id, "type": "private"},
            "from": ME,
            "text": text,
        }

    async def _answerCallbackQuery(self, callback_query_id, text=None, **_):
        self.presses[callback_query_id] = text
        return True

    async def _sendChatAction(self, chat_id, action, **_):
        return True

    async def _getFile(self, file_id):
        if file_id not in self.files:
            raise Refusal(400, "Bad Request: invalid file_id")
        return {
            "file_id": file_id,
            "file_unique_id": file_id,
            "file_size": len(self.files[file_id]),
            "file_path": f"x/{file_id}",
        }


def entities(text):
    """Find mentions and commands as Telegram does, in UTF-16 units."""
    import re

    result = []
    for match in re.finditer(r"(?<!\w)@\w+|(?:(?<=\s)|^)/\w+(?:@\w+)?", text):
        kind = "mention" if match[0].startswith("@") else "bot_command"
        result.append({"type": kind, "offset": utf16_length(text[: match.start()]), "length": utf16_length(match[0])})
    return result
