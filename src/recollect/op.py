"""What an operation is: a generator that yields named statements and is sent rows.

An operation is written once and knows no engine. An engine runs it in one transaction, and may run it again from
the start (a batch that a full disk rolled back), so time, ids and everything else that varies are its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
Row = tuple[Any, ...]
Params = Mapping[str, Any]


Statement = tuple[str, Params | Sequence[Row], bool]
"""A named query with its parameters by name; or, for many rows (True), a tuple for each in the query's own order."""

Steps = Generator[Statement, list[Row], T]


class Op(Generic[T]):
    """One operation, ready to run: what to do, on what, and whether it writes.

    Its arguments begin with the scope and, where it is about one session, that session's id.
    """

    __slots__ = ("args", "frees", "scrubs", "steps", "unindexes", "writes")

    def __init__(
        self,
        steps: Callable[..., Steps[T]],
        *args: Any,
        writes: bool = True,
        scrubs: bool = False,
        unindexes: bool = False,
        frees: bool = False,
    ) -> None:
        self.steps = steps
        self.args = args
        self.writes = writes
        self.unindexes = unindexes  # it takes words out of the search index, which must not fail it if it is damaged
        self.frees = frees  # it deletes, and may have the room that is kept back for that where the disk is full
        self.scrubs = scrubs  # what it deletes must not stay readable in the log either

    def start(self) -> Steps[T]:
        """Begin a fresh run."""
        return self.steps(*self.args)


class Scope(msgspec.Struct, frozen=True, gc=False):
    """Who asks, and when: the owner of the data, the process that holds what is opened, and the time."""

    owner: str
    holder: str
    now: int
    gone: Callable[[str], bool]
    """Whether a holder was a process of this machine that is gone."""


def rows(name: str, **params: Any) -> Steps[list[Row]]:
    """Run a statement and give its rows."""
    return (yield name, params, False)


def one(name: str, **params: Any) -> Steps[Row | None]:
    """Run a statement and give its first row, if it has one."""
    found = yield name, params, False
    return found[0] if found else None


def do(name: str, **params: Any) -> Steps[None]:
    """Run a statement for its effect."""
    yield name, params, False


def each(name: str, rows: Sequence[Row]) -> Steps[None]:
    """Run a statement for many rows, each a tuple in the order of the query's parameters."""
    if rows:
        yield name, rows, True


Plan = Generator[Op[Any], Any, T]
"""Several operations in a row, for what is too large for one transaction: it yields operations and is sent results."""
