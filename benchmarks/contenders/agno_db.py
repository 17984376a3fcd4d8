"""agno: its SqliteDb, used as its Agent does after a run: store the run and the session."""

from __future__ import annotations

from uuid import uuid4

from contenders.contender import Contender, comparable_message, comparable_openai_message


def run_of(session, turn):
    """Convert a turn to a run."""
    from agno.models.message import Message
    from agno.run.agent import RunOutput

    messages = [Message(**message) for message in turn]
    return RunOutput(
        run_id=str(uuid4()), agent_id="agent", session_id=session, content=turn[-1]["content"], messages=messages
    )


class SqliteRuns(Contender):
    """One run per turn, with its messages; AsyncSqliteDb for concurrent tasks."""

    durability = "WAL, synchronous=FULL (SQLite's default); two commits"
    tasks = "AsyncSqliteDb, SQLAlchemy's pool"
    lists = True

    async def open(self, location):
        from agno.db.sqlite import SqliteDb

        self.location = location
        self.db = SqliteDb(db_file=location)
        self.sessions = {}
        self.async_db = None
        self.concurrent_sessions = {}

    async def close(self):
        if self.async_db is not None:
            await self.async_db.close()
        self.db.close()

    def session(self, name):
        from agno.db.base import SessionType
        from agno.session import AgentSession

        if name not in self.sessions:
            session = self.db.get_session(session_id=name, session_type=SessionType.AGENT)
            if session is None:
                session = AgentSession(session_id=name, agent_id="agent")
                self.db.upsert_session(session)
            self.sessions[name] = [session, len(session.runs or ())]
        return self.sessions[name]

    async def append(self, session, turn):
        entry = self.session(session)
        self.db.upsert_run(run_of(session, turn), session_id=session, run_index=entry[1])
        self.db.upsert_session(entry[0])
        entry[1] += 1

    async def append_concurrently(self, session, turn):
        from agno.db.sqlite import AsyncSqliteDb
        from agno.session import AgentSession

        if self.async_db is None:
            self.async_db = AsyncSqliteDb(db_file=self.location)
        if session not in self.concurrent_sessions:
            self.concurrent_sessions[session] = [AgentSession(session_id=session, agent_id="agent"), 0]
            await self.async_db.upsert_session(self.concurrent_sessions[session][0])
        entry = self.concurrent_sessions[session]
        await self.async_db.upsert_run(run_of(session, turn), session_id=session, run_index=entry[1])
        await self.async_db.upsert_session(entry[0])
        entry[1] += 1

    async def load(self, session):
        from agno.db.base import SessionType

        session_object = self.db.get_session(session_id=session, session_type=SessionType.AGENT)
        return [message for run in session_object.runs for message in run.messages]

    def comparable(self, messages):
        return [
            comparable_openai_message(
                {"role": message.role, "content": message.content, "tool_calls": message.tool_calls}
            )
            if message.role != "tool"
            else comparable_message("tool", message.content, (), message.tool_call_id)
            for message in messages
        ]

    async def last(self, session, count):
        from agno.db.base import SessionType

        # A run has at least two messages, so half as many runs contain enough.
        session_object = self.db.get_session(
            session_id=session, session_type=SessionType.AGENT, runs_limit=(count + 1) // 2
        )
        return [message for run in session_object.runs for message in run.messages][-count:]

    async def list(self, count):
        from agno.db.base import SessionType

        return self.db.get_sessions(SessionType.AGENT, limit=count, include_runs=False)
