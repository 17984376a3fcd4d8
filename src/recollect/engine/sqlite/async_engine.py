"""The SQLite engine for asyncio and trio: a writer thread with group commit, and reader threads.

One fsync serves every operation of a batch, and none is acknowledged before it. If an operation fails, the batch
runs again with a savepoint per operation. A full disk or an I/O error can roll back the whole batch, savepoints
included; then each operation runs again alone, from a new generator.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

import apsw

from recollect.engine.change_notifier import ChangeNotifier
from recollect.engine.engine import Maintenance
from recollect.engine.event_loop import NO_LOOP, run_in_thread, running_loop
from recollect.engine.sqlite.connection import GROUP_CHECKPOINT_PAGES, TIMEOUT, set_lock_timeout
from recollect.engine.sqlite.database_file import DatabaseFile
from recollect.engine.sqlite.file_identity import FileIdentity
from recollect.engine.sqlite.transactions import rollback
from recollect.engine.write_queue import QueuedOperation, WriteQueue, deliver_results
from recollect.errors import RecollectError, StoreClosed
from recollect.storage.operation import Deletion, Operation

if TYPE_CHECKING:
    from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")

# Operations of one transaction. With more, the first of them waits longer for the commit; fewer need more fsyncs.
_MAX_BATCH = 256
_SPLIT_BATCH_AT = 16  # waiting operations. With fewer, a second fsync costs more than overlapping the two groups saves
# Seconds. A batch that runs longer than this delivers the results of the previous batch now, and not just before its
# own commit. A shorter delay would wake the event loop while most batches still run.
_DELIVERY_DELAY = 0.005
# Concurrent reads; SQLite releases the GIL while it runs. Each thread needs a connection with its cache.
_READER_THREADS = 4


class AsyncSqliteEngine:
    """Runs an operation in a transaction that it may share with others that wait at the same time."""

    def __init__(self, path: str, *, timeout: float = TIMEOUT) -> None:
        self._file = DatabaseFile(path, timeout, GROUP_CHECKPOINT_PAGES)
        self._start()

    def _start(self) -> None:
        self._writer = _WriterThread(self._file)
        self._write_queue = WriteQueue(self._writer.jobs)
        self._read_queue = WriteQueue(self._writer.readers.jobs)
        # Not at interpreter exit: acknowledged operations are on disk, and daemon threads may end at any point.
        weakref.finalize(self, self._writer.drop).atexit = False

    def as_owner(self, owner: str) -> Self:  # noqa: ARG002  for servers
        """Return this engine: operations name their owner, and a file has no further separation."""
        if self._write_queue.closed:
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

    async def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result; its writes are on disk by then.

        If the task is cancelled before the operation begins, it is withdrawn; an operation that has begun completes.
        """
        if self._write_queue.closed:
            raise StoreClosed
        if self._file.after_fork():
            self._start()
        loop = running_loop()
        if op.writes or self._file.memory:
            return await self._write_queue.wait(op, loop)
        if loop == NO_LOOP or not self._writer.readers.prepare():
            return self._file.read(op)  # this thread has nothing else to do, or the interpreter is ending
        return await self._read_queue.wait(op, loop)

    def search_dialect(self) -> SearchDialect:
        """Return the search of this engine."""
        from recollect.engine.sqlite.search import SqliteSearch  # noqa: PLC0415  most programs do not search

        return SqliteSearch()

    def change_notifier(self) -> ChangeNotifier:
        """Return a change notifier, which reports commits of all processes."""
        if self._write_queue.closed:
            raise StoreClosed
        return self._file.change_notifier()

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread, and return its result."""
        return await run_in_thread(work)

    @property
    def maintenance(self) -> Maintenance:
        """The maintenance of the file."""
        from recollect.engine.sqlite.maintenance import SqliteMaintenance  # noqa: PLC0415  few programs use it

        return SqliteMaintenance(self._maintain)

    def _maintain(self, work: Callable[[DatabaseFile], T]) -> T:
        """Run maintenance on the file. In memory, writes wait until it has ended."""
        if self._write_queue.closed:
            raise StoreClosed
        if self._file.after_fork():
            self._start()
        if not self._file.memory:
            return work(self._file)
        with self._writer.write_lock:
            return work(self._file)

    async def close(self) -> None:
        """Finish the queued operations and close. Closing twice is allowed."""
        if self._file.after_fork():
            self._start()
        self._read_queue.close()
        if self._write_queue.close():
            await run_in_thread(self._writer.finish)


class _ReaderThreads:
    """The reader threads, which start as they are needed. A ThreadPoolExecutor adds 7 microseconds to each read."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self.jobs: queue.SimpleQueue[QueuedOperation | None] = queue.SimpleQueue()
        self._idle: list[None] = []  # one item for each idle thread; list.pop() is atomic
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def prepare(self) -> bool:
        """Ensure that a thread takes the next operation. Return False if no thread can be started any more."""
        try:
            self._idle.pop()
        except IndexError:
            with self._lock:
                if len(self._threads) < _READER_THREADS:
                    thread = threading.Thread(target=self._work, name="recollect-read", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is ending
                        return bool(self._threads)
                    self._threads.append(thread)
        return True

    def finish(self) -> None:
        """Wait until the threads have run the queued operations, and end them."""
        for _ in range(_READER_THREADS):  # also for a thread that starts meanwhile
            self.jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            if job.take():
                try:
                    job.result = self._file.read(job.op)
                except BaseException as error:  # noqa: BLE001  raised where the result is awaited
                    job.error = error
                self._idle.append(None)
                deliver_results([job])
            else:
                self._idle.append(None)
            del job  # its result must not live until the next operation


class _WriterThread:
    """The writer thread with its queue, and the reader threads.

    It refers to the file and not to the engine, so that an engine without references is collected while the thread
    runs; its finalizer then ends the thread.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self.jobs: queue.SimpleQueue[QueuedOperation | None] = queue.SimpleQueue()
        self.readers = _ReaderThreads(file)
        self.write_lock = threading.Lock()
        self._is_dropped = False
        self._thread = threading.Thread(target=self._work, name="recollect-write", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the thread to end, which the closed queue makes it do, and close the file.

        On the thread itself, as in a finalizer that the garbage collector runs there, the thread does so at its end.
        """
        if threading.current_thread() is self._thread:
            self._is_dropped = True
            return
        self._thread.join()
        self._close_file()

    def drop(self) -> None:
        """Make the thread finish the queue and close the file, because no engine is left to do it.

        The garbage collector calls this on any thread, also on the writer thread, so it must not wait.
        """
        self._is_dropped = True
        self.jobs.put(None)  # reentrant in SimpleQueue (not in Queue), as a finalizer needs it

    def _close_file(self) -> None:
        self.readers.finish()
        self._file.close()

    def _work(self) -> None:
        """Take a batch, commit it, and deliver the results of the previous one meanwhile, until the queue is closed."""
        previous_batch: list[QueuedOperation] = []
        is_open = True
        while is_open:
            # With results to deliver it does not wait: they must not depend on the arrival of further operations.
            batch, is_open = self._take_batch(wait=not previous_batch)
            if batch:
                with self.write_lock:
                    _run_batch(self._file, batch, functools.partial(deliver_results, previous_batch))
            else:
                deliver_results(previous_batch)
            previous_batch = batch
        deliver_results(previous_batch)
        if self._is_dropped:
            with contextlib.suppress(RecollectError):  # no caller is left for it; acknowledged writes are on disk
                self._close_file()

    def _take_batch(self, *, wait: bool) -> tuple[list[QueuedOperation], bool]:
        """Return the next batch and whether the queue is still open.

        If many operations wait and no results are undelivered, take half of them. That makes two groups: while one is
        synced to disk, the results of the other are delivered and its callers prepare their next operations, instead
        of all callers waiting for the disk at once.
        """
        jobs, batch = self.jobs, list[QueuedOperation]()
        try:
            job = jobs.get(block=wait)
            max_batch = jobs.qsize() // 2 if wait and jobs.qsize() >= _SPLIT_BATCH_AT else _MAX_BATCH
            while job is not None:
                if job.take():
                    batch.append(job)
                if len(batch) >= max_batch:
                    break
                job = jobs.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, job is not None


def _run_batch(file: DatabaseFile, batch: list[QueuedOperation], deliver: Callable[[], None]) -> None:
    """Run a batch. After any error, each operation has a result or an error, and the writer thread continues."""
    try:
        _commit_batch(file, batch, deliver)
    except BaseException as error:  # noqa: BLE001  earlier commits stay; the others get this error
        deliver()
        for job in batch:
            job.error = job.error or error


def _commit_batch(file: DatabaseFile, batch: list[QueuedOperation], deliver: Callable[[], None]) -> None:
    """Run a batch in one transaction; with savepoints if an operation fails, each alone if the transaction is lost.

    `deliver` delivers the results of the previous batch. It is called before each wait for the disk or for a lock.
    """
    if len(batch) > 1 and (
        _commit_together(file, batch, _run_without_savepoint, deliver)
        or _commit_together(file, batch, _run_in_savepoint, deliver)
    ):
        return
    deliver()
    for job in batch:
        job.error = None
        try:
            job.result = file.write(job.op)
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            job.error = error


def _commit_together(
    file: DatabaseFile,
    batch: list[QueuedOperation],
    run_one: Callable[[DatabaseFile, apsw.Connection, QueuedOperation], bool],
    deliver: Callable[[], None],
) -> bool:
    """Try a batch in one transaction. Return False if nothing of it was written."""
    try:
        file.enter()
    except RecollectError:  # the file cannot be reopened; each operation raises that when it runs alone
        return False
    try:
        return _try_transaction(file, batch, run_one, deliver)
    finally:
        file.leave()


def _try_transaction(
    file: DatabaseFile,
    batch: list[QueuedOperation],
    run_one: Callable[[DatabaseFile, apsw.Connection, QueuedOperation], bool],
    deliver: Callable[[], None],
) -> bool:
    """Run a batch in one transaction on the writer connection. Return False if nothing of it was written."""
    connection = file.writer
    if connection is None:
        return False
    identity = file.identity
    if _fail_displaced(file, batch, identity):
        deliver()
        return True
    # Another process may hold the lock for long: the previous results are delivered before the wait. The handler stays
    # installed after this batch, which is harmless: a batch that was delivered is empty.
    set_lock_timeout(connection, file.timeout, deliver)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError as error:  # all have waited for the timeout; one after another would multiply it
        deliver()
        for job in batch:
            job.error = file.transactions.translate_error(error)
            job.error.__cause__ = error
        return True
    except apsw.Error:
        return False
    if not _run_and_commit(file, connection, batch, run_one, deliver):
        return False
    if not _fail_displaced(file, batch, identity):
        _after_commit(file, batch)
    return True


def _run_and_commit(
    file: DatabaseFile,
    connection: apsw.Connection,
    batch: list[QueuedOperation],
    run_one: Callable[[DatabaseFile, apsw.Connection, QueuedOperation], bool],
    deliver: Callable[[], None],
) -> bool:
    deliver_at = time.monotonic() + _DELIVERY_DELAY
    try:
        try:
            for job in batch:
                if not run_one(file, connection, job):
                    return False
                if time.monotonic() > deliver_at:
                    deliver()
            deliver()  # before the fsync, the longest wait of the batch
            connection.execute("COMMIT")
        finally:
            rollback(connection)  # does nothing after COMMIT
    except apsw.Error:
        return False
    return True


def _fail_displaced(file: DatabaseFile, batch: list[QueuedOperation], identity: FileIdentity | None) -> bool:
    """Return whether the opened files were removed or replaced; then set the error of each operation."""
    if identity is file.identity and not file.is_displaced():
        return False
    for job in batch:
        job.error = file.displaced_error(identity)
    return True


def _after_commit(file: DatabaseFile, batch: list[QueuedOperation]) -> None:
    """Wipe the content that the batch erased from the file, and wake the change notifiers."""
    file.finish_erasure(has_erased=any(job.op.deletion is Deletion.CONTENT for job in batch))
    file.notify_watchers()


def _run_without_savepoint(file: DatabaseFile, connection: apsw.Connection, job: QueuedOperation) -> bool:
    """Run an operation without a savepoint, which saves 10% of the time. Return False if it failed."""
    try:
        job.result = file.transactions.drive(connection, job.op)
    except apsw.Error:
        raise  # the transaction may be gone, with the operations before this one
    except Exception:  # noqa: BLE001  the operation's own error; the second attempt, with savepoints, reports it
        return False
    return True


def _run_in_savepoint(file: DatabaseFile, connection: apsw.Connection, job: QueuedOperation) -> bool:
    """Run an operation so that its failure undoes only itself. Return False if the transaction is lost."""
    connection.execute("SAVEPOINT op")
    try:
        job.result = file.transactions.drive(connection, job.op)
    except BaseException as error:  # noqa: BLE001  raised where the result is awaited
        if not connection.in_transaction or isinstance(error, apsw.CorruptError):
            return False  # damage may be a transient read error: each operation is tried again alone
        connection.execute("ROLLBACK TO op")
        job.error = file.transactions.translate_failure(connection, error)
        if job.error is not error:
            job.error.__cause__ = error
    connection.execute("RELEASE op")
    return True
