"""`sessions prune`: letting go of what is old or too much, to the trash, and only when it is asked for."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli import options, place
from recollect.cli.amount import Number, Size, bytes_, many
from recollect.cli.asking import must_agree
from recollect.cli.document import plain, print_json
from recollect.cli.group import Command
from recollect.cli.moment import Span, ago
from recollect.cli.screen import remark

_NOTHING = (
    "Say what is to go: --older-than, --keep, --max-size, --max-messages or --tool-output-over; or set [retention] in "
    "the configuration."
)


@click.command(cls=Command)
@click.option("--older-than", type=Span(), metavar="DURATION", help="Conversations without activity for longer: 90d.")
@click.option("--keep", type=Number(0), metavar="N", help="All but the N that were last active.")
@click.option(
    "--max-size", type=Size(), metavar="SIZE", help="The oldest, until the rest takes no more than this: 2GB."
)
@click.option("--max-messages", type=Number(), metavar="N", help="Messages before the last N of each conversation.")
@click.option("--tool-output-over", type=Size(), metavar="SIZE", help="Tool output larger than this; the text stays.")
@options.dry_run
@options.yes()
@options.as_json
def prune(dry_run: bool, yes: bool, as_json: bool, **given: int | None) -> None:
    """Let go of what is old, or too much.

    Conversations go to the trash, where `sessions restore` finds them; pinned ones never go. Tool output is dropped for
    good. Without options it does what [retention] in the configuration says. --dry-run says how many, how old, how many
    bytes.
    """
    limits = _limits(given)
    if not limits:
        raise click.UsageError(_NOTHING)
    with place.reading() as opened:
        store: Any = opened
        report = store.prune(**limits, dry_run=True)
    if not dry_run and (report.sessions or report.messages):
        if not as_json:
            remark(_told(report, "would go"))
        must_agree("Let them go?", yes=yes)
        with place.opened() as opened:
            store = opened
            report = store.prune(**limits)
    if as_json:
        print_json({**plain(report), "dry_run": dry_run})
    else:
        remark(_told(report, "would go" if dry_run else "went"))


def _limits(given: dict[str, int | None]) -> dict[str, int]:
    """Give the limits as the store takes them: from the options, or else from the configuration."""
    named = {"older_than": "older_than_ms", "max_size": "max_bytes"}
    limits = {named.get(name, name): value for name, value in given.items() if value is not None}
    return limits or place.retention(place.settings())


def _told(report: Any, goes: str) -> str:
    if not report.sessions and not report.messages:
        return "Nothing is to go."
    oldest = f", the oldest from {ago(report.oldest)}" if report.oldest else ""
    counts = f"{many(report.sessions, 'conversation')}, {many(report.messages, 'message')}, {bytes_(report.bytes)}"
    return f"{counts}{oldest} {goes}."
