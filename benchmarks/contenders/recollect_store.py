"""Recollect, through its public interface: append() of a turn's messages, or save_turn()."""

from __future__ import annotations

import recollect
from contenders.contender import Contender


class Recollect(Contender):
    """The store for asyncio; a store for threads is used where nothing runs at once."""

    durability = "WAL, synchronous=FULL: on disk when it returns"

    async def open(self, place):
        self.store = recollect.open(place)
        self.beside = await recollect.open_async(place)
        self.sessions = {}
        self.together = {}

    async def close(self):
        await self.beside.close()
        self.store.close()

    def session(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.store.session(name)
        return self.sessions[name]

    async def append(self, session, turn):
        self.session(session).append(turn, format="openai")

    async def append_together(self, session, turn):
        if session not in self.together:
            self.together[session] = await self.beside.session(session)
        await self.together[session].append(turn, format="openai")

    async def load(self, session):
        return len(self.session(session).messages())

    async def last(self, session, count):
        return len(self.session(session).messages(last=count))

    async def list(self, count):
        return len(self.store.list_sessions(count))

    async def search(self, words, count):
        return len(self.store.search(words, count))


class RecollectTurn(Recollect):
    """The same, with a row for the turn."""

    async def append(self, session, turn):
        self.session(session).save_turn(turn[0], turn[1:], format="openai")


class RecollectPostgres(Recollect):
    """The same, on PostgreSQL."""

    durability = "fsync and synchronous_commit on"
