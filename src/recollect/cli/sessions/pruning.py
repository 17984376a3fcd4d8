"""`sessions prune`: letting go of what is old or too much, to the trash, and only when it is asked for."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli import options, place
from recollect.cli.amount import Number, Size
from recollect.cli.asking import must_agree
from recollect.cli.document import plain, print_json
from recollect.cli.group import Command
from recollect.cli.moment import Span, minute
from recollect.cli.screen import remark
from recollect.model.amount import many, size
from recollect.model.value import iso

_NOTHING = (
    "Say what is to go: --older-than, --keep, --max-size, --max-messages, --tool-output-over or --trash; or set "
    "[retention] in the configuration."
)


@click.command(cls=Command)
@click.option(
    "--older-than", type=Span(), metavar="DURATION", help="Conversations without activity or change for longer: 90d."
)
@click.option("--keep", type=Number(0), metavar="N", help="All but the N that were last active or changed.")
@click.option(
    "--max-size", type=Size(), metavar="SIZE", help="The oldest, until the rest takes no more than this: 2GB."
)
@click.option("--max-messages", type=Number(), metavar="N", help="The oldest turns of conversations that are longer.")
@click.option("--tool-output-over", type=Size(), metavar="SIZE", help="Tool output larger than this; the text stays.")
@click.option("--trash", is_flag=True, help="What is in the trash, for good; with --older-than, since so long.")
@click.option("--erase", is_flag=True, help="For good, and not to the trash.")
@options.dry_run
@options.yes()
@options.as_json
def prune(*, dry_run: bool, yes: bool, as_json: bool, trash: bool, erase: bool, **given: int | None) -> None:
    """Let go of what is old, or too much.

    Conversations go to the trash, where `sessions restore` finds them; pinned ones never go. Tool output is dropped for
    good. Without options it does what [retention] in the configuration says. --dry-run says how many, how old, how many
    bytes.
    """
    limits = _limits(given)
    if trash and limits.keys() - {"older_than"}:
        raise click.UsageError("--trash goes with --older-than only.")
    if not trash and not limits:
        limits = place.retention(place.settings())
        if not limits:
            raise click.UsageError(_NOTHING)
    more: dict[str, Any] = {**limits} if trash else {**limits, "erase": erase}
    report = _pruned("empty_trash" if trash else "prune", {**more, "dry_run": True})
    if not dry_run and (report.count or report.outputs or report.trimmed):
        if not as_json:
            remark(_told(report))
        must_agree("Let go of it for good?" if report.erased else "Let go of it?", yes=yes)
        report = _pruned("empty_trash" if trash else "prune", more)
    if as_json:
        print_json(_document(report))
    else:
        remark(_told(report))


def _pruned(operation: str, arguments: dict[str, Any]) -> Any:
    with place.reading() as store:
        return getattr(store, operation)(**arguments)


def _document(report: Any) -> dict[str, Any]:
    facts = {name: getattr(report, name) for name in ("count", "messages", "bytes")}
    times = {"oldest_at": report.oldest_at and iso(report.oldest_at)}
    return {**plain(report), **facts, **times, "sessions": [plain(session) for session in report.sessions]}


def _limits(given: dict[str, int | None]) -> dict[str, float]:
    """Give the limits as the store takes them: sizes in bytes, spans in seconds."""
    limits: dict[str, float] = {name: value for name, value in given.items() if value is not None}
    if "max_size" in limits:
        limits["max_bytes"] = limits.pop("max_size")
    if "older_than" in limits:
        limits["older_than"] /= 1000
    return limits


def _told(report: Any) -> str:
    """Say how many, how old and how many bytes."""
    gone: list[str] = []
    if report.count:
        since = f", without activity since {minute(report.oldest_at)} and later" if report.oldest_at else ""
        facts = f"{many(report.shown_messages, 'message')}, {size(report.bytes)}{since}"
        gone.append(f"{many(report.count, 'conversation')} ({facts})")
    if report.trimmed:
        gone.append(f"{many(report.trimmed, 'stored message')} of long conversations")
    if report.outputs:
        gone.append(f"{many(report.outputs, 'tool output')} ({size(report.output_bytes)})")
    if not gone:
        return "Nothing is to go."
    where = "for good" if report.erased else "to the trash" if report.count else ""
    return f"{', '.join(gone)} {'would go' if report.dry_run else 'went'} {where}".rstrip() + "."
