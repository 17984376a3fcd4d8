"""Attachments as a document may hold them: bytes inside the page, of a type that can do no harm, or a name alone."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

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


def of_block(block: Any) -> AttachmentPart | None:
    """Read a provider's block that holds an image or a file, where it was kept as it came; None if it is another."""
    block = block.get("whole", block) if isinstance(block, dict) else None
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        return None
    name = _text(block, "title") or _text(block, "name") or _text(block, "filename")
    source = block.get("source")
    if isinstance(source, dict):
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return None
        return _part(name, _text(source, "media_type"), _text(source, "data"), _text(source, "url"))
    if kind in ("image_url", "input_image"):
        address = block.get("image_url")
        return _part(
            name, None, None, _text(address, "url") if isinstance(address, dict) else _text(block, "image_url")
        )
    file = block.get("file") if kind == "file" else block if kind == "input_file" else None
    if isinstance(file, dict):
        data = _text(file, "file_data")
        url = data if data is not None and data.startswith("data:") else _text(file, "file_url")
        return _part(_text(file, "filename") or name, None, None if url == data else data, url)
    sound = block.get("input_audio")
    if isinstance(sound, dict):
        return _part(name or "audio", f"audio/{_text(sound, 'format') or 'wav'}", _text(sound, "data"), None)
    return None


def _part(name: str | None, mime_type: str | None, data: str | None, url: str | None) -> AttachmentPart | None:
    return None if data is None and url is None else AttachmentPart(name=name, mime_type=mime_type, data=data, url=url)


def _text(block: dict[str, Any], name: str) -> str | None:
    value = block.get(name)
    return value if isinstance(value, str) else None
