"""Recollect, through its public interface: append() of a turn's messages, or save_turn()."""

from __future__ import annotations

import recollect
from contenders.contender import Contender, said


def written(message):
    """Say what a message of Recollect says."""
    text, calls, answers = "", [], None
    for part in message.parts:
        if isinstance(part, recollect.TextPart):
            text += part.text
        elif isinstance(part, recollect.ToolCallPart):
            calls.append((part.call_id, part.tool, part.arguments_text or part.arguments))
        else:
            text, answers = part.text, part.call_id
    return said(message.role, text, calls, answers)


class Recollect(Contender):
    """The store for threads; where tasks run at once, the store for asyncio."""

    durability = "WAL, synchronous=FULL"
    tasks = "the store for asyncio"
    lists = searches = True

    async def open(self, place):
        self.place = place
        self.store = recollect.open(place)
        self.sessions = {}
        self.beside = None
        self.together = {}

    async def close(self):
        if self.beside is not None:
            await self.beside.close()
        self.store.close()

    def session(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.store.session(name)
        return self.sessions[name]

    async def append(self, session, turn):
        self.session(session).append(turn, format="openai")

    async def append_together(self, session, turn):
        await self.keep(await self.session_together(session), turn)

    async def session_together(self, name):
        if self.beside is None:
            self.beside = await recollect.open_async(self.place)
        if name not in self.together:
            self.together[name] = await self.beside.session(name)
        return self.together[name]

    async def keep(self, session, turn):
        await session.append(turn, format="openai")

    async def load(self, session):
        return self.session(session).messages()

    def said(self, loaded):
        return [written(message) for message in loaded]

    async def last(self, session, count):
        return self.session(session).messages(last=count)

    async def list(self, count):
        return self.store.list_sessions(count)

    async def search(self, words, count):
        return self.store.search(words, count)


class RecollectTurn(Recollect):
    """The same, with a row for the turn."""

    async def append(self, session, turn):
        self.session(session).save_turn(turn[0], turn[1:], format="openai")

    async def keep(self, session, turn):
        await session.save_turn(turn[0], turn[1:], format="openai")


class RecollectPostgres(Recollect):
    """The same, on PostgreSQL."""

    durability = "fsync and synchronous_commit on"
    tasks = "the store for asyncio, a pool of up to 10"
