"""Pages of a view: the active messages after or before a message, and the last ones, without reading the others.

views.py reads a whole view, or its end as far as a budget reaches. Here the number of messages is known, so that
pinned messages and summaries are read only for the ranges that a page contains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from recollect.errors import InvalidValue
from recollect.model.compaction import Compaction, outermost_compactions
from recollect.model.message import Message, MessageColumns, ToolCallPart, ToolResultPart
from recollect.storage import messages, paths, sessions, tools
from recollect.storage.operation import Operation, Plan, Scope, Steps, fetch_all
from recollect.storage.pages import PageRequest, check_limit, find_bounds
from recollect.storage.paths import LAST_POSITION, PathSpan
from recollect.storage.views import (
    COMPACTIONS_OF_BRANCH,
    PARTNER_DISTANCE,
    compactions_of_branch,
    merge_by_position,
    read_batch,
    read_pinned,
    summaries,
    uncovered_spans,
)

T = TypeVar("T")


class ViewTail(NamedTuple):
    """The last active messages and summaries, and the messages before them with the calls of their results."""

    messages: list[Message]
    earlier_calls: list[Message]
    is_whole: bool
    """Whether there are no active messages before these."""


_TAIL_MARGIN = 8
"""Messages that are read beyond the number wanted: an answer with several calls before the first one, so that a format
finds where to begin. More cost time on each call, fewer a second read."""

_TAIL_GROWTH = 4
"""Factor of the next attempt if too few messages were read. All attempts together read a third more than the last."""


def read_tail(
    scope: Scope,
    session: str,
    last: int,
    render: Callable[[ViewTail], T | None],
    render_columns: Callable[[MessageColumns], T | None] | None = None,
) -> Plan[T]:
    """Read the last active messages of a session, more each time, until `render` returns a result for them.

    Each attempt is one operation, so that the result is a consistent state of the session. The first one is for
    `render_columns`, if it is not None.
    """
    count = check_limit("last", last) + _TAIL_MARGIN
    if render_columns is not None:
        result = yield Operation(_render_tail_columns, scope, session, last, render_columns, writes=False)
        if result is not None:
            return result
    while True:
        tail: ViewTail = yield Operation(_read_tail, scope, session, count, writes=False)
        result = render(tail)
        if result is not None:
            return result
        count *= _TAIL_GROWTH


def _render_tail_columns(
    scope: Scope, session: str, last: int, render: Callable[[MessageColumns], T | None]
) -> Steps[T | None]:
    """Render the last active messages; None if they have several branches, compactions, states or blobs.

    They are rendered on the thread that has decoded them, while they are in the cache of its processor.
    """
    newest = yield from messages.read_newest_columns(scope, session, last)
    if newest is None:
        return None
    head, columns = newest
    return None if (yield from fetch_all(COMPACTIONS_OF_BRANCH, branch=head)) else render(columns)


def _read_tail(scope: Scope, session: str, count: int) -> Steps[ViewTail]:
    newest = yield from messages.read_newest(scope, session, count, deleted=False)
    if newest is not None:
        number, first = newest.messages[0].branch, 1 if newest.more is None else newest.messages[0].position
        covers = outermost_compactions((yield from compactions_of_branch(newest.branch, number)))
        if all(cover.to_position < first for cover in covers):
            earlier = yield from _read_earlier_calls(scope, newest.branch, covers, first - 1, newest.messages)
            return ViewTail(newest.messages, earlier, newest.more is None)
    view = yield from _read_outline(scope, session, PageRequest())
    page = yield from _read_before(scope, view, count)
    earlier = yield from _read_earlier_calls(scope, view.branch, view.covers, page.floor, page.messages)
    return ViewTail(page.messages, earlier, page.floor == 0)


def read_page(scope: Scope, session: str, request: PageRequest) -> Operation[list[Message]]:
    """Read a page of the active messages. Its cursors are messages: a time would not be between two summaries."""
    if request.after.time is not None or request.before.time is not None:
        raise InvalidValue("after and before must not be times with active=True. Pass a message, its id or a position.")
    return Operation(_read_page, scope, session, request, writes=False)


def _read_page(scope: Scope, session: str, request: PageRequest) -> Steps[list[Message]]:
    view = yield from _read_outline(scope, session, request)
    if request.limit == 0:
        return []
    if not request.backward:
        return (yield from _read_after(scope, view, request.limit))
    page = yield from _read_before(scope, view, request.limit)
    return page.messages[-request.limit :]


class _Outline(NamedTuple):
    """A range of a view, without its messages: the positions after `low` and up to `high`."""

    branch: int
    path: list[PathSpan]
    covers: list[Compaction]
    open: list[PathSpan]
    """The spans of the range that no compaction covers, newest first."""
    low: int
    high: int


class _BackwardPage(NamedTuple):
    """The end of a range, and the position after which it is complete: 0 for the whole range."""

    messages: list[Message]
    floor: int


def _read_outline(scope: Scope, session: str, request: PageRequest) -> Steps[_Outline]:
    current = yield from sessions.find(scope, session)
    path = yield from paths.read_path(current.head)
    low, high = find_bounds(session, path, request)
    covers = outermost_compactions((yield from compactions_of_branch(current.head, path[0].number)))
    open_spans = [
        span._replace(low=max(span.low, low)) for span in uncovered_spans(path, covers, high) if span.high > low
    ]
    return _Outline(current.head, path, covers, open_spans, low, high)


def _read_before(scope: Scope, view: _Outline, count: int) -> Steps[_BackwardPage]:
    """Read the last messages of a range: at least `count`, unless it has fewer."""
    batch = yield from read_batch(scope, view.open, count)
    floor = batch.rest[0].high if batch.rest else 0
    always = yield from _read_always_active(scope, view.path, view.covers, max(view.low, floor), view.high)
    return _BackwardPage(merge_by_position(always, batch.messages), floor)


def _read_after(scope: Scope, view: _Outline, limit: int) -> Steps[list[Message]]:
    """Read the first messages of a range."""
    batch: list[Message] = []
    for span in reversed(view.open):
        if len(batch) < limit:
            batch += yield from messages.read_span(
                scope, messages.MESSAGES_FORWARD, span, span.low, span.high, limit - len(batch)
            )
    end = view.high if len(batch) < limit else batch[-1].position
    always = yield from _read_always_active(scope, view.path, view.covers, view.low, end)
    return merge_by_position(always, batch)[:limit]


def _read_always_active(
    scope: Scope, path: Sequence[PathSpan], covers: Sequence[Compaction], low: int, high: int
) -> Steps[list[Message]]:
    """Return what is active in the compacted ranges between two positions: summaries, pinned messages, partners."""
    covers = [cover for cover in covers if cover.to_position > low and cover.from_position <= high]
    if not covers:
        return []
    first = min(cover.from_position for cover in covers) - PARTNER_DISTANCE
    last = max(cover.to_position for cover in covers) + PARTNER_DISTANCE
    result = yield from read_pinned(scope, path, first, last)
    return [message for message in (*result, *summaries(path, covers)) if low < message.position <= high]


def _read_earlier_calls(
    scope: Scope, branch: int, covers: Sequence[Compaction], floor: int, tail: Sequence[Message]
) -> Steps[list[Message]]:
    """Return the active messages up to a position with the newest call of each result whose call is not in the tail."""
    ids = _unmatched_results(tail) if floor > 0 else ()
    if not ids:
        return []
    path = yield from paths.read_path(branch)
    below = [cover for cover in covers if cover.to_position <= floor]
    pinned = yield from _read_always_active(scope, path, below, 0, LAST_POSITION)
    messages_by_position: dict[int, Message] = {}
    for call_id in ids:
        candidates = [item for item in pinned if item.position <= floor and tools.has_call(item, call_id)]
        for span in uncovered_spans(path, covers, floor):
            message = yield from tools.find_call_message(scope, span, call_id)
            if message is not None:
                candidates.append(message)
                break
        if candidates:
            newest = max(candidates, key=lambda item: item.position)
            messages_by_position[newest.position] = newest
    return [messages_by_position[position] for position in sorted(messages_by_position)]


def _unmatched_results(tail: Sequence[Message]) -> list[str]:
    """Return the call ids of results that come before every call of their id, in order."""
    calls: set[str] = set()
    ids: dict[str, None] = {}
    for message in tail:
        for part in message.parts:
            if type(part) is ToolCallPart:
                calls.add(part.call_id)
        for part in message.parts:
            if type(part) is ToolResultPart and part.call_id not in calls:
                ids[part.call_id] = None
    return list(ids)
