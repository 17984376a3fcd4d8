"""A fake Discord on loopback: the parts of the REST API and the gateway that the bot uses.

It checks what Discord checks (the token, 2000 characters, the author of a message, one answer to an interaction) and
records every request for the assertions of a test. A test can cause rate limits, errors and lost connections.
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
EPOCH = 1_420_070_400_000  # milliseconds since 1970: 2015-01-01, from which Discord's ids count
BOT, APPLICATION, GUILD = 900, 900, 500
TEXT, DM, THREAD = 0, 1, 11
EPHEMERAL = 64  # bit of the flags of a message that only one user sees, defined by Discord
BODY: web.RequestKey[Any] = web.RequestKey("body", object)
_counter = itertools.count(1)
_NOW = "2026-01-01T00:00:00.000000+00:00"


def snowflake(seconds_ago: float = 0.0) -> int:
    """Return an id that sorts by its time, as Discord's ids do."""
    return ((time.time_ns() // 1_000_000 - int(seconds_ago * 1000) - EPOCH) << 22) | (next(_counter) & 0x3FFFFF)


@dataclass
class Request:
    """A request of the bot to the API."""

    method: str
    path: str
    body: Any
    status: int = 0
    timestamp: float = field(default_factory=time.monotonic)


@dataclass
class Limit:
    """A refusal of the next `times` requests that match: 429 with `retry_after` seconds, or another status."""

    method: str
    pattern: str
    times: int
    status: int = 429
    retry_after: float = 0.05
    is_global: bool = False
    body: Any = None


@dataclass
class Interaction:
    """A slash command or a pressed button, and the responses that the user sees."""

    id: int
    token: str
    channel: int
    created_at: float
    acknowledged_at: float | None = None
    ephemeral: bool = False
    is_deferred: bool = False
    responses: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        return [message["content"] for message in self.responses.values()]


class FakeDiscord:
    """The server. `post`, `send_command` and `press` act as people; `bot_texts` and `requests` show what the bot did."""

    def __init__(self, port: int = 0) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v10"
        self._port = port
        self.token = TOKEN
        self.requests: list[Request] = []
        self.limits: list[Limit] = []
        self.buckets: dict[str, tuple[int, float]] = {}
        self.usage: dict[tuple[str, str], list[float]] = {}
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
        self.abort_response: tuple[str, str] | None = None
        self.gateway = Gateway(self)
        self._runner: web.AppRunner | None = None
        self.user(BOT, "recollect", bot=True)
        self.guild(GUILD)

    def user(self, id: int, name: str, *, bot: bool = False, display_name: str | None = None) -> dict[str, Any]:
        user = {
            "id": str(id),
            "username": name,
            "discriminator": "0",
            "global_name": display_name,
            "avatar": None,
            "bot": bot,
        }
        self.users[id] = user
        return user

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

    def member(self, user: int, *, with_user: bool = False) -> dict[str, Any]:
        member: dict[str, Any] = {
            "roles": [str(role) for role in self.roles.get(user, [])], "joined_at": _NOW, "deaf": False, "mute": False,
            "flags": 0, "nick": None, "avatar": None, "premium_since": None, "pending": False, "permissions": "0",
        }  # fmt: skip
        return {**member, "user": self.users[user]} if with_user else member

    def guild_data(self, id: int) -> dict[str, Any]:
        channels = [channel for channel in self.channels.values() if channel.get("guild_id") == str(id)]
        everyone = {
            "id": str(id), "name": "@everyone", "permissions": str((1 << 10) | (1 << 11) | (1 << 16) | (1 << 38)), "position": 0, "color": 0, "hoist": False,
            "managed": False, "mentionable": False, "flags": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        }  # fmt: skip
        role_ids = {role for roles in self.roles.values() for role in roles}
        bot_tags = {"tags": {"bot_id": str(BOT)}}
        roles = [
            {
                **everyone,
                "id": str(role),
                "name": f"role {role}",
                "position": 1,
                **(bot_tags if role in self.roles.get(BOT, ()) else {}),
            }
            for role in role_ids
        ]
        return {
            "id": str(id), "name": self.guilds[id], "owner_id": "1", "member_count": 3, "roles": [everyone, *roles],
            "emojis": [], "stickers": [], "features": [], "members": [self.member(BOT, with_user=True)],
            "channels": [channel for channel in channels if channel["type"] == TEXT],
            "threads": [channel for channel in channels if channel["type"] == THREAD],
            "voice_states": [], "presences": [], "stage_instances": [], "guild_scheduled_events": [],
        }  # fmt: skip

    def post(
        self, channel: int, user: int, text: str, *, reply_to: int | None = None, files: dict[str, bytes] | None = None,
        seconds_ago: float = 0.0, **fields: Any,
    ) -> int:  # fmt: skip
        """Post a message as a user, and deliver it to the bot if it is connected."""
        message = self.add_message(channel, user, text, reply_to=reply_to, seconds_ago=seconds_ago)
        for name, content in (files or {}).items():
            message["attachments"].append(self.attachment(channel, name, content))
        message.update(fields)
        self.deliver(message)
        return int(message["id"])

    def deliver(self, message: dict[str, Any]) -> None:
        """Dispatch the event of a message to the bot; a test may repeat it."""
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
        content_type = (
            "image/png" if name.endswith(".png") else "text/plain; charset=utf-8" if name.endswith(".txt") else None
        )
        return {
            "id": str(id), "filename": name, "size": len(content), "url": self.origin + path + "?ex=1&hm=2",
            "proxy_url": self.origin + path, "content_type": content_type,
        }  # fmt: skip

    def add_message(
        self, channel: int, user: int, text: str, *, reply_to: int | None = None, seconds_ago: float = 0.0
    ) -> dict[str, Any]:
        id = snowflake(seconds_ago)
        mentioned_ids = [int(match) for match in re.findall(r"<@!?(\d+)>", text)]
        message: dict[str, Any] = {
            "id": str(id), "channel_id": str(channel), "author": self.users[user], "content": text, "type": 0,
            "timestamp": _NOW, "edited_timestamp": None, "tts": False, "mention_everyone": False, "attachments": [],
            "embeds": [], "pinned": False, "mention_roles": [], "flags": 0, "components": [],
            "mentions": [self.users[user_id] for user_id in mentioned_ids if user_id in self.users],
        }  # fmt: skip
        if reply_to is not None:
            message["type"] = 19
            message["message_reference"] = {"message_id": str(reply_to), "channel_id": str(channel)}
            message["referenced_message"] = self.messages[channel].get(reply_to)
        self.messages[channel][id] = message
        self.channels[channel]["last_message_id"] = str(id)
        return message

    def send_command(self, channel: int, user: int, name: str, /, **options: Any) -> Interaction:
        """Send a slash command as a user."""
        interaction = Interaction(snowflake(), f"interaction-token-{next(_counter)}", channel, time.monotonic())
        self.interactions[interaction.token] = interaction
        kinds = {str: 3, int: 4, bool: 5}
        channel_data = self.channels[channel]
        event: dict[str, Any] = {
            "id": str(interaction.id), "application_id": str(APPLICATION), "type": 2, "token": interaction.token, "version": 1,
            "channel_id": str(channel), "channel": channel_data, "locale": "en-GB", "app_permissions": "0",
            "entitlements": [], "attachment_size_limit": 10_485_760, "authorizing_integration_owners": {},
            "data": {
                "id": str(snowflake()), "name": name, "type": 1,
                "options": [
                    {"name": key, "type": kinds[type(value)], "value": value} for key, value in options.items()
                ],
            },
        }  # fmt: skip
        if "guild_id" in channel_data:
            event |= {"guild_id": channel_data["guild_id"], "member": self.member(user, with_user=True)}
        else:
            event["user"] = self.users[user]
        self.gateway.dispatch("INTERACTION_CREATE", event)
        return interaction

    def buttons(self, channel: int) -> dict[str, tuple[int, str]]:
        """Return the buttons in a channel: label to message id and custom id."""
        return {
            button["label"]: (id, button["custom_id"])
            for id, message in self.messages[channel].items()
            for row in message["components"]
            for button in row["components"]
        }

    def press(self, channel: int, user: int, button: tuple[int, str]) -> Interaction:
        """Send the press of a button as a user."""
        interaction = Interaction(snowflake(), f"interaction-token-{next(_counter)}", channel, time.monotonic())
        self.interactions[interaction.token] = interaction
        channel_data = self.channels[channel]
        event: dict[str, Any] = {
            "id": str(interaction.id), "application_id": str(APPLICATION), "type": 3, "token": interaction.token, "version": 1,
            "channel_id": str(channel), "channel": channel_data, "locale": "en-GB", "app_permissions": "0",
            "entitlements": [], "attachment_size_limit": 10_485_760, "authorizing_integration_owners": {},
            "data": {"custom_id": button[1], "component_type": 2}, "message": self.messages[channel][button[0]],
        }  # fmt: skip
        if "guild_id" in channel_data:
            event |= {"guild_id": channel_data["guild_id"], "member": self.member(user, with_user=True)}
        else:
            event["user"] = self.users[user]
        self.gateway.dispatch("INTERACTION_CREATE", event)
        return interaction

    def bot_texts(self, channel: int) -> list[str]:
        """Return the current texts of the bot's messages in a channel, oldest first."""
        return [
            message["content"] for message in self.messages[channel].values() if message["author"]["id"] == str(BOT)
        ]

    def find_requests(self, method: str, pattern: str) -> list[Request]:
        return [request for request in self.requests if request.method == method and re.search(pattern, request.path)]

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
        port = site._server.sockets[0].getsockname()[1]  # pyright: ignore[reportAttributeAccessIssue]
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
        record = Request(request.method, path, await _body(request))
        self.requests.append(record)
        request[BODY] = record.body
        response = self._refuse(record, request) or await handler(request)
        record.status = response.status
        self._add_rate_headers(record, response)
        if (
            self.abort_response is not None
            and record.method == self.abort_response[0]
            and re.search(self.abort_response[1], record.path)
        ):
            self.abort_response = None
            assert request.transport is not None
            request.transport.abort()
        return response

    def _refuse(self, record: Request, request: web.Request) -> web.Response | None:
        needs_no_token = record.path.startswith(("/interactions/", "/webhooks/"))
        if not needs_no_token and request.headers.get("Authorization") != f"Bot {self.token}":
            return reply({"message": "401: Unauthorized", "code": 0}, status=401)
        for limit in self.limits:
            if limit.times and limit.method == record.method and re.search(limit.pattern, record.path):
                limit.times -= 1
                return refusal(limit)
        return self._check_bucket(record)

    def _check_bucket(self, record: Request) -> web.Response | None:
        """Refuse a request that exceeds the bucket of its route and channel."""
        route = _route(record)
        if route not in self.buckets:
            return None
        count, window = self.buckets[route]
        times = self.usage.setdefault((route, _major_id(record)), [])
        now = time.monotonic()
        times[:] = [time_of_request for time_of_request in times if time_of_request > now - window]
        if len(times) >= count:
            return refusal(Limit(record.method, "", 0, retry_after=round(times[0] + window - now, 3)))
        times.append(now)
        return None

    def _add_rate_headers(self, record: Request, response: web.StreamResponse) -> None:
        route = _route(record)
        if route in self.buckets and response.status != 429:
            count, window = self.buckets[route]
            times = self.usage.get((route, _major_id(record)), [])
            reset_after = times[0] + window - time.monotonic() if times else window
            response.headers.update({
                "X-RateLimit-Limit": str(count), "X-RateLimit-Remaining": str(count - len(times)),
                "X-RateLimit-Reset-After": f"{max(reset_after, 0.0):.3f}", "X-RateLimit-Bucket": route.replace(" ", "-"),
            })  # fmt: skip


def reply(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response. Its content type has no charset, as at Discord: the library parses only this one as JSON."""
    body = json.dumps(data).encode()
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def refusal(limit: Limit) -> web.Response:
    if limit.status != 429:
        body = limit.body if limit.body is not None else {"message": f"{limit.status}: refused", "code": 0}
        return reply(body, status=limit.status)
    body = {"message": "You are being rate limited.", "retry_after": limit.retry_after, "global": limit.is_global}
    headers = {"Via": "1.1 fake", "Retry-After": str(limit.retry_after)}
    return reply(body, status=429, headers=headers)


def _route(record: Request) -> str:
    return f"{record.method} {re.sub(r'[0-9]+', 'N', record.path)}"


def _major_id(record: Request) -> str:
    return next(iter(re.findall(r"\d+", record.path)), "")


async def _body(request: web.Request) -> Any:
    if request.content_type.startswith("multipart/"):
        form = await request.post()
        body = json.loads(str(form["payload_json"])) if "payload_json" in form else {}
        files = {name: part for name, part in form.items() if name != "payload_json"}
        return {**body, "files": {part.filename: part.file.read() for part in files.values()}}  # pyright: ignore[reportAttributeAccessIssue]
    raw = await request.read()
    return json.loads(raw) if raw else None


async def wait_until(condition: Any, description: str = "the condition", seconds: float = 90.0) -> Any:
    """Wait until a condition is true, and return its value. The limit is generous, for slow machines."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{description} did not happen within {seconds:g} seconds")
        await asyncio.sleep(0.005)
    return result
