"""Search on SQLite: FTS5 expressions, and the maintenance of the FTS5 tables.

Only folded tokens of letters and digits, in quotes, reach an expression, so typed text cannot be a syntax error in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.storage.operation import (
    Operation,
    Plan,
    Query,
    Scope,
    Steps,
    execute,
    execute_many,
    fetch_one,
    fetch_tuples,
)
from recollect.storage.search.analysis import ALL_TAG, IndexDocument
from recollect.storage.search.dialect import (
    Condition,
    Discrepancy,
    Expression,
    IndexBacklog,
    IndexSpan,
    Match,
    MatchRow,
    MessageFinder,
    MessageSearch,
    PoolBounds,
    UnindexedBranch,
)
from recollect.storage.search.query import AllOf, AnyOf, Node, Phrase, Tag

_TEXT_COLUMNS = "- tags : "
_TAGS_COLUMN = "tags : "
# Removing one message with secure deletion costs about as much as rewriting this many messages.
_REWRITE_FACTOR = 100
# Messages. A smaller index is cleared and rebuilt instead of rewritten.
_CLEAR_LIMIT = 1_000


class BacklogRow(NamedTuple):
    """A branch that is not indexed; or, in the first row, the mark of the index and whether titles are not indexed."""

    branch: int | None
    session: int | None
    last: int | None
    mark: str | None
    titles: int | None


class EntryCountRow(NamedTuple):
    """A number of indexed messages."""

    entries: int


MESSAGES = Query("search_messages", MatchRow)
BACKLOG = Query("search_backlog", BacklogRow)
SPAN_COUNT = Query("search_count_range", EntryCountRow)
TOTAL = Query("search_total", EntryCountRow)


class Fts5Compiler:
    """Builds an FTS5 expression, and collects the weights of its phrases in their order."""

    def __init__(self, condition: Condition, text_columns: str = _TEXT_COLUMNS) -> None:
        self.weights: list[float] = []
        self._word_weights = condition.word_weights
        self._forms = condition.forms
        self._text_columns = text_columns

    def compile(self, node: Node, factor: float = 1.0) -> str:
        """Return the expression of a node; excluded phrases and tags have weight 0."""
        if isinstance(node, Phrase):
            return self._compile_phrase(node, factor)
        if isinstance(node, Tag):
            return self._compile_tag(node.name)
        if isinstance(node, AnyOf):
            return "(" + " OR ".join([self.compile(item, factor) for item in node.any_of]) + ")"
        return self._compile_all_of(node, factor)

    def _compile_all_of(self, node: AllOf, factor: float) -> str:
        required = [self.compile(item, factor) for item in node.all_of] or [self._compile_tag(ALL_TAG)]
        text = " AND ".join(required)
        if not node.none_of:
            return f"({text})"
        # Excluded words are matched exactly, also in a wider search.
        forms, self._forms = self._forms, None
        none_of = " OR ".join([self.compile(item, 0.0) for item in node.none_of])
        self._forms = forms
        return f"(({text}) NOT ({none_of}))"

    def _compile_phrase(self, node: Phrase, factor: float) -> str:
        first, rest = node.tokens[0], node.tokens[1:]
        words = () if self._forms is None or node.quoted else self._forms.get((first, bool(rest)), ())
        phrases: Sequence[Sequence[str]] = [(word, *rest) for word in words] or [node.tokens]
        weight = factor * sum([self._word_weights.get(token, 1.0) for token in node.tokens])
        self.weights += [weight] * len(phrases)
        # A piece of code that ends inside a word: onnect_tim in connect_timeout.
        star = " *" if node.prefix or (self._forms is not None and node.allows_prefix) else ""
        texts = [f"{self._text_columns}{' + '.join(map(_quote, phrase))}{star}" for phrase in phrases]
        return texts[0] if len(texts) == 1 else "(" + " OR ".join(texts) + ")"

    def _compile_tag(self, name: str) -> str:
        self.weights.append(0.0)
        return _TAGS_COLUMN + _quote(name)


def _quote(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


class Fts5MessageFinder:
    """A search whose index returns the newest matches first, so one query serves every search."""

    def __init__(self, expression: Expression, filters: Mapping[str, Any]) -> None:
        self._params = {**filters, "expression": expression.text, "weights": expression.weights}

    def find_pool(self, bounds: PoolBounds) -> Steps[list[Match]]:
        """Return the newest matches within bounds."""
        return fetch_tuples(MESSAGES, **bounds.params(), **self._params)


class SqliteSearch:
    """Search with FTS5."""

    def compile(self, condition: Condition, *, titles: bool = False) -> Expression:
        """Return a condition as an FTS5 expression, with the weights of its phrases separated by commas."""
        compiler = Fts5Compiler(condition, "" if titles else _TEXT_COLUMNS)
        text = compiler.compile(condition.node)
        return Expression(text, ",".join([f"{weight:.4g}" for weight in compiler.weights]))

    def message_finder(self, search: MessageSearch) -> MessageFinder:
        """Return a compiled search for messages."""
        return Fts5MessageFinder(self.compile(search.condition), search.filters)

    def read_backlog(self, scope: Scope) -> Steps[IndexBacklog]:
        """Return what is not indexed."""
        (_, _, _, mark, titles), *rows = yield from fetch_tuples(BACKLOG, owner=scope.owner)
        branches = [UnindexedBranch(branch, session, last) for branch, session, last, _, _ in rows]
        return IndexBacklog(mark, branches, bool(titles))

    def finish_indexing(self, scope: Scope, backlog: IndexBacklog) -> Plan[None]:  # noqa: ARG002  for other engines
        """Do nothing: the next search finds from the branches alone that nothing is left to index."""
        yield from ()

    def remove_entries(self, span: IndexSpan, remove: Callable[[], Steps[set[str]]]) -> Steps[set[str] | None]:
        """Remove the entries of a span one by one with secure deletion, or many at once and rewrite the index."""
        span_count = yield from fetch_one(SPAN_COUNT, branch=span.branch, low=span.low, high=span.high)
        total = yield from fetch_one(TOTAL)
        assert span_count is not None
        assert total is not None
        rewrite = span_count.entries * _REWRITE_FACTOR > total.entries
        if rewrite and total.entries - span_count.entries <= _CLEAR_LIMIT:
            return None
        yield from execute("search_set_secure_delete", value=0 if rewrite else 1)
        words = yield from remove()
        if rewrite:
            yield from _rewrite_index()
        return words

    def delete_documents(self, branch: int, documents: Sequence[tuple[int, IndexDocument]]) -> Steps[None]:
        """Delete entries; FTS5 needs their text again."""
        return execute_many("search_delete", [(branch, position, *columns) for position, columns in documents])

    def clear_titles(self) -> Steps[None]:
        """Rebuild the title index and then delete its entries: deleting from a damaged index would fail."""
        yield from execute("search_rebuild_titles")
        yield from execute("search_clear_titles")

    def verify_index(self) -> Plan[None]:
        """Run FTS5's own check, which writes."""
        yield Operation(_verify_index)

    def check_session(self, session: int, *, repair: bool) -> Steps[list[Discrepancy]]:  # noqa: ARG002  see finish_indexing
        """Return nothing: this engine has no such columns."""
        yield from ()
        return []


def _rewrite_index() -> Steps[None]:
    """Rewrite the index without the removed entries.

    FTS5 may keep delete markers, with their words, if the whole index is on one level. A new entry is on another level,
    so the second optimize merges both and leaves no markers.
    """
    yield from execute("search_optimize")
    yield from execute("search_add_marker")
    yield from execute("search_optimize")
    yield from execute("search_set_secure_delete", value=1)
    yield from execute("search_remove_marker")


def _verify_index() -> Steps[None]:
    yield from execute("search_verify")
