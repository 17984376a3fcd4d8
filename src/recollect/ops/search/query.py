"""The query language: what a person types, as a tree of words and phrases, and filters beside it.

    deploy failed            both words, in any order
    "exact words" pre*       a phrase; the beginning of a word
    red OR blue, NOT green   also `-green`; AND is understood; (brackets) group
    role: tool: model: channel: status: session: before: after: pinned: archived:

Whatever is typed is a query: what is no operator is a word, a quote that is not closed ends with the text, brackets and
operators that have nothing to work on are passed over. A filter holds for the whole query, wherever it stands; with
NOT or `-` before it, it excludes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from recollect.model import argument
from recollect.model.message import ROLES
from recollect.model.moment import DAY, Moment, instant, written
from recollect.model.session import STATUSES
from recollect.ops.search.words import SHORTEST_INSIDE, fold, tokens

_MOST_WORDS = 48
_LONGEST_ROW = 64
_DEEPEST = 12
_FAR_TIME = 1 << 62
_YES = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}

_lexeme = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<bracket>[()])
    | (?P<minus>-(?=[^\s-]))
    | (?P<name>[A-Za-z]+):(?:"(?P<quoted>[^"]*)"?|(?P<value>[^\s()"]+))
    | "(?P<phrase>[^"]*)"?(?P<star>\*?)
    | (?P<word>[^\s()"]+)
    """,
    re.VERBOSE,
)
_ago = re.compile(r"(\d{1,4})([dwmy])")
_LENGTHS = {"d": 1, "w": 7, "m": 30, "y": 365}


class Words(NamedTuple):
    """A word, or several in a row; `prefix` says that the last may go on, `quoted` that it is meant as it stands."""

    tokens: tuple[str, ...]
    prefix: bool
    quoted: bool

    @property
    def has_inside(self) -> bool:
        """Whether it may be looked for inside of other words."""
        return not self.quoted and len(self.tokens[0]) >= SHORTEST_INSIDE

    @property
    def goes_on(self) -> bool:
        """Whether its last word may be the beginning of a longer one, in a row that ends in the middle of a word."""
        return not self.quoted and len(self.tokens) > 1


class Both(NamedTuple):
    """All of some, and none of others."""

    these: tuple[Node, ...]
    none_of: tuple[Node, ...]


class Either(NamedTuple):
    """Any of some."""

    any_of: tuple[Node, ...]


Node: TypeAlias = "Words | Both | Either"


class Filters(NamedTuple):
    """What a hit must be, beside its words. Each is a set of which one must hold, and a set of which none may."""

    role: tuple[frozenset[str], frozenset[str]]
    tool: tuple[frozenset[str], frozenset[str]]
    model: tuple[frozenset[str], frozenset[str]]
    channel: tuple[frozenset[str], frozenset[str]]
    status: tuple[frozenset[str], frozenset[str]]
    session: str | None
    no_session: frozenset[str]
    since: int | None
    until: int | None
    pinned: bool | None
    archived: bool | None


_ANY: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
NO_FILTERS = Filters(_ANY, _ANY, _ANY, _ANY, _ANY, None, frozenset(), None, None, None, None)


class Query(NamedTuple):
    """A query as it was understood."""

    words: Node | None
    filters: Filters


_SETS = ("role", "tool", "model", "channel", "status")
_SINGLES = ("session", "since", "until", "pinned", "archived")


class _Lexeme(NamedTuple):
    kind: str
    text: str
    name: str = ""
    prefix: bool = False


def parse(text: str, now: int) -> Query:
    """Read a query. `now` is the time that days ago are counted from."""
    query = _Reader(text, now).read()
    if query.words is None and query.filters == NO_FILTERS:  # operators alone are words
        alone = tuple(tokens(fold(text))[:_LONGEST_ROW])
        return Query(Words(alone, prefix=False, quoted=False) if alone else None, NO_FILTERS)
    return query


