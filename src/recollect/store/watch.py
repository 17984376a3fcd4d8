# Generated from store_async/watch.py. Change that file, then run: python tools/generate_sync_store.py
"""Watch: an iterator over the changes that any process commits."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from recollect import storage
from recollect.engine.change_notifier import RESCAN_FACTOR, WAIT_SLICE, ChangeNotifier
from recollect.errors import StoreClosed
from recollect.model.session import Change
from recollect.store.waiting import Openable, WatchThread, run_to_end, sleep

if TYPE_CHECKING:
    from recollect.store import Store


class Watch(Openable):
    """An iterator over committed changes, each a [Change], and a context manager.

    It reports all changes since it was opened. It ends when it is closed, or after `timeout` seconds without a change.
    After its store is closed, it raises `StoreClosed`.
    """

    def __init__(
        self, store: Store, open_notifier: Callable[[], ChangeNotifier], session: str | None, timeout: float | None
    ) -> None:
        self._store = store
        self._session = session
        self._timeout = timeout
        self._revisions = storage.sessions.KnownRevisions(session)
        self._ready: list[Change] = []
        self._is_open, self._store_closed = True, False
        self._process = os.getpid()
        self._open_notifier = open_notifier
        self._notifier: ChangeNotifier | None = None
        self._thread = WatchThread()
        self._next_rescan = 0.0
        self._is_rescan_due = False

    def _open(self) -> Self:
        if self._notifier is None and self._is_open:
            try:
                run_to_end(self._start())
                self._rescan()
            except BaseException:  # such as a cancellation, after which nobody would close the notifier
                run_to_end(self._close_notifier())
                raise
            self._ready.clear()
        return self

    def _start(self) -> None:
        self._notifier = self._thread.call(self._open_notifier)

    def _rescan(self) -> None:
        start = time.monotonic()
        rows = self._store._run(storage.sessions.revisions(self._store._scope(), self._session))
        self._ready += self._revisions.replace_all(rows)
        self._is_rescan_due = False
        self._next_rescan = time.monotonic() + RESCAN_FACTOR * (time.monotonic() - start)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        self._open()
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while self._is_open and not self._ready:
            remaining = WAIT_SLICE if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                break
            self._wait(remaining)
        if self._store_closed:
            raise StoreClosed
        if not self._is_open or not self._ready:
            raise StopIteration
        return self._ready.pop(0)

    def _end_with_store(self) -> None:
        """End the watch because its store was closed. A waiting or later iteration raises StoreClosed."""
        if self._is_open and self._process == os.getpid():  # after fork(), the connection belongs to the parent process
            self._store_closed = True
            self.close()

    def _wait(self, remaining: float) -> None:
        notifier = self._notifier
        if notifier is None:
            return
        if not self._is_rescan_due:
            notice = self._thread.wait(notifier, min(remaining, WAIT_SLICE))
            if notice is None:
                return
            self._ready += self._revisions.update(notice.rows)
            if notice.new_database:
                self._revisions.invalidate()
            self._is_rescan_due = notice.everything
        if self._is_rescan_due:  # also if an earlier iteration was cancelled during its rescan
            sleep(min(max(self._next_rescan - time.monotonic(), 0), remaining))
            self._rescan()

    def close(self) -> None:
        """End the watch. Another thread may call this while the iteration waits."""
        run_to_end(self._end())

    def _end(self) -> None:
        self._is_open = False
        self._close_notifier()
        self._thread.end()

    def _close_notifier(self) -> None:
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            notifier.notify()
            self._thread.call(notifier.close)

    def __exit__(self, *_: object) -> None:
        self.close()
