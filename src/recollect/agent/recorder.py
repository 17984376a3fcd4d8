"""The recorder: writes a conversation to its store in order, in the background. A slow store never stalls an answer.

Each conversation has one queue of pending writes. A write that fails with a StoreError stays first in the queue and is
retried with backoff until it succeeds; a Notice is emitted when that begins and when it is over. A conflict, such as
another process that took the session over, ends the turn. A write with hold=False is refused with the store's error.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from recollect.agent.events import Event, Notice
from recollect.errors import RecollectError, StoreError, ToolCallAnswered, ToolCallNotFound
from recollect.model.humanize import pluralize
from recollect.model.message import Draft
from recollect.model.turn import ChunkKind, FinalStatus, describe_error
from recollect.store_async.session import AsyncSession
from recollect.store_async.turn import AsyncStream, AsyncTurn

LEASE = 900.0
"""Seconds of the lease between two writes of a turn: longer than most tools and most reasoning take."""

STORE_TIMEOUT = 5.0
"""Seconds that a conversation waits for a store that neither writes nor fails, before it continues without it."""

_FIRST_BACKOFF, _MAX_BACKOFF = 0.2, 5.0  # seconds between two tries of a failed write, doubled each time
EventListener = Callable[[Event], None]


class PendingWrite:
    """One queued write: its function and messages, whether it is held while the store fails, and its error."""

    def __init__(
        self, write: Callable[[], Awaitable[None]], drafts: Sequence[Draft] = (), *, hold: bool = True
    ) -> None:
        self.write = write
        self.drafts = drafts
        self.hold = hold
        self.attempt = asyncio.Event()
        self.error: RecollectError | None = None


class Recorder:
    """The queue of pending writes of one conversation."""

    def __init__(self, emit: EventListener) -> None:
        self._emit = emit
        self._queue: deque[PendingWrite] = deque()
        self._task: asyncio.Task[None] | None = None
        self._failing = self._closed = False
        self._held_count = 0
        self._wake = asyncio.Event()

    @property
    def idle(self) -> bool:
        """True if everything is stored."""
        return not self._queue

    @property
    def held_count(self) -> int:
        """Number of messages that wait because the store fails."""
        return len(self.unsaved()) if self._failing else 0

    def unsaved(self) -> list[Draft]:
        """Return the messages that are not written yet, in order."""
        return [draft for pending in self._queue for draft in pending.drafts]

    def put(self, pending: PendingWrite) -> PendingWrite:
        """Append a write to the queue."""
        self._queue.append(pending)
        if not pending.hold:
            self._wake.set()
        elif self._failing:
            pending.attempt.set()
        self._ensure_task()
        return pending

    async def _work(self) -> None:
        pause = _FIRST_BACKOFF
        while self._queue:
            pending = self._queue[0]
            try:
                await pending.write()
            except StoreError as error:
                self._refuse(error)
                if self._queue:
                    self._begin_holding(error)
                    await self._pause(pause)
                    pause = min(pause * 2, _MAX_BACKOFF)
                continue
            except RecollectError as error:
                pending.error = error
            pause = _FIRST_BACKOFF
            self._queue.popleft()
            pending.attempt.set()
            self._end_holding(pending)

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return

    def _refuse(self, error: StoreError) -> None:
        """Fail the writes that must not be held, and wake all waiters: nobody waits for a store that fails."""
        for pending in list(self._queue):
            if not pending.hold:
                pending.error = error
                self._queue.remove(pending)
            pending.attempt.set()

    def _begin_holding(self, error: StoreError) -> None:
        if not self._failing:
            self._failing, self._held_count = True, 0
            text = f"This conversation cannot be stored at the moment. {error} New messages are held in memory."
            self._emit(Notice(text=text, level="warning"))

    def _end_holding(self, pending: PendingWrite) -> None:
        """Count the messages of a write that succeeded after a failure. Report the recovery with the last one."""
        if self._failing:
            self._held_count += len(pending.drafts)
            if not self._queue:
                self._failing = False
                self._emit(
                    Notice(
                        text=f"The database works again. Stored {pluralize(self._held_count, 'message')} from memory."
                    )
                )

    async def wait_for(self, pending: PendingWrite, extra: float = 0.0) -> None:
        """Wait until a write was attempted, for at most STORE_TIMEOUT + `extra` seconds. Raises its error.

        A write with hold=False is awaited without a limit: a store that hangs fails with its own timeout.
        """
        try:
            await asyncio.wait_for(pending.attempt.wait(), STORE_TIMEOUT + extra if pending.hold else None)
        except TimeoutError:
            return
        if pending.error is not None:
            raise pending.error

    async def withdraw(self, pending: PendingWrite) -> bool:
        """Remove a write from the queue; return whether it was removed. A write in progress may still complete."""
        if pending in self._queue and self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        is_pending = pending in self._queue
        if is_pending:
            self._queue.remove(pending)
        if self._queue:
            self._ensure_task()
        return is_pending

    async def drain(self, seconds: float | None = None) -> bool:
        """Write everything that is queued within `seconds` (default STORE_TIMEOUT); return whether that succeeded."""
        deadline = time.monotonic() + (STORE_TIMEOUT if seconds is None else seconds)
        while self._queue and time.monotonic() < deadline:
            self._wake.set()
            await asyncio.wait([self._ensure_task()], timeout=0.1)
        return not self._queue

    def _ensure_task(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return self._task

    async def close(self) -> bool:
        """Write as much as possible, then stop retrying; return whether everything is stored."""
        done = await self.drain(0 if self._closed else None)
        self._closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        return done


class TurnRecording:
    """The writes of one turn: opened with the question, extended by steps, ended once."""

    def __init__(
        self, recorder: Recorder, session: AsyncSession, on_conflict: Callable[[RecollectError], None]
    ) -> None:
        self._recorder = recorder
        self._session = session
        self._on_conflict = on_conflict
        self._turn: AsyncTurn | None = None
        self._stream: AsyncStream | None = None
        self._chunks: deque[tuple[str, ChunkKind]] = deque()
        self._writing_text = self._needs_flush = False
        self._has_conflict = False

    @property
    def id(self) -> str | None:
        """The id of the message that opened the turn, once it is stored."""
        return None if self._turn is None else self._turn.id

    async def open(
        self, drafts: Sequence[Draft], *, wait: float, take_over: bool, key: str | None = None, hold: bool = True
    ) -> None:
        """Store the question. If the store fails, it is held in memory; a conflict is raised.

        With `hold=False` a store failure is raised too, and the question is discarded.
        """

        async def write() -> None:
            self._turn = await self._session.turn(list(drafts), lease=LEASE, wait=wait, take_over=take_over, key=key)

        pending = self._recorder.put(PendingWrite(write, drafts, hold=hold))
        try:
            await self._recorder.wait_for(pending, wait)  # waiting for another turn is not a failing store
        except asyncio.CancelledError:
            await self._recorder.withdraw(pending)
            raise

    def _put(self, write: Callable[[AsyncTurn], Awaitable[None]], *drafts: Draft) -> PendingWrite:
        async def write_step() -> None:
            if self._has_conflict or self._turn is None:
                return
            try:
                await write(self._turn)
            except StoreError:
                raise
            except RecollectError as error:
                self._has_conflict = True
                self._on_conflict(error)
                raise

        return self._recorder.put(PendingWrite(write_step, drafts))

    def add_text(self, text: str, kind: ChunkKind) -> None:
        """Append a piece of the answer. Pieces that arrive during a write are written together."""
        self._chunks.append((text, kind))
        if not self._writing_text:
            self._writing_text = True
            self._put(self._write_text)

    async def _write_text(self, turn: AsyncTurn) -> None:
        if self._chunks and self._stream is None:
            self._stream = await turn.stream()
        if self._needs_flush and self._stream is not None:
            await self._stream.flush()
            self._needs_flush = False
        while self._chunks and self._stream is not None:
            chunk = self._chunks.popleft()
            self._needs_flush = True  # the stream has the chunk even if storing it fails: do not write it twice
            await self._stream.write(*chunk)
            self._needs_flush = False
        self._writing_text = False

    def add_response(self, draft: Draft) -> None:
        """Store a complete response, or the received part of one that was cut off."""
        self._chunks.clear()

        async def write(turn: AsyncTurn) -> None:
            self._needs_flush = False
            if self._stream is None:
                await turn.add(draft)
                return
            await self._stream.close(draft)
            self._stream = None

        self._put(write, draft)

    def start_tool(self, call_id: str) -> None:
        """Mark a tool call as running."""

        async def write(_: AsyncTurn) -> None:
            with contextlib.suppress(ToolCallNotFound, ToolCallAnswered):  # the provider ran it, or used its id twice
                await self._session.tools.start(call_id)

        self._put(write)

    def renew(self) -> None:
        """Renew the lease while nothing is written, and notify watchers of the session."""

        async def write(turn: AsyncTurn) -> None:
            await turn.renew()

        self._put(write)

    async def wait_stored(self) -> None:
        """Wait until everything so far is stored or held in memory."""
        with contextlib.suppress(RecollectError):
            await self._recorder.wait_for(self._put(_write_nothing))

    def add(self, draft: Draft) -> None:
        """Store a tool's result."""

        async def write(turn: AsyncTurn) -> None:
            await turn.add(draft)

        self._put(write, draft)

    async def end(self, status: FinalStatus, latency_ms: int, error: BaseException | None = None) -> None:
        """End the turn, and wait until that is stored or held in memory."""

        async def write(turn: AsyncTurn) -> None:
            if status == "completed":
                await turn.complete(latency_ms=latency_ms)
            elif status == "cancelled":
                await turn.cancel()
            elif status == "interrupted":
                await turn.interrupt(error)
            else:
                await turn.fail(None if error is None else describe_error(error))

        pending = self._put(write)
        with contextlib.suppress(RecollectError):  # already reported through on_conflict
            await self._recorder.wait_for(pending)

    def usage(self) -> dict[str, Any]:
        """Return the model and the tokens of the turn; empty before its end."""
        info = None if self._turn is None else self._turn.info
        if info is None:
            return {}
        return {"model": info.model, "input_tokens": info.input_tokens, "output_tokens": info.output_tokens}


async def _write_nothing(_: AsyncTurn) -> None:
    """Write nothing. Waiting for it means waiting for every write before it."""
