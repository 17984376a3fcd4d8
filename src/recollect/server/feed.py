"""What changes in an owner's store, told to everyone who looks: one watch, however many browsers there are.

Changes are counted, and the last ones kept, so that who comes back after a lost connection is told what it missed, or that
it missed too much.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from typing import NamedTuple

from recollect.errors import RecollectError
from recollect.server.talks import Talks
from recollect.store_async import AsyncStore

KEPT = 2_000
"""Changes that are remembered."""

_PAUSE = 1.0


class News(NamedTuple):
    """A session that has changed: its revision (None where it was erased), and whether a turn runs in it here."""

    session: str
    revision: int | None
    running: bool


class Feed:
    """The changes of one store since this server started, and those to come."""

    def __init__(self, store: AsyncStore, talks: Talks) -> None:
        self._store = store
        self._talks = talks
        self._name = secrets.token_hex(4)
        self._kept: deque[News] = deque(maxlen=KEPT)
        self._revisions: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self.count = 0
        self.ended = False
        self.watchers: set[asyncio.Event] = set()
        talks.moved = self._moved

    async def begin(self) -> None:
        """See to it that changes are watched for."""
        if self._task is None or self._task.done():
            self._ready.clear()
            self._task = asyncio.create_task(self._watch())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), 5.0)

    async def _watch(self) -> None:
        while not self.ended:
            try:
                async with self._store.watch() as changes:
                    self._ready.set()
                    async for change in changes:
                        self._add(change.session, change.revision)
            except RecollectError:
                await asyncio.sleep(_PAUSE)  # the store is away; what was missed is found by the next look

    def _moved(self, session: str) -> None:
        self._add(session, self._revisions.get(session, 0))

    def _add(self, session: str, revision: int | None) -> None:
        if revision is not None:
            self._revisions[session] = revision
        self._kept.append(News(session, revision, self._talks.running(session)))
        self.count += 1
        self._wake()

    def _wake(self) -> None:
        for watcher in self.watchers:
            watcher.set()

    def mark(self, count: int) -> str:
        """Name a place in the feed, to come back to."""
        return f"{self._name}.{count}"

    def place(self, mark: str | None) -> int | None:
        """Find a place by its name; None where what followed is no longer known."""
        name, _, number = (mark or "").partition(".")
        if name != self._name or not number.isdecimal():
            return None
        place = int(number)
        return place if self.count - len(self._kept) <= place <= self.count else None

    def since(self, place: int) -> list[News]:
        """Give the changes after a place, each session once."""
        missed = list(self._kept)[max(len(self._kept) - (self.count - place), 0) :]
        return list({news.session: news for news in missed}.values())

    def let_go(self) -> None:
        """End what follows."""
        self.ended = True
        self._wake()

    async def close(self) -> None:
        """Stop watching."""
        self.let_go()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
