"""What every contender offers. A subclass overrides what its store can do; the rest stays not offered."""

from __future__ import annotations

import json
from typing import Any

Said = tuple[str, str, tuple[tuple[str, str, str], ...], str | None]
"""What a message says, whatever store it was in: role, text, tool calls (id, name, arguments), the call it answers."""


def said(role: str, text: str | None = "", calls: Any = (), answers: str | None = None) -> Said:
    """Write what a message says. Arguments may be JSON text or values; each call is (id, name, arguments)."""
    written = tuple(
        (call, name, json.dumps(json.loads(given) if isinstance(given, str) else given, sort_keys=True))
        for call, name, given in calls
    )
    return (role, text or "", written, answers)


def plain(message: dict[str, Any]) -> Said:
    """Say what a message in the form of OpenAI's chat completions says."""
    calls = message.get("tool_calls") or ()
    named = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return said(message["role"], message["content"], named, message.get("tool_call_id"))


class Contender:
    """One store, opened at a path or a URL."""

    durability = ""
    """How a turn is made durable, as the store does it when nothing else is asked for."""

    tasks = "one connection"
    """What 64 tasks at once share."""

    batch = 1
    """How many turns are put in at once when a long conversation is prepared; that is not measured."""

    lists = searches = False
    """Whether it offers a list of conversations, and a search in what was said."""

    sizes = True
    """Whether a store that was prepared in batches is as large as one that was written turn by turn."""

    async def open(self, place: str) -> None:
        """Open the store."""

    async def close(self) -> None:
        """Close it."""

    async def append(self, session: str, turn: list[dict[str, Any]]) -> None:
        """Keep a turn; it is as durable as the store makes it when this returns."""
        raise NotImplementedError

    async def append_together(self, session: str, turn: list[dict[str, Any]]) -> None:
        """Keep a turn while other tasks do the same, each in a conversation of its own."""
        await self.append(session, turn)

    async def fill(self, session: str, turns: list[list[dict[str, Any]]]) -> None:
        """Put in several turns at once; not measured."""
        for turn in turns:
            await self.append(session, turn)

    async def load(self, session: str) -> list[Any]:
        """Load a conversation whole, as the store's own values."""
        raise NotImplementedError

    def said(self, loaded: list[Any]) -> list[Said]:
        """Say what was loaded, to compare it with what was kept."""
        raise NotImplementedError

    async def last(self, session: str, count: int) -> list[Any] | None:
        """Load its last messages."""

    async def list(self, count: int) -> list[Any] | None:
        """List the newest conversations."""

    async def search(self, words: str, count: int) -> list[Any] | None:
        """Search everything that was said."""
