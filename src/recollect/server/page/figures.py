"""The page of figures: what was said, with what, how it went, and where the bytes are."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import markupsafe
from litestar import Request, Response, get

from recollect.errors import NotSupported
from recollect.model.amount import count, lasting, many, size
from recollect.model.space import Space
from recollect.model.statistics import Stats, Tally, ToolStats
from recollect.server.account import Account
from recollect.server.page import charts
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.frame import framed
from recollect.store_async import AsyncStore

PERIODS = (("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("all", "All time"))
Days = Literal["7", "30", "90", "all"]
_MOST_NAMES = 8
_NONE = {"tokens": "No model reported tokens in this time."}
_KINDS = (
    ("text", "Text"), ("tool_output", "Tool output"), ("attachments", "Attachments"), ("index", "Indexes"),
    ("other", "Other"), ("free", "Free"),
)  # fmt: skip


class Table(NamedTuple):
    """Figures as a table: its heads and its rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Chart(NamedTuple):
    """A drawing with what stands around it."""

    id: str
    title: str
    drawing: markupsafe.Markup
    top: str
    ends: tuple[str, str]
    legend: Sequence[tuple[str, str]]
    table: Table
    none: str
    """What is said where there is nothing to draw; else empty."""


class Item(NamedTuple):
    """One line of a list of bars: its name, its bar, what it says, and what it says at length."""

    name: str
    drawing: markupsafe.Markup
    value: str
    title: str


class Shares(NamedTuple):
    """Bars side by side, each with its name."""

    id: str
    title: str
    items: Sequence[Item]
    table: Table


class Piece(NamedTuple):
    """A kind of bytes: its class, its name and how many."""

    kind: str
    name: str
    value: str


class Bytes(NamedTuple):
    """Where the bytes are."""

    total: str
    log: str
    drawing: markupsafe.Markup
    pieces: Sequence[Piece]


class Figures(NamedTuple):
    """All that the page shows. `empty` says that nothing happened in the time that was chosen."""

    period: str
    empty: bool
    totals: Sequence[tuple[str, str, str]]
    days: Sequence[Chart]
    shares: Sequence[Shares]
    tools: Table | None
    calls: Sequence[Item]
    bytes: Bytes | None


async def read(store: AsyncStore, clock: Clock, period: str) -> Figures:
    """Add up a store. Where bytes can not be measured they are left out: a server keeps its files to itself."""
    since = None if period == "all" else clock.midnight(int(period) - 1)
    stats, tools, space = await asyncio.gather(
        store.stats(since=since, utc_offset=clock.utc_offset),
        store.tool_stats(since=since, utc_offset=clock.utc_offset),
        _space(store),
    )
    return figures(stats, tools, space, clock, period)


async def _space(store: AsyncStore) -> Space | None:
    try:
        return await store.space()
    except NotSupported:
        return None


def figures(stats: Stats, tools: Sequence[ToolStats], space: Space | None, clock: Clock, period: str) -> Figures:
    """Lay figures out for the page."""
    days = {datetime.date.fromisoformat(tally.name): tally for tally in stats.by_day if tally.name}
    first = clock.today - datetime.timedelta(days=0 if period == "all" else int(period) - 1)
    columns = charts.periods(min([first, *days]) if period == "all" else first, max([clock.today, *days]))
    return Figures(
        period=period,
        empty=not stats.messages and not stats.turns and not tools,
        totals=_totals(stats),
        days=[_messages(days, columns), _tokens(days, columns), _sessions(days, columns)],
        shares=[_shares("models", "Models", stats.by_model, "no model"),
                _shares("channels", "Channels", stats.by_channel, "no channel")],
        tools=_tools(tools) if tools else None,
        calls=_calls(tools),
        bytes=None if space is None else _bytes(space),
    )  # fmt: skip


def _totals(stats: Stats) -> list[tuple[str, str, str]]:
    """Give what stands on top: a number, what is counted, and what is worth knowing about it."""
    lost = stats.failures + stats.interrupted
    tokens = stats.input_tokens + stats.output_tokens
    shown = stats.shown_messages
    return [
        (count(stats.sessions), "conversation" if stats.sessions == 1 else "conversations", ""),
        (count(shown), "message" if shown == 1 else "messages", many(stats.turns, "turn")),
        (count(tokens), "tokens", f"{count(stats.input_tokens)} in, {count(stats.output_tokens)} out"),
        (count(stats.tool_calls), "tool call" if stats.tool_calls == 1 else "tool calls",
         f"{stats.tool_failures:,} failed" if stats.tool_failures else "none failed"),
        (count(lost), "turn cut short" if lost == 1 else "turns cut short",
         f"{stats.failures:,} failed, {stats.interrupted:,} interrupted" if lost else ""),
    ]  # fmt: skip


_Days = dict[datetime.date, Tally]


def _over(days: _Days, columns: Sequence[charts.Period], figure: str) -> list[float]:
    return charts.gathered({day: getattr(tally, figure) for day, tally in days.items()}, columns)


def _messages(days: _Days, columns: Sequence[charts.Period]) -> Chart:
    series = [charts.Series("Messages", "tone-1", _over(days, columns, "shown_messages"))]
    return _chart("messages", "Messages", columns, series)


def _tokens(days: _Days, columns: Sequence[charts.Period]) -> Chart:
    series = [charts.Series("Tokens in", "tone-1", _over(days, columns, "input_tokens")),
              charts.Series("Tokens out", "tone-2", _over(days, columns, "output_tokens"))]  # fmt: skip
    return _chart("tokens", "Tokens", columns, series)


