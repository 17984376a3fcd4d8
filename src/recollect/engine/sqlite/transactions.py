"""Transactions of operations on a connection."""

from __future__ import annotations

from typing import Any, TypeVar

import apsw
import msgspec

from recollect import sql
from recollect.engine.sqlite.errors import translate_error
from recollect.engine.sqlite.fast_paths import SqliteFastPaths
from recollect.errors import Corrupted, IndexDamaged, RecollectError
from recollect.storage.operation import Operation

T = TypeVar("T")

_MAX_TRIES = 3  # of an operation that reports damage. A transient read error of the disk is gone by then; damage is not
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
_UNEXPECTED_ERRORS = (TypeError, ValueError, LookupError, AttributeError)  # raised by a row that lacks values


class Transactions:
    """Runs operations on connections to one file."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._queries = sql.queries("sqlite")
        self._fast_paths = SqliteFastPaths(self._queries).handlers

    def run(self, begin: str, connection: apsw.Connection, op: Operation[T]) -> T:
        """Run an operation in a transaction, up to three times if it reports damage.

        SQLite reports SQLITE_CORRUPT if the disk fails to read a page, which may be transient.
        """
        for _ in range(_MAX_TRIES - 1):
            try:
                return self._run_once(begin, connection, op)
            except (Corrupted, IndexDamaged) as error:
                if not isinstance(error.__cause__, apsw.CorruptError):
                    raise
        return self._run_once(begin, connection, op)

    def _run_once(self, begin: str, connection: apsw.Connection, op: Operation[T]) -> T:
        try:
            connection.execute(begin)
            try:
                result = self.drive(connection, op)
                connection.execute("COMMIT")
            except BaseException:
                rollback(connection)
                raise
        except (apsw.Error, *_DECODE_ERRORS, *_UNEXPECTED_ERRORS) as error:
            store_error = self.translate_failure(connection, error)
            if store_error is error:
                raise
            raise store_error from error
        return result

    def translate_failure(self, connection: apsw.Connection, error: BaseException) -> BaseException:
        """Translate the error of an operation. An unexpected one is damage if quick_check finds any in the file."""
        if isinstance(error, apsw.Error):
            return self.translate_error(error, connection.system_errno)
        if isinstance(error, RecollectError):
            return error
        if isinstance(error, _DECODE_ERRORS) or (isinstance(error, _UNEXPECTED_ERRORS) and _is_damaged(connection)):
            return Corrupted(path=self._path, reason=f"stored data cannot be decoded ({error})")
        return error

    def drive(self, connection: apsw.Connection, op: Operation[T]) -> T:
        """Answer the fast path of an operation, or run its statements and send it their rows. Return its result."""
        request = op.fast
        if request is not None and (handler := self._fast_paths.get(type(request))) is not None:
            answer = handler(connection, request)
            if answer is not None and (result := op.finish(request, answer)) is not None:  # type: ignore[misc]
                return result
        steps, queries = op.start(), self._queries
        rows: list[Any] | None = None
        try:
            while True:
                name, params, many = steps.send(rows)  # type: ignore[arg-type]
                if many:
                    connection.executemany(queries[name], params)
                    rows = []
                else:
                    rows = connection.execute(queries[name], params).fetchall()
        except StopIteration as end:
            return end.value

    def translate_error(self, error: apsw.Error, number: int = 0) -> RecollectError:
        """Translate an error of the driver; `number` is the errno of the connection."""
        return translate_error(error, self._path, self._timeout, number)


def rollback(connection: apsw.Connection) -> None:
    """Roll back, unless SQLite has done so already, as it does on a full disk."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _is_damaged(connection: apsw.Connection) -> bool:
    try:
        return connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]
    except apsw.Error:
        return True
