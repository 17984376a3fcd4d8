"""The copy of a whole database into another one, on the same engine or another, with a comparison at the end.

Each owner is copied with a store of its own. The comparison hashes each session, payload and setting.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from recollect.engine.url import MEMORY, StoreTarget, check_owner_and_timeout, parse_target
from recollect.errors import Conflict, InvalidValue, NotFound, format_value
from recollect.model import validation
from recollect.model.reports import CopyReport, Difference, Owners
from recollect.storage import copying
from recollect.storage.integrity import CheckProgress
from recollect.store import Store, open_target

StoreLocation = str | os.PathLike[str]

_MAX_DIFFERENCES = 1000  # items. A report with more would not be read, and a wrong target differs in everything.
_KINDS: dict[str, Any] = {"blob": "payload", "tree": "session", "settings": "setting"}
_COUNT_OF_KIND = {
    "blob": "payloads", "messages": "messages", "turns": "turns", "calls": "tool_calls", "compactions": "compactions",
    "snapshots": "snapshots", "appends": "keys", "settings": "settings",
}  # fmt: skip
_COUNT_NAMES = ("sessions", *_COUNT_OF_KIND.values())


def copy(
    source: StoreLocation,
    target: StoreLocation,
    *,
    owners: Sequence[str] | None = None,
    progress: CheckProgress | None = None,
    timeout: float = 30.0,
) -> CopyReport:
    """Copy all data of a database into an empty one, compare the two, and return a report.

    - `owners`: the owners whose data is copied; None copies all owners that the source shows.
    - `progress`: a function that is called with the amount done and the total.
    - `timeout`: seconds to wait for a locked file or for the server.

    An interrupted copy resumes if you run it again. Raise Conflict if the target holds other data, NotFound if the
    source does not exist, and InvalidValue if both are the same.
    """
    origin, destination = parse_target(source), parse_target(target)
    _check_targets(origin, destination)
    owners = _check_owners(owners, timeout)
    validation.check_callable("progress", progress)
    source_owners, source_path = _read_owners(origin, timeout)
    pending = list(source_owners.names) or [""] if owners is None else owners
    copied_owners: list[str] = []
    tracker = _CopyProgress(progress)
    differences: list[Difference] = []
    while pending:
        for owner in pending:
            with (
                open_target(origin, owner, timeout, trusted=True) as source_store,
                open_target(destination, owner, timeout, trusted=True) as target_store,
            ):
                differences += _OwnerCopy(source_store, target_store, owner, source_path, tracker).run()
        copied_owners += pending
        source_owners, _ = _read_owners(origin, timeout)
        pending = (
            [] if owners is not None else [name for name in source_owners.names if name not in copied_owners]
        )  # owners that were added during the copy
    return CopyReport(
        source=source_path, target=destination.display_url, owners=tuple(copied_owners),
        everyone=source_owners.everyone or owners is not None, counts=tracker.counts,
        differences=tuple(differences[:_MAX_DIFFERENCES]),
    )  # fmt: skip


def _read_owners(origin: StoreTarget, timeout: float) -> tuple[Owners, str]:
    """Return the owners in a store, and the store's path as it is shown."""
    with open_target(origin, "", timeout, trusted=True) as store:
        return store.owners(), store.path


def _check_targets(origin: StoreTarget, destination: StoreTarget) -> None:
    if MEMORY in (origin.path, destination.path):
        raise InvalidValue(
            "A :memory: database cannot be copied: it exists only in its own process. Use a path or a URL."
        )
    if origin.engine == "sqlite" and not os.path.exists(origin.path):
        raise NotFound(f"No database at {origin.path}. Check the path of the source.")
    same = origin == destination or (
        origin.engine == destination.engine == "sqlite"
        and os.path.realpath(origin.path) == os.path.realpath(destination.path)
    )
    if same:
        raise InvalidValue("source and target are the same database. Use another target.")


def _check_owners(owners: Any, timeout: Any) -> list[str] | None:
    """Return the owners without duplicates. A str is refused: it would be read as owners of one letter each."""
    check_owner_and_timeout("", timeout)
    if owners is None:
        return None
    if isinstance(owners, str | bytes) or not isinstance(owners, Iterable):
        raise InvalidValue(f"owners must be a list of str, or None for all owners, got {format_value(owners)}.")
    names: list[Any] = list(owners)
    for owner in names:
        check_owner_and_timeout(owner, timeout)
    return list(dict.fromkeys(names))


class _CopyProgress:
    """The amount of work done, and the number of compared items of each kind."""

    def __init__(self, progress: CheckProgress | None) -> None:
        self._progress = progress
        self.done = self.total = 0
        self.counts = dict.fromkeys(_COUNT_NAMES, 0)

    def advance(self, count: int) -> None:
        self.done += count
        if self._progress is not None and self.total:
            self._progress(min(self.done, self.total), self.total)


