"""Files that a person sends with a message: how many, how large, of which kind."""

from __future__ import annotations

import base64
import mimetypes
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from litestar.datastructures import UploadFile

from recollect.errors import InvalidValue
from recollect.model.part import AttachmentPart
from recollect.server.files import LARGEST, at_most

_LONGEST_NAME = 200
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif",
}  # fmt: skip


class Limits(NamedTuple):
    """What a message may have: this many files, bytes in each, and bytes in all, with its text."""

    files: int
    size: int
    total: int


LIMITS = Limits(100, LARGEST, 64_000_000)
"""The total leaves room for the headers of a form within the 64 MiB of a request (server/app.py)."""


async def attached(files: Sequence[UploadFile]) -> list[AttachmentPart]:
    """Read the files that came with a message."""
    if len(files) > LIMITS.files:
        raise InvalidValue(
            f"A message can have at most {LIMITS.files} files, got {len(files)}. Send the others in the next message."
        )
    return [_part(await file.read(LIMITS.size + 1), file.filename, file.content_type) for file in files]


def _part(content: bytes, name: str | None, told: str | None) -> AttachmentPart:
    shown = _name(name)
    if len(content) > LIMITS.size:
        raise InvalidValue(f"{shown} is too large: a file can have at most {at_most(LIMITS.size)}.")
    kind = _kind(content, shown, told)
    return AttachmentPart(
        mime_type=kind, name=shown, size=len(content), data=base64.b64encode(content).decode(),
    )  # fmt: skip


def _name(name: str | None) -> str:
    """Give a file's name without folders and without what is not printable."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    kept = "".join(c for c in unicodedata.normalize("NFC", last) if c.isprintable())
    return kept.strip()[:_LONGEST_NAME] or "file"


def _kind(content: bytes, name: str, told: str | None) -> str:
    """Say what a file is: an image by its first bytes, whatever it is called; anything else by its name."""
    for start, kind in _IMAGES.items():
        if content.startswith(start):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    guessed = mimetypes.guess_type(name)[0] or (told or "").partition(";")[0].strip().lower()
    if not guessed or (guessed.startswith("image/") and guessed != "image/svg+xml"):
        return "text/plain" if _is_text(content) else "application/octet-stream"
    return guessed


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content
