"""The plan of an import: for each session of a file, whether it is new, extends a stored session, or conflicts with it.

A group holds the sessions of a file that share branches. Each stored session is compared with the file, message by
message: the file may hold the same messages, fewer, or more after the last stored one. Anything else is a conflict.
Nothing is written here.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, SessionExists, format_value
from recollect.export import records
from recollect.export.import_reader import Spool
from recollect.export.import_report import Refused
from recollect.export.jsonl import call_row_without_result
from recollect.export.pipeline import Pipeline, execute
from recollect.model import session_ids
from recollect.storage import transfer
from recollect.storage.operation import Scope
from recollect.storage.row_stream import (
    PAGE_BYTES,
    PAGE_ROWS,
    FullCallRow,
    FullCompactionRow,
    FullMessageRow,
    FullRecordRow,
    FullSnapshotRow,
    FullVersionRow,
    TurnRow,
)


class ImportedSession:
    """A session of the file: its record, its columns, and the numbers of its own branches."""

    def __init__(self, record: records.SessionRecord, line: int, columns: dict[str, Any]) -> None:
        self.record = record
        self.line = line
        self.own_branches: list[int] = []
        self._columns = columns

    @property
    def id(self) -> str:
        """The id of the session in the file."""
        return self.record.id

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the session row.

        Revision 0 if the file lacks the head branch, so that a complete export replaces them.
        """
        return self._columns if self.record.branch in self.own_branches else {**self._columns, "revision": 0}

    @property
    def head(self) -> int:
        """The number of the head branch; the newest branch if the file lacks the head."""
        return self.record.branch if self.record.branch in self.own_branches else max(self.own_branches)


class ImportedBranch:
    """A branch of the file, and the last position that the file has of it."""

    def __init__(self, record: records.BranchRecord) -> None:
        self.number = record.id
        self.parent = record.parent
        self.fork_at = record.fork_at
        self.session = None if record.shared else record.session
        self.created_at: int = records.parse_time(record.created_at)
        self.last = record.fork_at
        self.gaps: list[tuple[int, int]] = []

    def extend_to(self, position: int) -> None:
        """Record the next message, and the gap before it if positions are missing."""
        if position > self.last + 1:
            self.gaps.append((self.last, position))
        self.last = position

    def has(self, position: int) -> bool:
        """Return whether the file has the message at a position of this branch."""
        if not self.fork_at < position <= self.last:
            return False
        index = bisect.bisect_right(self.gaps, (position, 0)) - 1
        return index < 0 or not self.gaps[index][0] < position < self.gaps[index][1]


class GroupEntry(NamedTuple):
    """A record of a group, and its line in the file."""

    line: int
    record: Any


