"""An open turn, and an answer that streams in it, as a task holds them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from recollect import ops
from recollect.context.drafts import answer, drafts
from recollect.errors import InvalidValue, RecollectError, SessionBusy
from recollect.model.message import Draft, Format, Messages
from recollect.model.stream import EVERY, Gathering, Kind
from recollect.model.turn import POLL, EndStatus, failure
from recollect.model.turn import Turn as TurnInfo
from recollect.op import Op

if TYPE_CHECKING:
    from recollect.store_async.session import AsyncSession

T = TypeVar("T")
_Ending = EndStatus | Literal["interrupted"]


async def _settled(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for work to end however often this task is cancelled meanwhile; the caller passes the cancelling on.

    Some frameworks cancel a task at each of its awaits until it has ended; a turn must not stay open for that.
    """
    cancelled = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Run what must not be left undone to its end; a cancelling that came meanwhile is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled = await _settled(task)
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


class AsyncTurn:
    """An open turn. As a context manager it completes at the end, and is kept as failed or cancelled on an error."""

    def __init__(
        self, session: AsyncSession, begin: Callable[[], Op[ops.turns.Step]], lease: float, wait: float
    ) -> None:
        self.session = session
        self.info: TurnInfo | None = None
        self.lease = int(lease * 1000)
        self._begin = begin
        self._wait = wait
        self._held: ops.turns.Held | None = None
        self._untouched = False  # it was reopened, and nothing was added since
        self._streams: list[AsyncStream] = []  # those that are open

    async def _open(self) -> Self:
        until = time.monotonic() + self._wait
        while self._held is None:
            try:
                step = await self._begun()
            except SessionBusy:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(POLL)
            else:
                self._held, self._untouched = step.held, step.reopened
                self.session.saw(step.counts)
        return self

    async def _begun(self) -> ops.turns.Step:
        """Open the turn. One that is cancelled in the middle of it is not left open behind its task's back."""
        opening = asyncio.ensure_future(self.session.store.run(self._begin()))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await _settled(opening)
            if opening.exception() is None:
                self._held = opening.result().held
                await self.cancel()
            raise

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._open().__await__()

    @property
    def held(self) -> ops.turns.Held:
        """Where the turn is stored."""
        if self._held is None:
            raise InvalidValue("This turn is not open yet. Enter it with `async with`, or await it.")
        return self._held

    @property
    def id(self) -> str:
        """The id of the message that opened the turn."""
        return f"{self.held.number}.{self.held.position}"

    async def add(
        self, message: Messages, format: Format | None = None, *, key: str | None = None
    ) -> ops.appends.Appended:
        """Add a step: a message, many, or a provider's response, on disk when this returns. A `key` adds it once."""
        store = self.session.store
        given = drafts(message, format)
        op = ops.turns.add(store.scope(), self.session.id, self.held, given, lease=self.lease, key=key)
        step = await store.run(op)
        self._untouched = False
        self.session.saw(step.counts)
        return step.appended

    async def renew(self) -> None:
        """Hold the turn for another lease without adding anything, and notify whoever watches the session."""
        store = self.session.store
        self.session.saw(await store.run(ops.turns.hold(store.scope(), self.session.id, self.held, lease=self.lease)))

    def stream(self) -> AsyncStream:
        """Open an answer that is given text as it arrives: `async with turn.stream() as answer`, or `await` it."""
        self._untouched = False
        return AsyncStream(self, self._streams)

    async def complete(
        self,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
    ) -> TurnInfo:
        """End the turn well, with what the run used where that is known."""
        return await self._end("completed", ops.turns.Usage(model, input_tokens, output_tokens, latency_ms))

    async def fail(self, error: Any = None) -> TurnInfo:
        """End the turn as failed, with the error."""
        told = failure(error) if isinstance(error, BaseException) else error
        return await self._end("failed", ops.turns.Usage(error=told))

    async def cancel(self) -> TurnInfo:
        """End the turn as cancelled."""
        return await self._end("cancelled", ops.turns.Usage())

    async def interrupt(self, error: Any = None) -> TurnInfo:
        """End the turn as interrupted: its answer is not whole. resume_turn() reopens it."""
        told = failure(error) if isinstance(error, BaseException) else error
        return await self._end("interrupted", ops.turns.Usage(error=told))

    async def _end(self, status: _Ending, usage: ops.turns.Usage) -> TurnInfo:
        return await _finished(self._ended(status, usage))

    async def _ended(self, status: _Ending, usage: ops.turns.Usage) -> TurnInfo:
        store = self.session.store
        for stream in self._streams:  # nobody closed them: what arrived last is not stored yet
            try:
                await stream.flush()
            except RecollectError:
                if status == "completed":
                    raise
        op = ops.turns.end(store.scope(), self.session.id, self.held, status, usage)
        self.info, counts = await store.run(op)
        self.session.saw(counts)
        return self.info

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.info is not None:
            return
        if error is None:
            await (self.interrupt() if self._untouched else self.complete())
            return
        try:
            await (self.fail(error) if isinstance(error, Exception) else self.cancel())
        except RecollectError as trouble:
            error.add_note(f"The turn could not be marked as ended: {trouble}")


