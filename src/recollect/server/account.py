"""Accounts: one owner's store, agent and running turns.

A single-user server has one, a team server one for each token.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from recollect.agent import Agent
from recollect.engine.url import parse_target
from recollect.server.changes import ChangeFeed, ChangeWatcher
from recollect.server.turn_runner import IdempotencyCache, TurnRunner
from recollect.store_async import AsyncSession, AsyncStore, open_async

AgentFactory = Callable[[AsyncStore], Agent]
StoreHook = Callable[[AsyncStore], Awaitable[None]]
"""A function that is called with an owner's store when it is opened, for example to prune it."""


class Account:
    """One owner's store, agent and running turns. `closing` is set when the server stops: event streams end then."""

    def __init__(
        self, owner: str, store: AsyncStore, agent: Agent, closing: asyncio.Event | None = None, engine: str = ""
    ) -> None:
        self.owner = owner
        self.engine = engine
        self.store = store
        self.agent = agent
        self.runner = TurnRunner(agent)
        self.changes = ChangeWatcher(store)
        self.closing = asyncio.Event() if closing is None else closing
        self.idempotency: IdempotencyCache[Any] = IdempotencyCache()
        self.feed = ChangeFeed(self.changes, self.runner, self.closing)

    async def session(self, name: str) -> AsyncSession:
        """Return a session without changing its activity. Raise SessionNotFound or SessionInTrash."""
        session = await self.store.get_session(name)
        return await self.store.session(name, create=False) if session is None else session

    async def close(self) -> None:
        """Stop running turns, write the queued messages, and close the store."""
        await self.feed.close()
        await self.runner.close()
        await self.changes.close()
        await self.agent.close()
        await self.store.close()


class Accounts:
    """The accounts of a server, each opened when it is first needed. Their stores share the connections of one."""

    def __init__(
        self, target: str | os.PathLike[str] | None, make_agent: AgentFactory, on_open: StoreHook | None = None
    ) -> None:
        self._target = target
        self._on_open = on_open
        self._make_agent = make_agent
        self.closing = asyncio.Event()
        self._open: dict[str, Account] = {}
        self._store: AsyncStore | None = None
        self._store_lock = asyncio.Lock()
        self._owner_locks: dict[str, asyncio.Lock] = {}

    async def get(self, owner: str) -> Account:
        """Return an owner's account. Open it on the first call."""
        known_account = self._open.get(owner)
        if known_account is not None:
            return known_account
        # One lock for each owner: pruning the sessions of one must not delay the others.
        async with self._owner_locks.setdefault(owner, asyncio.Lock()):
            if owner not in self._open:
                store = (await self._shared_store()).as_owner(owner)
                try:
                    await store.maintenance.recover()
                    if self._on_open is not None:
                        await self._on_open(store)
                    engine = parse_target(self._target).engine
                    account = Account(owner, store, self._make_agent(store), self.closing, engine)
                except BaseException:
                    await store.close()
                    raise
                self._open[owner] = account
            return self._open[owner]

    async def _shared_store(self) -> AsyncStore:
        """Return the store from which those of the owners come. Open it on the first call."""
        async with self._store_lock:
            if self._store is None:
                self._store = await open_async(self._target)
            return self._store

    def first(self) -> Account | None:
        """Return any open account, or None."""
        return next(iter(self._open.values()), None)

    async def close(self) -> None:
        """Close all accounts."""
        self.closing.set()
        for account in list(self._open.values()):
            await account.close()
        self._open.clear()
        store, self._store = self._store, None
        if store is not None:
            await store.close()