class SessionGroup:
    """The sessions and branches of one tree.

    Its methods raise InvalidValue for a record that contradicts an earlier one.
    """

    def __init__(self, tree: int) -> None:
        self.tree = tree
        self.sessions: dict[str, ImportedSession] = {}
        self.branches: dict[int, ImportedBranch] = {}
        self.spool = Spool()
        self._keys: dict[str, list[tuple[int, int]]] = {}
        self._last_message = (0, 0)
        self.unresolved_branches: list[tuple[int, int]] = []
        """Lines that refer to a branch that is not read yet: the branches of a fork follow those of its origin."""

    def add_session(self, record: records.SessionRecord, line: int, latest: int) -> None:
        """Add a session. Activity times after `latest` (milliseconds) are reduced to it."""
        if record.id in self.sessions:
            raise InvalidValue(f"Session {format_value(record.id)} occurs twice.")
        self.sessions[record.id] = ImportedSession(record, line, records.session_columns(record, latest))

    def add_branch(self, record: records.BranchRecord) -> None:
        """Add a branch. Its parent must come before it."""
        parent = None if record.parent is None else self.branches.get(record.parent)
        if record.id in self.branches:
            raise InvalidValue(f"Branch {record.id} occurs twice.")
        if record.parent is not None and (parent is None or record.parent >= record.id):
            raise InvalidValue(f"Branch {record.id} forks from branch {record.parent}, which must come before it.")
        if record.fork_at and (parent is None or record.fork_at < parent.fork_at):
            raise InvalidValue(f"Branch {record.id} forks from its parent at a position that the parent does not have.")
        self.branches[record.id] = ImportedBranch(record)
        if not record.shared:
            self.sessions[record.session].own_branches.append(record.id)

    def add_message(self, name: str, key: str | None = None) -> None:
        """Record a message. Its branch must exist, and positions must increase.

        `key` is its key, unless it is deleted; another message of the path must not have it.
        """
        number, position = records.parse_message_id(name)
        self.check_branch(number)
        branch = self.branches[number]
        if position <= branch.fork_at:
            raise InvalidValue(f"Branch {number} begins after position {branch.fork_at}, got position {position}.")
        if position <= branch.last:
            raise InvalidValue(f"Message {name} occurs twice or out of order.")
        if key is not None:
            self._add_key(name, number, position, key)
        branch.extend_to(position)
        self._last_message = number, position

    def add_version(self, name: str) -> None:
        """Raise InvalidValue unless an earlier version follows its message."""
        if records.parse_message_id(name) != self._last_message:
            raise InvalidValue(f"A version of message {name} must follow that message.")

    def _add_key(self, name: str, number: int, position: int, key: str) -> None:
        holders = self._keys.setdefault(key, [])
        for other_number, other_position in holders:
            if self._path_contains(number, other_number, other_position) or self._path_contains(
                other_number, number, position
            ):
                raise InvalidValue(
                    f"Message {name} has the key of message {other_number}.{other_position} on the same path."
                )
        holders.append((number, position))

    def _path_contains(self, branch: int, number: int, position: int) -> bool:
        """Return whether the path that ends with a branch contains a position of another one."""
        limit: int | None = None
        current: int | None = branch
        while current is not None and current != number:
            current, limit = self.branches[current].parent, self.branches[current].fork_at
        return current is not None and (limit is None or position <= limit)

    def has(self, number: int, position: int) -> bool:
        """Return whether the file has a message."""
        return number in self.branches and self.branches[number].has(position)

    def check_message(self, name: str) -> None:
        """Raise InvalidValue if a message is not in the file."""
        if not self.has(*records.parse_message_id(name)):
            raise InvalidValue(f"Message {name} does not come before this record.")

    def check_branch(self, number: int) -> None:
        """Raise InvalidValue if a branch is not in the file."""
        if number not in self.branches:
            raise InvalidValue(f"Branch {number} is not in the file.")

    def entries(self) -> Iterator[GroupEntry]:
        """Yield the spooled records, in the order of the file."""
        for piece in self.spool:
            yield GroupEntry(piece.line, records.decode(piece.text))

    def digest(self, session: str) -> str:
        """Return a hash of the file's content of a session.

        A second import recognizes the session of the first one by it.
        """
        hasher = hashlib.sha256(records.encode(self.sessions[session].record))
        limits = self.branch_limits(session)
        for entry in self.entries():
            if (
                isinstance(entry.record, records.MessageRecord)
                and records.parse_message_id(entry.record.id)[0] in limits
            ):
                hasher.update(repr(entry.record).encode())
        return hasher.hexdigest()

    def branch_limits(self, session: str) -> dict[int, int | None]:
        """Return the branches that a session needs, with the last needed position of each.

        None means the whole branch.
        """
        limits: dict[int, int | None] = {}
        own = set(self.sessions[session].own_branches)
        for number in sorted(self.branches, reverse=True):  # children before their parents
            branch = self.branches[number]
            if number in own:
                limits[number] = None
            if number in limits and branch.parent is not None:
                limit = limits.get(branch.parent, 0)
                limits[branch.parent] = None if limit is None else max(limit, branch.fork_at)
        return dict(sorted(limits.items()))

    def incoming_branch(self, number: int, session: str | None) -> transfer.IncomingBranch:
        """Return a branch in the form that transfer.begin_import() takes."""
        branch = self.branches[number]
        return transfer.IncomingBranch(number, branch.parent, branch.fork_at, session, branch.created_at)

    def close(self) -> None:
        """Delete the spooled records."""
        self.spool.close()


PositionFilter = Callable[[int, int], bool]
PayloadSize = Callable[[str], int]


