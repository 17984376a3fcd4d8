"""What every contender offers. A subclass overrides what its store can do; the rest stays not offered."""

from __future__ import annotations

from typing import Any


class Contender:
    """One store, opened at a path or a URL."""

    durability = ""
    threads = False
    """Whether tasks that run at once call it in threads, because its interface is not async."""

    async def open(self, place: str) -> None:
        """Open the store."""

    async def close(self) -> None:
        """Close it."""

    async def append(self, session: str, turn: list[dict[str, Any]]) -> None:
        """Keep a turn; it is as durable as the store makes it when this returns."""
        raise NotImplementedError

    async def fill(self, session: str, turns: list[list[dict[str, Any]]]) -> None:
        """Put in many turns, as quickly as it goes; not measured."""
        for turn in turns:
            await self.append(session, turn)

    async def load(self, session: str) -> int | None:
        """Load a conversation whole: how many messages."""

    async def last(self, session: str, count: int) -> int | None:
        """Load its last messages."""

    async def list(self, count: int) -> int | None:
        """List the newest conversations."""

    async def search(self, words: str, count: int) -> int | None:
        """Search everything that was said."""
