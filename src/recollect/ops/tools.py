"""Tool calls: one row per invocation, kept in step with the messages that ask and answer.

Call ids are unique only within a provider's response. A result joins the newest call of its id on the path that has
no result there; a fork that answers a shared call gets a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, ToolCallAnswered, ToolCallNotFound, displayed
from recollect.model.json import storable
from recollect.model.part import ToolResultPart
from recollect.model.session import Session
from recollect.model.tool_call import ToolCall
from recollect.op import Op, Row, Scope, Steps, each, rows
from recollect.ops import leases, record, sessions
from recollect.ops.paths import path

Place = tuple[int, int, int]
"""The branch, position and part of a call."""

# Calls that share an id are looked through from the newest on. A provider that counts its ids from zero in each
# response gives thousands of them, and only the newest few can still be open.
_NEWEST = 32

# So many results of older calls are looked up one by one. For more, the calls of the path are read at once: a look goes
# through the calls of a message, and thousands of results would go through thousands of calls each.
_ONE_BY_ONE = 32


class Found(NamedTuple):
    """A call on the path, as the row nearest to the end of the path has it."""

    place: Place
    call_id: str
    tool: str
    created_at: int
    started_at: int | None
    result: Place | None
    """The branch, position and part of its result on this path."""


# A row of tool_calls as it is written: (branch, position, part) of the call, the branch whose row it is, and so on.
_STATUS, _RESULT, _RESULT_PART = 6, 8, 9
_CREATED, _STARTED, _COMPLETED, _LATENCY, _CODE, _MESSAGE = range(10, 16)


def track(branch: int, first: int, records: Sequence[record.Record]) -> Steps[None]:
    """Write the calls of new messages, and join their results to calls, made here or before."""
    made: dict[Place, list[Any]] = {}
    waiting: dict[str, list[Place]] = {}
    older, asked = None, 0
    for position, item in enumerate(records, first):
        for part, call in item.calls:
            place = (branch, position, part)
            made[place] = _pending(branch, place, call.call_id, call.tool, item.created_at)
            waiting.setdefault(call.call_id, []).append(place)
        for part, result in item.results:
            stack = waiting.get(result.call_id)
            if stack:
                row = made[stack.pop()]
            else:
                if older is None and asked == _ONE_BY_ONE:
                    older = yield from _all_open(branch, made)
                asked += 1
                if older is None:
                    found = yield from newest_open(branch, result.call_id, made)
                else:
                    found = _popped(older, storable(result.call_id))
                if found is None:
                    continue  # an orphan is kept as it came; the view that is sent mends it
                row = made[found.place] = _row(branch, found)
            _answer(row, result, position, part, item.created_at)
    yield from each("tool_call_insert", [tuple(row) for row in made.values()])


def made(records: Sequence[record.Record]) -> Sequence[Row] | None:
    """Give the rows of new messages' calls, with places counted from 1; None where a result is of an older call."""
    name, rows, _ = next(track(0, 1, records))
    return rows if name == "tool_call_insert" else None  # type: ignore[return-value]


def _pending(branch: int, place: Place, call_id: str, tool: str, created: int) -> list[Any]:
    return [
        *place, branch, storable(call_id), storable(tool), "pending", branch, None, None, created, None, None, None,
        None, None,
    ]  # fmt: skip


def _row(branch: int, found: Found) -> list[Any]:
    """Give a stored call as the row that this branch writes for it."""
    row = _pending(branch, found.place, found.call_id, found.tool, found.created_at)
    row[_STARTED] = found.started_at
    return row


def _answer(row: list[Any], result: ToolResultPart, position: int, part: int, now: int) -> None:
    since = row[_CREATED] if row[_STARTED] is None else row[_STARTED]
    row[_STATUS], row[_RESULT], row[_RESULT_PART] = result.status, position, part
    row[_COMPLETED], row[_LATENCY] = now, _latency(result, now - since)
    row[_CODE] = None if result.error_code is None else storable(result.error_code)
    row[_MESSAGE] = None if result.error_message is None else storable(result.error_message)


def _latency(result: ToolResultPart, measured: int) -> int:
    given = None if result.metadata is None else result.metadata.get("latency_ms")
    return given if isinstance(given, int) and given >= 0 else max(measured, 0)


