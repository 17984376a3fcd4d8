"""The write queue of the async engines: operations wait for a writer thread, and results return to their loops."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from recollect.engine.event_loop import NO_LOOP, Loop, Waiter, wait_for
from recollect.errors import StoreClosed
from recollect.storage.operation import Operation

T = TypeVar("T")


class QueuedOperation:
    """An operation in the write queue, and the waiter that receives its result.

    A writer thread sets `result` or `error`; only the event loop touches `waiter`, which is not thread-safe.
    """

    __slots__ = ("claim", "error", "loop", "op", "owner", "result", "waiter")

    def __init__(self, op: Operation[Any], loop: Loop, owner: str) -> None:
        self.op = op
        self.owner = owner
        self.loop = loop
        self.result: Any = None
        self.error: BaseException | None = None
        # list.pop() is atomic: either a writer thread begins the operation or its cancelled caller withdraws it.
        self.claim = [True]
        self.waiter: Waiter = (
            loop.create_future() if isinstance(loop, asyncio.AbstractEventLoop) else loop.create_waiter(self.take)
        )

    def take(self) -> bool:
        """Claim the operation. Return False if the other side was first."""
        try:
            return self.claim.pop()
        except IndexError:
            return False


class WriteQueue:
    """Operations that wait for the writer threads, in order, until the queue is closed."""

    __slots__ = ("_jobs", "_lock", "closed")

    def __init__(self, jobs: queue.SimpleQueue[QueuedOperation | None]) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self.closed = False

    async def wait(self, op: Operation[T], loop: Loop, owner: str = "") -> T:
        """Queue an operation and return its result. An engine whose transactions belong to owners passes `owner`.

        If the task is cancelled before the operation begins, it is withdrawn; an operation that has begun completes.
        """
        job = QueuedOperation(op, loop, owner)
        with self._lock:  # so that no operation is queued after the None with which close() ends the threads
            if self.closed:
                raise StoreClosed
            self._jobs.put(job)
        try:
            return await job.waiter
        except asyncio.CancelledError:  # trio has withdrawn it, or waits for its end
            job.take()  # withdraws it, unless a writer thread has begun it
            raise

    async def run_in_executor(self, executor: Executor, work: Callable[[], T], loop: Loop) -> T:
        """Run work that need not be queued, such as a read, in a thread of an executor, and return its result."""
        if loop == NO_LOOP:
            return work()  # this thread has nothing else to do
        try:
            future = executor.submit(work)
        except RuntimeError:
            if self.closed:
                raise StoreClosed from None
            return work()  # executors refuse work once the main thread has ended
        return await wait_for(future)

    def close(self) -> bool:
        """Refuse further operations and end the threads after the queued ones. Return False if closed before."""
        with self._lock:
            if self.closed:
                return False
            self.closed = True
            self._jobs.put(None)
        return True


def deliver_results(batch: list[QueuedOperation]) -> None:
    """Pass the results to the waiting event loops, with one wakeup per loop, and empty the batch.

    A wakeup writes to the loop's self-pipe; one per operation would cost a system call each.
    """
    loops: dict[Loop, list[QueuedOperation]] = {}
    for job in batch:
        loops.setdefault(job.loop, []).append(job)
    batch.clear()
    for loop, jobs in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nobody waits
            loop.call_soon_threadsafe(_resolve_waiters, jobs)


def _resolve_waiters(jobs: list[QueuedOperation]) -> None:
    for job in jobs:
        if job.waiter.done():  # its task was cancelled
            continue
        if job.error is not None:
            job.waiter.set_exception(job.error)
        else:
            job.waiter.set_result(job.result)
