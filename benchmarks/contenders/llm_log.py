"""llm: the log that it keeps of conversations, through LogStore."""

from __future__ import annotations

import json

from contenders.contender import Contender, said


def written(message):
    """Write a message as llm keeps it."""
    from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart

    if message["role"] == "tool":
        part = ToolResultPart(name="read_file", output=message["content"], tool_call_id=message["tool_call_id"])
        return Message(role="tool", parts=[part])
    parts = [TextPart(text=message["content"])] if message["content"] else []
    for call in message.get("tool_calls") or []:
        named = call["function"]
        parts.append(
            ToolCallPart(name=named["name"], arguments=json.loads(named["arguments"]), tool_call_id=call["id"])
        )
    return Message(role=message["role"], parts=parts)


def read(message):
    """Say what a message of llm says."""
    from llm.parts import TextPart, ToolCallPart, ToolResultPart

    text, calls, answers = "", [], None
    for part in message.parts:
        if isinstance(part, TextPart):
            text += part.text
        elif isinstance(part, ToolCallPart):
            calls.append((part.tool_call_id, part.name, part.arguments))
        elif isinstance(part, ToolResultPart):
            text, answers = part.output, part.tool_call_id
    return said(message.role, text, calls, answers)


class Log(Contender):
    """A thread for each conversation; one transaction for a turn, as its own log() has it."""

    durability = "rollback journal, synchronous at SQLite's default, FULL"
    batch = 200

    async def open(self, place):
        import sqlite_utils
        from llm.logs import LogStore

        self.db = sqlite_utils.Database(place)
        self.log = LogStore(self.db)
        self.known = set()

    async def close(self):
        self.db.conn.close()

    def thread(self, session):
        if session not in self.known:
            self.log.ensure_thread(session)
            self.known.add(session)
        return session

    async def append(self, session, turn):
        await self.fill(session, [turn])

    async def fill(self, session, turns):
        with self.db.atomic():
            self.log.append(self.thread(session), [written(message) for turn in turns for message in turn])

    async def load(self, session):
        return self.log.thread_messages(session)

    def said(self, loaded):
        return [read(message) for message in loaded]
