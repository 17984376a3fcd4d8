"""The server as both engines use it: a pool of connections, an operation in a transaction, and trying again."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
import psycopg_pool

from recollect.engine.postgres import transaction
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.book import Book, Statement
from recollect.engine.postgres.failure import (
    AGAIN,
    FRESH,
    GONE,
    connection_reason,
    crowded,
    locked,
    meaning,
    unavailable,
)
from recollect.engine.postgres.link import BEGIN, COMMIT, Connection, Link, Lost, fresh_token
from recollect.engine.postgres.migration import ready
from recollect.engine.postgres.near import Near, Pool
from recollect.engine.postgres.replica import Replica
from recollect.engine.postgres.transaction import Ahead, Crossed, Mark, Unsettled
from recollect.errors import Corrupted, RecollectError, StoreClosed, StoreUnavailable
from recollect.op import Op

T = TypeVar("T")

_TRIES = 12
_STEP = 0.005
_LONGEST_STEP = 1.0
_DOUBT = "the last change may have been stored or not"
_KEPT = 3_600_000  # milliseconds that a commit is remembered, far longer than anyone tries again
_SWEEP = 2_000
_SWEPT = 60_000  # milliseconds between two sweeps of a process: each reads all that is kept
_FIRST = 2.0  # seconds that opening a store waits for its first connection
_RECONNECT = 1.0  # seconds; left to itself, the pool waits twice as long each time, and a failover takes twice as long
_FENCE = Statement(
    "commit_fence",
    "INSERT INTO recollect.commits (token, at, fence) VALUES (:token, :at, true) "
    "ON CONFLICT (token) DO UPDATE SET fence = true WHERE commits.at <> excluded.at",
)
_LOOK = Statement("commit_look", "SELECT fence, xmin::text FROM recollect.commits WHERE token = :token")
_AFTER = Statement("commit_after", "INSERT INTO recollect.commits (token, at, fence) VALUES (:token, :at, true)")
_FORGET = Statement("commits_forget", "DELETE FROM recollect.commits WHERE at < :before")


class Server:
    """Runs operations, each in a transaction on a connection of the pool. After fork() each process has its own."""

    def __init__(self, url: str, owner: str, timeout: float, *, trusted: bool = False) -> None:
        self.address = Address(url)
        self.owner = owner
        self.timeout = timeout
        self._book = Book()
        self._closed = self._forked = self._away = False
        self._swept = 0
        self._commits = random.randrange(_SWEEP)  # noqa: S311  processes that start together do not sweep together
        ready(self.address, "" if trusted else owner, timeout)  # what is said of an owner here is about its role
        self._near = Near(self._make_pool())
        self._replica = Replica(lambda: self._make_pool(self.address.replica)) if self.address.replica else None
        _servers.add(self)

    @property
    def path(self) -> str:
        """Where the data is, without the password."""
        return self.address.shown

    def _make_pool(self, conninfo: str | None = None) -> Pool:
        """Open a pool: that of the server with its first connection, that of a replica with none yet."""
        pool = self._new_pool(conninfo or self.address.conninfo)
        if conninfo is None:
            try:  # who asks for the first before it is there would have the pool open a second
                pool.wait(_FIRST)
            except psycopg_pool.PoolTimeout:  # which closes it; the server was there a moment ago, and may come back
                return self._new_pool(self.address.conninfo)
        return pool

    def _new_pool(self, conninfo: str) -> Pool:
        pool = psycopg_pool.ConnectionPool(
            conninfo,
            connection_class=Connection,
            kwargs={"autocommit": True},
            configure=self._configure,
            min_size=1,
            max_size=self.address.pool_size,
            timeout=self.timeout,
            reconnect_timeout=_RECONNECT,
            open=False,
        )
        pool.open()
        return pool

    def _configure(self, connection: Connection) -> None:
        connection.link = Link(connection, prepares=self.address.prepares, timeout=self.timeout)

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads: on a replica, where there is one that has what was written here."""
        if self._replica is not None and not self._closed:
            self.after_fork()
            found = self._replica.read(
                lambda link: transaction.read(link, self._book, op, self.owner),
                lambda work: self._tried(lambda link, *_: work(link)),
            )
            if found is not None:
                return found[0]
        return self._tried(lambda link, *_: transaction.read(link, self._book, op, self.owner))

    def write(self, op: Op[T]) -> T:
        """Run an operation that writes; it is on disk when this returns, once."""
        return self._changed(lambda link, mark, ahead: self._written(link, [op], mark, ahead, None))[0]

    def write_together(self, ops: Sequence[Op[Any]], spare: Callable[[int], None]) -> list[Any] | None:
        """Run operations side by side in one transaction; None where nothing was written because one refused.

        Where there are results, those that `spare` was told of have none, and have written nothing.
        """
        return self._changed(lambda link, mark, ahead: self._written(link, ops, mark, ahead, spare))

    def _changed(self, work: Callable[[Link, Mark, Ahead], T]) -> T:
        """Do something that writes; from then on it is read, also where its error leaves open what was written."""
        try:
            return self._tried(work)
        finally:
            if self._replica is not None:
                self._replica.wrote()

    def _written(
        self, link: Link, ops: Sequence[Op[Any]], mark: Mark, ahead: Ahead, spare: Callable[[int], None] | None
    ) -> Any:
        results = transaction.write(link, self._book, ops, self.owner, mark, ahead, spare=spare)
        self._commits += 1
        if self._commits >= _SWEEP and mark.at - self._swept >= _SWEPT:
            self._commits, self._swept = 0, mark.at
            self._sweep(link, mark)
        return results

    def _sweep(self, link: Link, mark: Mark) -> None:
        """Forget commits that are long past. What was asked for is done: a failure here is left to the next time."""
        try:
            link.send(_FORGET, _FORGET.values({"before": mark.at - _KEPT}))
            link.receive(end=True)
        except (psycopg.Error, Lost):
            link.rollback()

    def _tried(self, work: Callable[[Link, Mark, Ahead], T]) -> T:
        """Do something on a connection; again where a lost connection or a conflict undid it. All of it is bounded."""
        until = time.monotonic() + self.timeout
        tries = 0
        ahead: Ahead = []
        while True:
            mark = Mark(0, time.time_ns() // 1_000_000)
            try:
                with self._connection(until) as link:
                    return work(link, mark, ahead)
            except Crossed as crossed:
                ahead = crossed.ahead
                if tries >= _TRIES:
                    raise locked(self.path, self.timeout) from crossed
            except Unsettled as unsettled:
                committed = self._settled(mark, until)
                results = None if committed is None else self._found_again(unsettled, committed, until)
                if results is not None:
                    return results  # type: ignore[return-value]
            except (Lost, psycopg.Error) as error:
                self._give_up(error, tries, until)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Corrupted(path=self.path, reason=f"what is stored can not be read ({error})") from error
            tries += 1
            _pause(tries)

    def _give_up(self, error: Lost | psycopg.Error, tries: int, until: float) -> None:
        """Raise what the caller is to see, unless another try may succeed."""
        late = time.monotonic() > until
        if isinstance(error, Lost):
            if late:
                raise unavailable(self.path, str(error) or "the connection was lost") from error
        elif late or (error.sqlstate not in GONE and (error.sqlstate not in AGAIN or tries >= _TRIES)):
            raise meaning(error, self.path, self.timeout) from error

    def _settled(self, mark: Mark, until: float) -> str | None:
        """Find out what became of a commit: its transaction, where it happened. If not, see to it that it never will.

        The connection's mark is made a fence here, unless it is that of the commit. A commit that is still under way is
        waited for by that; one that the server has not read yet will be refused. Another mark is written after it:
        only a transaction that writes waits for the replicas, and a server that was restarted shows commits that no
        replica has.
        """

        def look(link: Link) -> str | None:
            link.send(BEGIN, [])
            for statement in (_FENCE, _LOOK):
                link.send(statement, statement.values({"token": mark.token, "at": mark.at}))
            link.send(_AFTER, _AFTER.values({"token": fresh_token(), "at": mark.at}))
            link.send(COMMIT, [])
            ((fence, transaction),) = link.receive(end=True)[2]
            return None if fence else transaction

        return self._insisted(look, until)

    def _found_again(self, unsettled: Unsettled, committed: str, until: float) -> list[Any] | None:
        """Give the results of a commit that happened; None where it changes nothing to do it once more."""
        if unsettled.results is not None:
            return unsettled.results
        runs, spare = unsettled.runs, unsettled.spare
        if any(run.ends is None or run.ends.recall is None for run in runs):
            return None
        if not self._insisted(lambda link: transaction.recall(link, runs, self.owner, committed), until):
            raise unavailable(self.path, f"the answer to a change was lost, and others have changed it since; {_DOUBT}")
        missed = [number for number, run in enumerate(runs) if not run.done]
        if missed:
            if spare is None:
                return None
            for number in missed:
                spare(number)
        return [run.result for run in runs]

    def _insisted(self, work: Callable[[Link], T], until: float) -> T:
        """Do something about a commit whose end is not known, again and again until the time is up."""
        tries = 0
        while True:
            try:
                with self._connection(until) as link:
                    return work(link)
            except StoreUnavailable as error:
                raise unavailable(self.path, f"{error.fields['reason']}; {_DOUBT}") from error
            except (Lost, psycopg.OperationalError) as error:
                if time.monotonic() > until:
                    raise unavailable(self.path, f"{error}; {_DOUBT}") from error
                tries += 1
                _pause(tries)

    def _connection(self, until: float) -> _Taken:
        """Take a connection, and leave it fit for the next who takes it."""
        return _Taken(self._taken(until), self._leave)

    def _leave(self, connection: Connection, error: BaseException | None) -> None:
        link, fit = connection.link, False
        try:
            if error is None:
                self._away, fit = False, True
            elif isinstance(error, (psycopg.Error, Lost, Unsettled)):
                if isinstance(error, psycopg.Error) and error.sqlstate not in FRESH | GONE:
                    link.rollback()
                else:
                    self._away = True
                    link.abandon()
            elif isinstance(error, Exception):
                link.rollback()
            else:
                link.abandon()
        finally:
            self._near.give_back(connection, fit=fit)

    def _taken(self, until: float) -> Connection:
        if self._closed:
            raise StoreClosed
        self.after_fork()
        while True:
            left = max(until - time.monotonic(), _STEP)
            try:
                return self._near.take(min(left, _RECONNECT) if self._away else left)
            except psycopg_pool.PoolTimeout as error:
                if time.monotonic() >= until:
                    raise self._why_not() from error
            except psycopg_pool.PoolClosed as error:
                raise StoreClosed from error

    def _why_not(self) -> RecollectError:
        """Say why the pool had no connection: the server is not there, or all are in use."""
        try:
            psycopg.connect(self.address.conninfo, connect_timeout=2).close()
        except psycopg.Error as error:
            return unavailable(self.path, self.address.without_password(connection_reason(error)))
        return crowded(self.path, self.address.pool_size, self.timeout)

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections alone, whether the server is used here or not: ending one ends it there."""
        self._forked = True
        _left_to_parent.append(self._near)
        if self._replica is not None:
            _left_to_parent.extend(self._replica.forget())

    @property
    def forked(self) -> bool:
        """Whether this process was forked since the server was last used, and has no connections of its own."""
        return self._forked

    def after_fork(self) -> bool:
        """Say if this process was forked since the server was last used; then it gets connections of its own."""
        if not self._forked:
            return False
        with _renewing:
            if self._forked:
                self._near = Near(self._make_pool())
                self._forked = False
                return True
        return False

    def close(self) -> None:
        """Close every connection of this process."""
        self._closed = True
        if not self._forked:
            self._near.close()
            if self._replica is not None:
                self._replica.close()


class _Taken:
    """A connection that is taken for the time of a `with`."""

    __slots__ = ("_connection", "_leave")

    def __init__(self, connection: Connection, leave: Callable[[Connection, BaseException | None], None]) -> None:
        self._connection = connection
        self._leave = leave

    def __enter__(self) -> Link:
        return self._connection.link

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._leave(self._connection, error)


def _pause(tries: int) -> None:
    """Wait a little longer each time, and never as long as others that try again."""
    time.sleep(min(_STEP * 2**tries, _LONGEST_STEP) * (0.5 + random.random() / 2))  # noqa: S311


_servers: weakref.WeakSet[Server] = weakref.WeakSet()
_left_to_parent: list[Any] = []
_renewing = threading.Lock()


def _after_fork_in_child() -> None:
    global _renewing  # noqa: PLW0603  a thread that held it is not here
    _renewing = threading.Lock()
    for server in list(_servers):
        server.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
