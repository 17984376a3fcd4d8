"""Discord client: discord.py's client, for a bot that stays connected for months.

An event that cannot be parsed is skipped instead of ending the bot, a lost connection is opened again, and an error at
start-up states the next step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from recollect.errors import BotRejected

_log = logging.getLogger(__name__)
_UNGUARDED_EVENTS = frozenset({"READY", "RESUMED"})
_BAD_TOKEN, _BAD_INTENTS = 4004, 4013  # close codes of Discord's gateway
_SERVER_ERROR = 500  # HTTP status; a login that fails with this or a higher one is retried
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 60.0  # seconds between two connection attempts, doubled each time
_MAX_RATE_LIMIT_WAIT = 30.0
"""Seconds that the library waits for Discord's rate limit. For longer waits the dispatcher decides."""


Notify = Callable[[str], None]
PORTAL = "https://discord.com/developers/applications"
WRONG_TOKEN = (
    "Discord rejected the token. Create a new one with Reset Token on the page Bot of your application, and set it in "
    f"RECOLLECT_DISCORD_TOKEN or channels.discord.token ({PORTAL})."
)
NO_INTENT = (
    "This bot may not read messages. Turn on Message Content Intent on the page Bot of your application, save, and "
    f"start the bot again ({PORTAL})."
)


def intents() -> discord.Intents:
    """Return the intents of the bot: channel and direct messages with their text, and nothing about members."""
    result = discord.Intents.none()
    result.guilds = result.guild_messages = result.dm_messages = result.message_content = True
    return result


class DiscordClient(discord.Client):
    """A client that stays connected. `base_url` replaces the API address; `notify` receives texts for the operator."""

    def __init__(self, *, base_url: str | None = None, notify: Notify = lambda _: None, **options: Any) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # the bot uses no voice
        super().__init__(
            intents=intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,
            max_ratelimit_timeout=_MAX_RATE_LIMIT_WAIT,
            member_cache_flags=discord.MemberCacheFlags.none(),
            **options,
        )
        self._base_url = base_url
        self.notify = notify
        parsers = self._connection.parsers
        for event, parse in parsers.items():
            if event not in _UNGUARDED_EVENTS:
                parsers[event] = _guard_parser(event, parse)

    async def log_in(self, token: str) -> None:
        """Log in; retry while the network fails. Raises BotRejected if Discord rejects the token."""
        if self._base_url is not None:
            Route.BASE = self._base_url.rstrip("/")  # the library has one address for the whole process
        pause = _FIRST_PAUSE
        while True:
            try:
                await self.login(token)
                if self._base_url is not None:
                    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL((await self.http.get_bot_gateway())[1])
            except discord.LoginFailure as error:
                raise BotRejected(WRONG_TOKEN) from error
            except ValueError:  # a line break in the token; the library's error may contain the token
                raise BotRejected(WRONG_TOKEN) from None
            except (aiohttp.ClientError, OSError, discord.HTTPException, discord.GatewayNotFound) as error:
                if isinstance(error, discord.HTTPException) and error.status < _SERVER_ERROR:
                    raise BotRejected(f"Discord rejected the login: {error_reason(error)}.") from error
                self.notify(f"Cannot reach Discord: {error_reason(error)}. Retrying in {pause:g} s.")
                await self.http.close()
                self.http.connector = discord.utils.MISSING  # otherwise the library reuses the closed connector
                await asyncio.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE)
            else:
                return

    async def run_until_closed(self) -> None:
        """Run the connection until the client is closed. Raises BotRejected if Discord refuses it."""
        pause = _FIRST_PAUSE
        while not self.is_closed():
            start = asyncio.get_running_loop().time()
            try:
                await self.connect()
            except discord.PrivilegedIntentsRequired as error:
                raise BotRejected(NO_INTENT) from error
            except discord.ConnectionClosed as error:
                raise BotRejected(_close_reason(error.code)) from error
            except Exception as error:  # noqa: BLE001  an unexpected error of the library must not end the bot
                _log.warning("The connection to Discord was lost (%s). Reconnecting.", error_reason(error))
                await self._close_socket()
                duration = asyncio.get_running_loop().time() - start
                pause = _FIRST_PAUSE if duration > _MAX_PAUSE else min(pause * 2, _MAX_PAUSE)
                await asyncio.sleep(pause)

    async def _close_socket(self) -> None:
        """Close a connection that the library left open: its heartbeat thread keeps it alive."""
        socket: Any = self.ws
        if socket is not None:
            await socket.close()

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Call the event listeners, unless the client is closed: it has no event loop for their tasks then."""
        if not self.is_closed():
            super().dispatch(event, *args, **kwargs)

    async def on_error(self, event_method: str, /, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Log the error of an event handler; the bot continues."""
        _log.exception("The handler %s failed.", event_method)


def _guard_parser(event: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap a parser so that it skips malformed events, which would end the library's loop."""

    def read(data: Any) -> None:
        try:
            parse(data)
        except Exception as error:  # noqa: BLE001
            _log.warning("Skipped a malformed %s event of Discord (%s).", event, error_reason(error))

    return read


def _close_reason(code: int) -> str:
    if code == _BAD_TOKEN:
        return WRONG_TOKEN
    if code == _BAD_INTENTS:
        return NO_INTENT
    return f"Discord closed the connection permanently (code {code}). Restart the bot, or check it on {PORTAL}."


def error_reason(error: BaseException) -> str:
    """Return a short text about an error of the library, without the request, which may contain secrets."""
    if isinstance(error, discord.HTTPException):
        return f"status {error.status}, {error.text or 'no reason given'}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
