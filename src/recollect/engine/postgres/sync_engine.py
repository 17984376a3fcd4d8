"""The PostgreSQL engine for threads: each operation in its own transaction, on the caller's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from recollect.engine import process
from recollect.engine.change_notifier import ChangeNotifier
from recollect.engine.postgres.server import DatabaseServer
from recollect.errors import StoreClosed
from recollect.storage.operation import Operation

if TYPE_CHECKING:
    from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")


class PostgresEngine:
    """Runs an operation in one transaction, on a pooled connection, for one owner. The owners share the server."""

    def __init__(self, server: DatabaseServer, owner: str) -> None:
        self._server = server
        self._owner = owner

    def as_owner(self, owner: str) -> PostgresEngine:
        """Return an engine for another owner on the same connections."""
        if self._server.is_closed:
            raise StoreClosed
        return PostgresEngine(self._server, owner)

    @property
    def path(self) -> str:
        """The URL of the server, without the password."""
        return self._server.path

    @property
    def maintenance(self) -> None:
        """None: the files belong to the server."""

    def holder(self) -> str:
        """Return the holder name of this process, which operations store in the database."""
        return process.holder()

    def is_gone(self, name: str) -> bool:
        """Return whether a holder is a process of this machine that has ended."""
        return process.is_gone(name)

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result; its writes are on the server's disk by then."""
        if self._server.is_closed:
            raise StoreClosed
        return self._server.write(op, self._owner) if op.writes else self._server.read(op, self._owner)

    def search_dialect(self) -> SearchDialect:
        """Return the search of this engine."""
        from recollect.engine.postgres.search import PostgresSearch  # noqa: PLC0415  most programs do not search

        return PostgresSearch()

    def change_notifier(self) -> ChangeNotifier:
        """Return a change notifier, which reports commits of all connections."""
        return self._server.change_notifier(self._owner)

    def close(self) -> None:
        """Close the connections, also those of other owners. Closing twice is allowed."""
        self._server.close()
