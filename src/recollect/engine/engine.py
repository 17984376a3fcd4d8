"""The interface of an engine: what a database must offer so that a store can use it.

A store depends on these protocols only. To add an engine, write a module with the functions of EngineProvider and
register it under its URL scheme in the entry point group `recollect.engines`; docs/internals/engines.md describes the
steps, and the conformance suite tests the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from recollect.engine.change_notifier import ChangeNotifier
from recollect.model.reports import Backup, Finding, OptimizeReport, Space
from recollect.storage.operation import Operation

if TYPE_CHECKING:
    from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")

BackupProgress = Callable[[int, int], object]
"""A function that is called with the amount done and the total."""


class FileCheck(NamedTuple):
    """The result of a check of the database files: the names of the checks that ran, and the findings."""

    areas: tuple[str, ...]
    findings: list[Finding]


class Maintenance(Protocol):
    """Work on the files of a database. An engine without files of its own, such as a client of a server, has none."""

    def backup(self, path: str, *, overwrite: bool, progress: BackupProgress | None) -> str:
        """Copy the database to a file while it is in use, verify the copy, and return its absolute path."""
        ...

    def check(self, *, deep: bool) -> FileCheck:
        """Check the files for damage. `deep` also reads every page."""
        ...

    def space(self) -> Space:
        """Return the disk usage."""
        ...

    def optimize(self) -> OptimizeReport:
        """Return free space to the disk and rewrite the files."""
        ...


class Engine(Protocol):
    """A database that runs operations on the caller's thread. Any number of threads may use it."""

    @property
    def path(self) -> str:
        """The location of the database as users see it: a path, or a URL without its password."""
        ...

    @property
    def maintenance(self) -> Maintenance | None:
        """The work on database files, or None if the engine has no files."""
        ...

    def as_owner(self, owner: str) -> Engine:
        """Return an engine for another owner that shares connections and threads with this one. It must not block.

        An engine that separates owners in the database runs the operations of the new engine as that owner. An engine
        that does not, because operations name their owner, returns itself. The store closes only the engine that was
        opened; the other ones raise StoreClosed after that.
        """
        ...

    def holder(self) -> str:
        """Return the name of this process, which operations store with open turns."""
        ...

    def is_gone(self, name: str) -> bool:
        """Return whether the process with this holder name has ended. False if that cannot be known."""
        ...

    def search_dialect(self) -> SearchDialect:
        """Return the search of this engine. Import its modules on the first call: most programs do not search."""
        ...

    def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction and return its result; its writes are durable by then.

        The engine may run the operation again from the start. If the operation has a fast-path request (`op.fast`),
        the engine may answer it instead of running the steps. Raise errors of recollect.errors only.
        """
        ...

    def change_notifier(self) -> ChangeNotifier:
        """Return a new change notifier, which reports the commits of all processes."""
        ...

    def close(self) -> None:
        """Finish the operations in progress and close. Closing twice is allowed; other calls raise StoreClosed."""
        ...


class AsyncEngine(Protocol):
    """A database that runs operations of concurrent tasks. Several event loops may use it."""

    @property
    def path(self) -> str:
        """The location of the database as users see it: a path, or a URL without its password."""
        ...

    @property
    def maintenance(self) -> Maintenance | None:
        """The work on database files, or None. Its methods block: call them through run_blocking()."""
        ...

    def as_owner(self, owner: str) -> AsyncEngine:
        """Return an engine for another owner that shares connections and threads with this one. It must not block.

        An engine that separates owners in the database runs the operations of the new engine as that owner. An engine
        that does not, because operations name their owner, returns itself. The store closes only the engine that was
        opened; the other ones raise StoreClosed after that.
        """
        ...

    def holder(self) -> str:
        """Return the name of this process, which operations store with open turns."""
        ...

    def is_gone(self, name: str) -> bool:
        """Return whether the process with this holder name has ended. False if that cannot be known."""
        ...

    def search_dialect(self) -> SearchDialect:
        """Return the search of this engine. Import its modules on the first call: most programs do not search."""
        ...

    async def run(self, op: Operation[T]) -> T:
        """Run an operation as Engine.run() does, without blocking the event loop. Without a running loop, block.

        engine.event_loop waits for threads under asyncio, under trio and without a loop. If the task is cancelled
        before the operation begins, it is withdrawn; an operation that has begun completes.
        """
        ...

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread, such as maintenance, and return its result."""
        ...

    def change_notifier(self) -> ChangeNotifier:
        """Return a new change notifier, which reports the commits of all processes."""
        ...

    async def close(self) -> None:
        """Finish the queued operations and close. Closing twice is allowed; other calls raise StoreClosed.

        Like run(), it may be called in another event loop than before, or without one.
        """
        ...


class DatabaseFiles(Protocol):
    """Work on the files of databases that need not be open."""

    def exists(self, path: str) -> bool:
        """Return whether a database exists. An unreadable one does: opening it reports the reason."""
        ...

    def describe_backup(self, backup: str, path: str, *, verify: bool, timeout: float) -> Backup:
        """Read a whole backup that could be restored to `path`, and return a description of its content."""
        ...

    def restore_backup(self, backup: str, path: str, *, verify: bool, timeout: float) -> str | None:
        """Replace the database at `path` by a backup. Return where the previous one is kept; None if there was none."""
        ...


class EngineProvider(Protocol):
    """The entry point of an engine: a module, or any object, that opens databases by URL."""

    @property
    def files(self) -> DatabaseFiles | None:
        """The functions on files, or None if the engine has no files, such as a client of a server."""
        ...

    def schema_version(self) -> int:
        """Return the number of the schema that an open database has."""
        ...

    def open(self, url: str, *, owner: str, timeout: float, trusted: bool = False) -> Engine:
        """Open a database, and create or migrate it if necessary.

        `timeout` is the number of seconds to wait for a lock or a server. An engine that separates owners in the
        database refuses a connection that could bypass the separation, unless it is `trusted`; also later, when
        as_owner() names an owner for the first time.
        """
        ...

    def open_async(self, url: str, *, owner: str, timeout: float) -> AsyncEngine:
        """Open a database for concurrent tasks. It blocks: a store calls it in a thread."""
        ...
