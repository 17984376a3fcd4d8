"""Google's Agent Development Kit: DatabaseSessionService, one event per message."""

from __future__ import annotations

import json

from contenders.contender import Contender, comparable_message

APP = {"app_name": "bench", "user_id": "person"}


def events(turn):
    """Convert a turn to events."""
    from google.adk.events import Event
    from google.genai import types

    for message in turn:
        author = "user" if message["role"] == "user" else "agent"
        if message["role"] == "tool":
            response = {"result": message["content"]}
            function_response = types.FunctionResponse(id=message["tool_call_id"], name="read_file", response=response)
            parts = [types.Part(function_response=function_response)]
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


def comparable_event(event):
    """Return an event as a comparable message."""
    role, text, calls, result_of = "user" if event.author == "user" else "assistant", "", [], None
    for part in event.content.parts:
        if part.function_response:
            role, result_of = "tool", part.function_response.id
            text = part.function_response.response["result"]
        elif part.function_call:
            calls.append((part.function_call.id, part.function_call.name, part.function_call.args))
        else:
            text += part.text
    return comparable_message(role, text, calls, result_of)


class DatabaseSessions(Contender):
    """DatabaseSessionService on aiosqlite. Each event is one transaction: there is no interface for a turn."""

    durability = "rollback journal, synchronous=FULL (SQLite's default); one commit per message"
    tasks = "SQLAlchemy's pool, up to 15"
    lists = True

    async def open(self, location):
        from google.adk.sessions import DatabaseSessionService

        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{location}")
        self.sessions = {}

    async def close(self):
        await self.service.close()

    async def session(self, name):
        if name not in self.sessions:
            session = await self.service.get_session(session_id=name, **APP)
            self.sessions[name] = session or await self.service.create_session(session_id=name, **APP)
        return self.sessions[name]

    async def append(self, session, turn):
        session_object = await self.session(session)
        for event in events(turn):
            await self.service.append_event(session_object, event)

    async def load(self, session):
        return (await self.service.get_session(session_id=session, **APP)).events

    def comparable(self, messages):
        return [comparable_event(event) for event in messages]

    async def last(self, session, count):
        from google.adk.sessions.base_session_service import GetSessionConfig

        config = GetSessionConfig(num_recent_events=count)
        return (await self.service.get_session(session_id=session, config=config, **APP)).events

    async def list(self, count):
        return (await self.service.list_sessions(**APP)).sessions[:count]
