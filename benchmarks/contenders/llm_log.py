"""llm: its log of conversations, through LogStore."""

from __future__ import annotations

import json

from contenders.contender import Contender, comparable_message


def to_llm(message):
    """Convert a message to a message of llm."""
    from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart

    if message["role"] == "tool":
        part = ToolResultPart(name="read_file", output=message["content"], tool_call_id=message["tool_call_id"])
        return Message(role="tool", parts=[part])
    parts = [TextPart(text=message["content"])] if message["content"] else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        parts.append(
            ToolCallPart(name=function["name"], arguments=json.loads(function["arguments"]), tool_call_id=call["id"])
        )
    return Message(role=message["role"], parts=parts)


def from_llm(message):
    """Return a message of llm as a comparable message."""
    from llm.parts import TextPart, ToolCallPart, ToolResultPart

    text, calls, result_of = "", [], None
    for part in message.parts:
        if isinstance(part, TextPart):
            text += part.text
        elif isinstance(part, ToolCallPart):
            calls.append((part.tool_call_id, part.name, part.arguments))
        elif isinstance(part, ToolResultPart):
            text, result_of = part.output, part.tool_call_id
    return comparable_message(message.role, text, calls, result_of)


class Log(Contender):
    """One thread per conversation; one transaction per turn, like its own log()."""

    durability = "rollback journal, synchronous=FULL (SQLite's default)"
    batch = 200

    async def open(self, location):
        import sqlite_utils
        from llm.logs import LogStore

        self.db = sqlite_utils.Database(location)
        self.log = LogStore(self.db)
        self.threads = set()

    async def close(self):
        self.db.conn.close()

    def thread(self, session):
        if session not in self.threads:
            self.log.ensure_thread(session)
            self.threads.add(session)
        return session

    async def append(self, session, turn):
        await self.fill(session, [turn])

    async def fill(self, session, turns):
        with self.db.atomic():
            self.log.append(self.thread(session), [to_llm(message) for turn in turns for message in turn])

    async def load(self, session):
        return self.log.thread_messages(session)

    def comparable(self, messages):
        return [from_llm(message) for message in messages]
