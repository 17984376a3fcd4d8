"""Export and import of sessions as streamed files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request, Response, get, post
from litestar.params import QueryParameter
from litestar.response import Stream

from recollect.export import Report
from recollect.server import transfer
from recollect.server.account import Account
from recollect.server.api.responses import SessionPath, json_response, open_session
from recollect.server.attachments import FILE_SECURITY_POLICY

TAGS = ["export"]
ExportFormat = Literal["md", "json", "jsonl", "html"]
Redact = Annotated[bool, QueryParameter(description="Redact API keys, tokens and passwords.")]
Deleted = Annotated[
    bool | None,
    QueryParameter(description="Include deleted messages. Default: only in json and jsonl."),
]


def _download_response(download: transfer.ExportDownload) -> Stream:
    headers = {"Content-Disposition": download.disposition, "Content-Security-Policy": FILE_SECURITY_POLICY}
    return Stream(download.pieces, media_type=download.type, headers=headers)


@get("/export", tags=TAGS, operation_id="export_sessions", media_type="application/octet-stream")
async def export_sessions(
    account: Account,
    format: ExportFormat = "jsonl",
    session: Annotated[
        list[str] | None, QueryParameter(description="Only these sessions; without it, all sessions.")
    ] = None,
    redact: Redact = False,
    deleted: Deleted = None,
) -> Stream:
    """Export the given sessions, or all that are not in the trash, as one file."""
    return _download_response(await transfer.start_export(account, session, format, redact=redact, deleted=deleted))


@get("/sessions/{session:str}/export", tags=TAGS, operation_id="export_session", media_type="application/octet-stream")
async def export_session(
    account: Account, session: SessionPath, format: ExportFormat = "md", redact: Redact = False, deleted: Deleted = None
) -> Stream:
    """Export one session as a file."""
    name = (await open_session(account, session)).id
    return _download_response(await transfer.start_export(account, [name], format, redact=redact, deleted=deleted))


@post("/import", tags=TAGS, operation_id="import_sessions", status_code=200, request_max_body_size=None)
async def import_sessions(
    request: Request[Any, Any, Any],
    account: Account,
    on_conflict: Annotated[
        Literal["skip", "new", "error"],
        QueryParameter(
            description="If a different session with the same id exists: skip it, import it with a new id, or stop."
        ),
    ] = "skip",
    format: Annotated[
        str | None, QueryParameter(description="The message format of a plain chat log, if it cannot be detected.")
    ] = None,
) -> Response[Report]:
    """Import a file sent as the body: an export in JSON or JSON lines, or a plain chat log. Existing messages stay."""
    report = await transfer.import_upload(account, request.stream(), on_conflict=on_conflict, format=format)
    return json_response(report.to_dict())


ROUTES: list[Any] = [export_sessions, export_session, import_sessions]
