"""What fork() doubles: a file is let go of before it, and taken up again after it, by each process for itself.

SQLite keeps its locks in tables of the process, which a child would inherit without holding the locks: it would find a
write lock of its parent's threads taken for ever, and its parent, closing, would fold and delete the log under the
child's hands, with what was acknowledged in it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable

import apsw

_STEP = 0.001


class Forkable:
    """Knows who uses the connections to a file, and has them closed while the process is doubled."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.lapsed = False
        """Whether the connections were let go of, so that the next who uses the file opens it again."""
        self.forked = False
        """Whether this process was forked since the file was last used."""
        self._forking = False
        self._gate = threading.Lock()
        self._users: list[None] = []

    def let_go(self) -> None:
        """Close the connections, which nobody uses now, and say so by `lapsed`, if there is a file to go back to."""
        raise NotImplementedError

    def leave_to_parent(self) -> None:
        """Give up the connections without closing them; they were in use too long to be closed before the fork."""
        raise NotImplementedError

    def take_up(self) -> None:
        """Open the file again."""
        raise NotImplementedError

    def enter(self) -> None:
        """Say that a connection is in use; open the writing one again after a fork.

        Adding to a list and looking at a flag, in this order, is enough: a fork sets the flag and then waits for the
        list to be empty. A lock here would be paid for by every operation.
        """
        self._users.append(None)
        while self._forking or self.lapsed:
            self._reopened()

    def _reopened(self) -> None:
        self._users.pop()
        with self._gate:
            if self.lapsed:
                self.take_up()
                self.lapsed = False
        self._users.append(None)

    def leave(self) -> None:
        """Say that it is no more."""
        self._users.pop()

    def before_fork(self) -> None:
        """Let go of the file while the process is doubled; held until after the fork."""
        self._gate.acquire()
        self._forking = True  # no one else begins while those who have begun end
        until = time.monotonic() + self.timeout
        while self._users and time.monotonic() < until:
            time.sleep(_STEP)
        if not self._users and not self.lapsed:
            self.let_go()

    def after_fork_in_parent(self) -> None:
        """Take up the file again on next use."""
        self._forking = False
        self._gate.release()

    def after_fork_in_child(self) -> None:
        """Take up the file on next use; a thread that held something is not here."""
        self._gate = threading.Lock()
        self._users, self._forking, self.forked = [], False, True
        self.leave_to_parent()


def never_close(connections: list[apsw.Connection]) -> None:
    """Keep a reference that is never given back, so that the interpreter does not close them on the way out.

    They are the parent's: closing them here would fold its log and drop its locks.
    """
    import ctypes  # noqa: PLC0415  only in a forked child whose parent was busy

    for connection in connections:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def see_to(files: Iterable[Forkable]) -> None:
    """Have these let go of and taken up at every fork; those too that are added later."""

    def each(name: str) -> None:
        for file in list(files):
            getattr(file, name)()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: each("before_fork"),
            after_in_parent=lambda: each("after_fork_in_parent"),
            after_in_child=lambda: each("after_fork_in_child"),
        )
