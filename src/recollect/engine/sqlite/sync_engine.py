"""The SQLite engine for threads: one writer at a time, concurrent readers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

from recollect.engine.change_notifier import ChangeNotifier
from recollect.engine.engine import Maintenance
from recollect.engine.sqlite.connection import CHECKPOINT_PAGES, TIMEOUT
from recollect.engine.sqlite.database_file import DatabaseFile
from recollect.errors import StoreClosed, StoreLocked
from recollect.storage.operation import Operation

if TYPE_CHECKING:
    from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")


class SqliteEngine:
    """Runs an operation in one transaction, on the caller's thread."""

    def __init__(self, path: str, *, timeout: float = TIMEOUT) -> None:
        self._file = DatabaseFile(path, timeout, CHECKPOINT_PAGES)
        self._lock = threading.Lock()
        self._closed = False

    def as_owner(self, owner: str) -> Self:  # noqa: ARG002  for servers
        """Return this engine: operations name their owner, and a file has no further separation."""
        if self._closed:
            raise StoreClosed
        return self

    def holder(self) -> str:
        """Return the holder name of this process, which operations store in the file."""
        return self._file.holder()

    def is_gone(self, name: str) -> bool:
        """Return whether a holder that wrote to the file is gone. False if that cannot be known."""
        return self._file.is_gone(name)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._file.path

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result; its writes are on disk by then."""
        if self._closed:
            raise StoreClosed
        if self._file.is_forked and self._file.after_fork():
            self._lock = threading.Lock()  # a thread of the parent, which does not exist here, may hold the old one
        if not op.writes and not self._file.memory:
            return self._file.read(op)
        if not self._lock.acquire(timeout=self._file.timeout):
            raise StoreLocked(path=self._file.path, seconds=self._file.timeout)
        try:
            return self._file.write(op)
        finally:
            self._lock.release()

    def search_dialect(self) -> SearchDialect:
        """Return the search of this engine."""
        from recollect.engine.sqlite.search import SqliteSearch  # noqa: PLC0415  most programs do not search

        return SqliteSearch()

    def change_notifier(self) -> ChangeNotifier:
        """Return a change notifier, which reports commits of all processes."""
        if self._closed:
            raise StoreClosed
        return self._file.change_notifier()

    @property
    def maintenance(self) -> Maintenance:
        """The maintenance of the file."""
        from recollect.engine.sqlite.maintenance import SqliteMaintenance  # noqa: PLC0415  few programs use it

        return SqliteMaintenance(self._maintain)

    def _maintain(self, work: Callable[[DatabaseFile], T]) -> T:
        """Run maintenance on the file. In memory, writes wait until it has ended."""
        if self._closed:
            raise StoreClosed
        if self._file.after_fork():
            self._lock = threading.Lock()
        if not self._file.memory:
            return work(self._file)
        with self._lock:
            return work(self._file)

    def close(self) -> None:
        """Wait for the write in progress, and close. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            self._file.close()
