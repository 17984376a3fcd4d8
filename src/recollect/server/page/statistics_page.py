"""The usage page: messages, tokens, models, channels, tools and disk space."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import markupsafe
from litestar import Request, Response, get

from recollect.errors import NotSupported
from recollect.model.humanize import format_count, format_duration, format_size, pluralize
from recollect.model.reports import Space, Stats, Tally, ToolStats
from recollect.server.account import Account
from recollect.server.page import charts
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.document import page_response
from recollect.store_async import AsyncStore

PERIODS = (("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("all", "All time"))
Days = Literal["7", "30", "90", "all"]
_MAX_NAMES = 8  # bars of a share chart; the rest is one bar, the table has all
_EMPTY_TEXTS = {"tokens": "No model reported token counts in this period."}
_SPACE_KINDS = (
    ("text", "Text"), ("tool_output", "Tool output"), ("attachments", "Attachments"), ("index", "Indexes"),
    ("other", "Other"), ("free", "Free"),
)  # fmt: skip


class StatisticsTable(NamedTuple):
    """A table: headings and rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class StatisticsChart(NamedTuple):
    """A column chart with its labels, legend and table."""

    id: str
    title: str
    drawing: markupsafe.Markup
    top: str
    ends: tuple[str, str]
    legend: Sequence[tuple[str, str]]
    table: StatisticsTable
    empty_text: str
    """The text shown if there are no values; otherwise empty."""


class ShareBar(NamedTuple):
    """One bar of a list: its name, drawing, value and tooltip."""

    name: str
    drawing: markupsafe.Markup
    value: str
    title: str


class ShareChart(NamedTuple):
    """A list of bars with a table."""

    id: str
    title: str
    items: Sequence[ShareBar]
    table: StatisticsTable


class SpaceShare(NamedTuple):
    """A kind of stored data: CSS class, name and size."""

    kind: str
    name: str
    value: str


class SpaceUsage(NamedTuple):
    """Disk space of the database by kind of data."""

    total: str
    log: str
    drawing: markupsafe.Markup
    pieces: Sequence[SpaceShare]


class StatisticsView(NamedTuple):
    """The values of the page. `empty`: there is no data in the chosen period."""

    period: str
    empty: bool
    totals: Sequence[tuple[str, str, str]]
    days: Sequence[StatisticsChart]
    shares: Sequence[ShareChart]
    tools: StatisticsTable | None
    calls: Sequence[ShareBar]
    bytes: SpaceUsage | None


async def read_statistics(store: AsyncStore, clock: Clock, period: str) -> StatisticsView:
    """Read the statistics of a period. Disk space is None if the engine cannot measure it."""
    since = None if period == "all" else clock.midnight(int(period) - 1)
    stats, tools, space = await asyncio.gather(
        store.stats(since=since, utc_offset=clock.utc_offset),
        store.tools.stats(since=since, utc_offset=clock.utc_offset),
        _read_space(store),
    )
    return build_statistics(stats, tools, space, clock, period)


async def _read_space(store: AsyncStore) -> Space | None:
    try:
        return await store.maintenance.space()
    except NotSupported:
        return None


def build_statistics(
    stats: Stats, tools: Sequence[ToolStats], space: Space | None, clock: Clock, period: str
) -> StatisticsView:
    """Return the values of the page from statistics."""
    days = {datetime.date.fromisoformat(tally.name): tally for tally in stats.by_day if tally.name}
    first = clock.today - datetime.timedelta(days=0 if period == "all" else int(period) - 1)
    columns = charts.split_periods(min([first, *days]) if period == "all" else first, max([clock.today, *days]))
    return StatisticsView(
        period=period,
        empty=not stats.messages and not stats.turns and not tools,
        totals=_totals(stats),
        days=[_messages_chart(days, columns), _tokens_chart(days, columns), _sessions_chart(days, columns)],
        shares=[_share_chart("models", "Models", stats.by_model, "no model"),
                _share_chart("channels", "Channels", stats.by_channel, "no channel")],
        tools=_tool_table(tools) if tools else None,
        calls=_tool_call_bars(tools),
        bytes=None if space is None else _space_usage(space),
    )  # fmt: skip


