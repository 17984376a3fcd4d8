"""Ledger of a bot: the messages that are accepted and not answered yet, kept in the store for the next start.

An entry is written before the message is confirmed to the platform, and removed when the answer is delivered.
Marks are the adapter's read positions. A failing store does not stop the bot: the ledger is behind until it recovers.
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

RECORD_KIND = "bot.ledger"
"""The kind of the records that store ledgers. The key is the name of the bot."""


class LedgerEntry(msgspec.Struct):
    """A message that waits for its answer, the ids of the sent messages of the answer, and whether it has files.

    Stored as JSON: field names are permanent.
    """

    incoming: Incoming
    sent: list[str] = []
    files: bool = False


class _LedgerState(msgspec.Struct):
    marks: dict[str, str] = {}
    open: dict[str, LedgerEntry] = {}


class Ledger:
    """The entries and marks of one bot."""

    def __init__(self, store: AsyncStore, bot: str) -> None:
        self._store = store
        self._bot = bot
        self._state = _LedgerState()
        self._lock = asyncio.Lock()
        self._version = self._stored_version = 0

    @property
    def marks(self) -> Mapping[str, str]:
        """The read positions of the adapter."""
        return self._state.marks

    @property
    def entries(self) -> list[LedgerEntry]:
        """The open entries, in the order of arrival."""
        return list(self._state.open.values())

    def has(self, incoming: Incoming) -> bool:
        """Return whether a message has an open entry."""
        return incoming.name in self._state.open

    async def load(self) -> None:
        """Read the stored ledger. An unreadable one is dropped with a warning."""
        record = await self._store.records.get(RECORD_KIND, self._bot)
        try:
            self._state = _LedgerState() if record is None else msgspec.convert(record.value, _LedgerState)
        except msgspec.ValidationError as error:
            _log.warning("The bot's ledger cannot be read and starts empty. Unanswered messages are lost: %s", error)

    async def take(self, incoming: Incoming, mark: tuple[str, str] | None = None) -> None:
        """Add an entry for a message, and store the adapter's read position with it."""
        self._state.open[incoming.name] = LedgerEntry(incoming.without_files(), files=bool(incoming.attachments))
        await self.mark(mark)

    async def mark(self, mark: tuple[str, str] | None) -> None:
        """Store a read position of the adapter."""
        if mark is not None:
            self._state.marks[mark[0]] = mark[1]
        await self._save()

    async def record_sent(self, incoming: Incoming, messages: list[str]) -> None:
        """Store the ids of the messages that the answer has so far."""
        entry = self._state.open.get(incoming.name)
        if entry is not None:
            entry.sent = list(messages)
            await self._save()

    async def done(self, incoming: Incoming) -> None:
        """Remove the entry of a message that is answered."""
        if self._state.open.pop(incoming.name, None) is not None:
            await self._save()

    async def _save(self) -> None:
        """Write the ledger. Concurrent calls share one write."""
        self._version += 1
        change = self._version
        async with self._lock:
            if self._stored_version >= change:
                return
            latest = self._version
            plain: Any = msgspec.to_builtins(self._state)
            try:
                await self._store.records.put(RECORD_KIND, self._bot, plain)
            except StoreError as error:
                _log.warning("The bot's ledger cannot be stored at the moment: %s", error)
                return
            self._stored_version = latest
