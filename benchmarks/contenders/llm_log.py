"""llm: the log that it keeps of conversations, through LogStore."""

from __future__ import annotations

import json

from contenders.contender import Contender


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


class Log(Contender):
    """A thread for each conversation."""

    durability = "rollback journal, synchronous at its default, FULL"

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
        with self.db.conn:
            self.log.append(self.thread(session), [written(message) for message in turn])

    async def load(self, session):
        return len(self.log.thread_messages(session))
