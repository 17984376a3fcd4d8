"""Writes a talk to its store, in order and behind its back: a slow or failing store never stalls the answer.

What is to be written waits in one line per talk. A write that the store refuses (a StoreError, after which nothing was
written) stays first in line and is tried again until it succeeds; the person is told once when that begins and once
when it is over. A conflict, such as another process that took the session over, ends the turn instead. A write that is
not to be held is refused with the store's error, and nothing of it stays in line.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from recollect.agent.events import Event, Notice
from recollect.errors import RecollectError, StoreError, ToolCallAnswered, ToolCallNotFound
from recollect.model.message import Draft
from recollect.model.stream import Kind
from recollect.model.turn import EndStatus, failure
from recollect.store_async.session import AsyncSession
from recollect.store_async.turn import AsyncStream, AsyncTurn

LEASE = 900.0
"""Seconds that a turn is held between two of its writes: longer than most tools and thoughts take."""

PATIENCE = 5.0
"""Seconds that a talk waits for a store that neither writes nor fails, before it goes on without."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
Tell = Callable[[Event], None]
Ending = EndStatus | Literal["interrupted"]


class Job:
    """One write: what to do, whether it is held while the store fails, and what came of it."""

    def __init__(
        self, write: Callable[[], Awaitable[None]], drafts: Sequence[Draft] = (), *, hold: bool = True
    ) -> None:
        self.write = write
        self.drafts = drafts
        self.hold = hold
        self.tried = asyncio.Event()
        self.error: RecollectError | None = None


