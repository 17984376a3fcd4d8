"""What was said while the bot was away: found again through the history of channels, and handed on in order.

A message is answered once at most, so reading too far back does no harm: who asks again for one that was answered gets
nothing. What is older than the limit stays unanswered: an answer after days helps nobody.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any, NamedTuple

import aiohttp
import discord

from recollect.channels.discord.connection import reason
from recollect.model import keys
from recollect.store_async import AsyncStore

_log = logging.getLogger(__name__)
_EPOCH = 1_420_070_400_000
_CHANNELS, _PEOPLE, _MESSAGES = 200, 50, 100
_AGAIN = 600.0
"""Seconds before the last message that was taken: others may have come at the same time and not been taken."""


class Missed(NamedTuple):
    """A message from the history; `again` says that it may have been taken before."""

    message: discord.Message
    again: bool


def moment(seconds_ago: float = 0.0) -> int:
    """Give the smallest id that a message of that time can have: Discord's ids are times."""
    return (int((time.time() - seconds_ago) * 1000) - _EPOCH) << 22


def since(mark: int, longest: float) -> int:
    """Say after which message to read, where the last one that was taken is known."""
    return max(mark - (int(_AGAIN * 1000) << 22), moment(longest))


async def people(store: AsyncStore, users: Iterable[str]) -> list[int]:
    """List whose direct messages to look at: who is let in by name, and who talked lately."""
    found = {int(user): None for user in users if user.isdecimal()}
    for session in await store.list_sessions(_PEOPLE * 4, channel="discord"):
        place = keys.where(session.id)
        if isinstance(place, keys.DiscordDirect):
            found[int(place.user)] = None
    return list(found)[:_PEOPLE]


def channels(guilds: Iterable[discord.Guild], after: int) -> list[Any]:
    """List the channels and threads in which something was said since; Discord tells the last message of each."""
    found: list[Any] = []
    for guild in guilds:
        places: list[Any] = [*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads]
        for place in places:
            last = place.last_message_id
            if last is not None and last > after and _readable(place, guild):
                found.append(place)
    return found[:_CHANNELS]


def _readable(place: Any, guild: discord.Guild) -> bool:
    try:
        may = place.permissions_for(guild.me)
    except (AttributeError, discord.ClientException):
        return True  # a thread without its channel, or a guild that has not told of the bot yet: asking will tell
    return may.read_messages and may.read_message_history


async def direct(client: discord.Client, user: int) -> discord.DMChannel | None:
    """Open the direct messages with a person."""
    try:
        return await client.create_dm(discord.Object(user))
    except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
        _log.debug("Direct messages with %s can not be opened: %s", user, reason(error))
        return None


async def read(place: Any, after: int, mark: int) -> AsyncGenerator[Missed, None]:
    """Read what was said at a place, oldest first; the newest messages, where there are many."""
    found: list[discord.Message] = []
    with contextlib.suppress(discord.HTTPException, aiohttp.ClientError, OSError):
        found = [message async for message in place.history(limit=_MESSAGES, oldest_first=False)]
    for message in reversed(found):
        if message.id > after:
            yield Missed(message, again=message.id <= mark)
