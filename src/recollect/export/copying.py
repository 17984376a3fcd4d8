"""A whole store copied into another one, on the same engine or the other, and compared with it afterwards.

What a slice is and how it is written is in ops/copies.py. Here the stores are opened, one owner after the other, and
what both say is hashed: per session, payload and setting.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from recollect.engine.url import MEMORY, Target, check
from recollect.engine.url import target as place_of
from recollect.errors import Conflict, InvalidValue, NotFound, displayed
from recollect.model import argument
from recollect.model.copied import Copied, Difference
from recollect.model.owners import Owners
from recollect.ops import copies, slices
from recollect.store import Store, opened_at

Place = str | os.PathLike[str]
Progress = Callable[[int, int], object]

_MOST = 1000
_KINDS: dict[str, Any] = {"blob": "payload", "tree": "session", "settings": "setting"}
_COUNTED = {
    "blob": "payloads", "messages": "messages", "turns": "turns", "calls": "tool_calls", "compactions": "compactions",
    "snapshots": "snapshots", "appends": "keys", "settings": "settings",
}  # fmt: skip
_FIGURES = ("sessions", *_COUNTED.values())


def copy(
    source: Place,
    target: Place,
    *,
    owners: Sequence[str] | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> Copied:
    """Copy everything in a store into another one that is empty, and compare the two.

    It can be killed and run again: it goes on where it was. `owners` are those whose data is copied; without them it is
    everyone the source shows. `progress` is called with how much is done and how much there is.
    """
    origin, goal = place_of(source), place_of(target)
    _check(origin, goal)
    owners = _named(owners, timeout)
    argument.function("progress", progress)
    found, shown = _owners(origin, timeout)
    waiting = list(found.names) or [""] if owners is None else owners
    chosen: list[str] = []
    work = _Work(progress)
    differences: list[Difference] = []
    while waiting:
        for owner in waiting:
            with (
                opened_at(origin, owner, timeout, trusted=True) as ours,
                opened_at(goal, owner, timeout, trusted=True) as theirs,
            ):
                differences += _Copy(ours, theirs, owner, shown, work).run()
        chosen += waiting
        found, _ = _owners(origin, timeout)
        waiting = [] if owners is not None else [name for name in found.names if name not in chosen]  # new meanwhile
    return Copied(
        source=shown, target=goal.shown, owners=tuple(chosen), everyone=found.everyone or owners is not None,
        counts=work.counts, differences=tuple(differences[:_MOST]),
    )  # fmt: skip


def _owners(origin: Target, timeout: float) -> tuple[Owners, str]:
    """Return the owners in a store, and the store's path as it is shown."""
    with opened_at(origin, "", timeout, trusted=True) as store:
        return store.owners(), store.path


def _check(origin: Target, goal: Target) -> None:
    if MEMORY in (origin.path, goal.path):
        raise InvalidValue("A store in memory can not be copied: it is gone with the program. Name a path or a URL.")
    if origin.engine == "sqlite" and not os.path.exists(origin.path):
        raise NotFound(f"There is no store at {origin.path} to copy.")
    same = origin == goal or (
        origin.engine == goal.engine == "sqlite" and os.path.realpath(origin.path) == os.path.realpath(goal.path)
    )
    if same:
        raise InvalidValue("A store can not be copied into itself. Name another place.")


def _named(owners: Any, timeout: Any) -> list[str] | None:
    """Give the owners that are named. A text alone would be many of one letter each, and nothing would be copied."""
    check("", timeout)
    if owners is None:
        return None
    if isinstance(owners, str | bytes) or not isinstance(owners, Iterable):
        raise InvalidValue(f"owners is a list of owners, or None for everyone; got {displayed(owners)}.")
    found: list[Any] = list(owners)
    for owner in found:
        check(owner, timeout)
    return list(dict.fromkeys(found))


