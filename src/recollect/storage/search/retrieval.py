"""Retrieval: titles first, then messages with the words as typed, then messages with the words inside other words.

If a query matches very many messages, they are ranked in pools of POOL_SIZE, newest pool first, so that a page takes as
long in a large store as in a small one. Later pages continue with the next pool. The dialect of the engine finds the
messages of a pool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recollect.errors import IndexDamaged, InvalidValue, SessionNotFound, format_value
from recollect.model import json, session_ids, validation
from recollect.model.search import Hit
from recollect.storage import sessions
from recollect.storage.operation import Operation, Plan, Query, Scope, Steps, fetch_all, fetch_one
from recollect.storage.paths import LAST_POSITION, MAX_BRANCH_NUMBER
from recollect.storage.search import hits, index
from recollect.storage.search.dialect import Condition, Match, MessageFinder, MessageSearch, PoolBounds
from recollect.storage.search.hits import HitSession, Needle, TitleMatchRow
from recollect.storage.search.query import (
    NO_FILTERS,
    AllOf,
    AnyOf,
    Node,
    ParsedQuery,
    Phrase,
    Tag,
    context_tokens,
    infix_pieces,
    message_condition,
    wanted_phrases,
)

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


def max_matches(node: Node | None, counts: Mapping[str, float]) -> float:
    """Return an upper bound of the matches, from the number of messages with each word."""
    if node is None or isinstance(node, Tag):
        return math.inf
    if isinstance(node, AnyOf):
        return sum([max_matches(each, counts) for each in node.any_of])
    if isinstance(node, AllOf):
        return min([max_matches(each, counts) for each in node.all_of], default=math.inf)
    full_tokens = node.tokens[:-1] if node.prefix else node.tokens
    return min([counts.get(token, math.inf) for token in full_tokens], default=math.inf)


def rarity_weights(counts: Mapping[str, int], max_count: int) -> dict[str, float]:
    """Return the weight of each word: rarer words weigh more. Counts stop at `max_count`."""
    return {word: math.log(1 + (2 * max_count + 0.5) / (count + 0.5)) for word, count in counts.items()}


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


class MatchCountRow(NamedTuple):
    """A number of messages that match, up to a limit."""

    matches: int


class SearchRangeRow(NamedTuple):
    """A span of a branch that a session reaches: positions after `low`, up to `high`."""

    branch: int
    low: int
    high: int


class IndexedWordRow(NamedTuple):
    """A word of the index."""

    term: str


RANGES = Query("search_ranges", SearchRangeRow)
SESSION_MATCHES = Query("search_session_matches", index.ExistenceRow)
TITLE_MATCHES = Query("search_titles_match", TitleMatchRow)
WORD_COUNT = Query("search_count", MatchCountRow)
WORDS_WITH = Query("search_terms_with", IndexedWordRow)


class HitPage(NamedTuple):
    """A page of hits, and the cursor of the next page."""

    hits: list[Hit]
    next: str | None
    warning: str | None = None
    """Why the index could not be updated, so that the latest messages are missing; otherwise None."""


class SearchRequest(NamedTuple):
    """A search: the query, and which sessions are searched."""

    query: ParsedQuery
    deleted: bool
    delegates: bool
    typed: bool = False
    """Whether the session filter was typed: then a missing session is not an error."""


class _SearchedSession(NamedTuple):
    """The branch ranges of the session, if only one is searched."""

    session: sessions.StoredSession
    ranges: list[SearchRangeRow]

    def narrow(self, upper: CandidatePosition, lower: CandidatePosition) -> tuple[CandidatePosition, CandidatePosition]:
        """Return the bounds of the candidates, narrowed to those of this session."""
        if not self.ranges:
            return BOTTOM, BOTTOM
        last, first = max(self.ranges), min(self.ranges)
        return min(upper, (last.branch, last.high + 1)), max(lower, (first.branch, first.low + 1))

    @property
    def length(self) -> int:
        """The number of positions in the ranges."""
        return sum(span.high - span.low for span in self.ranges)


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
            yield index.clear(scope)
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
        and (yield from fetch_one(SESSION_MATCHES, session=target.session.session, **finder.params)) is None
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
    return _SearchedSession(current, (yield from fetch_all(RANGES, session=current.session)))


class _Finder:
    """One search in one transaction."""

    def __init__(
        self, scope: Scope, request: SearchRequest, target: _SearchedSession | None, counts: tuple[int, ...] | None
    ) -> None:
        self.scope = scope
        self.dialect = scope.search_dialect()
        self.words = request.query.words
        self.filters = request.query.filters
        self.target = target
        self.params = _filter_params(scope, request, target)
        self.counts = counts
        self.rarity: dict[str, float] | None = None
        self.max_matches = math.inf
        """An upper bound of the messages that contain the typed words."""
        self.message_finders: dict[bool, MessageFinder] = {}
        self.wider: dict[tuple[str, bool], list[str]] | None = None

    def read(self, cursor: SearchCursor, limit: int) -> Steps[tuple[list[tuple[Hit, SearchCursor]], SearchCursor]]:
        """Return hits of a stage, and the cursor to continue with."""
        wide = cursor.stage >= WIDE_TITLES
        if wide and not (yield from self._find_word_forms()):
            return [], SearchCursor(END)
        fresh = cursor.score is None
        pool = POOL_SIZE if fresh else -1
        titles: dict[int, TitleMatchRow] | None = None
        if cursor.stage in (TITLES, WIDE_TITLES):
            titles = {row.session: row for row in (yield from self._find_titles(cursor, pool, wide=wide))}
            matches: list[Match] = [(0, row.session, row.rank) for row in titles.values()]
        else:
            matches = yield from self._find_messages(cursor, pool, wide=wide)
        low = cursor.low
        if fresh and len(matches) == POOL_SIZE:
            low = min((branch, position) for branch, position, _ in matches)
        cursor = cursor._replace(low=low, counts=self.counts)
        entries = yield from self._hits(cursor, matches, titles, limit, wide=wide)
        if len(entries) >= limit:
            return entries, entries[-1][1]
        return entries, SearchCursor(cursor.stage, low, counts=self.counts) if low != BOTTOM else SearchCursor(
            cursor.stage + 1
        )

    def _find_messages(self, cursor: SearchCursor, pool: int, *, wide: bool) -> Steps[list[Match]]:
        if self.rarity is None:
            self.rarity = yield from self._count_words()
        if not wide and not self.max_matches:
            return []
        finder = self.message_finders.get(wide)
        if finder is None:
            finder = self.message_finders[wide] = self._message_finder(self.rarity, wide=wide)
        below, low = cursor.below, cursor.low
        if self.target is not None:
            below, low = self.target.narrow(below, low)
        return (yield from finder.find_pool(PoolBounds(None if below == TOP else below, low, pool)))

    def _message_finder(self, rarity: Mapping[str, float], *, wide: bool) -> MessageFinder:
        node = message_condition(self.words, self.filters, narrower=self.words if wide else None)
        return self.dialect.message_finder(
            MessageSearch(
                Condition(node, rarity, self.wider if wide else None),
                self.params,
                POOL_SIZE,
                max_matches=math.inf if wide else self.max_matches,
                may_be_frequent=wide or all(count >= _MAX_COUNTED for count in self.counts or ()),
                session_length=None if self.target is None else self.target.length,
            )
        )

    def _find_titles(self, cursor: SearchCursor, pool: int, *, wide: bool) -> Steps[list[TitleMatchRow]]:
        if self.words is None or not self._may_be_title():
            return []
        condition = Condition(AllOf((self.words,), (self.words,)), forms=self.wider) if wide else Condition(self.words)
        expression = self.dialect.compile(condition, titles=True)
        below = None if cursor.below == TOP else cursor.below[1]
        return (
            yield from fetch_all(
                TITLE_MATCHES, expression=expression.text, weights=expression.weights, below=below, low=cursor.low[1],
                pool=pool, **self.params,
            )
        )  # fmt: skip

    def _hits(
        self,
        cursor: SearchCursor,
        matches: Sequence[Match],
        titles: Mapping[int, TitleMatchRow] | None,
        limit: int,
        *,
        wide: bool,
    ) -> Steps[list[tuple[Hit, SearchCursor]]]:
        """Return the best matches as hits, each with the cursor that continues after it."""
        needles = self._needles(wide=wide)
        ranking = sorted([(rank, -branch, -position) for branch, position, rank in matches if rank is not None])
        if cursor.score is not None:
            last = (cursor.score, -cursor.place[0], -cursor.place[1])
            ranking = [entry for entry in ranking if entry > last]
        entries: list[tuple[Hit, SearchCursor]] = []
        while ranking and len(entries) < limit:
            count = min(limit - len(entries), hits.READ_BATCH)
            batch, ranking = ranking[:count], ranking[count:]
            places = [(rank, (-branch, -position)) for rank, branch, position in batch]
            if titles is None:
                batch_hits = yield from hits.message_hits(
                    self.scope, self.params, self._session(), places, needles, context=bool(self.filters.context[0])
                )
            else:
                batch_hits = [hits.title_hit(titles[key], rank, needles) for rank, (_, key) in places]
            entries += [
                (hit, cursor._replace(score=score, place=place))
                for hit, (score, place) in zip(batch_hits, places, strict=True)
                if hit is not None
            ]
        return entries

    def _session(self) -> HitSession | None:
        """Return the session of all hits, if only one is searched."""
        if self.target is None:
            return None
        value = self.target.session.value
        return HitSession(value.id, value.title, value.channel, value.archived_at_ms, value.deleted_at_ms, value.parent)

    def _may_be_title(self) -> bool:
        """Return whether titles can match: they have no role, tool or time, and a word is required."""
        filters = self.filters
        messages_only = any((*filters.role, *filters.tool, *filters.context)) or (filters.since, filters.until) != (
            None,
            None,
        )
        return self.target is None and not messages_only and _requires_word(self.words)

    def _count_words(self) -> Steps[dict[str, float]]:
        """Count the messages with each word, up to _MAX_COUNTED, and return the weights of the words."""
        tokens = list(dict.fromkeys(token for words in wanted_phrases(self.words) for token in words.tokens))[
            :_MAX_WEIGHED
        ]
        if self.counts is None or len(self.counts) != len(tokens):
            counts: list[int] = []
            for token in tokens:
                word = self.dialect.compile(Condition(Phrase((token,), prefix=False, quoted=False)))
                row = yield from fetch_one(WORD_COUNT, expression=word.text, max_count=_MAX_COUNTED)
                counts.append(0 if row is None else row.matches)
            self.counts = tuple(counts)
        count_by_token = dict(zip(tokens, self.counts, strict=True))
        exact_counts = {token: count for token, count in count_by_token.items() if count < _MAX_COUNTED}
        self.max_matches = max_matches(self.words, exact_counts)
        return rarity_weights(count_by_token, _MAX_COUNTED)

    def _find_word_forms(self) -> Steps[bool]:
        """Find the words that contain the typed pieces; return whether a wider search can match more."""
        if self.wider is None:
            self.wider = {}
            for piece, at_end in infix_pieces(self.words):
                rows = yield from fetch_all(WORDS_WITH, piece=piece, ending=at_end, limit=_MAX_WORD_FORMS)
                forms = [row.term for row in rows if row.term != piece]
                if forms:
                    self.wider[piece, at_end] = [piece, *forms]
        return bool(self.wider) or any(words.allows_prefix for words in wanted_phrases(self.words))

    def _needles(self, *, wide: bool) -> list[Needle]:
        needles = [
            Needle(words.tokens, words.prefix or (wide and words.allows_prefix), suffix=wide and words.allows_infix)
            for words in wanted_phrases(self.words)
        ]
        tokens = context_tokens(sorted(self.filters.context[0]))
        return [*needles, *(Needle((token,), prefix=False, suffix=False) for token in tokens)]


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
        "no_sessions": _json_list(
            frozenset(json.escape_nul(id) for id in filters.no_session if session_ids.is_possible_id(id))
        ),
        "labels": _json_list(filters.label[0]),
        "no_labels": _json_list(filters.label[1]),
        "external_id": filters.external_id,
        "id_prefix": filters.id_prefix,
        "id_limit": filters.id_limit,
        "metadata": filters.metadata,
        "models": _json_list(filters.model[0]),
        "no_models": _json_list(filters.model[1]),
        "since": filters.since,
        "until": filters.until,
        "unfiltered": all(value is None or value == frozenset() for value in message_filters),
        "ranges": None if target is None else json.encode(target.ranges),
    }


def _json_list(values: frozenset[str]) -> str | None:
    return json.encode(sorted(values)) if values else None
