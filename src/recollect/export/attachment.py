"""Attachments as a document may hold them: bytes inside the page, of a type that can do no harm, or a name alone."""

from __future__ import annotations

import re
from typing import NamedTuple

from recollect.model.part import AttachmentPart

# Pictures that a browser only draws. SVG is not among them: it can hold scripts and links.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
_ANYTHING = "application/octet-stream"

_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+\-]{0,80}/[A-Za-z0-9][A-Za-z0-9.+\-]{0,80}")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]*={0,2}\s*")
_URL = re.compile(r"data:(?P<type>[^;,]{0,160})(?:;[^;,]{0,160}){0,4};base64,", re.IGNORECASE)
_WEB = re.compile(r"https?://[^\s\"'<>`\\]+", re.IGNORECASE)


class Shown(NamedTuple):
    """What to show of an attachment."""

    name: str
    mime_type: str
    size: int | None
    picture: str | None = None
    """A data: address of a picture."""
    download: str | None = None
    """A data: address to save. It says nothing of the type, so that no browser opens it as a page."""
    link: str | None = None
    """Where it is, if it is on the web."""


def shown(part: AttachmentPart) -> Shown:
    """Say what to show of an attachment."""
    told, data = part.mime_type or "", part.data
    url = part.url or ""
    if data is None and (match := _URL.match(url)):
        told, data = told or match["type"], url[match.end() :]
    mime_type = told.lower() if _TYPE.fullmatch(told) else _ANYTHING
    name = part.name or ("image" if mime_type in PICTURES else "attachment")
    if data is None or not _BASE64.fullmatch(data):
        return Shown(name, mime_type, part.size, link=url if _WEB.fullmatch(url) else None)
    data = "".join(data.split())
    size = len(data) * 3 // 4 - data[-2:].count("=")
    if mime_type in PICTURES:
        return Shown(name, mime_type, size, picture=f"data:{mime_type};base64,{data}")
    return Shown(name, mime_type, size, download=f"data:{_ANYTHING};base64,{data}")


def size(number: int | None) -> str:
    """Write how large something is."""
    if number is None:
        return ""
    for unit in ("bytes", "KB", "MB"):
        if number < 1_000:  # noqa: PLR2004
            return f"{number:.0f} {unit}"
        number = number / 1_000  # pyright: ignore[reportAssignmentType]
    return f"{number:.1f} GB"
