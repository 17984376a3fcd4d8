"""Telegram messages: conversion to Incoming, and their photos, documents and other files up to a size."""

from __future__ import annotations

import mimetypes
from typing import Any, NamedTuple

from telegram import Bot, Message, MessageEntity, User
from telegram.error import TelegramError

from recollect.channels.bot import Author, Incoming, IncomingFile
from recollect.channels.bot.slash_commands import COMMAND_NAMES, list_commands, parse_command
from recollect.channels.conversation_keys import TelegramChatKey

_MAX_QUOTE_LENGTH = 1_000  # characters of a message that is replied to: enough for the model to know the subject
_ALL_COMMANDS = frozenset([*COMMAND_NAMES, "start", *(name for name, _, _ in list_commands())])


def to_incoming(message: Message, me: User) -> Incoming | None:
    """Return a message as Incoming; None for service messages, messages of bots, and messages without content."""
    author = _author(message)
    if author is None or (message.from_user is not None and message.from_user.is_bot):
        return None
    direct = message.chat.type == "private"
    text, is_mention = _text_without_mention(message, me)
    if not text and not is_mention and message.effective_attachment is None:
        return None
    original = message.reply_to_message
    chat = str(message.chat.id)
    topic = str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else None
    command = parse_command(text)
    return Incoming(
        id=str(message.message_id),
        place=TelegramChatKey(chat, topic),
        parent=None if topic is None else TelegramChatKey(chat),
        author=author,
        text=text if command else _quoted_reply(message, me) + text,
        direct=direct,
        mentioned=is_mention or (command is not None and command[0] in _ALL_COMMANDS),
        replies_to_bot=original is not None and original.from_user is not None and original.from_user.id == me.id,
        guild=None if direct else chat,
    )


def _author(message: Message) -> Author | None:
    """Return the author: a user, or the channel or group in whose name the message was sent."""
    sender: Any = message.from_user
    if message.sender_chat is not None:
        return Author(str(message.sender_chat.id), message.sender_chat.title or str(message.sender_chat.id))
    return None if sender is None else Author(str(sender.id), sender.full_name or sender.username or str(sender.id))


def _text_without_mention(message: Message, me: User) -> tuple[str, bool]:
    """Return the text without mentions of the bot, and whether it is mentioned."""
    text = message.text if message.text is not None else message.caption or ""
    units = text.encode("utf-16-le", "surrogatepass")  # offsets count UTF-16 code units
    is_mention = False
    for entity in reversed(message.entities or message.caption_entities or ()):
        start, end = entity.offset * 2, (entity.offset + entity.length) * 2
        entity_text = units[start:end].decode("utf-16-le", "replace")
        replacement = _strip_bot_name(entity, entity_text, me)
        if replacement is not None:
            is_mention = True
            units = units[:start] + replacement.encode("utf-16-le", "surrogatepass") + units[end:]
    return units.decode("utf-16-le", "replace").strip(), is_mention


def _strip_bot_name(entity: MessageEntity, text: str, me: User) -> str | None:
    """Return the text of an entity without the bot's name; None if the entity does not name the bot."""
    name = f"@{me.username or ''}".lower()
    if entity.type == MessageEntity.MENTION:
        return "" if text.lower() == name else None
    if entity.type == MessageEntity.TEXT_MENTION:
        return "" if entity.user is not None and entity.user.id == me.id else None
    if entity.type == MessageEntity.BOT_COMMAND and text.lower().endswith(name):
        return text[: -len(name)]
    return None


def _quoted_reply(message: Message, me: User) -> str:
    """Return the message that this one replies to as a quotation, unless it is the bot's: the model has not seen it."""
    original = message.reply_to_message
    if original is None or original.from_user is None or original.from_user.id == me.id:
        return ""
    quote = (message.quote.text if message.quote is not None else original.text or original.caption or "")[
        :_MAX_QUOTE_LENGTH
    ]
    lines = "\n".join(f"> {line}" for line in quote.strip().splitlines())
    return f"{original.from_user.full_name} wrote:\n{lines}\n\n" if lines else ""


_DOWNLOAD_TIMEOUT = 60.0  # seconds per request of a download: later messages of the chat wait meanwhile


class TelegramFile(NamedTuple):
    """A file on Telegram's servers: its id, name, type and size in bytes, as far as Telegram reports them."""

    id: str
    name: str
    mime: str
    size: int | None


def list_files(message: Message) -> list[TelegramFile]:
    """Return the files of a message; a photo in its largest size."""
    files: list[TelegramFile] = []
    if message.photo:
        largest = max(message.photo, key=lambda photo: photo.width * photo.height)
        files.append(TelegramFile(largest.file_id, f"photo-{message.message_id}.jpg", "image/jpeg", largest.file_size))
    for kind, mime in (
        ("document", "application/octet-stream"), ("voice", "audio/ogg"), ("audio", "audio/mpeg"),
        ("video", "video/mp4"), ("video_note", "video/mp4"),
    ):  # fmt: skip
        file: Any = getattr(message, kind)
        if file is not None:
            files.append(_to_file(file, kind, mime, message.message_id))
    if message.sticker is not None and not message.sticker.is_animated and not message.sticker.is_video:
        sticker = message.sticker
        files.append(
            TelegramFile(sticker.file_id, f"sticker-{message.message_id}.webp", "image/webp", sticker.file_size)
        )
    return files


def _to_file(file: Any, kind: str, mime: str, message: int) -> TelegramFile:
    mime_type = getattr(file, "mime_type", None) or mime
    name = getattr(file, "file_name", None) or f"{kind}-{message}{mimetypes.guess_extension(mime_type) or ''}"
    return TelegramFile(file.file_id, name, mime_type, file.file_size)


async def fetch_files(bot: Bot, files: list[TelegramFile], limit: int) -> tuple[list[IncomingFile], list[str]]:
    """Download files; return them, and a sentence for each one that was left out."""
    fetched_files: list[IncomingFile] = []
    notes: list[str] = []
    for file in files:
        if (file.size or 0) > limit:
            notes.append(
                f"The file {file.name} was left out: it has {file.size or 0:,} bytes, and the limit is {limit:,}."
            )
            continue
        try:
            remote_file = await bot.get_file(file.id, read_timeout=_DOWNLOAD_TIMEOUT)
            data = bytes(await remote_file.download_as_bytearray(read_timeout=_DOWNLOAD_TIMEOUT))
        except TelegramError as error:
            notes.append(f"The file {file.name} could not be downloaded: {type(error).__name__}.")
            continue
        if len(data) > limit:
            notes.append(f"The file {file.name} was left out: it has {len(data):,} bytes, and the limit is {limit:,}.")
        else:
            fetched_files.append(IncomingFile(file.name, file.mime, data))
    return fetched_files, notes
