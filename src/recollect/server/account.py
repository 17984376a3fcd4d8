"""An account: one owner's store, agent and talks. A server for one person has one, a team's one for each token."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from recollect.agent import Agent
from recollect.server.feed import Feed
from recollect.server.once import Once
from recollect.server.talks import Talks
from recollect.store_async import AsyncStore, open_async

MakeAgent = Callable[[AsyncStore], Agent]


class Account:
    """What one owner has in this server."""

    def __init__(self, owner: str, store: AsyncStore, agent: Agent) -> None:
        self.owner = owner
        self.store = store
        self.agent = agent
        self.talks = Talks(agent)
        self.once: Once[Any] = Once()
        self.feed = Feed(store, self.talks)

    async def close(self) -> None:
        """Stop what runs, write what waits, and close the store."""
        await self.feed.close()
        await self.talks.close()
        await self.agent.close()
        await self.store.close()


class Accounts:
    """The accounts of a server, each opened when it is first needed."""

    def __init__(self, place: str | os.PathLike[str] | None, make_agent: MakeAgent) -> None:
        self._place = place
        self._make_agent = make_agent
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
                await store.recover()  # what a server that was killed left open is marked
                self._open[owner] = Account(owner, store, self._make_agent(store))
            return self._open[owner]

    def let_go(self) -> None:
        """Let everyone go who follows something here: the server is about to end."""
        for account in self._open.values():
            account.feed.let_go()

    async def close(self) -> None:
        """Close them all."""
        for account in list(self._open.values()):
            await account.close()
        self._open.clear()
