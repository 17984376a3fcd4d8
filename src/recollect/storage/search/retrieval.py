"""Retrieval: titles first, then messages with the words as typed, then messages with the words inside other words.

If a query matches very many messages, they are ranked in pools of POOL_SIZE, newest pool first, so that a page takes as
long in a large store as in a small one. Later pages continue with the next pool. Costs are estimated from a sample;
the unit is one message that is read and skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recollect.errors import IndexDamaged, InvalidValue, SessionNotFound, format_value
from recollect.model import json, validation
from recollect.model.search import Hit
from recollect.storage import sessions
from recollect.storage.operation import Operation, Plan, Row, Scope, Steps, fetch_all, fetch_one
from recollect.storage.paths import LAST_POSITION, MAX_BRANCH_NUMBER
from recollect.storage.search import expressions, hits, index
from recollect.storage.search.expressions import Fts5Expression, fts5_condition, infix_pieces, rarity_weights
from recollect.storage.search.hits import Needle
from recollect.storage.search.query import NO_FILTERS, AllOf, AnyOf, Node, Phrase, Query, wanted_phrases

TITLES, EXACT, WIDE_TITLES, WIDE, END = range(5)
"""The stages of a search, in order: titles, messages, and both again with the words inside longer words."""

CandidatePosition = tuple[int, int]
TOP: CandidatePosition = (MAX_BRANCH_NUMBER, LAST_POSITION)
BOTTOM: CandidatePosition = (0, 0)
_MAX_POSITION = (1 << 62) - 1  # of a branch key or position in a cursor; engines take 64-bit integers


class SearchCursor(NamedTuple):
    """How far a search was read: the stage, the bounds of its candidates, and the last hit.

    The word counts determine the rank, so the next page ranks like the previous one although messages were appended
    meanwhile. New messages cannot displace candidates either.
    """

    stage: int = TITLES
    below: CandidatePosition = TOP
    low: CandidatePosition = BOTTOM
    score: float | None = None
    place: CandidatePosition = TOP
    counts: tuple[int, ...] | None = None

    def encode(self) -> str:
        """Return the cursor as text."""
        score = "" if self.score is None else repr(self.score)
        counts = "-".join(map(str, self.counts or ()))
        return "_".join((str(self.stage), *map(str, (*self.below, *self.low)), score, *map(str, self.place), counts))


def parse_cursor(text: str) -> SearchCursor:
    """Return the cursor of a text; raise InvalidValue if it is invalid."""
    try:
        stage, branch, position, low, low_position, score, at_branch, at_position, counts = text.split("_")
        cursor = SearchCursor(
            int(stage),
            (int(branch), int(position)),
            (int(low), int(low_position)),
            float(score) if score else None,
            (int(at_branch), int(at_position)),
            tuple(map(int, counts.split("-"))) if counts else None,
        )
    except (ValueError, AttributeError, TypeError):
        cursor = SearchCursor(END)
    places = (*cursor.below, *cursor.low, *cursor.place)
    if cursor.stage not in range(END) or not 0 <= min(places) <= max(places) <= _MAX_POSITION:
        raise InvalidValue(f"{format_value(text)} is not a cursor of a search. Use `next` of the previous page.")
    return cursor


_INDEXED_COST, _PAGE_COST = 1.2, 4
"""Costs of reading a message through the word index, and of fetching its page. The unit is one message passed over."""

_RANGE_COST = 0.1
"""Cost of one index entry in a bitmap. The unit is one message passed over."""

_NEWEST_MARGIN, _MAX_NEWEST_SHARE, _MIN_SAMPLE_HITS = 2, 0.7, 5
"""Safety factor of the estimate, maximum share of all messages, and minimum hits in the sample to use it."""


def is_walk_cheaper(
    hits: int, candidates: int, sample: int, own_total: float, total: float, pages: int, *, pool: int
) -> bool:
    """Return whether walking back from the newest message is cheaper than reading all matches of the word index.

    Of `sample` messages, `hits` match and `candidates` have the words in any order. `own_total` messages of the owner
    are among `total` of all owners, on `pages` pages. Rare matches are on separate pages, frequent ones share them.
    """
    walk_cost, index_cost = _estimate_costs(hits, candidates, sample, own_total, total, pages, pool)
    return walk_cost <= index_cost


def newest_count(
    hits: int, candidates: int, sample: int, own_total: float, total: float, pages: int, *, pool: int
) -> int | None:
    """Return how many of the newest messages contain enough hits, if reading these through the index is cheapest."""
    share = _NEWEST_MARGIN * pool * sample / (hits * own_total) if hits >= _MIN_SAMPLE_HITS and own_total else 1.0
    if share > _MAX_NEWEST_SHARE:
        return None
    walk_cost, index_cost = _estimate_costs(hits, candidates, sample, own_total, total, pages, pool)
    cost = share * (index_cost + _RANGE_COST * total) + _RANGE_COST * own_total * candidates / sample
    return math.ceil(share * own_total) if cost < min(walk_cost, index_cost) else None


def _estimate_costs(
    hits: int, candidates: int, sample: int, own_total: float, total: float, pages: int, pool: int
) -> tuple[float, float]:
    """Return the costs of walking back and of reading all index matches, in messages passed over."""
    if not own_total:  # so few that none was in the sample
        return 1.0, 0.0
    share = min(1.0, pool * sample / (hits * own_total)) if hits else 1.0
    candidate_share = candidates / sample
    page_count = pages * own_total / total * (1 - (1 - candidate_share) ** (total / max(pages, 1)))
    return share * total, _INDEXED_COST * own_total * candidate_share + _PAGE_COST * page_count


def max_matches(node: Node | None, counts: Mapping[str, float]) -> float:
    """Return an upper bound of the matches, from the number of messages with each word."""
    if node is None:
        return math.inf
    if isinstance(node, AnyOf):
        return sum([max_matches(each, counts) for each in node.any_of])
    if isinstance(node, AllOf):
        return min([max_matches(each, counts) for each in node.all_of], default=math.inf)
    full_tokens = node.tokens[:-1] if node.prefix else node.tokens
    return min([counts.get(token, math.inf) for token in full_tokens], default=math.inf)


POOL_SIZE = 2_000
"""Messages that are ranked together, newest first. It bounds the time of a page in a large store."""

_MAX_LIMIT = 1_000
"""Hits per page."""

_MAX_ATTEMPTS = 30
"""Attempts of a search whose index another process clears meanwhile."""

_MAX_WEIGHED, _MAX_COUNTED = 64, 2_000
"""Words of a query that are weighed by rarity, and the message count from which on a word is common."""

_MAX_WORD_FORMS = 48
"""Words in which a piece is searched."""

_SAMPLE_SIZE = 200
"""Messages of the sample that estimates how many match."""

_NEWEST_ATTEMPTS, _NEWEST_GROWTH = 2, 1.2
"""Attempts to find a pool among the newest messages, and the growth factor of the second one."""

_FEW_MESSAGES = 2_000
"""Messages. Below this number, looking up their sessions one by one is faster than reading all sessions."""

_SHORT_SESSION = 3_000
"""Messages. A shorter session is scanned faster than the index of all sessions."""


class HitPage(NamedTuple):
    """A page of hits, and the cursor of the next page."""

    hits: list[Hit]
    next: str | None
    warning: str | None = None
    """Why the index could not be updated, so that the latest messages are missing; otherwise None."""


class SearchRequest(NamedTuple):
    """A search: the query, and which sessions are searched."""

    query: Query
    deleted: bool
    delegates: bool
    typed: bool = False
    """Whether the session filter was typed: then a missing session is not an error."""


class _SearchedSession(NamedTuple):
    """The branch ranges of the session, if only one is searched."""

    session: sessions.StoredSession
    ranges: list[tuple[int, int, int]]

    def narrow(self, upper: CandidatePosition, lower: CandidatePosition) -> tuple[CandidatePosition, CandidatePosition]:
        """Return the bounds of the candidates, narrowed to those of this session."""
        if not self.ranges:
            return BOTTOM, BOTTOM
        last, first = max(self.ranges), min(self.ranges)
        return min(upper, (last[0], last[2] + 1)), max(lower, (first[0], first[1] + 1))

    @property
    def short(self) -> bool:
        """True if the session is short enough to scan."""
        return sum(high - low for _, low, high in self.ranges) <= _SHORT_SESSION


def search_pages(scope: Scope, request: SearchRequest, *, limit: int, after: str | None) -> Plan[HitPage]:
    """Update the index, if the store can be written, and search."""
    if type(limit) is not int or not 1 <= limit <= _MAX_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit must be between 1 and {_MAX_LIMIT:,}, got {format_value(limit)}.")
    cursor = SearchCursor() if after is None else parse_cursor(validation.check_plain_text("after", after))
    return _search(scope, request, limit, cursor)


def _search(scope: Scope, request: SearchRequest, limit: int, cursor: SearchCursor) -> Plan[HitPage]:
    rebuilt = False
    for last in (*[False] * _MAX_ATTEMPTS, True):
        try:
            backlog: index.IndexBacklog = yield index.read_backlog(scope)
            warning = yield from _update_index(scope, backlog)
            page: HitPage | None = yield Operation(
                _find_page, scope, request, limit, cursor, backlog.mark, last, writes=False
            )
        except IndexDamaged:  # everything in the index can be rebuilt from the messages
            if last or rebuilt:
                raise
            yield index.clear()
            rebuilt = True
        else:
            if page is not None:
                return page._replace(warning=warning)
    raise AssertionError  # the last attempt always returns


def _update_index(scope: Scope, backlog: index.IndexBacklog) -> Plan[str | None]:
    """Update the index; return the reason if the store cannot be written."""
    try:
        yield from index.index_backlog(scope, backlog)
    except index.WRITE_ERRORS as error:
        return str(error)
    return None


def _find_page(
    scope: Scope, request: SearchRequest, limit: int, cursor: SearchCursor, mark: str | None, last: bool
) -> Steps[HitPage | None]:
    """Return a page of hits; None if another process cleared the index since it was updated."""
    if not last and (yield from index.read_mark()) != mark:
        return None
    if request.query.words is None and request.query.filters == NO_FILTERS:
        return HitPage([], None)
    try:
        target = yield from _searched_session(scope, request)
    except SessionNotFound:
        if not request.typed:
            raise
        return HitPage([], None)
    finder = _Finder(scope, request, target, cursor.counts)
    if (
        target is not None
        and (yield from fetch_one("search_session_matches", session=target.session.session, **finder.params)) is None
    ):
        return HitPage([], None)
    entries: list[tuple[Hit, SearchCursor]] = []
    while len(entries) <= limit and cursor.stage < END:
        batch, cursor = yield from finder.read(cursor, limit + 1 - len(entries))
        entries += batch
    page_hits = [hit for hit, _ in entries[:limit]]
    return HitPage(page_hits, entries[limit - 1][1].encode() if len(entries) > limit else None)


def _searched_session(scope: Scope, request: SearchRequest) -> Steps[_SearchedSession | None]:
    name = request.query.filters.session
    if name is None:
        return None
    row = yield from (sessions.find_trashed_row if request.deleted else sessions.find_live_row)(scope, name)
    if row is None:
        raise SessionNotFound(session=name)
    current = sessions.stored_from_row(row)
    ranges = yield from fetch_all("search_ranges", session=current.session)
    return _SearchedSession(current, [(row[0], row[1], row[2]) for row in ranges])


class _Finder:
    """One search in one transaction."""

    def __init__(
        self, scope: Scope, request: SearchRequest, target: _SearchedSession | None, counts: tuple[int, ...] | None
    ) -> None:
        self.scope = scope
        self.words = request.query.words
        self.filters = request.query.filters
        self.target = target
        self.params = _filter_params(scope, request, target)
        self.counts = counts
        self.rarity: dict[str, float] | None = None
        self.max_matches = math.inf
        """An upper bound of the messages that contain the typed words."""
        self.dense: dict[bool, bool] = {}
        self.newest: dict[bool, int | None] = {}
        self.wider: dict[tuple[str, bool], list[str]] | None = None

    def read(self, cursor: SearchCursor, limit: int) -> Steps[tuple[list[tuple[Hit, SearchCursor]], SearchCursor]]:
        """Return hits of a stage, and the cursor to continue with."""
        wide = cursor.stage >= WIDE_TITLES
        if wide and not (yield from self._find_word_forms()):
            return [], SearchCursor(END)
        fresh = cursor.score is None
        pool = POOL_SIZE if fresh else -1
        titles = cursor.stage in (TITLES, WIDE_TITLES)
        rows = yield from (self._titles if titles else self._messages)(cursor, pool, wide=wide)
        low = cursor.low
        if fresh and len(rows) == POOL_SIZE:
            low = min((row[0], row[1]) for row in rows)
        entries = yield from self._hits(cursor._replace(low=low, counts=self.counts), rows, limit, wide=wide)
        if len(entries) >= limit:
            return entries, entries[-1][1]
        return entries, SearchCursor(cursor.stage, low, counts=self.counts) if low != BOTTOM else SearchCursor(
            cursor.stage + 1
        )

    def _messages(self, cursor: SearchCursor, pool: int, *, wide: bool) -> Steps[list[Row]]:
        terms: dict[str, Any] = {**(yield from self._expression(wide=wide))}
        if not wide and not self.max_matches:
            return []
        below, low = cursor.below, cursor.low
        if self.target is not None:
            below, low = self.target.narrow(below, low)
        upper = (None, None) if below == TOP else below
        dense = yield from self._is_dense(terms.pop("loose_tsquery"), terms["tsquery"], wide=wide)
        query = (
            "search_newest"
            if dense
            else "search_rare"
            if self.max_matches < _FEW_MESSAGES and not wide
            else "search_messages"
        )
        terms.update(self.params, below_branch=upper[0], below_position=upper[1], pool=pool)
        newest = self.newest.get(wide)
        attempts = _NEWEST_ATTEMPTS if (below, low, pool) == (TOP, BOTTOM, POOL_SIZE) else 0
        while newest is not None and attempts:
            row = yield from fetch_one("search_newest_start", owner=self.scope.owner, min_messages=newest)
            if row is None:
                break
            rows = yield from fetch_all("search_messages", low_branch=row[0], low_position=0, **terms)
            if len(rows) == pool:  # the pool is full, so it contains all newer matches
                return rows
            newest, attempts = math.ceil(_NEWEST_GROWTH * newest * pool / len(rows)) if rows else None, attempts - 1
        return (yield from fetch_all(query, low_branch=low[0], low_position=low[1], **terms))

    def _is_dense(self, loose_tsquery: str, tsquery: str, *, wide: bool) -> Steps[bool]:
        """Return whether so many messages match that walking back from the newest is faster than finding all matches.

        SQLite returns no sample: its index yields the newest matches first.
        """
        dense = self.dense.get(wide)
        if dense is None:
            dense = self.target is not None and self.target.short
            if not dense and (wide or all(count >= _MAX_COUNTED for count in self.counts or ())):
                row = yield from fetch_one(
                    "search_density", tsquery=tsquery, loose_tsquery=loose_tsquery, sample=_SAMPLE_SIZE
                )
                if row is not None and row[2] >= _SAMPLE_SIZE:
                    dense = is_walk_cheaper(*row, pool=POOL_SIZE)
                    self.newest[wide] = newest_count(*row, pool=POOL_SIZE) if self.target is None else None
            self.dense[wide] = dense
        return dense

    def _titles(self, cursor: SearchCursor, pool: int, *, wide: bool) -> Steps[list[Row]]:
        if self.words is None or not self._may_be_title():
            return []
        wider = self.wider if wide else None
        expression, tsquery = Fts5Expression({}, wider, column=""), expressions.TsqueryExpression({}, wider)
        match, condition = expression.of(self.words), tsquery.of(self.words)
        if wide:
            match = f"({match}) NOT ({Fts5Expression({}, column='').of(self.words)})"
            condition = expressions.exclude(condition, [expressions.TsqueryExpression({}).of(self.words)])
        below = None if cursor.below == TOP else cursor.below[1]
        return (
            yield from fetch_all(
                "search_titles_match", match=match, weights=expression.encoded_weights(),
                tsquery=expressions.limit_size(condition), phrases=tsquery.encoded_phrases(), below=below,
                low=cursor.low[1], pool=pool, **self.params,
            )
        )  # fmt: skip

    def _hits(
        self, cursor: SearchCursor, rows: Sequence[Row], limit: int, *, wide: bool
    ) -> Steps[list[tuple[Hit, SearchCursor]]]:
        needles = self._needles(wide=wide)
        ranking = sorted((row[2], -row[0], -row[1], *row[3:]) for row in rows if row[2] is not None)
        if cursor.score is not None:
            last = (cursor.score, -cursor.place[0], -cursor.place[1])
            ranking = [row for row in ranking if row[:3] > last]
        entries: list[tuple[Hit, SearchCursor]] = []
        while ranking and len(entries) < limit:
            count = min(limit - len(entries), hits.READ_BATCH)
            batch, ranking = ranking[:count], ranking[count:]
            places = [(row[0], (-row[1], -row[2])) for row in batch]
            if len(batch[0]) > len(("score", "branch", "position")):
                batch_hits: list[Hit | None] = [hits.title_hit(row[3:], row[0], needles) for row in batch]
            else:
                batch_hits = yield from hits.message_hits(self.scope, self.params, self._session(), places, needles)
            entries += [
                (hit, cursor._replace(score=score, place=place))
                for hit, (score, place) in zip(batch_hits, places, strict=True)
                if hit is not None
            ]
        return entries

    def _session(self) -> Row | None:
        """Return the columns of the session for hits, if only one is searched."""
        if self.target is None:
            return None
        value = self.target.session.value
        return value.id, value.title, value.channel, value.archived_at, value.deleted_at, value.parent

    def _may_be_title(self) -> bool:
        """Return whether titles can match: they have no role, tool or time, and a word is required."""
        filters = self.filters
        messages_only = any((*filters.role, *filters.tool)) or (filters.since, filters.until) != (None, None)
        return self.target is None and not messages_only and _requires_word(self.words)

    def _expression(self, *, wide: bool) -> Steps[dict[str, str]]:
        """Return the condition and the weights for every engine."""
        if self.rarity is None:
            self.rarity = yield from self._count_words()
        wider, excluded_words = (self.wider, self.words) if wide else (None, None)
        expression, tsquery = Fts5Expression(self.rarity, wider), expressions.TsqueryExpression(self.rarity, wider)
        match = fts5_condition(expression, self.words, self.filters, excluded_words)
        condition = expressions.tsquery_condition(tsquery, self.words, self.filters, excluded_words)
        loose_condition = expressions.tsquery_condition(
            expressions.TsqueryExpression({}, wider, loose=True), self.words, self.filters, excluded_words
        )
        return {
            "match": match, "weights": expression.encoded_weights(), "tsquery": expressions.limit_size(condition),
            "loose_tsquery": expressions.limit_size(loose_condition), "phrases": tsquery.encoded_phrases(),
        }  # fmt: skip

    def _count_words(self) -> Steps[dict[str, float]]:
        """Count the messages with each word, up to _MAX_COUNTED, and return the weights of the words."""
        tokens = list(dict.fromkeys(token for words in wanted_phrases(self.words) for token in words.tokens))[
            :_MAX_WEIGHED
        ]
        if self.counts is None or len(self.counts) != len(tokens):
            counts: list[int] = []
            for token in tokens:
                word = Phrase((token,), prefix=False, quoted=False)
                match, tsquery = Fts5Expression({}).of(word), expressions.TsqueryExpression({}).of(word)
                row = yield from fetch_one("search_count", match=match, tsquery=tsquery, max_count=_MAX_COUNTED)
                counts.append(0 if row is None else row[0])
            self.counts = tuple(counts)
        count_by_token = dict(zip(tokens, self.counts, strict=True))
        exact_counts = {token: count for token, count in count_by_token.items() if count < _MAX_COUNTED}
        self.max_matches = max_matches(self.words, exact_counts)
        return rarity_weights(count_by_token, _MAX_COUNTED)

    def _find_word_forms(self) -> Steps[bool]:
        """Find the words that contain the typed pieces; return whether a wider search can match more."""
        if self.wider is None:
            self.wider = {}
            for piece, at_end in infix_pieces(wanted_phrases(self.words)):
                rows = yield from fetch_all("search_terms_with", piece=piece, ending=at_end, limit=_MAX_WORD_FORMS)
                forms = [row[0] for row in rows if row[0] != piece]
                if forms:
                    self.wider[piece, at_end] = [piece, *forms]
        return bool(self.wider) or any(words.allows_prefix for words in wanted_phrases(self.words))

    def _needles(self, *, wide: bool) -> list[Needle]:
        return [
            Needle(words.tokens, words.prefix or (wide and words.allows_prefix), suffix=wide and words.allows_infix)
            for words in wanted_phrases(self.words)
        ]


def _requires_word(node: Node | None) -> bool:
    """Return whether every match of a query contains a word."""
    if isinstance(node, AnyOf):
        return all(map(_requires_word, node.any_of))
    if isinstance(node, AllOf):
        return bool(node.all_of) and all(map(_requires_word, (*node.all_of, *node.none_of)))
    return node is not None


def _filter_params(scope: Scope, request: SearchRequest, target: _SearchedSession | None) -> dict[str, Any]:
    """Return the filters as query parameters, the same for every query of a search."""
    filters = request.query.filters
    message_filters: tuple[Any, ...] = (filters.since, filters.until, *filters.model)
    return {
        "owner": scope.owner,
        "deleted": request.deleted,
        "delegates": request.delegates or target is not None,
        "archived": filters.archived,
        "pinned": filters.pinned,
        "channels": _json_list(filters.channel[0]),
        "no_channels": _json_list(filters.channel[1]),
        "statuses": _json_list(filters.status[0]),
        "no_statuses": _json_list(filters.status[1]),
        "no_sessions": _json_list(filters.no_session),
        "models": _json_list(filters.model[0]),
        "no_models": _json_list(filters.model[1]),
        "since": filters.since,
        "until": filters.until,
        "unfiltered": all(value is None or value == frozenset() for value in message_filters),
        "ranges": None if target is None else json.encode(target.ranges),
    }


def _json_list(values: frozenset[str]) -> str | None:
    return json.encode(sorted(values)) if values else None
