"""A blocking adapter: an AsyncStore with the interface of a Store.

Every call runs on an event loop in a thread, and the caller waits for it. Sessions, turns, streams, pages and async
iterators that a call returns are adapted too. Calls from several threads are concurrent tasks on the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

from recollect.model.search import Page
from recollect.store import Store
from recollect.store_async import AsyncRecords, AsyncSession, AsyncStore, AsyncStream, AsyncTurn
from recollect.store_async.maintenance import AsyncStoreMaintenance
from recollect.store_async.session_groups import (
    AsyncSessionBranches,
    AsyncSessionCompactions,
    AsyncSessionPresence,
    AsyncSessionSnapshots,
    AsyncSessionTurns,
)
from recollect.store_async.tools import AsyncSessionTools, AsyncStoreTools
from recollect.store_async.watch import AsyncWatch

T = TypeVar("T")

_HANDLES = (
    AsyncStore, AsyncSession, AsyncTurn, AsyncStream, AsyncRecords, AsyncWatch, AsyncStoreMaintenance, AsyncStoreTools,
    AsyncSessionBranches, AsyncSessionTurns, AsyncSessionCompactions, AsyncSessionSnapshots, AsyncSessionPresence,
    AsyncSessionTools,
)  # fmt: skip


class _AsyncioThread:
    """An asyncio event loop in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect-conformance", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an async function on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result()

    def close(self) -> None:
        """Cancel the tasks that still run, and stop the loop."""
        self.run(_cancel_all_tasks)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _TrioThread:
    """A run of trio in its own thread."""

    def __init__(self) -> None:
        import trio  # noqa: PLC0415  few programs use trio

        self._trio, self._token = trio, cast("Any", None)  # main() sets the token
        has_started = threading.Event()
        self._stop = trio.Event()

        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            has_started.set()
            await self._stop.wait()

        self._thread = threading.Thread(target=trio.run, args=(main,), name="recollect-conformance", daemon=True)
        self._thread.start()
        has_started.wait()

    def run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an async function in a task and return its result."""
        return self._trio.from_thread.run(function, trio_token=self._token)

    def close(self) -> None:
        """Cancel the tasks that still run, and end the run."""
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()


class BlockingAdapter:
    """Runs async stores on an event loop in its own thread: one of asyncio, or a run of trio."""

    def __init__(self, library: Literal["asyncio", "trio"] = "asyncio") -> None:
        self._loop = _AsyncioThread() if library == "asyncio" else _TrioThread()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Await something on the loop and return its result."""
        return self._loop.run(lambda: _await(awaitable))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function on the loop, as an async program does, and return what the sync interface would return."""

        async def call() -> Any:
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        return self.adapt(self._loop.run(call))

    def open(self, awaitable: Awaitable[AsyncStore]) -> Store:
        """Open an async store and return it with the interface of a Store."""
        return cast("Store", self.adapt(self.run(awaitable)))

    def adapt(self, value: Any) -> Any:
        """Return a value as the sync interface would return it."""
        if isinstance(value, _HANDLES):
            return BlockingHandle(self, value)
        if isinstance(value, Page):
            return Page([self.adapt(item) for item in value], value.next)
        if type(value) is tuple:
            return tuple(self.adapt(item) for item in value)
        return value

    def close(self) -> None:
        """Cancel the tasks that still run, and stop the loop."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


class BlockingHandle:
    """An async store, session, turn, stream or watch that is used without await."""

    def __init__(self, adapter: BlockingAdapter, target: Any) -> None:
        self._adapter = adapter
        self._target = target

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not inspect.ismethod(attribute):
            return self._adapter.adapt(attribute)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._adapter.call(attribute, *args, **kwargs)

        return call

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._adapter.adapt(self._adapter.run(anext(self._target)))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self._adapter.run(self._target.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        return self._adapter.run(self._target.__aexit__(kind, error, traceback))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockingHandle) and self._target == other._target

    def __hash__(self) -> int:
        return hash(self._target)

    def __repr__(self) -> str:
        return repr(self._target)


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _cancel_all_tasks() -> None:
    tasks: list[asyncio.Task[Any]] = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
