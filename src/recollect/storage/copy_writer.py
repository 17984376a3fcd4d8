"""The writer of a copy: the items of the row stream, and a journal with which an interrupted copy resumes.

Unlike an import, a copy keeps everything that the source counts and refers to, and the target has nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from recollect.errors import Conflict, CopyConflict
from recollect.storage import imported_edits, messages, paths, records
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, execute_many, fetch_all, fetch_one
from recollect.storage.row_stream import (
    BRANCHES_OUTLINE,
    Blob,
    BranchItem,
    FullRecordRow,
    ParentRow,
    SessionItem,
    StreamItem,
    StreamPage,
    StreamPosition,
    TreeItem,
)
from recollect.storage.transfer import insert_rows, insert_session, insert_tree, write_link

JOURNAL_KEY = "journal"
"""The key of the record of the target that stores the journal of a copy. It is not copied."""


class CopySizeRow(NamedTuple):
    """About how many messages an owner has, and how many blobs."""

    messages: int
    blobs: int


_COPY_SIZE = Query("copy_size", CopySizeRow)
_BRANCH_COPY = Query("branch_copy", paths.BranchKeyRow)


class CopyJournal(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The journal of a copy in the target. An interrupted copy resumes at its position in the stream."""

    source: str
    position: StreamPosition = StreamPosition()
    tree: int = 0
    """The key in the target of the last tree that was begun."""
    count: int = 0
    """The number of copied messages and blobs."""


class CopyKeys(NamedTuple):
    """The keys in the target of the sessions of the current tree in order, and of its branches by number."""

    sessions: list[int]
    branches: dict[int, int]


class CopyState(NamedTuple):
    """The state of a copy after a page."""

    journal: CopyJournal
    keys: CopyKeys | None = None
    """None if they have yet to be read, as after an interruption."""


def copy_size(scope: Scope) -> Operation[CopySizeRow]:
    """Return about how many messages an owner has, and how many blobs."""
    return Operation(_copy_size, scope, writes=False)


def _copy_size(scope: Scope) -> Steps[CopySizeRow]:
    row = yield from fetch_one(_COPY_SIZE, owner=scope.owner)
    assert row is not None
    return row


def begin_copy(scope: Scope, source: str) -> Operation[CopyJournal | None]:
    """Begin or continue a copy; return None if the target contains data that is not from a copy.

    Raise Conflict if the journal has the format of another version.
    """
    return Operation(_begin_copy, scope, source)


def _begin_copy(scope: Scope, source: str) -> Steps[CopyJournal | None]:
    text = msgspec.json.encode(CopyJournal(source)).decode()
    name = {"kind": records.COPY_KIND, "key": JOURNAL_KEY.encode()}
    yield from execute("copy_begin", owner=scope.owner, **name, value=text, now=scope.now)
    return (yield from _read_journal(scope))


def _read_journal(scope: Scope) -> Steps[CopyJournal | None]:
    text = yield from records.get_own(scope, records.COPY_KIND, JOURNAL_KEY)
    try:
        return None if text is None else msgspec.json.decode(text, type=CopyJournal)
    except msgspec.ValidationError:
        raise Conflict(
            "The target holds a copy that another version of Recollect began. Copy into an empty database."
        ) from None


def copy_page(scope: Scope, before: CopyState, page: StreamPage) -> Operation[CopyState]:
    """Write a page of a copy and the journal in one transaction.

    Raise CopyConflict if another copy wrote to the target meanwhile.
    """
    return Operation(_copy_page, scope, before, page)


def _copy_page(scope: Scope, before: CopyState, page: StreamPage) -> Steps[CopyState]:
    yield from records.touch_own(scope, records.COPY_KIND, JOURNAL_KEY)  # locks the journal
    if (yield from _read_journal(scope)) != before.journal:
        raise CopyConflict
    writer = _CopyWriter(scope, before)
    try:
        for item in page.items:
            yield from writer.write(item)
    except LookupError:  # the sessions or branches of a tree that was begun are gone
        raise CopyConflict from None
    count = before.journal.count + page.progress
    journal = CopyJournal(before.journal.source, page.position, writer.tree, count)
    text = msgspec.json.encode(journal).decode()
    yield from records.put_own(scope, records.COPY_KIND, JOURNAL_KEY, text)
    return CopyState(journal, writer.keys)