class Recorder:
    """The line of what is to be written for one talk."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._line: deque[Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._failing = self._closed = False
        self._held = 0
        self._wake = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether everything is on disk."""
        return not self._line

    @property
    def held(self) -> int:
        """How many messages wait for the store to come back."""
        return len(self.unsaved()) if self._failing else 0

    def unsaved(self) -> list[Draft]:
        """Give the messages that are not written yet, in order."""
        return [draft for job in self._line for draft in job.drafts]

    def put(self, job: Job) -> Job:
        """Stand a write at the end of the line."""
        self._line.append(job)
        if not job.hold:
            self._wake.set()
        elif self._failing:
            job.tried.set()
        self._running()
        return job

    async def _work(self) -> None:
        pause = _FIRST_PAUSE
        while self._line:
            job = self._line[0]
            try:
                await job.write()
            except StoreError as error:
                self._refuse(error)
                if self._line:
                    self._begin_holding(error)
                    await self._pause(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            except RecollectError as error:
                job.error = error
            pause = _FIRST_PAUSE
            self._line.popleft()
            job.tried.set()
            self._end_holding(job)

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return

    def _refuse(self, error: StoreError) -> None:
        """Take out of the line what is not held, and let everyone go who waits: nobody waits for a store that fails."""
        for job in list(self._line):
            if not job.hold:
                job.error = error
                self._line.remove(job)
            job.tried.set()

    def _begin_holding(self, error: StoreError) -> None:
        if not self._failing:
            self._failing, self._held = True, 0
            text = f"This talk can not be stored at the moment. {error} It goes on: what is said is held in memory."
            self._tell(Notice(text=text, level="warning"))

    def _end_holding(self, job: Job) -> None:
        if self._failing:
            self._held += len(job.drafts)
            if not self._line:
                self._failing = False
                self._tell(Notice(text=f"The store is back: {self._held} messages that were held are stored now."))

    async def tried(self, job: Job, longer: float = 0.0) -> None:
        """Wait until a write was made or refused, for as long as a person would; raise a conflict.

        One that is not held is waited for to its end: a store that hangs fails by itself.
        """
        try:
            await asyncio.wait_for(job.tried.wait(), PATIENCE + longer if job.hold else None)
        except TimeoutError:
            return
        if job.error is not None:
            raise job.error

    async def withdraw(self, job: Job) -> bool:
        """Take a write out of the line again, if it has not been made; one that is being made may still be."""
        if job in self._line and self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        waits = job in self._line
        if waits:
            self._line.remove(job)
        if self._line:
            self._running()
        return waits

    async def drain(self, seconds: float | None = None) -> bool:
        """Write everything that waits, if the store lets us within this time; say whether it did."""
        until = time.monotonic() + (PATIENCE if seconds is None else seconds)
        while self._line and time.monotonic() < until:
            self._wake.set()
            await asyncio.wait([self._running()], timeout=0.1)
        return not self._line

    def _running(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return self._task

    async def close(self) -> bool:
        """Write what can be written, and stop trying; say whether nothing was left."""
        done = await self.drain(0 if self._closed else None)
        self._closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        return done


class Recording:
    """One turn as it is written: opened with the question, given steps, ended once."""

    def __init__(self, recorder: Recorder, session: AsyncSession, lost: Callable[[RecollectError], None]) -> None:
        self._recorder = recorder
        self._session = session
        self._lost = lost
        self._turn: AsyncTurn | None = None
        self._stream: AsyncStream | None = None
        self._unwritten: deque[tuple[str, Kind]] = deque()
        self._writing_text = self._unflushed = False
        self._gone = False

    @property
    def id(self) -> str | None:
        """The id of the message that opened the turn, once it is stored."""
        return None if self._turn is None else self._turn.id

    async def open(
        self, said: Sequence[Draft], *, wait: float, take_over: bool, key: str | None = None, hold: bool = True
    ) -> None:
        """Store the question. Where the store fails it is held, and the talk goes on; a conflict is raised.

        With `hold=False` the failure is raised too, and the question was not said.
        """

        async def write() -> None:
            self._turn = await self._session.turn(list(said), lease=LEASE, wait=wait, take_over=take_over, key=key)

        job = self._recorder.put(Job(write, said, hold=hold))
        try:
            await self._recorder.tried(job, wait)  # another turn is waited for: it is no failing store
        except asyncio.CancelledError:
            await self._recorder.withdraw(job)
            raise

    def _put(self, write: Callable[[AsyncTurn], Awaitable[None]], *drafts: Draft) -> Job:
        async def written() -> None:
            if self._gone or self._turn is None:
                return
            try:
                await write(self._turn)
            except StoreError:
                raise
            except RecollectError as error:
                self._gone = True
                self._lost(error)
                raise

        return self._recorder.put(Job(written, drafts))

    def text(self, text: str, kind: Kind) -> None:
        """Take a piece of the answer; pieces that come while another is written are written together."""
        self._unwritten.append((text, kind))
        if not self._writing_text:
            self._writing_text = True
            self._put(self._write_text)

    async def _write_text(self, turn: AsyncTurn) -> None:
        if self._unwritten and self._stream is None:
            self._stream = await turn.stream()
        if self._unflushed and self._stream is not None:
            await self._stream.flush()
            self._unflushed = False
        while self._unwritten and self._stream is not None:
            piece = self._unwritten.popleft()
            self._unflushed = True  # the stream has the piece even where storing it fails: it must not be given twice
            await self._stream.write(*piece)
            self._unflushed = False
        self._writing_text = False

    def answered(self, draft: Draft) -> None:
        """Store a complete response, or what there is of one that was cut off."""
        self._unwritten.clear()

        async def write(turn: AsyncTurn) -> None:
            self._unflushed = False
            if self._stream is None:
                await turn.add(draft)
                return
            await self._stream.close(draft)
            self._stream = None

        self._put(write, draft)

    def running(self, call_id: str) -> None:
        """Mark a tool call as running."""

        async def write(_: AsyncTurn) -> None:
            with contextlib.suppress(ToolCallNotFound, ToolCallAnswered):  # a provider ran it, or gave its id twice
                await self._session.start_tool_call(call_id)

        self._put(write)

    def renew(self) -> None:
        """Hold on to the turn while nothing is written, and notify whoever watches the session."""

        async def write(turn: AsyncTurn) -> None:
            await turn.renew()

        self._put(write)

    async def settled(self) -> None:
        """Wait until everything so far is on disk, or held."""
        with contextlib.suppress(RecollectError):
            await self._recorder.tried(self._put(_nothing))

    def add(self, draft: Draft) -> None:
        """Store a tool's result."""

        async def write(turn: AsyncTurn) -> None:
            await turn.add(draft)

        self._put(write, draft)

    async def end(self, status: Ending, latency_ms: int, error: BaseException | None = None) -> None:
        """End the turn, and wait until that is on disk, or held."""

        async def write(turn: AsyncTurn) -> None:
            if status == "completed":
                await turn.complete(latency_ms=latency_ms)
            elif status == "cancelled":
                await turn.cancel()
            elif status == "interrupted":
                await turn.interrupt(error)
            else:
                await turn.fail(None if error is None else failure(error))

        job = self._put(write)
        with contextlib.suppress(RecollectError):  # told through `lost` already
            await self._recorder.tried(job)

    def usage(self) -> dict[str, Any]:
        """Say what the turn used, once it has ended."""
        info = None if self._turn is None else self._turn.info
        if info is None:
            return {}
        return {"model": info.model, "input_tokens": info.input_tokens, "output_tokens": info.output_tokens}


async def _nothing(_: AsyncTurn) -> None:
    """Write nothing: a place in the line."""
