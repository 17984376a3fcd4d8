"""Images, documents and other files: what every format needs to say about them in its own words.

A file is its bytes as base64, an address (which may be a data: URL that holds the bytes), or a text. This file knows no
provider: each format says which kinds it takes.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from recollect.formats.native import Path, taken
from recollect.model.part import AttachmentPart, DataPart

IMAGE = "image/*"  # an image of a kind that nobody named
BYTES = "application/octet-stream"
TEXT = "text/plain"
_DATA_URL = "data:"
_BASE64 = ";base64,"
_PRINTABLE = 512


class File(NamedTuple):
    """A file as another format can use it: base64, an address, or text; all None where only its provider has it."""

    mime_type: str | None
    name: str | None
    data: str | None
    url: str | None
    text: str | None

    @property
    def is_image(self) -> bool:
        """Whether it is an image, of any kind."""
        return self.mime_type is not None and self.mime_type.startswith("image/")

    @property
    def link(self) -> str | None:
        """Its address, or a data: URL with its bytes."""
        if self.data is None:
            return self.url
        return f"{_DATA_URL}{self.mime_type or BYTES}{_BASE64}{self.data}"


def read(
    block: dict[str, Any], at: Path, *, mime_type: Any = None, name: Any = None, holds: str = "link"
) -> AttachmentPart | DataPart:
    """Read a file out of a block; `holds` says what is there: a "link", "base64", either of them, or "text"."""
    found = taken(block, at)
    if found is None:
        return DataPart(native=block)
    value, native = found
    mime_type = mime_type if type(mime_type) is str else None
    name = name if type(name) is str else None
    if holds == "text":
        return AttachmentPart(mime_type=mime_type, name=name, text=value, native=native)
    if holds == "base64" or (holds == "either" and not _is_link(value)):
        return AttachmentPart(mime_type=mime_type, name=name, data=value, native=native)
    return AttachmentPart(mime_type=_declared(value) or mime_type, name=name, url=value, native=native)


def elsewhere(block: dict[str, Any], *, mime_type: str | None = None, name: Any = None) -> AttachmentPart:
    """Read a file that only the provider has, under an id."""
    _, native = taken(block) or ("", {})
    return AttachmentPart(mime_type=mime_type, name=name if type(name) is str else None, native=native)


def file(part: AttachmentPart) -> File:
    """Give a file as another format can use it."""
    url, data, text, mime_type = part.url, part.data, part.text, part.mime_type
    if url is not None and url.startswith(_DATA_URL):
        before, mark, rest = url.partition(_BASE64)
        mime_type = before[len(_DATA_URL) :].partition(";")[0] or mime_type
        url, data = (None, rest) if mark else (url, None)
    if text is None and data is not None and mime_type is not None and mime_type.startswith("text/"):
        text = _decoded(data)
    return File(mime_type, part.name, data, url, text)


def encoded(text: str) -> str:
    """Write a text as base64."""
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


def named(found: File) -> str:
    """Give the text of a file under its name."""
    return f"{found.name}\n\n{found.text}" if found.name else found.text or ""


def is_web(url: str | None) -> bool:
    """Whether a provider could fetch this address."""
    return url is not None and url.startswith(("https://", "http://"))


def _is_link(value: str) -> bool:
    return value.startswith(("https:", "http:", _DATA_URL))


def _declared(url: str) -> str | None:
    """Give the type that a data: URL names."""
    if not url.startswith(_DATA_URL):
        return None
    return url[len(_DATA_URL) : _PRINTABLE].partition(",")[0].partition(";")[0] or None


def _decoded(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
