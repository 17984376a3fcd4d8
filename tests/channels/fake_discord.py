"""A Discord for tests, on loopback: what the REST API and the gateway do as far as a bot that talks can see.

It checks what Discord checks (the token, 2000 characters, who wrote a message, one answer to an interaction) and keeps
every request, so that a test can say what was sent. Rate limits, errors and lost connections come on demand.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from fake_discord_gateway import Gateway

TOKEN = "MTIzNDU2Nzg5MDEyMzQ1Njc4.Gsecre.t-of-the-bot-that-nobody-may-see"
EPOCH = 1_420_070_400_000
BOT, APPLICATION, GUILD = 900, 900, 500
TEXT, DM, THREAD = 0, 1, 11
EPHEMERAL = 64
BODY = web.RequestKey("body", object)
_counter = itertools.count(1)
_NOW = "2026-01-01T00:00:00.000000+00:00"


def snowflake(seconds_ago: float = 0.0) -> int:
    """Make an id that sorts by its time, as Discord's do."""
    return ((time.time_ns() // 1_000_000 - int(seconds_ago * 1000) - EPOCH) << 22) | (next(_counter) & 0x3FFFFF)


@dataclass
class Request:
    """Something that the bot asked of the API."""

    method: str
    path: str
    body: Any
    status: int = 0
    at: float = field(default_factory=time.monotonic)


@dataclass
class Limit:
    """A refusal to come: 429 with its pause, or another status, for so many requests that match."""

    method: str
    pattern: str
    times: int
    status: int = 429
    retry_after: float = 0.05
    everywhere: bool = False
    body: Any = None


@dataclass
class Interaction:
    """A command that a person gave, and what they saw of the answer."""

    id: int
    token: str
    channel: int
    sent: float
    acknowledged: float | None = None
    ephemeral: bool = False
    deferred: bool = False
    shown: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        return [message["content"] for message in self.shown.values()]


class FakeDiscord:
    """The server. `say` and `command` are what people do; `sent` and `requests` what the bot did."""

    def __init__(self, port: int = 0) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v10"
        self._port = port
        self.token = TOKEN
        self.requests: list[Request] = []
        self.limits: list[Limit] = []
        self.buckets: dict[str, tuple[int, float]] = {}
        self.spent: dict[tuple[str, str], list[float]] = {}
        self.users: dict[int, dict[str, Any]] = {}
        self.channels: dict[int, dict[str, Any]] = {}
        self.messages: dict[int, dict[int, dict[str, Any]]] = {}
        self.roles: dict[int, list[int]] = {}
        self.files: dict[str, bytes] = {}
        self.interactions: dict[str, Interaction] = {}
        self.commands: list[dict[str, Any]] | None = None
        self.guilds: dict[int, str] = {}
        self.edits: dict[int, list[tuple[float, str]]] = {}
        self.pings: list[dict[str, Any]] = []
        self.lose: tuple[str, str] | None = None
        self.gateway = Gateway(self)
        self._runner: web.AppRunner | None = None
        self.user(BOT, "recollect", bot=True)
        self.guild(GUILD)

    def user(self, id: int, name: str, *, bot: bool = False, shown: str | None = None) -> dict[str, Any]:
        made = {"id": str(id), "username": name, "discriminator": "0", "global_name": shown, "avatar": None, "bot": bot}
        self.users[id] = made
        return made

    def guild(self, id: int) -> int:
        self.guilds[id] = f"guild {id}"
        return id

    def channel(self, id: int, *, guild: int = GUILD) -> int:
        self.channels[id] = {
            "id": str(id), "type": TEXT, "name": f"channel-{id}", "position": 0, "guild_id": str(guild),
            "permission_overwrites": [], "parent_id": None, "last_message_id": None,
        }  # fmt: skip
        self.messages[id] = {}
        return id

    def thread(self, id: int, parent: int, *, owner: int = BOT, announce: bool = True, guild: int = GUILD) -> int:
        self.channels[id] = {
            "id": str(id), "type": THREAD, "name": f"thread-{id}", "guild_id": str(guild), "parent_id": str(parent),
            "owner_id": str(owner), "message_count": 0, "member_count": 1, "last_message_id": None,
            "thread_metadata": {"archived": False, "auto_archive_duration": 1440, "archive_timestamp": _NOW},
        }  # fmt: skip
        self.messages[id] = {}
        if announce:
            self.gateway.dispatch("THREAD_CREATE", {**self.channels[id], "newly_created": True})
        return id

    def dm(self, user: int) -> int:
        id = 7_000_000 + user
        if id not in self.channels:
            self.channels[id] = {"id": str(id), "type": DM, "recipients": [self.users[user]], "last_message_id": None}
            self.messages[id] = {}
        return id

    def member(self, user: int, *, whole: bool = False) -> dict[str, Any]:
        made: dict[str, Any] = {
            "roles": [str(role) for role in self.roles.get(user, [])], "joined_at": _NOW, "deaf": False, "mute": False,
            "flags": 0, "nick": None, "avatar": None, "premium_since": None, "pending": False, "permissions": "0",
        }  # fmt: skip
        return {**made, "user": self.users[user]} if whole else made

    def guild_data(self, id: int) -> dict[str, Any]:
        mine = [channel for channel in self.channels.values() if channel.get("guild_id") == str(id)]
        everyone = {
            "id": str(id), "name": "@everyone", "permissions": str((1 << 10) | (1 << 11) | (1 << 16) | (1 << 38)), "position": 0, "color": 0, "hoist": False,
            "managed": False, "mentionable": False, "flags": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        }  # fmt: skip
        held = {role for roles in self.roles.values() for role in roles}
        own = {"tags": {"bot_id": str(BOT)}}
        roles = [
            {
                **everyone,
                "id": str(role),
                "name": f"role {role}",
                "position": 1,
                **(own if role in self.roles.get(BOT, ()) else {}),
            }
            for role in held
        ]
        return {
            "id": str(id), "name": self.guilds[id], "owner_id": "1", "member_count": 3, "roles": [everyone, *roles],
            "emojis": [], "stickers": [], "features": [], "members": [self.member(BOT, whole=True)],
            "channels": [channel for channel in mine if channel["type"] == TEXT],
            "threads": [channel for channel in mine if channel["type"] == THREAD],
            "voice_states": [], "presences": [], "stage_instances": [], "guild_scheduled_events": [],
        }  # fmt: skip

    def say(
        self, channel: int, user: int, text: str, *, reply_to: int | None = None, files: dict[str, bytes] | None = None,
        seconds_ago: float = 0.0, **fields: Any,
    ) -> int:  # fmt: skip
        """Have a person write a message; the bot hears of it if it is connected."""
        message = self.written(channel, user, text, reply_to=reply_to, seconds_ago=seconds_ago)
        for name, content in (files or {}).items():
            message["attachments"].append(self.attachment(channel, name, content))
        message.update(fields)
        self.hear(message)
        return int(message["id"])

    def hear(self, message: dict[str, Any]) -> None:
        """Tell the bot of a message, as often as a test likes."""
        self.gateway.dispatch("MESSAGE_CREATE", self.as_event(message))

    def as_event(self, message: dict[str, Any]) -> dict[str, Any]:
        guild = self.channels[int(message["channel_id"])].get("guild_id")
        if guild is None:
            return message
        return {**message, "guild_id": guild, "member": self.member(int(message["author"]["id"]))}

    def attachment(self, channel: int, name: str, content: bytes) -> dict[str, Any]:
        id = snowflake()
        path = f"/cdn/attachments/{channel}/{id}/{name}"
        self.files[path] = content
        kind = "image/png" if name.endswith(".png") else "text/plain; charset=utf-8" if name.endswith(".txt") else None
        return {
            "id": str(id), "filename": name, "size": len(content), "url": self.origin + path + "?ex=1&hm=2",
            "proxy_url": self.origin + path, "content_type": kind,
        }  # fmt: skip

    def written(
        self, channel: int, user: int, text: str, *, reply_to: int | None = None, seconds_ago: float = 0.0
    ) -> dict[str, Any]:
        id = snowflake(seconds_ago)
        named = [int(found) for found in re.findall(r"<@!?(\d+)>", text)]
        message: dict[str, Any] = {
            "id": str(id), "channel_id": str(channel), "author": self.users[user], "content": text, "type": 0,
            "timestamp": _NOW, "edited_timestamp": None, "tts": False, "mention_everyone": False, "attachments": [],
            "embeds": [], "pinned": False, "mention_roles": [], "flags": 0, "components": [],
            "mentions": [self.users[name] for name in named if name in self.users],
        }  # fmt: skip
        if reply_to is not None:
            message["type"] = 19
            message["message_reference"] = {"message_id": str(reply_to), "channel_id": str(channel)}
            message["referenced_message"] = self.messages[channel].get(reply_to)
        self.messages[channel][id] = message
        self.channels[channel]["last_message_id"] = str(id)
        return message

    def command(self, channel: int, user: int, name: str, /, **options: Any) -> Interaction:
        """Have a person give a slash command."""
        made = Interaction(snowflake(), f"interaction-token-{next(_counter)}", channel, time.monotonic())
        self.interactions[made.token] = made
        kinds = {str: 3, int: 4, bool: 5}
        there = self.channels[channel]
        event: dict[str, Any] = {
            "id": str(made.id), "application_id": str(APPLICATION), "type": 2, "token": made.token, "version": 1,
            "channel_id": str(channel), "channel": there, "locale": "en-GB", "app_permissions": "0",
            "entitlements": [], "attachment_size_limit": 10_485_760, "authorizing_integration_owners": {},
            "data": {
                "id": str(snowflake()), "name": name, "type": 1,
                "options": [
                    {"name": key, "type": kinds[type(value)], "value": value} for key, value in options.items()
                ],
            },
        }  # fmt: skip
        if "guild_id" in there:
            event |= {"guild_id": there["guild_id"], "member": self.member(user, whole=True)}
        else:
            event["user"] = self.users[user]
        self.gateway.dispatch("INTERACTION_CREATE", event)
        return made

    def buttons(self, channel: int) -> dict[str, tuple[int, str]]:
        """Give the buttons that can be pressed in a channel: what each says, its message, and its custom id."""
        return {
            button["label"]: (id, button["custom_id"])
            for id, message in self.messages[channel].items()
            for row in message["components"]
            for button in row["components"]
        }

    def press(self, channel: int, user: int, button: tuple[int, str]) -> Interaction:
        """Have a person press a button."""
        made = Interaction(snowflake(), f"interaction-token-{next(_counter)}", channel, time.monotonic())
        self.interactions[made.token] = made
        there = self.channels[channel]
        event: dict[str, Any] = {
            "id": str(made.id), "application_id": str(APPLICATION), "type": 3, "token": made.token, "version": 1,
            "channel_id": str(channel), "channel": there, "locale": "en-GB", "app_permissions": "0",
            "entitlements": [], "attachment_size_limit": 10_485_760, "authorizing_integration_owners": {},
            "data": {"custom_id": button[1], "component_type": 2}, "message": self.messages[channel][button[0]],
        }  # fmt: skip
        if "guild_id" in there:
            event |= {"guild_id": there["guild_id"], "member": self.member(user, whole=True)}
        else:
            event["user"] = self.users[user]
        self.gateway.dispatch("INTERACTION_CREATE", event)
        return made

    def sent(self, channel: int) -> list[str]:
        """Give what the bot's messages in a channel say now, oldest first."""
        return [text["content"] for text in self.messages[channel].values() if text["author"]["id"] == str(BOT)]

    def asked(self, method: str, pattern: str) -> list[Request]:
        return [one for one in self.requests if one.method == method and re.search(pattern, one.path)]

    def limit(self, method: str, pattern: str, *, times: int = 1, **options: Any) -> None:
        """Refuse the next requests that match: 429, or another `status`."""
        self.limits.append(Limit(method, pattern, times, **options))

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/api/v10")

    async def __aenter__(self) -> Self:
        from fake_discord_rest import routes

        app = web.Application(middlewares=[self._guard], client_max_size=1 << 26)
        routes(self, app)
        app.router.add_get("/gateway", self.gateway.connect)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/api/v10"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.close()
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path == "/gateway" or request.path.startswith("/cdn/"):
            return await handler(request)
        path = request.path.removeprefix("/api/v10")
        kept = Request(request.method, path, await _body(request))
        self.requests.append(kept)
        request[BODY] = kept.body
        response = self._refused(kept, request) or await handler(request)
        kept.status = response.status
        self._count(kept, response)
        if self.lose is not None and kept.method == self.lose[0] and re.search(self.lose[1], kept.path):
            self.lose = None
            assert request.transport is not None
            request.transport.abort()
        return response

    def _refused(self, kept: Request, request: web.Request) -> web.Response | None:
        open_to_all = kept.path.startswith(("/interactions/", "/webhooks/"))
        if not open_to_all and request.headers.get("Authorization") != f"Bot {self.token}":
            return reply({"message": "401: Unauthorized", "code": 0}, status=401)
        for limit in self.limits:
            if limit.times and limit.method == kept.method and re.search(limit.pattern, kept.path):
                limit.times -= 1
                return refusal(limit)
        return self._over(kept)

    def _over(self, kept: Request) -> web.Response | None:
        """Refuse what is more than the bucket of its route and channel holds."""
        kind = _kind(kept)
        if kind not in self.buckets:
            return None
        count, window = self.buckets[kind]
        spent = self.spent.setdefault((kind, _major(kept)), [])
        now = time.monotonic()
        spent[:] = [at for at in spent if at > now - window]
        if len(spent) >= count:
            return refusal(Limit(kept.method, "", 0, retry_after=round(spent[0] + window - now, 3)))
        spent.append(now)
        return None

    def _count(self, kept: Request, response: web.StreamResponse) -> None:
        kind = _kind(kept)
        if kind in self.buckets and response.status != 429:
            count, window = self.buckets[kind]
            spent = self.spent.get((kind, _major(kept)), [])
            left = spent[0] + window - time.monotonic() if spent else window
            response.headers.update({
                "X-RateLimit-Limit": str(count), "X-RateLimit-Remaining": str(count - len(spent)),
                "X-RateLimit-Reset-After": f"{max(left, 0.0):.3f}", "X-RateLimit-Bucket": kind.replace(" ", "-"),
            })  # fmt: skip


def reply(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer in JSON. The content type stands alone, as Discord sends it: the library reads nothing else as JSON."""
    body = json.dumps(data).encode()
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def refusal(limit: Limit) -> web.Response:
    if limit.status != 429:
        body = limit.body if limit.body is not None else {"message": f"{limit.status}: refused", "code": 0}
        return reply(body, status=limit.status)
    body = {"message": "You are being rate limited.", "retry_after": limit.retry_after, "global": limit.everywhere}
    headers = {"Via": "1.1 fake", "Retry-After": str(limit.retry_after)}
    return reply(body, status=429, headers=headers)


def _kind(kept: Request) -> str:
    return f"{kept.method} {re.sub(r'[0-9]+', 'N', kept.path)}"


def _major(kept: Request) -> str:
    return next(iter(re.findall(r"\d+", kept.path)), "")


async def _body(request: web.Request) -> Any:
    if request.content_type.startswith("multipart/"):
        form = await request.post()
        body = json.loads(str(form["payload_json"])) if "payload_json" in form else {}
        files = {name: part for name, part in form.items() if name != "payload_json"}
        return {**body, "files": {part.filename: part.file.read() for part in files.values()}}
    raw = await request.read()
    return json.loads(raw) if raw else None


async def until(condition: Any, what: str = "it", seconds: float = 90.0) -> Any:
    """Wait until something is so, however slow the machine is; a bug waits no longer than the limit."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds:g} seconds")
        await asyncio.sleep(0.005)
    return found