class _Reader:
    """Reads a query from left to right."""

    def __init__(self, text: str, now: int) -> None:
        self.now = now
        self.lexemes = list(_lexemes(text))
        self.at = 0
        self.wanted: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in _SETS}
        self.single: dict[str, str | int | bool] = {}
        self.no_session: set[str] = set()
        self.excluding = False

    def read(self) -> Query:
        found: list[Node] = []
        while self.at < len(self.lexemes):  # a closing bracket too many ends a group that was not begun
            node = self._either(0)
            if node is not None:
                found.append(node)
            self.at += 1
        return Query(_both(found, []), self._filters())

    def _filters(self) -> Filters:
        sets = {name: (frozenset(some), frozenset(none)) for name, (some, none) in self.wanted.items()}
        rest = {name: self.single.get(name) for name in _SINGLES}
        return Filters(**sets, **rest, no_session=frozenset(self.no_session))  # type: ignore[arg-type]

    def _peek(self) -> _Lexeme | None:
        return self.lexemes[self.at] if self.at < len(self.lexemes) else None

    def _either(self, depth: int) -> Node | None:
        found: list[Node] = []
        while True:
            node = self._all_of(depth)
            if node is not None:
                found.append(node)
            here = self._peek()
            if here is None or here.kind != "OR":
                break
            self.at += 1
        return _either(found)

    def _all_of(self, depth: int) -> Node | None:
        these: list[Node] = []
        none_of: list[Node] = []
        while (here := self._peek()) is not None and here.kind != "OR" and (here.kind, here.text) != ("bracket", ")"):
            excluded = False
            while here is not None and here.kind in ("AND", "NOT", "minus"):
                excluded ^= here.kind != "AND"
                self.at += 1
                here = self._peek()
            node = self._one(depth, excluded=excluded)
            if node is not None:
                (none_of if excluded else these).append(node)
        return _both(these, none_of)

    def _one(self, depth: int, *, excluded: bool) -> Node | None:
        here = self._peek()
        if here is None or here.kind == "OR" or (here.kind, here.text) == ("bracket", ")"):
            return None
        self.at += 1
        if here.kind == "bracket":
            return self._group(depth, excluded=excluded)
        if here.kind == "filter" and self._filter(here, excluded=excluded ^ self.excluding):
            return None
        return _words(here)

    def _group(self, depth: int, *, excluded: bool) -> Node | None:
        if depth >= _DEEPEST:  # as if it had not been there
            return None
        around, self.excluding = self.excluding, self.excluding ^ excluded
        node = self._either(depth + 1)
        self.excluding = around
        self.at += 1
        return node

    def _filter(self, here: _Lexeme, *, excluded: bool) -> bool:
        """Take up a filter; False where it is none after all and its text is meant."""
        name, value = here.name, here.text
        if name in _SETS:
            if (name == "role" and value.lower() not in ROLES) or (name == "status" and value.lower() not in STATUSES):
                return False
            self.wanted[name][excluded].add(value.lower() if name in ("role", "status") else value)
            return True
        if name == "session":
            if excluded:
                self.no_session.add(value)
            else:
                self.single["session"] = value
            return True
        if name in ("before", "after"):
            return self._time(value, until=(name == "before") is not excluded)
        chosen = _YES.get(value.lower())
        if chosen is not None:
            self.single[name] = chosen is not excluded
        return chosen is not None

    def _time(self, value: str, *, until: bool) -> bool:
        moment = _moment(value, self.now)
        if moment is None:
            return False
        self.single["until" if until else "since"] = moment
        return True


_NAMES = (*_SETS, "session", "before", "after", "pinned", "archived")


def _lexemes(text: str) -> Iterator[_Lexeme]:
    words = 0
    for match in _lexeme.finditer(text):
        kind = match.lastgroup
        lexeme = None
        if match["bracket"]:
            lexeme = _Lexeme("bracket", match["bracket"])
        elif match["minus"]:
            lexeme = _Lexeme("minus", "-")
        elif match["name"]:
            lexeme = _named(match)
        elif match["phrase"] is not None:
            lexeme = _Lexeme("phrase", match["phrase"], prefix=bool(match["star"]))
        elif match["word"]:
            lexeme = _plain(match["word"])
        if lexeme is None or kind == "space":
            continue
        words += lexeme.kind in ("word", "phrase", "filter")
        if words > _MOST_WORDS:
            return
        yield lexeme


