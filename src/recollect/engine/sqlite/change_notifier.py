"""The change notifier of SQLite: polls data_version for other connections; own commits notify at once.

SQLite reports that another connection committed, not what. The watch then compares revisions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import apsw

from recollect.engine.change_notifier import ChangeNotice
from recollect.engine.sqlite.connection import connect_reader
from recollect.engine.sqlite.errors import translate_error
from recollect.engine.sqlite.file_identity import file_id

# Seconds between two reads of data_version: the maximum delay of another process's change. A read costs one access to
# shared memory; a shorter interval costs more CPU while nothing changes.
_POLL_INTERVAL = 0.025


class FileChangeNotifier:
    """Reports commits of this process at once, and those of other processes within the poll interval.

    If another file takes the name of this one, `reopen` makes the store open it and returns whether it could: only the
    store knows what to do with the WAL of the previous file.
    """

    def __init__(self, path: str, timeout: float, reopen: Callable[[], bool]) -> None:
        self._path = path
        self._timeout = timeout
        self._reopen = reopen
        self._file_id = file_id(path)
        self._connection = connect_reader(path, timeout)
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._open = True
        self._version = _data_version(self._connection)

    def wait(self, seconds: float) -> ChangeNotice | None:
        """Wait up to `seconds` for a commit by any process. Return None if there was none."""
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                if not self._open:
                    return None
                is_new_file = self._follow_replacement()
                changed = is_new_file or self._has_new_commit()
            if changed or self._event.is_set():
                self._event.clear()
                return ChangeNotice([], everything=True, new_database=is_new_file)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._event.wait(min(_POLL_INTERVAL, remaining))

    def _has_new_commit(self) -> bool:
        before = self._version
        try:
            self._version = _data_version(self._connection)
        except apsw.Error as error:
            raise translate_error(error, self._path, self._timeout) from error
        return self._version != before

    def _follow_replacement(self) -> bool:
        """Switch to the file that has the name now. Return whether that is another one and could be opened."""
        current_id = file_id(self._path)
        if current_id in (None, self._file_id) or not self._reopen():
            return False
        connection = None
        try:
            connection = connect_reader(self._path, self._timeout)
            self._version = _data_version(connection)
        except apsw.Error:
            if connection is not None:
                connection.close()
            return False
        previous, self._connection, self._file_id = self._connection, connection, current_id
        previous.close()
        return True

    def notify(self) -> None:
        """Report a commit of this process, or wake the waiting thread."""
        self._event.set()

    def close(self) -> None:
        """Close the connection that polls."""
        with self._lock:
            self._open = False
            try:
                self._connection.close()
            except apsw.Error:
                return


def _data_version(connection: apsw.Connection) -> int:
    version = connection.execute("PRAGMA data_version").fetchall()[0][0]
    assert isinstance(version, int)
    return version
