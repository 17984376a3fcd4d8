"""Running operations in a transaction: one alone, or several side by side, with as few round trips as they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import psycopg

from recollect.engine.postgres.book import Book, Statement, Whole
from recollect.engine.postgres.failure import GONE
from recollect.engine.postgres.link import BEGIN, BEGIN_READ, COMMIT, Link, Lost
from recollect.engine.postgres.text import Value, written
from recollect.errors import RecollectError
from recollect.op import Op, Row, Steps
from recollect.op import Statement as Step

T = TypeVar("T")
Ahead = list[tuple[Statement, list[Value]]]
"""Locks that are taken before anything else."""

# A fence refuses it: the time may not be NULL.
_MARKED = " ON CONFLICT (token) DO UPDATE SET at = CASE WHEN NOT commits.fence THEN excluded.at END"
MARK = Statement("commit_mark", "INSERT INTO recollect.commits (token, at) VALUES (:token, :at)" + _MARKED)
MARK_AS = Statement(
    "commit_mark_as",
    "INSERT INTO recollect.commits (token, at) SELECT :token::bigint, :at::bigint "
    "FROM set_config('recollect.owner', :owner, true)" + _MARKED,
)
OWN = Statement("owner_set", "SELECT set_config('recollect.owner', :owner, true)")
_LARGE = 4_000_000
"""Bytes above which what is appended goes a few rows at a time: a server has it all in memory, more than once."""


class Unsettled(Exception):
    """The connection was lost on COMMIT: what was done may be there or not. `results` are there if they were known."""

    def __init__(self, runs: Sequence[Run[Any]], spare: Callable[[int], None] | None) -> None:
        super().__init__("the connection was lost on COMMIT")
        self.runs = runs
        self.spare = spare

    @property
    def results(self) -> list[Any] | None:
        """The results, where they came before the connection was lost."""
        return [run.result for run in self.runs] if all(run.done for run in self.runs) else None


class Crossed(Exception):
    """Locks were about to be taken crosswise with another transaction; `ahead` is to be taken first next time."""

    def __init__(self, ahead: Ahead) -> None:
        super().__init__("another transaction holds what is needed")
        self.ahead = ahead


class Mark:
    """What is written with a commit, so that a later look tells whether it happened.

    It is written over the mark of the connection's commit before, whose end is known: a connection whose commit is in
    doubt is not used again.
    """

    __slots__ = ("at", "token")

    def __init__(self, token: int, at: int) -> None:
        self.token = token
        self.at = at


class Run(Generic[T]):
    """One run of an operation: what it asked for is sent, and its rows are handed back when they are there."""

    __slots__ = (
        "_book",
        "_first",
        "_link",
        "_locks",
        "_steps",
        "ahead",
        "done",
        "ends",
        "error",
        "missed",
        "params",
        "place",
        "result",
    )

    def __init__(self, op: Op[T], book: Book, link: Link, *, missed: bool = False) -> None:
        self._steps: Steps[T] = op.start()
        self._book = book
        self._link = link
        self._locks = op.writes
        self._first: Step | None = None
        self.ahead: Ahead = []
        self.done = False
        self.ends: Whole | None = None
        """What it waits for, where it mostly ends with that."""
        self.missed = missed
        """Whether what it mostly ends with is known to have met nothing: then it is not asked again."""
        self.params: Any = None
        self.error: RecollectError | None = None
        self.result: Any = None
        self.place = 0

    def begins_alone(self) -> bool:
        """Whether it begins with what it mostly ends with."""
        try:
            self._first = name, _, many = next(self._steps)
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        else:
            return not many and _mostly_ends(self._book.statement(name), self._first[1]) is not None
        return False

    def go(self, found: list[Row] | None, place: int) -> int:
        """Go on with these rows until others are needed, or to the end. Gives how many results are to be expected."""
        book, link = self._book, self._link
        try:
            while True:
                first, self._first = self._first, None
                name, params, many = first or self._steps.send(found)  # type: ignore[arg-type]
                if many:
                    for statement, values in book.many(name).cut(params):  # type: ignore[arg-type]
                        link.send(statement, values)
                        place += 1
                else:
                    place = self._prepare(name, params, place)
                    waits = self._ask(name, params, place)
                    if waits:
                        return place + 1
                    place += waits is not None
                found = []
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        return place

    def _prepare(self, name: str, params: Any, place: int) -> int:
        """Send what is to be done before a statement."""
        lock = self._book.lock(name) if self._locks else None
        if lock is not None:
            values = lock.values(params)
            self._link.send(lock, values)
            place += 1
            if lock.waiting is not None:
                self.ahead.append((lock.waiting, values))
        before = self._book.before(name)
        if before is not None:
            self._link.send(before, before.values(params))
            place += 1
        return place

    def _ask(self, name: str, params: Any, place: int) -> bool | None:
        """Send a statement, and say if it is to be waited for; None where it is taken to have met nothing."""
        statement = self._book.statement(name)
        self.ends = _mostly_ends(statement, params)
        if self.ends is not None:
            if self.missed:
                self.ends, self.missed = None, False  # what comes after it may mostly end an operation too
                return None
            self.params = params
        statement = statement.fitting(params)
        values = statement.values(params)
        if self.ends is not None and sum([len(value) for value in values if value is not None]) > _LARGE:
            self.ends = None  # it is done step by step then
            return None
        self._link.send(statement, values)
        self.place = place
        return statement.returns

    def end(self, found: list[Row]) -> bool:
        """Take the rows of what it mostly ends with, when all is committed; False where it wants to go on."""
        self.missed = not found
        try:
            self._steps.send(found)
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        return self.done


def _mostly_ends(statement: Statement, params: Any) -> Whole | None:
    """Give a statement that an operation mostly ends with, unless it says that it goes on after it."""
    return statement if type(statement) is Whole and "goes_on" not in params else None


def read(link: Link, book: Book, op: Op[T], owner: str) -> T:
    """Run an operation that only reads, on one snapshot."""
    run, tries = Run(op, book, link), 0
    while not _read(link, run, owner, tries):
        run = Run(op, book, link, missed=run.missed and not tries)
        tries += 1
    if run.error is not None:
        raise run.error
    return run.result


def _read(link: Link, run: Run[Any], owner: str, tries: int) -> bool:
    """Run an operation until what it mostly ends with; False where it wants to go on after that.

    Each time that it was tried before, one more of what it may end with is waited for.
    """
    alone = not tries and run.begins_alone()  # one statement sees one snapshot by itself
    waits = tries - run.missed
    place, found = _own(link, owner) if alone else _begin_reading(link, owner), None
    while not run.done:
        run.go(found, place)
        if run.done or (run.ends is not None and not waits):
            break
        waits -= run.ends is not None
        place, found = 0, link.receive()[run.place]
    if not alone:
        link.send(COMMIT, [])
    last = link.receive(end=True)
    return run.done or run.end(last[run.place])


def _begin_reading(link: Link, owner: str) -> int:
    link.send(BEGIN_READ, [])
    return 1 + _own(link, owner)


def _own(link: Link, owner: str) -> int:
    """Name the owner until the transaction ends; without BEGIN that is where what was sent is ended."""
    if owner:
        link.send(OWN, [written(owner)])
    return 1 if owner else 0


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
    `spare`, and None is given. Of several that were committed with their first statement, those are told to `spare`
    that want to go on; they have written nothing, and have no result.
    """
    runs = [Run(op, book, link) for op in ops]

    def commit() -> list[list[Row]]:
        return _commit(link, runs, spare)

    begin(link, owner, mark)
    for statement, values in ahead:
        link.send(statement, values)
    try:
        committed = _drive(link, runs, 2 + len(ahead), None if ahead else commit)
        if committed and spare is None and not runs[0].done:
            begin(link, owner, mark)
            runs[:] = [Run(ops[0], book, link, missed=runs[0].missed)]
            committed = _drive(link, runs, 2)
    except psycopg.errors.LockNotAvailable as error:
        raise Crossed([each for run in runs for each in run.ahead]) from error
    refused = [number for number, run in enumerate(runs) if run.error is not None or not run.done]
    if refused:
        link.rollback()
        if spare is None:
            raise runs[refused[0]].error or AssertionError
        for number in refused:
            spare(number)
        if not committed:
            return None
    if not committed:
        commit()
    return [run.result for run in runs]


