"""Search on PostgreSQL: tsquery expressions, the choice of a plan, and the flag of sessions with unindexed messages.

Only folded tokens of letters and digits, in quotes, reach a tsquery, so typed text cannot be a syntax error in it. A
lexeme that begins with = is a tag or a pair of words. The word index returns all matches before the newest can be
selected, so the plan depends on an estimate of the costs from a sample.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from recollect.model import json
from recollect.storage.operation import (
    Operation,
    Plan,
    Query,
    Scope,
    Steps,
    execute,
    execute_many,
    fetch_all,
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
from recollect.storage.search.query import AllOf, AnyOf, Node, Phrase, Tag, all_phrases

_MAX_TOKEN_LENGTH, _TOKEN_PREFIX_LENGTH = 200, 160  # characters, as recollect.search_token() cuts them
_MAX_QUERY_BYTES = 500_000  # bytes. The server accepts 1 MB.
_MATCHES_NOTHING = "'='"

_INDEXED_COST, _PAGE_COST = 1.2, 4
"""Costs of reading a message through the word index, and of fetching its page. The unit is one message passed over."""

_RANGE_COST = 0.1
"""Cost of one index entry in a bitmap. The unit is one message passed over."""

_NEWEST_MARGIN, _MAX_NEWEST_SHARE, _MIN_SAMPLE_HITS = 2, 0.7, 5
"""Safety factor of the estimate, maximum share of all messages, and minimum hits in the sample to use it."""

_SAMPLE_SIZE = 200
"""Messages of the sample that estimates how many match."""

_NEWEST_ATTEMPTS, _NEWEST_GROWTH = 2, 1.2
"""Attempts to find a pool among the newest messages, and the growth factor of the second one."""

_FEW_MESSAGES = 2_000
"""Messages. Below this number, looking up their sessions one by one is faster than reading all sessions."""

_SHORT_SESSION = 3_000
"""Messages. A shorter session is scanned faster than the index of all sessions."""

_SETTLE_THRESHOLD, _SETTLE_BATCH = 50, 500
"""Number of waiting sessions at which a search clears the flag of indexed ones, and sessions per transaction."""


class WaitingBacklogRow(NamedTuple):
    """A branch that is not indexed; or, in the first row, the number of waiting sessions, the mark and titles."""

    branch: int | None
    session: int | None
    last: int | None
    mark: str | None
    titles: bool | None
    waiting_sessions: int | None


class WaitingSessionRow(NamedTuple):
    """The key of a session with the waiting flag."""

    session: int


class DensityRow(NamedTuple):
    """A sample of messages: how many match, and the size of the index.

    Of `sample_size` messages, `hits` match and `candidates` have the words in any order. `own_total` messages of the
    owner are among `total` of all owners, on `pages` pages.
    """

    hits: int
    candidates: int
    sample_size: int
    own_total: float
    total: float
    pages: int


class NewestStartRow(NamedTuple):
    """The first branch key of the tree at which the newest messages begin."""

    low_branch: int


class DerivedStateRow(NamedTuple):
    """Whether columns of a session differ from the rows that they are derived from."""

    relatives_differ: bool
    is_skipped: bool


BACKLOG = Query("search_backlog", WaitingBacklogRow)
WAITING_SESSIONS = Query("search_waiting_sessions", WaitingSessionRow)
DENSITY = Query("search_density", DensityRow)
NEWEST_START = Query("search_newest_start", NewestStartRow)
ALL_MATCHES = Query("search_messages", MatchRow)
RARE_MATCHES = Query("search_rare", MatchRow)
NEWEST_MATCHES = Query("search_newest", MatchRow)
DERIVED_STATE = Query("session_derived_state", DerivedStateRow)


class TsqueryCompiler:
    """Builds a tsquery, and collects the weights of its phrases. With `loose`, the positions of words do not matter."""

    def __init__(self, condition: Condition, *, loose: bool = False) -> None:
        self._weights: list[tuple[str, float]] = []
        self._word_weights = condition.word_weights
        self._forms = condition.forms
        self._loose = loose

    def compile(self, node: Node, factor: float = 1.0) -> str:
        """Return the tsquery of a node; excluded phrases have no weight."""
        if isinstance(node, Phrase):
            return self._compile_phrase(node, factor)
        if isinstance(node, Tag):
            return _compile_tag(node.name)
        if isinstance(node, AnyOf):
            return _join_or([self.compile(item, factor) for item in node.any_of])
        return self._compile_all_of(node, factor)

    def _compile_all_of(self, node: AllOf, factor: float) -> str:
        text = _join_and([self.compile(item, factor) for item in node.all_of] or [_compile_tag(ALL_TAG)])
        # Excluded words are matched exactly, also in a wider search. A phrase without positions would exclude too much.
        forms, self._forms = self._forms, None
        none_of = [self.compile(item, 0.0) for item in node.none_of if not self._loose or _has_no_phrase(item)]
        self._forms = forms
        return f"({text} & !{_join_or(none_of)})" if none_of else text

    def _compile_phrase(self, node: Phrase, factor: float) -> str:
        first, rest = node.tokens[0], node.tokens[1:]
        words: Sequence[str] = ()
        if self._forms is not None and not node.quoted:
            words = self._forms.get((first, bool(rest)), ())
        prefix = node.prefix or (self._forms is not None and node.allows_prefix)
        alternatives = [words or (first,), *((token,) for token in rest)]
        if self._loose:
            return _phrase(alternatives, prefix=prefix, by=" & ")
        phrase = _phrase(alternatives, prefix=prefix)
        if factor:
            self._weights.append((phrase, factor * sum([self._word_weights.get(token, 1.0) for token in node.tokens])))
        return f"({phrase} | {_phrase_pairs(alternatives, prefix=prefix)})" if rest else phrase

    def encoded_weights(self) -> str:
        """Return the phrases with their weights as JSON; none if they are too long for the server."""
        fitting = [] if sum(len(text) for text, _ in self._weights) > _MAX_QUERY_BYTES else self._weights
        return json.encode(fitting)


def limit_size(text: str) -> str:
    """Return a tsquery, or one that matches nothing if it exceeds the limit of the server."""
    return text if len(text.encode()) <= _MAX_QUERY_BYTES else _MATCHES_NOTHING


def _has_no_phrase(node: Node) -> bool:
    """Return whether a node has only single words and tags."""
    return all(len(words.tokens) == 1 for words in all_phrases(node))


def _compile_tag(name: str) -> str:
    return f"'={_shorten_token(name)}'"


def _join_or(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else "(" + " | ".join(texts) + ")"


def _join_and(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else "(" + " & ".join(texts) + ")"


def _phrase(alternatives: Sequence[Sequence[str]], *, prefix: bool, by: str = " <-> ") -> str:
    """Return a phrase with alternatives for each position; with `prefix`, the last word may be longer."""
    last = len(alternatives) - 1
    texts = [
        _join_or([_lexeme(word, prefix=prefix and place == last) for word in words])
        for place, words in enumerate(alternatives)
    ]
    return texts[0] if last == 0 else "(" + by.join(texts) + ")"


def _phrase_pairs(alternatives: Sequence[Sequence[str]], *, prefix: bool) -> str:
    """Return the same phrase for long texts, whose index has pairs of words instead of positions."""
    last = len(alternatives) - 1
    return _join_and([
        _join_or([
            _lexeme(second, before=f"=+{_shorten_token(first)} ", prefix=prefix and place + 1 == last)
            for first in alternatives[place]
            for second in alternatives[place + 1]
        ])
        for place in range(last)
    ])  # fmt: skip


def _lexeme(token: str, *, before: str = "", prefix: bool) -> str:
    return f"'{before}{token[:_TOKEN_PREFIX_LENGTH]}':*" if prefix else f"'{before}{_shorten_token(token)}'"


def _shorten_token(token: str) -> str:
    if len(token) <= _MAX_TOKEN_LENGTH:
        return token
    return token[:_TOKEN_PREFIX_LENGTH] + hashlib.md5(token.encode(), usedforsecurity=False).hexdigest()


def is_walk_cheaper(density: DensityRow, *, pool: int) -> bool:
    """Return whether walking back from the newest message is cheaper than reading all matches of the word index.

    Rare matches are on separate pages, frequent ones share them.
    """
    walk_cost, index_cost = _estimate_costs(density, pool)
    return walk_cost <= index_cost


def newest_count(density: DensityRow, *, pool: int) -> int | None:
    """Return how many of the newest messages contain enough hits, if reading these through the index is cheapest."""
    hits, candidates, sample_size, own_total, total, _ = density
    share = _NEWEST_MARGIN * pool * sample_size / (hits * own_total) if hits >= _MIN_SAMPLE_HITS and own_total else 1.0
    if share > _MAX_NEWEST_SHARE:
        return None
    walk_cost, index_cost = _estimate_costs(density, pool)
    cost = share * (index_cost + _RANGE_COST * total) + _RANGE_COST * own_total * candidates / sample_size
    return math.ceil(share * own_total) if cost < min(walk_cost, index_cost) else None


def _estimate_costs(density: DensityRow, pool: int) -> tuple[float, float]:
    """Return the costs of walking back and of reading all index matches, in messages passed over."""
    hits, candidates, sample_size, own_total, total, pages = density
    if not own_total:  # so few that none was in the sample
        return 1.0, 0.0
    share = min(1.0, pool * sample_size / (hits * own_total)) if hits else 1.0
    candidate_share = candidates / sample_size
    page_count = pages * own_total / total * (1 - (1 - candidate_share) ** (total / max(pages, 1)))
    return share * total, _INDEXED_COST * own_total * candidate_share + _PAGE_COST * page_count


class TsqueryMessageFinder:
    """A search that reads all matches, those among the newest messages, or all messages, by the lowest cost."""

    def __init__(self, search: MessageSearch, expression: Expression) -> None:
        self._search = search
        self._params = {**search.filters, "expression": expression.text, "weights": expression.weights}
        self._dense: bool | None = None
        """Whether walking back from the newest message is cheaper than reading all matches; None: not estimated yet."""
        self._newest: int | None = None
        """How many of the newest messages contain a pool, if reading these is cheapest."""

    def find_pool(self, bounds: PoolBounds) -> Steps[list[Match]]:
        """Return the newest matches within bounds."""
        if self._dense is None:
            yield from self._estimate()
        search = self._search
        if bounds.below is None and bounds.low == (0, 0) and bounds.limit == search.pool_size:
            matches = yield from self._find_among_newest(bounds)
            if matches is not None:
                return matches
        query = NEWEST_MATCHES if self._dense else RARE_MATCHES if search.max_matches < _FEW_MESSAGES else ALL_MATCHES
        return (yield from fetch_tuples(query, **bounds.params(), **self._params))

    def _estimate(self) -> Steps[None]:
        """Decide from a sample whether so many messages match that walking back from the newest is cheaper."""
        search = self._search
        self._dense = search.session_length is not None and search.session_length <= _SHORT_SESSION
        if self._dense or not search.may_be_frequent:
            return
        loose = limit_size(TsqueryCompiler(search.condition, loose=True).compile(search.condition.node))
        density = yield from fetch_one(
            DENSITY, expression=self._params["expression"], loose_expression=loose, sample=_SAMPLE_SIZE
        )
        if density is not None and density.sample_size >= _SAMPLE_SIZE:
            self._dense = is_walk_cheaper(density, pool=search.pool_size)
            self._newest = newest_count(density, pool=search.pool_size) if search.session_length is None else None

    def _find_among_newest(self, bounds: PoolBounds) -> Steps[list[Match] | None]:
        """Return a full pool of matches among the newest messages; None if these have fewer."""
        count = self._newest
        for _ in range(_NEWEST_ATTEMPTS):
            if count is None:
                return None
            start = yield from fetch_one(NEWEST_START, owner=self._params["owner"], min_messages=count)
            if start is None:
                return None
            newest = bounds._replace(low=(start.low_branch, 0))
            matches = yield from fetch_tuples(ALL_MATCHES, **newest.params(), **self._params)
            if len(matches) == bounds.limit:  # the pool is full, so it contains all newer matches
                return matches
            count = math.ceil(_NEWEST_GROWTH * count * bounds.limit / len(matches)) if matches else None
        return None


class PostgresSearch:
    """Search with tsvector."""

    def compile(self, condition: Condition, *, titles: bool = False) -> Expression:  # noqa: ARG002  the same for both
        """Return a condition as a tsquery, with its phrases and their weights as JSON."""
        compiler = TsqueryCompiler(condition)
        text = limit_size(compiler.compile(condition.node))
        return Expression(text, compiler.encoded_weights())

    def message_finder(self, search: MessageSearch) -> MessageFinder:
        """Return a compiled search for messages."""
        return TsqueryMessageFinder(search, self.compile(search.condition))

    def read_backlog(self, scope: Scope) -> Steps[IndexBacklog]:
        """Return what is not indexed, and how many sessions wait."""
        rows = yield from fetch_tuples(BACKLOG, owner=scope.owner, max_sessions=_SETTLE_THRESHOLD)
        (_, _, _, mark, titles, waiting_sessions), *rows = rows
        branches = [UnindexedBranch(branch, session, last) for branch, session, last, _, _, _ in rows]
        return IndexBacklog(mark, branches, titles, waiting_sessions)

    def finish_indexing(self, scope: Scope, backlog: IndexBacklog) -> Plan[None]:
        """Clear the waiting flag of sessions that are completely indexed, if many sessions have it."""
        if backlog.waiting_sessions >= _SETTLE_THRESHOLD:
            after: int | None = 0
            while after is not None:
                after = yield Operation(_clear_waiting_flags, scope, after)

    def remove_entries(
        self,
        span: IndexSpan,  # noqa: ARG002  for other engines
        remove: Callable[[], Steps[set[str]]],
    ) -> Steps[set[str] | None]:
        """Remove the entries of a span: a removed row is gone with its transaction."""
        return remove()

    def delete_documents(self, branch: int, documents: Sequence[tuple[int, IndexDocument]]) -> Steps[None]:
        """Delete entries."""
        return execute_many("search_delete", [(branch, position) for position, _ in documents])

    def clear_titles(self) -> Steps[None]:
        """Delete all entries of the title index."""
        return execute("search_clear_titles")

    def verify_index(self) -> Plan[None]:
        """Do nothing: the server checks its own files."""
        yield from ()

    def check_session(self, session: int, *, repair: bool) -> Steps[list[Discrepancy]]:
        """Compare the relatives and the waiting flag of a session with its delegates, parent and branches."""
        state = yield from fetch_one(DERIVED_STATE, session=session)
        discrepancies: list[Discrepancy] = []
        if state is not None and state.relatives_differ:
            if repair:
                yield from execute("session_set_relatives", session=session)
            problem = "stores a wrong parent id or a wrong number of sub-agents"
            discrepancies.append(Discrepancy("counter", problem))
        if state is not None and state.is_skipped:
            if repair:
                yield from execute("session_set_waiting", session=session)
            discrepancies.append(Discrepancy("search", "has messages that search would never index"))
        return discrepancies


def _clear_waiting_flags(scope: Scope, after: int) -> Steps[int | None]:
    """Clear the waiting flag of a page of indexed sessions; return the key to continue after.

    Sessions are locked before their positions are read, and skipped if another transaction writes to them: every
    append and every removal from the index writes to the session row in the same transaction.
    """
    rows = yield from fetch_all(WAITING_SESSIONS, owner=scope.owner, after=after, limit=_SETTLE_BATCH)
    if rows:
        yield from execute("search_clear_waiting", keys=json.encode([row.session for row in rows]))
    return rows[-1].session if len(rows) == _SETTLE_BATCH else None
