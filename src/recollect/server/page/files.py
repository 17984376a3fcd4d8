"""Files that were sent or made in a conversation, served so that they can not run."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.exceptions import NotFoundException

from recollect.model.message import Message
from recollect.model.part import AttachmentPart, ToolResultPart
from recollect.server import files
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.server.page.conversation import opened
from recollect.server.page.parts import SHOWN_IMAGES
from recollect.server.transfer import attachment


@get("/files/{session:str}/{message:str}/{place:str}", include_in_schema=False)
async def file(account: Account, session: str, message: str, place: str) -> Response[bytes]:
    """Give a file: an image to be seen, anything else to be saved."""
    found = await opened(account, session_id(session))
    part = _part(await found.message(message), place)
    if part is None:
        raise NotFoundException("There is no file in this place.")
    kind = (part.mime_type or "").lower()
    shown = kind in SHOWN_IMAGES
    disposition = attachment(part.name or f"file-{message}-{place}", "inline" if shown else "attachment")
    headers = {
        "content-security-policy": files.POLICY,
        "content-disposition": disposition,
        "cache-control": "private, max-age=3600",
    }
    return Response(files.content(part), media_type=kind if shown else "application/octet-stream", headers=headers)


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


ROUTES: list[Any] = [file]
