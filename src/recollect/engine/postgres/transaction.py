"""Running operations in a transaction: one alone, or several side by side, with as few round trips as they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import psycopg

from recollect.engine.postgres.book import Book, Statement
from recollect.engine.postgres.failure import GONE
from recollect.engine.postgres.link import BEGIN, BEGIN_READ, COMMIT, Link, Lost
from recollect.engine.postgres.text import Value, written
from recollect.errors import RecollectError
from recollect.op import Op, Row, Steps

T = TypeVar("T")
Ahead = list[tuple[Statement, list[Value]]]
"""Locks that are taken before anything else."""

MARK = Statement("commit_mark", "INSERT INTO recollect.commits (token, at) VALUES (:token, :at)")
MARK_AS = Statement(
    "commit_mark_as",
    "INSERT INTO recollect.commits (token, at) SELECT :token::bigint, :at::bigint "
    "FROM set_config('recollect.owner', :owner, true)",
)
OWN = Statement("owner_set", "SELECT set_config('recollect.owner', :owner, true)")


class Unsettled(Exception):
    """The connection was lost on COMMIT: what was done may be there or not."""

    def __init__(self, results: list[Any]) -> None:
        super().__init__("the connection was lost on COMMIT")
        self.results = results


class Crossed(Exception):
    """Locks were about to be taken crosswise with another transaction; `ahead` is to be taken first next time."""

    def __init__(self, ahead: Ahead) -> None:
        super().__init__("another transaction holds what is needed")
        self.ahead = ahead


class Mark:
    """What is written with a commit, so that a later look tells whether it happened."""

    __slots__ = ("at", "token")

    def __init__(self, token: int, at: int) -> None:
        self.token = token
        self.at = at


class Run(Generic[T]):
    """One run of an operation: what it asked for is sent, and its rows are handed back when they are there."""

    __slots__ = ("_book", "_link", "_locks", "_steps", "ahead", "done", "error", "place", "result")

    def __init__(self, op: Op[T], book: Book, link: Link) -> None:
        self._steps: Steps[T] = op.start()
        self._book = book
        self._link = link
        self._locks = op.writes
        self.ahead: Ahead = []
        self.done = False
        self.error: RecollectError | None = None
        self.result: Any = None
        self.place = 0

    def go(self, found: list[Row] | None, place: int) -> int:
        """Go on with these rows until others are needed, or to the end. Gives how many results are to be expected."""
        book, link = self._book, self._link
        try:
            while True:
                name, params, many = self._steps.send(found)  # type: ignore[arg-type]
                if many:
                    for statement, values in book.many(name).cut(params):  # type: ignore[arg-type]
                        link.send(statement, values)
                        place += 1
                    found = []
                    continue
                lock = book.lock(name) if self._locks else None
                if lock is not None:
                    values = lock.values(params)  # type: ignore[arg-type]
                    link.send(lock, values)
                    place += 1
                    if lock.waiting is not None:
                        self.ahead.append((lock.waiting, values))
                before = book.before(name)
                if before is not None:
                    link.send(before, before.values(params))  # type: ignore[arg-type]
                    place += 1
                statement = book.statement(name)
                link.send(statement, statement.values(params))  # type: ignore[arg-type]
                self.place = place
                place += 1
                if statement.returns:
                    return place
                found = []
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        return place


def read(link: Link, book: Book, op: Op[T], owner: str) -> T:
    """Run an operation that only reads, on one snapshot."""
    link.send(BEGIN_READ, [])
    if owner:
        link.send(OWN, [written(owner)])
    run = Run(op, book, link)
    _drive(link, [run], 2 if owner else 1)
    link.send(COMMIT, [])
    link.receive(end=True)
    if run.error is not None:
        raise run.error
    return run.result


def write(
    link: Link,
    book: Book,
    ops: Sequence[Op[Any]],
    owner: str,
    mark: Mark,
    ahead: Ahead,
    *,
    spare: Callable[[int], None] | None = None,
) -> list[Any] | None:
    """Run operations side by side in one transaction, and give their results; they are on disk by then.

    Where one refuses, nothing is written: alone, its error is raised; of several, each that refused is told to
    `spare`, and None is given.
    """
    begin(link, owner, mark)
    for statement, values in ahead:
        link.send(statement, values)
    runs = [Run(op, book, link) for op in ops]
    try:
        _drive(link, runs, 2 + len(ahead))
    except psycopg.errors.LockNotAvailable as error:
        raise Crossed([each for run in runs for each in run.ahead]) from error
    refused = [number for number, run in enumerate(runs) if run.error is not None]
    if refused:
        link.rollback()
        if spare is None:
            raise runs[refused[0]].error or AssertionError
        for number in refused:
            spare(number)
        return None
    results = [run.result for run in runs]
    link.send(COMMIT, [])
    try:
        link.receive(end=True)
    except Lost as lost:
        raise Unsettled(results) from lost
    except psycopg.Error as error:
        if error.sqlstate in GONE:  # a pooler may say so after the server has committed
            raise Unsettled(results) from error
        raise
    return results


def begin(link: Link, owner: str, mark: Mark) -> None:
    """Begin a transaction that writes, for an owner."""
    link.send(BEGIN, [])
    token, at = written(mark.token), written(mark.at)
    if owner:
        link.send(MARK_AS, [token, at, written(owner)])
    else:
        link.send(MARK, [token, at])


def _drive(link: Link, runs: Sequence[Run[Any]], sent: int) -> None:
    """Take every run a stretch further, wait once for all of them, and again, until all are at their end."""
    found: list[list[Row]] | None = None
    while True:
        waiting = False
        before, place = found, sent
        for run in runs:
            if not run.done:
                place = run.go(None if before is None else before[run.place], place)
                waiting = waiting or not run.done
        if not waiting:
            return
        found = link.receive()
        sent = 0
