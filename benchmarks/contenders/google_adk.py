"""Google's Agent Development Kit: DatabaseSessionService, an event for each message."""

from __future__ import annotations

import json

from contenders.contender import Contender, said

APP = {"app_name": "bench", "user_id": "person"}


def events(turn):
    """Write a turn as events."""
    from google.adk.events import Event
    from google.genai import types

    for message in turn:
        author = "user" if message["role"] == "user" else "agent"
        if message["role"] == "tool":
            answer = {"result": message["content"]}
            made = types.FunctionResponse(id=message["tool_call_id"], name="read_file", response=answer)
            parts = [types.Part(function_response=made)]
        elif message.get("tool_calls"):
            parts = [
                types.Part(
                    function_call=types.FunctionCall(
                        id=call["id"], name=call["function"]["name"], args=json.loads(call["function"]["arguments"])
                    )
                )
                for call in message["tool_calls"]
            ]
        else:
            parts = [types.Part(text=message["content"])]
        yield Event(author=author, content=types.Content(role="user" if author == "user" else "model", parts=parts))


def read(event):
    """Say what an event says."""
    role, text, calls, answers = "user" if event.author == "user" else "assistant", "", [], None
    for part in event.content.parts:
        if part.function_response:
            role, answers = "tool", part.function_response.id
            text = part.function_response.response["result"]
        elif part.function_call:
            calls.append((part.function_call.id, part.function_call.name, part.function_call.args))
        else:
            text += part.text
    return said(role, text, calls, answers)


class DatabaseSessions(Contender):
    """On aiosqlite. Each event is a transaction of its own: there is no interface for a turn."""

    durability = "rollback journal, synchronous at SQLite's default, FULL; a commit for each message"
    tasks = "SQLAlchemy's pool, up to 15"
    lists = True

    async def open(self, place):
        from google.adk.sessions import DatabaseSessionService

        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{place}")
        self.sessions = {}

    async def close(self):
        await self.service.close()

    async def session(self, name):
        if name not in self.sessions:
            found = await self.service.get_session(session_id=name, **APP)
            self.sessions[name] = found or await self.service.create_session(session_id=name, **APP)
        return self.sessions[name]

    async def append(self, session, turn):
        kept = await self.session(session)
        for event in events(turn):
            await self.service.append_event(kept, event)

    async def load(self, session):
        return (await self.service.get_session(session_id=session, **APP)).events

    def said(self, loaded):
        return [read(event) for event in loaded]

    async def last(self, session, count):
        from google.adk.sessions.base_session_service import GetSessionConfig

        wanted = GetSessionConfig(num_recent_events=count)
        return (await self.service.get_session(session_id=session, config=wanted, **APP)).events

    async def list(self, count):
        return (await self.service.list_sessions(**APP)).sessions[:count]
