"""Files that were sent or made in a conversation, served so that they can not run."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import unquote_to_bytes

from litestar import Response, get
from litestar.exceptions import NotFoundException

from recollect.errors import SessionNotFound
from recollect.model.message import Message
from recollect.model.part import AttachmentPart, ToolResultPart
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.server.page.parts import SHOWN_IMAGES
from recollect.server.transfer import attachment

_POLICY = "default-src 'none'; sandbox"


@get("/files/{session:str}/{message:str}/{place:str}", include_in_schema=False)
async def file(account: Account, session: str, message: str, place: str) -> Response[bytes]:
    """Give a file: an image to be seen, anything else to be saved."""
    name = session_id(session)
    found = await account.store.get_session(name)
    if found is None:
        raise SessionNotFound(session=name)
    part = _part(await found.message(message), place)
    content = None if part is None else _content(part)
    if part is None or content is None:
        raise NotFoundException("There is no file in this place.")
    kind = (part.mime_type or "").lower()
    shown = kind in SHOWN_IMAGES
    disposition = attachment(part.name or f"file-{message}-{place}", "inline" if shown else "attachment")
    headers = {
        "content-security-policy": _POLICY,
        "content-disposition": disposition,
        "cache-control": "private, max-age=3600",
    }
    return Response(content, media_type=kind if shown else "application/octet-stream", headers=headers)


def _part(message: Message, place: str) -> AttachmentPart | None:
    """Find a file by its place: the number of a part, or of a piece of a tool's result (`2.0`)."""
    numbers = place.split(".")
    if len(numbers) > 2 or not all(n.isascii() and n.isdecimal() and len(n) < 6 for n in numbers):  # noqa: PLR2004
        return None
    pieces: Any = message.parts
    part: Any = None
    for number in map(int, numbers):
        if number >= len(pieces):
            return None
        part = pieces[number]
        pieces = part.content or () if isinstance(part, ToolResultPart) else ()
    return part if isinstance(part, AttachmentPart) else None


def _content(part: AttachmentPart) -> bytes | None:
    if part.text is not None:
        return part.text.encode("utf-8", "replace")
    try:
        if part.data is not None:
            return base64.b64decode(part.data)
        head, comma, rest = (part.url or "").partition(",")
        if not head.startswith("data:") or not comma:
            return None
        return base64.b64decode(rest) if head.endswith(";base64") else unquote_to_bytes(rest)
    except (binascii.Error, ValueError):
        return None


ROUTES: list[Any] = [file]