class BranchBatch:
    """Records of one branch that are written together."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 0
        self.messages: list[FullMessageRow] = []
        self.turns: list[TurnRow] = []
        self.calls: list[FullCallRow] = []
        self.compactions: list[FullCompactionRow] = []
        self.versions: list[FullVersionRow] = []
        self.payloads: dict[str, bytes] = {}

    @property
    def empty(self) -> bool:
        """True if the batch has no records."""
        return not (self.messages or self.turns or self.calls or self.compactions or self.versions)

    @property
    def full(self) -> bool:
        """True if the batch has reached its size."""
        return len(self.messages) >= PAGE_ROWS or self.size >= PAGE_BYTES

    def to_row_batch(
        self, key: int, session: int | None, payloads: Mapping[str, bytes], *, renew: bool
    ) -> transfer.RowBatch:
        """Return the batch in the form that transfer.add_batch() takes."""
        return transfer.RowBatch(
            key, self.number, session, renew, self.messages, self.turns, self.calls, self.compactions, payloads,
            self.versions,
        )  # fmt: skip


def iter_batches(
    group: SessionGroup, keys: Mapping[int, int], includes: PositionFilter, size: PayloadSize = lambda _: 0
) -> Iterator[BranchBatch]:
    """Yield the included records of a group in batches.

    `keys` maps branch numbers of the file to branch keys of the store.
    """
    batch = BranchBatch(0)
    for entry in group.entries():
        record = entry.record
        if isinstance(record, records.SnapshotRecord | records.KeyedRecord):
            continue
        number, position = record_position(record)
        if not includes(number, position):
            continue
        # The versions of a message are written with it.
        if number != batch.number or (batch.full and not isinstance(record, records.VersionRecord)):
            if not batch.empty:
                yield batch
            batch = BranchBatch(number)
        _add_record(batch, record, group, keys, size)
    if not batch.empty:
        yield batch


def _add_record(
    batch: BranchBatch, record: Any, group: SessionGroup, keys: Mapping[int, int], size: PayloadSize
) -> None:
    if isinstance(record, records.MessageRecord):
        _, row, inline_payloads = records.message_row(record)
        batch.messages.append(row)
        batch.payloads.update(inline_payloads)
        batch.size += len(row.parts) + sum(map(size, row.blob_names))
    elif isinstance(record, records.VersionRecord):
        _, version, inline_payloads = records.version_row(record)
        batch.versions.append(version)
        batch.payloads.update(inline_payloads)
        batch.size += len(version.parts) + sum(map(size, version.blob_names))
    elif isinstance(record, records.TurnRecord):
        batch.turns.append(records.turn_row(record)[1])
    elif isinstance(record, records.CompactionRecord):
        batch.compactions.append(records.compaction_row(record))
    elif record.branch in keys:
        row = records.call_row(record, keys[record.branch])
        result_missing = record.result is not None and not group.has(record.branch, record.result)
        batch.calls.append(call_row_without_result(row) if result_missing else row)


def session_snapshots(group: SessionGroup, session: str, keys: Mapping[int, int]) -> list[FullSnapshotRow]:
    """Return the rows of a session's snapshots."""
    rows: list[FullSnapshotRow] = []
    for entry in group.entries():
        record = entry.record
        if isinstance(record, records.SnapshotRecord) and record.session == session:
            number = records.parse_message_id(record.message, 0)[0]
            if number in keys:
                rows.append(records.snapshot_row(record, keys[number]))
    return rows


def iter_keyed_rows(group: SessionGroup, session: str) -> Iterator[list[FullRecordRow]]:
    """Yield the rows of a session's keyed records in batches."""
    batch: list[FullRecordRow] = []
    size = 0
    for entry in group.entries():
        record = entry.record
        if isinstance(record, records.KeyedRecord) and record.session == session:
            row = records.keyed_row(record)
            batch.append(row)
            size += len(row.value or "") + len(row.data or b"")
            if len(batch) >= PAGE_ROWS or size >= PAGE_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def record_position(record: Any) -> tuple[int, int]:
    """Return the branch number and the position that a record refers to."""
    if isinstance(record, records.MessageRecord | records.TurnRecord):
        return records.parse_message_id(record.id)
    if isinstance(record, records.CompactionRecord):
        return record.branch, record.to_position
    return records.parse_message_id(record.message, 0 if isinstance(record, records.SnapshotRecord) else 1)


_MAX_ID_PREFIX = 1_000  # bytes. With a dash and 8 digits, the new id stays below the limit of 1,024.


class ImportTarget(NamedTuple):
    """The stored session that a session of the file is written to."""

    id: str
    key: int | None
    mode: transfer.ImportMode


