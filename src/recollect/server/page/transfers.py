"""Export and import in the web app."""

from __future__ import annotations

from typing import Any, Literal

from litestar import Request, Response, get, post
from litestar.response import Stream

from recollect.export import Report
from recollect.model.humanize import pluralize
from recollect.server import transfer
from recollect.server.account import Account
from recollect.server.page.clock import clock_of
from recollect.server.page.templating import template_response

_MAX_LISTED = 20  # conflicts and bad lines that the report lists


@get("/page/export", include_in_schema=False)
async def export_file(
    request: Request[Any, Any, Any], account: Account,
    format: Literal["md", "json", "jsonl", "html"], session: str = "", output: bool = True,
    redact: bool = False,
) -> Stream:  # fmt: skip
    """Return one conversation, or all, as a download, with times in the browser's zone."""
    ids, zone = [session] if session else None, clock_of(request.cookies).tzinfo
    download = await transfer.start_export(account, ids, format, redact=redact, output=output, zone=zone)
    return Stream(download.pieces, media_type=download.type, headers={"content-disposition": download.disposition})


@post("/page/import", include_in_schema=False, status_code=200, request_max_body_size=None)
async def import_file(
    request: Request[Any, Any, Any], account: Account, conflict: Literal["skip", "new"] = "skip"
) -> Response[str]:
    """Import a file and return the report as HTML."""
    report = await transfer.import_upload(account, request.stream(), on_conflict=conflict)
    return template_response("import_report.html", lines=describe_import(report), report=report, most=_MAX_LISTED)


def describe_import(report: Report) -> list[str]:
    """Return the report of an import in sentences."""
    lines: list[str] = []
    if report.created:
        lines.append(
            f"{pluralize(len(report.created), 'conversation')} imported, "
            f"with {pluralize(report.messages, 'stored message')}."
        )
    if report.updated:
        message_note = "" if report.created else f", {pluralize(report.messages, 'stored message')} added"
        lines.append(f"{pluralize(len(report.updated), 'conversation')} updated{message_note}.")
    if report.unchanged:
        is_single = len(report.unchanged) == 1
        lines.append(f"{pluralize(len(report.unchanged), 'conversation')} {'was' if is_single else 'were'} unchanged.")
    new_count = sum(1 for conflict in report.conflicts if conflict.new_id)
    skipped_count = len(report.conflicts) - new_count
    if new_count:
        lines.append(
            f"{pluralize(new_count, 'conversation')} imported with a new id, "
            f"because the id in the file is already used or not valid."
        )
    if skipped_count:
        was = "was" if skipped_count == 1 else "were"
        lines.append(
            f"{pluralize(skipped_count, 'conversation')} {was} skipped because a different version already exists."
        )
    if report.bad_count:
        lines.append(f"{pluralize(report.bad_count, 'line')} could not be read.")
    if report.redacted:
        lines.append("Secrets were redacted when this file was exported; they are not in it.")
    return lines or ["This file contains no conversations."]


ROUTES: list[Any] = [export_file, import_file]
