"""The engine for threads: one writer at a time, readers beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from recollect.engine.bell import Bell
from recollect.engine.sqlite.connection import CHECKPOINT, TIMEOUT
from recollect.engine.sqlite.file import File
from recollect.errors import StoreClosed, StoreLocked
from recollect.op import Op

T = TypeVar("T")


class SqliteEngine:
    """Runs an operation in one transaction, on the caller's thread."""

    def __init__(self, path: str, *, timeout: float = TIMEOUT) -> None:
        self._file = File(path, timeout, CHECKPOINT)
        self._lock = threading.Lock()
        self._closed = False

    def holder(self) -> str:
        """Return the name of this process as others find it in the file."""
        return self._file.holder()

    def gone(self, name: str) -> bool:
        """Return whether a holder that wrote to the file is gone. False if that cannot be known."""
        return self._file.gone(name)

    @property
    def path(self) -> str:
        """Where the data is."""
        return self._file.path

    def run(self, op: Op[T]) -> T:
        """Run an operation and give its result; what it wrote is on disk by then."""
        if self._closed:
            raise StoreClosed
        if self._file.forked and self._file.after_fork():
            self._lock = threading.Lock()  # the parent's may have been held by a thread that is not here
        if not op.writes and not self._file.memory:
            return self._file.read(op)
        if not self._lock.acquire(timeout=self._file.timeout):
            raise StoreLocked(path=self._file.path, seconds=self._file.timeout)
        try:
            return self._file.write(op)
        finally:
            self._lock.release()

    def bell(self) -> Bell:
        """Give a bell that is rung when anyone commits something."""
        if self._closed:
            raise StoreClosed
        return self._file.bell()

    def maintain(self, work: Callable[[File], T]) -> T:
        """Do something with the file as a whole; in memory nothing else is done meanwhile."""
        if self._closed:
            raise StoreClosed
        if self._file.after_fork():
            self._lock = threading.Lock()
        if not self._file.memory:
            return work(self._file)
        with self._lock:
            return work(self._file)

    def close(self) -> None:
        """Wait for the write under way, and close. Closing twice is no error."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            self._file.close()
