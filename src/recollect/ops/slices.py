"""A slice of a store: rows of a bounded number and size, read from where the last one ended, and written into another.

Rows are in a form that both engines share: a branch is its number in the tree, a session its place in the tree; keys
stay in their store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import Conflict
from recollect.op import Row, Scope, Steps, do, each, one, rows
from recollect.ops import sessions
from recollect.ops.paths import LAST
from recollect.ops.transfer import DELETED, PAGE_BYTES, POSITION

JOURNAL = "recollect.copy"
"""The setting in which a copy notes how far it came; it is no part of what is copied."""

_SLICE = 512
_SESSION = (
    "id", "branch", "last", "open_turns", "relation", "revision", "message_count", "token_count", "input_tokens",
    "output_tokens", "created_at", "updated_at", "active_at", "last_message_at", "pinned_at", "archived_at",
    "deleted_at", "status", "channel", "channel_id", "external_id", "title", "task", "provider", "provider_config",
    "model", "working_dir", "system_prompt", "color", "metadata", "data_schema_version",
)  # fmt: skip
ID, BRANCH, TITLE = 0, 1, _SESSION.index("title")
_TURN = (
    "position", "status", "started_at", "ended_at", "latency_ms", "input_tokens", "output_tokens", "model", "error",
    "holder", "lease_until",
)  # fmt: skip
_COMPACTION = (
    "from_position", "to_position", "round", "tokens_before", "tokens_after", "summary", "created_at", "undone_at",
)  # fmt: skip


class Astray(Conflict):
    """Someone else wrote into the target, or a second copy does. End that and run the copy again: it goes on."""


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far reading came: the stage, and within it the tree, its part, the branch or session, and where in that."""

    stage: str = "blobs"
    tree: int = 0
    part: str = ""
    place: int = 0
    low: int = 0
    key: str = ""


class Head(NamedTuple):
    """The outline of a tree: how many branches it has counted, and its sessions and branches in order."""

    branches_counted: int
    sessions: list[Row]
    branches: list[Row]
    """Number, place of the session, parent's number, and the rest as it is stored."""


class Item(NamedTuple):
    """Rows of one kind: of a tree, and of a branch or a session in it."""

    kind: str
    tree: int
    place: int
    rows: Sequence[Row]


class Slice(NamedTuple):
    """What was read, and where the next one begins."""

    items: list[Item]
    cursor: Cursor
    messages: int


