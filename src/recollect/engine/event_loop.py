"""Waiting for threads under asyncio, under trio, and without an event loop.

An async engine hands an operation to a thread and waits for the result. The library that runs the caller is detected,
not imported: asyncio's own event loop is used directly, so that it costs nothing, and the others offer the same methods
as ForeignLoop. Without a running loop, waiting blocks the thread; a coroutine that waits for nothing else can then be
run by run_blocking().
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Waiter(Protocol):
    """The part of asyncio.Future that delivers a result. Only the thread of its loop may use it."""

    def done(self) -> bool:
        """Return whether a result was set or the task no longer waits."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Wake the task with a result."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Wake the task with an error."""
        ...

    def __await__(self) -> Generator[Any, Any, Any]: ...


class ForeignLoop(Protocol):
    """What the engines and stores need of a loop that is not asyncio's."""

    def create_waiter(self, withdraw: Callable[[], bool]) -> Waiter:
        """Return a waiter for the current task.

        If the task is cancelled, `withdraw` is called. It returns False if the work has begun; the task then waits for
        the end of the work.
        """
        ...

    def call_soon_threadsafe(self, callback: Callable[[*Ts], object], *args: *Ts) -> object:
        """Call a function on the thread of the loop. Raise RuntimeError if the loop has ended."""
        ...

    def run_in_executor(self, executor: Executor | None, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]:
        """Run a function in a thread of an executor, or of the loop, and wait for its result."""
        ...

    async def run_to_end(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, even if this task is cancelled meanwhile."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        ...


Loop = asyncio.AbstractEventLoop | ForeignLoop


def running_loop() -> Loop:
    """Return the loop that runs the current task. Without one, return NO_LOOP, which blocks the thread."""
    lowlevel = sys.modules.get("trio.lowlevel")
    in_trio_task = getattr(lowlevel, "in_trio_task", None)  # None also while another thread imports trio
    if in_trio_task is not None and in_trio_task():
        from recollect.engine.trio_loop import current_loop  # noqa: PLC0415  only in a program that imported trio

        return current_loop()
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return NO_LOOP


class _BlockingWaiter(Future[Any]):
    """A waiter that blocks the thread."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.result()
        yield  # makes this function a generator


class _NoLoop:
    """Waits by blocking the thread."""

    def create_waiter(self, withdraw: Callable[[], bool]) -> Waiter:  # noqa: ARG002  nothing cancels a thread
        """Return a waiter that blocks the thread."""
        return _BlockingWaiter()

    def call_soon_threadsafe(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function now: a blocking waiter may be used by any thread."""
        callback(*args)

    async def run_in_executor(self, executor: Executor | None, function: Callable[[*Ts], T], *args: *Ts) -> T:  # noqa: ARG002
        """Call a function on this thread, which has nothing else to do."""
        return function(*args)

    async def run_to_end(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine."""
        return await coroutine

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)  # noqa: ASYNC251


NO_LOOP = _NoLoop()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits only for threads, on a thread without a running loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()
    raise RuntimeError("The coroutine waits for an event loop. Await it in a task.")


async def wait_for(future: Future[T], wake: Callable[[], object] | None = None) -> T:
    """Wait for the result of a thread. If the task is cancelled, the work is withdrawn unless it has begun.

    `wake` is called if it has begun, and makes it end soon.
    """
    loop = running_loop()
    if isinstance(loop, asyncio.AbstractEventLoop):
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if wake is not None:
                wake()
            raise

    def withdraw() -> bool:
        if not future.cancel() and wake is not None:
            wake()
        return future.cancelled()

    waiter = loop.create_waiter(withdraw)
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(_wake, waiter))
    await waiter
    return future.result()


def _wake(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def run_in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a function in a thread, with the context variables of this task, and return its result.

    Executors refuse work once the main thread has ended; the function then runs on this thread.
    """
    loop = running_loop()
    if not isinstance(loop, asyncio.AbstractEventLoop):
        return await loop.run_in_executor(None, function, *args)
    context = contextvars.copy_context()
    try:
        future = loop.run_in_executor(None, lambda: context.run(function, *args))
    except RuntimeError:
        return function(*args)
    return await future


async def sleep(seconds: float) -> None:
    """Wait for some seconds."""
    loop = running_loop()
    await (asyncio.sleep(seconds) if isinstance(loop, asyncio.AbstractEventLoop) else loop.sleep(seconds))


async def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if this task is cancelled meanwhile; then raise the cancellation."""
    loop = running_loop()
    if not isinstance(loop, asyncio.AbstractEventLoop):
        return await loop.run_to_end(coroutine)
    future = _run_outside_tasks(loop, coroutine)
    cancelled = await _wait_until_done(future)
    result = future.result()
    if cancelled is not None:
        raise cancelled
    return result


async def run_to_end_or_undo(coroutine: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, object]]) -> T:
    """Run a coroutine. If asyncio cancels this task meanwhile, undo its effect before the cancellation is raised.

    Under trio, an operation that was not withdrawn returns its result, and the caller is cancelled later.
    """
    loop = running_loop()
    if not isinstance(loop, asyncio.AbstractEventLoop):
        return await coroutine
    future = _run_outside_tasks(loop, coroutine)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _wait_until_done(future)
        if future.exception() is None:
            await undo(future.result())
        raise


def _run_outside_tasks(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Run a coroutine that waits only for futures, and return the future of its result.

    It is not a task, because the end of asyncio.run() cancels every task, also one that must run to its end.
    """
    result: asyncio.Future[T] = loop.create_future()

    def step(_: object = None) -> None:
        try:
            pending: asyncio.Future[Any] | None = coroutine.send(None)
        except StopIteration as stop:
            result.set_result(stop.value)
        except asyncio.CancelledError:
            result.cancel()
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            result.set_exception(error)
        else:
            if pending is None:  # a bare yield, as in asyncio.sleep(0)
                loop.call_soon(step)
            else:
                pending._asyncio_future_blocking = False  # noqa: SLF001  a task does the same with what it awaits
                pending.add_done_callback(step)

    step()
    return result


async def _wait_until_done(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until a future is done, even if this task is cancelled meanwhile, and return the cancellation.

    Some frameworks cancel a task at each of its awaits until it ends. A turn must not stay open because of that.
    """
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
