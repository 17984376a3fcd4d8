"""The last session of an owner: the one that a channel opened last, or else the most recently active one."""

from __future__ import annotations

from recollect.store_async import AsyncSession, AsyncStore

_KIND, _KEY = "agent.state", "last_session"


async def read_last_session(store: AsyncStore) -> AsyncSession | None:
    """Return the session that was opened last if it exists, else the one with the newest activity, or None."""
    record = await store.records.get(_KIND, _KEY)
    session = await store.get_session(record.value) if record is not None and isinstance(record.value, str) else None
    return session or next(iter(await store.list_sessions(1, archived=None)), None)


async def store_last_session(session: AsyncSession) -> None:
    """Store which session was opened last."""
    await session.store.records.put(_KIND, _KEY, session.id)
