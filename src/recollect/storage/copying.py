"""Copies of a store, row by row: slices of a bounded size from one store into another, with a journal of the progress.

A slice is read from where the last one ended, and written in one transaction together with the journal. A copy that
was killed resumes at the cursor in the journal, and writes nothing twice. Rows have a form that both engines share: a
branch is its number in the tree, a session its ordinal in the tree; keys are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import CopyConflict
from recollect.storage import sessions
from recollect.storage.operation import Operation, Row, Scope, Steps, execute, execute_many, fetch_all, fetch_one
from recollect.storage.paths import LAST_POSITION
from recollect.storage.transfer import DELETED, PAGE_BYTES, POSITION

JOURNAL_KEY = "recollect.copy"
"""The setting that stores the journal of a copy; it is not copied."""

_SLICE_ROWS = 512  # rows per transaction, with PAGE_BYTES
_SESSION_COLUMNS = (
    "id", "branch", "last", "open_turns", "relation", "revision", "message_count", "token_count", "input_tokens",
    "output_tokens", "created_at", "updated_at", "active_at", "last_message_at", "pinned_at", "archived_at",
    "deleted_at", "status", "channel", "channel_id", "external_id", "title", "task", "provider", "provider_config",
    "model", "working_dir", "system_prompt", "color", "metadata", "data_schema_version",
)  # fmt: skip
ID, BRANCH, TITLE = 0, 1, _SESSION_COLUMNS.index("title")
_TURN_COLUMNS = (
    "position", "status", "started_at", "ended_at", "latency_ms", "input_tokens", "output_tokens", "model", "error",
    "holder", "lease_until",
)  # fmt: skip
_COMPACTION_COLUMNS = (
    "from_position", "to_position", "round", "tokens_before", "tokens_after", "summary", "created_at", "undone_at",
)  # fmt: skip


class CopyCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of the reader: the stage, the tree, the part of the tree, and the position in that part."""

    stage: str = "blobs"
    tree: int = 0
    part: str = ""
    place: int = 0
    """The number of the current branch, or the ordinal of the current session."""
    low: int = 0
    key: str = ""


class TreeHead(NamedTuple):
    """The outline of a tree: its branch counter, and its sessions and branches in order."""

    branches_counted: int
    sessions: list[Row]
    branches: list[Row]
    """Number, ordinal of the session, number of the parent, then the other columns."""


class SliceItem(NamedTuple):
    """Rows of one kind. `place` is the number of their branch, or the ordinal of their session, in the tree."""

    kind: str
    tree: int
    place: int
    rows: Sequence[Row]


class Slice(NamedTuple):
    """The rows that were read, and the cursor of the next slice."""

    items: list[SliceItem]
    cursor: CopyCursor
    messages: int


