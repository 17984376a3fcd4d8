"""An AsyncStore with the look of a Store: every call runs on an event loop in a thread, and is waited for.

What a call gives is given the same look: sessions, turns, answers in progress, lists of them and async iterators.
Calls from many threads are many tasks at once on the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from recollect.model.page import Page
from recollect.store import Store
from recollect.store_async import AsyncSession, AsyncStore, AsyncStream, AsyncTurn
from recollect.store_async.watch import AsyncWatch

T = TypeVar("T")

_HANDLES = (AsyncStore, AsyncSession, AsyncTurn, AsyncStream, AsyncWatch)


class Portal:
    """An event loop in a thread of its own, and the way to it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect-portal", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Await something on the loop, and give what it gives."""
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop).result()

    def opened(self, opening: Awaitable[AsyncStore]) -> Store:
        """Open an async store, and give it as one that is not."""
        return cast("Store", self.plain(self.run(opening)))

    def plain(self, value: Any) -> Any:
        """Give a value the look that it has in the sync interface."""
        if inspect.isawaitable(value):
            return self.plain(self.run(value)) if not isinstance(value, _HANDLES) else self._begun(value)
        if isinstance(value, _HANDLES):
            return Handle(self, value)
        if isinstance(value, Page):
            return Page([self.plain(item) for item in value], value.next)
        if isinstance(value, AsyncIterator):
            return self._iterated(value)
        return value

    def _begun(self, value: Any) -> Handle:
        """Open a turn or an answer, which in the sync interface are open as soon as they are made."""
        return Handle(self, self.run(value))

    def _iterated(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self.plain(self.run(anext(items)))
                except StopAsyncIteration:
                    return
        finally:
            self.run(cast("Any", items).aclose())

    def close(self) -> None:
        """End what still runs on the loop, and the loop."""
        self.run(_all_ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


class Handle:
    """An async store, session, turn or answer, used without await."""

    def __init__(self, portal: Portal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not inspect.ismethod(found):
            return self._portal.plain(found)

        def call(*args: Any, **named: Any) -> Any:
            return self._portal.plain(found(*args, **named))

        return call

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._portal.plain(self._portal.run(anext(self._target)))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self._portal.run(self._target.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> Any:
        return self._portal.run(self._target.__aexit__(kind, error, at))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._target == other._target

    def __hash__(self) -> int:
        return hash(self._target)

    def __repr__(self) -> str:
        return repr(self._target)


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _all_ended() -> None:
    tasks: list[asyncio.Task[Any]] = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
