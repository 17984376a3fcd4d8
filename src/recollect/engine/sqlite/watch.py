"""Noticing commits to the file: a counter of SQLite's for those of others, and a signal for our own.

SQLite says that another connection has committed, not what; what changed is then found by comparing revisions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import apsw

from recollect.engine.bell import Rung
from recollect.engine.sqlite.connection import connect_reader
from recollect.engine.sqlite.failure import meaning
from recollect.engine.sqlite.place import identity

_STEP = 0.025


class FileBell:
    """Rung by commits of this process at once, and by those of other connections within hundredths of a second.

    Also where another file takes the name of this one. `renew` is then asked to have the store take it up, and says if
    it could: only the store knows what to do with the log of the file before.
    """

    def __init__(self, path: str, timeout: float, renew: Callable[[], bool]) -> None:
        self._path = path
        self._timeout = timeout
        self._renew = renew
        self._heard = identity(path)
        self._connection = connect_reader(path, timeout)
        self._rung = threading.Event()
        self._gate = threading.Lock()
        self._open = True
        self._version = _version(self._connection)

    def wait(self, seconds: float) -> Rung | None:
        """Wait for a commit by anyone."""
        until = time.monotonic() + seconds
        while True:
            with self._gate:
                if not self._open:
                    return None
                replaced = self._replaced()
                changed = replaced or self._committed()
            if changed or self._rung.is_set():
                self._rung.clear()
                return Rung([], everything=True, anew=replaced)
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._rung.wait(min(_STEP, left))

    def _committed(self) -> bool:
        before = self._version
        try:
            self._version = _version(self._connection)
        except apsw.Error as error:
            raise meaning(error, self._path, self._timeout) from error
        return self._version != before

    def _replaced(self) -> bool:
        """Listen to the file that has the name now, where that is another one and can be read."""
        found = identity(self._path)
        if found in (None, self._heard) or not self._renew():
            return False
        connection = None
        try:
            connection = connect_reader(self._path, self._timeout)
            self._version = _version(connection)
        except apsw.Error:
            if connection is not None:
                connection.close()
            return False
        connection, self._connection, self._heard = self._connection, connection, found
        connection.close()
        return True

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


def _version(connection: apsw.Connection) -> int:
    version = connection.execute("PRAGMA data_version").fetchall()[0][0]
    assert isinstance(version, int)
    return version
