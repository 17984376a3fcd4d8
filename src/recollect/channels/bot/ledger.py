"""What a bot has taken on and not yet answered, kept in the store, so that a restart knows it.

An entry is written before the platform is told that its message arrived, and goes when the answer stands there. Marks
say how far the adapter has read, in its own words. A store that fails does not stop the bot: the ledger is behind then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from recollect.channels.bot.incoming import Incoming
from recollect.errors import StoreError
from recollect.store_async import AsyncStore

_log = logging.getLogger(__name__)


class Entry(msgspec.Struct):
    """A message that waits for its answer, what was sent of the answer, and whether files came with it."""

    incoming: Incoming
    sent: list[str] = []
    files: bool = False


class _Page(msgspec.Struct):
    marks: dict[str, str] = {}
    open: dict[str, Entry] = {}


class Ledger:
    """The entries and marks of one bot."""

    def __init__(self, store: AsyncStore, bot: str) -> None:
        self._store = store
        self._setting = f"bot:{bot}"
        self._page = _Page()
        self._lock = asyncio.Lock()
        self._changed = self._stored = 0

    @property
    def marks(self) -> Mapping[str, str]:
        """How far the adapter has read."""
        return self._page.marks

    @property
    def entries(self) -> list[Entry]:
        """What waits, in the order it came."""
        return list(self._page.open.values())

    def has(self, incoming: Incoming) -> bool:
        """Say whether a message waits already."""
        return incoming.name in self._page.open

    async def load(self) -> None:
        """Read what was there when the bot last ran. What can not be read any more is let go, and said so."""
        kept = await self._store.setting(self._setting)
        try:
            self._page = _Page() if kept is None else msgspec.convert(kept, _Page)
        except msgspec.ValidationError as error:
            _log.warning("What the bot had taken on can not be read, and is let go: %s", error)

    async def take(self, incoming: Incoming, mark: tuple[str, str] | None = None) -> None:
        """Take a message on, and how far the adapter has read with it."""
        self._page.open[incoming.name] = Entry(incoming.without_files(), files=bool(incoming.attachments))
        await self.mark(mark)

    async def mark(self, mark: tuple[str, str] | None) -> None:
        """Note how far the adapter has read."""
        if mark is not None:
            self._page.marks[mark[0]] = mark[1]
        await self._save()

    async def sent(self, incoming: Incoming, messages: list[str]) -> None:
        """Note which messages the answer has."""
        entry = self._page.open.get(incoming.name)
        if entry is not None:
            entry.sent = list(messages)
            await self._save()

    async def done(self, incoming: Incoming) -> None:
        """Let go of a message that is answered."""
        if self._page.open.pop(incoming.name, None) is not None:
            await self._save()

    async def _save(self) -> None:
        """Write the page. Those who wait together are written together."""
        self._changed += 1
        mine = self._changed
        async with self._lock:
            if self._stored >= mine:
                return
            now = self._changed
            plain: Any = msgspec.to_builtins(self._page)
            try:
                await self._store.set_setting(self._setting, plain)
            except StoreError as error:
                _log.warning("What the bot has taken on can not be stored at the moment: %s", error)
                return
            self._stored = now
