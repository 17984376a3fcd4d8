"""Finding: titles first, then messages with the words as they were typed, then those with them inside of other words.

Of a query that fits very many messages, the newest thousands are ranked first and the next thousands after them, so
that an answer takes as long in a large store as in a small one. Pages go through all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import IndexDamaged, InvalidValue, SessionNotFound, displayed
from recollect.model import argument, json
from recollect.model.hit import Hit
from recollect.op import Op, Plan, Row, Scope, Steps, one, rows
from recollect.ops import sessions
from recollect.ops.search import cost, hits, index, tsquery
from recollect.ops.search.cursor import BOTTOM, END, TITLES, TOP, WIDE_TITLES, Cursor, Place, cursor
from recollect.ops.search.match import Expression, inside, rarity, within
from recollect.ops.search.query import NO_FILTERS, Both, Either, Node, Query, Words, positive
from recollect.ops.search.snippet import Needle

POOL = 2_000
"""Messages that are ranked together, the newest first."""

_MOST = 1_000
"""Hits that one page may have."""

_TRIES = 30
"""How often a search begins anew because another emptied the index meanwhile."""

_MOST_WEIGHED, _MOST_COUNTED = 64, 2_000
"""Words of a query that are weighed by how rare they are, and messages after which a word is a common one."""

_FORMS = 48
"""Words that a piece of a word is found in, at most."""

_SAMPLE = 200
"""Messages that are looked at to estimate how many of all fit."""

_TRIES_NEWEST, _MORE = 2, 1.2
"""How often the newest are asked, and how many more than should do where there were too few."""

_FEW = 2_000
"""Messages whose sessions are looked up one by one sooner than all sessions are read."""

_SHORT = 3_000
"""Messages of a session that are looked at one after the other sooner than an index of all sessions."""


class Found(NamedTuple):
    """A page of hits, and where the next one begins."""

    hits: list[Hit]
    next: str | None
    hindered: str | None = None
    """Why the index could not be brought up to date first, so that what was said last is not in it."""


class Ask(NamedTuple):
    """A search: the query, and which sessions count."""

    query: Query
    deleted: bool
    delegates: bool
    typed: bool = False
    """Whether its one session was named in the query, where nothing is an error."""


class _Where(NamedTuple):
    """The stretches of one session, where only it is searched."""

    session: sessions.Here
    ranges: list[tuple[int, int, int]]

    def narrowed(self, below: Place, low: Place) -> tuple[Place, Place]:
        """Narrow the places that candidates are between, which other sessions have too, to those of this one."""
        if not self.ranges:
            return BOTTOM, BOTTOM
        last, first = max(self.ranges), min(self.ranges)
        return min(below, (last[0], last[2] + 1)), max(low, (first[0], first[1] + 1))

    @property
    def short(self) -> bool:
        """Whether it has so few messages that they are looked through quickly."""
        return sum(high - low for _, low, high in self.ranges) <= _SHORT


def search(scope: Scope, ask: Ask, *, limit: int, after: str | None) -> Plan[Found]:
    """Bring the index up to date, as far as this store can be written, and search."""
    if type(limit) is not int or not 1 <= limit <= _MOST:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit is a number from 1 to {_MOST:,}; got {displayed(limit)}.")
    at = Cursor() if after is None else cursor(argument.plain_text("after", after))
    return _searching(scope, ask, limit, at)


def _searching(scope: Scope, ask: Ask, limit: int, at: Cursor) -> Plan[Found]:
    mended = False
    for last in (*[False] * _TRIES, True):
        try:
            waiting: index.Waiting = yield index.waiting(scope)
            hindered = yield from _current(scope, waiting)
            found: Found | None = yield Op(_find, scope, ask, limit, at, waiting.mark, last, writes=False)
        except IndexDamaged:  # it holds nothing that is not in the messages
            if last or mended:
                raise
            yield index.clear()
            mended = True
        else:
            if found is not None:
                return found._replace(hindered=hindered)
    raise AssertionError  # the last time it gives what it finds


def _current(scope: Scope, waiting: index.Waiting) -> Plan[str | None]:
    """Bring the index up to date; where the store can not be written, say why."""
    try:
        yield from index.index(scope, waiting)
    except index.UNWRITABLE as error:
        return str(error)
    return None


def _find(scope: Scope, ask: Ask, limit: int, at: Cursor, mark: str | None, last: bool) -> Steps[Found | None]:
    """Find a page; None where another has emptied the index since it was brought up to date for this."""
    if not last and (yield from index.mark()) != mark:
        return None
    if ask.query.words is None and ask.query.filters == NO_FILTERS:
        return Found([], None)
    try:
        where = yield from _where(scope, ask)
    except SessionNotFound:
        if not ask.typed:
            raise
        return Found([], None)
    finder = _Finder(scope, ask, where, at.counts)
    if where is not None and (yield from one("search_suits", session=where.session.session, **finder.params)) is None:
        return Found([], None)
    found: list[tuple[Hit, Cursor]] = []
    while len(found) <= limit and at.stage < END:
        more, at = yield from finder.some(at, limit + 1 - len(found))
        found += more
    shown = [hit for hit, _ in found[:limit]]
    return Found(shown, found[limit - 1][1].written() if len(found) > limit else None)


def _where(scope: Scope, ask: Ask) -> Steps[_Where | None]:
    name = ask.query.filters.session
    if name is None:
        return None
    row = yield from (sessions.in_trash if ask.deleted else sessions.living)(scope, name)
    if row is None:
        raise SessionNotFound(session=name)
    here = sessions.here(row)
    ranges = yield from rows("search_ranges", session=here.session)
    return _Where(here, [(low[0], low[1], low[2]) for low in ranges])


class _Finder:
    """One search within one snapshot."""

    def __init__(self, scope: Scope, ask: Ask, where: _Where | None, counts: tuple[int, ...] | None) -> None:
        self.scope = scope
        self.words = ask.query.words
        self.filters = ask.query.filters
        self.where = where
        self.params = _params(scope, ask, where)
        self.counts = counts
        self.rarity: dict[str, float] | None = None
        self.most = math.inf
        """How many messages can have the words that were typed."""
        self.dense: dict[bool, bool] = {}
        self.newest: dict[bool, int | None] = {}
        self.wider: dict[tuple[str, bool], list[str]] | None = None

    def some(self, at: Cursor, limit: int) -> Steps[tuple[list[tuple[Hit, Cursor]], Cursor]]:
        """Read hits of a stage, and where to go on."""
        wide = at.stage >= WIDE_TITLES
        if wide and not (yield from self._widened()):
            return [], Cursor(END)
        fresh = at.score is None
        pool = POOL if fresh else -1
        titles = at.stage in (TITLES, WIDE_TITLES)
        found = yield from (self._titles if titles else self._messages)(at, pool, wide=wide)
        low = at.low
        if fresh and len(found) == POOL:
            low = min((row[0], row[1]) for row in found)
        shown = yield from self._hits(at._replace(low=low, counts=self.counts), found, limit, wide=wide)
        if len(shown) >= limit:
            return shown, shown[-1][1]
        return shown, Cursor(at.stage, low, counts=self.counts) if low != BOTTOM else Cursor(at.stage + 1)

    def _messages(self, at: Cursor, pool: int, *, wide: bool) -> Steps[list[Row]]:
        terms: dict[str, Any] = {**(yield from self._expression(wide=wide))}
        if not wide and not self.most:
            return []
        below, low = at.below, at.low
        if self.where is not None:
            below, low = self.where.narrowed(below, low)
        upper = (None, None) if below == TOP else below
        dense = yield from self._dense(terms.pop("loose"), terms["sought"], wide=wide)
        query = "search_newest" if dense else "search_few" if self.most < _FEW and not wide else "search_messages"
        terms.update(self.params, below_branch=upper[0], below_position=upper[1], pool=pool)
        newest = self.newest.get(wide)
        tries = _TRIES_NEWEST if (below, low, pool) == (TOP, BOTTOM, POOL) else 0
        while newest is not None and tries:
            row = yield from one("search_since", owner=self.scope.owner, many=newest)
            if row is None:
                break
            found = yield from rows("search_messages", low_branch=row[0], low_position=0, **terms)
            if len(found) == pool:  # all that are newer than the last of these are among them
                return found
            newest, tries = math.ceil(_MORE * newest * pool / len(found)) if found else None, tries - 1
        return (yield from rows(query, low_branch=low[0], low_position=low[1], **terms))

    def _dense(self, loose: str, sought: str, *, wide: bool) -> Steps[bool]:
        """Whether so many messages may fit that walking from the newest back is quicker than finding all of them first.

        An engine whose index gives the newest first says that none do.
        """
        dense = self.dense.get(wide)
        if dense is None:
            dense = self.where is not None and self.where.short
            if not dense and (wide or all(count >= _MOST_COUNTED for count in self.counts or ())):
                row = yield from one("search_dense", sought=sought, loose=loose, sample=_SAMPLE)
                if row is not None and row[2] >= _SAMPLE:
                    dense = cost.walked(*row, pool=POOL)
                    self.newest[wide] = cost.newest(*row, pool=POOL) if self.where is None else None
            self.dense[wide] = dense
        return dense

    def _titles(self, at: Cursor, pool: int, *, wide: bool) -> Steps[list[Row]]:
        if self.words is None or not self._may_be_title():
            return []
        wider = self.wider if wide else None
        expression, sought = Expression({}, wider, column=""), tsquery.Sought({}, wider)
        match, query = expression.of(self.words), sought.of(self.words)
        if wide:
            match = f"({match}) NOT ({Expression({}, column='').of(self.words)})"
            query = tsquery.without(query, [tsquery.Sought({}).of(self.words)])
        below = None if at.below == TOP else at.below[1]
        return (
            yield from rows(
                "search_titles_match", match=match, weights=expression.weighed(), sought=tsquery.fitting(query),
                phrases=sought.phrases(), below=below, low=at.low[1], pool=pool, **self.params,
            )
        )  # fmt: skip

    def _hits(self, at: Cursor, found: Sequence[Row], limit: int, *, wide: bool) -> Steps[list[tuple[Hit, Cursor]]]:
        needles = self._needles(wide=wide)
        ranked = sorted((row[2], -row[0], -row[1], *row[3:]) for row in found if row[2] is not None)
        if at.score is not None:
            last = (at.score, -at.place[0], -at.place[1])
            ranked = [row for row in ranked if row[:3] > last]
        found_hits: list[tuple[Hit, Cursor]] = []
        while ranked and len(found_hits) < limit:
            count = min(limit - len(found_hits), hits.AT_ONCE)
            some, ranked = ranked[:count], ranked[count:]
            places = [(row[0], (-row[1], -row[2])) for row in some]
            if len(some[0]) > len(("score", "branch", "position")):
                shown: list[Hit | None] = [hits.title(row[3:], row[0], needles) for row in some]
            else:
                shown = yield from hits.messages(self.scope, self.params, self._session(), places, needles)
            found_hits += [
                (hit, at._replace(score=score, place=place))
                for hit, (score, place) in zip(shown, places, strict=True)
                if hit is not None
            ]
        return found_hits

    def _session(self) -> Row | None:
        """Give the session in which everything is found, where only one is searched."""
        if self.where is None:
            return None
        value = self.where.session.value
        return value.id, value.title, value.channel, value.archived_at, value.deleted_at, value.parent

    def _may_be_title(self) -> bool:
        """Whether titles can fit: they have no role, no tool and no time, and there must be a word to find."""
        some = self.filters
        messages_only = any((*some.role, *some.tool)) or (some.since, some.until) != (None, None)
        return self.where is None and not messages_only and _always_positive(self.words)

    def _expression(self, *, wide: bool) -> Steps[dict[str, str]]:
        """Write what is looked for, as every engine takes it."""
        if self.rarity is None:
            self.rarity = yield from self._counted()
        wider, beyond = (self.wider, self.words) if wide else (None, None)
        expression, sought = Expression(self.rarity, wider), tsquery.Sought(self.rarity, wider)
        match = within(expression, self.words, self.filters, beyond)
        query = tsquery.within(sought, self.words, self.filters, beyond)
        loose = tsquery.within(tsquery.Sought({}, wider, loose=True), self.words, self.filters, beyond)
        return {
            "match": match, "weights": expression.weighed(), "sought": tsquery.fitting(query),
            "loose": tsquery.fitting(loose), "phrases": sought.phrases(),
        }  # fmt: skip

    def _counted(self) -> Steps[dict[str, float]]:
        """Count in how many messages each word is, up to a number that makes it a common one."""
        tokens = list(dict.fromkeys(token for words in positive(self.words) for token in words.tokens))[:_MOST_WEIGHED]
        if self.counts is None or len(self.counts) != len(tokens):
            counts: list[int] = []
            for token in tokens:
                word = Words((token,), prefix=False, quoted=False)
                match, sought = Expression({}).of(word), tsquery.Sought({}).of(word)
                row = yield from one("search_count", match=match, sought=sought, most=_MOST_COUNTED)
                counts.append(0 if row is None else row[0])
            self.counts = tuple(counts)
        counted = dict(zip(tokens, self.counts, strict=True))
        known = {token: count for token, count in counted.items() if count < _MOST_COUNTED}
        self.most = cost.at_most(self.words, known)
        return rarity(counted, _MOST_COUNTED)

    def _widened(self) -> Steps[bool]:
        """Find the words that have the pieces in them that were typed; False where there are none."""
        if self.wider is None:
            self.wider = {}
            for piece, ending in inside(positive(self.words)):
                found = yield from rows("search_terms_with", piece=piece, ending=ending, limit=_FORMS)
                others = [row[0] for row in found if row[0] != piece]
                if others:
                    self.wider[piece, ending] = [piece, *others]
        return bool(self.wider) or any(words.goes_on for words in positive(self.words))

    def _needles(self, *, wide: bool) -> list[Needle]:
        return [
            Needle(words.tokens, words.prefix or (wide and words.goes_on), suffix=wide and words.has_inside)
            for words in positive(self.words)
        ]


def _always_positive(node: Node | None) -> bool:
    """Whether there is a word to find in every way that a query can be met."""
    if isinstance(node, Either):
        return all(map(_always_positive, node.any_of))
    if isinstance(node, Both):
        return bool(node.these) and all(map(_always_positive, (*node.these, *node.none_of)))
    return node is not None


def _params(scope: Scope, ask: Ask, where: _Where | None) -> dict[str, Any]:
    """Give the filters as parameters, the same for every query of a search."""
    filters = ask.query.filters
    dated: tuple[Any, ...] = (filters.since, filters.until, *filters.model)
    return {
        "owner": scope.owner,
        "deleted": ask.deleted,
        "delegates": ask.delegates or where is not None,
        "archived": filters.archived,
        "pinned": filters.pinned,
        "channels": _list(filters.channel[0]),
        "no_channels": _list(filters.channel[1]),
        "statuses": _list(filters.status[0]),
        "no_statuses": _list(filters.status[1]),
        "no_sessions": _list(filters.no_session),
        "models": _list(filters.model[0]),
        "no_models": _list(filters.model[1]),
        "since": filters.since,
        "until": filters.until,
        "plain": all(value is None or value == frozenset() for value in dated),
        "ranges": None if where is None else json.encode(where.ranges),
    }


def _list(values: frozenset[str]) -> str | None:
    return json.encode(sorted(values)) if values else None
