"""A query as PostgreSQL takes it: a tsquery, with the rows of words in it that a hit is ranked by.

It means the same as the expression of match.py. Only folded tokens of letters and digits, between quotes, reach it.
What begins with = is a property of a message, and no word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from recollect.model import json
from recollect.ops.search.document import ALL, ROLE, TOOL
from recollect.ops.search.match import Wider
from recollect.ops.search.query import Both, Either, Filters, Node, Words, every
from recollect.ops.search.words import tag

_LONGEST, _KEPT = 200, 160  # as recollect.search_token() cuts them
_MOST = 500_000  # bytes; the server takes a megabyte
_NOTHING = "'='"


class Sought:
    """Writes a tsquery, and remembers which row of words weighs how much."""

    def __init__(self, rarity: Mapping[str, float], wider: Wider | None = None, *, loose: bool = False) -> None:
        self._weights: list[tuple[str, float]] = []
        self._rarity = rarity
        self._wider = wider
        self.loose = loose
        """Whether it is only what an index of words can tell, which knows nothing of their places."""

    def of(self, node: Node, sign: float = 1.0) -> str:
        """Write a node; the rows of what is excluded weigh nothing."""
        if isinstance(node, Words):
            return self._words(node, sign)
        if isinstance(node, Either):
            return _any([self.of(item, sign) for item in node.any_of])
        return self._both(node, sign)

    def _both(self, node: Both, sign: float) -> str:
        these = [self.of(item, sign) for item in node.these] or [has(ALL)]
        # What is excluded is meant as it stands, also where the rest is taken more widely.
        wider, self._wider = self._wider, None
        none_of = [self.of(item, 0.0) for item in node.none_of if not self.loose or _apart(item)]
        self._wider = wider
        return without(_all(these), none_of)

    def _words(self, node: Words, sign: float) -> str:
        first, rest = node.tokens[0], node.tokens[1:]
        forms: Sequence[str] = ()
        if self._wider is not None and not node.quoted:
            forms = self._wider.get((first, bool(rest)), ())
        prefix = node.prefix or (self._wider is not None and node.goes_on)
        places = [forms or (first,), *((token,) for token in rest)]
        if self.loose:
            return _row(places, prefix=prefix, by=" & ")
        row = _row(places, prefix=prefix)
        if sign:
            self._weights.append((row, sign * sum(self._rarity.get(token, 1.0) for token in node.tokens)))
        return f"({row} | {_pairs(places, prefix=prefix)})" if rest else row

    def phrases(self) -> str:
        """Give the rows of words with their weights, as the engine's ranking takes them."""
        fitting = [] if sum(len(text) for text, _ in self._weights) > _MOST else self._weights
        return json.encode(fitting)


def within(sought: Sought, node: Node | None, filters: Filters, beyond: Node | None = None) -> str:
    """Write the whole condition: words, tags, and what an earlier, narrower search has found already."""
    parts = [has(ALL) if node is None else sought.of(node)]
    excluded: list[str] = []
    for kind, (some, none) in ((ROLE, filters.role), (TOOL, filters.tool)):
        if some:
            parts.append(has(*sorted(tag(kind, value) for value in some)))
        if none:
            excluded.append(has(*sorted(tag(kind, value) for value in none)))
    if beyond is not None and (not sought.loose or _apart(beyond)):
        excluded.append(Sought({}).of(beyond))
    return without(_all(parts), excluded)


def _apart(node: Node) -> bool:
    """Whether no words have to stand in a row."""
    return all(len(words.tokens) == 1 for words in every(node))


def without(text: str, excluded: Sequence[str]) -> str:
    """Write that something holds, and none of others does."""
    return f"({text} & !{_any(excluded)})" if excluded else text


def fitting(text: str) -> str:
    """Give a query as it is; one that is larger than the server takes finds nothing."""
    return text if len(text.encode()) <= _MOST else _NOTHING


def has(*tags: str) -> str:
    """Write that a message has one of some properties."""
    return _any([f"'={_token(name)}'" for name in tags])


def _any(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else "(" + " | ".join(texts) + ")"


def _all(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else "(" + " & ".join(texts) + ")"


def _row(places: Sequence[Sequence[str]], *, prefix: bool, by: str = " <-> ") -> str:
    """Write words in a row, with those that may stand in each place; the last may be the beginning of a word."""
    last = len(places) - 1
    texts = [
        _any([_lexeme(word, prefix=prefix and place == last) for word in words]) for place, words in enumerate(places)
    ]
    return texts[0] if last == 0 else "(" + by.join(texts) + ")"


def _pairs(places: Sequence[Sequence[str]], *, prefix: bool) -> str:
    """Write the same for a long text, where the index has pairs instead of places."""
    last = len(places) - 1
    return _all([
        _any([
            _lexeme(second, before=f"=+{_token(first)} ", prefix=prefix and place + 1 == last)
            for first in places[place]
            for second in places[place + 1]
        ])
        for place in range(last)
    ])  # fmt: skip


def _lexeme(token: str, *, before: str = "", prefix: bool) -> str:
    return f"'{before}{token[:_KEPT]}':*" if prefix else f"'{before}{_token(token)}'"


def _token(token: str) -> str:
    if len(token) <= _LONGEST:
        return token
    return token[:_KEPT] + hashlib.md5(token.encode(), usedforsecurity=False).hexdigest()
