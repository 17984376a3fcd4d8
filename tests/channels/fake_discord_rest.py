"""The REST API of the fake Discord: one handler for each route that the bot uses."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web
from fake_discord import APPLICATION, BODY, BOT, EPHEMERAL, FakeDiscord, reply, snowflake

_MAX_LENGTH = 2000  # characters of a message; Discord refuses longer ones


def routes(fake: FakeDiscord, app: web.Application) -> None:
    handlers = Handlers(fake)
    messages = "/channels/{channel}/messages"
    hooks = f"/webhooks/{APPLICATION}/{{token}}"
    table = [
        ("GET", "/users/@me", handlers.me),
        ("GET", "/users/{user}", handlers.user),
        ("POST", "/users/@me/channels", handlers.open_dm),
        ("GET", "/oauth2/applications/@me", handlers.application),
        ("GET", "/gateway/bot", handlers.gateway),
        ("PUT", "/applications/{app}/commands", handlers.commands),
        ("PUT", "/applications/{app}/guilds/{guild}/commands", handlers.commands),
        ("GET", "/guilds/{guild}/members/{user}", handlers.member),
        ("GET", "/channels/{channel}", handlers.channel),
        ("POST", "/channels/{channel}/typing", handlers.typing),
        ("GET", messages, handlers.history),
        ("POST", messages, handlers.create),
        ("GET", messages + "/{message}", handlers.read),
        ("PATCH", messages + "/{message}", handlers.edit),
        ("DELETE", messages + "/{message}", handlers.delete),
        ("POST", "/channels/{channel}/threads", handlers.open_thread),
        ("POST", messages + "/{message}/threads", handlers.open_thread),
        ("PUT", "/channels/{channel}/thread-members/@me", handlers.no_content),
        ("POST", "/interactions/{id}/{token}/callback", handlers.callback),
        ("POST", hooks, handlers.follow_up),
        ("PATCH", hooks + "/messages/{message}", handlers.edit_hook),
        ("DELETE", hooks + "/messages/{message}", handlers.delete_hook),
    ]
    for method, path, handler in table:
        app.router.add_route(method, "/api/v10" + path, handler)
    app.router.add_get("/cdn/{path:.*}", handlers.file)


def _error(status: int, code: int, message: str) -> web.Response:
    return reply({"message": message, "code": code}, status=status)


def _invalid(content: Any) -> web.Response | None:
    if content is not None and len(content) > _MAX_LENGTH:
        return _error(400, 50035, "Invalid Form Body: Must be 2000 or fewer in length.")
    return None


class Handlers:
    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.nonces: dict[Any, int] = {}

    async def me(self, _: web.Request) -> web.Response:
        return reply({**self.fake.users[BOT], "verified": True})

    async def user(self, request: web.Request) -> web.Response:
        user = self.fake.users.get(int(request.match_info["user"]))
        return reply(user) if user else _error(404, 10013, "Unknown User")

    async def member(self, request: web.Request) -> web.Response:
        user = int(request.match_info["user"])
        if user not in self.fake.users or int(request.match_info["guild"]) not in self.fake.guilds:
            return _error(404, 10007, "Unknown Member")
        return reply(self.fake.member(user, with_user=True))

    async def application(self, _: web.Request) -> web.Response:
        return reply({
            "id": str(APPLICATION), "name": "recollect", "description": "", "icon": None, "bot_public": False,
            "bot_require_code_grant": False, "owner": self.fake.users[BOT], "verify_key": "00", "flags": 0,
        })  # fmt: skip

    async def gateway(self, _: web.Request) -> web.Response:
        url = self.fake.origin.replace("http", "ws") + "/gateway"
        start = {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
        return reply({"url": url, "shards": 1, "session_start_limit": start})

    async def commands(self, request: web.Request) -> web.Response:
        self.fake.commands = request[BODY]
        base = {"application_id": str(APPLICATION), "version": "1", "default_member_permissions": None}
        return reply([{**base, "id": str(snowflake()), **command} for command in request[BODY]])

    async def channel(self, request: web.Request) -> web.Response:
        channel = self.fake.channels.get(int(request.match_info["channel"]))
        return reply(channel) if channel else _error(404, 10003, "Unknown Channel")

    async def open_dm(self, request: web.Request) -> web.Response:
        user = int(request[BODY]["recipient_id"])
        if user not in self.fake.users:
            return _error(400, 50033, "Invalid Recipient(s)")
        return reply(self.fake.channels[self.fake.dm(user)])

    async def typing(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def no_content(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    def _messages(self, request: web.Request) -> dict[int, dict[str, Any]]:
        return self.fake.messages.get(int(request.match_info["channel"]), {})

    async def history(self, request: web.Request) -> web.Response:
        query = request.query
        ids = sorted(self._messages(request))
        if "after" in query:
            page = [id for id in ids if id > int(query["after"])][: int(query.get("limit", 50))]
        else:
            before = int(query.get("before", 1 << 63))
            page = [id for id in ids if id < before][-int(query.get("limit", 50)) :]
        return reply([self._messages(request)[id] for id in reversed(page)])

    async def read(self, request: web.Request) -> web.Response:
        message = self._messages(request).get(int(request.match_info["message"]))
        return reply(message) if message else _error(404, 10008, "Unknown Message")

    async def create(self, request: web.Request) -> web.Response:
        channel = int(request.match_info["channel"])
        if channel not in self.fake.channels:
            return _error(404, 10003, "Unknown Channel")
        body = request[BODY]
        content = body.get("content") or ""
        if not content.strip() and not body.get("files") and not body.get("embeds"):
            return _error(400, 50006, "Cannot send an empty message")
        error = _invalid(content)
        if error is not None:
            return error
        if body.get("enforce_nonce") and (channel, body["nonce"]) in self.nonces:
            return reply(self.fake.messages[channel][self.nonces[channel, body["nonce"]]])
        reference = (body.get("message_reference") or {}).get("message_id")
        if reference is not None and int(reference) not in self.fake.messages[channel]:
            if body["message_reference"].get("fail_if_not_exists", True):
                return _error(400, 50035, "Invalid Form Body: Unknown message")
            reference = None
        message = self.fake.add_message(channel, BOT, content, reply_to=int(reference) if reference else None)
        for name, data in (body.get("files") or {}).items():
            message["attachments"].append(self.fake.attachment(channel, name, data))
        message["components"] = body.get("components") or []
        self._record_ping(body, message)
        self.nonces[channel, body.get("nonce")] = int(message["id"])
        self.fake.edits[int(message["id"])] = [(time.monotonic(), content)]
        self.fake.gateway.dispatch("MESSAGE_CREATE", self.fake.as_event(message))
        return reply(message)

    def _record_ping(self, body: dict[str, Any], message: dict[str, Any]) -> None:
        """Record a message that would ping a user: a mention or a reply for which the bot did not disable pings."""
        allowed_mentions = body.get("allowed_mentions")
        mentions = "<@" in message["content"] or "@everyone" in message["content"] or "@here" in message["content"]
        by_text = mentions and (allowed_mentions is None or allowed_mentions.get("parse") != [])
        by_reply = "message_reference" in body and (
            allowed_mentions is None or allowed_mentions.get("replied_user") is True
        )
        if by_text or by_reply:
            self.fake.pings.append(message)

    async def edit(self, request: web.Request) -> web.Response:
        message = self._messages(request).get(int(request.match_info["message"]))
        if message is None:
            return _error(404, 10008, "Unknown Message")
        if message["author"]["id"] != str(BOT):
            return _error(403, 50005, "Cannot edit a message authored by another user")
        content = request[BODY].get("content")
        error = _invalid(content)
        if error is not None:
            return error
        if not (content or "").strip() and not message["attachments"]:
            return _error(400, 50006, "Cannot send an empty message")
        message["content"] = content
        message["components"] = request[BODY].get("components", message["components"]) or []
        message["edited_timestamp"] = "2026-01-01T00:00:01.000000+00:00"
        self._record_ping(request[BODY], message)
        self.fake.edits.setdefault(int(message["id"]), []).append((time.monotonic(), content))
        self.fake.gateway.dispatch("MESSAGE_UPDATE", self.fake.as_event(message))
        return reply(message)

    async def delete(self, request: web.Request) -> web.Response:
        self._messages(request).pop(int(request.match_info["message"]), None)
        return web.Response(status=204)

    async def open_thread(self, request: web.Request) -> web.Response:
        id, parent = int(request.match_info.get("message", snowflake())), int(request.match_info["channel"])
        self.fake.thread(id, parent)
        self.fake.channels[id]["name"] = request[BODY]["name"]
        return reply(self.fake.channels[id], status=201)

    async def callback(self, request: web.Request) -> web.Response:
        interaction = self.fake.interactions.get(request.match_info["token"])
        if interaction is None:
            return _error(404, 10062, "Unknown interaction")
        if interaction.acknowledged_at is not None:
            return _error(400, 40060, "Interaction has already been acknowledged.")
        body = request[BODY]
        data = body.get("data") or {}
        error = _invalid(data.get("content"))
        if error is not None:
            return error
        interaction.acknowledged_at = time.monotonic()
        interaction.ephemeral = bool(data.get("flags", 0) & EPHEMERAL)
        interaction.is_deferred = body["type"] == 5
        message = self._webhook_message(interaction, data.get("content") or "")
        if not interaction.is_deferred:
            interaction.responses["@original"] = message
        answer = {
            "interaction": {"id": str(interaction.id), "type": 2, "response_message_id": message["id"]},
            "resource": {"type": body["type"], "message": message},
        }
        return reply(answer)

    def _webhook_message(self, interaction: Any, content: str) -> dict[str, Any]:
        message = self.fake.add_message(interaction.channel, BOT, content)
        del self.fake.messages[interaction.channel][int(message["id"])]
        return {**message, "webhook_id": str(APPLICATION), "flags": EPHEMERAL if interaction.ephemeral else 0}

    async def follow_up(self, request: web.Request) -> web.Response:
        interaction = self.fake.interactions.get(request.match_info["token"])
        if interaction is None or interaction.acknowledged_at is None:
            return _error(404, 10015, "Unknown Webhook")
        content = request[BODY].get("content") or ""
        error = _invalid(content) or (None if content.strip() else _error(400, 50006, "Cannot send an empty message"))
        if error is not None:
            return error
        message = self._webhook_message(interaction, content)
        self._record_ping(request[BODY], message)
        first = interaction.is_deferred and not interaction.responses
        interaction.responses["@original" if first else message["id"]] = message
        return reply(message)

    async def edit_hook(self, request: web.Request) -> web.Response:
        interaction = self.fake.interactions.get(request.match_info["token"])
        if interaction is None or interaction.acknowledged_at is None:
            return _error(404, 10015, "Unknown Webhook")
        content = request[BODY].get("content") or ""
        error = _invalid(content) or (None if content.strip() else _error(400, 50006, "Cannot send an empty message"))
        if error is not None:
            return error
        message = {**self._webhook_message(interaction, content)}
        self._record_ping(request[BODY], message)
        interaction.responses[request.match_info["message"]] = message
        return reply(message)

    async def delete_hook(self, request: web.Request) -> web.Response:
        interaction = self.fake.interactions[request.match_info["token"]]
        interaction.responses.pop(request.match_info["message"], None)
        return web.Response(status=204)

    async def file(self, request: web.Request) -> web.Response:
        content = self.fake.files.get(request.path)
        return web.Response(body=content) if content is not None else web.Response(status=404)
