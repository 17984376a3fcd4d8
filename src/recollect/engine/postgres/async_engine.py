"""The PostgreSQL engine for asyncio and trio: writer threads with group commit, and threads for other operations.

Operations of one owner that are confined to one session run side by side in one transaction: they share round trips and
one fsync of the server, and none is acknowledged before it. If one is refused, the others run again without it, and it
runs alone. Any other operation gets its own transaction. Operations of different owners never share one, because the
transaction sets the owner for row-level security.
"""

from __future__ import annotations

import functools
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from recollect.engine import process
from recollect.engine.change_notifier import ChangeNotifier
from recollect.engine.event_loop import run_in_thread, running_loop
from recollect.engine.postgres.server import DatabaseServer
from recollect.engine.write_queue import QueuedOperation, WriteQueue, deliver_results
from recollect.errors import StoreClosed, StoreUnavailable
from recollect.storage.operation import Operation

if TYPE_CHECKING:
    from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")

# Operations of one transaction. All of them wait for the slowest, and their rows stay locked meanwhile; fewer need more
# commits.
_MAX_BATCH = 64
_WRITER_THREADS = 2  # one sends its batch while the other waits for the server's fsync


class AsyncPostgresEngine:
    """Runs an operation in a transaction that it may share with others of the same owner that wait at the same time."""

    def __init__(self, shared: SharedServer, owner: str) -> None:
        self._shared = shared
        self._owner = owner

    def as_owner(self, owner: str) -> AsyncPostgresEngine:
        """Return an engine for another owner on the same connections and threads."""
        if self._shared.is_closed:
            raise StoreClosed
        return AsyncPostgresEngine(self._shared, owner)

    @property
    def path(self) -> str:
        """The URL of the server, without the password."""
        return self._shared.server.path

    @property
    def maintenance(self) -> None:
        """None: the files belong to the server."""

    def holder(self) -> str:
        """Return the holder name of this process, which operations store in the database."""
        return process.holder()

    def is_gone(self, name: str) -> bool:
        """Return whether a holder is a process of this machine that has ended."""
        return process.is_gone(name)

    async def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result; its writes are on the server's disk by then.

        If the task is cancelled before the operation begins, it is withdrawn; an operation that has begun completes.
        """
        shared = self._shared
        shared.prepare()
        loop = running_loop()
        if not op.writes:
            read = functools.partial(shared.server.read, op, self._owner)
            return await shared.write_queue.run_in_executor(shared.workers.executor, read, loop)
        return await shared.write_queue.wait(op, loop, self._owner)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread, and return its result."""
        return await run_in_thread(work)

    def search_dialect(self) -> SearchDialect:
        """Return the search of this engine."""
        from recollect.engine.postgres.search import PostgresSearch  # noqa: PLC0415  most programs do not search

        return PostgresSearch()

    def change_notifier(self) -> ChangeNotifier:
        """Return a change notifier, which reports commits of all connections."""
        if self._shared.is_closed:
            raise StoreClosed
        return self._shared.server.change_notifier(self._owner)

    async def close(self) -> None:
        """Finish the queued operations and close, also for other owners. Closing twice is allowed."""
        await self._shared.close()


class SharedServer:
    """A server with its write queue and threads, which the engines of all owners use."""

    def __init__(self, server: DatabaseServer) -> None:
        self.server = server
        self._start()

    def _start(self) -> None:
        self.workers = _WorkerThreads(self.server)
        self.write_queue = WriteQueue(self.workers.jobs)
        # Not at interpreter exit: acknowledged operations are on disk, and daemon threads may end at any point.
        weakref.finalize(self, self.workers.drop).atexit = False

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self.write_queue.closed

    def prepare(self) -> None:
        """Raise StoreClosed after close(). Start threads if this process was forked since the last use."""
        if self.write_queue.closed:
            raise StoreClosed
        if self.server.after_fork():
            self._start()

    async def close(self) -> None:
        """Finish the queued operations and close. Closing twice is allowed."""
        # In a forked child, threads, locks and connections are the parent's, and nothing was queued here.
        if self.server.is_forked:
            self.write_queue = WriteQueue(queue.SimpleQueue())
            self.write_queue.close()
            self.server.close()
        elif self.write_queue.close():
            await run_in_thread(self.workers.finish)


