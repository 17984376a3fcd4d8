"""`sessions stats` and `tools`: how much there is, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, place
from recollect.cli.document import plain, print_json
from recollect.cli.ending import PROBLEMS
from recollect.cli.group import Command
from recollect.cli.moment import utc_offset
from recollect.cli.owners import cover
from recollect.cli.screen import glyph, is_terminal, paint, remark, safe
from recollect.cli.table import Cell, Column, print_table
from recollect.model.amount import count, lasting, many
from recollect.model.statistics import add_up

_BAR = 24
_DAYS = 14

if TYPE_CHECKING:
    from recollect.model.statistics import Period, Stats


@click.command(cls=Command)
@options.since
@options.until
@click.option("--channel", help="Only from this channel, such as cli or discord.")
@click.option("--model", help="Only with this model.")
@options.as_json
@click.pass_context
def stats(context: click.Context, as_json: bool, **given: Any) -> None:
    """Count conversations, messages and tokens.

    In all, by model, by channel and by day; tokens are those that providers reported. Tool steps are not counted as
    messages. Of every owner, unless one is named; exit status 5 where an owner could not be read. On a pipe each
    line has, between tabs: what is counted by, its name, conversations, messages, turns, failed turns, tokens in,
    tokens out.
    """
    covered = cover(lambda store: store.stats(**given, utc_offset=utc_offset()))
    found = add_up(list(covered.results.values()))
    if as_json:
        print_json({**plain(found), **covered.to_dict()})
    else:
        _print_stats(found, covered.describe())
        covered.remark_missing()
    if not covered.complete:
        context.exit(PROBLEMS)


def _print_stats(found: Stats, owners: str) -> None:
    if owners:
        remark(owners.strip())
    if is_terminal():
        click.echo(_summary(found))
    else:
        click.echo("\t".join(("all", "", *(str(number) for number in _numbers(found)))))
    _print_group("model", found.by_model)
    _print_group("channel", found.by_channel)
    _print_group("day", found.by_day[-_DAYS:] if is_terminal() else found.by_day)


def _summary(found: Any) -> str:
    """Say in two lines what there is."""
    total = (
        f"{many(found.sessions, 'conversation')}, {many(found.shown_messages, 'message')}, {many(found.turns, 'turn')}"
    )
    tokens = f"{count(found.input_tokens)} tokens in, {count(found.output_tokens)} out"
    failures = f", {many(found.failures, 'failed turn')}" if found.failures else ""
    calls = f"{many(found.tool_calls, 'tool call')}, {found.tool_failures:,} failed"
    return f"{paint(total, bold=True)}\n{tokens}{failures}, {calls}"


def _numbers(item: Any) -> list[int]:
    return [item.sessions, item.shown_messages, item.turns, item.failures, item.input_tokens, item.output_tokens]


def _print_group(name: str, group: Sequence[Any]) -> None:
    """Print one table of counts; on a terminal with a bar that compares the messages."""
    if not group:
        return
    if not is_terminal():
        for item in group:
            click.echo("\t".join((name, safe(item.name or ""), *(str(number) for number in _numbers(item)))))
        return
    most = max(item.shown_messages for item in group) or 1
    shape = [Column(name.upper(), least=10), Column("SESSIONS", ">", drop=2), Column("MESSAGES", ">"),
             Column("TURNS", ">", drop=1), Column("FAILED", ">", drop=3, style={"fg": "red"}), Column("TOKENS IN", ">"),
             Column("OUT", ">"), Column("", drop=4, style={"fg": "cyan"})]  # fmt: skip
    rows: list[list[Cell]] = []
    for item in group:
        cells = [Cell(item.name or glyph("line")), Cell(f"{item.sessions:,}"), Cell(f"{item.shown_messages:,}")]
        cells += [Cell(f"{item.turns:,}"), Cell(f"{item.failures:,}" if item.failures else "")]
        cells += [Cell(count(item.input_tokens)), Cell(count(item.output_tokens))]
        rows.append([*cells, Cell(glyph("bar") * round(item.shown_messages / most * _BAR))])
    click.echo()
    print_table(shape, rows)


@click.command(cls=Command)
@click.argument("tool", metavar="[TOOL]", required=False)
@options.since
@options.until
@click.option("--by", type=click.Choice(["day", "week", "month"]), help="For each period on its own.")
@options.as_json
def tools(tool: str | None, since: int | None, until: int | None, by: Period | None, as_json: bool) -> None:
    """Count tool calls, failures and how long they took.

    Of all tools, or of one. Half of the calls took no longer than p50, and 95 of 100 no longer than p95. On a pipe each
    line has, between tabs: tool, period, calls, failures, canceled, unanswered, p50 and p95 in milliseconds.
    """
    with place.reading() as store:
        found = store.tool_stats(since=since, until=until, tool=tool, period=by, utc_offset=utc_offset())
    if as_json:
        print_json({"tools": [plain(item) for item in found]})
        return
    shape = [Column("TOOL", least=12, style={"bold": True}), Column("PERIOD"), Column("CALLS", ">"),
             Column("FAILED", ">"), Column("CANCELED", ">", drop=2), Column("UNANSWERED", ">", drop=1),
             Column("P50", ">"), Column("P95", ">")]  # fmt: skip
    print_table(shape, [_tool_row(item) for item in found])
    if not found:
        remark("No tool was called.")


def _tool_row(item: Any) -> list[Cell]:
    share = f" ({item.failures / item.calls:.0%})" if item.failures else ""
    failed = {"fg": "red"} if item.failures else {"dim": True}
    return [
        Cell(item.tool),
        Cell(item.period or ""),
        Cell(f"{item.calls:,}", str(item.calls)),
        Cell(f"{item.failures:,}{share}", str(item.failures), failed),
        Cell(f"{item.canceled:,}" if item.canceled else "", str(item.canceled)),
        Cell(f"{item.unanswered:,}" if item.unanswered else "", str(item.unanswered)),
        Cell(lasting(item.p50_ms), "" if item.p50_ms is None else str(item.p50_ms)),
        Cell(lasting(item.p95_ms), "" if item.p95_ms is None else str(item.p95_ms)),
    ]
