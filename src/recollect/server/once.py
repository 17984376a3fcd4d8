"""What is sent twice, by a client that lost the answer, happens once. The store knows it for good; this is quicker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from recollect.errors import KeyReused

T = TypeVar("T")


class Once(Generic[T]):
    """Actions by their keys, so that one that is sent twice happens once."""

    KEPT = 500

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[Any, asyncio.Task[T]]] = {}

    async def run(self, name: tuple[str, str], content: Any, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work, or give what came of it when it was done under this name."""
        known = self._made.get(name)
        if known is not None:
            if known[0] != content:
                raise KeyReused(session=name[0], key=name[1])
            return await asyncio.shield(known[1])
        task = asyncio.ensure_future(_awaited(work))
        self._made[name] = (content, task)
        task.add_done_callback(lambda done: self._settle(name, done))
        return await asyncio.shield(task)

    def _settle(self, name: tuple[str, str], task: asyncio.Task[T]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._made.pop(name, None)  # it did not happen: it may be tried again
        while len(self._made) > self.KEPT:
            del self._made[next(iter(self._made))]


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
