# Generated from store_async/records.py. Change that file, then run: python tools/generate_sync_store.py
"""Records: keyed records of a store or of a session."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect import storage
from recollect.model.record import Record
from recollect.model.search import Page

if TYPE_CHECKING:
    from recollect.store import Store


class Records:
    """The records of a store, or of one session: JSON values or bytes by kind and key, for state that is not a message.

    A record has a kind, a key that is unique in the kind, and a value: any JSON value, or bytes, which are returned
    unchanged. Each write raises the revision of the record.

    ```python
    store.records.put("settings", "theme", {"dark": True}).revision    # -> 1
    store.records.get("settings", "theme").value                       # -> {'dark': True}
    session.records.put("draft", "text", b"Dear Ann").value            # -> b'Dear Ann'
    ```

    With `expected`, a write happens only if the record has that revision. Concurrent writers, also in other processes
    and on other machines, then lose no update: a writer whose value is out of date gets [StaleRecord], reads the record
    again and repeats the change.

    ```python
    def count(key: str) -> int:
        while True:
            record = store.records.get("counters", key)
            number, revision = (0, 0) if record is None else (record.value, record.revision)
            try:
                return store.records.put("counters", key, number + 1, expected=revision).value
            except recollect.StaleRecord:
                continue


    [count("visits"), count("visits")]    # -> [1, 2]
    ```

    A key never has the same revision twice. The first revision is 1, or higher if records of the kind were deleted: a
    writer that read a deleted record does not replace the one that was created after it. This makes a record usable as
    a lock: create it with `expected=0`, and delete it with the revision that `put()` returned.

    Kinds that begin with `recollect.` hold Recollect's own state, such as presences. Programs can read them, but not
    write them, and their content may change with any version.
    """

    def __init__(self, store: Store, session: str | None = None) -> None:
        self._store, self._session = store, session

    def put(self, kind: str, key: str, value: Any, *, expected: int | None = None) -> Record:
        """Create or replace a record, and return it as a [Record].

        - `kind`: 1 to 64 characters. A kind that begins with `recollect.` raises `InvalidValue`.
        - `key`: 1 to 1,024 bytes of UTF-8. Any character is allowed, also control characters; lone surrogates raise
          `InvalidValue`.
        - `value`: `bytes`, `bytearray` or `memoryview`, stored as bytes; or [any JSON value][JSON values], also `None`.
        - `expected`: the revision that the record must have; 0 if it must not exist; `None` writes in any case.
          Otherwise the method raises `StaleRecord` and writes nothing.
        """
        store = self._store
        return store._run(storage.records.put(store._scope(), self._session, kind, key, value, expected=expected))

    def get(self, kind: str, key: str) -> Record | None:
        """Return the [Record] of this `kind` with this `key`, or `None` if it does not exist."""
        return self._store._run(storage.records.get(self._store._scope(), self._session, kind, key))

    def list(self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Record]:
        """Return a [page] of the records of a `kind`, ordered by key.

        - `prefix`: only keys that begin with this text.
        - `after`: only keys after this one, in the order of code points. Pass the `next` of a page to get the following
          one.
        - `limit`: 1 to 1,000 records.

        ```python
        for city in ("de/berlin", "fr/lyon", "fr/paris"):
            saved = store.records.put("weather", city, "sunny")

        page = store.records.list("weather", prefix="fr/", limit=1)
        [record.key for record in page]                                                           # -> ['fr/lyon']
        [record.key for record in store.records.list("weather", prefix="fr/", after=page.next)]    # -> ['fr/paris']
        ```
        """
        op = storage.records.list_records(
            self._store._scope(), self._session, kind, prefix=prefix, after=after, limit=limit
        )
        return self._store._run(op)

    def delete(self, kind: str, key: str, *, expected: int | None = None) -> bool:
        """Delete the record of this `kind` with this `key`.

        Return whether it existed. `expected` as in `put()`.

        ```python
        store.records.delete("settings", "theme")    # -> True
        store.records.delete("settings", "theme")    # -> False
        ```
        """
        store = self._store
        return store._run(storage.records.delete(store._scope(), self._session, kind, key, expected=expected))
