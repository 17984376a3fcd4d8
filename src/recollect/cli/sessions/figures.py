"""`sessions stats` and `tools`: how much there is, and how it went."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli import options, place
from recollect.cli.amount import count, many
from recollect.cli.document import plain, print_json
from recollect.cli.group import Command
from recollect.cli.moment import lasting
from recollect.cli.screen import glyph, is_terminal, paint, remark
from recollect.cli.table import Cell, Column, print_table

_BAR = 30
_DAYS = 30


@click.command(cls=Command)
@options.since
@options.until
@options.as_json
def stats(since: int | None, until: int | None, as_json: bool) -> None:
    """Count conversations, messages and tokens.

    In all, by model, by channel and by day. On a pipe each line has, between tabs: what is counted by, its name,
    conversations, messages, turns, tokens.
    """
    with place.reading() as opened:
        store: Any = opened
        found = store.stats(since=since, until=until)
    if as_json:
        print_json(plain(found))
        return
    if is_terminal():
        click.echo(
            f"{paint(many(found.sessions, 'conversation'), bold=True)}, {many(found.messages, 'message')}, "
            f"{many(found.turns, 'turn')}, {many(found.tokens, 'token')}"
        )
    else:
        _print_group("all", "", [found])
    for name, title, group in (
        ("model", "MODEL", found.by_model),
        ("channel", "CHANNEL", found.by_channel),
        ("day", "DAY", found.by_day[-_DAYS:] if is_terminal() else found.by_day),
    ):
        _print_group(name, title, group)


def _print_group(name: str, title: str, group: list[Any]) -> None:
    """Print one table of counts; on a terminal with a bar that compares the tokens."""
    if not group:
        return
    most = max((item.tokens for item in group), default=0) or 1
    shape = [Column(title, least=10), Column("SESSIONS", ">"), Column("MESSAGES", ">"), Column("TURNS", ">", drop=1),
             Column("TOKENS", ">"), Column("", drop=2, style={"fg": "cyan"})]  # fmt: skip
    rows: list[list[Cell]] = []
    for item in group:
        label = str(getattr(item, name, None) or "")
        numbers = [item.sessions, item.messages, item.turns, item.tokens]
        cells = [Cell(label or glyph("line"), label), *(Cell(f"{number:,}", str(number)) for number in numbers[:3])]
        cells.append(Cell(count(item.tokens), str(item.tokens)))
        rows.append(
            [*cells, Cell(glyph("bar") * round(item.tokens / most * _BAR))] if is_terminal() else [Cell(name), *cells]
        )
    if is_terminal():
        click.echo()
    print_table(shape, rows)


@click.command(cls=Command)
@click.argument("tool", required=False)
@options.since
@options.until
@click.option("--by", type=click.Choice(["day", "week", "month"]), help="For each period on its own.")
@options.as_json
def tools(tool: str | None, since: int | None, until: int | None, by: str | None, as_json: bool) -> None:
    """Count tool calls, failures and how long they took.

    Half of the calls took no longer than p50, and 95 of 100 no longer than p95. On a pipe each line has, between tabs:
    tool, period, calls, failures, p50 and p95 in milliseconds.
    """
    with place.reading() as opened:
        store: Any = opened
        found = store.tool_stats(since=since, until=until, tool=tool, period=by)
    if as_json:
        print_json({"tools": [plain(item) for item in found]})
        return
    shape = [Column("TOOL", least=12, style={"bold": True}), Column("PERIOD"), Column("CALLS", ">"),
             Column("FAILURES", ">"), Column("", ">", drop=1), Column("P50", ">"), Column("P95", ">")]  # fmt: skip
    print_table(shape, [_tool_row(item) for item in found])
    if not found:
        remark("No tool was called.")


def _tool_row(item: Any) -> list[Cell]:
    share = f"{item.failures / item.calls:.0%}" if item.calls and item.failures else ""
    row = [
        Cell(item.tool),
        Cell(str(item.period or "")),
        Cell(f"{item.calls:,}", str(item.calls)),
        Cell(f"{item.failures:,}", str(item.failures), {"fg": "red"} if item.failures else {"dim": True}),
        Cell(share, None, {"fg": "red"}),
        Cell(lasting(item.p50_ms), _number(item.p50_ms)),
        Cell(lasting(item.p95_ms), _number(item.p95_ms)),
    ]
    return row if is_terminal() else [*row[:4], *row[5:]]


def _number(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:g}"