class SliceReader:
    """Reads one slice."""

    def __init__(self, owner: str, cursor: CopyCursor) -> None:
        self.owner = owner
        self.cursor = cursor
        self.items: list[SliceItem] = []
        self.messages = 0
        self._rows = 0
        self._bytes = 0
        self._outline: tuple[int, list[Row], list[Row]] = (0, [], [])

    def slice(self) -> Steps[Slice]:
        """Read until the slice is full, or to the end."""
        stages = {"blobs": self._blobs, "trees": self._trees, "links": self._links, "settings": self._settings}
        while self.cursor.stage in stages and not self._full:
            yield from stages[self.cursor.stage]()
        return Slice(self.items, self.cursor, self.messages)

    @property
    def _full(self) -> bool:
        return self._rows >= _SLICE_ROWS or self._bytes >= PAGE_BYTES

    def _add(self, kind: str, rows: Sequence[Row], place: int = 0, bytes: int = 0) -> None:
        if rows:
            self.items.append(SliceItem(kind, self.cursor.tree, place, rows))
            self._rows += len(rows)
            self._bytes += bytes

    def _blobs(self) -> Steps[None]:
        rows = yield from fetch_all("blobs_after", owner=self.owner, hash=self.cursor.key, limit=_SLICE_ROWS)
        for hash, size_, refs, created in rows:
            data = yield from fetch_one("blob_get", owner=self.owner, hash=hash)
            if data is not None:
                self._add("blob", [(hash, size_, refs, created, data[0])], bytes=size_)
            self.cursor = CopyCursor("blobs", key=hash)
            if self._full:
                return
        if len(rows) < _SLICE_ROWS:
            self.cursor = CopyCursor("trees")

    def _trees(self) -> Steps[None]:
        parts = {"": self._next_tree, "branch": self._branch, "session": self._session}
        yield from parts[self.cursor.part]()

    def _next_tree(self) -> Steps[None]:
        row = yield from fetch_one("tree_after", owner=self.owner, tree=self.cursor.tree)
        if row is None:
            self.cursor = CopyCursor("links")
            return
        self.cursor = CopyCursor("trees", row[0], "branch")
        session_rows, branches, ordinals, numbers = yield from self._read_outline()
        branch_rows = [
            (number, ordinals.get(session), numbers.get(parent), *columns[:-1])
            for number, session, parent, *columns in branches
        ]
        self._add("tree", [TreeHead(row[1], [session_row[1:] for session_row in session_rows], branch_rows)])
        self._rows += len(session_rows) + len(branch_rows)

    def _read_outline(self) -> Steps[tuple[list[Row], list[Row], dict[Any, int], dict[Any, int]]]:
        """Read the sessions and branches of the tree, with the ordinals and the numbers by key."""
        tree = self.cursor.tree
        if self._outline[0] != tree:
            session_rows = yield from fetch_all("sessions_full", tree=tree)
            self._outline = (tree, session_rows, (yield from fetch_all("branches_full", tree=tree)))
        _, session_rows, branches = self._outline
        ordinals = {row[0]: ordinal for ordinal, row in enumerate(session_rows, 1)}
        numbers = {row[-1]: row[0] for row in branches}
        return session_rows, branches, ordinals, numbers

    def _branch(self) -> Steps[None]:
        """Read the next span of the current branch."""
        _, branches, _, numbers = yield from self._read_outline()
        branch_row = next((row for row in branches if row[0] >= max(self.cursor.place, 1)), None)
        if branch_row is None:
            self.cursor = CopyCursor("trees", self.cursor.tree, "session")
            return
        number, key, low = branch_row[0], branch_row[-1], self.cursor.low if branch_row[0] == self.cursor.place else 0
        end = yield from self._end_of(key, low)
        span = {"branch": key, "low": low, "high": LAST_POSITION if end is None else end[0]}
        messages = yield from fetch_all("messages_rows", **span, deleted=True)
        self.messages += len(messages)
        self._add("messages", messages, number, 0 if end is None else end[1])
        self._add("turns", (yield from fetch_all("turns_full", **span)), number)
        calls = yield from fetch_all("tool_calls_of_span", **span)
        self._add("calls", [(*row[:2], numbers[row[2]], *row[3:]) for row in calls if row[2] in numbers], number)
        self._add("pins", (yield from fetch_all("pins_between", **span)), number)
        if end is not None and end[2]:
            self.cursor = CopyCursor("trees", self.cursor.tree, "branch", number, end[0])
            return
        self._add("compactions", (yield from fetch_all("compactions_full", branch=key)), number)
        self.cursor = CopyCursor("trees", self.cursor.tree, "branch", number + 1)

    def _end_of(self, branch: int, low: int) -> Steps[tuple[int, int, bool] | None]:
        """Return where a span ends: the position, its bytes, and whether more may follow."""
        sizes = yield from fetch_all(
            "messages_sizes", branch=branch, low=low, high=LAST_POSITION, limit=_SLICE_ROWS, deleted=True
        )
        total = 0
        for position, bytes_ in sizes:
            total += bytes_
            if total + self._bytes >= PAGE_BYTES:
                return position, total, True
        return (sizes[-1][0], total, True) if len(sizes) == _SLICE_ROWS else None

    def _session(self) -> Steps[None]:
        """Read the idempotency keys of a session, a page at a time, then its snapshots."""
        session_rows, _, _, numbers = yield from self._read_outline()
        ordinal = max(self.cursor.place, 1)
        if ordinal > len(session_rows):
            self.cursor = CopyCursor("trees", self.cursor.tree)
            return
        key = session_rows[ordinal - 1][0]
        page = yield from fetch_all("appends_after", session=key, key=self.cursor.key, limit=_SLICE_ROWS)
        # A key or snapshot of an erased branch refers to nothing and is not copied.
        self._add("appends", [(*row[:2], numbers[row[2]], *row[3:]) for row in page if row[2] in numbers], ordinal)
        if len(page) == _SLICE_ROWS:
            self.cursor = CopyCursor("trees", self.cursor.tree, "session", ordinal, key=page[-1][0])
            return
        snapshots = yield from fetch_all("snapshots_full", session=key)
        self._add(
            "snapshots", [(*row[:2], numbers[row[2]], *row[3:]) for row in snapshots if row[2] in numbers], ordinal
        )
        self.cursor = CopyCursor("trees", self.cursor.tree, "session", ordinal + 1)

    def _links(self) -> Steps[None]:
        rows = yield from fetch_all("sessions_linked", owner=self.owner, after=self.cursor.low, limit=_SLICE_ROWS)
        self._add("links", [row[1:] for row in rows])
        self.cursor = CopyCursor("links", low=rows[-1][0]) if len(rows) == _SLICE_ROWS else CopyCursor("settings")

    def _settings(self) -> Steps[None]:
        rows = yield from fetch_all("settings_after", owner=self.owner, key=self.cursor.key, limit=_SLICE_ROWS)
        self._add("settings", [row for row in rows if row[0] != JOURNAL_KEY])
        self.cursor = CopyCursor("settings", key=rows[-1][0]) if len(rows) == _SLICE_ROWS else CopyCursor("end")


