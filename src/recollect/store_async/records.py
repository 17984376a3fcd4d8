"""AsyncRecords: keyed records of a store or of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect import storage
from recollect.model.record import Record
from recollect.model.search import Page

if TYPE_CHECKING:
    from recollect.store_async import AsyncStore


class AsyncRecords:
    """The records of a store, or of one session: JSON values or bytes by kind and key, for state that is not a message.

    Each record has a revision, which every write raises. With `expected`, a write happens only if the record still has
    that revision, so that concurrent writers do not lose an update.
    """

    def __init__(self, store: AsyncStore, session: str | None = None) -> None:
        self._store, self._session = store, session

    async def put(self, kind: str, key: str, value: Any, *, expected: int | None = None) -> Record:
        """Create or replace a record, and return it.

        - `kind`: 1 to 64 characters. Kinds that begin with `recollect.` are reserved.
        - `key`: 1 to 1,024 bytes of UTF-8, unique in its kind.
        - `value`: bytes, which are stored unchanged, or any JSON value.
        - `expected`: the revision that the record must have, 0 if it must not exist. Otherwise StaleRecord is raised.
        """
        store = self._store
        return await store.run(storage.records.put(store.scope(), self._session, kind, key, value, expected=expected))

    async def get(self, kind: str, key: str) -> Record | None:
        """Return a record, or None if it does not exist."""
        return await self._store.run(storage.records.get(self._store.scope(), self._session, kind, key))

    async def list(self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Record]:
        """Return a page of the records of a kind, ordered by key. Pass its `next` as `after` to get the next page.

        - `prefix`: only keys that begin with this text.
        - `after`: only keys after this one, in the order of code points.
        - `limit`: 1 to 1,000 records.
        """
        op = storage.records.list_records(
            self._store.scope(), self._session, kind, prefix=prefix, after=after, limit=limit
        )
        return await self._store.run(op)

    async def delete(self, kind: str, key: str, *, expected: int | None = None) -> bool:
        """Delete a record, and return whether it existed.

        Raise StaleRecord if `expected` is not its revision.
        """
        store = self._store
        return await store.run(storage.records.delete(store.scope(), self._session, kind, key, expected=expected))
