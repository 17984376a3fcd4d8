"""The stream of rows that copies, exports and imports share: its rows, and the operations that read it in pages.

An export encodes the rows as records of a file, an import decodes them, and a copy passes them on. The writer is in
transfer.py. Each operation reads one page in one transaction, from as many trees as fit: a page ends when it has
PAGE_ROWS rows or PAGE_BYTES bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from recollect.errors import SessionNotFound
from recollect.model import json, labels
from recollect.model.message import CallStatus, Role, UnfinishedState
from recollect.model.session import SnapshotKind
from recollect.model.value import json_fields
from recollect.storage import records, sessions
from recollect.storage.fast_paths import StoredSessionRow
from recollect.storage.leases import TURNS_OF_SPAN, TurnRow
from recollect.storage.messages import BLOB_GET
from recollect.storage.operation import Operation, Query, Scope, Steps, fetch_all, fetch_one, fetch_tuples
from recollect.storage.paths import BRANCH_GET, LAST_POSITION

# Bytes and rows per page. They bound the memory of an export and the size of a transaction.
PAGE_BYTES = 1_000_000
PAGE_ROWS = 512  # With 256, a copy to a file commits twice as often and takes 8% longer; with 1,024, it is not faster.
_LIST_ROWS = 64  # blobs, trees or links per query. The rows of about 30 short sessions fill a page.


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
    """The key; 0 in the stream."""
    id: str
    deleted_at: int | None
    created_at: int | None
    """None in a link of an import, whose sessions are not in the trash."""
    parent: str
    parent_deleted_at: int | None


class DeletedParentRow(NamedTuple):
    """A session whose parent is in the trash, and when the parent was deleted."""

    session: int
    deleted_at: int


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
SESSIONS_OUTLINE = Query("sessions_outline", StoredSessionRow)
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
SESSIONS_WITH_DELETED_PARENT = Query("sessions_with_deleted_parent", DeletedParentRow)

R = TypeVar("R", bound=tuple[Any, ...])
B = TypeVar("B", FullCallRow, FullSnapshotRow, KeyRow)
_STAGES: dict[str, tuple[Query[Any], str, int | str, Any]] = {
    "blobs": (BLOBS_AFTER, "hash", "", "trees"),
    "trees": (TREES_AFTER, "key", 0, "parents"),
    "parents": (SESSIONS_LINKED, "session", 0, "records"),
}
"""The lists of the stream: the query, the column of the key, the key before the first row, and the next stage.

The last stage, "records", reads the records of the store, as the last parts of a tree read those of its sessions.
"""
_RecordCursor = tuple[str, str]
"""The kind and the key of a record."""
_FIRST_RECORD: _RecordCursor = "", ""


class TreeOutline(NamedTuple):
    """The selected sessions of a tree by key, and all of its branches, a parent before its children."""

    sessions: dict[int, sessions.StoredSession]
    branches: list[BranchOutline]


class Blob(NamedTuple):
    """A blob with its payload."""

    row: BlobRow
    data: bytes


class TreeItem(NamedTuple):
    """The beginning of a tree: its sessions and branches. The items of its branches and sessions follow."""

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
    """They come with the last messages of the branch."""
    versions: Sequence[FullVersionRow]


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


PartKind = Literal["branch", "session", "session records"]
"""The kinds of parts, in the order of the alphabet and of the stream."""


class TreePart(NamedTuple):
    """The rows of a branch or of a session that remain to be read."""

    kind: PartKind
    number: int
    """The number of the branch, or the index of the session in those of its tree."""
    after: int | str | _RecordCursor | None
    """The last position, idempotency key or record that was read; None to omit the idempotency keys of a session."""
    session: str
    key: int
    high: int = LAST_POSITION
    """The last position to read on a branch."""


class TreeRest(NamedTuple):
    """The parts of a tree that remain to be read, and the numbers by key of the branches that their rows may name."""

    parts: Sequence[TreePart]
    numbers: Mapping[int, int]


class StreamPosition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A position in the stream of a store, as the journal of a copy stores it."""

    stage: Literal["blobs", "trees", "parents", "records", "end"] = "blobs"
    after: int | str | _RecordCursor | None = None
    """The key of the last row of the stage; None at its beginning."""
    part: tuple[PartKind, int, int | str | _RecordCursor | None] | None = None
    """The first fields of the part that comes next in the tree `after`; None at the end of the tree."""


