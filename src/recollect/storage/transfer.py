"""The writer of the row stream: compare rows with stored ones, and write those that the store lacks.

Branch numbers and positions are kept, so a message has the same id in both stores. Rows that contradict stored ones
are never written, except later edits (imported_edits.py). An import can be repeated: after a crash, or during a second
import of the same file, it finds the stored rows and continues. This module knows no file format; row_stream.py
reads the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from recollect.errors import Conflict, ImportConflict
from recollect.model import json
from recollect.model.session import SessionInfo
from recollect.storage import (
    appends,
    imported_edits,
    leases,
    messages,
    paths,
    records,
    relations,
    search,
    sessions,
)  # fmt: skip
from recollect.storage.leases import TURNS_OF_SPAN, TurnRow
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, execute_many, fetch_all, fetch_one
from recollect.storage.row_stream import (
    BRANCHES_OUTLINE,
    COMPACTIONS_OUTLINE,
    MESSAGES_ROWS,
    SNAPSHOTS_OUTLINE,
    TOOL_CALLS_OF_SPAN,
    BranchOutline,
    FullCallRow,
    FullCompactionRow,
    FullMessageRow,
    FullRecordRow,
    FullSnapshotRow,
    FullVersionRow,
    ParentRow,
)  # fmt: skip


class BlobSizeRow(NamedTuple):
    """The size of a blob in bytes."""

    size: int


BLOB_SIZE = Query("blob_size", BlobSizeRow)
_SESSION_IMPORT = Query("session_import", sessions.SessionKeyRow)


def find_blobs(scope: Scope, names: Sequence[str]) -> Operation[set[str]]:
    """Return the hashes of the blobs that the store has."""
    return Operation(_find_blobs, scope, names, writes=False)


def _find_blobs(scope: Scope, names: Sequence[str]) -> Steps[set[str]]:
    hashes: set[str] = set()
    for name in names:
        if (yield from fetch_one(BLOB_SIZE, owner=scope.owner, hash=name)) is not None:
            hashes.add(name)
    return hashes


# The progress of a message, turn or call. A final state is never changed by an import.
_STATE_RANKS = {"pending": 0, "streaming": 0, "interrupted": 1, None: 2, "error": 2}
_TURN_RANKS = {"open": 0, "interrupted": 1, "completed": 2, "failed": 2, "cancelled": 2}
_CALL_RANKS = {"pending": 0, "running": 1, "success": 3, "error": 3, "cancelled": 3}
_ABANDONED_RANK = 2  # of a cancelled call without a result, which may still receive one
_FINAL_RANK = 2  # of a message that no import changes
_JSON_COLUMNS = ("error", "native", "blobs", "parts")
_MARK_COLUMNS = ("deleted_at", "edited_at", "metadata")  # the side with the higher revision determines them


class RowBatch(NamedTuple):
    """Rows to write on one branch, in the order of their positions, and the payloads of their blobs."""

    branch: int
    number: int
    session: int | None
    renew: bool
    """Whether deletion marks, metadata and edits of the file replace the stored ones."""
    messages: Sequence[FullMessageRow]
    turns: Sequence[TurnRow]
    calls: Sequence[FullCallRow]
    """The rows see their messages from a branch of the store, by its key."""
    compactions: Sequence[FullCompactionRow]
    payloads: Mapping[str, bytes]
    versions: Sequence[FullVersionRow] = ()
    """The earlier versions of the messages."""


class BranchDifference(NamedTuple):
    """The difference between a branch in a file and in the store."""

    adds: bool
    differs: int | None
    """The position of the first message that differs."""


def compare_batch(batch: RowBatch) -> Operation[BranchDifference]:
    """Compare a batch of a file with the stored branch."""
    return Operation(_compare_batch, batch, writes=False)


def _compare_batch(batch: RowBatch) -> Steps[BranchDifference]:
    rows_by_position = yield from stored_rows(batch.branch, batch.messages)
    adds = False
    for row in batch.messages:
        row_before = rows_by_position.get(row.position)
        state = "new" if row_before is None else compare_message(row_before, row, batch.renew)
        if state == "differs":
            return BranchDifference(adds, row.position)
        adds = adds or state in ("new", "further")
    adds = adds or bool((yield from imported_edits.new_versions(batch, rows_by_position)))
    adds = adds or bool((yield from newer_turns(batch)))
    adds = adds or bool((yield from new_calls(batch)))
    for compaction in batch.compactions:
        adds = adds or (yield from find_same_compaction(batch.branch, compaction)) is None
    return BranchDifference(adds, None)


def stored_rows(branch: int, rows: Sequence[FullMessageRow]) -> Steps[dict[int, FullMessageRow]]:
    """Read the stored rows at the positions of these rows, by position."""
    if not rows:
        return {}
    low, high = rows[0].position - 1, rows[-1].position
    old_rows = yield from fetch_all(MESSAGES_ROWS, branch=branch, low=low, high=high, deleted=True)
    return {row.position: row for row in old_rows}


def compare_message(old_row: FullMessageRow, row: FullMessageRow, renew: bool) -> str:
    """Compare a message with the stored one: return same, further, behind or differs."""
    if _is_same_message(old_row, row):
        return "same"
    edit = imported_edits.compare_edits(old_row, row, renew=renew)
    if edit is not None:
        return edit
    before, after = _STATE_RANKS[old_row.state], _STATE_RANKS[row.state]
    if old_row.role != row.role or old_row.created_at != row.created_at or min(before, after) == _FINAL_RANK:
        return "differs"
    return "further" if before < after or (before == after and renew) else "behind"


def _is_same_message(old_row: FullMessageRow, row: FullMessageRow) -> bool:
    *old_columns, _ = old_row
    *columns, _ = row
    if old_columns == columns:
        return True
    for name in row._fields:
        old_value: Any = getattr(old_row, name)
        new_value: Any = getattr(row, name)
        if old_value == new_value or name in _MARK_COLUMNS or (name == "client_key" and new_value is None):
            continue
        if (
            name not in _JSON_COLUMNS
            or old_value is None
            or new_value is None
            or json.decode(old_value) != json.decode(new_value)
        ):
            return False
    return True


def newer_turns(batch: RowBatch) -> Steps[list[TurnRow]]:
    """Return the turns that are new, or have a later status than the stored ones."""
    if not batch.turns:
        return []
    positions = [turn.position for turn in batch.turns]
    rows = yield from fetch_all(TURNS_OF_SPAN, branch=batch.branch, low=min(positions) - 1, high=max(positions))
    ranks = {row.position: _TURN_RANKS[row.status] for row in rows}
    return [turn for turn in batch.turns if ranks.get(turn.position, -1) < _TURN_RANKS[turn.status]]


def new_calls(batch: RowBatch) -> Steps[list[FullCallRow]]:
    """Return the tool calls that are new or have a later status than the stored ones."""
    if not batch.calls:
        return []
    positions = [call.position for call in batch.calls]
    rows = yield from fetch_all(TOOL_CALLS_OF_SPAN, branch=batch.branch, low=min(positions) - 1, high=max(positions))
    ranks = {(row.position, row.part, row.branch): _call_rank(row) for row in rows}
    return [call for call in batch.calls if ranks.get((call.position, call.part, call.branch), -1) < _call_rank(call)]


def _call_rank(call: FullCallRow) -> int:
    """Return the progress of a call. A cancelled call without a result may still receive one."""
    return _ABANDONED_RANK if call.status == "cancelled" and call.result is None else _CALL_RANKS[call.status]


def compactions_of(branch: int) -> Steps[list[FullCompactionRow]]:
    """Return all compactions of a branch."""
    return (yield from fetch_all(COMPACTIONS_OUTLINE, branch=branch, high=paths.LAST_POSITION))


def find_same_compaction(branch: int, compaction: FullCompactionRow) -> Steps[FullCompactionRow | None]:
    """Return the stored row of the same compaction, or None."""
    rows = yield from fetch_all(COMPACTIONS_OUTLINE, branch=branch, high=compaction.to_position)
    return next((row for row in rows if _compaction_key(row) == _compaction_key(compaction)), None)


def _compaction_key(row: FullCompactionRow) -> tuple[int, ...]:
    """Return the columns that identify a compaction on its branch."""
    return row.from_position, row.to_position, row.round, row.created_at


def lacks_snapshots(session: int, snapshots: Sequence[FullSnapshotRow]) -> Operation[bool]:
    """Return whether the store lacks some of these snapshots."""
    return Operation(_lacks_snapshots, session, snapshots, writes=False)


def _lacks_snapshots(session: int, snapshots: Sequence[FullSnapshotRow]) -> Steps[bool]:
    return bool((yield from new_snapshots(session, snapshots)))


def new_snapshots(session: int, snapshots: Sequence[FullSnapshotRow]) -> Steps[list[FullSnapshotRow]]:
    """Return the snapshots that the store lacks."""
    rows = yield from fetch_all(SNAPSHOTS_OUTLINE, session=session)
    keys = {_snapshot_key(row) for row in rows}
    return [snapshot for snapshot in snapshots if _snapshot_key(snapshot) not in keys]


def _snapshot_key(row: FullSnapshotRow) -> tuple[Any, ...]:
    """Return the columns that identify a snapshot of its session."""
    return row.kind, row.branch, row.position, row.created_at


IMPORT_HOLDER = "import"
"""The holder of an imported open turn. Its lease has expired, so the next open of the session interrupts it."""

_FINAL_COLUMNS = ("position", "turn", "role", "created_at", "client_key", "edited_at", "deleted_at")
"""The columns of a message that do not change when a later state of it is imported."""
_NEW_SESSION = {
    "deleted_at": None, "open_turns": 0, "message_count": 0, "token_count": 0, "input_tokens": 0, "output_tokens": 0,
}  # fmt: skip
"""The columns of an imported session that its messages and turns determine."""

ImportMode = Literal["new", "renew", "extend", "records", "keep"]
"""A new session; one whose fields are replaced too; one that only gets new messages; one that only gets newer keyed
records; one that stays unchanged."""


class MessageDiverged(Conflict):
    """A message in the store differs from the message in the file.

    Internal: the importer reports it as the reason why the session was not imported.
    """


class ExistingSession(NamedTuple):
    """A stored session: its key, its tree, and the branches of the tree by number."""

    key: int
    value: SessionInfo
    tree: int
    branches: dict[int, BranchOutline]


def find_existing(scope: Scope, ids: Sequence[str]) -> Operation[dict[str, ExistingSession]]:
    """Return the stored sessions among these ids."""
    return Operation(_find_existing, scope, ids, writes=False)


def _find_existing(scope: Scope, ids: Sequence[str]) -> Steps[dict[str, ExistingSession]]:
    existing: dict[str, ExistingSession] = {}
    for id in ids:
        row = yield from sessions.find_live_row(scope, id)
        if row is not None:
            current = sessions.stored_from_row(row)
            branches = yield from fetch_all(BRANCHES_OUTLINE, tree=current.tree)
            existing[id] = ExistingSession(
                current.session, current.value, current.tree, {branch.number: branch for branch in branches}
            )
    return existing


class IncomingSession(NamedTuple):
    """A session to import: its id, columns and head branch."""

    id: str
    key: int | None
    """The key of the stored session; None for a new one."""
    mode: ImportMode
    columns: dict[str, Any]
    head: int
    parent: str | None = None


class IncomingBranch(NamedTuple):
    """A branch to import, by branch numbers."""

    number: int
    parent: int | None
    fork_at: int
    session: str | None
    created_at: int


class ImportKeys(NamedTuple):
    """The keys to write under: the tree, its branches by number, and the sessions by id."""

    tree: int
    branches: dict[int, int]
    sessions: dict[str, int]


def begin_import(
    scope: Scope, tree: int | None, incoming_sessions: Sequence[IncomingSession], branches: Sequence[IncomingBranch]
) -> Operation[ImportKeys]:
    """Create the tree, the sessions and the branches that do not exist yet."""
    return Operation(_begin_import, scope, tree, incoming_sessions, branches)


def _begin_import(
    scope: Scope, tree: int | None, incoming_sessions: Sequence[IncomingSession], branches: Sequence[IncomingBranch]
) -> Steps[ImportKeys]:
    if tree is None:
        tree = yield from insert_tree(scope)
    session_keys: dict[str, int] = {}
    for incoming in incoming_sessions:
        row = yield from fetch_one(sessions.SESSION_GET, owner=scope.owner, id=incoming.id)
        if (None if row is None else row.session) != incoming.key or (row is not None and row.tree != tree):
            raise ImportConflict
        if row is not None:
            session_keys[incoming.id] = row.session
            continue
        session_keys[incoming.id] = yield from insert_session(
            scope, tree, {"id": incoming.id, **_NEW_SESSION, **incoming.columns}
        )
        if incoming.parent is not None:
            yield from _link_parent(scope, incoming.id, incoming.parent)
    branch_keys: dict[int, int] = {}
    for branch in branches:
        branch_keys[branch.number] = yield from _ensure_branch(tree, branch, session_keys, branch_keys)
    for incoming in incoming_sessions:
        yield from _finish_session(scope, incoming, session_keys[incoming.id], branch_keys)
    return ImportKeys(tree, branch_keys, session_keys)


def insert_tree(scope: Scope) -> Steps[int]:
    """Insert a tree, and return its key."""
    row = yield from fetch_one(paths.TREE_INSERT, owner=scope.owner)
    assert row is not None
    return row.key


def insert_session(scope: Scope, tree: int, columns: dict[str, Any]) -> Steps[int]:
    """Insert a session with all its columns except the head branch and the parent, and return its key."""
    row = yield from fetch_one(_SESSION_IMPORT, owner=scope.owner, tree=tree, **columns)
    assert row is not None
    yield from sessions.set_sort_title(row.session, columns["title"])
    if columns["labels"] is not None:
        yield from sessions.set_label_rows(row.session, columns["labels"])
    return row.session


def _ensure_branch(
    tree: int, branch: IncomingBranch, session_keys: Mapping[str, int], branch_keys: Mapping[int, int]
) -> Steps[int]:
    parent = None if branch.parent is None else branch_keys[branch.parent]
    row = yield from fetch_one(paths.BRANCH_BY_NUMBER, tree=tree, number=branch.number)
    if row is not None:
        if (row.parent, row.fork_at) != (parent, branch.fork_at):
            raise ImportConflict
        return row.key
    branch_row = yield from fetch_one(
        paths.BRANCH_INSERT, tree=tree, number=branch.number, parent=parent, fork_at=branch.fork_at,
        session=None if branch.session is None else session_keys[branch.session], now=branch.created_at,
    )  # fmt: skip
    assert branch_row is not None
    yield from execute("tree_raise_branches", tree=tree, number=branch.number)
    return branch_row.key


def _finish_session(scope: Scope, incoming: IncomingSession, key: int, branch_keys: Mapping[int, int]) -> Steps[None]:
    """Set the head, the counts and the fields of an imported session, and raise the revision of an existing one."""
    columns = incoming.columns
    if incoming.mode in ("new", "renew"):
        head = branch_keys[incoming.head]
        if incoming.mode == "renew":
            yield from execute("branch_store_last", session=key)
        totals = yield from messages.count_path((yield from paths.read_path(head)))
        counts = {name: value for name, value in totals._asdict().items() if name != "last_message_at"}
        yield from execute("session_import_head", session=key, head=head, **counts)
    if incoming.mode == "renew":
        yield from _renew_fields(scope, incoming, key)
        times = {name: columns[name] for name in ("relation", "created_at", "active_at", "last_message_at")}
        yield from execute("session_renew", session=key, **times)
    if incoming.mode in ("renew", "extend"):
        times = {name: columns[name] for name in ("revision", "updated_at", "last_message_at")}
        yield from execute("session_raise_revision", session=key, **times)


def _renew_fields(scope: Scope, incoming: IncomingSession, key: int) -> Steps[None]:
    """Replace the fields that a caller can set, except the model of the stored session."""
    session = yield from sessions.read_by_key(key)
    columns = {name: incoming.columns[name] for name in sessions.FIELD_COLUMNS}
    if session.value.model is not None:
        del columns["model"]
    changed_at = msgspec.structs.replace(scope, now=incoming.columns["updated_at"])
    yield from sessions.update_columns(changed_at, incoming.id, columns, None)


def add_batch(scope: Scope, tree: int, batch: RowBatch) -> Operation[int]:
    """Write the new rows of a batch, and return the number of new messages."""
    return Operation(_add_batch, scope, tree, batch, removes_from_index=True)


def _add_batch(scope: Scope, tree: int, batch: RowBatch) -> Steps[int]:
    present = yield from stored_rows(batch.branch, batch.messages)
    new = yield from _merge_messages(scope, tree, batch, present)
    versions = yield from imported_edits.new_versions(batch, present)
    turns = yield from newer_turns(batch)
    yield from insert_rows(batch.branch, new, turns, (yield from new_calls(batch)))
    for compaction in batch.compactions:
        yield from _write_compaction(batch.branch, compaction)
    if new:
        yield from _count_messages(scope, tree, batch, new)
        _raise_diverged((yield from imported_edits.find_key_conflict(batch, new)))
    yield from imported_edits.write_versions(batch.branch, versions)
    for version in versions:
        yield from _store_blobs(scope, batch, version)
    if batch.session is not None:
        for turn in turns:
            yield from _claim_branch(batch.session, batch.branch, turn)
    return len(new)


def _merge_messages(
    scope: Scope, tree: int, batch: RowBatch, present: Mapping[int, FullMessageRow]
) -> Steps[list[FullMessageRow]]:
    """Update stored messages from the batch, and return the messages that the store lacks."""
    new: list[FullMessageRow] = []
    for row in batch.messages:
        old_row = present.get(row.position)
        if old_row is None:
            new.append(row)
            continue
        state = compare_message(old_row, row, batch.renew)
        if state == "differs":
            raise MessageDiverged(
                f"Message {batch.number}.{row.position} in the database differs from the message in the file."
            )
        if state == "further":
            yield from _replace_message(scope, tree, batch, old_row, row)
            old_row = row._replace(deleted_at=old_row.deleted_at)
        if state in ("same", "further") and batch.renew:
            yield from _write_marks(tree, batch, old_row, row)
    return new


def insert_rows(
    branch: int, new: Sequence[FullMessageRow], turns: Sequence[TurnRow], calls: Sequence[FullCallRow]
) -> Steps[None]:
    """Insert messages, and insert or replace turns and tool calls."""
    yield from execute_many("message_insert_full", [(branch, *row) for row in new])
    for turn in turns:
        yield from execute("turn_import", branch=branch, **turn._asdict())
    # PostgreSQL and SQLite encode the position of a result in different ways; a row has the values for both.
    call_rows = [
        (branch, position, part, view, call_id, tool, status, view, *outcome)
        for position, part, view, call_id, tool, status, *outcome in calls
    ]
    yield from execute_many("tool_call_insert", call_rows)


def _write_marks(tree: int, batch: RowBatch, old_row: FullMessageRow, row: FullMessageRow) -> Steps[None]:
    """Write the deletion mark and the metadata of a stored message."""
    if old_row.metadata != row.metadata:
        yield from imported_edits.write_marks(batch, row)
    if old_row.deleted_at != row.deleted_at:
        yield from execute(
            "message_mark_deleted", branch=batch.branch, position=row.position, deleted_at=row.deleted_at
        )
        yield from _adjust_counts(tree, batch.branch, [(old_row, -1), (row, 1)])
        _raise_diverged((yield from imported_edits.check_restored_key(tree, batch, row)))


def _raise_diverged(conflict: str | None) -> None:
    if conflict is not None:
        raise MessageDiverged(conflict)


def _count_messages(scope: Scope, tree: int, batch: RowBatch, new: Sequence[FullMessageRow]) -> Steps[None]:
    """Update what depends on new messages: pins, blobs, last positions and counts."""
    yield from _insert_pins(batch.branch, new)
    for row in new:
        yield from _store_blobs(scope, batch, row)
    last = new[-1].position
    yield from execute("branch_raise_last", branch=batch.branch, last=last)
    if batch.session is not None:
        yield from execute("session_raise_last", session=batch.session, branch=batch.branch, last=last)
    yield from _adjust_counts(tree, batch.branch, [(row, 1) for row in new])


def _insert_pins(branch: int, new: Sequence[FullMessageRow]) -> Steps[None]:
    """Pin the messages that are in every history."""
    yield from execute_many("pin_insert", [(branch, row.position) for row in new if _is_always_active(row)])


def _is_always_active(row: FullMessageRow) -> bool:
    metadata = None if row.metadata is None else json.decode(row.metadata)
    return row.role == "system" or (isinstance(metadata, dict) and metadata.get("pinned") is True)


def _store_blobs(scope: Scope, batch: RowBatch, row: FullMessageRow | FullVersionRow) -> Steps[None]:
    for name in row.blob_names:
        if name in batch.payloads:
            yield from appends.store_blob(scope, name, batch.payloads[name])
        elif (yield from fetch_one(appends.BLOB_REFERENCE, owner=scope.owner, hash=name)) is None:
            raise ImportConflict


def _adjust_counts(tree: int, branch: int, changes: Sequence[tuple[FullMessageRow, int]]) -> Steps[None]:
    """Change the counts of every session whose active path contains the messages."""
    live_changes = [(row, sign) for row, sign in changes if row.deleted_at is None]
    for session in (yield from fetch_all(messages.SESSIONS_OF_TREE, tree=tree)):
        spans = [span for span in (yield from paths.read_path(session.head)) if span.branch == branch]
        path_changes = [
            (row, sign) for row, sign in live_changes for span in spans if span.low < row.position <= span.high
        ]
        if path_changes:
            yield from execute(
                "session_count", session=session.session, messages=sum(sign for _, sign in path_changes),
                tokens=sum(sign * row.tokens for row, sign in path_changes),
                input_tokens=sum(sign * (row.input_tokens or 0) for row, sign in path_changes),
                output_tokens=sum(sign * (row.output_tokens or 0) for row, sign in path_changes),
                newest=max(row.created_at for row, _ in path_changes),
            )  # fmt: skip


def _replace_message(
    scope: Scope, tree: int, batch: RowBatch, old_row: FullMessageRow, row: FullMessageRow
) -> Steps[None]:
    """Replace an unfinished message, or one that was edited later in the file, by the one in the file."""
    yield from _store_blobs(scope, batch, row)
    if old_row.edited_at == row.edited_at:
        columns = {name: value for name, value in row._asdict().items() if name not in _FINAL_COLUMNS}
        yield from search.invalidate_message(scope, batch.branch, row.position)
        yield from execute("message_write", branch=batch.branch, position=row.position, **columns)
        yield from execute_many("blob_release", [(scope.owner, name) for name in old_row.blob_names])
        yield from _insert_pins(batch.branch, [row])
    else:
        yield from imported_edits.replace_content(scope, tree, batch, old_row, row)
    new_row = row._replace(deleted_at=old_row.deleted_at)
    yield from _adjust_counts(tree, batch.branch, [(old_row, -1), (new_row, 1)])


def _claim_branch(session: int, branch: int, turn: TurnRow) -> Steps[None]:
    """Record that an imported turn holds its branch, or that it has ended."""
    if turn.status != "open":
        yield from leases.release_branch(session, branch, turn.position)
    elif (yield from fetch_one(leases.BRANCH_OPEN, branch=branch)) is None:
        yield from leases.claim_branch(session, branch, turn.position)


def _write_compaction(branch: int, compaction: FullCompactionRow) -> Steps[None]:
    if (yield from find_same_compaction(branch, compaction)) is None:
        yield from execute("compaction_import", branch=branch, **compaction._asdict())
    elif compaction.undone_at is not None:
        yield from execute(
            "compaction_retract", branch=branch, from_position=compaction.from_position,
            to_position=compaction.to_position, round=compaction.round, created_at=compaction.created_at,
            undone_at=compaction.undone_at,
        )  # fmt: skip


def store_snapshots(session: int, snapshots: Sequence[FullSnapshotRow]) -> Operation[None]:
    """Write the snapshots that a session lacks."""
    return Operation(_store_snapshots, session, snapshots)


def _store_snapshots(session: int, snapshots: Sequence[FullSnapshotRow]) -> Steps[None]:
    """Write the snapshots that a session lacks."""
    for snapshot in (yield from new_snapshots(session, snapshots)):
        yield from execute("snapshot_import", session=session, **snapshot._asdict())


def lacks_records(scope: Scope, session: int, rows: Sequence[FullRecordRow]) -> Operation[bool]:
    """Return whether a session lacks some of these records, or has one at a lower revision."""
    return Operation(_lacks_records, scope, session, rows, writes=False)


def _lacks_records(scope: Scope, session: int, rows: Sequence[FullRecordRow]) -> Steps[bool]:
    for row in rows:
        current = yield from fetch_one(
            records.RECORD_REVISION, owner=scope.owner, session=session, kind=row.kind, key=row.key
        )
        if current is None or current.revision < row.revision:
            return True
    return False


def store_records(scope: Scope, session: int, rows: Sequence[FullRecordRow]) -> Operation[None]:
    """Write the records that a session lacks or has at a lower revision."""
    return Operation(_store_records, scope, session, rows)


def _store_records(scope: Scope, session: int, rows: Sequence[FullRecordRow]) -> Steps[None]:
    if (yield from sessions.find_by_key(session)) is None:  # it was erased meanwhile; the row is locked now
        raise ImportConflict
    for row in rows:
        mark = records.mark_key(row.kind)
        yield from execute("record_import", owner=scope.owner, session=session, mark=mark, **row._asdict())


def link_parent(scope: Scope, session: str, parent: str) -> Operation[None]:
    """Set the parent of a session, once both exist."""
    return Operation(_link_parent, scope, session, parent)


def _link_parent(scope: Scope, session: str, parent: str) -> Steps[None]:
    row = yield from sessions.find_live_row(scope, session)
    parent_row = yield from sessions.find_live_row(scope, parent)
    if row is None or parent_row is None or (yield from relations.is_ancestor(row.session, parent_row.session)):
        return  # a file must not make a session its own ancestor
    yield from write_link(scope, ParentRow(0, session, None, None, parent, None))


def write_link(scope: Scope, link: ParentRow) -> Steps[None]:
    """Set the parent of a session, once both exist."""
    names = ("id", "deleted_at", "created_at", "parent", "parent_deleted_at")
    yield from execute("session_link", owner=scope.owner, **{name: getattr(link, name) for name in names})
