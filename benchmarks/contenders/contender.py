"""The interface of a contender. A subclass overrides the methods that its store supports."""

from __future__ import annotations

import json
from typing import Any

ComparableMessage = tuple[str, str, tuple[tuple[str, str, str], ...], str | None]
"""A message in a form that is equal for all stores: role, text, tool calls (id, name, arguments), answered call id."""


def comparable_message(
    role: str, text: str | None = "", calls: Any = (), result_of: str | None = None
) -> ComparableMessage:
    """Return a comparable message. Each call is (id, name, arguments); the arguments are JSON text or values."""
    normalized_calls = tuple(
        (call_id, name, json.dumps(json.loads(arguments) if isinstance(arguments, str) else arguments, sort_keys=True))
        for call_id, name, arguments in calls
    )
    return (role, text or "", normalized_calls, result_of)


def comparable_openai_message(message: dict[str, Any]) -> ComparableMessage:
    """Return a message in the format of OpenAI's chat completions as a comparable message."""
    calls = message.get("tool_calls") or ()
    call_fields = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return comparable_message(message["role"], message["content"], call_fields, message.get("tool_call_id"))


class Contender:
    """One store, opened at a path or a URL."""

    durability = ""
    """How the store makes a turn durable with its default settings."""

    tasks = "one connection"
    """The object that 64 concurrent tasks share."""

    batch = 1
    """The number of turns per call when a long conversation is prepared, which is not measured."""

    lists = searches = False
    """Whether the store supports a list of conversations, and a search in all messages."""

    sizes = True
    """Whether a store has the same size after batches as after single turns."""

    async def open(self, location: str) -> None:
        """Open the store."""

    async def close(self) -> None:
        """Close the store."""

    async def append(self, session: str, turn: list[dict[str, Any]]) -> None:
        """Store a turn; it is durable, as far as the store supports it, when this returns."""
        raise NotImplementedError

    async def append_concurrently(self, session: str, turn: list[dict[str, Any]]) -> None:
        """Store a turn while other tasks do the same, each in its own conversation."""
        await self.append(session, turn)

    async def fill(self, session: str, turns: list[list[dict[str, Any]]]) -> None:
        """Store several turns in one call, which is not measured."""
        for turn in turns:
            await self.append(session, turn)

    async def load(self, session: str) -> list[Any]:
        """Load a complete conversation as the store's own values."""
        raise NotImplementedError

    def comparable(self, messages: list[Any]) -> list[ComparableMessage]:
        """Convert loaded messages, to compare them with the stored ones."""
        raise NotImplementedError

    async def last(self, session: str, count: int) -> list[Any] | None:
        """Load the last messages, or return None if the store does not support it."""

    async def list(self, count: int) -> list[Any] | None:
        """List the newest conversations, or return None if the store does not support it."""

    async def search(self, words: str, count: int) -> list[Any] | None:
        """Search all messages, or return None if the store does not support it."""
