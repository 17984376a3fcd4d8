"""agno: its SqliteDb, written as its Agent writes it after a run: the run, and the session."""

from __future__ import annotations

from uuid import uuid4

from contenders.contender import Contender, plain, said


def run_of(session, turn):
    """Write a turn as a run."""
    from agno.models.message import Message
    from agno.run.agent import RunOutput

    messages = [Message(**message) for message in turn]
    return RunOutput(
        run_id=str(uuid4()), agent_id="agent", session_id=session, content=turn[-1]["content"], messages=messages
    )


class SqliteRuns(Contender):
    """A run for each turn, with its messages; where tasks run at once, AsyncSqliteDb."""

    durability = "WAL, synchronous at SQLite's default, FULL; two commits"
    tasks = "AsyncSqliteDb, SQLAlchemy's pool"
    lists = True

    async def open(self, place):
        from agno.db.sqlite import SqliteDb

        self.place = place
        self.db = SqliteDb(db_file=place)
        self.sessions = {}
        self.beside = None
        self.together = {}

    async def close(self):
        if self.beside is not None:
            await self.beside.close()
        self.db.close()

    def session(self, name):
        from agno.db.base import SessionType
        from agno.session import AgentSession

        if name not in self.sessions:
            found = self.db.get_session(session_id=name, session_type=SessionType.AGENT)
            if found is None:
                found = AgentSession(session_id=name, agent_id="agent")
                self.db.upsert_session(found)
            self.sessions[name] = [found, len(found.runs or ())]
        return self.sessions[name]

    async def append(self, session, turn):
        kept = self.session(session)
        self.db.upsert_run(run_of(session, turn), session_id=session, run_index=kept[1])
        self.db.upsert_session(kept[0])
        kept[1] += 1

    async def append_together(self, session, turn):
        from agno.db.sqlite import AsyncSqliteDb
        from agno.session import AgentSession

        if self.beside is None:
            self.beside = AsyncSqliteDb(db_file=self.place)
        if session not in self.together:
            self.together[session] = [AgentSession(session_id=session, agent_id="agent"), 0]
            await self.beside.upsert_session(self.together[session][0])
        kept = self.together[session]
        await self.beside.upsert_run(run_of(session, turn), session_id=session, run_index=kept[1])
        await self.beside.upsert_session(kept[0])
        kept[1] += 1

    async def load(self, session):
        from agno.db.base import SessionType

        found = self.db.get_session(session_id=session, session_type=SessionType.AGENT)
        return [message for run in found.runs for message in run.messages]

    def said(self, loaded):
        return [
            plain({"role": one.role, "content": one.content, "tool_calls": one.tool_calls})
            if one.role != "tool"
            else said("tool", one.content, (), one.tool_call_id)
            for one in loaded
        ]

    async def last(self, session, count):
        from agno.db.base import SessionType

        # A run has two messages or more, so that half as many runs have enough of them.
        found = self.db.get_session(session_id=session, session_type=SessionType.AGENT, runs_limit=(count + 1) // 2)
        return [message for run in found.runs for message in run.messages][-count:]

    async def list(self, count):
        from agno.db.base import SessionType

        return self.db.get_sessions(SessionType.AGENT, limit=count, include_runs=False)
