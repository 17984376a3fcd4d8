"""Watch: a synchronous iterator over the changes that any process commits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from recollect import storage
from recollect.engine.change_notifier import RESCAN_FACTOR, WAIT_SLICE, ChangeNotifier
from recollect.errors import StoreClosed
from recollect.model.session import Change

if TYPE_CHECKING:
    from recollect.store import Store


class Watch:
    """An iterator over the changes since its creation: (session id, revision).

    It ends when it is closed, or after `timeout` seconds without a change. After its store is closed, it raises
    StoreClosed.
    """

    def __init__(
        self, store: Store, open_notifier: Callable[[], ChangeNotifier], session: str | None, timeout: float | None
    ) -> None:
        self._store = store
        self._session = session
        self._timeout = timeout
        self._revisions = storage.sessions.KnownRevisions(session)
        self._ready: list[Change] = []
        self._open, self._store_closed = True, False
        self._process = os.getpid()
        self._notifier = open_notifier()
        self._rescan()
        self._ready.clear()

    def _rescan(self) -> None:
        start = time.monotonic()
        rows = self._store.run(storage.sessions.revisions(self._store.scope(), self._session))
        self._ready += self._revisions.replace_all(rows)
        self._next_rescan = time.monotonic() + RESCAN_FACTOR * (time.monotonic() - start)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while self._open and not self._ready:
            remaining = WAIT_SLICE if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                break
            notification = self._notifier.wait(min(remaining, WAIT_SLICE))
            if notification is not None and notification.everything:
                time.sleep(min(max(self._next_rescan - time.monotonic(), 0), remaining))
                if notification.new_database:
                    self._revisions.invalidate()
                self._rescan()
            elif notification is not None:
                self._ready += self._revisions.update(notification.rows)
        if self._store_closed:
            raise StoreClosed
        if not self._open or not self._ready:
            raise StopIteration
        return self._ready.pop(0)

    def end_with_store(self) -> None:
        """End the watch because its store was closed. A waiting or later call of next() raises StoreClosed."""
        if self._open and self._process == os.getpid():  # after fork(), the connection belongs to the parent process
            self._store_closed = True
            self.close()

    def close(self) -> None:
        """End the watch. Another thread may call this while the iteration waits."""
        self._open = False
        self._notifier.notify()
        self._notifier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
