"""Changes of an owner's store: one watch for all listeners, and the feed of the page.

Changes are numbered from the start of the server, and the latest are kept, so that a client that reconnects receives
the missed ones, or learns that too many are missing. The id of a change contains a random name of this server start,
because the numbers begin at 1 after a restart.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from typing import NamedTuple

from recollect.errors import StoreClosed
from recollect.model.session import Change
from recollect.server.turn_runner import TurnRunner
from recollect.store_async import AsyncStore

MAX_KEPT_CHANGES = 2_000
"""Number of changes kept for clients that reconnect. A client that missed more reads its list again."""

_RETRY = 1.0  # seconds before a failed watch is started again; a database restart takes seconds
_log = logging.getLogger("recollect.server")


class NumberedChange(NamedTuple):
    """A change and its number. If the change is None, some were missed: read everything again."""

    number: int
    change: Change | None


class ChangeWatcher:
    """Watches a store for any number of listeners."""

    def __init__(self, store: AsyncStore) -> None:
        self.run_id = secrets.token_hex(4)
        self.last = 0
        self._store = store
        self._recent: collections.deque[NumberedChange] = collections.deque(maxlen=MAX_KEPT_CHANGES)
        self._wakeup = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the watch if needed. Changes that are committed after this returns are published."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        await self._ready.wait()

    async def _watch(self) -> None:
        has_gap = is_failing = False
        while True:
            try:
                async with self._store.watch() as watch:
                    if has_gap:  # published only now, so that a reader sees everything committed so far
                        self._recent.clear()
                        self._publish(None)
                    if is_failing:
                        is_failing = False
                        _log.warning("Changes of the store can be watched again")
                    self._ready.set()
                    async for change in watch:
                        self._publish(change)
            except StoreClosed:
                self._ready.set()
                return
            except Exception as error:  # noqa: BLE001  a database that is unreachable for a moment: try again
                if not is_failing:
                    is_failing = True
                    _log.error("Changes of the store cannot be watched; trying again", exc_info=error)
            self._ready.set()
            has_gap = True
            await asyncio.sleep(_RETRY)

    def _publish(self, change: Change | None) -> None:
        self.last += 1
        self._recent.append(NumberedChange(self.last, change))
        wakeup, self._wakeup = self._wakeup, asyncio.Event()
        wakeup.set()

    def remembers(self, number: int) -> bool:
        """Return whether all changes after a number are still kept."""
        return self.last - len(self._recent) <= number <= self.last and number >= 0

    async def follow(self, after: int | None = None, *, session: str | None = None) -> AsyncGenerator[NumberedChange]:
        """Yield the changes after a number (None: new ones), of one session or all."""
        await self.start()
        position = self.last if after is None else after
        while True:
            wakeup = self._wakeup
            gap = [] if self.remembers(position) else [NumberedChange(self.last - len(self._recent), None)]
            pending = [*gap, *(item for item in self._recent if item.number > position)]
            position = self.last
            for numbered_change in pending:
                if numbered_change.change is None or session in (None, numbered_change.change.session):
                    yield numbered_change
            if position == self.last:
                await wakeup.wait()

    async def close(self) -> None:
        """End the watch."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


MAX_KEPT_UPDATES = 2_000
"""Number of updates kept for windows that reconnect. A window that missed more reloads its list."""

_MAX_CURSOR_DIGITS = 18  # digits that fit a 64-bit integer


class SessionUpdate(NamedTuple):
    """A changed session: its revision (None if it was erased), and whether a turn runs in it on this server.

    An empty session id means that changes were missed: read everything again.
    """

    session: str
    revision: int | None
    running: bool


class ChangeFeed:
    """The changes of a store since the server started, and the turns that start and end on this server."""

    def __init__(self, changes: ChangeWatcher, runner: TurnRunner, closing: asyncio.Event) -> None:
        self._changes = changes
        self._runner = runner
        self._closing = closing
        self._run_id = secrets.token_hex(4)
        self._recent: deque[SessionUpdate] = deque(maxlen=MAX_KEPT_UPDATES)
        self._revisions: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.count = 0
        self.ended = False
        self.watchers: set[asyncio.Event] = set()
        runner.on_change = self._on_turn_change

    async def start(self) -> None:
        """Start to watch for changes if needed."""
        await self._changes.start()
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._end())]
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        async for numbered_change in self._changes.follow():
            session, revision = numbered_change.change or ("", None)
            self._remember_revision(session, revision)
            self._add(session, revision)

    def _remember_revision(self, session: str, revision: int | None) -> None:
        """Remember the revision of a session. Forget those of erased sessions, and all after missed changes."""
        if not session:
            self._revisions.clear()
        elif revision is None:
            self._revisions.pop(session, None)
        else:
            self._revisions[session] = revision

    async def _end(self) -> None:
        """End the event streams when the server stops: it waits for them."""
        await self._closing.wait()
        self.ended = True
        self._wake()

    def _on_turn_change(self, session: str) -> None:
        self._add(session, self._revisions.get(session, 0))

    def _add(self, session: str, revision: int | None) -> None:
        self._recent.append(SessionUpdate(session, revision, self._runner.running(session)))
        self.count += 1
        self._wake()

    def _wake(self) -> None:
        for watcher in self.watchers:
            watcher.set()

    def cursor_at(self, count: int) -> str:
        """Return the cursor of a position in the feed."""
        return f"{self._run_id}.{count}"

    def parse_cursor(self, cursor: str | None) -> int | None:
        """Return the position of a cursor, or None if updates after it are no longer kept."""
        run_id, _, number = (cursor or "").partition(".")
        if run_id != self._run_id or not number.isdecimal() or len(number) > _MAX_CURSOR_DIGITS:
            return None
        position = int(number)
        return position if self.count - len(self._recent) <= position <= self.count else None

    def since(self, position: int) -> list[SessionUpdate]:
        """Return the updates after a position, the latest of each session."""
        recent = list(self._recent)[max(len(self._recent) - (self.count - position), 0) :]
        return list({update.session: update for update in recent}.values())

    async def close(self) -> None:
        """Stop watching."""
        self.ended = True
        self._wake()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
