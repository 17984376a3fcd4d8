"""Finding: titles first, then messages with the words as they were typed, then those with them inside of other words.

Of a query that fits very many messages, the newest thousands are ranked first and the next thousands after them, so
that an answer takes as long in a large store as in a small one. Pages go through all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import DiskFull, IndexDamaged, InvalidValue, SessionNotFound, StoreLocked, StoreReadOnly
from recollect.model import json
from recollect.model.hit import Hit
from recollect.model.part import ToolResultPart
from recollect.op import Op, Plan, Row, Scope, Steps, one, rows
from recollect.ops import sessions
from recollect.ops.paths import LAST, MOST_BRANCHES
from recollect.ops.search import index
from recollect.ops.search.document import Piece, pieces
from recollect.ops.search.match import Expression, inside, rarity, within
from recollect.ops.search.query import NO_FILTERS, Both, Either, Node, Query, Words, positive
from recollect.ops.search.snippet import Excerpt, Needle, excerpt

POOL = 5_000
_MOST_COUNTED = 2_000
_FORMS = 48
_MOST = 1_000
_TITLES, _EXACT, _WIDE_TITLES, _WIDE, _END = range(5)
_TOP = (MOST_BRANCHES, LAST)

Place = tuple[int, int]


class Cursor(NamedTuple):
    """How far a search has been read: which stage, below which place its candidates are, and the last hit."""

    stage: int = _TITLES
    below: Place = _TOP
    score: float | None = None
    place: Place = _TOP

    def written(self) -> str:
        """Write it as text."""
        score = "" if self.score is None else repr(self.score)
        return "_".join((str(self.stage), *map(str, self.below), score, *map(str, self.place)))


def cursor(text: str) -> Cursor:
    """Read a cursor."""
    try:
        stage, branch, position, score, at_branch, at_position = text.split("_")
        found = Cursor(
            int(stage),
            (int(branch), int(position)),
            float(score) if score else None,
            (int(at_branch), int(at_position)),
        )
    except (ValueError, AttributeError):
        found = Cursor(_END)
    if found.stage not in range(_END) or max(*found.below, *found.place) > LAST:
        raise InvalidValue(f"{text!r} is no place in a search. Use the `next` of the page before.")
    return found


class Found(NamedTuple):
    """A page of hits, and where the next one begins."""

    hits: list[Hit]
    next: str | None


class Ask(NamedTuple):
    """A search: the query, and which sessions count."""

    query: Query
    deleted: bool
    delegates: bool


class _Where(NamedTuple):
    """The stretches of one session, where only it is searched."""

    session: sessions.Here
    ranges: list[tuple[int, int, int]]


def search(scope: Scope, ask: Ask, *, limit: int, after: str | None) -> Plan[Found]:
    """Bring the index up to date, as far as this store can be written, and search."""
    if not isinstance(limit, int) or not 1 <= limit <= _MOST:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit is a number from 1 to {_MOST:,}; got {limit!r}.")
    at = Cursor() if after is None else cursor(after)
    return _searching(scope, Op(_find, scope, ask, limit, at, writes=False))


def _searching(scope: Scope, op: Op[Found]) -> Plan[Found]:
    try:
        yield from _current(scope)
        return (yield op)
    except IndexDamaged:  # it holds nothing that is not in the messages
        yield from index.rebuild(scope)
        return (yield op)


def _current(scope: Scope) -> Plan[None]:
    try:
        yield from index.catch_up(scope)
    except (StoreReadOnly, DiskFull, StoreLocked):  # what is indexed can be searched all the same
        return


def _find(scope: Scope, ask: Ask, limit: int, at: Cursor) -> Steps[Found]:
    if ask.query.words is None and ask.query.filters == NO_FILTERS:
        return Found([], None)
    where = yield from _where(scope, ask)
    finder = _Finder(scope, ask, where)
    hits: list[tuple[Hit, Cursor]] = []
    while len(hits) <= limit and at.stage < _END:
        more, at = yield from finder.some(at, limit + 1 - len(hits))
        hits += more
    shown = [hit for hit, _ in hits[:limit]]
    return Found(shown, hits[limit - 1][1].written() if len(hits) > limit else None)


def _where(scope: Scope, ask: Ask) -> Steps[_Where | None]:
    name = ask.query.filters.session
    if name is None:
        return None
    row = yield from sessions.living(scope, name)
    if row is None and ask.deleted:
        row = yield from sessions.in_trash(scope, name)
    if row is None:
        raise SessionNotFound(session=name)
    here = sessions.here(row)
    ranges = yield from rows("search_ranges", session=here.session)
    return _Where(here, [(low[0], low[1], low[2]) for low in ranges])


class _Finder:
    """One search within one snapshot."""

    def __init__(self, scope: Scope, ask: Ask, where: _Where | None) -> None:
        self.scope = scope
        self.words = ask.query.words
        self.filters = ask.query.filters
        self.where = where
        self.params = _params(scope, ask, where)
        self.rarity: dict[str, float] | None = None
        self.wider: dict[str, list[str]] | None = None

    def some(self, at: Cursor, limit: int) -> Steps[tuple[list[tuple[Hit, Cursor]], Cursor]]:
        """Read hits of a stage, and where to go on."""
        wide = at.stage >= _WIDE_TITLES
        if wide and not (yield from self._widened()):
            return [], Cursor(_END)
        if at.stage in (_TITLES, _WIDE_TITLES):
            return (yield from self._titles(at, limit, wide=wide))
        following = Cursor(at.stage + 1)
        match, weights = yield from self._expression(wide=wide)
        found = yield from rows(
            "search_messages", match=match, weights=weights, below_branch=at.below[0], below_position=at.below[1],
            pool=POOL, **self.params,
        )  # fmt: skip
        ranked = sorted((score, -branch, -position) for branch, position, score in found)
        hits = yield from self._hits(at, ranked, limit, wide=wide)
        if len(hits) >= limit:
            return hits, hits[-1][1]
        if len(found) == POOL:
            lowest = min((branch, position) for branch, position, _ in found)
            return hits, Cursor(at.stage, lowest)
        return hits, following

    def _hits(
        self, at: Cursor, ranked: Sequence[tuple[float, int, int]], limit: int, *, wide: bool
    ) -> Steps[list[tuple[Hit, Cursor]]]:
        hits: list[tuple[Hit, Cursor]] = []
        needles = self._needles(wide=wide)
        for score, branch, position in ranked:
            if at.score is not None and (score, branch, position) <= (at.score, -at.place[0], -at.place[1]):
                continue
            hit = yield from self._hit(score, -branch, -position, needles)
            if hit is not None:
                hits.append((hit, Cursor(at.stage, at.below, score, (-branch, -position))))
            if len(hits) == limit:
                break
        return hits

    def _hit(self, score: float, branch: int, position: int, needles: Sequence[Needle]) -> Steps[Hit | None]:
        row = yield from one("search_hit", branch=branch, position=position)
        session = None if row is None else (yield from self._session(branch, position, row[7:]))
        if row is None or session is None:
            return None
        number, fork_at, parent, role, created, blobs, parts = row[:7]
        read = yield from index.read_parts(self.scope, parts, blobs)
        tools: dict[int, str] = {}
        if any(isinstance(part, ToolResultPart) for part in read):
            tools = (yield from index.tools_of(branch, position, position, fork_at, parent)).get(position, {})
        piece, shown = _shown(list(pieces(read, tools)), needles)
        return Hit(
            session[0], session[1], piece.kind, shown.text, shown.marks, -score, created, f"{number}.{position}", role,
            piece.tool, *session[2:],
        )  # fmt: skip

    def _session(self, branch: int, position: int, owning: Row) -> Steps[Row | None]:
        """Say in which session a message is found: its own, or one that shares it where its own is gone."""
        if self.where is not None:
            value = self.where.session.value
            return value.id, value.title, value.channel, value.archived_at, value.deleted_at, value.parent
        if owning[0] is not None and (owning[4] is not None) == self.params["deleted"]:
            return owning
        return (yield from one("search_reaching", branch=branch, position=position, **self.params))

    def _titles(self, at: Cursor, limit: int, *, wide: bool) -> Steps[tuple[list[tuple[Hit, Cursor]], Cursor]]:
        following = Cursor(at.stage + 1)
        if self.words is None or not self._may_be_title():
            return [], following
        match = Expression({}, self.wider if wide else None, column="").of(self.words)
        if wide:
            match = f"({match}) NOT ({Expression({}, column='').of(self.words)})"
        found = yield from rows("search_titles_match", match=match, pool=POOL, **self.params)
        needles = self._needles(wide=wide)
        hits: list[tuple[Hit, Cursor]] = []
        for score, key, *session, created in sorted(found):
            if at.score is not None and (score, key) <= (at.score, at.place[1]):
                continue
            shown = excerpt(session[1], needles)
            hit = Hit(
                session[0], session[1], "title", shown.text, shown.marks, -score, created, None, None, None,
                session[2], session[3], session[4], session[5],
            )  # fmt: skip
            hits.append((hit, Cursor(at.stage, _TOP, score, (0, key))))
            if len(hits) == limit:
                return hits, hits[-1][1]
        return hits, following

    def _may_be_title(self) -> bool:
        """Whether titles can fit: they have no role, no tool and no time, and there must be a word to find."""
        some = self.filters
        messages_only = (*some.role, *some.tool, some.since, some.until)
        return self.where is None and not any(messages_only) and _always_positive(self.words)

    def _expression(self, *, wide: bool) -> Steps[tuple[str, str]]:
        if self.rarity is None:
            self.rarity = yield from self._counted()
        expression = Expression(self.rarity, self.wider if wide else None)
        match = within(expression, self.words, self.filters, self.words if wide else None)
        return match, ",".join(f"{weight:.4g}" for weight in expression.weights)

    def _counted(self) -> Steps[dict[str, float]]:
        """Count in how many messages each word is, up to a number that makes it a common one."""
        counts: dict[str, int] = {}
        for words in positive(self.words):
            for token in words.tokens:
                if token not in counts:
                    match = Expression({}).of(Words((token,), prefix=False, quoted=False))
                    row = yield from one("search_count", match=match, most=_MOST_COUNTED)
                    counts[token] = 0 if row is None else row[0]
        return rarity(counts, _MOST_COUNTED)

    def _widened(self) -> Steps[bool]:
        """Find the words that have the pieces in them that were typed; False where there are none."""
        if self.wider is None:
            self.wider = {}
            for piece, ending in inside(positive(self.words)):
                found = yield from rows("search_terms_with", piece=piece, ending=ending, limit=_FORMS)
                others = [row[0] for row in found if row[0] != piece]
                if others:
                    self.wider[piece] = [piece, *others]
        return bool(self.wider)

    def _needles(self, *, wide: bool) -> list[Needle]:
        return [
            Needle(words.tokens, words.prefix or (wide and len(words.tokens) > 1), suffix=wide and words.has_inside)
            for words in positive(self.words)
        ]


def _always_positive(node: Node | None) -> bool:
    """Whether there is a word to find in every way that a query can be met."""
    if isinstance(node, Either):
        return all(map(_always_positive, node.any_of))
    if isinstance(node, Both):
        return bool(node.these) and all(map(_always_positive, node.these))
    return node is not None


def _params(scope: Scope, ask: Ask, where: _Where | None) -> dict[str, Any]:
    """Give the filters as parameters, the same for every query of a search."""
    filters = ask.query.filters
    dated: tuple[Any, ...] = (filters.since, filters.until, *filters.model)
    return {
        "owner": scope.owner,
        "deleted": ask.deleted,
        "delegates": ask.delegates,
        "archived": filters.archived,
        "pinned": filters.pinned,
        "channels": _list(filters.channel[0]),
        "no_channels": _list(filters.channel[1]),
        "statuses": _list(filters.status[0]),
        "no_statuses": _list(filters.status[1]),
        "models": _list(filters.model[0]),
        "no_models": _list(filters.model[1]),
        "since": filters.since,
        "until": filters.until,
        "plain": all(value is None or value == frozenset() for value in dated),
        "ranges": None if where is None else json.encode(where.ranges),
    }


def _list(values: frozenset[str]) -> str | None:
    return json.encode(sorted(values)) if values else None


def _shown(found: Sequence[Piece], needles: Sequence[Needle]) -> tuple[Piece, Excerpt]:
    """Choose the part of a message that shows most of what was looked for."""
    best: tuple[Piece, Excerpt] | None = None
    for piece in found:
        shown = excerpt(piece.text, needles)
        if best is None or shown.found > best[1].found:
            best = piece, shown
    return best or (Piece("text", "", None, 0), Excerpt("", (), 0))


def asked(
    query: Query,
    *,
    session: str | None,
    sets: dict[str, frozenset[str]],
    since: int | None,
    until: int | None,
    archived: bool | None,
    pinned: bool | None,
) -> Query:
    """Join what was typed with what the caller asked for by name; both must hold."""
    given = query.filters
    joined: dict[str, Any] = {}
    for name, values in sets.items():
        some, none = getattr(given, name)
        joined[name] = (some & values if some and values else some | values, none)
        if some and values and not some & values:
            joined[name] = (frozenset(("\0",)), none)  # nothing can be both
    return Query(
        query.words,
        given._replace(
            **joined,
            session=session if session is not None else given.session,
            since=max(filter(None, (since, given.since)), default=None),
            until=min(filter(None, (until, given.until)), default=None),
            archived=archived if archived is not None else given.archived,
            pinned=pinned if pinned is not None else given.pinned,
        ),
    )
