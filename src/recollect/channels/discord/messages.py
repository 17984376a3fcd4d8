"""Discord messages: conversion to Incoming, their files, and the messages that were missed while the bot was offline.

Missed messages are read from the history of channels, oldest first. Each message is answered at most once, so reading
too far back is harmless. Messages older than the limit stay unanswered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mimetypes
import re
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any, NamedTuple

import aiohttp
import discord

from recollect.channels.bot import IncomingFile
from recollect.channels.bot.incoming import Author, Incoming
from recollect.channels.conversation_keys import (
    ConversationKey,
    DiscordChannelKey,
    DiscordDirectKey,
    DiscordThreadKey,
    parse_key,
)
from recollect.channels.discord.client import error_reason
from recollect.store_async import AsyncStore

_MENTION = re.compile(r"<(@[!&]?|#)(\d{1,20})>")
_EMOJI = re.compile(r"<a?(:\w{1,64}:)\d{1,20}>")
_PERSON_MESSAGE_TYPES = frozenset({discord.MessageType.default, discord.MessageType.reply})
_MAX_QUOTE_LENGTH = 1000  # characters of a message that is replied to: enough for the model to know the subject


def is_from_person(message: discord.Message) -> bool:
    """Return whether a person wrote a message, and not this bot, another bot, a webhook, or Discord."""
    return not message.author.bot and message.webhook_id is None and message.type in _PERSON_MESSAGE_TYPES


def chat_of(channel: object, user: int) -> ConversationKey | None:
    """Return the conversation key of a channel; None for channels without messages and unknown kinds."""
    if isinstance(channel, discord.DMChannel):
        return DiscordDirectKey(str(user))
    if isinstance(channel, discord.Thread):
        return DiscordThreadKey(str(channel.id))
    if isinstance(channel, (discord.TextChannel, discord.VoiceChannel, discord.StageChannel)):
        return DiscordChannelKey(str(channel.id))
    return None


def parent_chat_of(channel: object) -> ConversationKey | None:
    """Return the conversation key of a thread's channel; None for other channels."""
    return DiscordChannelKey(str(channel.parent_id)) if isinstance(channel, discord.Thread) else None


def role_ids(person: discord.User | discord.Member) -> tuple[str, ...]:
    """Return the role ids of a member, without @everyone."""
    if not isinstance(person, discord.Member):
        return ()
    return tuple(str(role.id) for role in person.roles if not role.is_default())


def to_incoming(
    message: discord.Message, me: discord.ClientUser, *, channel: object, person: discord.User | discord.Member
) -> Incoming | None:
    """Return a message as Incoming; None if its channel has no conversation."""
    chat = chat_of(channel, person.id)
    if chat is None:
        return None
    return Incoming(
        id=str(message.id),
        place=chat,
        author=Author(str(person.id), person.display_name),
        text=message_text(message, me),
        direct=isinstance(channel, discord.DMChannel),
        mentioned=_mentions_bot(message, me),
        replies_to_bot=_replies_to_bot(message, me),
        guild=None if message.guild is None else str(message.guild.id),
        roles=role_ids(person),
        parent=parent_chat_of(channel),
        extra={"channel": str(message.channel.id)},
    )


def _mentions_bot(message: discord.Message, me: discord.ClientUser) -> bool:
    """Return whether the bot is mentioned, by its name or by its role: Discord creates a role for every bot."""
    if any(person.id == me.id for person in message.mentions):
        return True
    return any(role.tags is not None and role.tags.bot_id == me.id for role in message.role_mentions)


def _replied_message(message: discord.Message) -> discord.Message | None:
    original = None if message.reference is None else message.reference.resolved
    return original if isinstance(original, discord.Message) else None


def _replies_to_bot(message: discord.Message, me: discord.ClientUser) -> bool:
    original = _replied_message(message)
    return original is not None and original.author.id == me.id


def message_text(message: discord.Message, me: discord.ClientUser) -> str:
    """Return the text of a message with names instead of ids, and without the mention of the bot.

    The message that it replies to and forwarded messages are quoted: the model has not seen them.
    """
    text = resolve_mentions(message.content, _mention_names(message), me.id)
    original = _replied_message(message)
    if original is not None and original.author.id != me.id and original.content:
        quote = resolve_mentions(original.content, _mention_names(original), me.id)[:_MAX_QUOTE_LENGTH]
        text = f"{_quote(quote)}\n{original.author.display_name} wrote that. {text}".rstrip()
    forwards = [_quote(snapshot.content) for snapshot in message.message_snapshots if snapshot.content]
    stickers = [f"[sticker: {sticker.name}]" for sticker in message.stickers]
    return "\n\n".join(part for part in (text, *forwards, *stickers) if part)


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _mention_names(message: discord.Message) -> dict[str, str]:
    people = {f"@{person.id}": f"@{person.display_name}" for person in message.mentions}
    roles = {f"&{role.id}": f"@{role.name}" for role in message.role_mentions}
    channels = {f"#{channel.id}": f"#{channel.name}" for channel in message.channel_mentions}
    return people | roles | channels