class AsyncStream:
    """An answer in progress. Its text is stored about once a second, and when it is closed."""

    def __init__(self, turn: AsyncTurn, streams: list[AsyncStream]) -> None:
        self.turn = turn
        self._streams = streams
        self._flow: ops.streams.Flow | None = None
        self._gathering = Gathering(time.monotonic())
        self._timer: asyncio.Task[None] | None = None
        self._open = False

    async def _begin(self) -> Self:
        if self._flow is None:
            session, draft = self.turn.session, self._gathering.draft("streaming")
            op = ops.streams.begin(session.store.scope(), session.id, self.turn.held, draft, lease=self.turn.lease)
            self._flow, counts = await session.store.run(op)
            self._open = True
            self._streams.append(self)
            session.saw(counts)
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._begin().__await__()

    @property
    def flow(self) -> ops.streams.Flow:
        """Where the answer is stored."""
        if self._flow is None:
            raise InvalidValue("This answer is not open yet. Enter it with `async with`, or await it.")
        return self._flow

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.flow.id

    async def write(self, text: str, kind: Kind = "text") -> None:
        """Take a chunk of text, or of reasoning."""
        self._check_open()
        if self._gathering.add(text, kind, time.monotonic()):
            await self.flush()
        elif self._timer is None:
            self._timer = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        """Store what came last even if nothing follows for a while. If that fails, the next write tries and says so."""
        await asyncio.sleep(EVERY)
        self._timer = None
        if self._open and self._gathering.dirty:
            with contextlib.suppress(RecollectError):
                await self.flush()

    async def flush(self) -> None:
        """Store what has arrived so far, now."""
        self._check_open()
        session = self.turn.session
        draft = self._gathering.draft("streaming")
        op = ops.streams.write(session.store.scope(), session.id, self.flow, draft, lease=self.turn.lease)
        session.saw(await session.store.run(op))
        self._gathering.stored(time.monotonic())

    async def close(self, message: Messages | None = None, format: Format | None = None) -> None:
        """Complete the answer; `message` is the whole of it in the provider's form, where there is one."""
        self._check_open()
        given = self._gathering.draft("completed") if message is None else answer(message, format)
        await self._end(given)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidValue("This answer is closed. Open another one with turn.stream().")

    async def _end(self, draft: Draft) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await _finished(self._ended(draft))

    async def _ended(self, draft: Draft) -> None:
        session = self.turn.session
        op = ops.streams.close(session.store.scope(), session.id, self.flow, draft, lease=self.turn.lease)
        session.saw(await session.store.run(op))
        self._open = False
        self._streams.remove(self)

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if error is None:
            await self.close()
            return
        try:
            await self._end(self._gathering.cut_off(error))
        except RecollectError as trouble:
            error.add_note(f"The answer could not be marked as cut off: {trouble}")
