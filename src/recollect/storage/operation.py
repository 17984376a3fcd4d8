"""Operations: generators that yield named SQL statements and receive rows.

An operation is written once and knows no engine. An engine runs it in one transaction, and may run it again from the
start (for example after a full disk rolled back a batch), so the time, new ids and everything else that varies are
arguments. The columns that a query returns are declared once, as the fields of a row class, with the query's name:

    class BranchRow(NamedTuple):
        key: int
        number: int

    BRANCH_GET = Query("branch_get", BranchRow)

    row = yield from fetch_one(BRANCH_GET, branch=key)  # a BranchRow, or None
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from recollect.storage.fast_paths import FastPath
    from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")
R = TypeVar("R", bound=tuple[Any, ...])
Row = tuple[Any, ...]
Params = Mapping[str, Any]


Statement = tuple[str, Params | Sequence[Row], bool]
"""A query name, its parameters and False; or, for many rows, a tuple per row in parameter order and True."""

Steps = Generator[Statement, list[Row], T]


class Deletion(enum.Enum):
    """What an operation deletes."""

    NOTHING = 0
    ROWS = 1
    """Rows, to free space. An engine may give it space that it reserves for a full disk."""
    CONTENT = 2
    """Rows, and their content must not stay readable in any file of the engine when run() returns."""


class Operation(Generic[T]):
    """One operation, ready to run: its generator function and arguments, and what an engine must know of it.

    - `writes`: False if it only reads.
    - `session`: the id of the session whose rows it is confined to, besides shared blobs. Such operations of different
      sessions can share a transaction. None if it may touch others.
    - `latest`: True if it only reads and must see the latest commits of all processes, so that a copy of the database
      which may lag behind cannot answer it.
    - `deletion`: what it deletes.
    - `removes_from_index`: a damaged search index must not stop it. The store then clears the index and runs it again.
    - `fast` and `finish`: a request for a fast path (storage/fast_paths.py), and the function that makes the result of
      the operation from it and the answer. It returns None to run the steps instead.
    """

    __slots__ = (
        "args", "deletion", "fast", "finish", "latest", "removes_from_index", "session", "steps", "writes",
    )  # fmt: skip

    def __init__(
        self,
        steps: Callable[..., Steps[T]],
        *args: Any,
        writes: bool = True,
        session: str | None = None,
        fast: FastPath[Any] | None = None,
        finish: Callable[[Any, Any], T | None] | None = None,
        deletion: Deletion = Deletion.NOTHING,
        removes_from_index: bool = False,
        latest: bool = False,
    ) -> None:
        self.steps = steps
        self.args = args
        self.writes = writes
        self.session = session
        self.fast = fast
        self.finish = finish
        self.deletion = deletion
        self.removes_from_index = removes_from_index
        self.latest = latest

    def start(self) -> Steps[T]:
        """Return a new generator."""
        return self.steps(*self.args)


class Scope(msgspec.Struct, frozen=True, gc=False):
    """The context of an operation: the owner, the holder of its turns and presences, and the time in milliseconds."""

    owner: str
    holder: str
    now: int
    is_gone: Callable[[str], bool]
    """Return whether a holder is a process of this machine that no longer runs."""
    search_dialect: Callable[[], SearchDialect]
    """Return the search of the engine. Its modules are imported on the first call."""


class Query(Generic[R]):
    """A query by its name, and the class of its rows: a NamedTuple whose fields are the columns, in order.

    A test prepares every query on every engine and compares the names of its columns with the fields.
    """

    __slots__ = ("make_row", "name", "row_class")

    def __init__(self, name: str, row_class: type[R]) -> None:
        self.name = name
        self.row_class = row_class
        self.make_row: Callable[[Row], R] = row_class._make  # type: ignore[attr-defined]  # row_class is a NamedTuple


def fetch_all(query: Query[R], **params: Any) -> Steps[list[R]]:
    """Run a query and return its rows."""
    rows = yield query.name, params, False
    return list(map(query.make_row, rows))


def fetch_one(query: Query[R], **params: Any) -> Steps[R | None]:
    """Run a query and return its first row, or None."""
    rows = yield query.name, params, False
    return query.make_row(rows[0]) if rows else None


def fetch_tuples(query: Query[Any], **params: Any) -> Steps[list[Row]]:
    """Run a query and return its rows as plain tuples, for a loop over many rows that unpacks them by name.

    A row class costs about 0.2 microseconds per row.
    """
    return (yield query.name, params, False)


def execute(name: str, **params: Any) -> Steps[None]:
    """Run a statement and ignore its rows."""
    yield name, params, False


def execute_many(name: str, rows: Sequence[Row]) -> Steps[None]:
    """Run a statement for many rows, each a tuple in the order of the query's parameters."""
    if rows:
        yield name, rows, True


Plan = Generator[Operation[Any], Any, T]
"""Several operations, for work that is too large for one transaction: it yields operations and receives results."""
