"""Tool calls: one row per invocation, updated together with the messages that hold the call and its result.

Call ids are unique only within one provider response. A result joins the newest call with its id on the path that has
no result there; a fork that answers a shared call gets its own row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, ToolCallAnswered, ToolCallNotFound, format_value
from recollect.model.json import escape_surrogates
from recollect.model.message import ToolCall, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.storage import leases, messages, sessions
from recollect.storage.operation import Operation, Row, Scope, Steps, execute_many, fetch_all
from recollect.storage.paths import read_path

CallPosition = tuple[int, int, int]
"""The branch, position and part of a call."""

# Calls that share an id are searched from the newest. A provider that counts its ids from zero in each response
# produces thousands of them, and only the newest few can still be open.
_MAX_CANDIDATES = 32

# Lookups of results of older calls. For more, all calls of the path are read at once: a lookup scans the calls of a
# message, so thousands of results would scan thousands of calls each.
_MAX_SINGLE_LOOKUPS = 32


class PathToolCall(NamedTuple):
    """A tool call on a path, from the row nearest to the end of the path."""

    position: CallPosition
    call_id: str
    tool: str
    created_at: int
    started_at: int | None
    result: CallPosition | None
    """The branch, position and part of its result on this path."""


# A row of tool_calls as it is written: (branch, position, part) of the call, the branch whose row it is, and so on.
_STATUS, _RESULT, _RESULT_PART = 6, 8, 9
_CREATED, _STARTED, _COMPLETED, _LATENCY, _CODE, _MESSAGE = range(10, 16)


def write_calls(branch: int, first: int, records: Sequence[messages.EncodedDraft]) -> Steps[None]:
    """Write the calls of new messages, and join their results to new or older calls."""
    new_rows: dict[CallPosition, list[Any]] = {}
    waiting: dict[str, list[CallPosition]] = {}
    older, lookups = None, 0
    for position, item in enumerate(records, first):
        for part, call in item.calls:
            call_position = (branch, position, part)
            new_rows[call_position] = _pending_row(branch, call_position, call.call_id, call.tool, item.created_at)
            waiting.setdefault(call.call_id, []).append(call_position)
        for part, result in item.results:
            stack = waiting.get(result.call_id)
            if stack:
                row = new_rows[stack.pop()]
            else:
                if older is None and lookups == _MAX_SINGLE_LOOKUPS:
                    older = yield from _read_open_calls(branch, new_rows)
                lookups += 1
                if older is None:
                    open_call = yield from find_open_call(branch, result.call_id, new_rows)
                else:
                    open_call = _pop_call(older, escape_surrogates(result.call_id))
                if open_call is None:
                    continue  # an orphan result is stored unchanged; the history repairs it
                row = new_rows[open_call.position] = _row_of_call(branch, open_call)
            _set_result(row, result, position, part, item.created_at)
    yield from execute_many("tool_call_insert", [tuple(row) for row in new_rows.values()])


def new_call_rows(records: Sequence[messages.EncodedDraft]) -> Sequence[Row] | None:
    """Return the call rows of new messages, with positions from 1; None if a result belongs to an older call."""
    name, rows, _ = next(write_calls(0, 1, records))
    return rows if name == "tool_call_insert" else None  # type: ignore[return-value]


def _pending_row(branch: int, call_position: CallPosition, call_id: str, tool: str, created: int) -> list[Any]:
    return [
        *call_position, branch, escape_surrogates(call_id), escape_surrogates(tool), "pending", branch, None, None,
        created, None, None, None, None, None,
    ]  # fmt: skip


def _row_of_call(branch: int, call: PathToolCall) -> list[Any]:
    """Return the row that this branch writes for a stored call."""
    row = _pending_row(branch, call.position, call.call_id, call.tool, call.created_at)
    row[_STARTED] = call.started_at
    return row


def _set_result(row: list[Any], result: ToolResultPart, position: int, part: int, now: int) -> None:
    since = row[_CREATED] if row[_STARTED] is None else row[_STARTED]
    row[_STATUS], row[_RESULT], row[_RESULT_PART] = result.status, position, part
    row[_COMPLETED], row[_LATENCY] = now, _latency(result, now - since)
    row[_CODE] = None if result.error_code is None else escape_surrogates(result.error_code)
    row[_MESSAGE] = None if result.error_message is None else escape_surrogates(result.error_message)


def _latency(result: ToolResultPart, duration: int) -> int:
    latency = None if result.metadata is None else result.metadata.get("latency_ms")
    return latency if isinstance(latency, int) and latency >= 0 else max(duration, 0)


def find_calls(branch: int, call_id: str, *, until: Callable[[PathToolCall], bool]) -> Steps[list[PathToolCall]]:
    """Return the calls with an id on a path, newest first, up to the first for which `until` is true."""
    spans = yield from read_path(branch)
    ends = {span.branch: span.high for span in spans}
    calls: list[PathToolCall] = []
    for span in spans:
        high = span.high
        while high > span.low and len(calls) < _MAX_CANDIDATES:
            rows = yield from fetch_all(
                "tool_calls_newest", branch=span.branch, low=span.low, high=high, call_id=escape_surrogates(call_id)
            )
            if not rows:
                break
            for call in _calls_from_rows(span.branch, rows, ends):
                calls.append(call)
                if until(call):
                    return calls
            high = rows[0][0] - 1
    return calls


def _calls_from_rows(branch: int, rows: list[Row], ends: dict[int, int]) -> list[PathToolCall]:
    """Return one call per part from its rows on a path; `ends` has the branches nearest to the end first."""
    order = {key: depth for depth, key in enumerate(ends)}
    calls: dict[int, PathToolCall] = {}
    for row in sorted((row for row in rows if row[2] in order), key=lambda row: (-row[1], order[row[2]])):
        position, part, answer_branch, call_id, tool, _, result, result_part, created, started = row
        if part not in calls:
            result_position: CallPosition | None = (
                (answer_branch, int(result), int(result_part)) if result and result <= ends[answer_branch] else None
            )
            calls[part] = PathToolCall((branch, position, part), call_id, tool, created, started, result_position)
    return list(calls.values())


def find_open_call(branch: int, call_id: str, excluding: Collection[CallPosition] = ()) -> Steps[PathToolCall | None]:
    """Find the newest call with an id that has no result on the path, other than those in `excluding`."""

    def is_open(call: PathToolCall) -> bool:
        return call.result is None and call.position not in excluding

    calls = yield from find_calls(branch, call_id, until=is_open)
    return calls[-1] if calls and is_open(calls[-1]) else None


def _read_open_calls(branch: int, excluding: Collection[CallPosition]) -> Steps[dict[str, list[PathToolCall]]]:
    """Read the calls that have no result on the path, other than those in `excluding`: by id, the newest last."""
    positions: set[CallPosition] = set(excluding)
    calls: dict[str, list[PathToolCall]] = {}
    for row in (yield from fetch_all("tool_calls_of_path", branch=branch)):
        call_position: CallPosition = (row[0], row[2], row[3])
        if call_position not in positions and row[7] is None:
            calls.setdefault(row[4], []).append(PathToolCall(call_position, row[4], row[5], row[9], row[10], None))
        positions.add(call_position)
    return calls


def _pop_call(calls: dict[str, list[PathToolCall]], call_id: str) -> PathToolCall | None:
    stack = calls.get(call_id)
    return stack.pop() if stack else None


def list_calls(scope: Scope, session: str) -> Operation[list[ToolCall]]:
    """Read the tool calls of a session's active path, oldest first."""
    return Operation(_list_calls, scope, session, writes=False)