def with_id(branch: int, call_id: str, *, until: Callable[[Found], bool]) -> Steps[list[Found]]:
    """Find the calls with an id on a path, the newest first, up to the first that is looked for."""
    spans = yield from path(branch)
    ends = {span.branch: span.high for span in spans}
    found: list[Found] = []
    for span in spans:
        high = span.high
        while high > span.low and len(found) < _NEWEST:
            made = yield from rows(
                "tool_calls_newest", branch=span.branch, low=span.low, high=high, call_id=storable(call_id)
            )
            if not made:
                break
            for call in _nearest(span.branch, made, ends):
                found.append(call)
                if until(call):
                    return found
            high = made[0][0] - 1
    return found


def _nearest(branch: int, made: list[Row], ends: dict[int, int]) -> list[Found]:
    """Make one call of the rows that it has on this path: the branches nearest to its end come first in `ends`."""
    order = {key: depth for depth, key in enumerate(ends)}
    calls: dict[int, Found] = {}
    for row in sorted((row for row in made if row[2] in order), key=lambda row: (-row[1], order[row[2]])):
        position, part, owner, call_id, tool, _, result, result_part, created, started = row
        if part not in calls:
            place: Place | None = (owner, int(result), int(result_part)) if result and result <= ends[owner] else None
            calls[part] = Found((branch, position, part), call_id, tool, created, started, place)
    return list(calls.values())


def newest_open(branch: int, call_id: str, made: Collection[Place] = ()) -> Steps[Found | None]:
    """Find the newest call with an id that has no result on the path, other than those in `made`."""

    def is_open(call: Found) -> bool:
        return call.result is None and call.place not in made

    found = yield from with_id(branch, call_id, until=is_open)
    return found[-1] if found and is_open(found[-1]) else None


def _all_open(branch: int, made: Collection[Place]) -> Steps[dict[str, list[Found]]]:
    """Read the calls that have no result on the path, other than those in `made`: by id, the newest last."""
    seen: set[Place] = set(made)
    found: dict[str, list[Found]] = {}
    for row in (yield from rows("tool_calls_of_path", branch=branch)):
        place: Place = (row[0], row[2], row[3])
        if place not in seen and row[7] is None:
            found.setdefault(row[4], []).append(Found(place, row[4], row[5], row[9], row[10], None))
        seen.add(place)
    return found


def _popped(found: dict[str, list[Found]], call_id: str) -> Found | None:
    stack = found.get(call_id)
    return stack.pop() if stack else None


def calls(scope: Scope, session: str) -> Op[list[ToolCall]]:
    """Read the tool calls of a session's active path, oldest first."""
    return Op(_calls, scope, session, writes=False)


def _calls(scope: Scope, session: str) -> Steps[list[ToolCall]]:
    here = yield from sessions.find(scope, session)
    return (yield from on_path(here.head))


def on_path(branch: int) -> Steps[list[ToolCall]]:
    """Read the tool calls of a path, oldest first."""
    found: dict[Place, ToolCall] = {}
    for row in (yield from rows("tool_calls_of_path", branch=branch)):
        found.setdefault((row[0], row[2], row[3]), _value(row))
    return list(found.values())


def _value(row: Row) -> ToolCall:
    call: dict[str, Any] = {
        "message": f"{row[1]}.{row[2]}",
        "part": row[3],
        "call_id": row[4],
        "tool": row[5],
        "created_at": row[9],
    }
    if row[7] is None and row[8] is not None:
        return ToolCall(**call, status="pending")  # answered on another path only
    return ToolCall(
        **call,
        status=row[6],
        result_message=None if row[7] is None else f"{row[15]}.{row[7]}",
        result_part=row[8],
        started_at=row[10],
        completed_at=row[11],
        latency_ms=row[12],
        error_code=row[13],
        error_message=row[14],
    )


def start(scope: Scope, session: str, call_id: str) -> Op[Session]:
    """Mark a call as running."""
    if not isinstance(call_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"The id of a call is a text; got {displayed(call_id)}.")
    return Op(_start, scope, session, call_id)


def _start(scope: Scope, session: str, call_id: str) -> Steps[Session]:
    here = yield from sessions.find(scope, session)
    found = yield from newest_open(here.head, call_id)
    if found is None:
        raise (yield from unknown(session, here.head, call_id))
    row = _row(here.head, found)
    row[_STATUS], row[_STARTED] = "running", found.started_at or scope.now
    yield from each("tool_call_insert", [tuple(row)])
    yield from leases.changed(scope, here.session)
    return (yield from sessions.find(scope, session)).value


def unknown(session: str, branch: int, call_id: str) -> Steps[Exception]:
    """Say why there is no open call with an id: it has a result, or it was never made."""
    known = yield from with_id(branch, call_id, until=lambda _: True)
    return (ToolCallAnswered if known else ToolCallNotFound)(session=session, call_id=call_id)
