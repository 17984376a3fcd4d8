"""An operation that waits for a thread to run it, and the loop that waits for its result. Both engines use it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import Any, TypeVar

from recollect.errors import StoreClosed
from recollect.op import Op

T = TypeVar("T")


class Job:
    """An operation that waits for its turn, and whom to tell."""

    __slots__ = ("claim", "error", "future", "loop", "op", "result")

    def __init__(self, op: Op[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.op = op
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        # Taking the only item is atomic: either a writer begins the job or its caller withdraws it.
        self.claim = [True]

    def take(self) -> bool:
        """Claim the job; False where the other side was first."""
        try:
            return self.claim.pop()
        except IndexError:
            return False


class Line:
    """Where jobs wait for threads, in the order in which they came, until it is closed."""

    __slots__ = ("_gate", "_jobs", "closed")

    def __init__(self, jobs: queue.SimpleQueue[Job | None]) -> None:
        self._jobs = jobs
        self._gate = threading.Lock()
        self.closed = False

    async def wait(self, op: Op[T], loop: asyncio.AbstractEventLoop) -> T:
        """Wait for the result of an operation. Cancelled before it has begun, it is withdrawn; else it completes."""
        job = Job(op, loop)
        with self._gate:
            if self.closed:
                raise StoreClosed
            self._jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            job.take()
            raise

    def close(self) -> bool:
        """Let nobody in from now on, and have the threads end after what waits; False where it was closed before."""
        with self._gate:
            if self.closed:
                return False
            self.closed = True
            self._jobs.put(None)
        return True


def tell(batch: list[Job]) -> None:
    """Hand the results to the loops that wait for them, one call for each loop; each job is told once."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        loops.setdefault(job.loop, []).append(job)
    batch.clear()
    for loop, jobs in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
