"""Changes as they are committed, by anyone: an iterator for a task."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from recollect import ops
from recollect.engine.bell import REST, SLICE, Bell
from recollect.errors import StoreClosed
from recollect.model.change import Change

if TYPE_CHECKING:
    from recollect.store_async import AsyncStore


class AsyncWatch:
    """Changes from the moment that it is entered, awaited or first asked. Ends as a Watch does, or with its task."""

    def __init__(self, store: AsyncStore, bell: Callable[[], Bell], session: str | None, timeout: float | None) -> None:
        self._store = store
        self._session = session
        self._timeout = timeout
        self._known = ops.changes.Known(session)
        self._ready: list[Change] = []
        self._open, self._orphaned = True, False
        self._process = os.getpid()
        self._make = bell
        self._bell: Bell | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recollect-watch")
        self._rest = 0.0

    async def _begun(self) -> Self:
        if self._bell is None and self._open:
            self._bell = await asyncio.get_running_loop().run_in_executor(self._thread, self._make)
            await self._look()
            self._ready.clear()
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._begun().__await__()

    async def _look(self) -> None:
        begun = time.monotonic()
        found = await self._store.run(ops.changes.revisions(self._store.scope(), self._session))
        self._ready += self._known.all(found)
        self._rest = time.monotonic() + REST * (time.monotonic() - begun)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        await self._begun()
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while self._open and not self._ready:
            left = SLICE if until is None else until - time.monotonic()
            if left <= 0:
                break
            await self._hear(left)
        if self._orphaned:
            raise StoreClosed
        if not self._open or not self._ready:
            raise StopAsyncIteration
        return self._ready.pop(0)

    async def orphan(self) -> None:
        """End the watch because its store is closed: whoever waits for a change, or asks for one later, is told."""
        if self._open and self._process == os.getpid():  # after fork() the connection is the parent's
            self._orphaned = True
            await self.close()

    async def _hear(self, left: float) -> None:
        bell = self._bell
        if bell is None:
            return
        waiting = asyncio.get_running_loop().run_in_executor(self._thread, bell.wait, min(left, SLICE))
        try:
            rung = await waiting
        except asyncio.CancelledError:
            bell.ring()  # the thread is not to wait on
            raise
        if rung is not None and rung.everything:
            await asyncio.sleep(min(max(self._rest - time.monotonic(), 0), left))
            if rung.anew:
                self._known.doubt()
            await self._look()
        elif rung is not None:
            self._ready += self._known.some(rung.rows)

    async def close(self) -> None:
        """End the watch, also from another task."""
        self._open = False
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.ring()
            await asyncio.get_running_loop().run_in_executor(self._thread, bell.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return await self._begun()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