class StreamPage(NamedTuple):
    """A page of a tree or of a whole store, and where the next page begins."""

    items: list[StreamItem]
    rest: TreeRest | None
    """What remains of the current tree."""
    position: StreamPosition = StreamPosition()

    @property
    def progress(self) -> int:
        """The number of messages and blobs."""
        return sum(
            len(item.messages) if isinstance(item, BranchItem) else isinstance(item, Blob) for item in self.items
        )


def list_created_sessions(scope: Scope, at: int, key: int) -> Operation[list[CreatedSessionRow]]:
    """Read a page of all sessions that are not in the trash, the oldest first, after a time and a key."""
    params = {"owner": scope.owner, "at": at, "key": key, "limit": PAGE_ROWS}
    return Operation(_read_rows, SESSIONS_CREATED_AFTER, params, writes=False)


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
    for row in (yield from fetch_all(SESSIONS_OUTLINE, tree=key)):
        session = sessions.stored_from_row(row)
        if (deleted or session.value.deleted_at is None) and (ids is None or row.id in ids):
            selection[row.session] = session
    return TreeOutline(selection, (yield from fetch_all(BRANCHES_OUTLINE, tree=key)))


def read_blob(scope: Scope, name: str) -> Operation[bytes | None]:
    """Read the payload of a blob, or None."""
    return Operation(_read_blob, scope, name, writes=False)


def _read_blob(scope: Scope, name: str) -> Steps[bytes | None]:
    row = yield from fetch_one(BLOB_GET, owner=scope.owner, hash=name)
    return None if row is None else row.data


def read_message(branch: int, position: int) -> Operation[list[FullMessageRow]]:
    """Read the row of a message, if it exists."""
    return Operation(_read_rows, MESSAGE_ROW, {"branch": branch, "position": position}, writes=False)


def read_compactions(branch: int, high: int) -> Operation[list[FullCompactionRow]]:
    """Read the compactions of a branch up to a position, in the order in which they were made."""
    return Operation(_read_rows, COMPACTIONS_OUTLINE, {"branch": branch, "high": high}, writes=False)


def _read_rows(query: Query[R], params: dict[str, Any]) -> Steps[list[R]]:
    return (yield from fetch_all(query, **params))


def read_rest(scope: Scope, rest: TreeRest, *, deleted: bool) -> Operation[StreamPage]:
    """Read the next page of a tree. Without deleted messages, also without replaced versions."""
    return Operation(_read_rest, scope, rest, deleted, writes=False)


def _read_rest(scope: Scope, rest: TreeRest, deleted: bool) -> Steps[StreamPage]:
    reader = _PageReader(scope)
    return StreamPage(reader.items, (yield from reader.read_rest(rest, deleted=deleted)))


class RecordPage(NamedTuple):
    """A page of keyed records, and the kind and key after which the next page begins."""

    records: list[FullRecordRow]
    more: _RecordCursor | None


def read_records(scope: Scope, session: int, after: _RecordCursor | None) -> Operation[RecordPage]:
    """Read the next page of the records of a session or of the store: up to PAGE_ROWS rows and about PAGE_BYTES bytes.

    `session` is the key of the session, or records.STORE.
    """
    return Operation(_read_records, scope, session, after, writes=False)


def _read_records(scope: Scope, session: int, after: _RecordCursor | None) -> Steps[RecordPage]:
    kind, key = after or _FIRST_RECORD
    span = {"owner": scope.owner, "session": session, "kind": kind, "key": key.encode(errors="surrogateescape")}
    sizes = yield from fetch_all(_RECORDS_SIZES, **span, limit=PAGE_ROWS)
    if not sizes:
        return RecordPage([], None)
    total_sizes = accumulate(row.size for row in sizes)
    count = next((count for count, size in enumerate(total_sizes, 1) if size > PAGE_BYTES), len(sizes))
    last = sizes[count - 1]
    rows = yield from fetch_all(_RECORDS_ROWS, **span, last_kind=last.kind, last_key=last.key)
    has_more = count < len(sizes) or len(sizes) == PAGE_ROWS
    return RecordPage(rows, (last.kind, last.key.decode(errors="surrogateescape")) if has_more else None)


def read_stream(scope: Scope, page: StreamPage) -> Operation[StreamPage]:
    """Read the page of a whole store that follows another one: blobs, trees, links to parents, records."""
    return Operation(_read_stream, scope, page, writes=False)


def _read_stream(scope: Scope, page: StreamPage) -> Steps[StreamPage]:
    return (yield from _StreamReader(scope, page).read())


