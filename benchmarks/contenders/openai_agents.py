"""The sessions of the OpenAI Agents SDK. Its items are those of the Responses API."""

from __future__ import annotations

from contenders.contender import Contender, said


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


def messages(loaded):
    """Say what items say; calls that follow each other are one message."""
    calls = []
    for item in [*loaded, None]:
        if item is not None and item.get("type") == "function_call":
            calls.append((item["call_id"], item["name"], item["arguments"]))
            continue
        if calls:
            yield said("assistant", "", calls)
            calls = []
        if item is None:
            continue
        if item.get("type") == "function_call_output":
            yield said("tool", item["output"], (), item["call_id"])
        else:
            yield said(item["role"], item["content"])


class SqliteSessions(Contender):
    """SQLiteSession: the standard library's sqlite3, in threads. It wants an object for each conversation."""

    durability = "WAL, synchronous at SQLite's default, FULL"
    tasks = "a connection for each thread and session"
    batch = 200

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
        return await self.session(session).get_items()

    def said(self, loaded):
        return list(messages(loaded))

    async def last(self, session, count):
        return await self.session(session).get_items(limit=count)


class SqlAlchemySessions(SqliteSessions):
    """SQLAlchemySession on aiosqlite."""

    driver = "sqlite+aiosqlite:///"
    tasks = "SQLAlchemy's pool, up to 15"

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
