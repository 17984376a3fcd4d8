"""An operation that waits for a thread to run it, and the loop that waits for its result. Both engines use it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from recollect.op import Op


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