def resolve_mentions(content: str, names: dict[str, str], me: int) -> str:
    """Replace Discord's ids by names. A mention of the bot at the start or the end is removed."""
    bot_mention = rf"<@!?{me}>"
    text = re.sub(rf"\A(?:\s*{bot_mention}[\s,:]*)+|(?:\s*{bot_mention}\s*)+\Z", "", content)

    def name(match: re.Match[str]) -> str:
        mark = {"@": "@", "@!": "@", "@&": "&", "#": "#"}[match[1]]
        return names.get(mark + match[2], match[0])

    return _EMOJI.sub(r"\1", _MENTION.sub(name, text)).strip()


_DOWNLOAD_TIMEOUT = 60.0  # seconds per file: other messages of the channel wait meanwhile
_DEFAULT_TYPE = "application/octet-stream"


async def fetch_files(message: discord.Message, limit: int) -> tuple[tuple[IncomingFile, ...], tuple[str, ...]]:
    """Download the files of a message; return them, and a sentence for each one that was left out."""
    files: list[IncomingFile] = []
    notes: list[str] = []
    forwards = [file for snapshot in message.message_snapshots for file in snapshot.attachments]
    for file in [*message.attachments, *forwards]:
        if file.size > limit:
            notes.append(
                f"The file {file.filename} was left out: it has {file.size:,} bytes, and the limit is {limit:,}."
            )
            continue
        try:
            async with asyncio.timeout(_DOWNLOAD_TIMEOUT):
                data = await file.read()
        except (discord.HTTPException, aiohttp.ClientError, OSError, TimeoutError) as error:
            notes.append(f"The file {file.filename} could not be downloaded: {error_reason(error)}.")
            continue
        if len(data) > limit:
            notes.append(f"The file {file.filename} was left out: it is larger than Discord reported.")
            continue
        files.append(IncomingFile(file.filename, mime_type_of(file), data))
    return tuple(files), tuple(notes)


def mime_type_of(file: discord.Attachment) -> str:
    """Return the MIME type of a file, as Discord reports it or by its name."""
    mime_type = (file.content_type or "").partition(";")[0].strip().lower()
    return mime_type or mimetypes.guess_type(file.filename)[0] or _DEFAULT_TYPE


_log = logging.getLogger(__name__)
_DISCORD_EPOCH = 1_420_070_400_000  # milliseconds: the first second of 2015, from which Discord's ids count
# Bounds of the catch-up: channels, users with direct messages, messages per channel. Each channel is one request.
_MAX_CHANNELS, _MAX_USERS, _MAX_MESSAGES = 200, 50, 100
_OVERLAP = 600.0
"""Seconds before the read position that are read again: messages of other channels may not have been accepted."""


class MissedMessage(NamedTuple):
    """A message from the history; `again` means that it may have been accepted before."""

    message: discord.Message
    again: bool


def first_message_id(seconds_ago: float = 0.0) -> int:
    """Return the smallest message id of a time: Discord's ids begin with the time in milliseconds."""
    return (int((time.time() - seconds_ago) * 1000) - _DISCORD_EPOCH) << 22


def catch_up_start(mark: int, max_age: float) -> int:
    """Return the message id after which to read: the overlap before the mark, but at most `max_age` seconds ago."""
    return max(mark - (int(_OVERLAP * 1000) << 22), first_message_id(max_age))


async def recent_users(store: AsyncStore, users: Iterable[str]) -> list[int]:
    """Return the users whose direct messages to check: allowed users, and users of recent conversations."""
    user_ids = {int(user): None for user in users if user.isdecimal()}
    for session in await store.list_sessions(_MAX_USERS * 4, channel="discord"):
        chat = parse_key(session.id)
        if isinstance(chat, DiscordDirectKey):
            user_ids[int(chat.user)] = None
    return list(user_ids)[:_MAX_USERS]


def active_channels(guilds: Iterable[discord.Guild], after: int) -> list[Any]:
    """Return the readable channels and threads with messages after an id; Discord sends the last id of each."""
    result: list[Any] = []
    for guild in guilds:
        channels: list[Any] = [*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads]
        for channel in channels:
            last = channel.last_message_id
            if last is not None and last > after and _is_readable(channel, guild):
                result.append(channel)
    return result[:_MAX_CHANNELS]


def _is_readable(channel: Any, guild: discord.Guild) -> bool:
    try:
        permissions = channel.permissions_for(guild.me)
    except (AttributeError, discord.ClientException):
        return True  # a thread without its channel, or a guild without the bot's member: reading fails if not allowed
    return permissions.read_messages and permissions.read_message_history


async def open_direct_channel(client: discord.Client, user: int) -> discord.DMChannel | None:
    """Return the direct message channel of a user; None if it cannot be opened."""
    try:
        return await client.create_dm(discord.Object(user))
    except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
        _log.debug("Cannot open direct messages with %s: %s", user, error_reason(error))
        return None


async def read_missed(channel: Any, after: int, mark: int) -> AsyncGenerator[MissedMessage, None]:
    """Yield the messages of a channel after an id, oldest first; only the newest _MAX_MESSAGES of them."""
    messages: list[discord.Message] = []
    with contextlib.suppress(discord.HTTPException, aiohttp.ClientError, OSError):
        messages = [message async for message in channel.history(limit=_MAX_MESSAGES, oldest_first=False)]
    for message in reversed(messages):
        if message.id > after:
            yield MissedMessage(message, again=message.id <= mark)
