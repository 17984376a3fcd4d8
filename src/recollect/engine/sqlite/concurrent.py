"""The engine for asyncio: a writing thread that commits what waits together, and threads that read.

One sync of the disk serves every operation of a batch, and none is acknowledged before it. Where one fails, the
batch is run again with each in a savepoint of its own. A full disk or an I/O error can roll back a whole batch,
savepoints included; then each operation is run again alone, from a fresh generator.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from recollect.engine.bell import Bell
from recollect.engine.job import Job, Line, tell
from recollect.engine.sqlite.connection import CHECKPOINT_OF_MANY, TIMEOUT, wait_at_most
from recollect.engine.sqlite.file import File
from recollect.engine.sqlite.place import Place
from recollect.engine.sqlite.transaction import undo
from recollect.errors import RecollectError, StoreClosed
from recollect.op import Op

T = TypeVar("T")

_BATCH = 256
_MANY = 16
_PATIENCE = 0.005
_READERS = 4


class AsyncSqliteEngine:
    """Runs an operation in a transaction that it may share with others that wait at the same time."""

    def __init__(self, path: str, *, timeout: float = TIMEOUT) -> None:
        self._file = File(path, timeout, CHECKPOINT_OF_MANY)
        self._start()

    def _start(self) -> None:
        self._writer = _Writer(self._file)
        self._line = Line(self._writer.jobs)
        # Not on the way out of the interpreter: what was acknowledged is on disk, and threads end there as they are.
        weakref.finalize(self, self._writer.drop).atexit = False

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

    async def run(self, op: Op[T]) -> T:
        """Run an operation and give its result; what it wrote is on disk by then.

        Cancelled before it has begun, it is withdrawn; one that has begun completes.
        """
        if self._line.closed:
            raise StoreClosed
        if self._file.after_fork():
            self._start()
        loop = asyncio.get_running_loop()
        if not op.writes and not self._file.memory:
            return await loop.run_in_executor(self._writer.readers, self._file.read, op)
        return await self._line.wait(op, loop)

    def bell(self) -> Bell:
        """Give a bell that is rung when anyone commits something."""
        if self._line.closed:
            raise StoreClosed
        return self._file.bell()

    async def maintain(self, work: Callable[[File], T]) -> T:
        """Do something with the file as a whole, in a thread; in memory nothing else is done meanwhile."""
        if self._line.closed:
            raise StoreClosed
        if self._file.after_fork():
            self._start()
        return await asyncio.get_running_loop().run_in_executor(None, self._maintain, work)

    def _maintain(self, work: Callable[[File], T]) -> T:
        if not self._file.memory:
            return work(self._file)
        with self._writer.writing:
            return work(self._file)

    async def close(self) -> None:
        """Finish what was asked for, and close. Closing twice is no error."""
        if self._file.after_fork():
            self._start()
        if self._line.close():
            await asyncio.get_running_loop().run_in_executor(None, self._writer.finish)


class _Writer:
    """The thread that writes, what waits for it, and the threads that read.

    It knows the file and not the engine: an engine that nobody holds any more is let go of although its thread runs,
    and that ends the thread.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="recollect-read")
        self.writing = threading.Lock()
        self._dropped = False
        self._thread = threading.Thread(target=self._work, name="recollect-write", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the thread, which was told to end, and close the file."""
        self._thread.join()
        self._end()

    def drop(self) -> None:
        """Have the thread finish what waits and close the file: nobody is left who would.

        Called wherever the interpreter happens to be, the thread itself included, so nothing is waited for here.
        """
        self._dropped = True
        self.jobs.put(None)

    def _end(self) -> None:
        self.readers.shutdown()
        self._file.close()

    def _work(self) -> None:
        """Take what waits, commit it together, tell everyone; until the store closes."""
        told: list[Job] = []
        open_ = True
        while open_:
            batch, open_ = self._take(wait=not told)
            if batch:
                with self.writing:
                    _answered(self._file, batch, functools.partial(tell, told))
            else:
                tell(told)
            told = batch
        tell(told)
        if self._dropped:
            with contextlib.suppress(RecollectError):  # nobody is there to be told; what was acknowledged is on disk
                self._end()

    def _take(self, *, wait: bool) -> tuple[list[Job], bool]:
        """Take what waits, or half of it where much does and nothing is under way; say if the store is still open.

        Half, so that there are two groups: the results of one are handed out while the other is synced to disk, and
        its callers prepare their next operations meanwhile, instead of everyone waiting for the disk at once.
        """
        jobs, batch = self.jobs, list[Job]()
        try:
            job = jobs.get(block=wait)
            most = jobs.qsize() // 2 if wait and jobs.qsize() >= _MANY else _BATCH
            while job is not None:
                if job.take():
                    batch.append(job)
                if len(batch) >= most:
                    break
                job = jobs.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, job is not None


def _answered(file: File, batch: list[Job], tell: Callable[[], None]) -> None:
    """Run the jobs of a batch. Whatever goes wrong, each gets an answer, and the thread goes on for the others."""
    try:
        _commit(file, batch, tell)
    except BaseException as error:  # noqa: BLE001  what was committed before it is there; who waits is told what happened
        tell()
        for job in batch:
            job.error = job.error or error


def _commit(file: File, batch: list[Job], tell: Callable[[], None]) -> None:
    """Run the jobs of a batch in one transaction; with savepoints where one of them fails, alone where that fails.

    `tell` hands out the results of the batch before; it is called when the disk is about to be waited for.
    """
    if len(batch) > 1 and (_together(file, batch, _bare, tell) or _together(file, batch, _in_savepoint, tell)):
        return
    tell()
    for job in batch:
        job.error = None
        try:
            job.result = file.write(job.op)
        except BaseException as error:  # noqa: BLE001  it is raised where the result is awaited
            job.error = error


def _together(
    file: File, batch: list[Job], run: Callable[[File, apsw.Connection, Job], bool], tell: Callable[[], None]
) -> bool:
    """Try a batch in one transaction. False: nothing of it was written."""
    try:
        file.enter()
    except RecollectError:  # it can not be opened again; each is told so when it is tried alone
        return False
    try:
        return _tried(file, batch, run, tell)
    finally:
        file.leave()


def _tried(
    file: File, batch: list[Job], run: Callable[[File, apsw.Connection, Job], bool], tell: Callable[[], None]
) -> bool:
    connection = file.writer
    if connection is None:
        return False
    opened = file.place
    if _gone(file, batch, opened):
        tell()
        return True
    wait_at_most(connection, file.timeout, tell)  # another process may write: those before need not wait for it
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError as error:  # each has waited as long as it wanted to: together, not one after another
        tell()
        for job in batch:
            job.error = file.transactions.meaning(error)
            job.error.__cause__ = error
        return True
    except apsw.Error:
        return False
    if not _committed(file, connection, batch, run, tell):
        return False
    if not _gone(file, batch, opened):
        _conclude(file, batch)
    return True


def _committed(
    file: File,
    connection: apsw.Connection,
    batch: list[Job],
    run: Callable[[File, apsw.Connection, Job], bool],
    tell: Callable[[], None],
) -> bool:
    patience = time.monotonic() + _PATIENCE
    try:
        try:
            for job in batch:
                if not run(file, connection, job):
                    return False
                if time.monotonic() > patience:
                    tell()
            tell()
            connection.execute("COMMIT")
        finally:
            undo(connection)
    except apsw.Error:
        return False
    return True


def _gone(file: File, batch: list[Job], opened: Place | None) -> bool:
    """Say if the files that were opened are no longer there, and tell each of a batch."""
    if opened is file.place and not file.displaced():
        return False
    for job in batch:
        job.error = file.left(opened)
    return True


def _conclude(file: File, batch: list[Job]) -> None:
    """Do what follows a commit."""
    file.finish_erasure(erased=any(job.op.scrubs for job in batch))
    file.toll()


def _bare(file: File, connection: apsw.Connection, job: Job) -> bool:
    """Run a job as if it could not fail: nearly none does, and a savepoint for each costs a tenth of the work."""
    try:
        job.result = file.transactions.drive(connection, job.op)
    except apsw.Error:
        raise
    except Exception:  # noqa: BLE001  whatever it is, it is one job's own, and is told to it in the next try
        return False
    return True


def _in_savepoint(file: File, connection: apsw.Connection, job: Job) -> bool:
    """Run a job so that its failure undoes only itself. False: the whole transaction is gone, or must go."""
    connection.execute("SAVEPOINT op")
    try:
        job.result = file.transactions.drive(connection, job.op)
    except BaseException as error:  # noqa: BLE001  it is raised where the result is awaited
        if not connection.in_transaction or isinstance(error, apsw.CorruptError):
            return False  # what looks like damage is looked at again, by each alone
        connection.execute("ROLLBACK TO op")
        job.error = file.transactions.explained(connection, error)
        if job.error is not error:
            job.error.__cause__ = error
    connection.execute("RELEASE op")
    return True