def _sessions(days: _Days, columns: Sequence[charts.Period]) -> Chart:
    """Show how many sessions were written to each day; over weeks and months, the busiest day."""
    single = all(column.first == column.last for column in columns)
    values = [
        max((tally.sessions for day, tally in days.items() if column.first <= day <= column.last), default=0)
        for column in columns
    ]
    label = "Conversations" if single else "Conversations on the busiest day"
    return _chart("sessions", label, columns, [charts.Series(label, "tone-1", values)])


def _chart(id: str, title: str, columns: Sequence[charts.Period], series: Sequence[charts.Series]) -> Chart:
    labels = [column.label for column in columns]
    rows = [[label, *(f"{one.values[at]:,.0f}" for one in series)] for at, label in enumerate(labels)]
    heads = ["Time", *(one.label for one in series)]
    told = [_told(row, heads) for row in rows]
    totals = [sum(values) for values in zip(*(one.values for one in series), strict=True)]
    legend = [(one.kind, one.label) for one in series] if len(series) > 1 else []
    name = f"{title}, {labels[0]} to {labels[-1]}: {sum(totals):,.0f} in all" if labels else title
    ends = (_short(columns[0]), _short(columns[-1])) if columns else ("", "")
    drawing = charts.columns(labels, series, told, name=name)
    none = "" if sum(totals) else _NONE.get(id, "None in this time.")
    return Chart(id, title, drawing, count(charts.top(totals)), ends, legend, Table(heads, rows), none)


def _told(row: Sequence[str], heads: Sequence[str]) -> str:
    if len(row) == 2:  # noqa: PLR2004
        return f"{row[0]}: {row[1]} {heads[1].lower()}"
    return f"{row[0]}\n" + "\n".join(f"{head}: {value}" for head, value in zip(heads[1:], row[1:], strict=True))


def _short(column: charts.Period) -> str:
    return f"{column.first.day} {column.first:%b}"


def _shares(id: str, title: str, tallies: Sequence[Tally], nameless: str) -> Shares:
    """Compare by messages; what has few is put together at the end."""
    total = sum(tally.shown_messages for tally in tallies) or 1
    most = max((tally.shown_messages for tally in tallies), default=0)
    shown, rest = tallies[:_MOST_NAMES], tallies[_MOST_NAMES:]
    items = [_item(tally.name or nameless, tally.shown_messages, most, total, tally) for tally in shown]
    if rest:
        left = sum(tally.shown_messages for tally in rest)
        items.append(_item(many(len(rest), "other"), left, most, total, None))
    heads = (title[:-1], "Conversations", "Messages", "Turns", "Failed", "Tokens in", "Tokens out")
    rows = [
        (tally.name or nameless, *(f"{number:,}" for number in (
            tally.sessions, tally.shown_messages, tally.turns, tally.failures, tally.input_tokens,
            tally.output_tokens)))
        for tally in tallies
    ]  # fmt: skip
    return Shares(id, title, items, Table(heads, rows))


def _item(name: str, messages: int, most: int, total: int, tally: Tally | None) -> Item:
    told = f"{name}: {many(messages, 'message')}"
    if tally is not None:
        told += f", {many(tally.sessions, 'conversation')}, {count(tally.input_tokens + tally.output_tokens)} tokens"
    return Item(name, charts.share(messages, most), f"{messages / total:.0%}", told)


def _calls(tools: Sequence[ToolStats]) -> list[Item]:
    """Compare the tools by their calls, with the part that failed."""
    ranked = sorted(tools, key=lambda tool: (-tool.calls, tool.tool))[:_MOST_NAMES]
    most = max((tool.calls for tool in ranked), default=0)
    return [
        Item(tool.tool, charts.share(tool.calls, most, tool.failures), f"{tool.calls:,}",
             f"{tool.tool}: {many(tool.calls, 'call')}, {tool.failures:,} failed")
        for tool in ranked
    ]  # fmt: skip


def _tools(tools: Sequence[ToolStats]) -> Table:
    ranked = sorted(tools, key=lambda tool: (-tool.calls, tool.tool))
    heads = ("Tool", "Calls", "Failed", "Canceled", "Unanswered", "Half within (p50)", "95 of 100 within (p95)")
    return Table(heads, [_tool(tool) for tool in ranked])


def _tool(tool: ToolStats) -> list[str]:
    failed = f"{tool.failures:,} ({tool.failures / tool.calls:.0%})" if tool.failures and tool.calls else "0"
    waits = [lasting(tool.p50_ms) or "no answer", lasting(tool.p95_ms) or "no answer"]
    return [tool.tool, f"{tool.calls:,}", failed, f"{tool.canceled:,}", f"{tool.unanswered:,}", *waits]


def _bytes(space: Space) -> Bytes:
    found: list[tuple[str, str, Any]] = [
        (f"tone-{at}", name, getattr(space, field)) for at, (field, name) in enumerate(_KINDS, 1)
    ]
    parts = [(float(value), kind, f"{name}: {size(value)}") for kind, name, value in found]
    drawing = charts.bar(parts, name=f"Where {size(space.total)} are")
    pieces = [Piece(kind, name, size(value)) for kind, name, value in found]
    return Bytes(size(space.total), size(space.log) if space.log else "", drawing, pieces)


@get("/figures", include_in_schema=False)
async def page(request: Request[Any, Any, Any], account: Account, days: Days = "30") -> Response[str]:
    """Give the page of figures for a time."""
    found = await read(account.store, clock_of(request.cookies), days)
    return await framed(
        request, account, title="Figures", template="figures.html", figures=found, periods=PERIODS, screen="figures"
    )


ROUTES: list[Any] = [page]
