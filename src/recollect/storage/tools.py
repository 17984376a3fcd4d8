"""Tool calls: one row per invocation, updated together with the messages that hold the call and its result.

Call ids are unique only within one provider response. A result joins the newest call with its id on the path that has
no result there; a fork that answers a shared call gets its own row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from recollect.errors import InvalidValue, ToolCallAnswered, ToolCallNotFound, format_value
from recollect.model.json import escape_surrogates
from recollect.model.message import CallStatus, Message, ToolCall, ToolCallPart, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.storage import leases, messages, sessions
from recollect.storage.operation import Operation, Query, Row, Scope, Steps, execute_many, fetch_all
from recollect.storage.paths import PathSpan, read_path

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


class NewestCallRow(NamedTuple):
    """A tool call of the newest message that has its id; its result is on the branch `answer_branch`."""

    position: int
    part: int
    answer_branch: int
    call_id: str
    tool: str
    result: int | None
    result_part: int | None
    created_at: int
    started_at: int | None


class PathCallRow(NamedTuple):
    """A tool call of a path; its result, if it is on the path, is on the branch with the number `answer_number`."""

    branch: int
    number: int
    position: int
    part: int
    call_id: str
    tool: str
    status: CallStatus
    result: int | None
    result_part: int | None
    created_at: int
    started_at: int | None
    completed_at: int | None
    latency_ms: int | None
    error_code: str | None
    error_message: str | None
    answer_number: int


_TOOL_CALLS_NEWEST = Query("tool_calls_newest", NewestCallRow)
_TOOL_CALLS_OF_PATH = Query("tool_calls_of_path", PathCallRow)


class WrittenCallRow(Struct, gc=False):
    """A row of tool_calls as it is written: the values of tool_call_insert, in order.

    It is a mutable struct because NamedTuple._replace() takes 1.9 microseconds, assigning the seven fields of a result
    0.2 microseconds.
    """

    call_branch: int
    position: int
    part: int
    branch: int
    call_id: str
    tool: str
    status: CallStatus
    result_branch: int
    result: int | None
    result_part: int | None
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    latency_ms: int | None = None
    error_code: str | None = None
    error_message: str | None = None


class _OrphanResult(NamedTuple):
    """A result of a new message whose call is not in the new messages, and where and when it is."""

    result: ToolResultPart
    position: int
    part: int
    created_at: int


def _join_new_calls(
    branch: int, first: int, records: Sequence[messages.EncodedDraft]
) -> tuple[dict[CallPosition, WrittenCallRow], list[_OrphanResult]]:
    """Return the calls of new messages, joined to the results among them, and the results without such a call."""
    new_rows: dict[CallPosition, WrittenCallRow] = {}
    waiting: dict[str, list[CallPosition]] = {}
    orphans: list[_OrphanResult] = []
    for position, item in enumerate(records, first):
        for part, call in item.calls:
            call_position = (branch, position, part)
            new_rows[call_position] = pending_row(branch, call_position, call.call_id, call.tool, item.created_at)
            waiting.setdefault(call.call_id, []).append(call_position)
        for part, result in item.results:
            stack = waiting.get(result.call_id)
            if stack:
                set_result(new_rows[stack.pop()], result, position, part, item.created_at)
            else:
                orphans.append(_OrphanResult(result, position, part, item.created_at))
    return new_rows, orphans


def write_calls(branch: int, first: int, records: Sequence[messages.EncodedDraft]) -> Steps[None]:
    """Write the calls of new messages, and join their results to new or older calls."""
    new_rows, orphans = _join_new_calls(branch, first, records)
    older = None
    for lookups, (result, position, part, created) in enumerate(orphans):
        if lookups == _MAX_SINGLE_LOOKUPS:
            older = yield from _read_open_calls(branch, new_rows)
        if older is None:
            open_call = yield from find_open_call(branch, result.call_id, new_rows)
        else:
            open_call = _pop_call(older, escape_surrogates(result.call_id))
        if open_call is not None:  # an orphan result is stored unchanged; the history repairs it
            row = new_rows[open_call.position] = row_of_call(branch, open_call)
            set_result(row, result, position, part, created)
    yield from execute_many("tool_call_insert", list(map(astuple, new_rows.values())))


def new_call_rows(records: Sequence[messages.EncodedDraft]) -> Sequence[Row] | None:
    """Return the call rows of new messages, with positions from 1; None if a result belongs to an older call."""
    new_rows, orphans = _join_new_calls(0, 1, records)
    return None if orphans else list(map(astuple, new_rows.values()))


def pending_row(
    branch: int, call_position: CallPosition, call_id: str, tool: str, created: int, started: int | None = None
) -> WrittenCallRow:
    """Return the row of a call without a result."""
    call_branch, position, part = call_position
    return WrittenCallRow(
        call_branch, position, part, branch, escape_surrogates(call_id), escape_surrogates(tool), "pending", branch,
        None, None, created, started,
    )  # fmt: skip


def row_of_call(branch: int, call: PathToolCall) -> WrittenCallRow:
    """Return the row that this branch writes for a stored call."""
    return pending_row(branch, call.position, call.call_id, call.tool, call.created_at, call.started_at)


def set_result(row: WrittenCallRow, result: ToolResultPart, position: int, part: int, now: int) -> None:
    """Store in a row that a part of a message on its branch answers the call."""
    since = row.created_at if row.started_at is None else row.started_at
    row.status, row.result, row.result_part = result.status, position, part
    row.completed_at, row.latency_ms = now, _latency(result, now - since)
    row.error_code = None if result.error_code is None else escape_surrogates(result.error_code)
    row.error_message = None if result.error_message is None else escape_surrogates(result.error_message)


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
                _TOOL_CALLS_NEWEST, branch=span.branch, low=span.low, high=high, call_id=escape_surrogates(call_id)
            )
            if not rows:
                break
            for call in _calls_from_rows(span.branch, rows, ends):
                calls.append(call)
                if until(call):
                    return calls
            high = rows[0].position - 1
    return calls


def _calls_from_rows(branch: int, rows: list[NewestCallRow], ends: dict[int, int]) -> list[PathToolCall]:
    """Return one call per part from its rows on a path; `ends` has the branches nearest to the end first."""
    order = {key: depth for depth, key in enumerate(ends)}
    calls: dict[int, PathToolCall] = {}
    rows_on_path = (row for row in rows if row.answer_branch in order)
    for row in sorted(rows_on_path, key=lambda row: (-row.part, order[row.answer_branch])):
        if row.part not in calls:
            result: CallPosition | None = None
            if row.result and row.result_part is not None and row.result <= ends[row.answer_branch]:
                result = row.answer_branch, row.result, row.result_part
            calls[row.part] = PathToolCall(
                (branch, row.position, row.part), row.call_id, row.tool, row.created_at, row.started_at, result
            )
    return list(calls.values())


def find_open_call(branch: int, call_id: str, excluding: Collection[CallPosition] = ()) -> Steps[PathToolCall | None]:
    """Find the newest call with an id that has no result on the path, other than those in `excluding`."""

    def is_open(call: PathToolCall) -> bool:
        return call.result is None and call.position not in excluding

    calls = yield from find_calls(branch, call_id, until=is_open)
    return calls[-1] if calls and is_open(calls[-1]) else None


def find_call_message(scope: Scope, span: PathSpan, call_id: str) -> Steps[Message | None]:
    """Return the newest message of a span with a call of this id, without deleted messages; None if there is none."""
    high = span.high
    while high > span.low:
        rows = yield from fetch_all(
            _TOOL_CALLS_NEWEST, branch=span.branch, low=span.low, high=high, call_id=escape_surrogates(call_id)
        )
        if not rows:
            break
        message = yield from messages.read_at(scope, span.branch, span.number, rows[0].position)
        if message is not None and message.deleted_at_ms is None and has_call(message, call_id):
            return message
        high = rows[0].position - 1
    return None


def has_call(message: Message, call_id: str) -> bool:
    """Return whether a message has a call of this id."""
    return any(type(part) is ToolCallPart and part.call_id == call_id for part in message.parts)


def _read_open_calls(branch: int, excluding: Collection[CallPosition]) -> Steps[dict[str, list[PathToolCall]]]:
    """Read the calls that have no result on the path, other than those in `excluding`: by id, the newest last."""
    positions: set[CallPosition] = set(excluding)
    calls: dict[str, list[PathToolCall]] = {}
    for row in (yield from fetch_all(_TOOL_CALLS_OF_PATH, branch=branch)):
        call_position = row.branch, row.position, row.part
        if call_position not in positions and row.result is None:
            calls.setdefault(row.call_id, []).append(
                PathToolCall(call_position, row.call_id, row.tool, row.created_at, row.started_at, None)
            )
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
    for row in (yield from fetch_all(_TOOL_CALLS_OF_PATH, branch=branch)):
        calls.setdefault((row.branch, row.position, row.part), _tool_call_from_row(row))
    return list(calls.values())


def _tool_call_from_row(row: PathCallRow) -> ToolCall:
    message = f"{row.number}.{row.position}"
    if row.result is None and row.result_part is not None:  # only answered on another path
        return ToolCall(
            message=message,
            part=row.part,
            call_id=row.call_id,
            tool=row.tool,
            status="pending",
            created_at_ms=row.created_at,
        )
    return ToolCall(
        message=message,
        part=row.part,
        call_id=row.call_id,
        tool=row.tool,
        status=row.status,
        result_message=None if row.result is None else f"{row.answer_number}.{row.result}",
        result_part=row.result_part,
        error_code=row.error_code,
        error_message=row.error_message,
        created_at_ms=row.created_at,
        started_at_ms=row.started_at,
        completed_at_ms=row.completed_at,
        latency_ms=row.latency_ms,
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
    row = row_of_call(current.head, call)
    row.status, row.started_at = "running", call.started_at or scope.now
    yield from execute_many("tool_call_insert", [astuple(row)])
    yield from leases.raise_revision(scope, current.session)
    return (yield from sessions.find(scope, session)).value


def missing_call_error(session: str, branch: int, call_id: str) -> Steps[Exception]:
    """Return the error for a missing open call: it has a result, or it does not exist."""
    calls = yield from find_calls(branch, call_id, until=lambda _: True)
    return (ToolCallAnswered if calls else ToolCallNotFound)(session=session, call_id=call_id)
