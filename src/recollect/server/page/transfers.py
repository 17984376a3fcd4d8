"""Export and import from the page: a file to save, and a report in words."""

from __future__ import annotations

from typing import Any, Literal

from litestar import Request, Response, get, post
from litestar.response import Stream

from recollect.export import Report
from recollect.model.amount import many
from recollect.server import transfer
from recollect.server.account import Account
from recollect.server.page.clock import clock_of
from recollect.server.page.template import answer

_MOST_TOLD = 20


@get("/page/export", include_in_schema=False)
async def export(
    request: Request[Any, Any, Any], account: Account,
    format: Literal["md", "json", "jsonl", "html"], session: str = "", output: bool = True,
    redact: bool = False,
) -> Stream:  # fmt: skip
    """Send one conversation, or all, as a file to save; its times are in the browser's zone, as in the page."""
    ids, zone = [session] if session else None, clock_of(request.cookies).tzinfo
    sent = await transfer.outgoing(account, ids, format, redact=redact, output=output, zone=zone)
    return Stream(sent.pieces, media_type=sent.type, headers={"content-disposition": sent.disposition})


@post("/page/import", include_in_schema=False, status_code=200, request_max_body_size=None)
async def import_(
    request: Request[Any, Any, Any], account: Account, conflict: Literal["skip", "new"] = "skip"
) -> Response[str]:
    """Take a file in, and say what was done."""
    report = await transfer.incoming(account, request.stream(), on_conflict=conflict)
    return answer("import_report.html", lines=told(report), report=report, most=_MOST_TOLD)


def told(report: Report) -> list[str]:
    """Say what an import did, in sentences."""
    lines: list[str] = []
    if report.created:
        lines.append(
            f"{many(len(report.created), 'conversation')} imported, with {many(report.messages, 'stored message')}."
        )
    if report.updated:
        added = "" if report.created else f", by {many(report.messages, 'stored message')}"
        lines.append(f"{many(len(report.updated), 'conversation')} went on{added}.")
    if report.unchanged:
        one = len(report.unchanged) == 1
        lines.append(f"{many(len(report.unchanged), 'conversation')} {'was' if one else 'were'} here already.")
    new = sum(1 for refused in report.conflicts if refused.new_id)
    left = len(report.conflicts) - new
    if new:
        lines.append(f"{many(new, 'conversation')} got a new id: the one in the file is taken, or cannot be used.")
    if left:
        was = "was" if left == 1 else "were"
        lines.append(f"{many(left, 'conversation')} differed from the one here, and {was} left out.")
    if report.bad_count:
        lines.append(f"{many(report.bad_count, 'line')} could not be read.")
    if report.redacted:
        lines.append("Secrets had been masked when the file was written; they are not in it.")
    return lines or ["There is no conversation in this file."]


ROUTES: list[Any] = [export, import_]
