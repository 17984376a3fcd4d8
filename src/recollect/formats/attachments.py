"""Attachments: images, documents and other files, independent of the provider.

The content of a file is base64, a URL (possibly a data: URL with the bytes), or text. Each format decides which
kinds it accepts.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from recollect.formats.remainder import BlockPath, extract_text
from recollect.model.message import AttachmentPart, DataPart

IMAGE = "image/*"  # an image of unknown type
BYTES = "application/octet-stream"
TEXT = "text/plain"
_DATA_URL = "data:"
_BASE64 = ";base64,"
_MAX_TYPE_LENGTH = 512  # characters of a data: URL in which its type is looked for, since the URL may have megabytes


class AttachmentContent(NamedTuple):
    """A file as another format can use it: base64, URL or text; all None if only its provider has it."""

    mime_type: str | None
    name: str | None
    data: str | None
    url: str | None
    text: str | None

    @property
    def is_image(self) -> bool:
        """True if it is an image of any type."""
        return self.mime_type is not None and self.mime_type.startswith("image/")

    @property
    def link(self) -> str | None:
        """The URL, or a data: URL with the bytes."""
        if self.data is None:
            return self.url
        return f"{_DATA_URL}{self.mime_type or BYTES}{_BASE64}{self.data}"


def read_attachment(
    block: dict[str, Any], at: BlockPath, *, mime_type: Any = None, name: Any = None, holds: str = "link"
) -> AttachmentPart | DataPart:
    """Read a file from a block. `holds` is what the path contains: "link", "base64", "either" or "text"."""
    extraction = extract_text(block, at)
    if extraction is None:
        return DataPart(native=block)
    value, native = extraction
    mime_type = mime_type if type(mime_type) is str else None
    name = name if type(name) is str else None
    if holds == "text":
        return AttachmentPart(mime_type=mime_type, name=name, text=value, native=native)
    if holds == "base64" or (holds == "either" and not _is_link(value)):
        return AttachmentPart(mime_type=mime_type, name=name, data=value, native=native)
    return AttachmentPart(mime_type=_declared_type(value) or mime_type, name=name, url=value, native=native)


def read_provider_file(block: dict[str, Any], *, mime_type: str | None = None, name: Any = None) -> AttachmentPart:
    """Read a file that only the provider has, under an id."""
    _, native = extract_text(block) or ("", {})
    return AttachmentPart(mime_type=mime_type, name=name if type(name) is str else None, native=native)


def content_of_attachment(part: AttachmentPart) -> AttachmentContent:
    """Return a file as another format can use it."""
    url, data, text, mime_type = part.url, part.data, part.text, part.mime_type
    if url is not None and url.startswith(_DATA_URL):
        header, separator, encoded = url.partition(_BASE64)
        mime_type = header[len(_DATA_URL) :].partition(";")[0] or mime_type
        url, data = (None, encoded) if separator else (url, None)
    if text is None and data is not None and mime_type is not None and mime_type.startswith("text/"):
        text = _decode_text(data)
    return AttachmentContent(mime_type, part.name, data, url, text)


def encode_base64(text: str) -> str:
    """Return a text as base64."""
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


def is_base64(text: str) -> bool:
    """Return whether this is standard base64 with padding, as strict decoders require it."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:  # binascii.Error is one
        return False


def text_with_name(content: AttachmentContent) -> str:
    """Return the text of a file below its name."""
    return f"{content.name}\n\n{content.text}" if content.name else content.text or ""


def is_web_url(url: str | None) -> bool:
    """Return whether a provider could fetch this URL."""
    return url is not None and url.startswith(("https://", "http://"))


def _is_link(value: str) -> bool:
    return value.startswith(("https:", "http:", _DATA_URL))


def _declared_type(url: str) -> str | None:
    """Return the media type of a data: URL; None if it has none."""
    if not url.startswith(_DATA_URL):
        return None
    return url[len(_DATA_URL) : _MAX_TYPE_LENGTH].partition(",")[0].partition(";")[0] or None


def _decode_text(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