class SliceWriter:
    """Writes one slice."""

    def __init__(self, scope: Scope, tree: int) -> None:
        self.scope = scope
        self.tree = tree
        self._loaded_tree = 0
        self._sessions: list[int] = []
        self._branches: dict[int, int] = {}

    def item(self, item: SliceItem) -> Steps[None]:
        """Write rows of one kind."""
        if item.kind == "tree":
            yield from self._insert_tree(item.rows[0])  # type: ignore[arg-type]
            return
        if item.kind in ("blob", "links", "settings"):
            yield from getattr(self, f"_{item.kind}")(item.rows)
            return
        if self._loaded_tree != self.tree:
            yield from self._load_keys()
        keys = self._sessions if item.kind in ("appends", "snapshots") else None
        try:
            key = self._branches[item.place] if keys is None else keys[item.place - 1]
        except (KeyError, IndexError):
            raise CopyConflict from None
        yield from getattr(self, f"_{item.kind}")(key, item.rows)

    def _load_keys(self) -> Steps[None]:
        """Read the keys of the sessions and branches of a tree that an earlier slice began."""
        self._sessions = [row[0] for row in (yield from fetch_all("sessions_of_tree", tree=self.tree))]
        self._branches = {row[0]: row[-1] for row in (yield from fetch_all("branches_full", tree=self.tree))}
        self._loaded_tree = self.tree

    def _insert_tree(self, head: TreeHead) -> Steps[None]:
        owner = self.scope.owner
        tree_row = yield from fetch_one("tree_insert", owner=owner)
        assert tree_row is not None
        self.tree = self._loaded_tree = int(tree_row[0])
        yield from execute("tree_raise_branches", tree=self.tree, number=head.branches_counted)
        self._sessions, self._branches = [], {}
        for row in head.sessions:
            columns = dict(zip(_SESSION_COLUMNS, row, strict=False))
            session = yield from fetch_one("session_copy", owner=owner, tree=self.tree, **columns)
            assert session is not None
            self._sessions.append(session[0])
            yield from sessions.set_sort_title(self.scope, session[0], row[TITLE])
        for number, ordinal, parent, fork_at, last, open_turn, created in head.branches:
            branch = yield from fetch_one(
                "branch_copy", tree=self.tree, number=number, fork_at=fork_at, last=last, open_turn=open_turn,
                created_at=created, session=None if ordinal is None else self._sessions[ordinal - 1],
                parent=None if parent is None else self._branches[parent],
            )  # fmt: skip
            assert branch is not None
            self._branches[number] = branch[0]
        for session, row in zip(self._sessions, head.sessions, strict=True):
            if row[BRANCH] in self._branches:
                yield from execute("session_set_head", session=session, head=self._branches[row[BRANCH]])

    def _blob(self, rows: Sequence[Row]) -> Steps[None]:
        for hash, size_, refs, created, data in rows:
            yield from execute(
                "blob_import", owner=self.scope.owner, hash=hash, size=size_, refs=refs, data=data, created_at=created
            )

    def _messages(self, branch: int, rows: Sequence[Row]) -> Steps[None]:
        yield from execute_many("message_insert", [(branch, *row[:DELETED]) for row in rows])
        for row in rows:
            if row[DELETED] is not None:
                yield from execute(
                    "message_mark_deleted", branch=branch, position=row[POSITION], deleted_at=row[DELETED]
                )

    def _turns(self, branch: int, rows: Sequence[Row]) -> Steps[None]:
        for row in rows:
            yield from execute("turn_import", branch=branch, **dict(zip(_TURN_COLUMNS, row, strict=True)))

    def _calls(self, branch: int, rows: Sequence[Row]) -> Steps[None]:
        branches = self._branches
        yield from execute_many(
            "tool_call_insert",
            [(branch, *row[:2], branches[row[2]], *row[3:6], branches[row[2]], *row[6:]) for row in rows],
        )

    def _pins(self, branch: int, rows: Sequence[Row]) -> Steps[None]:
        yield from execute_many("pin_insert", [(branch, row[0]) for row in rows])

    def _compactions(self, branch: int, rows: Sequence[Row]) -> Steps[None]:
        for row in rows:
            yield from execute("compaction_import", branch=branch, **dict(zip(_COMPACTION_COLUMNS, row, strict=True)))

    def _appends(self, session: int, rows: Sequence[Row]) -> Steps[None]:
        for key, digest, number, position, count, created in rows:
            yield from execute(
                "append_insert", session=session, key=key, digest=digest, branch=self._branches[number],
                position=position, count=count, now=created,
            )  # fmt: skip

    def _snapshots(self, session: int, rows: Sequence[Row]) -> Steps[None]:
        for kind, content, number, position, tokens, created, updated in rows:
            yield from execute(
                "snapshot_import", session=session, kind=kind, content=content, branch=self._branches[number],
                position=position, tokens=tokens, created_at=created, updated_at=updated,
            )  # fmt: skip

    def _links(self, rows: Sequence[Row]) -> Steps[None]:
        for id, deleted, created, parent, parent_deleted in rows:
            yield from execute(
                "session_copy_parent", owner=self.scope.owner, id=id, deleted=deleted, created_at=created,
                parent=parent, parent_deleted=parent_deleted,
            )  # fmt: skip

    def _settings(self, rows: Sequence[Row]) -> Steps[None]:
        for key, value, updated in rows:
            yield from execute("setting_set", owner=self.scope.owner, key=key, value=value, now=updated)