def _totals(stats: Stats) -> list[tuple[str, str, str]]:
    """Return the totals: a number, its label and a note."""
    incomplete = stats.failures + stats.interrupted
    tokens = stats.input_tokens + stats.output_tokens
    messages = stats.shown_messages
    return [
        (format_count(stats.sessions), "conversation" if stats.sessions == 1 else "conversations", ""),
        (format_count(messages), "message" if messages == 1 else "messages", pluralize(stats.turns, "turn")),
        (format_count(tokens), "tokens",
         f"{format_count(stats.input_tokens)} in, {format_count(stats.output_tokens)} out"),
        (format_count(stats.tool_calls), "tool call" if stats.tool_calls == 1 else "tool calls",
         f"{stats.tool_failures:,} failed" if stats.tool_failures else "none failed"),
        (format_count(incomplete), "failed turn" if incomplete == 1 else "failed turns",
         f"{stats.failures:,} failed, {stats.interrupted:,} interrupted" if incomplete else ""),
    ]  # fmt: skip


_TalliesByDay = dict[datetime.date, Tally]


def _values_by_period(days: _TalliesByDay, columns: Sequence[charts.ChartPeriod], field: str) -> list[float]:
    return charts.sum_by_period({day: getattr(tally, field) for day, tally in days.items()}, columns)


def _messages_chart(days: _TalliesByDay, columns: Sequence[charts.ChartPeriod]) -> StatisticsChart:
    series = [charts.ChartSeries("Messages", "tone-1", _values_by_period(days, columns, "shown_messages"))]
    return _column_chart("messages", "Messages", columns, series)


def _tokens_chart(days: _TalliesByDay, columns: Sequence[charts.ChartPeriod]) -> StatisticsChart:
    series = [
        charts.ChartSeries("Tokens in", "tone-1", _values_by_period(days, columns, "input_tokens")),
        charts.ChartSeries("Tokens out", "tone-2", _values_by_period(days, columns, "output_tokens")),
    ]  # fmt: skip
    return _column_chart("tokens", "Tokens", columns, series)


def _sessions_chart(days: _TalliesByDay, columns: Sequence[charts.ChartPeriod]) -> StatisticsChart:
    """Return the chart of active sessions per day; for weeks and months, of the busiest day."""
    single = all(column.first == column.last for column in columns)
    values = [
        max((tally.sessions for day, tally in days.items() if column.first <= day <= column.last), default=0)
        for column in columns
    ]
    label = "Conversations" if single else "Conversations on the busiest day"
    return _column_chart("sessions", label, columns, [charts.ChartSeries(label, "tone-1", values)])


def _column_chart(
    id: str, title: str, columns: Sequence[charts.ChartPeriod], series: Sequence[charts.ChartSeries]
) -> StatisticsChart:
    labels = [column.label for column in columns]
    rows = [[label, *(f"{item.values[index]:,.0f}" for item in series)] for index, label in enumerate(labels)]
    heads = ["Time", *(item.label for item in series)]
    column_titles = [_column_title(row, heads) for row in rows]
    totals = [sum(values) for values in zip(*(item.values for item in series), strict=True)]
    legend = [(item.kind, item.label) for item in series] if len(series) > 1 else []
    name = f"{title}, {labels[0]} to {labels[-1]}: {sum(totals):,.0f} in total" if labels else title
    ends = (_short_date(columns[0]), _short_date(columns[-1])) if columns else ("", "")
    drawing = charts.draw_columns(labels, series, column_titles, name=name)
    none = "" if sum(totals) else _EMPTY_TEXTS.get(id, "None in this period.")
    return StatisticsChart(
        id, title, drawing, format_count(charts.axis_maximum(totals)), ends, legend, StatisticsTable(heads, rows), none
    )


def _column_title(row: Sequence[str], heads: Sequence[str]) -> str:
    if len(row) == 2:  # noqa: PLR2004
        return f"{row[0]}: {row[1]} {heads[1].lower()}"
    return f"{row[0]}\n" + "\n".join(f"{head}: {value}" for head, value in zip(heads[1:], row[1:], strict=True))


def _short_date(column: charts.ChartPeriod) -> str:
    return f"{column.first.day} {column.first:%b}"


