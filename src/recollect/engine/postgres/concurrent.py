"""The engine for asyncio: threads that commit what waits together, and threads for the rest.

Operations that keep to their own session run side by side in one transaction: their statements travel together, and one
sync of the server's disk serves all of them. None is acknowledged before it. Where one refuses, the others are run
again without it, and it alone. An operation that looks at more than its session has a transaction of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import weakref
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
        self._crew = _Crew(self._server)
        self._line = Line(self._crew.jobs)
        # Not on the way out of the interpreter: what was acknowledged is on disk, and threads end there as they are.
        weakref.finalize(self, self._crew.drop).atexit = False

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
            return await loop.run_in_executor(self._crew.others, self._server.read, op)
        return await self._line.wait(op, loop)

    def bell(self) -> Bell:
        """Give a bell that is rung when anyone commits something."""
        if self._line.closed:
            raise StoreClosed
        return ServerBell(self._server.address, self._server.owner)

    async def close(self) -> None:
        """Finish what was asked for, and close. Closing twice is no error."""
        if self._server.forked:  # threads, their locks and connections are the parent's, and nothing was asked for here
            self._line = Line(queue.SimpleQueue())
            self._line.close()
            self._server.close()
        elif self._line.close():
            await asyncio.get_running_loop().run_in_executor(None, self._crew.finish)


class _Crew:
    """The threads that write together, what waits for them, and the threads for the rest.

    It knows the server and not the engine: an engine that nobody holds any more is let go of although threads run, and
    that ends them.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        size = server.address.pool_size
        self.others = ThreadPoolExecutor(size, thread_name_prefix="recollect-postgres")
        self._dropped = False
        self._left = list(range(min(_WRITERS, size)))
        self._writers = [
            threading.Thread(target=self._work, name=f"recollect-write-{number}", daemon=True) for number in self._left
        ]
        for writer in self._writers:
            writer.start()

    def finish(self) -> None:
        """Wait for the threads, which were told to end, and close the connections."""
        for writer in self._writers:
            writer.join()
        self._end()

    def drop(self) -> None:
        """Have the threads finish what waits and close the connections: nobody is left who would.

        Called wherever the interpreter happens to be, one of the threads included, so nothing is waited for here.
        """
        self._dropped = True
        self.jobs.put(None)

    def _end(self) -> None:
        self.others.shutdown()
        self._server.close()

    def _work(self) -> None:
        """Take what waits, commit it together, tell everyone; until the store closes."""
        while True:
            batch, open_ = self._take()
            if batch:
                self._commit(batch)
                batch.clear()  # an error of theirs leads to who waited for it, and so to the engine
            if not open_:
                self.jobs.put(None)  # the others are to end as well
                break
        if self._left.pop() == 0 and self._dropped:  # taking an item is atomic: one of them is the last
            self._end()

    def _take(self) -> tuple[list[Job], bool]:
        """Take what waits and can run side by side, half of it where there is much; hand on what can not."""
        jobs, batch = self.jobs, dict[str, Job]()
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
                self.others.submit(self._alone, job)
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
            self.others.submit(self._alone, batch[number])
        if done:
            tell(rest)
        elif rest:
            self._commit(rest)

    def _together(self, batch: list[Job], refused: list[int]) -> bool:
        results = self._server.write_together([job.op for job in batch], refused.append)
        for job, result in zip(batch, results or (), strict=False):
            job.result = result
        return results is not None


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