class _PageReader:
    """Reads rows until they fill a page."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.items: list[StreamItem] = []
        self._rows = self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._rows >= PAGE_ROWS or self._bytes >= PAGE_BYTES

    def add(self, item: StreamItem, rows: int, bytes: int = 0) -> None:
        self.items.append(item)
        self._rows += rows
        self._bytes += bytes

    def read_rest(self, rest: TreeRest, *, deleted: bool) -> Steps[TreeRest | None]:
        """Read the parts of a tree, and return what remains of it when the page is full."""
        for index, part in enumerate(rest.parts):
            following: TreePart | None = part
            while following is not None:
                if self.is_full:
                    return rest._replace(parts=[following, *rest.parts[index + 1 :]])
                self._rows += 1  # so that a page of empty parts ends
                if part.kind == "branch":
                    following = yield from self._read_branch(following, rest.numbers, deleted)
                elif part.kind == "session":
                    following = yield from self._read_session(following, rest.numbers)
                else:
                    following = yield from self._read_session_records(following)
        return None

    def _read_branch(self, part: TreePart, numbers: Mapping[int, int], deleted: bool) -> Steps[TreePart | None]:
        span: dict[str, Any] = {"branch": part.key, "low": part.after, "high": part.high}
        sizes = yield from fetch_tuples(MESSAGES_SIZES, **span, limit=PAGE_ROWS, deleted=deleted)
        if not sizes and (yield from fetch_one(BRANCH_GET, branch=part.key)) is None:
            raise SessionNotFound(session=part.session)  # erased since the outline of its tree was read
        for count, (position, size) in enumerate(sizes, 1):
            self._bytes += size
            if self._bytes > PAGE_BYTES or count == PAGE_ROWS:
                span["high"] = position
                break
        is_last = span["high"] == part.high
        messages = yield from fetch_all(MESSAGES_ROWS, **span, deleted=deleted)
        turns = yield from fetch_all(TURNS_OF_SPAN, **span)
        calls = _with_numbers((yield from fetch_all(TOOL_CALLS_OF_SPAN, **span)), numbers)
        pins = yield from fetch_all(PINS_OF_SPAN, **span)
        versions = (yield from fetch_all(VERSIONS_OF_SPAN, **span)) if deleted else []
        compactions: list[FullCompactionRow] = []
        if is_last:
            compactions = yield from fetch_all(COMPACTIONS_OUTLINE, branch=part.key, high=part.high)
        if rows := len(messages) + len(turns) + len(calls) + len(pins) + len(compactions) + len(versions):
            item = BranchItem(part.session, part.number, messages, turns, calls, pins, compactions, versions)
            self.add(item, rows, sum(len(row.summary) for row in compactions))
        return None if is_last else part._replace(after=span["high"])

    def _read_session(self, part: TreePart, numbers: Mapping[int, int]) -> Steps[TreePart | None]:
        """Read the snapshots of a session and the first page of its idempotency keys, or another page of these."""
        snapshots: list[FullSnapshotRow] = []
        keys: list[KeyRow] = []
        if not part.after:
            rows = yield from fetch_all(SNAPSHOTS_OUTLINE, session=part.key)
            snapshots = _with_numbers(rows, numbers)
        if part.after is not None:
            keys = yield from fetch_all(APPENDS_AFTER, session=part.key, after=part.after, limit=PAGE_ROWS)
        if snapshots or keys:
            item = SessionItem(part.session, part.number, snapshots, _with_numbers(keys, numbers), ())
            self.add(item, len(snapshots) + len(keys), sum(len(row.content) for row in snapshots))
        return part._replace(after=keys[-1].key) if len(keys) == PAGE_ROWS else None

    def _read_session_records(self, part: TreePart) -> Steps[TreePart | None]:
        rows, after = yield from self.read_records(part.key, part.after)
        if rows:
            self.items.append(SessionItem(part.session, part.number, (), (), rows))
        return part._replace(after=after) if after is not None else None

    def read_records(self, session: int, after: Any) -> Steps[RecordPage]:
        """Read a page of records of a session or of the store, and count its rows and bytes."""
        page = yield from _read_records(self.scope, session, after)
        self._rows += len(page.records)
        self._bytes += sum(len(row.value or "") + len(row.data or b"") for row in page.records)
        return page


def _with_numbers(rows: list[B], numbers: Mapping[int, int]) -> list[B]:
    """Replace the keys of branches by their numbers, and omit the rows of other branches, such as erased ones."""
    return [row._replace(branch=numbers[row.branch]) for row in rows if row.branch in numbers]


class _StreamReader(_PageReader):
    """Reads a page of the stream of a store."""

    def __init__(self, scope: Scope, page: StreamPage) -> None:
        super().__init__(scope)
        _, self._rest, self._position = page

    def read(self) -> Steps[StreamPage]:
        yield from self._continue_tree()
        while not self.is_full and self._position.stage in _STAGES:
            query, column, first, next_stage = _STAGES[self._position.stage]
            after = first if self._position.after is None else self._position.after
            rows = yield from fetch_all(query, owner=self.scope.owner, after=after, limit=_LIST_ROWS)
            for row in rows:
                self._position = StreamPosition(self._position.stage, getattr(row, column))
                yield from self._read_row(row)
                if self.is_full:
                    break
            else:
                if len(rows) < _LIST_ROWS:
                    self._position = StreamPosition(next_stage)
        while not self.is_full and self._position.stage == "records":
            yield from self._read_store_records()
        return StreamPage(self.items, self._rest, self._position)

    def _read_store_records(self) -> Steps[None]:
        rows, after = yield from self.read_records(records.STORE, self._position.after)
        if rows := [row for row in rows if row.kind != records.COPY_KIND]:
            self.items.append(StoreItem(rows))
        self._position = StreamPosition("end") if after is None else StreamPosition("records", after)

    def _read_row(self, row: BlobRow | CountedTreeRow | ParentRow) -> Steps[None]:
        if isinstance(row, BlobRow):
            data = yield from _read_blob(self.scope, row.hash)
            if data is not None:
                self.add(Blob(row, data), 1, row.size)
        elif isinstance(row, CountedTreeRow):
            item, self._rest = yield from _read_whole_tree(row)
            self.add(item, 0)  # its sessions and branches are parts
            yield from self._continue_tree()
        else:
            self.add(row._replace(session=0), 1)

    def _continue_tree(self) -> Steps[None]:
        stage, tree, first = self._position.stage, self._position.after, self._position.part
        if self._rest is None and first is not None and isinstance(tree, int):
            _, (parts, numbers) = yield from _read_whole_tree(CountedTreeRow(tree, 0))
            parts = [part for part in parts if part[:2] >= first[:2]]
            if parts and parts[0][:2] == first[:2]:
                parts[0] = parts[0]._replace(after=first[2])
            self._rest = TreeRest(parts, numbers)
        if self._rest is not None:
            self._rest = yield from self.read_rest(self._rest, deleted=True)
            self._position = StreamPosition(stage, tree, self._rest and self._rest.parts[0][:3])


def _read_whole_tree(tree: CountedTreeRow) -> Steps[tuple[TreeItem, TreeRest]]:
    """Read the outline of a tree, also with the sessions in the trash."""
    outline = yield from _read_tree(tree.key, None, deleted=True)
    deletions: dict[int, int] = {}
    if any(session.value.parent is not None for session in outline.sessions.values()):
        deletions = dict((yield from fetch_all(SESSIONS_WITH_DELETED_PARENT, tree=tree.key)))
    rows: list[dict[str, Any]] = []
    for key, session in outline.sessions.items():
        columns: dict[str, Any] = {**json_fields(session.value), "open_turns": session.open_turns}
        del columns["delegate_count"]
        columns["labels"] = labels.encode_labels(columns["labels"])
        if columns["metadata"] is not None:
            columns["metadata"] = json.encode(columns["metadata"])
        rows.append({**columns, "parent_deleted_at": deletions.get(key)})
    ordinals: dict[int | None, int] = {key: ordinal for ordinal, key in enumerate(outline.sessions)}
    numbers = {branch.key: branch.number for branch in outline.branches}
    item = TreeItem(tree.branches, rows, [])
    parts: list[TreePart] = []
    for branch in outline.branches:
        parent = None if branch.parent is None else numbers.get(branch.parent)
        item.branches.append(branch._replace(key=0, session=ordinals.get(branch.session), parent=parent))
        parts.append(TreePart("branch", branch.number, 0, item.session_of(item.branches[-1]), branch.key))
    for ordinal, (key, session) in enumerate(outline.sessions.items()):
        parts.append(TreePart("session", ordinal, "", session.value.id, key))
    for ordinal, (key, session) in enumerate(outline.sessions.items()):
        parts.append(TreePart("session records", ordinal, _FIRST_RECORD, session.value.id, key))
    return item, TreeRest(parts, numbers)