def _share_chart(id: str, title: str, tallies: Sequence[Tally], unnamed_label: str) -> ShareChart:
    """Compare by messages. The smallest tallies are combined in one bar."""
    total = sum(tally.shown_messages for tally in tallies) or 1
    largest = max((tally.shown_messages for tally in tallies), default=0)
    largest_tallies, other_tallies = tallies[:_MAX_NAMES], tallies[_MAX_NAMES:]
    items = [
        _share_bar(tally.name or unnamed_label, tally.shown_messages, largest, total, tally)
        for tally in largest_tallies
    ]
    if other_tallies:
        other_messages = sum(tally.shown_messages for tally in other_tallies)
        items.append(_share_bar(pluralize(len(other_tallies), "other"), other_messages, largest, total, None))
    heads = (title[:-1], "Conversations", "Messages", "Turns", "Failed", "Tokens in", "Tokens out")
    rows = [
        (tally.name or unnamed_label, *(f"{number:,}" for number in (
            tally.sessions, tally.shown_messages, tally.turns, tally.failures, tally.input_tokens,
            tally.output_tokens)))
        for tally in tallies
    ]  # fmt: skip
    return ShareChart(id, title, items, StatisticsTable(heads, rows))


def _share_bar(name: str, messages: int, largest: int, total: int, tally: Tally | None) -> ShareBar:
    title = f"{name}: {pluralize(messages, 'message')}"
    if tally is not None:
        tokens = tally.input_tokens + tally.output_tokens
        title += f", {pluralize(tally.sessions, 'conversation')}, {format_count(tokens)} tokens"
    return ShareBar(name, charts.draw_share(messages, largest), f"{messages / total:.0%}", title)


def _tool_call_bars(tools: Sequence[ToolStats]) -> list[ShareBar]:
    """Compare the tools by calls, with the failed share."""
    by_calls = sorted(tools, key=lambda tool: (-tool.calls, tool.tool))[:_MAX_NAMES]
    largest = max((tool.calls for tool in by_calls), default=0)
    return [
        ShareBar(tool.tool, charts.draw_share(tool.calls, largest, tool.failures), f"{tool.calls:,}",
             f"{tool.tool}: {pluralize(tool.calls, 'call')}, {tool.failures:,} failed")
        for tool in by_calls
    ]  # fmt: skip


def _tool_table(tools: Sequence[ToolStats]) -> StatisticsTable:
    by_calls = sorted(tools, key=lambda tool: (-tool.calls, tool.tool))
    heads = ("Tool", "Calls", "Failed", "Cancelled", "No result", "Median", "95th percentile")
    return StatisticsTable(heads, [_tool_row(tool) for tool in by_calls])


def _tool_row(tool: ToolStats) -> list[str]:
    failed = f"{tool.failures:,} ({tool.failures / tool.calls:.0%})" if tool.failures and tool.calls else "0"
    waits = [format_duration(tool.p50_ms) or "n/a", format_duration(tool.p95_ms) or "n/a"]
    return [tool.tool, f"{tool.calls:,}", failed, f"{tool.cancelled:,}", f"{tool.unanswered:,}", *waits]


def _space_usage(space: Space) -> SpaceUsage:
    kinds: list[tuple[str, str, Any]] = [
        (f"tone-{number}", name, getattr(space, field)) for number, (field, name) in enumerate(_SPACE_KINDS, 1)
    ]
    parts = [(float(value), kind, f"{name}: {format_size(value)}") for kind, name, value in kinds]
    drawing = charts.draw_bar(parts, name=f"Storage: {format_size(space.total)}")
    pieces = [SpaceShare(kind, name, format_size(value)) for kind, name, value in kinds]
    return SpaceUsage(format_size(space.total), format_size(space.log) if space.log else "", drawing, pieces)


@get("/usage", include_in_schema=False)
async def show_statistics(request: Request[Any, Any, Any], account: Account, days: Days = "30") -> Response[str]:
    """Return the usage page of a period."""
    view = await read_statistics(account.store, clock_of(request.cookies), days)
    return await page_response(
        request, account, title="Usage", template="statistics.html", usage=view, periods=PERIODS, screen="usage"
    )


ROUTES: list[Any] = [show_statistics]
