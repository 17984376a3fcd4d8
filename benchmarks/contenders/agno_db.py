"""agno: its SqliteDb, as its Agent uses it after a run: the run, and the session."""

from __future__ import annotations

from uuid import uuid4

from contenders.contender import Contender


class SqliteRuns(Contender):
    """A run for each turn, with its messages."""

    durability = "WAL, synchronous at its default, FULL"
    threads = True

    async def open(self, place):
        from agno.db.sqlite import SqliteDb

        self.db = SqliteDb(db_file=place)
        self.sessions = {}

    async def close(self):
        self.db.close()

    def session(self, name):
        from agno.session import AgentSession

        if name not in self.sessions:
            self.sessions[name] = [AgentSession(session_id=name, agent_id="agent"), 0]
            self.db.upsert_session(self.sessions[name][0])
        return self.sessions[name]

    async def append(self, session, turn):
        from agno.models.message import Message
        from agno.run.agent import RunOutput

        kept = self.session(session)
        messages = [Message(**message) for message in turn]
        run = RunOutput(
            run_id=str(uuid4()), agent_id="agent", session_id=session, content=turn[-1]["content"], messages=messages
        )
        self.db.upsert_run(run, session_id=session, run_index=kept[1])
        self.db.upsert_session(kept[0])
        kept[1] += 1

    async def load(self, session):
        from agno.db.base import SessionType

        found = self.db.get_session(session_id=session, session_type=SessionType.AGENT)
        return sum(len(run.messages) for run in found.runs)

    async def list(self, count):
        from agno.db.base import SessionType

        return len(self.db.get_sessions(SessionType.AGENT, limit=count, include_runs=False))
