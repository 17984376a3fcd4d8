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
from recollect.storage.operation import Operation, Plan, Row, Scope, Steps, fetch_all, fetch_one

_END_OF_TIME = 1 << 62  # milliseconds, later than any stored time; also larger than any session key
_PAGE_SIZE = 200  # sessions per operation
_EPOCH = datetime.date(1970, 1, 1)
_STATUS_COUNTS = {"failed": "failures", "cancelled": "cancelled", "interrupted": "interrupted"}

_Counts = defaultdict[str, int]
_Groups = defaultdict[Any, _Counts]


class _StatsPage(NamedTuple):
    """A page of sessions as (key, channel, model), and the totals of their messages, turns and tool calls."""

    sessions: list[Row]
    messages: list[Row]
    turns: list[Row]
    calls: Row


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
        after = page.sessions[-1][0]


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
    rows = yield from fetch_all("sessions_counted", limit=_PAGE_SIZE, **params)
    if not rows:
        return _StatsPage([], [], [], (0, 0))
    window = {**filters, "owner": scope.owner, "after": after, "last": rows[-1][0]}
    messages = yield from fetch_all("messages_tally", **window)
    turns = yield from fetch_all("turns_tally", **window)
    del window["offset"]
    calls = yield from fetch_one("tool_calls_tally", **window)
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
        sessions = {key: (channel, model) for key, channel, model in page.sessions}
        groups: defaultdict[str, set[Any]] = defaultdict(set)
        for key, model, day, count, tokens, input_tokens, output_tokens, steps in page.messages:
            channel, fallback = sessions[key]
            counts = {
                "messages": count, "tokens": tokens, "input_tokens": input_tokens, "output_tokens": output_tokens,
                "tool_steps": steps,
            }  # fmt: skip
            self._count(groups, key, channel, model or fallback, day, counts)
        for key, model, day, status, count, input_tokens, output_tokens in page.turns:
            channel, fallback = sessions[key]
            counts = {"turns": count, "input_tokens": input_tokens, "output_tokens": output_tokens}
            if status in _STATUS_COUNTS:
                counts[_STATUS_COUNTS[status]] = count
            self._count(groups, key, channel, model or fallback, day, counts)
        self._count_sessions(sessions, groups)
        self._all["tool_calls"] += page.calls[0]
        self._all["tool_failures"] += page.calls[1]

    def _count(
        self, groups: defaultdict[str, set[Any]], key: int, channel: Any, model: Any, day: int, counts: dict[str, int]
    ) -> None:
        for name, group in (("model", model), ("channel", channel), ("day", day)):
            groups[name].add((key, group))
            for field, value in counts.items():
                self._by[name][group][field] += value
        for field, value in counts.items():
            self._all[field] += value

    def _count_sessions(self, sessions: dict[int, tuple[Any, Any]], groups: defaultdict[str, set[Any]]) -> None:
        """Count the sessions: all of them, or only those with activity in the requested period."""
        if self._all_time:
            groups["channel"] |= {(key, channel) for key, (channel, _) in sessions.items()}
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
    rows = yield from fetch_all("tool_calls_ranked", owner=scope.owner, **params)
    return [
        ToolStats(
            tool=tool, period=period, calls=calls, failures=failures, canceled=canceled, unanswered=open_calls,
            p50_ms=p50, p95_ms=p95,
        )
        for tool, period, calls, failures, canceled, open_calls, p50, p95 in rows
    ]  # fmt: skip
