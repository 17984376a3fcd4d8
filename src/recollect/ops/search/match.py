"""A query as an engine's full-text search takes it: SQLite's FTS5, with a weight for each phrase in it.

Only folded tokens of letters and digits, between quotes, ever reach the expression, so nothing that is typed can be a
syntax error in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from recollect.ops.search.document import ALL, ROLE, TOOL
from recollect.ops.search.query import Both, Either, Filters, Node, Words
from recollect.ops.search.words import tag

Wider = Mapping[tuple[str, bool], Sequence[str]]
"""Words that have a piece of a word in them, or (True) that end with it."""

_TEXT = "- tags : "
_TAGS = "tags : "


class Expression:
    """Writes an expression, and remembers which phrase of it weighs how much."""

    def __init__(self, rarity: Mapping[str, float], wider: Wider | None = None, column: str = _TEXT) -> None:
        self.weights: list[float] = []
        self._rarity = rarity
        self._wider = wider
        self._column = column

    def of(self, node: Node, sign: float = 1.0) -> str:
        """Write a node; the phrases of what is excluded weigh nothing."""
        if isinstance(node, Words):
            return self._words(node, sign)
        if isinstance(node, Either):
            return "(" + " OR ".join(self.of(item, sign) for item in node.any_of) + ")"
        return self._both(node, sign)

    def _both(self, node: Both, sign: float) -> str:
        these = [self.of(item, sign) for item in node.these] or [self.tag(ALL)]
        text = " AND ".join(these)
        if not node.none_of:
            return f"({text})"
        # What is excluded is meant as it stands, also where the rest is taken more widely.
        wider, self._wider = self._wider, None
        none_of = " OR ".join(self.of(item, 0.0) for item in node.none_of)
        self._wider = wider
        return f"(({text}) NOT ({none_of}))"

    def _words(self, node: Words, sign: float) -> str:
        phrases = self._forms(node)
        weight = sign * sum(self._rarity.get(token, 1.0) for token in node.tokens)
        self.weights += [weight] * len(phrases)
        # A piece of code that ends in the middle of a word: onnect_tim in connect_timeout.
        star = " *" if node.prefix or (self._wider is not None and node.goes_on) else ""
        texts = [f"{self._column}{' + '.join(map(_quoted, phrase))}{star}" for phrase in phrases]
        return texts[0] if len(texts) == 1 else "(" + " OR ".join(texts) + ")"

    def _forms(self, node: Words) -> list[Sequence[str]]:
        first, rest = node.tokens[0], node.tokens[1:]
        wide = () if self._wider is None or node.quoted else self._wider.get((first, bool(rest)), ())
        return [(word, *rest) for word in wide] or [node.tokens]

    def weighed(self) -> str:
        """Give the weights of the phrases, in their order, as the engine's ranking takes them."""
        return ",".join(f"{weight:.4g}" for weight in self.weights)

    def tag(self, *names: str) -> str:
        """Write that a message has one of some properties."""
        self.weights += [0.0] * len(names)
        text = " OR ".join(_TAGS + _quoted(name) for name in names)
        return text if len(names) == 1 else f"({text})"


def _quoted(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


def within(expression: Expression, node: Node | None, filters: Filters, beyond: Node | None = None) -> str:
    """Write the whole condition: words, tags, and what an earlier, narrower search has found already."""
    parts = [expression.tag(ALL) if node is None else expression.of(node)]
    excluded: list[str] = []
    for kind, (some, none) in ((ROLE, filters.role), (TOOL, filters.tool)):
        if some:
            parts.append(expression.tag(*sorted(tag(kind, value) for value in some)))
        if none:
            excluded.append(expression.tag(*sorted(tag(kind, value) for value in none)))
    if beyond is not None:
        narrow = Expression({})
        excluded.append(narrow.of(beyond))
        expression.weights += [0.0] * len(narrow.weights)
    text = " AND ".join(parts)
    return f"({text}) NOT ({' OR '.join(excluded)})" if excluded else text


def rarity(counts: Mapping[str, int], most: int) -> dict[str, float]:
    """Weigh words: the rarer one is, the more a hit of it says. Counts stop at `most`."""
    return {word: math.log(1 + (2 * most + 0.5) / (count + 0.5)) for word, count in counts.items()}


def inside(found: Iterable[Words]) -> list[tuple[str, bool]]:
    """Name the pieces that may be looked for inside of words; True where they must be a word's end."""
    pieces: dict[tuple[str, bool], None] = {}
    for words in found:
        if words.has_inside:
            pieces[words.tokens[0], len(words.tokens) > 1] = None
    return list(pieces)
