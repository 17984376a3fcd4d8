"""Recollect, through its public interface: append() of a turn's messages, or save_turn()."""

from __future__ import annotations

import recollect
from contenders.contender import Contender, comparable_message


def from_recollect(message):
    """Return a message of Recollect as a comparable message."""
    text, calls, result_of = "", [], None
    for part in message.parts:
        if isinstance(part, recollect.TextPart):
            text += part.text
        elif isinstance(part, recollect.ToolCallPart):
            calls.append((part.call_id, part.tool, part.arguments_text or part.arguments))
        else:
            text, result_of = part.text, part.call_id
    return comparable_message(message.role, text, calls, result_of)


class Recollect(Contender):
    """The sync store, and the async store for concurrent tasks."""

    durability = "WAL, synchronous=FULL"
    tasks = "the async store"
    lists = searches = True

    async def open(self, location):
        self.location = location
        self.store = recollect.open(location)
        self.sessions = {}
        self.async_store = None
        self.concurrent_sessions = {}

    async def close(self):
        if self.async_store is not None:
            await self.async_store.close()
        self.store.close()

    def session(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.store.session(name)
        return self.sessions[name]

    async def append(self, session, turn):
        self.session(session).append(turn, format="openai")

    async def append_concurrently(self, session, turn):
        await self.store_turn(await self.async_session(session), turn)

    async def async_session(self, name):
        if self.async_store is None:
            self.async_store = await recollect.open_async(self.location)
        if name not in self.concurrent_sessions:
            self.concurrent_sessions[name] = await self.async_store.session(name)
        return self.concurrent_sessions[name]

    async def store_turn(self, session, turn):
        await session.append(turn, format="openai")

    async def load(self, session):
        return self.session(session).messages()

    def comparable(self, messages):
        return [from_recollect(message) for message in messages]

    async def last(self, session, count):
        return self.session(session).messages(last=count)

    async def list(self, count):
        return self.store.list_sessions(count)

    async def search(self, words, count):
        return self.store.search(words, count)


class RecollectTurn(Recollect):
    """Recollect with save_turn(), which also stores a row for the turn."""

    async def append(self, session, turn):
        self.session(session).save_turn(turn[0], turn[1:], format="openai")

    async def store_turn(self, session, turn):
        await session.save_turn(turn[0], turn[1:], format="openai")


class RecollectPostgres(Recollect):
    """Recollect on PostgreSQL."""

    durability = "fsync and synchronous_commit on"
    tasks = "the async store, a pool of up to 10"
