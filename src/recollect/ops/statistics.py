"""Statistics: what is stored, added up. Nothing is kept for it, so that an append pays nothing; no body is read.

A message counts once, for the session that wrote it, on whatever branch it is. Sessions in the trash do not count.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, displayed
from recollect.model import argument, json, moment
from recollect.model.moment import Moment
from recollect.model.statistics import PERIODS, Stats, Tally, ToolStats, ordered
from recollect.op import Op, Plan, Row, Scope, Steps, one, rows
from recollect.ops import sessions

_FOREVER = 1 << 62
_PAGE = 200
_EPOCH = datetime.date(1970, 1, 1)
_ENDS = {"failed": "failures", "cancelled": "cancelled", "interrupted": "interrupted"}

_Figures = defaultdict[str, int]
_Groups = defaultdict[Any, _Figures]


class _Page(NamedTuple):
    """Sessions as (key, channel, model), and the figures of their messages, turns and tool calls."""

    sessions: list[Row]
    messages: list[Row]
    turns: list[Row]
    calls: Row


def stats(
    scope: Scope,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    channel: str | None = None,
    model: str | None = None,
    utc_offset: int = 0,
) -> Plan[Stats]:
    """Add up a store, a page of sessions at a time."""
    asked = {**_between(since, until), "offset": moment.offset(utc_offset), "channel": channel, "model": model}
    for name, value in (("channel", channel), ("model", model)):
        if value is not None and (not isinstance(value, str) or value != json.storable(value)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{name} is a text; got {displayed(value)}.")
    return _stats(scope, asked, whole=since is None and until is None)


def of_session(scope: Scope, session: str, *, utc_offset: int = 0) -> Plan[Stats]:
    """Add up one session, on all its branches."""
    asked = {**_between(None, None), "offset": moment.offset(utc_offset), "channel": None, "model": None}
    return _of_session(scope, session, asked)


def _between(since: Moment | None, until: Moment | None) -> dict[str, Any]:
    return {
        "since": 0 if since is None else moment.moment(since, "since"),
        "until": _FOREVER if until is None else moment.moment(until, "until"),
    }


def _stats(scope: Scope, asked: dict[str, Any], *, whole: bool) -> Plan[Stats]:
    sums = _Sums(whole=whole)
    after = 0
    while True:
        page: _Page = yield Op(_page, scope, after, asked, writes=False)
        sums.add(page)
        if len(page.sessions) < _PAGE:
            return sums.stats()
        after = page.sessions[-1][0]


def _of_session(scope: Scope, session: str, asked: dict[str, Any]) -> Plan[Stats]:
    page: _Page = yield Op(_one_session, scope, session, asked, writes=False)
    sums = _Sums(whole=True)
    sums.add(page)
    return sums.stats()


def _one_session(scope: Scope, session: str, asked: dict[str, Any]) -> Steps[_Page]:
    found = yield from sessions.find(scope, session)
    return (yield from _page(scope, found.session - 1, asked, found.session))


def _page(scope: Scope, after: int, asked: dict[str, Any], last: int = _FOREVER) -> Steps[_Page]:
    params = {**asked, "owner": scope.owner, "after": after, "last": last}
    del params["until"], params["offset"]
    found = yield from rows("sessions_counted", limit=_PAGE, **params)
    if not found:
        return _Page([], [], [], (0, 0))
    window = {**asked, "owner": scope.owner, "after": after, "last": found[-1][0]}
    messages = yield from rows("messages_tally", **window)
    turns = yield from rows("turns_tally", **window)
    del window["offset"]
    calls = yield from one("tool_calls_tally", **window)
    assert calls is not None
    return _Page(found, messages, turns, calls)


class _Sums:
    """Adds up pages. The sessions of a model, channel or day are counted while their page is at hand."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._all = _Figures(int)
        self._by: dict[str, _Groups] = {name: _Groups(lambda: _Figures(int)) for name in ("model", "channel", "day")}

    def add(self, page: _Page) -> None:
        """Take in a page."""
        known = {key: (channel, model) for key, channel, model in page.sessions}
        seen: defaultdict[str, set[Any]] = defaultdict(set)
        for key, model, day, count, tokens, given, taken, steps in page.messages:
            channel, fallback = known[key]
            figures = {
                "messages": count, "tokens": tokens, "input_tokens": given, "output_tokens": taken, "tool_steps": steps,
            }  # fmt: skip
            self._count(seen, key, channel, model or fallback, day, figures)
        for key, model, day, status, count, given, taken in page.turns:
            channel, fallback = known[key]
            figures = {"turns": count, "input_tokens": given, "output_tokens": taken}
            if status in _ENDS:
                figures[_ENDS[status]] = count
            self._count(seen, key, channel, model or fallback, day, figures)
        self._sessions(known, seen)
        self._all["tool_calls"] += page.calls[0]
        self._all["tool_failures"] += page.calls[1]

    def _count(
        self, seen: defaultdict[str, set[Any]], key: int, channel: Any, model: Any, day: int, figures: dict[str, int]
    ) -> None:
        for name, group in (("model", model), ("channel", channel), ("day", day)):
            seen[name].add((key, group))
            for figure, value in figures.items():
                self._by[name][group][figure] += value
        for figure, value in figures.items():
            self._all[figure] += value

    def _sessions(self, known: dict[int, tuple[Any, Any]], seen: defaultdict[str, set[Any]]) -> None:
        """Count the sessions: all of them, or where a time was named those in which something happened then."""
        if self._whole:
            seen["channel"] |= {(key, channel) for key, (channel, _) in known.items()}
        for name, pairs in seen.items():
            for _, group in pairs:
                self._by[name][group]["sessions"] += 1
        self._all["sessions"] += len({key for key, _ in seen["channel"]})

    def stats(self) -> Stats:
        """Give the sums."""
        days = {_date(day): figures for day, figures in self._by["day"].items()}
        return Stats(
            **self._all,
            by_model=_tallies(self._by["model"]),
            by_channel=_tallies(self._by["channel"]),
            by_day=tuple(sorted(_tallies(days), key=lambda tally: tally.name or "")),
        )


def _tallies(groups: dict[Any, _Figures]) -> tuple[Tally, ...]:
    """Give the groups, those with the most messages first."""
    figures = Tally.__struct_fields__
    made = [
        Tally(name=name, **{figure: value for figure, value in group.items() if figure in figures})
        for name, group in groups.items()
    ]
    return ordered(made)


def _date(day: int) -> str:
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()


def tools(
    scope: Scope,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    tool: str | None = None,
    period: str | None = None,
    utc_offset: int = 0,
) -> Op[list[ToolStats]]:
    """Add up the tool calls, by tool and period."""
    if period is not None:
        argument.choice("period", period, PERIODS)
    if tool is not None and not isinstance(tool, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"tool is a text; got {displayed(tool)}.")
    asked = {
        **_between(since, until), "tool": None if tool is None else json.storable(tool), "period": period,
        "offset": moment.offset(utc_offset),
    }  # fmt: skip
    return Op(_tools, scope, asked, writes=False)


def _tools(scope: Scope, asked: dict[str, Any]) -> Steps[list[ToolStats]]:
    found = yield from rows("tool_calls_ranked", owner=scope.owner, **asked)
    return [
        ToolStats(
            tool=tool, period=period, calls=calls, failures=failures, canceled=canceled, unanswered=unanswered,
            p50_ms=middle, p95_ms=high,
        )
        for tool, period, calls, failures, canceled, unanswered, middle, high in found
    ]  # fmt: skip
