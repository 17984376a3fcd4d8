"""The presence of a conversation in its session.

Other channels can show where the session is open, and a conversation whose session was taken over notices it before it
writes again.
"""

from __future__ import annotations

import asyncio
import contextlib

from recollect.errors import NotFound, RecollectError, SessionTakenOver, StoreError
from recollect.model.session import Presence
from recollect.store_async.session import AsyncSession

_HEARTBEAT = 300.0
"""Seconds between two renewals of a presence, for other machines, which cannot see whether this process is alive."""


class ConversationPresence:
    """The presence of one conversation. It does nothing before begin(): a program that asks once announces nothing."""

    def __init__(self) -> None:
        self._surface: str | None = None
        self._session: AsyncSession | None = None
        self._id: str | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def id(self) -> str | None:
        """The id of this presence, after begin()."""
        return self._id

    async def begin(self, session: AsyncSession, surface: str, *, take_over: bool = False) -> list[Presence]:
        """Announce presence in a session, or renew it; return the other presences."""
        if self._session is not None and self._session.id != session.id:
            await self.end()
        arrival = await session.presence.arrive(surface, id=self._id, take_over=take_over)
        self._session, self._surface, self._id = session, surface, arrival.id
        if self._heartbeat is None:
            self._heartbeat = asyncio.create_task(self._renew_periodically())
        return arrival.others

    async def _renew_periodically(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            if self._session is not None and self._id is not None:
                with contextlib.suppress(RecollectError):  # the conversation reports a failing store
                    await self._session.presence.stay(self._id)

    async def move(self, session: AsyncSession) -> list[Presence]:
        """Move an announced presence to another session; return the other presences there."""
        surface = self._surface
        if surface is None or (self._session is not None and self._session.id == session.id):
            return []
        await self.end()
        return await self.begin(session, surface)

    async def others(self) -> list[Presence]:
        """Return the other presences in the session, without this process's own turns."""
        if self._session is None:
            return []
        return [
            presence
            for presence in await self._session.presence.list()
            if presence.id != self._id and not _is_own_turn(presence, self._session)
        ]

    async def check(self, *, take_over: bool) -> None:
        """Raise SessionTakenOver if another process removed this presence. With `take_over`, announce it again."""
        session = self._session
        if session is None or self._surface is None:
            return
        try:
            presences = await session.presence.list()
            if any(presence.id == self._id for presence in presences):
                return
            if take_over:
                await self.begin(session, self._surface, take_over=True)
                return
        except (StoreError, NotFound):
            return  # storing the question reports the same problem
        holder = (
            ", ".join(describe_presence(presence) for presence in presences) or "another window that has closed since"
        )
        raise SessionTakenOver(session=session.id, holder=holder, until=None)

    async def end(self) -> None:
        """End this presence."""
        session, presence_id, self._session, self._id = self._session, self._id, None, None
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        if session is not None and presence_id is not None:
            with contextlib.suppress(RecollectError):  # the presence of an ended process is ignored anyway
                await session.presence.leave(presence_id)


def _is_own_turn(presence: Presence, session: AsyncSession) -> bool:
    """Return whether a presence is a turn of this process."""
    return presence.surface == "program" and presence.holder == session.store.holder


def describe_presence(presence: Presence) -> str:
    """Return a presence as text: `a terminal (process 12 on laptop)`."""
    # A holder is `node:machine:pid:start` (engine/process.py).
    machine, *process = presence.holder.rsplit(":", 2)
    location = f" (process {process[0]} on {machine.rpartition(':')[0]})" if len(process) > 1 else ""
    article = "an" if presence.surface[:1] in "aeiou" else "a"
    return f"{article} {presence.surface}{location}"