def _list_calls(scope: Scope, session: str) -> Steps[list[ToolCall]]:
    current = yield from sessions.find(scope, session)
    return (yield from calls_on_path(current.head))


def calls_on_path(branch: int) -> Steps[list[ToolCall]]:
    """Read the tool calls of a path, oldest first."""
    calls: dict[CallPosition, ToolCall] = {}
    for row in (yield from fetch_all("tool_calls_of_path", branch=branch)):
        calls.setdefault((row[0], row[2], row[3]), _tool_call_from_row(row))
    return list(calls.values())


def _tool_call_from_row(row: Row) -> ToolCall:
    call: dict[str, Any] = {
        "message": f"{row[1]}.{row[2]}",
        "part": row[3],
        "call_id": row[4],
        "tool": row[5],
        "created_at": row[9],
    }
    if row[7] is None and row[8] is not None:
        return ToolCall(**call, status="pending")  # only answered on another path
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


def start_call(scope: Scope, session: str, call_id: str) -> Operation[SessionInfo]:
    """Mark a call as running."""
    if not isinstance(call_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"call_id must be a string, got {format_value(call_id)}.")
    return Operation(_start_call, scope, session, call_id)


def _start_call(scope: Scope, session: str, call_id: str) -> Steps[SessionInfo]:
    current = yield from sessions.find(scope, session)
    call = yield from find_open_call(current.head, call_id)
    if call is None:
        raise (yield from missing_call_error(session, current.head, call_id))
    row = _row_of_call(current.head, call)
    row[_STATUS], row[_STARTED] = "running", call.started_at or scope.now
    yield from execute_many("tool_call_insert", [tuple(row)])
    yield from leases.raise_revision(scope, current.session)
    return (yield from sessions.find(scope, session)).value


def missing_call_error(session: str, branch: int, call_id: str) -> Steps[Exception]:
    """Return the error for a missing open call: it has a result, or it does not exist."""
    calls = yield from find_calls(branch, call_id, until=lambda _: True)
    return (ToolCallAnswered if calls else ToolCallNotFound)(session=session, call_id=call_id)