class Reading:
    """One slice, as it is read."""

    def __init__(self, owner: str, cursor: Cursor) -> None:
        self.owner = owner
        self.cursor = cursor
        self.items: list[Item] = []
        self.messages = 0
        self._rows = 0
        self._bytes = 0
        self._outline: tuple[int, list[Row], list[Row]] = (0, [], [])

    def slice(self) -> Steps[Slice]:
        """Read until it is large enough, or to the end."""
        stages = {"blobs": self._blobs, "trees": self._trees, "links": self._links, "settings": self._settings}
        while self.cursor.stage in stages and not self._full:
            yield from stages[self.cursor.stage]()
        return Slice(self.items, self.cursor, self.messages)

    @property
    def _full(self) -> bool:
        return self._rows >= _SLICE or self._bytes >= PAGE_BYTES

    def _add(self, kind: str, found: Sequence[Row], place: int = 0, bytes: int = 0) -> None:
        if found:
            self.items.append(Item(kind, self.cursor.tree, place, found))
            self._rows += len(found)
            self._bytes += bytes

    def _blobs(self) -> Steps[None]:
        listed = yield from rows("blobs_after", owner=self.owner, hash=self.cursor.key, limit=_SLICE)
        for hash, size_, refs, created in listed:
            data = yield from one("blob_get", owner=self.owner, hash=hash)
            if data is not None:
                self._add("blob", [(hash, size_, refs, created, data[0])], bytes=size_)
            self.cursor = Cursor("blobs", key=hash)
            if self._full:
                return
        if len(listed) < _SLICE:
            self.cursor = Cursor("trees")

    def _trees(self) -> Steps[None]:
        parts = {"": self._next_tree, "branch": self._branch, "session": self._session}
        yield from parts[self.cursor.part]()

    def _next_tree(self) -> Steps[None]:
        row = yield from one("tree_after", owner=self.owner, tree=self.cursor.tree)
        if row is None:
            self.cursor = Cursor("links")
            return
        self.cursor = Cursor("trees", row[0], "branch")
        found, branches, places, numbers = yield from self._outlined()
        told = [
            (number, places.get(session), numbers.get(parent), *rest[:-1])
            for number, session, parent, *rest in branches
        ]
        self._add("tree", [Head(row[1], [each_[1:] for each_ in found], told)])
        self._rows += len(found) + len(told)

    def _outlined(self) -> Steps[tuple[list[Row], list[Row], dict[Any, int], dict[Any, int]]]:
        """Read the sessions and branches of the tree: rows, and the place or number of each key."""
        tree = self.cursor.tree
        if self._outline[0] != tree:
            found = yield from rows("sessions_whole", tree=tree)
            self._outline = (tree, found, (yield from rows("branches_whole", tree=tree)))
        _, found, branches = self._outline
        places = {row[0]: place for place, row in enumerate(found, 1)}
        numbers = {row[-1]: row[0] for row in branches}
        return found, branches, places, numbers

    def _branch(self) -> Steps[None]:
        """Read a stretch of the branch that is under way."""
        _, branches, _, numbers = yield from self._outlined()
        here = next((row for row in branches if row[0] >= max(self.cursor.place, 1)), None)
        if here is None:
            self.cursor = Cursor("trees", self.cursor.tree, "session")
            return
        number, key, low = here[0], here[-1], self.cursor.low if here[0] == self.cursor.place else 0
        end = yield from self._end_of(key, low)
        span = {"branch": key, "low": low, "high": LAST if end is None else end[0]}
        messages = yield from rows("messages_rows", **span, deleted=True)
        self.messages += len(messages)
        self._add("messages", messages, number, 0 if end is None else end[1])
        self._add("turns", (yield from rows("turns_whole", **span)), number)
        calls = yield from rows("tool_calls_of_span", **span)
        self._add("calls", [(*row[:2], numbers[row[2]], *row[3:]) for row in calls if row[2] in numbers], number)
        self._add("pins", (yield from rows("pins_between", **span)), number)
        if end is not None and end[2]:
            self.cursor = Cursor("trees", self.cursor.tree, "branch", number, end[0])
            return
        self._add("compactions", (yield from rows("compactions_whole", branch=key)), number)
        self.cursor = Cursor("trees", self.cursor.tree, "branch", number + 1)

    def _end_of(self, branch: int, low: int) -> Steps[tuple[int, int, bool] | None]:
        """Find where a stretch ends: the position, how many bytes that are, and whether more may follow."""
        sizes = yield from rows("messages_sizes", branch=branch, low=low, high=LAST, limit=_SLICE, deleted=True)
        total = 0
        for position, bytes_ in sizes:
            total += bytes_
            if total + self._bytes >= PAGE_BYTES:
                return position, total, True
        return (sizes[-1][0], total, True) if len(sizes) == _SLICE else None

    def _session(self) -> Steps[None]:
        """Read the idempotency keys of a session, a page at a time, then its snapshots."""
        found, _, _, numbers = yield from self._outlined()
        place = max(self.cursor.place, 1)
        if place > len(found):
            self.cursor = Cursor("trees", self.cursor.tree)
            return
        key = found[place - 1][0]
        page = yield from rows("appends_after", session=key, key=self.cursor.key, limit=_SLICE)
        # Of a branch that was erased nothing is left that a key or a snapshot could stand for.
        self._add("appends", [(*row[:2], numbers[row[2]], *row[3:]) for row in page if row[2] in numbers], place)
        if len(page) == _SLICE:
            self.cursor = Cursor("trees", self.cursor.tree, "session", place, key=page[-1][0])
            return
        kept = yield from rows("snapshots_whole", session=key)
        self._add("snapshots", [(*row[:2], numbers[row[2]], *row[3:]) for row in kept if row[2] in numbers], place)
        self.cursor = Cursor("trees", self.cursor.tree, "session", place + 1)

    def _links(self) -> Steps[None]:
        found = yield from rows("sessions_linked", owner=self.owner, after=self.cursor.low, limit=_SLICE)
        self._add("links", [row[1:] for row in found])
        self.cursor = Cursor("links", low=found[-1][0]) if len(found) == _SLICE else Cursor("settings")

    def _settings(self) -> Steps[None]:
        found = yield from rows("settings_after", owner=self.owner, key=self.cursor.key, limit=_SLICE)
        self._add("settings", [row for row in found if row[0] != JOURNAL])
        self.cursor = Cursor("settings", key=found[-1][0]) if len(found) == _SLICE else Cursor("end")


