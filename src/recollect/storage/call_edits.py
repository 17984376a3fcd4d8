"""The tool calls of an edited message: their rows are matched with the new parts by call id.

A call or a result of the new parts continues the one with the same id, also if that was another part. A call that lost
its result is open again, in each fork that shares both. The results of other messages stay, also if their call is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import astuple

from recollect.model.json import escape_surrogates
from recollect.model.message import ToolCallPart, ToolResultPart
from recollect.storage import tools
from recollect.storage.messages import MessageParts
from recollect.storage.operation import Query, Steps, execute, execute_many, fetch_all
from recollect.storage.paths import read_path
from recollect.storage.row_stream import TOOL_CALLS_OF_SPAN, FullCallRow
from recollect.storage.tools import CallPosition, PathToolCall, WrittenCallRow

P = TypeVar("P", ToolCallPart, ToolResultPart)


_TOOL_CALLS_ANSWERED = Query("tool_calls_answered", FullCallRow)


class CallRewrite(NamedTuple):
    """The rows of tool calls after the parts of a message were replaced.

    `renamed_results` are the other messages with a result whose call has another tool name now, or is gone.
    """

    rows: list[WrittenCallRow]
    renamed_results: list[tuple[int, int]]


def plan_rewrite(branch: int, position: int, before: MessageParts, after: MessageParts, now: int) -> Steps[CallRewrite]:
    """Return the rows of tool calls for the new parts of a message. `now` is the time of new calls and results."""
    rewrite = _Rewrite(branch, position, before, after)
    for row in (yield from fetch_all(TOOL_CALLS_OF_SPAN, branch=branch, low=position - 1, high=position)):
        rewrite.add_own_call(row)
    for call_branch, row in (yield from _read_answered(branch, position, len(_parts_of(before, ToolResultPart)))):
        rewrite.add_answered_call(call_branch, row)
    rewrite.add_new_calls(now)
    for part, result in rewrite.unjoined_results():
        row = rewrite.find_own_open_call(result.call_id)
        if row is None:
            open_call = yield from _find_open_call_before(branch, position, result.call_id, rewrite.positions())
            if open_call is None:
                continue  # an orphan result, as in tools.write_calls()
            row = tools.row_of_call(branch, open_call)
            rewrite.rows.append(row)
        tools.set_result(row, result, position, part, now)
    return CallRewrite(rewrite.rows, rewrite.renamed_results)


def write_rewrite(branch: int, position: int, rewrite: CallRewrite) -> Steps[None]:
    """Write the rows of tool calls of a message whose parts were replaced."""
    yield from execute("tool_calls_delete", branch=branch, position=position)
    yield from execute_many("tool_call_insert", list(map(astuple, rewrite.rows)))


def _parts_of(parts: MessageParts, kind: type[P]) -> list[tuple[int, P]]:
    return [(index, part) for index, part in enumerate(parts) if isinstance(part, kind)]


def _read_answered(branch: int, position: int, count: int) -> Steps[list[tuple[int, FullCallRow]]]:
    """Return the calls of other messages that a message answers with its `count` results, with their branch."""
    calls: list[tuple[int, FullCallRow]] = []
    for span in (yield from read_path(branch)):
        high = min(span.high, position - 1)
        if len(calls) < count and span.low < high:
            rows = yield from fetch_all(
                _TOOL_CALLS_ANSWERED, call_branch=span.branch, low=span.low, high=high, branch=branch,
                position=position, limit=count - len(calls),
            )  # fmt: skip
            calls += [(span.branch, row) for row in rows]
    return calls


def _find_open_call_before(
    branch: int, position: int, call_id: str, excluding: Collection[CallPosition]
) -> Steps[PathToolCall | None]:
    """Find the newest call with an id before a message of a branch that has no result on the path."""

    def is_open(call: PathToolCall) -> bool:
        call_branch, call_position, _ = call.position
        precedes = call_branch != branch or call_position < position
        return precedes and call.result is None and call.position not in excluding

    calls = yield from tools.find_calls(branch, call_id, until=is_open)
    return calls[-1] if calls and is_open(calls[-1]) else None


def _match_ids(before: Sequence[tuple[int, str]], after: Sequence[tuple[int, str]]) -> dict[int, int]:
    """Return the new part of each old part that continues under the same id; equal ids match in their order."""
    waiting: dict[str, list[int]] = {}
    for part, id in reversed(after):
        waiting.setdefault(id, []).append(part)
    return {part: waiting[id].pop() for part, id in before if waiting.get(id)}


class _Rewrite:
    """Collects the rows of tool calls for the new parts of a message."""

    def __init__(self, branch: int, position: int, before: MessageParts, after: MessageParts) -> None:
        self.branch = branch
        self.position = position
        self.calls = dict(_parts_of(after, ToolCallPart))
        self.results = dict(_parts_of(after, ToolResultPart))
        self.rows: list[WrittenCallRow] = []
        self.renamed_results: list[tuple[int, int]] = []
        self._joined_results: set[int] = set()
        self._call_parts = _match_ids(
            [(part, item.call_id) for part, item in _parts_of(before, ToolCallPart)],
            [(part, item.call_id) for part, item in self.calls.items()],
        )
        self._result_parts = _match_ids(
            [(part, item.call_id) for part, item in _parts_of(before, ToolResultPart)],
            [(part, item.call_id) for part, item in self.results.items()],
        )

    def add_own_call(self, old_row: FullCallRow) -> None:
        """Add the row of a call of the message, if the new parts have it."""
        part = self._call_parts.get(old_row.part)
        tool = None if part is None else escape_surrogates(self.calls[part].tool)
        answers_itself = (old_row.branch, old_row.result) == (self.branch, self.position)
        if old_row.result is not None and not answers_itself and tool != old_row.tool:
            self.renamed_results.append((old_row.branch, old_row.result))
        if part is not None and tool is not None:
            row = _row_from_stored(self.branch, old_row)
            row.part, row.tool = part, tool
            if answers_itself:
                self._move_result(row)
            self.rows.append(row)

    def add_answered_call(self, call_branch: int, old_row: FullCallRow) -> None:
        """Add the row of a call of another message that the message answered."""
        row = _row_from_stored(call_branch, old_row)
        self._move_result(row)
        self.rows.append(row)

    def add_new_calls(self, now: int) -> None:
        """Add rows for the calls that continue none."""
        for part, call in self.calls.items():
            if part not in self._call_parts.values():
                place = (self.branch, self.position, part)
                self.rows.append(tools.pending_row(self.branch, place, call.call_id, call.tool, now))

    def unjoined_results(self) -> list[tuple[int, ToolResultPart]]:
        """Return the results that no call has yet."""
        return [(part, result) for part, result in self.results.items() if part not in self._joined_results]

    def find_own_open_call(self, call_id: str) -> WrittenCallRow | None:
        """Return the newest call of the message itself with this id that has no result."""
        id = escape_surrogates(call_id)
        own = [row for row in self.rows if (row.call_branch, row.position) == (self.branch, self.position)]
        return next(
            (row for row in reversed(own) if row.call_id == id and row.branch == self.branch and row.result is None),
            None,
        )

    def positions(self) -> set[CallPosition]:
        """Return the positions of the calls that have a row."""
        return {(row.call_branch, row.position, row.part) for row in self.rows}

    def _move_result(self, row: WrittenCallRow) -> None:
        """Set the new part of the result of a call, or open the call again."""
        part = None if row.result_part is None else self._result_parts.get(row.result_part)
        if part is None:
            row.status = "pending" if row.started_at is None else "running"
            row.result = row.result_part = row.completed_at = row.latency_ms = None
            row.error_code = row.error_message = None
            return
        result, completed_at, latency = self.results[part], row.completed_at, row.latency_ms
        tools.set_result(row, result, self.position, part, row.created_at)
        row.completed_at = completed_at
        if "latency_ms" not in (result.metadata or {}):
            row.latency_ms = latency
        self._joined_results.add(part)


def _row_from_stored(call_branch: int, row: FullCallRow) -> WrittenCallRow:
    """Return a stored row as it is written."""
    return WrittenCallRow(
        call_branch, row.position, row.part, row.branch, row.call_id, row.tool, row.status, row.branch, row.result,
        row.result_part, row.created_at, row.started_at, row.completed_at, row.latency_ms, row.error_code,
        row.error_message,
    )  # fmt: skip
