"""Noticing commits to the file: a counter of SQLite's for those of others, and a signal for our own.

SQLite says that another connection has committed, not what; what changed is then found by comparing revisions.
"""

from __future__ import annotations

import threading
import time

import apsw

from recollect.engine.bell import Rung
from recollect.engine.sqlite.connection import connect_reader

_STEP = 0.025


class FileBell:
    """Rung by commits of this process at once, and by those of other connections within hundredths of a second."""

    def __init__(self, path: str, timeout: float) -> None:
        self._connection = connect_reader(path, timeout)
        self._rung = threading.Event()
        self._gate = threading.Lock()
        self._open = True
        self._version = self._read()

    def _read(self) -> int:
        version = self._connection.execute("PRAGMA data_version").fetchall()[0][0]
        assert isinstance(version, int)
        return version

    def wait(self, seconds: float) -> Rung | None:
        """Wait for a commit by anyone."""
        until = time.monotonic() + seconds
        while True:
            with self._gate:
                if not self._open:
                    return None
                version, before = self._read(), self._version
                self._version = version
            if version != before or self._rung.is_set():
                self._rung.clear()
                return Rung([], everything=True)
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._rung.wait(min(_STEP, left))

    def ring(self) -> None:
        """Say that this process committed something, or wake who waits."""
        self._rung.set()

    def close(self) -> None:
        """Close the connection that looks."""
        with self._gate:
            self._open = False
            try:
                self._connection.close()
            except apsw.Error:
                return
