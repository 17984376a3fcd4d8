"""The connection to Discord: discord.py's client, with what a bot needs that stays up for months.

An event that can not be read is left out instead of ending the bot, a lost connection is taken up again, and what
goes wrong at the start is said in a sentence that tells what to do.
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

from recollect.errors import BotRefused

_log = logging.getLogger(__name__)
_NEEDED = frozenset({"READY", "RESUMED"})
_BAD_TOKEN, _BAD_INTENTS = 4004, 4013
_BROKEN = 500
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_LONGEST_LIMIT = 30.0
"""Seconds that the library waits by itself where Discord asks to; longer, and the desk decides."""


Tell = Callable[[str], None]
PORTAL = "https://discord.com/developers/applications"
WRONG_TOKEN = (
    "Discord does not accept the token. Copy it anew from the page Bot of your application, with Reset Token, and put "
    f"it into RECOLLECT_DISCORD_TOKEN or channels.discord.token ({PORTAL})."
)
NO_INTENT = (
    "Discord does not let this bot read messages. Turn on Message Content Intent on the page Bot of your application, "
    f"save, and start again ({PORTAL})."
)


def intents() -> discord.Intents:
    """Say what the bot hears of: messages in channels and in person, with their text, and nothing about people."""
    wanted = discord.Intents.none()
    wanted.guilds = wanted.guild_messages = wanted.dm_messages = wanted.message_content = True
    return wanted


class Connection(discord.Client):
    """A client that stays. `base_url` is another address for the API, `tell` is told what who runs it should know."""

    def __init__(self, *, base_url: str | None = None, tell: Tell = lambda _: None, **options: Any) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody hears this bot
        super().__init__(
            intents=intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,
            max_ratelimit_timeout=_LONGEST_LIMIT,
            member_cache_flags=discord.MemberCacheFlags.none(),
            **options,
        )
        self._base_url = base_url
        self.tell = tell
        parsers = self._connection.parsers
        for event, parse in parsers.items():
            if event not in _NEEDED:
                parsers[event] = _guarded(event, parse)

    async def enter(self, token: str) -> None:
        """Log in; a network that is not there yet is waited for."""
        if self._base_url is not None:
            Route.BASE = self._base_url.rstrip("/")  # the library has one address for the whole process
        pause = _PAUSE
        while True:
            try:
                await self.login(token)
                if self._base_url is not None:
                    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL((await self.http.get_bot_gateway())[1])
            except discord.LoginFailure as error:
                raise BotRefused(WRONG_TOKEN) from error
            except ValueError:  # a line break in it, which no request can carry; the error may repeat it
                raise BotRefused(WRONG_TOKEN) from None
            except (aiohttp.ClientError, OSError, discord.HTTPException, discord.GatewayNotFound) as error:
                if isinstance(error, discord.HTTPException) and error.status < _BROKEN:
                    raise BotRefused(f"Discord does not let the bot in: {reason(error)}.") from error
                self.tell(f"Discord can not be reached: {reason(error)}. Trying again in {pause:g} s.")
                await self.http.close()
                self.http.connector = discord.utils.MISSING  # the library would use the closed one again
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                return

    async def stay(self) -> None:
        """Stay connected, until it is closed or Discord says that it can not be."""
        pause = _PAUSE
        while not self.is_closed():
            begun = asyncio.get_running_loop().time()
            try:
                await self.connect()
            except discord.PrivilegedIntentsRequired as error:
                raise BotRefused(NO_INTENT) from error
            except discord.ConnectionClosed as error:
                raise BotRefused(_closed(error.code)) from error
            except Exception as error:  # noqa: BLE001  what the library does not expect must not end the bot
                _log.warning("The connection to Discord broke off (%s). It is made anew.", reason(error))
                await self._let_go()
                lasted = asyncio.get_running_loop().time() - begun
                pause = _PAUSE if lasted > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
                await asyncio.sleep(pause)

    async def _let_go(self) -> None:
        """End a connection that the library left open: its heartbeats come from a thread."""
        socket: Any = self.ws
        if socket is not None:
            await socket.close()

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Tell the listeners. A client that was closed has no loop for their tasks, and is cut off once more."""
        if not self.is_closed():
            super().dispatch(event, *args, **kwargs)

    async def on_error(self, event_method: str, /, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Say that an event could not be dealt with; the bot goes on."""
        _log.exception("%s could not be dealt with.", event_method)


def _guarded(event: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
    """Leave out an event that is not as it should be, which would end the library's loop."""

    def read(data: Any) -> None:
        try:
            parse(data)
        except Exception as error:  # noqa: BLE001
            _log.warning("Discord sent a %s that can not be read (%s). It is left out.", event, reason(error))

    return read


def _closed(code: int) -> str:
    if code == _BAD_TOKEN:
        return WRONG_TOKEN
    if code == _BAD_INTENTS:
        return NO_INTENT
    return f"Discord closed the connection for good (code {code}). Start again, or look at the bot in {PORTAL}."


def reason(error: BaseException) -> str:
    """Say in a few words what an error of the library is; never what was sent, in which there may be secrets."""
    if isinstance(error, discord.HTTPException):
        return f"status {error.status}, {error.text or 'no reason given'}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
