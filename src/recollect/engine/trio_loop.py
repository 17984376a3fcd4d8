"""Waiting for threads under trio. engine.event_loop imports this module in programs that have imported trio."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

import trio

from recollect.engine import event_loop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _TrioWaiter:
    """A waiter of one task. It is used on the thread of the loop, and only once."""

    __slots__ = ("_error", "_result", "_task", "_withdraw", "_withdrawn")

    def __init__(self, withdraw: Callable[[], bool]) -> None:
        self._withdraw: Callable[[], bool] | None = withdraw
        self._task: trio.lowlevel.Task | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        # In a cancelled scope, the work is withdrawn before a thread can begin it.
        self._withdrawn = trio.current_effective_deadline() == -math.inf and withdraw()

    def done(self) -> bool:
        """Return whether a result was set or the work was withdrawn."""
        return self._withdraw is None

    def set_result(self, result: Any, /) -> None:
        """Wake the task with a result."""
        self._result = result
        self._wake()

    def set_exception(self, error: BaseException, /) -> None:
        """Wake the task with an error."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        self._withdraw = None  # also ends the reference cycle with the operation
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._withdraw is not None:
            self._task = trio.lowlevel.current_task()
            yield from trio.lowlevel.wait_task_rescheduled(self._abort).__await__()  # noqa: ASYNC105  it is the await
        if self._error is not None:
            raise self._error
        return self._result

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        if not self._withdrawn and (self._withdraw is None or not self._withdraw()):
            return trio.lowlevel.Abort.FAILED  # a thread has begun the work; the task waits for its end
        self._withdraw = None
        return trio.lowlevel.Abort.SUCCEEDED


class _TrioLoop:
    """The methods of event_loop.ForeignLoop for one run of trio."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()

    def create_waiter(self, withdraw: Callable[[], bool]) -> event_loop.Waiter:
        """Return a waiter for the current task."""
        return _TrioWaiter(withdraw)

    def call_soon_threadsafe(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function on the thread of the loop. Raise RunFinishedError, a RuntimeError, if the loop has ended."""
        self._token.run_sync_soon(callback, *args)

    async def run_in_executor(self, executor: Executor | None, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function in a thread and wait for its result. It is withdrawn only if no thread has begun it."""
        if executor is None:
            return await trio.to_thread.run_sync(function, *args)
        return await event_loop.wait_for(executor.submit(function, *args))

    async def run_to_end(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. A cancellation is raised at the next checkpoint."""
        with trio.CancelScope(shield=True):
            return await coroutine
        raise AssertionError  # for type checkers: a shielded scope is not cancelled

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        await trio.sleep(seconds)


_current: trio.lowlevel.RunVar[_TrioLoop] = trio.lowlevel.RunVar("recollect_loop")


def current_loop() -> event_loop.ForeignLoop:
    """Return the loop of the current run of trio."""
    try:
        return _current.get()
    except LookupError:
        loop = _TrioLoop()
        _current.set(loop)
        return loop
