"""The sessions of the OpenAI Agents SDK. Its items are those of the Responses API."""

from __future__ import annotations

from contenders.contender import Contender, comparable_message


def items(turn):
    """Convert a turn to items of the SDK."""
    for message in turn:
        if message["role"] == "tool":
            yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        elif message.get("tool_calls"):
            for call in message["tool_calls"]:
                function = call["function"]
                yield {"type": "function_call", "call_id": call["id"], **function}
        else:
            yield {"role": message["role"], "content": message["content"]}


def comparable_messages(loaded_items):
    """Yield items as comparable messages; consecutive calls are one message."""
    calls = []
    for item in [*loaded_items, None]:
        if item is not None and item.get("type") == "function_call":
            calls.append((item["call_id"], item["name"], item["arguments"]))
            continue
        if calls:
            yield comparable_message("assistant", "", calls)
            calls = []
        if item is None:
            continue
        if item.get("type") == "function_call_output":
            yield comparable_message("tool", item["output"], (), item["call_id"])
        else:
            yield comparable_message(item["role"], item["content"])


class SqliteSessions(Contender):
    """SQLiteSession: the standard library's sqlite3, in threads, with one object per conversation."""

    durability = "WAL, synchronous=FULL (SQLite's default)"
    tasks = "one connection per thread and session"
    batch = 200

    async def open(self, location):
        self.location = location
        self.sessions = {}

    def session(self, name):
        from agents import SQLiteSession

        if name not in self.sessions:
            self.sessions[name] = SQLiteSession(name, self.location)
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

    def comparable(self, messages):
        return list(comparable_messages(messages))

    async def last(self, session, count):
        return await self.session(session).get_items(limit=count)


class SqlAlchemySessions(SqliteSessions):
    """SQLAlchemySession on aiosqlite."""

    driver = "sqlite+aiosqlite:///"
    tasks = "SQLAlchemy's pool, up to 15"

    async def open(self, location):
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine(self.address(location))
        self.sessions = {}

    def address(self, location):
        return self.driver + location

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

    def address(self, location):
        return location.replace("postgresql://", "postgresql+asyncpg://").partition("?")[0]
