"""A talk's place in its session: taken when the talk begins, kept while it lasts, given up when it ends.

With it another window is told who talks there, and a talk that was taken over is told before it writes again.
"""

from __future__ import annotations

import asyncio
import contextlib

from recollect.errors import NotFound, RecollectError, SessionTaken, StoreError
from recollect.model.presence import Presence
from recollect.store_async.session import AsyncSession

_EVERY = 300.0
"""Seconds after which it is said again that one is there: for others who can not see whether this process lives."""


class Attendance:
    """Being there. Until begin() was called it does nothing: a program that asks once takes no place."""

    def __init__(self) -> None:
        self._surface: str | None = None
        self._session: AsyncSession | None = None
        self._id: str | None = None
        self._staying: asyncio.Task[None] | None = None

    @property
    def id(self) -> str | None:
        """One's own place, once it is taken."""
        return self._id

    async def begin(self, session: AsyncSession, surface: str, *, take_over: bool = False) -> list[Presence]:
        """Take a place in a session, or take it again, and give who else is there."""
        if self._session is not None and self._session.id != session.id:
            await self.end()
        arrived = await session.arrive(surface, id=self._id, take_over=take_over)
        self._session, self._surface, self._id = session, surface, arrived.id
        if self._staying is None:
            self._staying = asyncio.create_task(self._stay())
        return arrived.others

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if self._session is not None and self._id is not None:
                with contextlib.suppress(RecollectError):  # a store that fails is told by the talk
                    await self._session.stay(self._id)

    async def move(self, session: AsyncSession) -> list[Presence]:
        """Go on in another session, if one has a place."""
        surface = self._surface
        if surface is None or (self._session is not None and self._session.id == session.id):
            return []
        await self.end()
        return await self.begin(session, surface)

    async def others(self) -> list[Presence]:
        """Give who else is in the session."""
        if self._session is None:
            return []
        return [one for one in await self._session.present() if one.id != self._id and not _own(one, self._session)]

    async def check(self, *, take_over: bool) -> None:
        """See to it that one's place is still one's own, before something is said; raise SessionTaken where it is not.

        With `take_over` it is taken back.
        """
        session = self._session
        if session is None or self._surface is None:
            return
        try:
            there = await session.present()
            if any(one.id == self._id for one in there):
                return
            if take_over:
                await self.begin(session, self._surface, take_over=True)
                return
        except (StoreError, NotFound):
            return  # what is wrong with the session or the store is told when the question is stored
        by = ", ".join(told(one) for one in there) or "another window, which has left since"
        raise SessionTaken(session=session.id, holder=by, until=None)

    async def end(self) -> None:
        """Give up one's place."""
        session, place, self._session, self._id = self._session, self._id, None, None
        if self._staying is not None:
            self._staying.cancel()
            self._staying = None
        if session is not None and place is not None:
            with contextlib.suppress(RecollectError):  # the place of a process that ended is nobody's
                await session.leave(place)


def _own(presence: Presence, session: AsyncSession) -> bool:
    """Whether it is a turn of this process itself."""
    return presence.surface == "program" and presence.holder == session.store.scope().holder


def told(presence: Presence) -> str:
    """Say who someone is: `a terminal (process 12 on desk)`."""
    machine, *process = presence.holder.rsplit(":", 2)
    where = f" (process {process[0]} on {machine.rpartition(':')[0]})" if len(process) > 1 else ""
    article = "an" if presence.surface[:1] in "aeiou" else "a"
    return f"{article} {presence.surface}{where}"
