"""The async store, for asyncio and trio: the methods of recollect.store, awaited."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator
from typing import Any

from recollect.engine.engine import AsyncEngine
from recollect.engine.event_loop import run_in_thread
from recollect.engine.registry import find_provider
from recollect.engine.url import StoreTarget, check_owner_and_timeout, parse_target
from recollect.store_async.records import AsyncRecords
from recollect.store_async.session import AsyncSession
from recollect.store_async.store import AsyncStore
from recollect.store_async.turn import AsyncStream, AsyncTurn

__all__ = ["AsyncRecords", "AsyncSession", "AsyncStore", "AsyncStream", "AsyncTurn", "open_async"]


def open_async(
    path_or_url: str | os.PathLike[str] | None = None, *, owner: str = "", timeout: float = 30.0
) -> AsyncStoreOpener:
    """Open a database for asyncio or trio: await the result, or enter it with `async with`.

    `store = await recollect.open_async()` returns an `AsyncStore`; `async with recollect.open_async() as store:` also
    closes it. The database is opened in a thread, so that the event loop is not blocked.

    - `path_or_url`, `owner`, `timeout`: as in [recollect.open()], which raises the same errors.
    """
    check_owner_and_timeout(owner, timeout)
    return AsyncStoreOpener(parse_target(path_or_url), owner, timeout)


def _open_engine(target: StoreTarget, owner: str, timeout: float) -> AsyncEngine:
    return find_provider(target.engine).open_async(target.path, owner=owner, timeout=timeout)


class AsyncStoreOpener:
    """A store that opens when it is awaited or entered."""

    def __init__(self, target: StoreTarget, owner: str, timeout: float) -> None:
        self._open_engine = functools.partial(_open_engine, target, owner, timeout)
        self._owner = owner
        self._store: AsyncStore | None = None

    async def _open(self) -> AsyncStore:
        return AsyncStore(await run_in_thread(self._open_engine), self._owner)

    def __await__(self) -> Generator[Any, Any, AsyncStore]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()
