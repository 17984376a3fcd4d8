"""Changes as they are committed, by anyone: an iterator for a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from recollect import ops
from recollect.engine.bell import REST, SLICE, Bell
from recollect.errors import StoreClosed
from recollect.model.change import Change

if TYPE_CHECKING:
    from recollect.store import Store


class Watch:
    """Changes from the moment that it was made. Ends when it is closed, or after `timeout` seconds without a change.

    Raises StoreClosed when its store is closed.
    """

    def __init__(self, store: Store, bell: Callable[[], Bell], session: str | None, timeout: float | None) -> None:
        self._store = store
        self._session = session
        self._timeout = timeout
        self._known = ops.changes.Known(session)
        self._ready: list[Change] = []
        self._open, self._orphaned = True, False
        self._process = os.getpid()
        self._bell = bell()
        self._look()
        self._ready.clear()

    def _look(self) -> None:
        begun = time.monotonic()
        found = self._store.run(ops.changes.revisions(self._store.scope(), self._session))
        self._ready += self._known.all(found)
        self._rest = time.monotonic() + REST * (time.monotonic() - begun)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while self._open and not self._ready:
            left = SLICE if until is None else until - time.monotonic()
            if left <= 0:
                break
            rung = self._bell.wait(min(left, SLICE))
            if rung is not None and rung.everything:
                time.sleep(min(max(self._rest - time.monotonic(), 0), left))
                if rung.anew:
                    self._known.doubt()
                self._look()
            elif rung is not None:
                self._ready += self._known.some(rung.rows)
        if self._orphaned:
            raise StoreClosed
        if not self._open or not self._ready:
            raise StopIteration
        return self._ready.pop(0)

    def orphan(self) -> None:
        """End the watch because its store is closed: whoever waits for a change, or asks for one later, is told."""
        if self._open and self._process == os.getpid():  # after fork() the connection is the parent's
            self._orphaned = True
            self.close()

    def close(self) -> None:
        """End the watch, also from another thread."""
        self._open = False
        self._bell.ring()
        self._bell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