def _commit(link: Link, runs: Sequence[Run[Any]], spare: Callable[[int], None] | None) -> list[list[Row]]:
    """Commit, and give the rows of what was sent before it and not waited for."""
    link.send(COMMIT, [])
    try:
        return link.receive(end=True)
    except Lost as lost:
        raise Unsettled(runs, spare) from lost
    except psycopg.Error as error:
        if error.sqlstate in GONE:  # a pooler may say so after the server has committed
            raise Unsettled(runs, spare) from error
        raise


def recall(link: Link, runs: Sequence[Run[Any]], owner: str, transaction: str) -> bool:
    """Give operations whose commit was found their results, by what it wrote; False where that is not there any more.

    A transaction is known by what the server keeps beside each row. An operation of which there is no trace has met
    nothing, and is left without a result: it may be run again.
    """
    place = _begin_reading(link, owner)
    for run in runs:
        assert run.ends is not None
        assert run.ends.recall is not None
        assert run.ends.traces is not None
        link.send(run.ends.recall, run.ends.recall.values({**run.params, "transaction": transaction}))
        link.send(run.ends.traces, run.ends.traces.values(run.params))
    link.send(COMMIT, [])
    found = link.receive(end=True)[place:]
    for run, rows, traces in zip(runs, found[::2], found[1::2], strict=False):
        if not run.end(rows) if rows else traces:
            return False
    return True


def begin(link: Link, owner: str, mark: Mark) -> None:
    """Begin a transaction that writes, for an owner; its mark is one that no other transaction has."""
    link.send(BEGIN, [])
    mark.token, mark.at = link.next_mark(mark.at)
    token, at = written(mark.token), written(mark.at)
    if owner:
        link.send(MARK_AS, [token, at, written(owner)])
    else:
        link.send(MARK, [token, at])


def _drive(
    link: Link, runs: Sequence[Run[Any]], sent: int, commit: Callable[[], list[list[Row]]] | None = None
) -> bool:
    """Take every run a stretch further, wait once for all of them, and again, until all are at their end.

    Where each begins with what it mostly ends with, it is committed along with that: True, and what is not at its end
    then wants to go on.
    """
    found: list[list[Row]] | None = None
    while True:
        waiting = False
        before, place = found, sent
        for run in runs:
            if not run.done:
                place = run.go(None if before is None else before[run.place], place)
                waiting = waiting or not run.done
        if not waiting:
            return False
        if commit is not None and found is None and all(run.ends is not None for run in runs):
            found = commit()
            for run in runs:
                run.end(found[run.place])
            return True
        found = link.receive()
        sent = 0