class Placement:
    """A tree of the store, or a new one, and the sessions and branches of the file that are written to it."""

    def __init__(self, tree: int | None, last_positions: Mapping[int, int] | None = None) -> None:
        self.tree = tree
        self.last_positions = last_positions or {}
        self.targets: dict[str, ImportTarget] = {}
        self.paths: set[int] = set()
        self.limits: dict[int, int | None] = {}

    def place(self, group: SessionGroup, session: str, target: ImportTarget) -> None:
        """Assign a session, with the branches that it needs."""
        self.targets[session] = target
        for number, limit in group.branch_limits(session).items():
            self.paths.add(number)
            if target.mode not in ("records", "keep"):
                current = self.limits.get(number, 0)
                self.limits[number] = None if current is None or limit is None else max(current, limit)

    @property
    def writes(self) -> bool:
        """True if anything is written."""
        return any(target.mode != "keep" for target in self.targets.values())

    def stored_id(self, session: str | None) -> str | None:
        """Return the id that a session of the file has in the store."""
        target = None if session is None else self.targets.get(session)
        return session if target is None else target.id

    def count(self, group: SessionGroup) -> int:
        """Return the number of messages of a group that the store does not have yet."""
        positions = (
            records.parse_message_id(entry.record.id) for entry in group.entries() if _is_message(entry.record)
        )
        return sum(
            self.includes(*position) and position[1] > self.last_positions.get(position[0], 0) for position in positions
        )

    def includes(self, number: int, position: int) -> bool:
        """Return whether the message at a position of the file is written here."""
        if number not in self.limits:
            return False
        limit = self.limits[number]
        return limit is None or position <= limit


def _is_message(record: object) -> bool:
    return isinstance(record, records.MessageRecord)


class ImportPlan(NamedTuple):
    """The placements of the sessions of a group, and the conflicts."""

    placements: list[Placement]
    conflicts: list[Refused]


class _SessionComparison(NamedTuple):
    mode: transfer.ImportMode
    conflict: str | None = None


def plan_import(scope: Scope, group: SessionGroup, on_conflict: str) -> Pipeline[ImportPlan]:
    """Decide for each session of a group where it is written."""
    return (yield from _Planner(scope, group, on_conflict).run())


class _Planner:
    def __init__(self, scope: Scope, group: SessionGroup, on_conflict: str) -> None:
        self.scope = scope
        self.group = group
        self.on_conflict = on_conflict
        self.placement_of_session: dict[str, Placement] = {}
        self.placement_of_tree: dict[int, Placement] = {}
        self.new_tree: Placement | None = None
        self.conflicts: list[Refused] = []

    def run(self) -> Pipeline[ImportPlan]:
        existing: dict[str, transfer.ExistingSession] = yield from execute(
            transfer.find_existing(self.scope, list(self.group.sessions))
        )
        for id, session in self.group.sessions.items():
            if id not in existing:
                self._place_new(session)
                continue
            comparison = yield from _compare_session(self.scope, self.group, session, existing[id])
            if comparison.conflict is None:
                self._place_existing(session, existing[id], id, comparison.mode)
            else:
                yield from self._resolve_conflict(session, comparison.conflict)
        placements = [*self.placement_of_tree.values(), *([] if self.new_tree is None else [self.new_tree])]
        return ImportPlan(placements, self.conflicts)

    def _place_existing(
        self, session: ImportedSession, existing: transfer.ExistingSession, id: str, mode: transfer.ImportMode
    ) -> None:
        last_positions = {number: branch.last for number, branch in existing.branches.items()}
        placement = self.placement_of_tree.setdefault(existing.tree, Placement(existing.tree, last_positions))
        placement.place(self.group, session.id, ImportTarget(id, existing.key, mode))
        self.placement_of_session[session.id] = placement

    def _place_new(self, session: ImportedSession, id: str | None = None) -> None:
        """Place a session in the tree of its origin if its branch numbers are free there, otherwise in a new tree."""
        placement = self._parent_placement(session)
        if placement is None:
            self.new_tree = self.new_tree or Placement(None)
            placement = self.new_tree
        placement.place(self.group, session.id, ImportTarget(id or session.id, None, "new"))
        self.placement_of_session[session.id] = placement

    def _parent_placement(self, session: ImportedSession) -> Placement | None:
        parent = self.group.branches[min(session.own_branches)].parent
        owner = None if parent is None else self.group.branches[parent].session
        placement = None if owner is None else self.placement_of_session.get(owner)
        return (
            None
            if placement is None or any(number in placement.last_positions for number in session.own_branches)
            else placement
        )

    def _resolve_conflict(self, session: ImportedSession, reason: str) -> Pipeline[None]:
        if self.on_conflict == "error":
            raise SessionExists(
                f"Session {format_value(session.id)} in the file differs from the stored one: {reason} Import it under "
                'a new id with on_conflict="new", or skip it with on_conflict="skip".',
                session=session.id,
            )
        if self.on_conflict == "skip":
            self.conflicts.append(Refused(session.id, reason))
            return
        yield from self._place_renamed(session, reason)

    def _place_renamed(self, session: ImportedSession, reason: str) -> Pipeline[None]:
        """Import a session under a new id.

        The id is a hash of the content, so repeating the import uses the same one.
        """
        id = f"{session_ids.shorten_id(session.id, _MAX_ID_PREFIX)}-{self.group.digest(session.id)[:8]}"
        existing: dict[str, transfer.ExistingSession] = yield from execute(transfer.find_existing(self.scope, [id]))
        if id not in existing:
            self._place_new(session, id)
        else:
            comparison = yield from _compare_session(self.scope, self.group, session, existing[id])
            if comparison.conflict is not None:
                self.conflicts.append(Refused(session.id, reason))
                return
            self._place_existing(session, existing[id], id, comparison.mode)
        self.conflicts.append(Refused(session.id, reason, id))


