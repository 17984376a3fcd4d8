"""The copy of a whole database into another one, on the same engine or another, with a comparison at the end.

A copy reads the row stream of an export and passes it to the writer of an import, with the rows that files omit: the
trash, idempotency keys, records of the store, blobs without references, holders and counts. Each owner is copied with a
store of its own. The comparison reads both stores as the copy does, and hashes each session, payload and record.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

from recollect.engine.registry import find_provider
from recollect.engine.url import MEMORY, StoreTarget, check_owner_and_timeout, parse_target
from recollect.errors import Conflict, InvalidValue, NotFound, format_value
from recollect.model import validation
from recollect.model.reports import CopyReport, Difference, Owners
from recollect.storage import copy_writer, records, row_stream
from recollect.storage.integrity import CheckProgress
from recollect.storage.operation import Query
from recollect.storage.paths import LAST_POSITION
from recollect.storage.row_stream import (
    APPENDS_AFTER,
    BLOBS_AFTER,
    PAGE_BYTES,
    PAGE_ROWS,
    SESSIONS_LINKED,
    TREES_AFTER,
    Blob,
    BranchItem,
    FullCallRow,
    FullRecordRow,
    FullSnapshotRow,
    KeyRow,
    ParentRow,
    SessionItem,
    StoreItem,
    StreamItem,
    TreeItem,
)
from recollect.store import Store, open_target

R = TypeVar("R", bound=tuple[Any, ...])
B = TypeVar("B", FullCallRow, FullSnapshotRow, KeyRow)
StoreLocation = str | os.PathLike[str]

_MAX_DIFFERENCES = 1000  # items. A report with more would not be read, and a wrong target differs in everything.
_BATCH_ROWS = 512  # rows per transaction, with PAGE_BYTES. With fewer, most of the time would be waiting for the disk.
_COUNT_NAMES = (
    "sessions", "payloads", "messages", "versions", "turns", "tool_calls", "compactions", "snapshots", "keys",
    "records",
)  # fmt: skip


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
    files = find_provider(origin.engine).files
    if files is not None and not files.exists(origin.path):
        raise NotFound(f"No database at {origin.path}. Check the path of the source.")
    same = origin == destination or (
        files is not None
        and origin.engine == destination.engine
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
        self.counts: dict[str, int] = dict.fromkeys(_COUNT_NAMES, 0)

    def count(self, item: StreamItem) -> None:
        """Count the rows of an item of the source."""
        for name, rows in _count(item).items():
            if name in self.counts:
                self.counts[name] += rows

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
        state = copy_writer.CopyState(self._begin())
        size = self.source_store.run(copy_writer.copy_size(self.source_store.scope()))
        self.tracker.total += 3 * (size.messages + size.blobs) + 1
        self.tracker.advance(state.journal.count)
        if not state.journal.done:
            for items in _iter_batches(_read_items(self.source_store, state.journal)):
                state = self._write(state, items)
            self._write(state, [], done=True)
        return self._compare()

    def _begin(self) -> copy_writer.CopyJournal:
        journal = self.target_store.run(copy_writer.begin_copy(self.target_store.scope(), self.source_path))
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

    def _write(
        self, state: copy_writer.CopyState, items: list[StreamItem], *, done: bool = False
    ) -> copy_writer.CopyState:
        after = self.target_store.run(copy_writer.copy_items(self.target_store.scope(), state, items, done=done))
        self.tracker.advance(after.journal.count - state.journal.count)
        return after

    def _compare(self) -> list[Difference]:
        """Compare both stores in step, and return the differences. Data that only the target has is ignored."""
        differences: list[Difference] = []
        source_units, target_units = (
            _read_units(self.source_store, self.tracker, count=True),
            _read_units(self.target_store, self.tracker),
        )
        target_unit = next(target_units, None)
        for unit in source_units:
            while target_unit is not None and target_unit.order < unit.order:
                target_unit = next(target_units, None)
            match = target_unit if target_unit is not None and target_unit.order == unit.order else None
            for name, source_sum in unit.sums.items():
                target_sum = None if match is None else match.sums.get(name)
                if target_sum != source_sum and len(differences) < _MAX_DIFFERENCES:
                    difference = Difference(owner=self.owner, kind=unit.kind, name=name, missing=target_sum is None)
                    differences.append(difference)
        for _ in target_units:  # read to the end, so that the progress reaches its total
            pass
        return differences


def _iter_batches(items: Iterator[StreamItem]) -> Iterator[list[StreamItem]]:
    """Yield the items in batches of _BATCH_ROWS rows or PAGE_BYTES bytes."""
    batch: list[StreamItem] = []
    rows = size = 0
    for item in items:
        batch.append(item)
        rows += sum(_count(item).values())
        size += _count_bytes(item)
        if rows >= _BATCH_ROWS or size >= PAGE_BYTES:
            yield batch
            batch = []
            rows = size = 0
    if batch:
        yield batch


def _count(item: StreamItem) -> dict[str, int]:
    """Return the number of rows of an item by kind."""
    if isinstance(item, TreeItem | BranchItem | SessionItem | StoreItem):
        return {name: len(rows) for name, rows in item._asdict().items() if isinstance(rows, list | tuple)}
    return {"payloads" if isinstance(item, Blob) else "parents": 1}


def _count_bytes(item: StreamItem) -> int:
    if isinstance(item, BranchItem):
        return sum(len(row.parts) for row in (*item.messages, *item.versions))
    if isinstance(item, SessionItem | StoreItem):
        return sum(len(row.value or "") + len(row.data or b"") for row in item.records)
    return len(item.data) if isinstance(item, Blob) else 0


def _read_items(store: Store, start: copy_writer.CopyJournal) -> Iterator[StreamItem]:
    """Read a store in the order of a copy: blobs, trees, parents, records of the store."""
    owner = {"owner": store.scope().owner}
    for blob in _read_pages(store, BLOBS_AFTER, "hash", start.blob, owner):
        data = store.run(row_stream.read_blob(store.scope(), blob.hash))
        if data is not None:
            yield Blob(blob, data)
    for tree in _read_pages(store, TREES_AFTER, "key", start.tree - 1, owner):
        yield from _read_tree(store, tree, start)
    yield from _read_pages(store, SESSIONS_LINKED, "session", 0, owner)
    for page in _read_record_pages(store, records.STORE):
        yield StoreItem([row for row in page if row.kind != records.COPY_KIND])


def _read_record_pages(store: Store, session: int) -> Iterator[list[FullRecordRow]]:
    """Yield the records of a session or of the store, page by page."""
    after: tuple[str, bytes] | None = None
    while True:
        page = store.run(row_stream.read_records(store.scope(), session, after))
        if page.records:
            yield page.records
        after = page.more
        if after is None:
            return


def _read_pages(store: Store, query: Query[R], cursor: str, after: Any, params: dict[str, Any]) -> Iterator[R]:
    """Yield the rows of a query that reads PAGE_ROWS rows after a cursor, the column `cursor` of the last row."""
    while rows := store.run(row_stream.read_rows(query, after=after, limit=PAGE_ROWS, **params)):
        yield from rows
        after = getattr(rows[-1], cursor)


def _read_tree(store: Store, tree: row_stream.CountedTreeRow, start: copy_writer.CopyJournal) -> Iterator[StreamItem]:
    """Read a tree, from the position of the journal if it began the tree.

    A row of an erased branch refers to nothing and is omitted.
    """
    outline, item = store.run(row_stream.read_tree_item(store.scope(), tree))
    yield item
    numbers = {branch.key: branch.number for branch in outline.branches}
    first, position = (start.branch, start.low) if start.tree == tree.key else (0, 0)
    for branch, stream_branch in zip(outline.branches, item.branches, strict=True):
        if branch.number < first:
            continue
        session_id = item.session_of(stream_branch)
        low: int | None = position if branch.number == first else 0
        while low is not None:
            page = store.run(row_stream.read_branch_page(session_id, branch.key, low, LAST_POSITION, deleted=True))
            calls = _with_numbers(page.calls, numbers)
            yield BranchItem(session_id, branch.number, page.messages, page.turns, calls, page.pins, (), page.versions)
            low = page.more
        if compactions := store.run(row_stream.read_compactions(branch.key, LAST_POSITION)):
            yield BranchItem(session_id, branch.number, (), (), (), (), compactions)
    for ordinal, (key, session) in enumerate(outline.sessions.items()):
        if snapshots := store.run(row_stream.read_snapshots(key)):
            yield SessionItem(session.value.id, ordinal, _with_numbers(snapshots, numbers), (), ())
        keys = _read_pages(store, APPENDS_AFTER, "key", "", {"session": key})
        while rows := list(islice(keys, PAGE_ROWS)):
            yield SessionItem(session.value.id, ordinal, (), _with_numbers(rows, numbers), ())
        for page in _read_record_pages(store, key):
            yield SessionItem(session.value.id, ordinal, (), (), page)


def _with_numbers(rows: list[B], numbers: dict[int, int]) -> list[B]:
    """Replace the keys of branches by their numbers, and omit the rows of other branches."""
    return [row._replace(branch=numbers[row.branch]) for row in rows if row.branch in numbers]


class _ComparedUnit:
    """The unit of comparison: a payload, a tree or the store's records, with a sum of hashes for each name in it.

    The hashes of the rows of a name are added up.
    """

    def __init__(self, kind: Literal["payload", "session", "record"], *order: Any) -> None:
        self.kind: Literal["payload", "session", "record"] = kind
        self.order = order
        self.sums: dict[str, int] = {}

    def add(self, name: str, kind: str, *row: Any) -> None:
        """Add a row of a name."""
        digest = hashlib.sha256(f"{kind}{row!r}".encode("utf-8", "surrogatepass")).digest()
        self.sums[name] = (self.sums.get(name, 0) + int.from_bytes(digest)) % (1 << 256)

    def add_tree(self, item: TreeItem) -> None:
        """Add the sessions and branches of a tree."""
        self.add(item.sessions[0]["id"] if item.sessions else "", "tree", item.branches_counted)
        for ordinal, columns in enumerate(item.sessions):
            self.add(columns["id"], "session", ordinal, *sorted(columns.items()))
        for branch in item.branches:
            self.add(item.session_of(branch), "branch", *branch)

    def add_rows(self, item: BranchItem | SessionItem) -> None:
        """Add rows of a branch or of a session."""
        place = item.number if isinstance(item, BranchItem) else item.ordinal
        for kind in item._fields[2:]:
            is_ordered = kind in ("compactions", "snapshots")  # their order is significant
            for number, row in enumerate(getattr(item, kind)):
                self.add(item.session, kind, place, number if is_ordered else 0, *row)


def _read_units(store: Store, tracker: _CopyProgress, *, count: bool = False) -> Iterator[_ComparedUnit]:
    """Read a whole store, and yield its units, in an order that is the same on every engine."""
    tree = _ComparedUnit("session", 1, 0)
    trees = 0
    store_records = _ComparedUnit("record", 2)
    for item in _read_items(store, copy_writer.CopyJournal("")):
        if count:
            tracker.count(item)
        if isinstance(item, Blob):
            unit = _ComparedUnit("payload", 0, item.row.hash)
            unit.add(item.row.hash, "blob", *item.row, hashlib.sha256(item.data).hexdigest())
            yield unit
            tracker.advance(1)
        elif isinstance(item, StoreItem):
            for row in item.records:
                store_records.add(f"{row.kind}/{row.key.decode()}", "record", *row)
        elif isinstance(item, TreeItem):
            yield tree
            trees += 1
            tree = _ComparedUnit("session", 1, trees)
            tree.add_tree(item)
        elif not isinstance(item, ParentRow):
            tree.add_rows(item)
            tracker.advance(len(item.messages) if isinstance(item, BranchItem) else 0)
    yield tree
    yield store_records