class Writing:
    """One slice, as it is written."""

    def __init__(self, scope: Scope, tree: int) -> None:
        self.scope = scope
        self.tree = tree
        self._known = 0
        self._sessions: list[int] = []
        self._branches: dict[int, int] = {}

    def item(self, item: Item) -> Steps[None]:
        """Write rows of one kind."""
        if item.kind == "tree":
            yield from self._head(item.rows[0])  # type: ignore[arg-type]
            return
        if item.kind in ("blob", "links", "settings"):
            yield from getattr(self, f"_{item.kind}")(item.rows)
            return
        if self._known != self.tree:
            yield from self._find()
        keys = self._sessions if item.kind in ("appends", "snapshots") else None
        try:
            key = self._branches[item.place] if keys is None else keys[item.place - 1]
        except (KeyError, IndexError):
            raise Astray from None
        yield from getattr(self, f"_{item.kind}")(key, item.rows)

    def _find(self) -> Steps[None]:
        """Find the keys in a tree that an earlier slice began."""
        self._sessions = [row[0] for row in (yield from rows("sessions_of_tree", tree=self.tree))]
        self._branches = {row[0]: row[-1] for row in (yield from rows("branches_whole", tree=self.tree))}
        self._known = self.tree

    def _head(self, head: Head) -> Steps[None]:
        owner = self.scope.owner
        made = yield from one("tree_insert", owner=owner)
        assert made is not None
        self.tree = self._known = int(made[0])
        yield from do("tree_reach", tree=self.tree, number=head.branches_counted)
        self._sessions, self._branches = [], {}
        for row in head.sessions:
            columns = dict(zip(_SESSION, row, strict=False))
            session = yield from one("session_copy", owner=owner, tree=self.tree, **columns)
            assert session is not None
            self._sessions.append(session[0])
            yield from sessions.entitle(self.scope, session[0], row[TITLE])
        for number, place, parent, fork_at, last, open_turn, created in head.branches:
            branch = yield from one(
                "branch_copy", tree=self.tree, number=number, fork_at=fork_at, last=last, open_turn=open_turn,
                created_at=created, session=None if place is None else self._sessions[place - 1],
                parent=None if parent is None else self._branches[parent],
            )  # fmt: skip
            assert branch is not None
            self._branches[number] = branch[0]
        for session, row in zip(self._sessions, head.sessions, strict=True):
            if row[BRANCH] in self._branches:
                yield from do("session_seat", session=session, head=self._branches[row[BRANCH]])

    def _blob(self, found: Sequence[Row]) -> Steps[None]:
        for hash, size_, refs, created, data in found:
            yield from do(
                "blob_bring", owner=self.scope.owner, hash=hash, size=size_, refs=refs, data=data, created_at=created
            )

    def _messages(self, branch: int, found: Sequence[Row]) -> Steps[None]:
        yield from each("message_insert", [(branch, *row[:DELETED]) for row in found])
        for row in found:
            if row[DELETED] is not None:
                yield from do("message_mark", branch=branch, position=row[POSITION], deleted_at=row[DELETED])

    def _turns(self, branch: int, found: Sequence[Row]) -> Steps[None]:
        for row in found:
            yield from do("turn_bring", branch=branch, **dict(zip(_TURN, row, strict=True)))

    def _calls(self, branch: int, found: Sequence[Row]) -> Steps[None]:
        own = self._branches
        yield from each(
            "tool_call_insert",
            [(branch, *row[:2], own[row[2]], *row[3:6], own[row[2]], *row[6:]) for row in found],
        )

    def _pins(self, branch: int, found: Sequence[Row]) -> Steps[None]:
        yield from each("pin_insert", [(branch, row[0]) for row in found])

    def _compactions(self, branch: int, found: Sequence[Row]) -> Steps[None]:
        for row in found:
            yield from do("compaction_bring", branch=branch, **dict(zip(_COMPACTION, row, strict=True)))

    def _appends(self, session: int, found: Sequence[Row]) -> Steps[None]:
        for key, digest, number, position, count, created in found:
            yield from do(
                "append_insert", session=session, key=key, digest=digest, branch=self._branches[number],
                position=position, count=count, now=created,
            )  # fmt: skip

    def _snapshots(self, session: int, found: Sequence[Row]) -> Steps[None]:
        for kind, content, number, position, tokens, created, updated in found:
            yield from do(
                "snapshot_bring", session=session, kind=kind, content=content, branch=self._branches[number],
                position=position, tokens=tokens, created_at=created, updated_at=updated,
            )  # fmt: skip

    def _links(self, found: Sequence[Row]) -> Steps[None]:
        for id, deleted, created, parent, parent_deleted in found:
            yield from do(
                "session_adopt", owner=self.scope.owner, id=id, deleted=deleted, created_at=created, parent=parent,
                parent_deleted=parent_deleted,
            )  # fmt: skip

    def _settings(self, found: Sequence[Row]) -> Steps[None]:
        for key, value, updated in found:
            yield from do("setting_set", owner=self.scope.owner, key=key, value=value, now=updated)