class _OwnerCopy:
    """The copy of one owner's data."""

    def __init__(
        self, source_store: Store, target_store: Store, owner: str, source_path: str, tracker: _CopyProgress
    ) -> None:
        self.source_store = source_store
        self.target_store = target_store
        self.owner = owner
        self.source_path = source_path
        self.tracker = tracker

    def run(self) -> list[Difference]:
        journal = self._begin()
        messages, payloads = self.source_store.run(copying.copy_size(self.owner))
        self.tracker.total += 3 * (messages + payloads) + 1
        self.tracker.advance(journal.messages)
        while journal.cursor.stage != "end":
            batch = self.source_store.run(copying.read_slice(self.owner, journal.cursor))
            journal = self.target_store.run(copying.write_slice(self.target_store.scope(), journal, batch))
            self.tracker.advance(batch.messages + sum(item.kind == "blob" for item in batch.items))
        differences = self._compare()
        if not differences and not journal.whole:
            final_journal = copying.CopyJournal(
                journal.source, journal.cursor, journal.tree, journal.messages, whole=True
            )
            self.target_store.run(copying.update_journal(self.target_store.scope(), journal, final_journal))
        return differences

    def _begin(self) -> copying.CopyJournal:
        journal = self.target_store.run(copying.begin_copy(self.target_store.scope(), self.source_path))
        if journal is None:
            raise Conflict(
                f"{self.target_store.path} is not empty. Copy into an empty database, or merge with `recollect "
                "sessions export` and `recollect sessions import`, which preserve ids and write nothing twice."
            )
        if journal.source != self.source_path:
            raise Conflict(
                f"{self.target_store.path} holds a copy of {journal.source}, not of {self.source_path}. Copy into an "
                "empty database."
            )
        return journal

    def _compare(self) -> list[Difference]:
        """Compare both stores in step, and return the differences. Data that only the target has is ignored."""
        differences: list[Difference] = []
        source_units, target_units = (
            _read_units(self.source_store, self.owner, self.tracker, count=True),
            _read_units(self.target_store, self.owner, self.tracker),
        )
        target_unit = next(target_units, None)
        for unit in source_units:
            while target_unit is not None and target_unit.order < unit.order:
                target_unit = next(target_units, None)
            match = target_unit if target_unit is not None and target_unit.order == unit.order else None
            for name, source_sum in unit.sums.items():
                target_sum = None if match is None else match.sums.get(name)
                if target_sum != source_sum and len(differences) < _MAX_DIFFERENCES:
                    kind = _KINDS[unit.kind]
                    differences.append(Difference(owner=self.owner, kind=kind, name=name, missing=target_sum is None))
        for _ in target_units:  # read to the end, so that the progress reaches its total
            pass
        return differences


class _ComparedUnit(NamedTuple):
    """The unit of comparison: a payload, a tree or the settings, with a sum of hashes for each name in it."""

    kind: str
    order: tuple[int, int | str]
    sums: dict[str, int]


def _read_units(store: Store, owner: str, tracker: _CopyProgress, *, count: bool = False) -> Iterator[_ComparedUnit]:
    """Read a whole store, and yield the sums of each unit, in an order that is the same on every engine."""
    tree: _TreeSums | None = None
    trees = 0
    settings: dict[str, int] = {}
    for item in _read_items(store, owner, tracker):
        if count:
            _count(tracker.counts, item)
        if item.kind == "blob":
            for row in item.rows:
                yield _ComparedUnit("blob", (0, row[0]), {row[0]: _hash_row("blob", (*row[:4], _digest(row[4])))})
        elif item.kind == "settings":
            settings |= {row[0]: _hash_row("setting", row) for row in item.rows}
        elif item.kind == "tree":
            if tree is not None:
                yield _ComparedUnit("tree", (1, trees), tree.sums)
            trees += 1
            tree = _TreeSums(_head(item))
        elif tree is not None and item.kind != "links":
            tree.add(item)
    if tree is not None:
        yield _ComparedUnit("tree", (1, trees), tree.sums)
    yield _ComparedUnit("settings", (2, ""), settings)


def _read_items(store: Store, owner: str, tracker: _CopyProgress) -> Iterator[copying.SliceItem]:
    cursor = copying.CopyCursor()
    while cursor.stage != "end":
        batch = store.run(copying.read_slice(owner, cursor))
        cursor = batch.cursor
        yield from batch.items
        tracker.advance(batch.messages + sum(item.kind == "blob" for item in batch.items))


def _head(item: copying.SliceItem) -> copying.TreeHead:
    head = item.rows[0]
    assert isinstance(head, copying.TreeHead)
    return head


def _count(counts: dict[str, int], item: copying.SliceItem) -> None:
    if item.kind == "tree":
        counts["sessions"] += len(_head(item).sessions)
    elif item.kind in _COUNT_OF_KIND:
        counts[_COUNT_OF_KIND[item.kind]] += len(item.rows)


class _TreeSums:
    """The sums of a tree. The hashes of a session's rows are added up, so that the order of rows does not matter."""

    def __init__(self, head: copying.TreeHead) -> None:
        self._names = [row[copying.ID] for row in head.sessions]
        self.sums: dict[str, int] = {}
        self._session_of_branch: dict[int, str] = {}
        first = self._names[0] if self._names else ""
        self._put(first, "tree", (head.branches_counted,))
        for index, row in enumerate(head.sessions):
            self._put(row[copying.ID], "session", (index, *row))
        for row in head.branches:
            name = first if row[1] is None else self._names[row[1] - 1]
            self._session_of_branch[row[0]] = name
            self._put(name, "branch", row)

    def add(self, item: copying.SliceItem) -> None:
        """Add rows of a branch or of a session."""
        is_ordered = item.kind in ("compactions", "snapshots")  # their order is significant
        by_session = item.kind in ("appends", "snapshots")
        name = self._names[item.place - 1] if by_session else self._session_of_branch[item.place]
        for number, row in enumerate(item.rows):
            self._put(name, item.kind, (item.place, number if is_ordered else 0, *row))

    def _put(self, name: str, kind: str, row: Any) -> None:
        self.sums[name] = (self.sums.get(name, 0) + _hash_row(kind, row)) % (1 << 256)


def _hash_row(kind: str, row: Any) -> int:
    text = f"{kind}{tuple(row)!r}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
