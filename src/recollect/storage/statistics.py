"""Statistics: totals of sessions, messages, turns, tokens and tool calls.

They are computed when they are read, so an append pays nothing; no message body is read. A message counts once, for
the session that wrote it, on any branch. Sessions in the trash do not count.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.model import json, times, validation
from recollect.model.reports import PERIODS, Stats, Tally, ToolStats, sort_tallies
from recollect.model.times import TimeLike
from recollect.storage import sessions
from recollect.storage.operation import Operation, Plan, Query, Scope, Steps, fetch_all, fetch_one

_END_OF_TIME = 1 << 62  # milliseconds, later than any stored time; also larger than any session key
_PAGE_SIZE = 200  # sessions per operation
_EPOCH = datetime.date(1970, 1, 1)
_STATUS_COUNTS = {"failed": "failures", "cancelled": "cancelled", "interrupted": "interrupted"}

_Counts = defaultdict[str, int]
_Groups = defaultdict[Any, _Counts]


class CountedSessionRow(NamedTuple):
    """A session that statistics count."""

    key: int
    channel: str | None
    model: str | None


class MessageTallyRow(NamedTuple):
    """Totals of the messages of a session, by model and day; `day` counts days since 1970."""

    session: int
    model: str | None
    day: int
    messages: int
    tokens: int
    input_tokens: int
    output_tokens: int
    tool_steps: int


class TurnTallyRow(NamedTuple):
    """Totals of the turns of a session, by model, day and status; `day` counts days since 1970."""

    session: int
    model: str | None
    day: int
    status: str
    turns: int
    input_tokens: int
    output_tokens: int


class ToolCallTallyRow(NamedTuple):
    """The numbers of tool calls and failures."""

    calls: int
    failures: int


class ToolStatsRow(NamedTuple):
    """The calls of a tool in a period, and percentiles of their latency in milliseconds."""

    tool: str
    period: str | None
    calls: int
    failures: int
    cancelled: int
    open_calls: int
    p50_ms: int | None
    p95_ms: int | None


_SESSIONS_COUNTED = Query("sessions_counted", CountedSessionRow)
_MESSAGES_TALLY = Query("messages_tally", MessageTallyRow)
_TURNS_TALLY = Query("turns_tally", TurnTallyRow)
_TOOL_CALLS_TALLY = Query("tool_calls_tally", ToolCallTallyRow)
_TOOL_CALLS_RANKED = Query("tool_calls_ranked", ToolStatsRow)


class _StatsPage(NamedTuple):
    """A page of sessions, and the totals of their messages, turns and tool calls."""

    sessions: list[CountedSessionRow]
    messages: list[MessageTallyRow]
    turns: list[TurnTallyRow]
    calls: ToolCallTallyRow


def stats(
    scope: Scope,
    *,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    channel: str | None = None,
    model: str | None = None,
    utc_offset: int = 0,
) -> Plan[Stats]:
    """Compute the statistics of a store, a page of sessions at a time."""
    params = {
        **_time_bounds(since, until),
        "offset": times.parse_utc_offset(utc_offset),
        "channel": channel,
        "model": model,
    }
    for name, value in (("channel", channel), ("model", model)):
        if value is not None and (not isinstance(value, str) or value != json.escape_surrogates(value)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{name} must be a string or None, got {format_value(value)}.")
    return _stats(scope, params, all_time=since is None and until is None)


def session_stats(scope: Scope, session: str, *, utc_offset: int = 0) -> Plan[Stats]:
    """Compute the statistics of one session, on all its branches."""
    params = {**_time_bounds(None, None), "offset": times.parse_utc_offset(utc_offset), "channel": None, "model": None}
    return _session_stats(scope, session, params)


def _time_bounds(since: TimeLike | None, until: TimeLike | None) -> dict[str, Any]:
    return {
        "since": 0 if since is None else times.parse_time(since, "since"),
        "until": _END_OF_TIME if until is None else times.parse_time(until, "until"),
    }


def _stats(scope: Scope, params: dict[str, Any], *, all_time: bool) -> Plan[Stats]:
    builder = _StatsBuilder(all_time=all_time)
    after = 0
    while True:
        page: _StatsPage = yield Operation(_read_page, scope, after, params, writes=False)
        builder.add(page)
        if len(page.sessions) < _PAGE_SIZE:
            return builder.stats()
        after = page.sessions[-1].key


def _session_stats(scope: Scope, session: str, params: dict[str, Any]) -> Plan[Stats]:
    page: _StatsPage = yield Operation(_read_session, scope, session, params, writes=False)
    builder = _StatsBuilder(all_time=True)
    builder.add(page)
    return builder.stats()


def _read_session(scope: Scope, session: str, params: dict[str, Any]) -> Steps[_StatsPage]:
    current = yield from sessions.find(scope, session)
    return (yield from _read_page(scope, current.session - 1, params, current.session))


def _read_page(scope: Scope, after: int, filters: dict[str, Any], last: int = _END_OF_TIME) -> Steps[_StatsPage]:
    params = {**filters, "owner": scope.owner, "after": after, "last": last}
    del params["until"], params["offset"]
    rows = yield from fetch_all(_SESSIONS_COUNTED, limit=_PAGE_SIZE, **params)
    if not rows:
        return _StatsPage([], [], [], ToolCallTallyRow(0, 0))
    window = {**filters, "owner": scope.owner, "after": after, "last": rows[-1].key}
    messages = yield from fetch_all(_MESSAGES_TALLY, **window)
    turns = yield from fetch_all(_TURNS_TALLY, **window)
    del window["offset"]
    calls = yield from fetch_one(_TOOL_CALLS_TALLY, **window)
    assert calls is not None
    return _StatsPage(rows, messages, turns, calls)


class _StatsBuilder:
    """Adds up pages. Distinct sessions per model, channel or day are counted within their page."""

    def __init__(self, *, all_time: bool) -> None:
        self._all_time = all_time
        self._all = _Counts(int)
        self._by: dict[str, _Groups] = {name: _Groups(lambda: _Counts(int)) for name in ("model", "channel", "day")}

    def add(self, page: _StatsPage) -> None:
        """Add a page."""
        sessions = {session.key: session for session in page.sessions}
        groups: defaultdict[str, set[Any]] = defaultdict(set)
        for row in page.messages:
            counts = {
                "messages": row.messages, "tokens": row.tokens, "input_tokens": row.input_tokens,
                "output_tokens": row.output_tokens, "tool_steps": row.tool_steps,
            }  # fmt: skip
            self._count(groups, sessions[row.session], row.model, row.day, counts)
        for row in page.turns:
            counts = {"turns": row.turns, "input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
            if row.status in _STATUS_COUNTS:
                counts[_STATUS_COUNTS[row.status]] = row.turns
            self._count(groups, sessions[row.session], row.model, row.day, counts)
        self._count_sessions(page.sessions, groups)
        self._all["tool_calls"] += page.calls.calls
        self._all["tool_failures"] += page.calls.failures

    def _count(
        self,
        groups: defaultdict[str, set[Any]],
        session: CountedSessionRow,
        model: str | None,
        day: int,
        counts: dict[str, int],
    ) -> None:
        for name, group in (("model", model or session.model), ("channel", session.channel), ("day", day)):
            groups[name].add((session.key, group))
            for field, value in counts.items():
                self._by[name][group][field] += value
        for field, value in counts.items():
            self._all[field] += value

    def _count_sessions(self, sessions: list[CountedSessionRow], groups: defaultdict[str, set[Any]]) -> None:
        """Count the sessions: all of them, or only those with activity in the requested period."""
        if self._all_time:
            groups["channel"] |= {(session.key, session.channel) for session in sessions}
        for name, pairs in groups.items():
            for _, group in pairs:
                self._by[name][group]["sessions"] += 1
        self._all["sessions"] += len({key for key, _ in groups["channel"]})

    def stats(self) -> Stats:
        """Return the totals."""
        days = {_date(day): counts for day, counts in self._by["day"].items()}
        return Stats(
            **self._all,
            by_model=_sorted_tallies(self._by["model"]),
            by_channel=_sorted_tallies(self._by["channel"]),
            by_day=tuple(sorted(_sorted_tallies(days), key=lambda tally: tally.name or "")),
        )


def _sorted_tallies(groups: dict[Any, _Counts]) -> tuple[Tally, ...]:
    """Return the groups, most messages first."""
    fields = Tally.__struct_fields__
    tallies = [
        Tally(name=name, **{field: value for field, value in group.items() if field in fields})
        for name, group in groups.items()
    ]
    return sort_tallies(tallies)


def _date(day: int) -> str:
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()


def tool_stats(
    scope: Scope,
    *,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    tool: str | None = None,
    period: str | None = None,
    utc_offset: int = 0,
) -> Operation[list[ToolStats]]:
    """Compute tool call statistics, by tool and period."""
    if period is not None:
        validation.check_choice("period", period, PERIODS)
    if tool is not None and not isinstance(tool, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"tool must be a string or None, got {format_value(tool)}.")
    params = {
        **_time_bounds(since, until), "tool": None if tool is None else json.escape_surrogates(tool), "period": period,
        "offset": times.parse_utc_offset(utc_offset),
    }  # fmt: skip
    return Operation(_tool_stats, scope, params, writes=False)


def _tool_stats(scope: Scope, params: dict[str, Any]) -> Steps[list[ToolStats]]:
    rows = yield from fetch_all(_TOOL_CALLS_RANKED, owner=scope.owner, **params)
    return [
        ToolStats(
            tool=row.tool,
            period=row.period,
            calls=row.calls,
            failures=row.failures,
            cancelled=row.cancelled,
            unanswered=row.open_calls,
            p50_ms=row.p50_ms,
            p95_ms=row.p95_ms,
        )
        for row in rows
    ]
