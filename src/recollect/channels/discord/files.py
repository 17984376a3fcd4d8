"""The files of a message, fetched from Discord within a limit of size."""

from __future__ import annotations

import asyncio
import mimetypes

import aiohttp
import discord

from recollect.channels.bot import Attachment
from recollect.channels.discord.connection import reason

_SECONDS = 60.0
_PLAIN = "application/octet-stream"


async def fetched(message: discord.Message, largest: int) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
    """Fetch the files of a message: those that came, and sentences about those that did not."""
    files: list[Attachment] = []
    notes: list[str] = []
    forwarded = [file for snapshot in message.message_snapshots for file in snapshot.attachments]
    for file in [*message.attachments, *forwarded]:
        if file.size > largest:
            notes.append(f"The file {file.filename} has {file.size:,} bytes; {largest:,} are the most that are taken.")
            continue
        try:
            async with asyncio.timeout(_SECONDS):
                data = await file.read()
        except (discord.HTTPException, aiohttp.ClientError, OSError, TimeoutError) as error:
            notes.append(f"The file {file.filename} could not be fetched: {reason(error)}.")
            continue
        if len(data) > largest:
            notes.append(f"The file {file.filename} is larger than it said, and was not taken.")
            continue
        files.append(Attachment(file.filename, kind(file), data))
    return tuple(files), tuple(notes)


def kind(file: discord.Attachment) -> str:
    """Name the type of a file: as Discord says, or by its name."""
    said = (file.content_type or "").partition(";")[0].strip().lower()
    return said or mimetypes.guess_type(file.filename)[0] or _PLAIN
