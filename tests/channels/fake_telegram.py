"""A Bot API server on loopback: it speaks HTTP as Telegram's does, keeps what was sent, and fails as a test says."""

# ruff: noqa: C901, N802, ASYNC109, TRY301  methods are called what Telegram calls them

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import defaultdict
from urllib.parse import parse_qs, unquote

from recollect.channels.bot.splitting import utf16

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
        self._numbers = itertools.count(1)
        self._news = asyncio.Condition()
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

    # what a test does

    async def say(self, text=None, chat=7, user=7, name="Ann", **message):
        """Have somebody write something; give the id of the message."""
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
        """Give the buttons that can be pressed in a chat: what each says, the message below which it is, its data."""
        return {
            button["text"]: (number, button["callback_data"])
            for number, message in self.messages[chat].items()
            for row in message.get("reply_markup", {}).get("inline_keyboard", [])
            for button in row
        }

    async def press(self, button, chat=7, user=7):
        """Have somebody press a button; give what they are told."""
        number, data = button
        id = f"q{next(self._ids)}"
        where = {"id": chat, "type": "private" if chat > 0 else "supergroup", "title": "A group"}
        below = {"message_id": number, "date": 1763287200, "chat": where, "from": ME, "text": "x"}
        who = {"id": user, "is_bot": False, "first_name": "Ann"}
        query = {"id": id, "from": who, "message": below, "chat_instance": "1", "data": data}
        await self.push({"callback_query": query})
        await self.until(lambda: id in self.presses)
        return self.presses[id]

    async def push(self, update, **fields):
        update = {"update_id": next(self._numbers), **update, **fields} if isinstance(update, dict) else update
        async with self._news:
            self.updates.append(update)
            self._news.notify_all()

    def texts(self, chat=7):
        return [message["text"] for message in self.messages[chat].values()]

    def made(self, method):
        return [call for name, call in self.calls if name == method]

    async def until(self, condition, seconds=90):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    # the protocol

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._open.add(task)
        try:
            while await self._one(reader, writer):
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

    async def _one(self, reader, writer):
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
        status, kind, payload = answer
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(payload)}\r\n\r\n".encode() + payload
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
            told = {"ok": False, "error_code": refusal.code, "description": refusal.description}
            if refusal.parameters:
                told["parameters"] = refusal.parameters
            return refusal.code, "application/json", json.dumps(told).encode()
        return 200, "application/json", json.dumps({"ok": True, "result": result}).encode()

    async def _getMe(self):
        return {**ME, "can_join_groups": True}

    async def _setMyCommands(self, commands, **_):
        assert all(len(command["command"]) <= 32 and 1 <= len(command["description"]) <= 256 for command in commands)
        return True

    async def _getUpdates(self, offset=0, timeout=0, **_):
        self.offsets.append(offset)
        mine = self._poll = object()
        async with self._news:
            self._news.notify_all()
            self.updates = [u for u in self.updates if not isinstance(u, dict) or u.get("update_id", 0) >= offset]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._news.wait_for(lambda: self.updates or self._poll is not mine)
        if self._poll is not mine:
            raise Refusal(
                409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
            )
        given = self.updates[:100]
        self.updates = [u for u in self.updates if isinstance(u, dict) and "update_id" in u] if given else self.updates
        return given

    def _check(self, text, entities):
        if not text.strip() or utf16(text) > 4096:
            raise Refusal(400, "Bad Request: message text is empty or too long")
        for entity in entities or ():
            if entity["offset"] < 0 or entity["length"] < 1 or entity["offset"] + entity["length"] > utf16(text):
                raise Refusal(400, "Bad Request: entity out of range")

    async def _sendMessage(self, chat_id, text, entities=None, **rest):
        self._check(text, entities)
        number = next(self._ids)
        self.messages[chat_id][number] = {"text": text, "entities": entities or [], **rest}
        return {"message_id": number, "date": 1, "chat": {"id": chat_id, "type": "private"}, "from": ME, "text": text}

    async def _editMessageText(self, chat_id, message_id, text, entities=None, **rest):
        self._check(text, entities)
        there = self.messages[chat_id].get(message_id)
        if there is None:
            raise Refusal(400, "Bad Request: message to edit not found")
        if there["text"] == text and there["entities"] == (entities or []):
            raise Refusal(400, "Bad Request: message is not modified")
        there.update(text=text, entities=entities or [])
        there.pop("reply_markup", None)
        there.update(rest)
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

    found = []
    for match in re.finditer(r"(?<!\w)@\w+|(?:(?<=\s)|^)/\w+(?:@\w+)?", text):
        kind = "mention" if match[0].startswith("@") else "bot_command"
        found.append({"type": kind, "offset": utf16(text[: match.start()]), "length": utf16(match[0])})
    return found