class _CopyWriter:
    """Writes the items of one page, with the counts, reference counts and holders that they have in the source."""

    def __init__(self, scope: Scope, state: CopyState) -> None:
        self.scope = scope
        self.tree, self.keys = state.journal.tree, state.keys

    def write(self, item: StreamItem) -> Steps[None]:
        owner = self.scope.owner
        if isinstance(item, TreeItem):
            yield from self._write_tree(item)
        elif isinstance(item, BranchItem):
            yield from self._write_branch(item, (yield from self._read_keys()).branches)
        elif isinstance(item, SessionItem):
            yield from self._write_session(item, (yield from self._read_keys()))
        elif isinstance(item, Blob):
            yield from execute("blob_import", owner=owner, data=item.data, **item.row._asdict())
        elif isinstance(item, ParentRow):
            yield from write_link(self.scope, item)
        else:
            yield from self._write_records(records.STORE, item.records)

    def _read_keys(self) -> Steps[CopyKeys]:
        """Return the keys of the current tree; read them after an interruption."""
        if self.keys is None:
            session_rows = yield from fetch_all(messages.SESSIONS_OF_TREE, tree=self.tree)
            branches = yield from fetch_all(BRANCHES_OUTLINE, tree=self.tree)
            self.keys = CopyKeys(
                [row.session for row in session_rows], {branch.number: branch.key for branch in branches}
            )
        return self.keys

    def _write_tree(self, item: TreeItem) -> Steps[None]:
        tree = self.tree = yield from insert_tree(self.scope)
        yield from execute("tree_raise_branches", tree=tree, number=item.branches_counted)
        keys = [0] * len(item.sessions)
        for ordinal, columns in enumerate(item.sessions):
            keys[ordinal] = yield from insert_session(self.scope, tree, columns)
        branch_keys: dict[int, int] = {}
        for branch in item.branches:
            row = yield from fetch_one(
                _BRANCH_COPY, tree=tree, number=branch.number, fork_at=branch.fork_at, last=branch.column_last,
                session=None if branch.session is None else keys[branch.session],
                parent=None if branch.parent is None else branch_keys[branch.parent], open_turn=branch.open_turn,
                created_at=branch.created_at,
            )  # fmt: skip
            assert row is not None
            branch_keys[branch.number] = row.key
        last_positions = {branch.number: branch.last for branch in item.branches}
        for key, columns in zip(keys, item.sessions, strict=True):
            number = columns["branch"]
            if number in branch_keys:
                yield from execute("session_head", session=key, head=branch_keys[number], last=last_positions[number])
        self.keys = CopyKeys(keys, branch_keys)

    def _write_branch(self, item: BranchItem, keys: dict[int, int]) -> Steps[None]:
        branch = keys[item.number]
        calls = [call._replace(branch=keys[call.branch]) for call in item.tool_calls]
        yield from insert_rows(branch, item.messages, item.turns, calls)
        yield from imported_edits.write_versions(branch, item.versions)
        yield from execute_many("pin_insert", [(branch, pin.position) for pin in item.pins])
        for compaction in item.compactions:
            yield from execute("compaction_import", branch=branch, **compaction._asdict())

    def _write_session(self, item: SessionItem, keys: CopyKeys) -> Steps[None]:
        session, branches = keys.sessions[item.ordinal], keys.branches
        for row in item.snapshots:
            columns = row._replace(branch=branches[row.branch])._asdict()
            yield from execute("snapshot_import", session=session, **columns)
        rows = [(session, key, digest, branches[branch], *columns) for key, digest, branch, *columns in item.keys]
        yield from execute_many("append_copy", rows)
        yield from self._write_records(session, item.records)

    def _write_records(self, session: int, rows: Sequence[FullRecordRow]) -> Steps[None]:
        owner = self.scope.owner
        yield from execute_many("record_copy", [(owner, session, *columns) for columns in rows])
