"""An answer on its way to a person: shown while it comes, by changing the last message as often as is allowed.

What comes between two changes is shown with the next one. A message that is full stands as it is, and the answer goes
on in another. A platform that asks to wait is waited for; what is said last is tried for longest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from recollect.channels.bot.outlet import Outlet, SlowDown, Undelivered
from recollect.channels.bot.splitting import closed, cut

T = TypeVar("T")
Sent = Callable[[list[str]], Awaitable[None]]
MORE = " \u2026"
"""What stands at the end of an answer that goes on."""

TYPING = 4.0
"""Seconds after which a platform no longer shows that somebody types."""

PATIENCE = 300.0
"""Seconds that the end of an answer is tried to be delivered for."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0


class Delivery:
    """One answer. `write()` takes text as it comes, `finish()` sees to it that all of it stands there."""

    def __init__(self, outlet: Outlet, sent: Sent | None = None, *, patience: float = PATIENCE) -> None:
        self.ids: list[str] = []
        self._outlet = outlet
        self._sent = sent
        self._patience = patience
        self._open = ""
        self._shown: str | None = None
        self._current: str | None = None
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._pushing = asyncio.Lock()
        self.text = ""

    def begin(self) -> None:
        """Show that an answer is coming, and show it as it comes."""
        self._tasks = [asyncio.create_task(self._type()), asyncio.create_task(self._stream())]

    def write(self, text: str) -> None:
        """Take a piece of the answer."""
        self.text += text
        self._open += text
        self._wake.set()

    async def _type(self) -> None:
        while self._current is None:
            with contextlib.suppress(SlowDown, Undelivered):
                await self._outlet.typing()
            await asyncio.sleep(TYPING)

    async def _stream(self) -> None:
        await self._wake.wait()
        await asyncio.sleep(self._outlet.gathers)
        while True:
            await self._wake.wait()
            self._wake.clear()
            pause = self._outlet.pace
            try:
                async with self._pushing:
                    await self._push(MORE)
            except SlowDown as error:
                pause = max(error.seconds, pause)
                self._wake.set()
            except Undelivered as error:
                pause = max(pause, _FIRST_PAUSE)
                if error.again:
                    self._wake.set()
            await asyncio.sleep(pause)

    async def _push(self, more: str) -> None:
        """Bring what the person sees up to date."""
        while self._size(more) > self._outlet.limit and self._open.strip():
            before = self._open
            piece, rest = cut(before, self._outlet.limit, self._outlet.measure)
            if piece.strip():
                await self._show(piece)
            rest += self._open[len(before) :]  # what came while it was sent
            self._open, self._current, self._shown = rest, None, None
        if self._open.strip():
            await self._show(closed(self._open) + more)

    def _size(self, more: str) -> int:
        return self._outlet.measure(closed(self._open) + more)

    async def _show(self, text: str) -> None:
        if text == self._shown:
            return
        if self._current is not None:
            await self._outlet.edit(self._current, text)
        else:
            self._current = await self._outlet.send(text)
            self.ids.append(self._current)
            if self._sent is not None:
                await self._sent(self.ids)
        self._shown = text

    async def finish(self, note: str = "", *, patience: float | None = None) -> None:
        """Show all of it, and a note after it; wait for a platform that asks to wait, and try again what failed."""
        await self._end_tasks()
        if note:
            self.write(("\n\n" if self.text.strip() else "") + note)
        async with self._pushing:
            await insist(lambda: self._push(""), self._patience if patience is None else patience)

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        async with self._pushing:  # a message that is being sent is on its way: its id must not be lost
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def drop(self) -> None:
        """Stop showing anything."""
        await self._end_tasks()


async def insist(deliver: Callable[[], Awaitable[T]], patience: float = PATIENCE) -> T:
    """Deliver something: wait as long as the platform asks, and try again what may yet be taken, for some time."""
    until, pause = time.monotonic() + patience, _FIRST_PAUSE
    while True:
        try:
            return await deliver()
        except SlowDown as error:
            if time.monotonic() + error.seconds > until:
                raise Undelivered(str(error), again=False) from error
            await asyncio.sleep(error.seconds)
        except Undelivered as error:
            if not error.again or time.monotonic() > until:
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
