"""An account: one owner's store, agent and talks. A server for one person has one, a team's one for each token."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from recollect.agent import Agent
from recollect.server.changes import Changes
from recollect.server.feed import Feed
from recollect.server.once import Once
from recollect.server.talks import Talks
from recollect.store_async import AsyncSession, AsyncStore, open_async

MakeAgent = Callable[[AsyncStore], Agent]
Keep = Callable[[AsyncStore], Awaitable[None]]
"""What is done to an owner's store when it is opened, such as letting go of what is too old."""


class Account:
    """What one owner has in this server. `closing` is set when the server is about to stop: streams end then."""

    def __init__(self, owner: str, store: AsyncStore, agent: Agent, closing: asyncio.Event | None = None) -> None:
        self.owner = owner
        self.store = store
        self.agent = agent
        self.talks = Talks(agent)
        self.changes = Changes(store)
        self.closing = asyncio.Event() if closing is None else closing
        self.once: Once[Any] = Once()
        self.feed = Feed(self.changes, self.talks, self.closing)

    async def session(self, name: str) -> AsyncSession:
        """Give a session to look at; its activity is not touched. Raise why, where it is not there."""
        found = await self.store.get_session(name)
        return await self.store.session(name, create=False) if found is None else found

    async def close(self) -> None:
        """Stop what runs, write what waits, and close the store."""
        await self.feed.close()
        await self.talks.close()
        await self.changes.close()
        await self.agent.close()
        await self.store.close()


class Accounts:
    """The accounts of a server, each opened when it is first needed."""

    def __init__(self, place: str | os.PathLike[str] | None, make_agent: MakeAgent, keep: Keep | None = None) -> None:
        self._place = place
        self._keep = keep
        self._make_agent = make_agent
        self.closing = asyncio.Event()
        self._open: dict[str, Account] = {}
        self._lock = asyncio.Lock()

    async def get(self, owner: str) -> Account:
        """Give an owner's account."""
        found = self._open.get(owner)
        if found is not None:
            return found
        async with self._lock:
            if owner not in self._open:
                store = await open_async(self._place, owner=owner)
                try:
                    await store.recover()
                    if self._keep is not None:
                        await self._keep(store)
                    account = Account(owner, store, self._make_agent(store), self.closing)
                except BaseException:
                    await store.close()
                    raise
                self._open[owner] = account
            return self._open[owner]

    def first(self) -> Account | None:
        """Return an account that is open; None if there is none."""
        return next(iter(self._open.values()), None)

    async def close(self) -> None:
        """Close them all."""
        self.closing.set()
        for account in list(self._open.values()):
            await account.close()
        self._open.clear()
