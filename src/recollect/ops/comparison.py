"""What a file brings, compared with what is there: what is new, what has come further, and what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recollect.model import json
from recollect.op import Op, Row, Steps, one, rows
from recollect.ops.transfer import BLOBS, CREATED, DELETED, ERROR, METADATA, NATIVE, PARTS, POSITION, ROLE, STATE

# How far something has come. What has come to its end is not changed any more.
_STATES = {"pending": 0, "streaming": 0, "interrupted": 1, None: 2, "error": 2}
_TURNS = {"open": 0, "interrupted": 1, "completed": 2, "failed": 2, "cancelled": 2}
_CALLS = {"pending": 0, "running": 1, "success": 3, "error": 3, "canceled": 3}
_GIVEN_UP = 2
_ENDED = 2
_JSON = (ERROR, METADATA, NATIVE, BLOBS, PARTS)
COMPACTION = ("from_position", "to_position", "round", "created_at")
"""What tells one compaction of a branch from another."""


class Batch(NamedTuple):
    """What to write on one branch: rows in the order of their positions, and the payloads that they refer to."""

    branch: int
    number: int
    session: int | None
    renew: bool
    """Whether marks of deletion take the place of those that are there."""
    messages: Sequence[Row]
    turns: Sequence[dict[str, Any]]
    calls: Sequence[Row]
    compactions: Sequence[dict[str, Any]]
    payloads: Mapping[str, bytes]


class Difference(NamedTuple):
    """What a file says of a branch that the store does not."""

    adds: bool
    differs: int | None
    """The position of the first message that is another one."""


def compare(batch: Batch) -> Op[Difference]:
    """Compare what a file has of a branch with what the store has of it."""
    return Op(_compare, batch, writes=False)


def _compare(batch: Batch) -> Steps[Difference]:
    present = yield from stored_rows(batch.branch, batch.messages)
    adds = False
    for row in batch.messages:
        stored = present.get(row[POSITION])
        state = "new" if stored is None else against(stored, row, batch.renew)
        if state == "differs":
            return Difference(adds, row[POSITION])
        adds = adds or state in ("new", "further")
    for turn in batch.turns:
        adds = adds or (yield from goes_on(batch, turn))
    adds = adds or bool((yield from new_calls(batch)))
    for compaction in batch.compactions:
        adds = adds or (yield from same_compaction(batch.branch, compaction)) is None
    return Difference(adds, None)


def stored_rows(branch: int, given: Sequence[Row]) -> Steps[dict[int, Row]]:
    """Read what is there in the stretch of these rows, by position."""
    if not given:
        return {}
    low, high = given[0][POSITION] - 1, given[-1][POSITION]
    found = yield from rows("messages_rows", branch=branch, low=low, high=high, deleted=True)
    return {row[POSITION]: row for row in found}


def against(stored: Row, given: Row, renew: bool) -> str:
    """Say how a message stands to the one that is stored: same, further, behind, or another one (differs)."""
    if _alike(stored, given):
        return "same"
    before, after = _STATES[stored[STATE]], _STATES[given[STATE]]
    if stored[ROLE] != given[ROLE] or stored[CREATED] != given[CREATED] or min(before, after) == _ENDED:
        return "differs"
    return "further" if before < after or (before == after and renew) else "behind"


def _alike(stored: Row, given: Row) -> bool:
    for index, (one_, other) in enumerate(zip(stored, given, strict=True)):
        if one_ == other or index == DELETED:
            continue
        if index not in _JSON or one_ is None or other is None or json.decode(one_) != json.decode(other):
            return False
    return True


def goes_on(batch: Batch, turn: dict[str, Any]) -> Steps[bool]:
    """Whether a turn is new, or has come further than the one that is there."""
    stored = yield from one("turn_get", branch=batch.branch, position=turn["position"])
    return stored is None or _TURNS[stored[1]] < _TURNS[turn["status"]]


def new_calls(batch: Batch) -> Steps[list[Row]]:
    """Find the calls that are new or have come further; rows as those of tool_calls_of_span."""
    if not batch.calls:
        return []
    positions = [row[0] for row in batch.calls]
    found = yield from rows("tool_calls_of_span", branch=batch.branch, low=min(positions) - 1, high=max(positions))
    present = {row[:3]: _come(row) for row in found}
    return [row for row in batch.calls if present.get(row[:3], -1) < _come(row)]


def _come(call: Row) -> int:
    """Say how far a call has come. One whose turn was given up may still be given a result."""
    return _GIVEN_UP if call[5] == "canceled" and call[6] is None else _CALLS[call[5]]


def same_compaction(branch: int, compaction: dict[str, Any]) -> Steps[Row | None]:
    """Find the same compaction among those that are there."""
    found = yield from rows("compactions_outline", branch=branch, high=compaction["to_position"])
    told = tuple(compaction[name] for name in COMPACTION)
    return next((row for row in found if (row[0], row[1], row[2], row[6]) == told), None)


def lacks_snapshots(session: int, found: Sequence[dict[str, Any]]) -> Op[bool]:
    """Say whether some of these snapshots are not there."""
    return Op(_lacks_snapshots, session, found, writes=False)


def _lacks_snapshots(session: int, found: Sequence[dict[str, Any]]) -> Steps[bool]:
    return bool((yield from new_snapshots(session, found)))


def new_snapshots(session: int, found: Sequence[dict[str, Any]]) -> Steps[list[dict[str, Any]]]:
    """Find the snapshots that are not there."""
    present = {(row[0], row[2], row[3], row[5]) for row in (yield from rows("snapshots_outline", session=session))}
    names = ("kind", "branch", "position", "created_at")
    return [snapshot for snapshot in found if tuple(snapshot[name] for name in names) not in present]
