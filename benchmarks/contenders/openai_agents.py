"""The sessions of the OpenAI Agents SDK. Its items are those of the Responses API."""

from __future__ import annotations

from contenders.contender import Contender


def items(turn):
    """Write a turn as the items that the SDK keeps."""
    for message in turn:
        if message["role"] == "tool":
            yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        elif message.get("tool_calls"):
            for call in message["tool_calls"]:
                named = call["function"]
                yield {"type": "function_call", "call_id": call["id"], **named}
        else:
            yield {"role": message["role"], "content": message["content"]}


class SqliteSessions(Contender):
    """SQLiteSession: the standard library's sqlite3, in threads."""

    durability = "WAL, synchronous at its default, FULL"

    async def open(self, place):
        self.place = place
        self.sessions = {}

    def session(self, name):
        from agents import SQLiteSession

        if name not in self.sessions:
            self.sessions[name] = SQLiteSession(name, self.place)
        return self.sessions[name]

    async def close(self):
        for session in self.sessions.values():
            session.close()

    async def append(self, session, turn):
        await self.session(session).add_items(list(items(turn)))

    async def fill(self, session, turns):
        await self.session(session).add_items([item for turn in turns for item in items(turn)])

    async def load(self, session):
        return len(await self.session(session).get_items())

    async def last(self, session, count):
        return len(await self.session(session).get_items(limit=count))


class SqlAlchemySessions(SqliteSessions):
    """SQLAlchemySession on aiosqlite."""

    durability = "WAL, synchronous at its default, FULL"
    driver = "sqlite+aiosqlite:///"

    async def open(self, place):
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine(self.address(place))
        self.sessions = {}

    def address(self, place):
        return self.driver + place

    def session(self, name):
        from agents.extensions.memory import SQLAlchemySession

        if name not in self.sessions:
            self.sessions[name] = SQLAlchemySession(name, engine=self.engine, create_tables=True)
        return self.sessions[name]

    async def close(self):
        await self.engine.dispose()


class PostgresSessions(SqlAlchemySessions):
    """SQLAlchemySession on asyncpg."""

    durability = "fsync and synchronous_commit on"

    def address(self, place):
        return place.replace("postgresql://", "postgresql+asyncpg://").partition("?")[0]
