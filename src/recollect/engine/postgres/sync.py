"""The engine for threads: each operation in a transaction of its own, on the caller's thread."""

from __future__ import annotations

from typing import TypeVar

from recollect.engine.bell import Bell
from recollect.engine.postgres.server import Server
from recollect.engine.postgres.watch import ServerBell
from recollect.errors import StoreClosed
from recollect.op import Op

T = TypeVar("T")


class PostgresEngine:
    """Runs an operation in one transaction, on a connection of the pool."""

    def __init__(self, url: str, *, owner: str = "", timeout: float = 30.0, trusted: bool = False) -> None:
        self._server = Server(url, owner, timeout, trusted=trusted)
        self._closed = False

    @property
    def path(self) -> str:
        """Where the data is, without the password."""
        return self._server.path

    def run(self, op: Op[T]) -> T:
        """Run an operation and give its result; what it wrote is on the server's disk by then."""
        if self._closed:
            raise StoreClosed
        return self._server.write(op) if op.writes else self._server.read(op)

    def bell(self) -> Bell:
        """Give a bell that is rung when anyone commits something."""
        if self._closed:
            raise StoreClosed
        return ServerBell(self._server.address, self._server.owner)

    def close(self) -> None:
        """Close the connections. Closing twice is no error."""
        self._closed = True
        self._server.close()
