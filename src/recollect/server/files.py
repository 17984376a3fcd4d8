"""Files that go with messages: which are taken, and how they are given back so that nothing in them can run.

Raster images and plain text are shown. Everything else is saved, never opened, whatever it says it is: an SVG or a page
from here would have the rights of the page itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from recollect.errors import InvalidValue, NotFound
from recollect.model import amount
from recollect.model.message import Message
from recollect.model.part import AttachmentPart, Content, Part, ToolResultPart
from recollect.server.transfer import attachment

LARGEST = 20_000_000
"""Maximum size in bytes of a file that is sent along with a message."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
TAKEN = (
    *IMAGES, "application/pdf", "application/json", "application/xml", "application/zip",
    "application/x-yaml", "application/toml",
)  # fmt: skip
"""What may be sent along, and every kind of text, audio and video."""

POLICY = "default-src 'none'; sandbox"
"""What a file may do where a browser opens it: nothing."""

_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,80}", re.ASCII)
_LONGEST_NAME = 200
_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",), "image/jpeg": (b"\xff\xd8\xff",), "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}  # fmt: skip


class File(NamedTuple):
    """A file on its way out: its bytes, and the headers that keep it from running."""

    data: bytes
    headers: dict[str, str]


def plain_type(mime_type: str | None) -> str:
    """Give a type without its parameters, in small letters; bytes without a type where it is none."""
    told = (mime_type or "").partition(";")[0].strip().lower()
    return told if _TYPE.fullmatch(told) else "application/octet-stream"


def at_most(limit: int) -> str:
    """Write a limit as people and programs read it: "20 MB (20,000,000 bytes)"."""
    return f"{amount.size(limit)} ({limit:,} bytes)"


def taken(name: str | None, mime_type: str | None, data: bytes) -> AttachmentPart:
    """Take a file that is sent along with a message, or say why not."""
    kind = plain_type(mime_type)
    shown = (name or "this file")[:_LONGEST_NAME]
    if not data:
        raise InvalidValue(f"{shown!r} is empty.")
    if len(data) > LARGEST:
        raise InvalidValue(f"{shown!r} has {len(data):,} bytes: a file can have at most {at_most(LARGEST)}.")
    if kind not in TAKEN and kind.partition("/")[0] not in ("text", "audio", "video"):
        raise InvalidValue(f"{shown!r} is {kind}, which is not taken. Images, text, PDF, audio and video are.")
    if kind in _SIGNATURES and not data.startswith(_SIGNATURES[kind]):
        raise InvalidValue(f"{shown!r} is no {kind}: it does not begin like one.")
    label = None if name is None else "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)
    return AttachmentPart(
        mime_type=kind, size=len(data), name=None if label is None else label[:_LONGEST_NAME],
        data=base64.b64encode(data).decode(),
    )  # fmt: skip


def pieces(message: Message) -> list[AttachmentPart]:
    """Name the files of a message in order, those inside tool results too."""
    found: list[AttachmentPart] = []
    for part in message.parts:
        inside: tuple[Part | Content, ...] = part.content or () if isinstance(part, ToolResultPart) else (part,)
        found += [item for item in inside if isinstance(item, AttachmentPart)]
    return found


def file(message: Message, number: int) -> File:
    """Give the file of a message with its number, counted from 0, and the headers that go with it."""
    found = pieces(message)
    if not 0 <= number < len(found):
        raise NotFound(f"Message {message.id} has no file {number}. It has {len(found)}.")
    part = found[number]
    kind = plain_type(part.mime_type)
    if kind in IMAGES:
        shown, disposition = kind, "inline"
    elif kind in ("text/plain", "text/csv", "text/markdown"):
        shown, disposition = "text/plain", "inline"
    else:
        shown, disposition = "application/octet-stream", attachment(part.name or f"file {number}")
    headers = {
        "Content-Type": shown,
        "Content-Disposition": disposition,
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=86400",
    }
    return File(content(part), headers)


def content(part: AttachmentPart) -> bytes:
    """Give the bytes of a file, as base64, as text or in its address; one that is elsewhere is not fetched."""
    if part.text is not None:
        return part.text.encode("utf-8", "replace")
    head, comma, rest = (part.url or "").partition(",")
    try:
        if part.data is not None:
            return base64.b64decode(part.data)
        if head.startswith("data:") and comma:
            return base64.b64decode(rest) if head.endswith(";base64") else unquote_to_bytes(rest)
    except (binascii.Error, ValueError) as error:
        raise NotFound("The data of this file is not base64.") from error
    raise NotFound("This file is not in the store: the message has only its address.")