class CopyJournal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The journal of a copy in the target: the source, the cursor, and the tree that is being written."""

    source: str
    cursor: CopyCursor = CopyCursor()
    tree: int = 0
    messages: int = 0
    whole: bool = False
    """Whether the copy was verified to be complete."""


def copy_size(owner: str) -> Operation[tuple[int, int]]:
    """Return about how many messages an owner has, and how many blobs."""
    return Operation(_copy_size, owner, writes=False)


def _copy_size(owner: str) -> Steps[tuple[int, int]]:
    row = yield from fetch_one("copy_size", owner=owner)
    assert row is not None
    return int(row[0]), int(row[1])


def begin_copy(scope: Scope, source: str) -> Operation[CopyJournal | None]:
    """Begin or continue a copy; return None if the target contains data that is not from a copy."""
    return Operation(_begin_copy, scope, source)


def _begin_copy(scope: Scope, source: str) -> Steps[CopyJournal | None]:
    row = yield from fetch_one("copy_journal", owner=scope.owner, key=JOURNAL_KEY)
    if row is not None:
        return msgspec.json.decode(row[0], type=CopyJournal)
    used = yield from fetch_one("copy_target_used", owner=scope.owner, key=JOURNAL_KEY)
    if used is None or used[0]:
        return None
    journal = CopyJournal(source)
    yield from _write_journal(scope, journal)
    return journal


def _write_journal(scope: Scope, journal: CopyJournal) -> Steps[None]:
    text = msgspec.json.encode(journal).decode()
    yield from execute("setting_set", owner=scope.owner, key=JOURNAL_KEY, value=text, now=scope.now)


def update_journal(scope: Scope, before: CopyJournal, after: CopyJournal) -> Operation[CopyJournal]:
    """Replace the journal; raise CopyConflict if it changed meanwhile."""
    return Operation(_update_journal, scope, before, after)


def _update_journal(scope: Scope, before: CopyJournal, after: CopyJournal) -> Steps[CopyJournal]:
    yield from _check_journal(scope, before)
    yield from _write_journal(scope, after)
    return after


def _check_journal(scope: Scope, before: CopyJournal) -> Steps[None]:
    row = yield from fetch_one("copy_journal", owner=scope.owner, key=JOURNAL_KEY)
    if row is None or msgspec.json.decode(row[0], type=CopyJournal) != before:
        raise CopyConflict


def read_slice(owner: str, cursor: CopyCursor) -> Operation[Slice]:
    """Read the next slice."""
    return Operation(_read_slice, owner, cursor, writes=False)


def _read_slice(owner: str, cursor: CopyCursor) -> Steps[Slice]:
    return (yield from SliceReader(owner, cursor).slice())


def write_slice(scope: Scope, before: CopyJournal, slice_: Slice) -> Operation[CopyJournal]:
    """Write a slice and the journal in one transaction."""
    return Operation(_write_slice, scope, before, slice_)


def _write_slice(scope: Scope, before: CopyJournal, slice_: Slice) -> Steps[CopyJournal]:
    yield from _check_journal(scope, before)
    writer = SliceWriter(scope, before.tree)
    for item in slice_.items:
        yield from writer.item(item)
    after = CopyJournal(before.source, slice_.cursor, writer.tree, before.messages + slice_.messages, before.whole)
    yield from _write_journal(scope, after)
    return after
