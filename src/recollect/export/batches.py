"""The records of a group as batches of rows: one branch each, and no larger than a transaction should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recollect.export import records, stored
from recollect.export.group import Group
from recollect.export.lines import unanswered
from recollect.op import Row
from recollect.ops import comparison
from recollect.ops.transfer import PAGE_BYTES, PAGE_ROWS, PARTS, blobs_of

Wants = Callable[[int, int], bool]
Size = Callable[[str], int]


class Gathered:
    """What was gathered of one branch."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 0
        self.messages: list[Row] = []
        self.turns: list[dict[str, Any]] = []
        self.calls: list[Row] = []
        self.compactions: list[dict[str, Any]] = []
        self.inside: dict[str, bytes] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return not (self.messages or self.turns or self.calls or self.compactions)

    @property
    def full(self) -> bool:
        """Whether it is as large as it should be."""
        return len(self.messages) >= PAGE_ROWS or self.size >= PAGE_BYTES

    def batch(self, key: int, session: int | None, payloads: Mapping[str, bytes], *, renew: bool) -> comparison.Batch:
        """Give it as an operation takes it."""
        return comparison.Batch(
            key, self.number, session, renew, self.messages, self.turns, self.calls, self.compactions, payloads
        )


def gathered(group: Group, keys: Mapping[int, int], wants: Wants, size: Size = lambda _: 0) -> Iterator[Gathered]:
    """Go through the records of a group that are wanted; `keys` has the branches of the store by number."""
    found = Gathered(0)
    for entry in group.entries():
        record = entry.record
        if isinstance(record, records.SnapshotRecord):
            continue
        number, position = place(record)
        if not wants(number, position):
            continue
        if number != found.number or found.full:
            if not found.empty:
                yield found
            found = Gathered(number)
        _take(found, record, group, keys, size)
    if not found.empty:
        yield found


def _take(found: Gathered, record: Any, group: Group, keys: Mapping[int, int], size: Size) -> None:
    if isinstance(record, records.MessageRecord):
        _, row, inside = stored.message_row(record)
        found.messages.append(row)
        found.inside.update(inside)
        found.size += len(row[PARTS]) + sum(map(size, blobs_of(row)))
    elif isinstance(record, records.TurnRecord):
        found.turns.append(stored.turn_columns(record)[1])
    elif isinstance(record, records.CompactionRecord):
        found.compactions.append(stored.compaction_columns(record))
    elif record.branch in keys:
        row = stored.call_row(record, keys[record.branch])
        lost = record.result is not None and not group.has(record.branch, record.result)
        found.calls.append(unanswered(row) if lost else row)


def snapshots(group: Group, session: str, keys: Mapping[int, int]) -> list[dict[str, Any]]:
    """Give the snapshots of a session."""
    found: list[dict[str, Any]] = []
    for entry in group.entries():
        record = entry.record
        if isinstance(record, records.SnapshotRecord) and record.session == session:
            number = records.place(record.message, 0)[0]
            if number in keys:
                found.append(stored.snapshot_columns(record, keys[number]))
    return found


def place(record: Any) -> tuple[int, int]:
    """Say of which place a record speaks."""
    if isinstance(record, records.MessageRecord | records.TurnRecord):
        return records.place(record.id)
    if isinstance(record, records.CompactionRecord):
        return record.branch, record.to_position
    return records.place(record.message, 0 if isinstance(record, records.SnapshotRecord) else 1)
