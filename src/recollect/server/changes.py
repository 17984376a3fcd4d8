"""What changes in an owner's store, by anyone: one watch, and everyone who listens to it.

Each change has a number that counts from the start of the server, so that a listener who comes back misses nothing;
the name of this start is part of its id, because after another one the numbers begin anew.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator
from typing import NamedTuple

from recollect.errors import StoreClosed
from recollect.model.change import Change
from recollect.store_async import AsyncStore

KEPT = 2_000
"""How many changes are remembered for those who come back."""

_RETRY = 1.0
_log = logging.getLogger("recollect.server")


class Numbered(NamedTuple):
    """A change, and its number. Where the change is None, some were missed: look at everything again."""

    number: int
    change: Change | None


class Changes:
    """The changes of a store, followed by any number of listeners."""

    def __init__(self, store: AsyncStore) -> None:
        self.start = secrets.token_hex(4)
        self.last = 0
        self._store = store
        self._kept: collections.deque[Numbered] = collections.deque(maxlen=KEPT)
        self._pulse = asyncio.Event()
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """See to it that the store is watched: what is committed from here on is told."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        await self._begun.wait()

    async def _watch(self) -> None:
        lost = failed = False
        while True:
            try:
                async with self._store.watch() as watch:
                    if lost:  # told now and not before: what was committed until here is seen by who looks again
                        self._kept.clear()
                        self._tell(None)
                    if failed:
                        failed = False
                        _log.warning("Changes of the store can be watched again")
                    self._begun.set()
                    async for change in watch:
                        self._tell(change)
            except StoreClosed:
                self._begun.set()
                return
            except Exception as error:  # noqa: BLE001  a server or a disk that is away for a moment: look again
                if not failed:
                    failed = True
                    _log.error("Changes of the store cannot be watched; trying again", exc_info=error)
            self._begun.set()
            lost = True
            await asyncio.sleep(_RETRY)

    def _tell(self, change: Change | None) -> None:
        self.last += 1
        self._kept.append(Numbered(self.last, change))
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    def knows(self, number: int) -> bool:
        """Whether everything after a number is still remembered."""
        return self.last - len(self._kept) <= number <= self.last and number >= 0

    async def follow(self, after: int | None = None, *, session: str | None = None) -> AsyncGenerator[Numbered]:
        """Give the changes after a number (None: from now on), of one session or all."""
        await self.begin()
        at = self.last if after is None else after
        while True:
            pulse = self._pulse
            missed = [] if self.knows(at) else [Numbered(self.last - len(self._kept), None)]
            new = [*missed, *(item for item in self._kept if item.number > at)]
            at = self.last
            for item in new:
                if item.change is None or session in (None, item.change.session):
                    yield item
            if at == self.last:
                await pulse.wait()

    async def close(self) -> None:
        """End the watch."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
