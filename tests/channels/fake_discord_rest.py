"""The REST half of the fake Discord: one short handler for each thing that a talking bot asks for."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web
from fake_discord import APPLICATION, BODY, BOT, EPHEMERAL, FakeDiscord, reply, snowflake

_LONGEST = 2000


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
        ("PUT", "/channels/{channel}/thread-members/@me", handlers.nothing),
        ("POST", "/interactions/{id}/{token}/callback", handlers.callback),
        ("POST", hooks, handlers.follow_up),
        ("PATCH", hooks + "/messages/{message}", handlers.edit_hook),
        ("DELETE", hooks + "/messages/{message}", handlers.delete_hook),
    ]
    for method, path, handler in table:
        app.router.add_route(method, "/api/v10" + path, handler)
    app.router.add_get("/cdn/{path:.*}", handlers.file)


def _wrong(status: int, code: int, message: str) -> web.Response:
    return reply({"message": message, "code": code}, status=status)


def _invalid(content: Any) -> web.Response | None:
    if content is not None and len(content) > _LONGEST:
        return _wrong(400, 50035, "Invalid Form Body: Must be 2000 or fewer in length.")
    return None


class Handlers:
    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.nonces: dict[Any, int] = {}

    async def me(self, _: web.Request) -> web.Response:
        return reply({**self.fake.users[BOT], "verified": True})

    async def user(self, request: web.Request) -> web.Response:
        found = self.fake.users.get(int(request.match_info["user"]))
        return reply(found) if found else _wrong(404, 10013, "Unknown User")

    async def member(self, request: web.Request) -> web.Response:
        user = int(request.match_info["user"])
        if user not in self.fake.users or int(request.match_info["guild"]) not in self.fake.guilds:
            return _wrong(404, 10007, "Unknown Member")
        return reply(self.fake.member(user, whole=True))

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
        found = self.fake.channels.get(int(request.match_info["channel"]))
        return reply(found) if found else _wrong(404, 10003, "Unknown Channel")

    async def open_dm(self, request: web.Request) -> web.Response:
        user = int(request[BODY]["recipient_id"])
        if user not in self.fake.users:
            return _wrong(400, 50033, "Invalid Recipient(s)")
        return reply(self.fake.channels[self.fake.dm(user)])

    async def typing(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def nothing(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    def _there(self, request: web.Request) -> dict[int, dict[str, Any]]:
        return self.fake.messages.get(int(request.match_info["channel"]), {})

    async def history(self, request: web.Request) -> web.Response:
        query = request.query
        ids = sorted(self._there(request))
        if "after" in query:
            chosen = [id for id in ids if id > int(query["after"])][: int(query.get("limit", 50))]
        else:
            before = int(query.get("before", 1 << 63))
            chosen = [id for id in ids if id < before][-int(query.get("limit", 50)) :]
        return reply([self._there(request)[id] for id in reversed(chosen)])

    async def read(self, request: web.Request) -> web.Response:
        found = self._there(request).get(int(request.match_info["message"]))
        return reply(found) if found else _wrong(404, 10008, "Unknown Message")

    async def create(self, request: web.Request) -> web.Response:
        channel = int(request.match_info["channel"])
        if channel not in self.fake.channels:
            return _wrong(404, 10003, "Unknown Channel")
        body = request[BODY]
        content = body.get("content") or ""
        if not content.strip() and not body.get("files") and not body.get("embeds"):
            return _wrong(400, 50006, "Cannot send an empty message")
        wrong = _invalid(content)
        if wrong is not None:
            return wrong
        if body.get("enforce_nonce") and (channel, body["nonce"]) in self.nonces:
            return reply(self.fake.messages[channel][self.nonces[channel, body["nonce"]]])
        reference = (body.get("message_reference") or {}).get("message_id")
        if reference is not None and int(reference) not in self.fake.messages[channel]:
            if body["message_reference"].get("fail_if_not_exists", True):
                return _wrong(400, 50035, "Invalid Form Body: Unknown message")
            reference = None
        message = self.fake.written(channel, BOT, content, reply_to=int(reference) if reference else None)
        for name, data in (body.get("files") or {}).items():
            message["attachments"].append(self.fake.attachment(channel, name, data))
        message["components"] = body.get("components") or []
        self._pings(body, message)
        self.nonces[channel, body.get("nonce")] = int(message["id"])
        self.fake.edits[int(message["id"])] = [(time.monotonic(), content)]
        self.fake.gateway.dispatch("MESSAGE_CREATE", self.fake.as_event(message))
        return reply(message)

    def _pings(self, body: dict[str, Any], message: dict[str, Any]) -> None:
        """Keep what would have pinged someone: a mention that nothing forbids, or a reply that does not say no."""
        allowed = body.get("allowed_mentions")
        mentions = "<@" in message["content"] or "@everyone" in message["content"] or "@here" in message["content"]
        by_text = mentions and (allowed is None or allowed.get("parse") != [])
        by_reply = "message_reference" in body and (allowed is None or allowed.get("replied_user") is True)
        if by_text or by_reply:
            self.fake.pings.append(message)

    async def edit(self, request: web.Request) -> web.Response:
        message = self._there(request).get(int(request.match_info["message"]))
        if message is None:
            return _wrong(404, 10008, "Unknown Message")
        if message["author"]["id"] != str(BOT):
            return _wrong(403, 50005, "Cannot edit a message authored by another user")
        content = request[BODY].get("content")
        wrong = _invalid(content)
        if wrong is not None:
            return wrong
        if not (content or "").strip() and not message["attachments"]:
            return _wrong(400, 50006, "Cannot send an empty message")
        message["content"] = content
        message["components"] = request[BODY].get("components", message["components"]) or []
        message["edited_timestamp"] = "2026-01-01T00:00:01.000000+00:00"
        self._pings(request[BODY], message)
        self.fake.edits.setdefault(int(message["id"]), []).append((time.monotonic(), content))
        self.fake.gateway.dispatch("MESSAGE_UPDATE", self.fake.as_event(message))
        return reply(message)

    async def delete(self, request: web.Request) -> web.Response:
        self._there(request).pop(int(request.match_info["message"]), None)
        return web.Response(status=204)

    async def open_thread(self, request: web.Request) -> web.Response:
        id, parent = int(request.match_info.get("message", snowflake())), int(request.match_info["channel"])
        self.fake.thread(id, parent)
        self.fake.channels[id]["name"] = request[BODY]["name"]
        return reply(self.fake.channels[id], status=201)

    async def callback(self, request: web.Request) -> web.Response:
        made = self.fake.interactions.get(request.match_info["token"])
        if made is None:
            return _wrong(404, 10062, "Unknown interaction")
        if made.acknowledged is not None:
            return _wrong(400, 40060, "Interaction has already been acknowledged.")
        body = request[BODY]
        data = body.get("data") or {}
        wrong = _invalid(data.get("content"))
        if wrong is not None:
            return wrong
        made.acknowledged = time.monotonic()
        made.ephemeral = bool(data.get("flags", 0) & EPHEMERAL)
        made.deferred = body["type"] == 5
        message = self._hooked(made, data.get("content") or "")
        if not made.deferred:
            made.shown["@original"] = message
        answer = {
            "interaction": {"id": str(made.id), "type": 2, "response_message_id": message["id"]},
            "resource": {"type": body["type"], "message": message},
        }
        return reply(answer)

    def _hooked(self, made: Any, content: str) -> dict[str, Any]:
        message = self.fake.written(made.channel, BOT, content)
        del self.fake.messages[made.channel][int(message["id"])]
        return {**message, "webhook_id": str(APPLICATION), "flags": EPHEMERAL if made.ephemeral else 0}

    async def follow_up(self, request: web.Request) -> web.Response:
        made = self.fake.interactions.get(request.match_info["token"])
        if made is None or made.acknowledged is None:
            return _wrong(404, 10015, "Unknown Webhook")
        content = request[BODY].get("content") or ""
        wrong = _invalid(content) or (None if content.strip() else _wrong(400, 50006, "Cannot send an empty message"))
        if wrong is not None:
            return wrong
        message = self._hooked(made, content)
        self._pings(request[BODY], message)
        first = made.deferred and not made.shown
        made.shown["@original" if first else message["id"]] = message
        return reply(message)

    async def edit_hook(self, request: web.Request) -> web.Response:
        made = self.fake.interactions.get(request.match_info["token"])
        if made is None or made.acknowledged is None:
            return _wrong(404, 10015, "Unknown Webhook")
        content = request[BODY].get("content") or ""
        wrong = _invalid(content) or (None if content.strip() else _wrong(400, 50006, "Cannot send an empty message"))
        if wrong is not None:
            return wrong
        message = {**self._hooked(made, content)}
        self._pings(request[BODY], message)
        made.shown[request.match_info["message"]] = message
        return reply(message)

    async def delete_hook(self, request: web.Request) -> web.Response:
        made = self.fake.interactions[request.match_info["token"]]
        made.shown.pop(request.match_info["message"], None)
        return web.Response(status=204)

    async def file(self, request: web.Request) -> web.Response:
        found = self.fake.files.get(request.path)
        return web.Response(body=found) if found is not None else web.Response(status=404)
