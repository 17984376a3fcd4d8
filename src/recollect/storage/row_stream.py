"""The stream of rows that copies, exports and imports share: its rows, and the operations that read it in pages.

An export encodes the rows as records of a file, an import decodes them, and a copy passes them on. The writer is in
transfer.py. Reading is bounded: a page has up to PAGE_ROWS rows and about PAGE_BYTES bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from recollect.errors import SessionNotFound
from recollect.model import json, labels
from recollect.model.message import CallStatus, Role, UnfinishedState
from recollect.model.session import SnapshotKind
from recollect.storage import sessions
from recollect.storage.leases import TURNS_OF_SPAN, TurnRow
from recollect.storage.messages import BLOB_GET, SESSIONS_OF_TREE
from recollect.storage.operation import Operation, Query, Scope, Steps, fetch_all, fetch_one
from recollect.storage.paths import BRANCH_GET

R = TypeVar("R", bound=tuple[Any, ...])

# Bytes and rows per page. They bound the memory of an export and the size of a transaction.
PAGE_BYTES = 1_000_000
PAGE_ROWS = 256  # messages


class FullMessageRow(NamedTuple):
    """All columns of a message, by its position on its branch."""

    position: int
    turn: int | None
    role: Role
    state: UnfinishedState | None
    tokens: int
    input_tokens: int | None
    output_tokens: int | None
    created_at: int
    completed_at: int | None
    format: str | None
    model: str | None
    error: str | None
    metadata: str | None
    native: str | None
    blobs: str | None
    parts: str
    client_key: str | None
    edited_at: int | None
    deleted_at: int | None

    @property
    def blob_names(self) -> list[str]:
        """The hashes of the blobs that the message refers to."""
        return [] if self.blobs is None else json.decode(self.blobs)


class FullVersionRow(NamedTuple):
    """All columns of an earlier version of a message, by the position of the message."""

    position: int
    version: int
    replaced_at: int
    role: Role
    state: UnfinishedState | None
    tokens: int
    input_tokens: int | None
    output_tokens: int | None
    completed_at: int | None
    format: str | None
    model: str | None
    error: str | None
    metadata: str | None
    native: str | None
    blobs: str | None
    parts: str

    @property
    def blob_names(self) -> list[str]:
        """The hashes of the blobs that the version refers to."""
        return [] if self.blobs is None else json.decode(self.blobs)


class FullCallRow(NamedTuple):
    """All columns of a tool call, by the position of its message, and as seen from a branch."""

    position: int
    part: int
    branch: int
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


class FullCompactionRow(NamedTuple):
    """All columns of a compaction on its branch."""

    from_position: int
    to_position: int
    round: int
    tokens_before: int
    tokens_after: int
    summary: str
    created_at: int
    undone_at: int | None


class FullSnapshotRow(NamedTuple):
    """All columns of a snapshot of its session."""

    kind: SnapshotKind
    content: str
    branch: int
    position: int
    tokens: int
    created_at: int
    updated_at: int


class KeyRow(NamedTuple):
    """All columns of an idempotency key of its session."""

    key: str
    digest: bytes
    branch: int
    position: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]  the column name
    created_at: int


class FullRecordRow(NamedTuple):
    """All columns of a keyed record of its session or of the store."""

    kind: str
    key: bytes
    revision: int
    created_at: int
    updated_at: int
    value: str | None
    data: bytes | None


class RecordSizeRow(NamedTuple):
    """The name of a keyed record, and its size in bytes."""

    kind: str
    key: bytes
    size: int


class BlobRow(NamedTuple):
    """All columns of a blob except its payload."""

    hash: str
    size: int
    refs: int
    created_at: int


class ParentRow(NamedTuple):
    """A session with a parent, and the parent. The time of deletion tells apart sessions with the same id."""

    session: int
    id: str
    deleted_at: int | None
    created_at: int | None
    """None in a link of an import, whose sessions are not in the trash."""
    parent: str
    parent_deleted_at: int | None


class CountedTreeRow(NamedTuple):
    """A tree, and the highest number that was given to one of its branches."""

    key: int
    branches: int


class BranchOutline(NamedTuple):
    """A branch of a tree, by keys and by number."""

    key: int
    number: int
    session: int | None
    parent: int | None
    fork_at: int
    last: int
    created_at: int
    column_last: int
    """The column `last`, which is out of date for the head of a session."""
    open_turn: int | None


class CreatedSessionRow(NamedTuple):
    """A session in the order of creation."""

    created_at: int
    key: int
    id: str
    tree: int


class MessageSizeRow(NamedTuple):
    """The size of a message in bytes."""

    position: int
    size: int


class PinRow(NamedTuple):
    """The position of a pinned message."""

    position: int


SESSIONS_CREATED_AFTER = Query("sessions_created_after", CreatedSessionRow)
TREES_AFTER = Query("trees_after", CountedTreeRow)
BRANCHES_OUTLINE = Query("branches_outline", BranchOutline)
MESSAGES_SIZES = Query("messages_sizes", MessageSizeRow)
MESSAGES_ROWS = Query("messages_rows", FullMessageRow)
MESSAGE_ROW = Query("message_row", FullMessageRow)
VERSIONS_OF_SPAN = Query("message_versions_of_span", FullVersionRow)
TOOL_CALLS_OF_SPAN = Query("tool_calls_of_span", FullCallRow)
PINS_OF_SPAN = Query("pins_of_span", PinRow)
COMPACTIONS_OUTLINE = Query("compactions_outline", FullCompactionRow)
SNAPSHOTS_OUTLINE = Query("snapshots_outline", FullSnapshotRow)
APPENDS_AFTER = Query("appends_after", KeyRow)
BLOBS_AFTER = Query("blobs_after", BlobRow)
_RECORDS_SIZES = Query("records_sizes", RecordSizeRow)
_RECORDS_ROWS = Query("records_rows", FullRecordRow)
SESSIONS_LINKED = Query("sessions_linked", ParentRow)


class SessionIdPage(NamedTuple):
    """A page of sessions as (id, tree), oldest first, and the cursor of the next page."""

    sessions: list[tuple[str, int]]
    more: tuple[int, int] | None


class TreeOutline(NamedTuple):
    """The selected sessions of a tree by key, and all of its branches, a parent before its children."""

    key: int
    sessions: dict[int, sessions.StoredSession]
    branches: list[BranchOutline]


class BranchPage(NamedTuple):
    """A page of a branch, and the position after which the next page begins."""

    messages: list[FullMessageRow]
    turns: list[TurnRow]
    calls: list[FullCallRow]
    pins: list[PinRow]
    versions: list[FullVersionRow]
    more: int | None


class Blob(NamedTuple):
    """A blob with its payload."""

    row: BlobRow
    data: bytes


def list_session_ids(scope: Scope, after: tuple[int, int] | None) -> Operation[SessionIdPage]:
    """Read a page of all sessions that are not in the trash, the oldest first."""
    return Operation(_list_session_ids, scope, after or (-1, -1), writes=False)


def _list_session_ids(scope: Scope, after: tuple[int, int]) -> Steps[SessionIdPage]:
    at, key = after
    rows = yield from fetch_all(SESSIONS_CREATED_AFTER, owner=scope.owner, at=at, key=key, limit=PAGE_ROWS)
    more = (rows[-1].created_at, rows[-1].key) if len(rows) == PAGE_ROWS else None
    return SessionIdPage([(row.id, row.tree) for row in rows], more)


def read_rows(query: Query[R], **params: Any) -> Operation[list[R]]:
    """Run one query, such as TREES_AFTER, and return its rows."""
    return Operation(_read_rows, query, params, writes=False)


def _read_rows(query: Query[R], params: dict[str, Any]) -> Steps[list[R]]:
    return (yield from fetch_all(query, **params))


def find_trees(scope: Scope, ids: Sequence[str]) -> Operation[dict[str, int]]:
    """Return the tree of each session; raise SessionNotFound for a missing one."""
    return Operation(_find_trees, scope, ids, writes=False)


def _find_trees(scope: Scope, ids: Sequence[str]) -> Steps[dict[str, int]]:
    trees: dict[str, int] = {}
    for id in ids:
        trees[id] = (yield from sessions.find(scope, id)).tree
    return trees


def read_tree(key: int, ids: frozenset[str] | None) -> Operation[TreeOutline]:
    """Read the outline of a tree, with the sessions in `ids`, or with all of them, without those in the trash."""
    return Operation(_read_tree, key, ids, writes=False)


def _read_tree(key: int, ids: frozenset[str] | None, *, deleted: bool = False) -> Steps[TreeOutline]:
    selection: dict[int, sessions.StoredSession] = {}
    for row in (yield from fetch_all(SESSIONS_OF_TREE, tree=key)):
        if (deleted or row.deleted_at is None) and (ids is None or row.id in ids):
            selection[row.session] = yield from sessions.read_by_key(row.session)
    return TreeOutline(key, selection, (yield from fetch_all(BRANCHES_OUTLINE, tree=key)))


def read_branch_page(session: str, branch: int, low: int, high: int, *, deleted: bool) -> Operation[BranchPage]:
    """Read the next page of a branch after a position: up to PAGE_ROWS rows and PAGE_BYTES bytes, at least one row."""
    return Operation(_read_branch_page, session, branch, low, high, deleted, writes=False)


def _read_branch_page(session: str, branch: int, low: int, high: int, deleted: bool) -> Steps[BranchPage]:
    if (yield from fetch_one(BRANCH_GET, branch=branch)) is None:
        raise SessionNotFound(session=session)
    sizes = yield from fetch_all(MESSAGES_SIZES, branch=branch, low=low, high=high, limit=PAGE_ROWS, deleted=deleted)
    total, end = 0, high
    for index, (position, size) in enumerate(sizes):
        total += size
        if index == PAGE_ROWS - 1 or total > PAGE_BYTES:
            end = position
            break
    span = {"branch": branch, "low": low, "high": end}
    rows = yield from fetch_all(MESSAGES_ROWS, **span, deleted=deleted)
    turns = yield from fetch_all(TURNS_OF_SPAN, **span)
    calls = yield from fetch_all(TOOL_CALLS_OF_SPAN, **span)
    pins = yield from fetch_all(PINS_OF_SPAN, **span)
    # A file without deleted messages does not contain replaced content either.
    versions = (yield from fetch_all(VERSIONS_OF_SPAN, **span)) if deleted else []
    return BranchPage(rows, turns, calls, pins, versions, end if end < high else None)


def read_blob(scope: Scope, name: str) -> Operation[bytes | None]:
    """Read the payload of a blob, or None."""
    return Operation(_read_blob, scope, name, writes=False)


def _read_blob(scope: Scope, name: str) -> Steps[bytes | None]:
    row = yield from fetch_one(BLOB_GET, owner=scope.owner, hash=name)
    return None if row is None else row.data


def read_compactions(branch: int, high: int) -> Operation[list[FullCompactionRow]]:
    """Read the compactions of a branch up to a position, in the order in which they were made."""
    return read_rows(COMPACTIONS_OUTLINE, branch=branch, high=high)


def read_snapshots(session: int) -> Operation[list[FullSnapshotRow]]:
    """Read the snapshots of a session, in the order in which they were made."""
    return read_rows(SNAPSHOTS_OUTLINE, session=session)


class RecordPage(NamedTuple):
    """A page of keyed records, and the kind and key after which the next page begins."""

    records: list[FullRecordRow]
    more: tuple[str, bytes] | None


def read_records(scope: Scope, session: int, after: tuple[str, bytes] | None) -> Operation[RecordPage]:
    """Read the next page of the records of a session or of the store: up to PAGE_ROWS rows and about PAGE_BYTES bytes.

    `session` is the key of the session, or records.STORE.
    """
    return Operation(_read_records, scope, session, after or ("", b""), writes=False)


def _read_records(scope: Scope, session: int, after: tuple[str, bytes]) -> Steps[RecordPage]:
    span = {"owner": scope.owner, "session": session, "kind": after[0], "key": after[1]}
    sizes = yield from fetch_all(_RECORDS_SIZES, **span, limit=PAGE_ROWS)
    if not sizes:
        return RecordPage([], None)
    count = _count_page([row.size for row in sizes])
    last = sizes[count - 1]
    rows = yield from fetch_all(_RECORDS_ROWS, **span, last_kind=last.kind, last_key=last.key)
    has_more = count < len(sizes) or len(sizes) == PAGE_ROWS
    return RecordPage(rows, (last.kind, last.key) if has_more else None)


def _count_page(sizes: Sequence[int]) -> int:
    """Return how many of these rows fit on a page: at least one, and as many as have about PAGE_BYTES bytes."""
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if total > PAGE_BYTES:
            return count
    return len(sizes)


class TreeItem(NamedTuple):
    """The beginning of a tree: its sessions and branches. The items of its branches and sessions follow."""

    key: int
    branches_counted: int
    sessions: list[dict[str, Any]]
    """The columns of each session; `parent` is the id of the parent."""
    branches: list[BranchOutline]
    """The key of a branch is 0, its parent a number, and its session an index of `sessions`."""

    def session_of(self, branch: BranchOutline) -> str:
        """Return the id of the session of a branch, or of the first session if it has none."""
        if branch.session is None and not self.sessions:
            return ""
        return self.sessions[branch.session or 0]["id"]


class BranchItem(NamedTuple):
    """Rows of one branch. Branches are numbers, as everywhere in the stream."""

    session: str
    """The id of the session of the branch; of the first session of the tree if it has none."""
    number: int
    messages: Sequence[FullMessageRow]
    turns: Sequence[TurnRow]
    tool_calls: Sequence[FullCallRow]
    pins: Sequence[PinRow]
    compactions: Sequence[FullCompactionRow]
    versions: Sequence[FullVersionRow] = ()


class SessionItem(NamedTuple):
    """Rows of one session."""

    session: str
    ordinal: int
    """The index of the session in those of its tree, where several may have the same id."""
    snapshots: Sequence[FullSnapshotRow]
    keys: Sequence[KeyRow]
    records: Sequence[FullRecordRow]


class StoreItem(NamedTuple):
    """Rows that belong to no session."""

    records: Sequence[FullRecordRow]


StreamItem = Blob | TreeItem | BranchItem | SessionItem | ParentRow | StoreItem
"""An item of the stream of a whole store, without keys of the store, so that the stream of a copy is the same."""


def read_tree_item(scope: Scope, tree: CountedTreeRow) -> Operation[tuple[TreeOutline, TreeItem]]:
    """Read the outline of a tree with all of its sessions, and the item of the stream that it becomes."""
    return Operation(_read_tree_item, scope, tree, writes=False)


def _read_tree_item(scope: Scope, tree: CountedTreeRow) -> Steps[tuple[TreeOutline, TreeItem]]:
    outline = yield from _read_tree(tree.key, None, deleted=True)
    rows: list[dict[str, Any]] = []
    for key, session in outline.sessions.items():
        columns: dict[str, Any] = {**msgspec.structs.asdict(session.value), "open_turns": session.open_turns}
        del columns["delegate_count"]
        columns["labels"] = labels.encode_labels(columns["labels"])
        if columns["metadata"] is not None:
            columns["metadata"] = json.encode(columns["metadata"])
        if columns["parent"] is not None:
            link = yield from fetch_one(SESSIONS_LINKED, owner=scope.owner, after=key - 1, limit=1)
            columns["parent_deleted_at"] = None if link is None else link.parent_deleted_at
        rows.append(columns)
    ordinals: dict[int | None, int] = {key: ordinal for ordinal, key in enumerate(outline.sessions)}
    numbers: dict[int | None, int] = {branch.key: branch.number for branch in outline.branches}
    branches = [
        branch._replace(key=0, session=ordinals.get(branch.session), parent=numbers.get(branch.parent))
        for branch in outline.branches
    ]
    return outline, TreeItem(tree.key, tree.branches, rows, branches)
