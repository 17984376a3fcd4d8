"""Export and import: conversations as files, in and out, streamed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request, Response, get, post
from litestar.params import QueryParameter
from litestar.response import Stream

from recollect.export import Report
from recollect.server import transfer
from recollect.server.account import Account
from recollect.server.api.answer import SessionPath, found, told
from recollect.server.files import POLICY

TAGS = ["export"]
Format = Literal["md", "json", "jsonl", "html"]
Redact = Annotated[bool, QueryParameter(description="Mask keys, tokens and passwords.")]
Deleted = Annotated[
    bool | None,
    QueryParameter(description="With deleted messages; not said: for json and jsonl only."),
]


def _sent(download: transfer.Download) -> Stream:
    headers = {"Content-Disposition": download.disposition, "Content-Security-Policy": POLICY}
    return Stream(download.pieces, media_type=download.type, headers=headers)


@get("/export", tags=TAGS, operation_id="export_sessions", media_type="application/octet-stream")
async def export_sessions(
    account: Account,
    format: Format = "jsonl",
    session: Annotated[list[str] | None, QueryParameter(description="These sessions; without any, all.")] = None,
    redact: Redact = False,
    deleted: Deleted = None,
) -> Stream:
    """Export sessions as one file: those named, or all that are not in the trash."""
    return _sent(await transfer.outgoing(account, session, format, redact=redact, deleted=deleted))


@get("/sessions/{session:str}/export", tags=TAGS, operation_id="export_session", media_type="application/octet-stream")
async def export_session(
    account: Account, session: SessionPath, format: Format = "md", redact: Redact = False, deleted: Deleted = None
) -> Stream:
    """Export one session as a file."""
    name = (await found(account, session)).id
    return _sent(await transfer.outgoing(account, [name], format, redact=redact, deleted=deleted))


@post("/import", tags=TAGS, operation_id="import_sessions", status_code=200, request_max_body_size=None)
async def import_sessions(
    request: Request[Any, Any, Any],
    account: Account,
    on_conflict: Annotated[
        Literal["skip", "new", "error"],
        QueryParameter(description="For a session that contradicts the one here: leave out, give a new id, stop."),
    ] = "skip",
    format: Annotated[
        str | None, QueryParameter(description="The format of the messages of a plain chat, where it is not clear.")
    ] = None,
) -> Response[Report]:
    """Import a file, sent as the body: an export as JSON or JSON lines, or a plain chat. What is known stays."""
    report = await transfer.incoming(account, request.stream(), on_conflict=on_conflict, format=format)
    return told(report.to_dict())


ROUTES: list[Any] = [export_sessions, export_session, import_sessions]
