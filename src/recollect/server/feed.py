"""What changes in an owner's store, told to everyone who looks: one watch, however many browsers there are.

Changes are counted, and the last ones kept, so that who comes back after a lost connection is told what it missed, or
that it missed too much.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import NamedTuple

from recollect.server.changes import Changes
from recollect.server.talks import Talks

KEPT = 2_000
"""Changes that are remembered."""

_DIGITS = 18


class News(NamedTuple):
    """A session that has changed: its revision (None where it was erased), and whether a turn runs in it here.

    Where the session is empty, some changes were missed: look at everything again.
    """

    session: str
    revision: int | None
    running: bool


class Feed:
    """The changes of one store since this server started, with the turns that begin and end here."""

    def __init__(self, changes: Changes, talks: Talks, closing: asyncio.Event) -> None:
        self._changes = changes
        self._talks = talks
        self._closing = closing
        self._name = secrets.token_hex(4)
        self._kept: deque[News] = deque(maxlen=KEPT)
        self._revisions: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.count = 0
        self.ended = False
        self.watchers: set[asyncio.Event] = set()
        talks.moved = self._moved

    async def begin(self) -> None:
        """See to it that changes are watched for."""
        await self._changes.begin()
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._end())]
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        async for item in self._changes.follow():
            session, revision = item.change or ("", None)
            self._learn(session, revision)
            self._add(session, revision)

    def _learn(self, session: str, revision: int | None) -> None:
        """Keep the revision of a session, and none of what was erased, or may have been unnoticed."""
        if not session:
            self._revisions.clear()
        elif revision is None:
            self._revisions.pop(session, None)
        else:
            self._revisions[session] = revision

    async def _end(self) -> None:
        """Let everyone go when the server is about to stop: it waits for its streams."""
        await self._closing.wait()
        self.ended = True
        self._wake()

    def _moved(self, session: str) -> None:
        self._add(session, self._revisions.get(session, 0))

    def _add(self, session: str, revision: int | None) -> None:
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
        if name != self._name or not number.isdecimal() or len(number) > _DIGITS:
            return None
        place = int(number)
        return place if self.count - len(self._kept) <= place <= self.count else None

    def since(self, place: int) -> list[News]:
        """Give the changes after a place, each session once."""
        missed = list(self._kept)[max(len(self._kept) - (self.count - place), 0) :]
        return list({news.session: news for news in missed}.values())

    async def close(self) -> None:
        """Stop watching."""
        self.ended = True
        self._wake()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
