"""The interface of an engine's search: how it compiles a query, finds messages and maintains its index.

Everything else about search is the same for all engines and is in the other modules of this package. The steps here are
parts of operations: they run in the transaction of the operation that calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from recollect.storage.operation import Plan, Scope, Steps
from recollect.storage.search.analysis import IndexDocument
from recollect.storage.search.query import Node

WordForms = Mapping[tuple[str, bool], Sequence[str]]
"""The words that contain a piece, or (True) that end with it."""


class Condition(NamedTuple):
    """The words and tags that a text must have, and the weights of the words. Others weigh 1."""

    node: Node
    word_weights: Mapping[str, float] = {}
    forms: WordForms | None = None
    """The longer words in which pieces are found, for a wider search. None: only whole words match."""


class Expression(NamedTuple):
    """A condition in the language of an engine, and the weights of its phrases as the ranking function reads them."""

    text: str
    weights: str


class MessageSearch(NamedTuple):
    """A search for messages: the condition, the filters as query parameters, and estimates for a choice of the plan."""

    condition: Condition
    filters: Mapping[str, Any]
    pool_size: int
    """The number of messages that are ranked together."""
    max_matches: float
    """An upper bound of the number of messages that match, or infinity."""
    may_be_frequent: bool
    """Whether so many messages may match that finding all of them is slow."""
    session_length: int | None
    """The number of positions of the session that is searched; None if all sessions are searched."""


class PoolBounds(NamedTuple):
    """The messages of a pool: the newest ones below `below` and not below `low`, each a branch and a position."""

    below: tuple[int, int] | None
    low: tuple[int, int]
    limit: int
    """The maximum number of messages; -1 means unlimited."""

    def params(self) -> dict[str, int | None]:
        """Return the bounds as query parameters."""
        below_branch, below_position = self.below or (None, None)
        low_branch, low_position = self.low
        return {
            "below_branch": below_branch, "below_position": below_position,
            "low_branch": low_branch, "low_position": low_position, "pool": self.limit,
        }  # fmt: skip


class MatchRow(NamedTuple):
    """A message that matches, and its rank; lower is better."""

    branch: int
    position: int
    rank: float | None


Match = tuple[int, int, float | None]
"""A MatchRow as a plain tuple: a pool has thousands of them."""


class MessageFinder(Protocol):
    """A compiled search for messages, which lasts for one transaction."""

    def find_pool(self, bounds: PoolBounds) -> Steps[list[Match]]:
        """Return the newest matches within bounds, in any order."""
        ...


class UnindexedBranch(NamedTuple):
    """A branch with messages that are not indexed, and the last of their positions."""

    branch: int
    session: int | None
    last: int


class IndexBacklog(NamedTuple):
    """The branches and titles that are not indexed, and the mark of the index at that time."""

    mark: str | None
    branches: list[UnindexedBranch]
    titles: bool
    waiting_sessions: int = 0
    """The number of sessions with the waiting flag, up to a limit, if the engine has this flag."""


class IndexSpan(NamedTuple):
    """The messages of a branch at the positions after `low`, up to `high`."""

    branch: int
    low: int
    high: int


class Discrepancy(NamedTuple):
    """A wrong value in a column that an engine derives from other rows: the kind of the finding, and what is wrong."""

    kind: str
    problem: str


class SearchDialect(Protocol):
    """The part of search that each engine implements in its own way. An object has no state."""

    def compile(self, condition: Condition, *, titles: bool = False) -> Expression:
        """Return a condition as an expression over the index of messages, or that of titles."""
        ...

    def message_finder(self, search: MessageSearch) -> MessageFinder:
        """Return a compiled search for messages."""
        ...

    def read_backlog(self, scope: Scope) -> Steps[IndexBacklog]:
        """Return what is not indexed."""
        ...

    def finish_indexing(self, scope: Scope, backlog: IndexBacklog) -> Plan[None]:
        """Record that a backlog is indexed, if that makes the next search faster. It may fail without consequences."""
        ...

    def remove_entries(self, span: IndexSpan, remove: Callable[[], Steps[set[str]]]) -> Steps[set[str] | None]:
        """Remove the entries of a span with `remove`, so that no word of them stays in the file, and return its result.

        Return None without removing anything if clearing the whole index costs less.
        """
        ...

    def delete_documents(self, branch: int, documents: Sequence[tuple[int, IndexDocument]]) -> Steps[None]:
        """Delete the entries of messages, each a position and the document that was indexed."""
        ...

    def clear_titles(self) -> Steps[None]:
        """Delete all entries of the title index, also of a damaged one."""
        ...

    def verify_index(self) -> Plan[None]:
        """Check the structure of the index; raise IndexDamaged if it is wrong."""
        ...

    def check_session(self, session: int, *, repair: bool) -> Steps[list[Discrepancy]]:
        """Compare the columns of a session that only this engine has with the rows that they are derived from."""
        ...
