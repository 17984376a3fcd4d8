"""The engine for asyncio: threads that commit what waits together, and threads for the rest.

Operations that keep to their own session run side by side in one transaction: their statements travel together, and one
sync of the server's disk serves all of them. None is acknowledged before it. Where one refuses, the others are run
again without it, and it alone. An operation that looks at more than its session has a transaction of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from recollect.engine.bell import Bell
from recollect.engine.job import Job, Line, tell
from recollect.engine.postgres.server import Server
from recollect.engine.postgres.watch import ServerBell
from recollect.errors import RecollectError, StoreClosed, StoreUnavailable
from recollect.op import Op

T = TypeVar("T")

_BATCH = 64
_WRITERS = 2
_TOGETHER = frozenset({"session_append", "session_save", "session_advance", "turn_get"})
"""An operation that begins with one of these keeps to its own session, and its second argument is that session."""


class AsyncPostgresEngine:
    """Runs an operation in a transaction that it may share with others that wait at the same time."""

    def __init__(self, url: str, *, owner: str = "", timeout: float = 30.0) -> None:
        self._server = Server(url, owner, timeout)
        self._start()

    def _start(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._line = Line(self._jobs)
        size = self._server.address.pool_size
        self._others = ThreadPoolExecutor(size, thread_name_prefix="recollect-postgres")
        self._writers = [
            threading.Thread(target=self._work, name=f"recollect-write-{number}", daemon=True)
            for number in range(min(_WRITERS, size))
        ]
        for writer in self._writers:
            writer.start()

    @property
    def path(self) -> str:
        """Where the data is, without the password."""
        return self._server.path

    async def run(self, op: Op[T]) -> T:
        """Run an operation and give its result; what it wrote is on the server's disk by then.

        Cancelled before it has begun, it is withdrawn; one that has begun completes.
        """
        if self._line.closed:
            raise StoreClosed
        if self._server.after_fork():
            self._start()
        loop = asyncio.get_running_loop()
        if not op.writes:
            return await loop.run_in_executor(self._others, self._server.read, op)
        return await self._line.wait(op, loop)

    def _work(self) -> None:
        """Take what waits, commit it together, tell everyone; until the store closes."""
        while True:
            batch, open_ = self._take()
            if batch:
                self._commit(batch)
            if not open_:
                self._jobs.put(None)  # the others are to end as well
                return

    def _take(self) -> tuple[list[Job], bool]:
        """Take what waits and can run side by side, half of it where there is much; hand on what can not."""
        jobs, batch = self._jobs, dict[str, Job]()
        job = jobs.get()
        most = max(min(jobs.qsize() // 2, _BATCH), 1)
        behind: list[Job] = []
        try:
            while job is not None:
                self._sort(job, batch, behind)
                if len(batch) >= most:
                    break
                job = jobs.get_nowait()
        except queue.Empty:
            pass
        for other in behind:
            jobs.put(other)
        open_ = job is not None
        if behind and not open_:
            jobs.put(None)  # closing comes after them
            open_ = True
        # In one order everywhere, so that two transactions never wait for each other crosswise.
        return [batch[name] for name in sorted(batch)], open_

    def _sort(self, job: Job, batch: dict[str, Job], behind: list[Job]) -> None:
        """Put a job where it belongs: with the others, on its own, or back in the queue behind one on its session."""
        session = _own_session(job.op)
        if session in batch:
            behind.append(job)
        elif job.take():
            if session is None:
                self._others.submit(self._alone, job)
            else:
                batch[session] = job

    def _alone(self, job: Job) -> None:
        try:
            job.result, job.error = self._server.write(job.op), None
        except BaseException as error:  # noqa: BLE001  it is raised where the result is awaited
            job.error = error
        tell([job])

    def _commit(self, batch: list[Job]) -> None:
        """Commit jobs together and tell them. Those that refuse are run alone; so are all where that fails."""
        refused: list[int] = []
        try:
            done = self._together(batch, refused)
        except StoreUnavailable as error:  # each has waited as long as it wanted to: together, not one after another
            for job in batch:
                job.error = error
            tell(batch)
            return
        except Exception:  # noqa: BLE001  each finds out alone what is wrong with it
            done = False
        chosen = set(refused) if done else set(refused) or set(range(len(batch)))
        rest = [job for number, job in enumerate(batch) if number not in chosen]
        for number in sorted(chosen):
            self._others.submit(self._alone, batch[number])
        if done:
            tell(rest)
        elif rest:
            self._commit(rest)

    def _together(self, batch: list[Job], refused: list[int]) -> bool:
        results = self._server.write_together([job.op for job in batch], refused.append)
        for job, result in zip(batch, results or (), strict=False):
            job.result = result
        return results is not None

    def bell(self) -> Bell:
        """Give a bell that is rung when anyone commits something."""
        if self._line.closed:
            raise StoreClosed
        return ServerBell(self._server.address, self._server.owner)

    async def close(self) -> None:
        """Finish what was asked for, and close. Closing twice is no error."""
        if self._line.close():
            await asyncio.get_running_loop().run_in_executor(None, self._finish)

    def _finish(self) -> None:
        for writer in self._writers:
            writer.join()
        self._others.shutdown()
        self._server.close()


def _own_session(op: Op[Any]) -> str | None:
    """Name the session that an operation keeps to; None where it looks at more than that."""
    steps = op.start()
    try:
        first = next(steps)[0]
    except (StopIteration, RecollectError):
        return None
    finally:
        steps.close()
    return op.args[1] if first in _TOGETHER else None