def _compare_session(
    scope: Scope, group: SessionGroup, session: ImportedSession, existing: transfer.ExistingSession
) -> Pipeline[_SessionComparison]:
    """Compare a session of the file with the stored one, and return how to import it."""
    limits = group.branch_limits(session.id)
    renew = session.record.revision > existing.value.revision
    file_ahead, store_ahead = False, _store_has_more(session, existing)
    numbers = {branch.key: number for number, branch in existing.branches.items()}
    for number in limits:
        branch, existing_branch = group.branches[number], existing.branches.get(number)
        own = number in session.own_branches
        if existing_branch is None:
            if not own:
                return _SessionComparison("keep", f"Branch {number} is not in the store.")
            file_ahead = True
            continue
        parent = None if existing_branch.parent is None else numbers[existing_branch.parent]
        if (parent, existing_branch.fork_at) != (branch.parent, branch.fork_at) or (
            own and existing_branch.session != existing.key
        ):
            return _SessionComparison("keep", f"Branch {number} differs in the store.")
        store_ahead = store_ahead or (own and existing_branch.last > branch.last)
    difference = yield from _compare_content(group, session, limits, existing, renew=renew)
    if difference.differs is not None:
        return _SessionComparison("keep", f"Message {difference.differs} differs in the store.")
    file_ahead = file_ahead or difference.adds
    if file_ahead and store_ahead:
        return _SessionComparison("keep", "Both continued after the last common message.")
    # If the store is ahead, its session is the newer one, even if its revision is lower.
    if not store_ahead and (renew or file_ahead):
        return _SessionComparison("renew" if renew else "extend")
    for rows in iter_keyed_rows(group, session.id):
        if (yield from execute(transfer.lacks_records(scope, existing.key, rows))):
            return _SessionComparison("records")
    return _SessionComparison("keep")


def _store_has_more(session: ImportedSession, existing: transfer.ExistingSession) -> bool:
    """Return whether the store has branches of the session that the file lacks."""
    return any(
        branch.session == existing.key and number not in session.own_branches and branch.last > branch.fork_at
        for number, branch in existing.branches.items()
    )


class _ContentComparison(NamedTuple):
    adds: bool
    differs: str | None


def _compare_content(
    group: SessionGroup,
    session: ImportedSession,
    limits: dict[int, int | None],
    existing: transfer.ExistingSession,
    *,
    renew: bool,
) -> Pipeline[_ContentComparison]:
    """Compare the file's content of a session with the stored content, one batch at a time."""
    keys = {number: branch.key for number, branch in existing.branches.items()}
    adds = False

    def includes(number: int, position: int) -> bool:
        limit = limits.get(number, 0)
        return limit is None or position <= limit

    for branch_batch in iter_batches(group, keys, includes):
        if branch_batch.number not in keys:
            adds = True
            continue
        batch = branch_batch.to_row_batch(keys[branch_batch.number], existing.key, {}, renew=renew)
        difference: transfer.BranchDifference = yield from execute(transfer.compare_batch(batch))
        if difference.differs is not None:
            return _ContentComparison(adds, f"{branch_batch.number}.{difference.differs}")
        adds = adds or difference.adds
    snapshots = session_snapshots(group, session.id, keys)
    if snapshots and not adds:
        adds = yield from execute(transfer.lacks_snapshots(existing.key, snapshots))
    return _ContentComparison(adds, None)
