"""Whether the server can do its work: the store answers a read, in time."""

from __future__ import annotations

import asyncio
import logging
import time

from recollect.errors import RecollectError
from recollect.server.account import Accounts
from recollect.server.problem import code_of

PATIENCE = 2.0
"""Seconds that the store may take to answer."""

_KEPT = 1.0  # seconds. Anyone may ask, so that asking often must not be work for the database.
_KEY = "server.ready"  # a setting that nobody sets: reading it is the cheapest read there is

_log = logging.getLogger("recollect.server")


class Readiness:
    """Whether the store answers, looked up at most once in a second and logged when it changes."""

    def __init__(self, accounts: Accounts, owner: str) -> None:
        self._accounts = accounts
        self._owner = owner
        self._reading: asyncio.Task[str | None] | None = None
        self._reason: str | None = None
        self._until = 0.0

    async def reason(self) -> str | None:
        """Return why the server is not ready, as a code; None if it is ready. Takes at most PATIENCE."""
        if self._accounts.closing.is_set():
            return "server-stopping"
        if time.monotonic() < self._until:
            return self._reason
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.wait([self._reading], timeout=PATIENCE)
        self._remember(self._reading.result() if self._reading.done() else "store-timeout")
        return self._reason

    async def _read(self) -> str | None:
        try:
            account = self._accounts.first() or await self._accounts.get(self._owner)
            await account.store.setting(_KEY)
        except RecollectError as error:
            return code_of(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the server is not ready
            _log.error("The readiness check failed", exc_info=error)
            return "store-error"
        return None

    def _remember(self, reason: str | None) -> None:
        if reason is not None and self._reason is None:
            _log.error("The server is not ready: %s", reason)
        elif reason is None and self._reason is not None:
            _log.warning("The server is ready again")
        self._reason, self._until = reason, time.monotonic() + _KEPT

    async def close(self) -> None:
        """End a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
