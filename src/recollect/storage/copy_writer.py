"""The writer of a copy: the items of the row stream, and a journal with which an interrupted copy resumes.

Unlike an import, a copy keeps everything that the source counts and refers to, and the target has nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import CopyConflict
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
    TreeItem,
)
from recollect.storage.transfer import (
    RowBatch,
    insert_rows,
    insert_session,
    insert_tree,
    stored_rows,
    write_link,
    write_snapshots,
)

JOURNAL_KEY = "journal"
"""The key of the record of the target that stores the journal of a copy. It is not copied."""


class CopySizeRow(NamedTuple):
    """About how many messages an owner has, and how many blobs."""

    messages: int
    blobs: int


_COPY_SIZE = Query("copy_size", CopySizeRow)
_BRANCH_COPY = Query("branch_copy", paths.BranchKeyRow)


class CopyJournal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The journal of a copy in the target. An interrupted copy resumes after its blob and position."""

    source: str
    blob: str = ""
    """The hash of the last blob."""
    tree: int = 0
    """The last tree of the source that was begun."""
    target: int = 0
    """Its key in the target."""
    branch: int = 0
    """The number of the last branch that was begun in the tree."""
    low: int = 0
    """The last position that was written on the branch."""
    count: int = 0
    """The number of copied messages and blobs."""
    done: bool = False


class CopyKeys(NamedTuple):
    """The keys in the target of the sessions of the current tree in order, and of its branches by number."""

    sessions: list[int]
    branches: dict[int, int]
    may_have_rows: bool
    """Whether an earlier copy began the tree, so that some rows may exist."""


class CopyState(NamedTuple):
    """The state of a copy after a batch."""

    journal: CopyJournal
    keys: CopyKeys = CopyKeys([], {}, may_have_rows=False)


def copy_size(scope: Scope) -> Operation[CopySizeRow]:
    """Return about how many messages an owner has, and how many blobs."""
    return Operation(_copy_size, scope, writes=False)


def _copy_size(scope: Scope) -> Steps[CopySizeRow]:
    row = yield from fetch_one(_COPY_SIZE, owner=scope.owner)
    assert row is not None
    return row


def begin_copy(scope: Scope, source: str) -> Operation[CopyJournal | None]:
    """Begin or continue a copy; return None if the target contains data that is not from a copy."""
    return Operation(_begin_copy, scope, source)


def _begin_copy(scope: Scope, source: str) -> Steps[CopyJournal | None]:
    text = msgspec.json.encode(CopyJournal(source)).decode()
    name = {"kind": records.COPY_KIND, "key": JOURNAL_KEY.encode()}
    yield from execute("copy_begin", owner=scope.owner, **name, value=text, now=scope.now)
    return (yield from _read_journal(scope))


def _read_journal(scope: Scope) -> Steps[CopyJournal | None]:
    text = yield from records.get_own(scope, records.COPY_KIND, JOURNAL_KEY)
    return None if text is None else msgspec.json.decode(text, type=CopyJournal)


def copy_items(
    scope: Scope, before: CopyState, items: Sequence[StreamItem], *, done: bool = False
) -> Operation[CopyState]:
    """Write a batch of a copy and its journal in one transaction. Rows that exist are skipped.

    Raise CopyConflict if another copy wrote to the target meanwhile.
    """
    return Operation(_copy_items, scope, before, items, done)


def _copy_items(scope: Scope, before: CopyState, items: Sequence[StreamItem], done: bool) -> Steps[CopyState]:
    yield from records.touch_own(scope, records.COPY_KIND, JOURNAL_KEY)  # locks the journal
    if (yield from _read_journal(scope)) != before.journal:
        raise CopyConflict
    writer = _CopyWriter(scope, before)
    for item in items:
        yield from writer.write(item)
    journal = msgspec.structs.replace(writer.journal, done=done)
    text = msgspec.json.encode(journal).decode()
    yield from records.put_own(scope, records.COPY_KIND, JOURNAL_KEY, text)
    return CopyState(journal, writer.keys)


class _CopyWriter:
    """Writes the items of one batch, with the counts, reference counts and holders that they have in the source."""

    def __init__(self, scope: Scope, state: CopyState) -> None:
        self.scope = scope
        self.journal, self.keys = state

    def write(self, item: StreamItem) -> Steps[None]:
        try:
            yield from self._write(item)
        except LookupError:  # the sessions or branches of a tree that was begun are gone
            raise CopyConflict from None

    def _write(self, item: StreamItem) -> Steps[None]:
        owner = self.scope.owner
        if isinstance(item, TreeItem):
            yield from self._begin_tree(item)
        elif isinstance(item, BranchItem):
            yield from self._write_branch(item)
        elif isinstance(item, SessionItem):
            yield from self._write_session(item)
        elif isinstance(item, Blob):
            yield from execute("blob_import", owner=owner, data=item.data, **item.row._asdict())
            self._advance(1, blob=item.row.hash)
        elif isinstance(item, ParentRow):
            yield from write_link(self.scope, item)
        else:
            yield from self._write_records(records.STORE, item.records)

    def _advance(self, count: int, **position: Any) -> None:
        self.journal = msgspec.structs.replace(self.journal, count=self.journal.count + count, **position)

    def _begin_tree(self, item: TreeItem) -> Steps[None]:
        if item.key == self.journal.tree:
            session_rows = yield from fetch_all(messages.SESSIONS_OF_TREE, tree=self.journal.target)
            branches = yield from fetch_all(BRANCHES_OUTLINE, tree=self.journal.target)
            numbers = {branch.number: branch.key for branch in branches}
            self.keys = CopyKeys([row.session for row in session_rows], numbers, may_have_rows=True)
            return
        tree = yield from insert_tree(self.scope)
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
        self.keys = CopyKeys(keys, branch_keys, may_have_rows=False)
        self._advance(0, tree=item.key, target=tree, branch=0, low=0)

    def _write_branch(self, item: BranchItem) -> Steps[None]:
        keys = self.keys.branches
        calls = [call._replace(branch=keys[call.branch]) for call in item.tool_calls]
        batch = RowBatch(
            branch=keys[item.number], number=item.number, session=None, renew=False, messages=item.messages,
            turns=item.turns, calls=calls, compactions=item.compactions, payloads={},
        )  # fmt: skip
        new = item.messages
        if self.keys.may_have_rows:
            present = yield from stored_rows(batch.branch, item.messages)
            new = [row for row in new if row.position not in present]
        yield from insert_rows(batch, new, item.turns)
        yield from imported_edits.write_versions(batch.branch, item.versions)
        yield from execute_many("pin_insert", [(batch.branch, pin.position) for pin in item.pins])
        low = self.journal.low if self.journal.branch == item.number else 0
        low = item.messages[-1].position if item.messages else low
        self._advance(len(new), branch=item.number, low=low)

    def _write_session(self, item: SessionItem) -> Steps[None]:
        session, keys = self.keys.sessions[item.ordinal], self.keys.branches
        if item.snapshots:
            snapshots = [row._replace(branch=keys[row.branch]) for row in item.snapshots]
            yield from write_snapshots(session, snapshots)
        rows = [(session, key, digest, keys[branch], *columns) for key, digest, branch, *columns in item.keys]
        yield from execute_many("append_copy", rows)
        yield from self._write_records(session, item.records)

    def _write_records(self, session: int, rows: Sequence[FullRecordRow]) -> Steps[None]:
        owner = self.scope.owner
        yield from execute_many("record_copy", [(owner, session, *columns) for columns in rows])
