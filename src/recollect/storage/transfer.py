"""Transfer of sessions between a store and a file: read rows for an export, compare and write rows of an import.

Branch numbers and positions are kept, so a message has the same id in both stores. Rows that contradict stored ones
are never written. Each operation can be repeated: after a crash, or during a second import of the same file, it finds
the stored rows and continues. This module knows no file format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from recollect.errors import Conflict, ImportConflict, SessionNotFound
from recollect.model import json
from recollect.model.session import SessionInfo
from recollect.storage import appends, leases, messages, paths, search, sessions
from recollect.storage.operation import Operation, Row, Scope, Steps, execute, execute_many, fetch_all, fetch_one

# Bytes and rows per page. They bound the memory of an export and the size of a transaction.
PAGE_BYTES = 1_000_000
PAGE_ROWS = 256  # messages
# Columns of a row of messages_rows.
POSITION, TURN, ROLE, STATE, TOKENS, INPUT, OUTPUT, CREATED, COMPLETED, FORMAT, MODEL = range(11)
ERROR, METADATA, NATIVE, BLOBS, PARTS, DELETED = range(11, 17)


def blob_names(row: Row) -> list[str]:
    """Return the hashes of the blobs that a row of messages_rows refers to."""
    return [] if row[BLOBS] is None else json.decode(row[BLOBS])


class SessionIdPage(NamedTuple):
    """A page of sessions as (id, tree), oldest first, and the cursor of the next page."""

    sessions: list[tuple[str, int]]
    more: tuple[int, int] | None


class BranchOutline(NamedTuple):
    """A branch of a tree, by keys and by number."""

    key: int
    number: int
    session: int | None
    parent: int | None
    fork_at: int
    last: int
    created_at: int


class TreeOutline(NamedTuple):
    """The selected sessions of a tree by key, and all of its branches, a parent before its children."""

    key: int
    sessions: dict[int, SessionInfo]
    branches: list[BranchOutline]


class BranchPage(NamedTuple):
    """A page of a branch: rows of messages, turns and tool calls, and the position after which the next page begins."""

    messages: list[Row]
    turns: list[Row]
    calls: list[Row]
    more: int | None


def list_session_ids(scope: Scope, after: tuple[int, int] | None) -> Operation[SessionIdPage]:
    """Read a page of all sessions that are not in the trash, the oldest first."""
    return Operation(_list_session_ids, scope, after or (-1, -1), writes=False)


def _list_session_ids(scope: Scope, after: tuple[int, int]) -> Steps[SessionIdPage]:
    rows = yield from fetch_all("sessions_created_after", owner=scope.owner, at=after[0], key=after[1], limit=PAGE_ROWS)
    more = (rows[-1][0], rows[-1][1]) if len(rows) == PAGE_ROWS else None
    return SessionIdPage([(row[2], row[3]) for row in rows], more)


def find_trees(scope: Scope, ids: Sequence[str]) -> Operation[dict[str, int]]:
    """Return the tree of each session; raise SessionNotFound for a missing one."""
    return Operation(_find_trees, scope, ids, writes=False)


def _find_trees(scope: Scope, ids: Sequence[str]) -> Steps[dict[str, int]]:
    trees: dict[str, int] = {}
    for id in ids:
        trees[id] = (yield from sessions.find(scope, id)).tree
    return trees


def read_tree(key: int, ids: frozenset[str] | None) -> Operation[TreeOutline]:
    """Read the outline of a tree, with the sessions in `ids`, or with all that are not in the trash."""
    return Operation(_read_tree, key, ids, writes=False)


def _read_tree(key: int, ids: frozenset[str] | None) -> Steps[TreeOutline]:
    selection: dict[int, SessionInfo] = {}
    for session, id, _, deleted in (yield from fetch_all("sessions_of_tree", tree=key)):
        if deleted is None and (ids is None or id in ids):
            selection[session] = (yield from sessions.read_by_key(session)).value
    return TreeOutline(
        key, selection, [BranchOutline(*row) for row in (yield from fetch_all("branches_outline", tree=key))]
    )


def read_branch_page(session: str, branch: int, low: int, high: int, *, deleted: bool) -> Operation[BranchPage]:
    """Read the next page of a branch after a position: up to PAGE_ROWS rows and PAGE_BYTES bytes, at least one row."""
    return Operation(_read_branch_page, session, branch, low, high, deleted, writes=False)


def _read_branch_page(session: str, branch: int, low: int, high: int, deleted: bool) -> Steps[BranchPage]:
    if (yield from fetch_one("branch_get", branch=branch)) is None:
        raise SessionNotFound(session=session)
    sizes = yield from fetch_all("messages_sizes", branch=branch, low=low, high=high, limit=PAGE_ROWS, deleted=deleted)
    total, end = 0, high
    for index, (position, size) in enumerate(sizes):
        total += size
        if index == PAGE_ROWS - 1 or total > PAGE_BYTES:
            end = position
            break
    span = {"branch": branch, "low": low, "high": end}
    rows = yield from fetch_all("messages_rows", **span, deleted=deleted)
    turns = yield from fetch_all("turns_of_span", **span)
    calls = yield from fetch_all("tool_calls_of_span", **span)
    return BranchPage(rows, turns, calls, end if end < high else None)


def read_message(branch: int, position: int) -> Operation[Row | None]:
    """Read one message."""
    return Operation(_read_message, branch, position, writes=False)


def _read_message(branch: int, position: int) -> Steps[Row | None]:
    return (yield from fetch_one("message_row", branch=branch, position=position))


def read_blob(scope: Scope, name: str) -> Operation[bytes | None]:
    """Read the payload of a blob, or None."""
    return Operation(_read_blob, scope, name, writes=False)


def _read_blob(scope: Scope, name: str) -> Steps[bytes | None]:
    row = yield from fetch_one("blob_get", owner=scope.owner, hash=name)
    return None if row is None else row[0]


def read_compactions(branch: int, high: int) -> Operation[list[Row]]:
    """Read the compactions of a branch up to a position."""
    return Operation(_read_compactions, branch, high, writes=False)


def _read_compactions(branch: int, high: int) -> Steps[list[Row]]:
    return (yield from fetch_all("compactions_outline", branch=branch, high=high))


def read_snapshots(session: int) -> Operation[list[Row]]:
    """Read the snapshots of a session."""
    return Operation(_read_snapshots, session, writes=False)


def _read_snapshots(session: int) -> Steps[list[Row]]:
    return (yield from fetch_all("snapshots_outline", session=session))


def find_blobs(scope: Scope, names: Sequence[str]) -> Operation[set[str]]:
    """Return the hashes of the blobs that the store has."""
    return Operation(_find_blobs, scope, names, writes=False)


def _find_blobs(scope: Scope, names: Sequence[str]) -> Steps[set[str]]:
    hashes: set[str] = set()
    for name in names:
        if (yield from fetch_one("blob_size", owner=scope.owner, hash=name)) is not None:
            hashes.add(name)
    return hashes


# The progress of a message, turn or call. A final state is never changed by an import.
_STATE_RANKS = {"pending": 0, "streaming": 0, "interrupted": 1, None: 2, "error": 2}
_TURN_RANKS = {"open": 0, "interrupted": 1, "completed": 2, "failed": 2, "cancelled": 2}
_CALL_RANKS = {"pending": 0, "running": 1, "success": 3, "error": 3, "canceled": 3}
_ABANDONED_RANK = 2  # of a cancelled call without a result, which may still receive one
_FINAL_RANK = 2  # of a message that no import changes
_JSON_COLUMNS = (ERROR, METADATA, NATIVE, BLOBS, PARTS)
COMPACTION_KEY = ("from_position", "to_position", "round", "created_at")
"""The columns that identify a compaction on its branch."""


class ImportBatch(NamedTuple):
    """Rows to import on one branch, in the order of their positions, and the payloads of their blobs."""

    branch: int
    number: int
    session: int | None
    renew: bool
    """Whether deletion marks of the file replace the stored ones."""
    messages: Sequence[Row]
    turns: Sequence[dict[str, Any]]
    calls: Sequence[Row]
    compactions: Sequence[dict[str, Any]]
    payloads: Mapping[str, bytes]


class BranchDifference(NamedTuple):
    """The difference between a branch in a file and in the store."""

    adds: bool
    differs: int | None
    """The position of the first message that differs."""


def compare_batch(batch: ImportBatch) -> Operation[BranchDifference]:
    """Compare a batch of a file with the stored branch."""
    return Operation(_compare_batch, batch, writes=False)


def _compare_batch(batch: ImportBatch) -> Steps[BranchDifference]:
    rows_by_position = yield from stored_rows(batch.branch, batch.messages)
    adds = False
    for row in batch.messages:
        row_before = rows_by_position.get(row[POSITION])
        state = "new" if row_before is None else compare_message(row_before, row, batch.renew)
        if state == "differs":
            return BranchDifference(adds, row[POSITION])
        adds = adds or state in ("new", "further")
    for turn in batch.turns:
        adds = adds or (yield from is_newer_turn(batch, turn))
    adds = adds or bool((yield from new_calls(batch)))
    for compaction in batch.compactions:
        adds = adds or (yield from find_same_compaction(batch.branch, compaction)) is None
    return BranchDifference(adds, None)


def stored_rows(branch: int, rows: Sequence[Row]) -> Steps[dict[int, Row]]:
    """Read the stored rows at the positions of these rows, by position."""
    if not rows:
        return {}
    low, high = rows[0][POSITION] - 1, rows[-1][POSITION]
    old_rows = yield from fetch_all("messages_rows", branch=branch, low=low, high=high, deleted=True)
    return {row[POSITION]: row for row in old_rows}


def compare_message(old_row: Row, row: Row, renew: bool) -> str:
    """Compare a message with the stored one: return same, further, behind or differs."""
    if _is_same_message(old_row, row):
        return "same"
    before, after = _STATE_RANKS[old_row[STATE]], _STATE_RANKS[row[STATE]]
    if old_row[ROLE] != row[ROLE] or old_row[CREATED] != row[CREATED] or min(before, after) == _FINAL_RANK:
        return "differs"
    return "further" if before < after or (before == after and renew) else "behind"


def _is_same_message(old_row: Row, row: Row) -> bool:
    for index, (old_value, new_value) in enumerate(zip(old_row, row, strict=True)):
        if old_value == new_value or index == DELETED:
            continue
        if (
            index not in _JSON_COLUMNS
            or old_value is None
            or new_value is None
            or json.decode(old_value) != json.decode(new_value)
        ):
            return False
    return True


def is_newer_turn(batch: ImportBatch, turn: dict[str, Any]) -> Steps[bool]:
    """Return whether a turn is new, or has a later status than the stored one."""
    old_row = yield from fetch_one("turn_get", branch=batch.branch, position=turn["position"])
    return old_row is None or _TURN_RANKS[old_row[1]] < _TURN_RANKS[turn["status"]]


def new_calls(batch: ImportBatch) -> Steps[list[Row]]:
    """Return the tool calls that are new or have a later status, as rows of tool_calls_of_span."""
    if not batch.calls:
        return []
    positions = [row[0] for row in batch.calls]
    rows = yield from fetch_all("tool_calls_of_span", branch=batch.branch, low=min(positions) - 1, high=max(positions))
    ranks = {row[:3]: _call_rank(row) for row in rows}
    return [row for row in batch.calls if ranks.get(row[:3], -1) < _call_rank(row)]


def _call_rank(call: Row) -> int:
    """Return the progress of a call. A cancelled call without a result may still receive one."""
    return _ABANDONED_RANK if call[5] == "canceled" and call[6] is None else _CALL_RANKS[call[5]]


def find_same_compaction(branch: int, compaction: dict[str, Any]) -> Steps[Row | None]:
    """Return the stored row of the same compaction, or None."""
    rows = yield from fetch_all("compactions_outline", branch=branch, high=compaction["to_position"])
    key = tuple(compaction[name] for name in COMPACTION_KEY)
    return next((row for row in rows if (row[0], row[1], row[2], row[6]) == key), None)


def lacks_snapshots(session: int, snapshots: Sequence[dict[str, Any]]) -> Operation[bool]:
    """Return whether the store lacks some of these snapshots."""
    return Operation(_lacks_snapshots, session, snapshots, writes=False)


def _lacks_snapshots(session: int, snapshots: Sequence[dict[str, Any]]) -> Steps[bool]:
    return bool((yield from new_snapshots(session, snapshots)))


def new_snapshots(session: int, snapshots: Sequence[dict[str, Any]]) -> Steps[list[dict[str, Any]]]:
    """Return the snapshots that the store lacks."""
    keys = {(row[0], row[2], row[3], row[5]) for row in (yield from fetch_all("snapshots_outline", session=session))}
    names = ("kind", "branch", "position", "created_at")
    return [snapshot for snapshot in snapshots if tuple(snapshot[name] for name in names) not in keys]


IMPORT_HOLDER = "import"
"""The holder of an imported open turn. Its lease has expired, so the next open of the session interrupts it."""

_MESSAGE_COLUMNS = {
    "tokens": TOKENS, "input_tokens": INPUT, "output_tokens": OUTPUT, "completed_at": COMPLETED, "format": FORMAT,
    "model": MODEL, "error": ERROR, "metadata": METADATA, "native": NATIVE, "blobs": BLOBS, "parts": PARTS,
    "state": STATE,
}  # fmt: skip
_INSERT_ONLY_COLUMNS = ("revision", "data_schema_version")

ImportMode = Literal["new", "renew", "extend", "keep"]
"""A new session; one whose fields are replaced too; one that only gets new messages; one that stays unchanged."""


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
            branches = [
                BranchOutline(*branch) for branch in (yield from fetch_all("branches_outline", tree=current.tree))
            ]
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
        tree_row = yield from fetch_one("tree_insert", owner=scope.owner)
        assert tree_row is not None
        tree = int(tree_row[0])
    session_keys: dict[str, int] = {}
    for incoming in incoming_sessions:
        row = yield from fetch_one("session_get", owner=scope.owner, id=incoming.id)
        if (None if row is None else row[0]) != incoming.key or (row is not None and row[1] != tree):
            raise ImportConflict
        if row is None:
            row = yield from fetch_one(
                "session_import",
                owner=scope.owner,
                id=incoming.id,
                tree=tree,
                parent=incoming.parent,
                **incoming.columns,
            )
            assert row is not None
        session_keys[incoming.id] = row[0]
    branch_keys: dict[int, int] = {}
    for branch in branches:
        branch_keys[branch.number] = yield from _ensure_branch(tree, branch, session_keys, branch_keys)
    for incoming in incoming_sessions:
        yield from _finish_session(scope, incoming, session_keys[incoming.id], branch_keys)
    return ImportKeys(tree, branch_keys, session_keys)


def _ensure_branch(
    tree: int, branch: IncomingBranch, session_keys: Mapping[str, int], branch_keys: Mapping[int, int]
) -> Steps[int]:
    parent = None if branch.parent is None else branch_keys[branch.parent]
    row = yield from fetch_one("branch_by_number", tree=tree, number=branch.number)
    if row is not None:
        if (row[3], row[4]) != (parent, branch.fork_at):
            raise ImportConflict
        return row[0]
    branch_row = yield from fetch_one(
        "branch_insert", tree=tree, number=branch.number, parent=parent, fork_at=branch.fork_at,
        session=None if branch.session is None else session_keys[branch.session], now=branch.created_at,
    )  # fmt: skip
    assert branch_row is not None
    yield from execute("tree_raise_branches", tree=tree, number=branch.number)
    return branch_row[0]


def _finish_session(scope: Scope, incoming: IncomingSession, key: int, branch_keys: Mapping[int, int]) -> Steps[None]:
    """Set the head, the counts and the fields of an imported session, and raise the revision of an existing one."""
    if incoming.mode in ("new", "renew"):
        head = branch_keys[incoming.head]
        if incoming.mode == "renew":
            yield from execute("branch_store_last", session=key)
        totals = yield from messages.count_path((yield from paths.read_path(head)))
        counts = {name: value for name, value in totals._asdict().items() if name != "last_message_at"}
        yield from execute("session_import_head", session=key, head=head, **counts)
        yield from sessions.set_sort_title(scope, key, incoming.columns["title"])
    if incoming.mode == "renew":
        columns = {name: value for name, value in incoming.columns.items() if name not in _INSERT_ONLY_COLUMNS}
        yield from execute("session_renew", session=key, **columns)
    if incoming.mode in ("renew", "extend"):
        times = {name: incoming.columns[name] for name in ("revision", "updated_at", "last_message_at")}
        yield from execute("session_raise_revision", session=key, **times)


def add_batch(scope: Scope, tree: int, batch: ImportBatch) -> Operation[int]:
    """Write the new rows of a batch, and return the number of new messages."""
    return Operation(_add_batch, scope, tree, batch, removes_from_index=True)


def _add_batch(scope: Scope, tree: int, batch: ImportBatch) -> Steps[int]:
    present = yield from stored_rows(batch.branch, batch.messages)
    new: list[Row] = []
    for row in batch.messages:
        old_row = present.get(row[POSITION])
        if old_row is None:
            new.append(row)
            continue
        state = compare_message(old_row, row, batch.renew)
        if state == "differs":
            raise MessageDiverged(
                f"Message {batch.number}.{row[POSITION]} in the database differs from the message in the file."
            )
        if state == "further":
            yield from _replace_message(scope, tree, batch, old_row, row)
        elif batch.renew and old_row[DELETED] != row[DELETED]:
            yield from execute(
                "message_mark_deleted", branch=batch.branch, position=row[POSITION], deleted_at=row[DELETED]
            )
            yield from _adjust_counts(tree, batch.branch, [(old_row, -1), (row, 1)])
    if new:
        yield from _insert_messages(scope, tree, batch, new)
    for turn in batch.turns:
        yield from _write_turn(batch, turn)
    yield from _write_calls(batch)
    for compaction in batch.compactions:
        yield from _write_compaction(batch.branch, compaction)
    return len(new)


def _insert_messages(scope: Scope, tree: int, batch: ImportBatch, new: Sequence[Row]) -> Steps[None]:
    columns = [(batch.branch, *row[:DELETED]) for row in new]
    yield from execute_many("message_insert", columns)
    yield from _insert_pins(batch.branch, new)
    for row in new:
        if row[DELETED] is not None:
            yield from execute(
                "message_mark_deleted", branch=batch.branch, position=row[POSITION], deleted_at=row[DELETED]
            )
        yield from _store_blobs(scope, batch, row)
    last = new[-1][POSITION]
    yield from execute("branch_raise_last", branch=batch.branch, last=last)
    if batch.session is not None:
        yield from execute("session_raise_last", session=batch.session, branch=batch.branch, last=last)
    yield from _adjust_counts(tree, batch.branch, [(row, 1) for row in new])


def _insert_pins(branch: int, new: Sequence[Row]) -> Steps[None]:
    """Pin the messages that are in every history."""
    yield from execute_many("pin_insert", [(branch, row[POSITION]) for row in new if _is_always_active(row)])


def _is_always_active(row: Row) -> bool:
    metadata = None if row[METADATA] is None else json.decode(row[METADATA])
    return row[ROLE] == "system" or (isinstance(metadata, dict) and metadata.get("pinned") is True)


def _store_blobs(scope: Scope, batch: ImportBatch, row: Row) -> Steps[None]:
    for name in blob_names(row):
        if name in batch.payloads:
            yield from appends.store_blob(scope, name, batch.payloads[name])
        elif (yield from fetch_one("blob_reference", owner=scope.owner, hash=name)) is None:
            raise ImportConflict


def _adjust_counts(tree: int, branch: int, changes: Sequence[tuple[Row, int]]) -> Steps[None]:
    """Change the counts of every session whose active path contains the messages."""
    live_changes = [(row, sign) for row, sign in changes if row[DELETED] is None]
    for session, _, head, _ in (yield from fetch_all("sessions_of_tree", tree=tree)):
        spans = [span for span in (yield from paths.read_path(head)) if span.branch == branch]
        path_changes = [
            (row, sign) for row, sign in live_changes for span in spans if span.low < row[POSITION] <= span.high
        ]
        if path_changes:
            yield from execute(
                "session_count", session=session, messages=sum(sign for _, sign in path_changes),
                tokens=sum(sign * row[TOKENS] for row, sign in path_changes),
                input_tokens=sum(sign * (row[INPUT] or 0) for row, sign in path_changes),
                output_tokens=sum(sign * (row[OUTPUT] or 0) for row, sign in path_changes),
                newest=max(row[CREATED] for row, _ in path_changes),
            )  # fmt: skip


def _replace_message(scope: Scope, tree: int, batch: ImportBatch, old_row: Row, row: Row) -> Steps[None]:
    """Replace an unfinished message by the one in the file."""
    columns = {name: row[index] for name, index in _MESSAGE_COLUMNS.items()}
    yield from search.invalidate_message(scope, batch.branch, row[POSITION])
    yield from execute("message_write", branch=batch.branch, position=row[POSITION], **columns)
    yield from execute_many("blob_release", [(scope.owner, name) for name in blob_names(old_row)])
    yield from _store_blobs(scope, batch, row)
    new_row = (*row[:DELETED], old_row[DELETED])
    yield from _adjust_counts(tree, batch.branch, [(old_row, -1), (new_row, 1)])
    yield from _insert_pins(batch.branch, [row])


def _write_turn(batch: ImportBatch, turn: dict[str, Any]) -> Steps[None]:
    position, status = turn["position"], turn["status"]
    if not (yield from is_newer_turn(batch, turn)):
        return
    is_open = status == "open"
    yield from execute(
        "turn_import",
        branch=batch.branch,
        **turn,
        holder=IMPORT_HOLDER if is_open else None,
        lease_until=0 if is_open else None,
    )
    if batch.session is None:
        return
    if is_open and (yield from fetch_one("branch_open", branch=batch.branch)) is None:
        yield from leases.claim_branch(batch.session, batch.branch, position)
    elif not is_open:
        yield from leases.release_branch(batch.session, batch.branch, position)


def _write_calls(batch: ImportBatch) -> Steps[None]:
    new = yield from new_calls(batch)
    yield from execute_many("tool_call_insert", [(batch.branch, *row[:6], row[2], *row[6:]) for row in new])


def _write_compaction(branch: int, compaction: dict[str, Any]) -> Steps[None]:
    if (yield from find_same_compaction(branch, compaction)) is None:
        yield from execute("compaction_import", branch=branch, **compaction)
    elif compaction["undone_at"] is not None:
        key = {name: compaction[name] for name in (*COMPACTION_KEY, "undone_at")}
        yield from execute("compaction_retract", branch=branch, **key)


def store_snapshots(session: int, snapshots: Sequence[dict[str, Any]]) -> Operation[None]:
    """Write the snapshots that a session lacks."""
    return Operation(_store_snapshots, session, snapshots)


def _store_snapshots(session: int, snapshots: Sequence[dict[str, Any]]) -> Steps[None]:
    for snapshot in (yield from new_snapshots(session, snapshots)):
        yield from execute("snapshot_import", session=session, **snapshot)


def link_parent(scope: Scope, session: str, parent: str) -> Operation[None]:
    """Set the parent of a session, once both exist."""
    return Operation(_link_parent, scope, session, parent)


def _link_parent(scope: Scope, session: str, parent: str) -> Steps[None]:
    yield from execute("session_link", owner=scope.owner, id=session, parent=parent)
