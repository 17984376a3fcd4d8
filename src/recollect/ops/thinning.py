"""Thinning: taking the oldest turns out of sessions that are too long, and large outputs out of tool results.

What is taken out of a session is marked as deleted, and can be brought back. A tool's output that is dropped is gone;
a sentence stands in its place, and the call and the text around it stay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from recollect.model import json
from recollect.model.message import Draft, Message
from recollect.model.part import Part, ToolResultPart
from recollect.model.tokens import estimate
from recollect.model.value import iso
from recollect.op import Op, Plan, Row, Scope, Steps, do, each, one, rows
from recollect.ops import leases, messages, paths, record, retention, search, sessions

_PAGE = 200
_STEP = 1_000
_LARGE = 20
_BODY = ("content", "output")


class Dropped(NamedTuple):
    """How many outputs were dropped, and their bytes."""

    outputs: int
    bytes: int


class _Trimmed(NamedTuple):
    """How many messages were taken out in a step, and after which position to go on; None: it is done."""

    messages: int
    after: int | None


def trim(scope: Scope, most: int, *, dry_run: bool) -> Plan[int]:
    """Take the oldest whole turns out of sessions with more than so many messages."""
    trimmed = 0
    for key in (yield from _keys(scope, "sessions_long", most=most)):
        after: int | None = 0
        taken = 0
        while after is not None:
            step: _Trimmed = yield Op(_trim, scope, key, most, taken, after, dry_run, writes=not dry_run, frees=True)
            taken, after = taken + (step.messages if dry_run else 0), step.after
            trimmed += step.messages
    return trimmed


def _keys(scope: Scope, query: str, **params: Any) -> Plan[list[int]]:
    """Read the sessions that a query names, a page at a time."""
    found: list[int] = []
    while True:
        after = found[-1] if found else 0
        page: list[Row] = yield Op(_some, scope, query, after, params, writes=False)
        found += [row[0] for row in page]
        if len(page) < _PAGE:
            return found


def _some(scope: Scope, query: str, after: int, params: dict[str, Any]) -> Steps[list[Row]]:
    return (yield from rows(query, owner=scope.owner, after=after, limit=_PAGE, **params))


def _trim(scope: Scope, key: int, most: int, taken: int, after: int, dry_run: bool) -> Steps[_Trimmed]:
    """Take out the oldest turns, some at a time. `taken` are those that a dry run has only counted."""
    here = yield from _idle(scope, key)
    if here is None or here.value.pinned_at is not None:
        return _Trimmed(0, None)
    excess = here.value.message_count - taken - most
    spans = yield from paths.path(here.head)
    alone = yield from retention.alone(here)
    for span in reversed(spans):
        low = max(span.low, after)
        if low >= span.high or excess <= 0:
            continue
        if span.branch not in alone or alone[span.branch] > span.low:
            break  # a fork has this past too, and keeps it
        turns, whole = yield from _turns(span, low, newest=span is spans[0])
        count, end = _oldest(turns, excess)
        if count and not dry_run:
            yield from _mark(scope, here, span, low, end)
        if count:
            more = excess > count and (not whole or span is not spans[0])
            return _Trimmed(count, end if more else None)
        if whole and span is spans[0]:
            break
    return _Trimmed(0, None)


def _idle(scope: Scope, key: int) -> Steps[sessions.Here | None]:
    """Read a session that is there and has no open turn."""
    row = yield from one("session_by_key", session=key)
    here = None if row is None else sessions.here(row)
    if here is None or here.value.deleted_at is not None:
        return None
    return None if here.open_turns and (yield from leases.busy(scope, key)) else here


def _turns(span: paths.Span, low: int, *, newest: bool) -> Steps[tuple[list[list[int]], bool]]:
    """Read the positions of the next turns that are whole; the newest turn of a session is left out.

    A turn begins with what a person said, so that calls and their results stay together.
    """
    limit = _STEP
    while True:
        found = yield from rows("messages_outline", branch=span.branch, low=low, high=span.high, limit=limit)
        turns: list[list[int]] = []
        before: int | None = None
        for position, role, turn in found:
            if not turns or (role == "user" and (turn is None or turn != before)):
                turns.append([])
            turns[-1].append(position)
            before = turn
        whole = len(found) < limit
        if not whole or newest:
            turns = turns[:-1]
        if turns or whole:
            return turns, whole
        limit *= 2


def _oldest(turns: list[list[int]], excess: int) -> tuple[int, int]:
    """Count the messages of as many turns as it takes, and say where the last of them ends."""
    count = end = 0
    for turn in turns:
        if count >= excess:
            break
        count, end = count + len(turn), turn[-1]
    return count, end


def _mark(scope: Scope, here: sessions.Here, span: paths.Span, low: int, end: int) -> Steps[None]:
    marked = yield from rows("messages_mark", branch=span.branch, low=low, high=end, now=scope.now)
    tokens, given, taken = (-sum(row[column] for row in marked) for column in range(3))
    yield from do(
        "session_change", session=here.session, messages=-len(marked), tokens=tokens, input_tokens=given,
        output_tokens=taken, now=scope.now,
    )  # fmt: skip


def drop(scope: Scope, over: int, *, dry_run: bool) -> Plan[Dropped]:
    """Drop tool outputs of more than so many bytes."""
    outputs = size = 0
    for key in (yield from _keys(scope, "sessions_unpinned")):
        place: tuple[int, int] | None = (0, 0)
        while place is not None:
            found: tuple[Dropped, tuple[int, int] | None] = yield Op(
                _drop, scope, key, over, place, dry_run, writes=not dry_run, unindexes=True, frees=True
            )
            (more, bytes_), place = found
            outputs, size = outputs + more, size + bytes_
    return Dropped(outputs, size)


def _drop(
    scope: Scope, key: int, over: int, place: tuple[int, int], dry_run: bool
) -> Steps[tuple[Dropped, tuple[int, int] | None]]:
    here = yield from _idle(scope, key)
    if here is None:
        return Dropped(0, 0), None
    outputs = size = 0
    found = yield from rows("messages_large", session=key, branch=place[0], position=place[1], over=over, limit=_LARGE)
    for branch, number, position in found:
        message = yield from messages.at(scope, branch, number, position, lock=not dry_run)
        assert message is not None
        parts, dropped = _thinned(message, over, scope.now)
        outputs, size = outputs + dropped.outputs, size + dropped.bytes
        if dropped.outputs and not dry_run:
            yield from _store(scope, here, branch, message, parts)
    last = (found[-1][0], found[-1][2]) if len(found) == _LARGE else None
    return Dropped(outputs, size), last


def _thinned(message: Message, over: int, now: int) -> tuple[tuple[Part, ...], Dropped]:
    parts: list[Part] = []
    sizes: list[int] = []
    for part in message.parts:
        size = len(json.encode([part]).encode()) if isinstance(part, ToolResultPart) else 0
        if isinstance(part, ToolResultPart) and size > over and "dropped" not in (part.metadata or {}):
            sizes.append(size)
            parts.append(_stand_in(part, size, over, now))
        else:
            parts.append(part)
    return tuple(parts), Dropped(len(sizes), sum(sizes))


def _stand_in(part: ToolResultPart, size: int, over: int, now: int) -> ToolResultPart:
    """Give the result with a sentence in the place of its output."""
    at = iso(now)
    native = part.native
    if isinstance(native, dict):
        native = {name: value for name, value in native.items() if name not in _BODY} or None
    if native is not None and len(json.encode(native)) > over:
        native = None
    return msgspec.structs.replace(
        part,
        text=f"[This tool output of {size:,} bytes was dropped on {at[:10]} to save space.]",
        data=msgspec.UNSET,
        content=None,
        native=native,
        metadata={**(part.metadata or {}), "dropped": {"bytes": size, "at": at}},
    )


def _store(scope: Scope, here: sessions.Here, branch: int, message: Message, parts: tuple[Part, ...]) -> Steps[None]:
    """Write a message with less in it, and let go of the payloads that it no longer refers to."""
    item = record.record(Draft(role=message.role, parts=parts), scope.now)
    columns = dict(zip(record.COLUMNS, item.columns, strict=True))
    tokens = max(item.tokens, message.tokens - estimate(message.parts) + item.tokens)
    row = yield from one("message_get", branch=branch, position=message.position)
    assert row is not None
    gone = [(scope.owner, name) for name in record.blobs_of(row) or () if name not in item.payloads]
    yield from search.changes(scope, branch, message.position)
    yield from do(
        "message_thin", branch=branch, position=message.position, parts=columns["parts"], tokens=tokens,
        blobs=columns["blobs"],
    )  # fmt: skip
    yield from each("blob_drop", gone)
    yield from each("blob_sweep", gone)
    if message.deleted_at is None:
        change = messages.Change(0, tokens - message.tokens, 0, 0)
        yield from messages.recount(scope, here.tree, branch, message.position, change)
    yield from leases.changed(scope, here.session)
