"""`sessions stats` and `sessions tools`: counts of conversations, messages, tokens and tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, store_access
from recollect.cli.exit_codes import PROBLEMS
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_json, to_plain
from recollect.cli.output import Cell, Column, glyph, is_terminal, paint, print_note, print_table, sanitize
from recollect.cli.store_access import run_for_owners
from recollect.cli.times import utc_offset
from recollect.model.humanize import format_count, format_duration, pluralize
from recollect.model.reports import sum_stats

_BAR_WIDTH = 24  # characters
_SHOWN_DAYS = 14  # days on a terminal, so that the table fits a screen; a pipe gets all

if TYPE_CHECKING:
    from recollect.model.reports import Period, Stats


@click.command(cls=StoreCommand)
@options.since
@options.until
@click.option("--channel", help="Only this channel, such as cli or discord.")
@click.option("--model", help="Only this model.")
@options.as_json
@click.pass_context
def stats(context: click.Context, as_json: bool, **filters: Any) -> None:
    """Count conversations, messages and tokens.

    Prints the total and the counts by model, channel and day. Tokens are the numbers that providers reported; tool
    steps do not count as messages. Covers every owner, unless one is selected; the exit status is 5 if an owner could
    not be read. On a pipe, each line has tab-separated fields: group, name, conversations, messages, turns, failed
    turns, input tokens, output tokens.
    """
    owner_results = run_for_owners(lambda store: store.stats(**filters, utc_offset=utc_offset()))
    totals = sum_stats(list(owner_results.results.values()))
    if as_json:
        print_json({**to_plain(totals), **owner_results.to_dict()})
    else:
        _print_stats(totals, owner_results.describe())
        owner_results.print_missing()
    if not owner_results.complete:
        context.exit(PROBLEMS)


def _print_stats(totals: Stats, owners: str) -> None:
    if owners:
        print_note(owners.strip())
    if is_terminal():
        click.echo(_summary(totals))
    else:
        click.echo("\t".join(("all", "", *(str(number) for number in _numbers(totals)))))
    _print_group("model", totals.by_model)
    _print_group("channel", totals.by_channel)
    _print_group("day", totals.by_day[-_SHOWN_DAYS:] if is_terminal() else totals.by_day)


def _summary(totals: Any) -> str:
    """Return the totals as two lines."""
    messages, turns = pluralize(totals.shown_messages, "message"), pluralize(totals.turns, "turn")
    total = f"{pluralize(totals.sessions, 'conversation')}, {messages}, {turns}"
    tokens = f"{format_count(totals.input_tokens)} tokens in, {format_count(totals.output_tokens)} out"
    failures = f", {pluralize(totals.failures, 'failed turn')}" if totals.failures else ""
    calls = f"{pluralize(totals.tool_calls, 'tool call')}, {totals.tool_failures:,} failed"
    return f"{paint(total, bold=True)}\n{tokens}{failures}, {calls}"


def _numbers(item: Any) -> list[int]:
    return [item.sessions, item.shown_messages, item.turns, item.failures, item.input_tokens, item.output_tokens]


def _print_group(name: str, group: Sequence[Any]) -> None:
    """Print one table of counts; on a terminal with a bar that compares the messages."""
    if not group:
        return
    if not is_terminal():
        for item in group:
            click.echo("\t".join((name, sanitize(item.name or ""), *(str(number) for number in _numbers(item)))))
        return
    maximum = max(item.shown_messages for item in group) or 1
    columns = [Column(name.upper(), min_width=10), Column("CONVERSATIONS", ">", drop=2), Column("MESSAGES", ">"),
             Column("TURNS", ">", drop=1), Column("FAILED", ">", drop=3, style={"fg": "red"}), Column("TOKENS IN", ">"),
             Column("OUT", ">"), Column("", drop=4, style={"fg": "cyan"})]  # fmt: skip
    rows: list[list[Cell]] = []
    for item in group:
        cells = [Cell(item.name or glyph("line")), Cell(f"{item.sessions:,}"), Cell(f"{item.shown_messages:,}")]
        cells += [Cell(f"{item.turns:,}"), Cell(f"{item.failures:,}" if item.failures else "")]
        cells += [Cell(format_count(item.input_tokens)), Cell(format_count(item.output_tokens))]
        rows.append([*cells, Cell(glyph("bar") * round(item.shown_messages / maximum * _BAR_WIDTH))])
    click.echo()
    print_table(columns, rows)


@click.command(cls=StoreCommand)
@click.argument("tool", metavar="[TOOL]", required=False)
@options.since
@options.until
@click.option("--by", type=click.Choice(["day", "week", "month"]), help="Count each period separately.")
@options.as_json
def tools(tool: str | None, since: int | None, until: int | None, by: Period | None, as_json: bool) -> None:
    """Count tool calls and failures, and measure latency.

    Covers all tools, or one. p50 is the median latency, p95 the 95th percentile. On a pipe, each line has tab-separated
    fields: tool, period, calls, failures, cancelled, unanswered, p50 and p95 in milliseconds.
    """
    with store_access.open_for_reading() as store:
        tool_stats = store.tools.stats(since=since, until=until, tool=tool, period=by, utc_offset=utc_offset())
    if as_json:
        print_json({"tools": [to_plain(item) for item in tool_stats]})
        return
    columns = [Column("TOOL", min_width=12, style={"bold": True}), Column("PERIOD"), Column("CALLS", ">"),
             Column("FAILED", ">"), Column("CANCELLED", ">", drop=2), Column("UNANSWERED", ">", drop=1),
             Column("P50", ">"), Column("P95", ">")]  # fmt: skip
    print_table(columns, [_tool_row(item) for item in tool_stats])
    if not tool_stats:
        print_note("No tool calls.")


def _tool_row(item: Any) -> list[Cell]:
    share = f" ({item.failures / item.calls:.0%})" if item.failures else ""
    failed = {"fg": "red"} if item.failures else {"dim": True}
    return [
        Cell(item.tool),
        Cell(item.period or ""),
        Cell(f"{item.calls:,}", str(item.calls)),
        Cell(f"{item.failures:,}{share}", str(item.failures), failed),
        Cell(f"{item.cancelled:,}" if item.cancelled else "", str(item.cancelled)),
        Cell(f"{item.unanswered:,}" if item.unanswered else "", str(item.unanswered)),
        Cell(format_duration(item.p50_ms), "" if item.p50_ms is None else str(item.p50_ms)),
        Cell(format_duration(item.p95_ms), "" if item.p95_ms is None else str(item.p95_ms)),
    ]
