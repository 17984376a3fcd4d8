"""How the async store waits: threads, cancellation, flushes while a writer pauses, and closing.

store.waiting has the same names for the sync store, which is generated from this package.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from recollect.engine.change_notifier import ChangeNotice, ChangeNotifier
from recollect.engine.event_loop import (
    NO_LOOP,
    run_blocking,
    run_in_thread,
    run_to_end,
    run_to_end_or_undo,
    running_loop,
    sleep,
    wait_for,
)
from recollect.errors import InvalidValue, RecollectError
from recollect.model.turn import FLUSH_INTERVAL

if TYPE_CHECKING:
    from recollect.engine.engine import AsyncEngine
    from recollect.history.compaction import Summarize
    from recollect.model.message import Message
    from recollect.storage.integrity import CheckProgress
    from recollect.store_async.store import AsyncStore

__all__ = [
    "AsyncOpenable", "AsyncPauseFlusher", "AsyncWatchThread", "close_anywhere", "maintain",
    "open_if_sync", "pause_flusher", "require_open", "run_to_end", "run_to_end_or_undo", "sleep", "summarize_messages",
]  # fmt: skip

T = TypeVar("T")
H = TypeVar("H", bound="AsyncOpenable")
Flush = Callable[[], Coroutine[Any, Any, object]]


class AsyncOpenable:
    """A handle that opens when it is awaited or entered."""

    async def _open(self) -> Self:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()


def open_if_sync(handle: H) -> H:
    """Return a handle, which its user opens."""
    return handle


def require_open(handle: T | None, name: str) -> T:
    """Return what a handle has once it is open. Raise InvalidValue before."""
    if handle is None:
        raise InvalidValue(f"This {name} is not open yet. Enter it with `async with`, or await it first.")
    return handle


async def summarize_messages(summarize: Summarize, messages: list[Message]) -> Any:
    """Return the summary. A function that is not async runs in a thread, so that it does not block the event loop."""
    from recollect.history.compaction import check_summary  # noqa: PLC0415  few programs compact

    if inspect.iscoroutinefunction(summarize):
        return check_summary(await summarize(messages))
    result = await run_in_thread(summarize, messages)
    return check_summary(await result if inspect.isawaitable(result) else result)


class AsyncWatchThread:
    """The thread in which a watch uses its change notifier."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="recollect-watch")
        self._pending: Future[ChangeNotice | None] | None = None  # the call whose notice was not returned yet

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread."""
        return await running_loop().run_in_executor(self._executor, function)

    async def wait(self, notifier: ChangeNotifier, seconds: float) -> ChangeNotice | None:
        """Wait for a change. If the task is cancelled, wake the thread; the next call returns what it has received."""
        if self._pending is None or self._pending.cancelled():
            self._pending = self._executor.submit(notifier.wait, seconds)
        try:
            notice = await wait_for(self._pending, notifier.notify)
        except Exception:  # of the notifier; a cancellation is a BaseException
            self._pending = None
            raise
        self._pending = None
        return notice

    def end(self) -> None:
        """End the thread after its last call."""
        self._executor.shutdown(wait=False)


class AsyncPauseFlusher:
    """Flushes the streams of a store whose writers pause, in a thread that runs only while a flush is due.

    A thread and not a task: a task would outlive the call that started it, and trio has none outside a nursery.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Flush, float] = {}  # in order of time
        self._running: tuple[Flush, Future[None]] | None = None
        self._thread: threading.Thread | None = None

    def schedule(self, flush: Flush) -> None:
        """Call `flush` in FLUSH_INTERVAL seconds, unless it is scheduled. An error is ignored: a later flush raises it.

        `flush` runs in the thread and must wait only for the engine.
        """
        if flush in self._due:  # the thread removes it before the call, which therefore sees the latest text
            return
        with self._changed:
            self._due[flush] = time.monotonic() + FLUSH_INTERVAL
            if self._thread is None or not self._thread.is_alive():  # after fork(), it does not exist
                self._thread = threading.Thread(target=self._work, name="recollect-flush", daemon=True)
                self._thread.start()

    async def settle(self, flush: Flush) -> None:
        """Cancel a scheduled call. If it has begun, wait for its end, so that later writes are stored after it."""
        if flush in self._due:
            with self._changed:
                self._due.pop(flush, None)
                if not self._due:
                    self._changed.notify()  # ends the thread
        running = self._running  # after the test of _due: the thread sets it before it removes a flush from there
        if running is not None and running[0] == flush:
            await wait_for(running[1])

    def _work(self) -> None:
        while self._wait_until_due():
            assert self._running is not None
            flush, future = self._running
            try:
                with contextlib.suppress(RecollectError):
                    run_blocking(flush())
            finally:
                self._running = None
                future.set_result(None)

    def _wait_until_due(self) -> bool:
        """Wait for the next call that is due. Return False, and end the thread, if none is scheduled."""
        with self._changed:
            while self._due:
                flush, due_at = next(iter(self._due.items()))
                remaining = due_at - time.monotonic()
                if remaining <= 0:
                    future: Future[None] = Future()
                    future.set_running_or_notify_cancel()
                    self._running = flush, future
                    del self._due[flush]
                    return True
                self._changed.wait(remaining)
            self._thread = None
            return False


_flushers: weakref.WeakKeyDictionary[AsyncStore, AsyncPauseFlusher] = weakref.WeakKeyDictionary()


def pause_flusher(store: AsyncStore) -> AsyncPauseFlusher:
    """Return the flusher of a store. Each store has its own: a database that does not respond delays no other."""
    return _flushers.setdefault(store, AsyncPauseFlusher())


async def maintain(engine: AsyncEngine, work: Callable[[CheckProgress | None], T], progress: CheckProgress | None) -> T:
    """Run maintenance, which blocks and reports its progress, in a thread. Return its result."""
    if progress is None:
        return await engine.run_blocking(lambda: work(None))
    reporter = _ProgressReporter(progress)
    result = await engine.run_blocking(lambda: work(reporter))
    if reporter.error is not None:
        raise reporter.error
    return result


class _ProgressReporter:
    """Calls a function on the running event loop for another thread. Its error ends the work of the thread."""

    def __init__(self, progress: CheckProgress) -> None:
        self._progress = progress
        self._loop = running_loop()
        self.error: Exception | None = None

    def __call__(self, done: int, total: int) -> None:
        if self.error is not None:
            raise self.error
        self._loop.call_soon_threadsafe(self._report, done, total)

    def _report(self, done: int, total: int) -> None:
        try:
            self._progress(done, total)
        except Exception as error:  # noqa: BLE001  raised by maintain(); an error in the loop would end every task of trio
            self.error = error


def close_anywhere(coroutine: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Return a coroutine that closes, even if its task is cancelled. Without a running loop, close now."""
    if running_loop() != NO_LOOP:
        return run_to_end(coroutine)
    run_blocking(coroutine)
    return _Closed()


class _Closed(Coroutine[Any, Any, None]):
    """A coroutine that has ended. It may be awaited or not."""

    def send(self, value: Any, /) -> Any:  # noqa: ARG002
        """End."""
        raise StopIteration

    def throw(self, *error: Any) -> Any:
        """Raise an error."""
        raise error[0]

    def close(self) -> None:
        """Do nothing."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield  # makes this function a generator
