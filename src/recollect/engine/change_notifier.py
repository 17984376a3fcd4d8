"""Change notifiers: an engine notifies them after a commit, and a watch waits on them."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from recollect.storage.operation import Row

WAIT_SLICE = 1.0  # seconds per wait. Longer delays a watch that another thread closes; shorter wakes an idle one often

# Pause after a scan of all sessions, as a multiple of the duration of the scan: scans take at most 10% of the time,
# however many sessions there are.
RESCAN_FACTOR = 10


class ChangeNotice(NamedTuple):
    """Why a change notifier woke its watch: the changed sessions (key, id, revision), or all of them may have changed.

    `new_database` is set if another database has replaced the previous one: their revisions are not comparable.
    """

    rows: list[Row]
    everything: bool = False
    new_database: bool = False


class ChangeNotifier(Protocol):
    """Waits for changes. One thread waits; any thread may notify or close it."""

    def wait(self, seconds: float) -> ChangeNotice | None:
        """Wait up to `seconds` for a change. Return None if there was none, or the notifier was closed."""
        ...

    def notify(self) -> None:
        """Wake the waiting thread."""
        ...

    def close(self) -> None:
        """Stop, and release connections."""
        ...


class LocalChangeNotifier:
    """The change notifier of an in-memory store, which only this process can change."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> ChangeNotice | None:
        """Wait up to `seconds` for a commit of this process."""
        if not self._event.wait(seconds):
            return None
        self._event.clear()
        return ChangeNotice([], everything=True)

    def notify(self) -> None:
        """Report a commit."""
        self._event.set()

    def close(self) -> None:
        """Close nothing: there is no connection."""