def _named(match: re.Match[str]) -> _Lexeme:
    name, value = match["name"].lower(), match["value"] if match["quoted"] is None else match["quoted"]
    if name in _NAMES and value:
        return _Lexeme("filter", value, name)
    return _plain(match[0]) if match["quoted"] is None else _Lexeme("word", match[0])


def _plain(word: str) -> _Lexeme:
    if word in ("AND", "OR", "NOT"):
        return _Lexeme(word, word)
    return _Lexeme("word", word.rstrip("*"), prefix=word.endswith("*"))


def _words(lexeme: _Lexeme) -> Words | None:
    text = f"{lexeme.name}:{lexeme.text}" if lexeme.kind == "filter" else lexeme.text
    found = tuple(tokens(fold(text)))
    whole = len(found) <= _LONGEST_ROW
    return Words(found[:_LONGEST_ROW], lexeme.prefix and whole, lexeme.kind == "phrase") if found else None


def _both(these: list[Node], none_of: list[Node]) -> Node | None:
    if len(these) == 1 and not none_of:
        return these[0]
    return Both(tuple(these), tuple(none_of)) if these or none_of else None


def _either(found: list[Node]) -> Node | None:
    if len(found) < 2:  # noqa: PLR2004
        return found[0] if found else None
    return Either(tuple(found))


def _moment(text: str, now: int) -> int | None:
    """Read a day, a time, or 7d for seven days ago. Unlike in a duration, m is a month: nobody looks for a minute."""
    ago = _ago.fullmatch(text.lower())
    return written(text, now) if ago is None else now - int(ago[1]) * _LENGTHS[ago[2]] * DAY


def narrowed(
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
    named = session if given.session is None else given.session
    if session is not None and session is not named and argument.plain_text("session", session) != named:
        named = "\0"  # nothing is in both
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
            session=named,
            since=max((time for time in (since, given.since) if time is not None), default=None),
            until=min((time for time in (until, given.until) if time is not None), default=None),
            archived=archived if archived is not None else given.archived,
            pinned=pinned if pinned is not None else given.pinned,
        ),
    )


def positive(node: Node | None) -> Iterator[Words]:
    """Go through the words that a hit may have."""
    return every(node, unwanted=False)


def every(node: Node | None, *, unwanted: bool = True) -> Iterator[Words]:
    """Go through all words, also the unwanted that a hit must not have."""
    if isinstance(node, Words):
        yield node
    elif node is not None:
        below = node.any_of if isinstance(node, Either) else (*node.these, *(node.none_of if unwanted else ()))
        for item in below:
            yield from every(item, unwanted=unwanted)


def moment(value: Moment | None, name: str, now: int) -> int | None:
    """Read a time that a caller gave, in words or otherwise."""
    from recollect.errors import InvalidValue, displayed  # noqa: PLC0415  only where one is given

    if value is None:
        return None
    found = _moment(value, now) if isinstance(value, str) else instant(value)
    if found is None or abs(found) >= _FAR_TIME:
        raise InvalidValue(
            f"{name} is a time: milliseconds, a datetime, or text such as 2025-03-07; got {displayed(value)}."
        )
    return found


def values(given: str | Iterable[str] | None) -> frozenset[str]:
    """Give one value or several as a set."""
    from recollect.errors import InvalidValue, displayed  # noqa: PLC0415  only where one is given

    if given is None:
        return frozenset()
    try:
        some: list[object] = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)  # pyright: ignore[reportUnnecessaryIsInstance]
    except Exception as error:  # of the iterator's own code
        raise InvalidValue(f"A filter is a text, or several; got {displayed(given)}.") from error
    texts = [str.__str__(item) for item in some if isinstance(item, str)]
    if len(texts) < len(some):
        raise InvalidValue(f"A filter is a text, or several; got {displayed(given)}.")
    return frozenset(texts)
