"""An operation in a transaction of a connection: its statements are run, and what fails is said in our own words."""

from __future__ import annotations

from typing import Any, TypeVar

import apsw
import msgspec

from recollect import sql
from recollect.engine.sqlite.failure import meaning
from recollect.engine.sqlite.steps import procedures
from recollect.errors import Corrupted, IndexDamaged, RecollectError
from recollect.op import Op

T = TypeVar("T")

_TRIES = 3
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_STRANGE = (TypeError, ValueError, LookupError, AttributeError)


class Transactions:
    """Runs operations on connections to one file."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._queries = sql.queries("sqlite")
        self._procedures = procedures(
            self._queries, sql.thens("sqlite"), sql.alternatives("sqlite"), sql.steps("sqlite")
        )

    def run(self, begin: str, connection: apsw.Connection, op: Op[T]) -> T:
        """Run an operation in a transaction; where that meets damage, once more and then again, before it is said.

        SQLite calls it damage when the disk fails to read a page, which may be the failure of one moment.
        """
        for _ in range(_TRIES - 1):
            try:
                return self._once(begin, connection, op)
            except (Corrupted, IndexDamaged) as error:
                if not isinstance(error.__cause__, apsw.CorruptError):
                    raise
        return self._once(begin, connection, op)

    def _once(self, begin: str, connection: apsw.Connection, op: Op[T]) -> T:
        try:
            connection.execute(begin)
            try:
                result = self.drive(connection, op)
                connection.execute("COMMIT")
            except BaseException:
                undo(connection)
                raise
        except (apsw.Error, *_UNREADABLE, *_STRANGE) as error:
            meant = self.explained(connection, error)
            if meant is error:
                raise
            raise meant from error
        return result

    def explained(self, connection: apsw.Connection, error: BaseException) -> BaseException:
        """Translate what an operation failed with. A row without what it must have is damage, if the file has any."""
        if isinstance(error, apsw.Error):
            return self.meaning(error, connection.system_errno)
        if isinstance(error, RecollectError):
            return error
        if isinstance(error, _UNREADABLE) or (isinstance(error, _STRANGE) and _damaged(connection)):
            return Corrupted(path=self._path, reason=f"what is stored can not be read ({error})")
        return error

    def drive(self, connection: apsw.Connection, op: Op[T]) -> T:
        """Run the statements of an operation and send it their rows."""
        steps = op.start()
        queries, procedures = self._queries, self._procedures
        found: list[Any] | None = None
        try:
            while True:
                name, params, many = steps.send(found)  # type: ignore[arg-type]
                if many:
                    connection.executemany(queries[name], params)
                    found = []
                elif name in procedures:
                    found = procedures[name](connection, params)  # type: ignore[arg-type]
                else:
                    found = connection.execute(queries[name], params).fetchall()
        except StopIteration as done:
            return done.value

    def meaning(self, error: apsw.Error, number: int = 0) -> RecollectError:
        """Translate an error of the driver; `number` is that of the system's own."""
        return meaning(error, self._path, self._timeout, number)


def undo(connection: apsw.Connection) -> None:
    """Roll back, where SQLite has not done so by itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _damaged(connection: apsw.Connection) -> bool:
    try:
        return connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]
    except apsw.Error:
        return True