class _Work:
    """How much is done, and what was counted."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.done = self.total = 0
        self.counts = dict.fromkeys(_FIGURES, 0)

    def more(self, count: int) -> None:
        self.done += count
        if self._progress is not None and self.total:
            self._progress(min(self.done, self.total), self.total)


class _Copy:
    """The copy of what one owner has."""

    def __init__(self, ours: Store, theirs: Store, owner: str, source: str, work: _Work) -> None:
        self.ours = ours
        self.theirs = theirs
        self.owner = owner
        self.source = source
        self.work = work

    def run(self) -> list[Difference]:
        journal = self._begun()
        messages, payloads = self.ours.run(copies.size(self.owner))
        self.work.total += 3 * (messages + payloads) + 1
        self.work.more(journal.messages)
        while journal.cursor.stage != "end":
            found = self.ours.run(copies.read(self.owner, journal.cursor))
            journal = self.theirs.run(copies.write(self.theirs.scope(), journal, found))
            self.work.more(found.messages + sum(item.kind == "blob" for item in found.items))
        different = self._compared()
        if not different and not journal.whole:
            settled = copies.Journal(journal.source, journal.cursor, journal.tree, journal.messages, whole=True)
            self.theirs.run(copies.note(self.theirs.scope(), journal, settled))
        return different

    def _begun(self) -> copies.Journal:
        journal = self.theirs.run(copies.begin(self.theirs.scope(), self.source))
        if journal is None:
            raise Conflict(
                f"{self.theirs.path} is not empty. Copy into an empty place; or add to what is there with `recollect "
                "sessions export` and `recollect sessions import`, which keep ids and write nothing twice."
            )
        if journal.source != self.source:
            raise Conflict(
                f"{self.theirs.path} holds a copy of {journal.source}, and this is {self.source}. Copy into an empty "
                "place."
            )
        return journal

    def _compared(self) -> list[Difference]:
        """Compare what both stores say, in step; what the target has besides is its own."""
        found: list[Difference] = []
        ours, theirs = _units(self.ours, self.owner, self.work, count=True), _units(self.theirs, self.owner, self.work)
        other = next(theirs, None)
        for unit in ours:
            while other is not None and other.order < unit.order:
                other = next(theirs, None)
            same = other if other is not None and other.order == unit.order else None
            for name, sum_ in unit.sums.items():
                there = None if same is None else same.sums.get(name)
                if there != sum_ and len(found) < _MOST:
                    kind = _KINDS[unit.kind]
                    found.append(Difference(owner=self.owner, kind=kind, name=name, missing=there is None))
        for _ in theirs:  # to its end, so that the progress reaches its own
            pass
        return found


class _Unit(NamedTuple):
    """What is compared as one: a payload, a tree, or the settings. A sum of hashes for each name in it."""

    kind: str
    order: tuple[int, int | str]
    sums: dict[str, int]


def _units(store: Store, owner: str, work: _Work, *, count: bool = False) -> Iterator[_Unit]:
    """Read a store to its end, and give the sums of each unit, in an order that is the same on every engine."""
    tree: _Tree | None = None
    trees = 0
    settings: dict[str, int] = {}
    for item in _items(store, owner, work):
        if count:
            _count(work.counts, item)
        if item.kind == "blob":
            for row in item.rows:
                yield _Unit("blob", (0, row[0]), {row[0]: _hashed("blob", (*row[:4], _digest(row[4])))})
        elif item.kind == "settings":
            settings |= {row[0]: _hashed("setting", row) for row in item.rows}
        elif item.kind == "tree":
            if tree is not None:
                yield _Unit("tree", (1, trees), tree.sums)
            trees += 1
            tree = _Tree(_head(item))
        elif tree is not None and item.kind != "links":
            tree.add(item)
    if tree is not None:
        yield _Unit("tree", (1, trees), tree.sums)
    yield _Unit("settings", (2, ""), settings)


def _items(store: Store, owner: str, work: _Work) -> Iterator[slices.Item]:
    cursor = slices.Cursor()
    while cursor.stage != "end":
        found = store.run(copies.read(owner, cursor))
        cursor = found.cursor
        yield from found.items
        work.more(found.messages + sum(item.kind == "blob" for item in found.items))


def _head(item: slices.Item) -> slices.Head:
    head = item.rows[0]
    assert isinstance(head, slices.Head)
    return head


def _count(counts: dict[str, int], item: slices.Item) -> None:
    if item.kind == "tree":
        counts["sessions"] += len(_head(item).sessions)
    elif item.kind in _COUNTED:
        counts[_COUNTED[item.kind]] += len(item.rows)


class _Tree:
    """The sums of a tree: all that a session has, added up, so that the order in which rows come is of no matter."""

    def __init__(self, head: slices.Head) -> None:
        self._names = [row[slices.ID] for row in head.sessions]
        self.sums: dict[str, int] = {}
        self._of_branch: dict[int, str] = {}
        first = self._names[0] if self._names else ""
        self._put(first, "tree", (head.branches_counted,))
        for place, row in enumerate(head.sessions):
            self._put(row[slices.ID], "session", (place, *row))
        for row in head.branches:
            name = first if row[1] is None else self._names[row[1] - 1]
            self._of_branch[row[0]] = name
            self._put(name, "branch", row)

    def add(self, item: slices.Item) -> None:
        """Add rows of a branch or of a session."""
        whole = item.kind in ("compactions", "snapshots")  # their order means something
        owned = item.kind in ("appends", "snapshots")
        name = self._names[item.place - 1] if owned else self._of_branch[item.place]
        for number, row in enumerate(item.rows):
            self._put(name, item.kind, (item.place, number if whole else 0, *row))

    def _put(self, name: str, kind: str, row: Any) -> None:
        self.sums[name] = (self.sums.get(name, 0) + _hashed(kind, row)) % (1 << 256)


def _hashed(kind: str, row: Any) -> int:
    text = f"{kind}{tuple(row)!r}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