class _WorkerThreads:
    """The writer threads with their queue, and the threads for all other operations.

    It refers to the server and not to the engine, so that an engine without references is collected while the threads
    run; its finalizer then ends them.
    """

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self.jobs: queue.SimpleQueue[QueuedOperation | None] = queue.SimpleQueue()
        size = server.address.pool_size
        self.executor = ThreadPoolExecutor(size, thread_name_prefix="recollect-postgres")
        self._is_dropped = False
        self._running = list(range(min(_WRITER_THREADS, size)))
        self._writers = [
            threading.Thread(target=self._work, name=f"recollect-write-{number}", daemon=True)
            for number in self._running
        ]
        for writer in self._writers:
            writer.start()

    def finish(self) -> None:
        """Wait for the threads to end, which the closed queue makes them do, and close the connections.

        On one of the threads, as in a finalizer that the garbage collector runs there, the last one does so at its end.
        """
        if threading.current_thread() in self._writers:
            self._is_dropped = True
            return
        for writer in self._writers:
            writer.join()
        self._close_connections()

    def drop(self) -> None:
        """Make the threads finish the queue and close the connections, because no engine is left to do it.

        The garbage collector calls this on any thread, also on one of these threads, so it must not wait.
        """
        self._is_dropped = True
        self.jobs.put(None)  # reentrant in SimpleQueue (not in Queue), as a finalizer needs it

    def _close_connections(self) -> None:
        self.executor.shutdown()
        self._server.close()

    def _work(self) -> None:
        """Take batches, commit them and deliver the results, until the queue is closed."""
        while True:
            batches, is_open = self._take_batches()
            while batches:
                batch = batches.pop()
                if batches:  # of another owner: its commit need not wait for this one
                    self.executor.submit(self._commit, batch)
                else:
                    self._commit(batch)
                batch = []  # an error's traceback refers to its waiter, and so keeps the engine alive
            if not is_open:
                self.jobs.put(None)  # for the other writer thread
                break
        if self._running.pop() == 0 and self._is_dropped:  # list.pop() is atomic: exactly one thread is the last
            self._close_connections()

    def _take_batches(self) -> tuple[list[list[QueuedOperation]], bool]:
        """Return the next batches, one for each owner, and whether the queue is still open.

        They have at most half of the queue, so that both writer threads have work. Operations that cannot share a
        transaction run alone or later.
        """
        jobs, batches = self.jobs, dict[str, dict[str, QueuedOperation]]()
        job = jobs.get()
        max_count, count = max(min(jobs.qsize() // 2, _MAX_BATCH), 1), 0
        later: list[QueuedOperation] = []
        try:
            while job is not None:
                count += self._dispatch(job, batches, later)
                if count >= max_count:
                    break
                job = jobs.get_nowait()
        except queue.Empty:
            pass
        for job_to_defer in later:
            jobs.put(job_to_defer)
        is_open = job is not None
        if later and not is_open:
            jobs.put(None)  # the end of the queue comes after the operations that were put back
            is_open = True
        # Sorted by session id, as in every batch, so that two transactions never deadlock on their sessions.
        return [[batch[name] for name in sorted(batch)] for batch in batches.values()], is_open

    def _dispatch(
        self, job: QueuedOperation, batches: dict[str, dict[str, QueuedOperation]], later: list[QueuedOperation]
    ) -> bool:
        """Add an operation to the batch of its owner, run it alone if it touches other sessions, or defer it.

        Of one session only one operation runs per batch; later ones wait, in order. Return whether it was added.
        """
        session, batch = job.op.session, batches.get(job.owner)
        if session is not None and batch is not None and session in batch:
            later.append(job)
        elif job.take():
            if session is not None:
                batches.setdefault(job.owner, {})[session] = job
                return True
            self._submit(job)  # on another thread: it may wait for locks, and a batch must not
        return False

    def _submit(self, job: QueuedOperation) -> None:
        """Run an operation alone on another thread, or on this one if the program ends and executors refuse work."""
        try:
            self.executor.submit(self._run_alone, job)
        except RuntimeError:
            self._run_alone(job)

    def _run_alone(self, job: QueuedOperation) -> None:
        try:
            job.result, job.error = self._server.write(job.op, job.owner), None
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            job.error = error
        deliver_results([job])

    def _commit(self, batch: list[QueuedOperation]) -> None:
        """Commit operations of one owner together and deliver their results. Those that are refused run again alone."""
        refusals: list[int] = []
        try:
            committed = self._write_together(batch, refusals)
        except StoreUnavailable as error:  # all have waited for the timeout; one after another would multiply it
            for job in batch:
                job.error = error
            deliver_results(batch)
            return
        except Exception:  # noqa: BLE001  run alone, each operation raises its own error
            committed = False
        # Committed: the refused operations wrote nothing and run alone. Not committed: those that failed run alone, to
        # raise their own errors, and the others together again; if none failed (a conflict), each runs alone.
        alone = set(refusals) if committed else set(refusals) or set(range(len(batch)))
        remaining = [job for number, job in enumerate(batch) if number not in alone]
        for number in sorted(alone):
            self._submit(batch[number])
        if committed:
            deliver_results(remaining)
        elif remaining:
            self._commit(remaining)

    def _write_together(self, batch: list[QueuedOperation], refusals: list[int]) -> bool:
        results = self._server.write_together([job.op for job in batch], batch[0].owner, refusals.append)
        for job, result in zip(batch, results or (), strict=False):
            job.result = result
        return results is not None
