"""What is attached to a message: photos, documents, voice and the like, up to a size."""

from __future__ import annotations

import mimetypes
from typing import Any, NamedTuple

from telegram import Bot, Message
from telegram.error import TelegramError

from recollect.channels.bot import Attachment

_TIMEOUT = 60.0


class Found(NamedTuple):
    """A file that Telegram has: its id, and what it says about it."""

    id: str
    name: str
    mime: str
    size: int | None


def found(message: Message) -> list[Found]:
    """List the files of a message; a photo in its largest size."""
    files: list[Found] = []
    if message.photo:
        largest = max(message.photo, key=lambda photo: photo.width * photo.height)
        files.append(Found(largest.file_id, f"photo-{message.message_id}.jpg", "image/jpeg", largest.file_size))
    for kind, mime in (
        ("document", "application/octet-stream"), ("voice", "audio/ogg"), ("audio", "audio/mpeg"),
        ("video", "video/mp4"), ("video_note", "video/mp4"),
    ):  # fmt: skip
        file: Any = getattr(message, kind)
        if file is not None:
            files.append(_named(file, kind, mime, message.message_id))
    if message.sticker is not None and not message.sticker.is_animated and not message.sticker.is_video:
        sticker = message.sticker
        files.append(Found(sticker.file_id, f"sticker-{message.message_id}.webp", "image/webp", sticker.file_size))
    return files


def _named(file: Any, kind: str, mime: str, message: int) -> Found:
    given = getattr(file, "mime_type", None) or mime
    name = getattr(file, "file_name", None) or f"{kind}-{message}{mimetypes.guess_extension(given) or ''}"
    return Found(file.file_id, name, given, file.file_size)


async def fetched(bot: Bot, files: list[Found], most: int) -> tuple[list[Attachment], list[str]]:
    """Fetch files; give those that came, and a sentence for each that did not."""
    came: list[Attachment] = []
    notes: list[str] = []
    for file in files:
        if (file.size or 0) > most:
            notes.append(f"The file {file.name} has {file.size or 0:,} bytes; at most {most:,} are taken.")
            continue
        try:
            there = await bot.get_file(file.id, read_timeout=_TIMEOUT)
            data = bytes(await there.download_as_bytearray(read_timeout=_TIMEOUT))
        except TelegramError as error:
            notes.append(f"The file {file.name} could not be fetched: {type(error).__name__}.")
            continue
        if len(data) > most:
            notes.append(f"The file {file.name} has {len(data):,} bytes; at most {most:,} are taken.")
        else:
            came.append(Attachment(file.name, file.mime, data))
    return came, notes
