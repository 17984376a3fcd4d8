"""The files of messages: attachments as bytes."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import PathParameter

from recollect.server import files
from recollect.server.account import Account
from recollect.server.api.answer import MessagePath, SessionPath, found, message_id


@get(
    "/sessions/{session:str}/messages/{message:str}/files/{number:int}",
    tags=["files"],
    operation_id="get_file",
    media_type="application/octet-stream",
)
async def get_file(
    account: Account,
    session: SessionPath,
    message: MessagePath,
    number: Annotated[int, PathParameter(ge=0, le=10_000, description="Which file of the message, from 0.")],
) -> Response[bytes]:
    """Give a file of a message. Raster images and plain text come as such, everything else to be saved."""
    given = files.file(await (await found(account, session)).message(message_id(message)), number)
    headers = {name: value for name, value in given.headers.items() if name != "Content-Type"}
    return Response(given.data, media_type=given.headers["Content-Type"], headers=headers)


ROUTES: list[Any] = [get_file]
