"""How a session gets its title: at once from what was said first, then a better one, made beside the talk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from recollect.agent import titles
from recollect.agent.models import Spoken
from recollect.agent.recall import is_recalled
from recollect.errors import RecollectError
from recollect.store_async.session import AsyncSession

Write = Callable[[Spoken], Awaitable[str]]

_READ = 6
"""Messages that a title is made of: the first exchange, and a few tools that it took."""

_PATIENCE = 2.0
"""Seconds that the end of a talk waits for titles that are being made."""


class Naming:
    """The titles that a talk gives."""

    def __init__(self, tell: Callable[[AsyncSession, str], None]) -> None:
        self._tell = tell
        self._beside: set[asyncio.Task[None]] = set()

    async def name(self, session: AsyncSession, spoken: Spoken, write: Write | None) -> None:
        """Give a session that has none a title; `write` makes the better one, and None leaves it at the first."""
        if session.title:
            return
        first = next((draft for draft in spoken if draft.role == "user" and not is_recalled(draft)), None)
        title = titles.from_text(first)
        if not title:
            return
        await self._set(session, None, title)
        if write is not None:
            task = asyncio.create_task(self._improve(session, title, write, spoken[:_READ]))
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    async def _improve(self, session: AsyncSession, title: str, write: Write, spoken: Spoken) -> None:
        try:
            made = await write(spoken)
        except Exception:  # noqa: BLE001  a title is a courtesy: the one made from the text stays
            return
        if made and (better := titles.shortened(made)):
            await self._set(session, title, better)

    async def _set(self, session: AsyncSession, before: str | None, title: str) -> None:
        with contextlib.suppress(RecollectError):
            await session.refresh()
            if session.title == before:
                await session.update(title=title)
                self._tell(session, title)

    async def end(self) -> None:
        """Wait a moment for titles that are being made, and leave the rest."""
        if self._beside:
            await asyncio.wait(self._beside, timeout=_PATIENCE)
            for task in self._beside:
                task.cancel()
