"""Engine expressions of a query: an FTS5 expression for SQLite and a tsquery for PostgreSQL, with weights for ranking.

Both mean the same. Only folded tokens of letters and digits, in quotes, reach an expression, so typed text cannot be a
syntax error in it. In a tsquery, a lexeme that begins with = is a property of a message and no word.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

from recollect.model import json
from recollect.storage.search.analysis import ALL_TAG, ROLE_TAG, TOOL_TAG, encode_tag
from recollect.storage.search.query import AllOf, AnyOf, Filters, Node, Phrase, all_phrases

WordForms = Mapping[tuple[str, bool], Sequence[str]]
"""The words that contain a piece, or (True) that end with it."""

_TEXT_COLUMNS = "- tags : "
_TAGS_COLUMN = "tags : "


class Fts5Expression:
    """Builds an FTS5 expression, and collects the weights of its phrases."""

    def __init__(
        self, rarity: Mapping[str, float], wider: WordForms | None = None, column: str = _TEXT_COLUMNS
    ) -> None:
        self.weights: list[float] = []
        self._rarity = rarity
        self._wider = wider
        self._column = column

    def of(self, node: Node, factor: float = 1.0) -> str:
        """Return the expression of a node; excluded phrases have weight 0."""
        if isinstance(node, Phrase):
            return self._words(node, factor)
        if isinstance(node, AnyOf):
            return "(" + " OR ".join(self.of(item, factor) for item in node.any_of) + ")"
        return self._all_of(node, factor)

    def _all_of(self, node: AllOf, factor: float) -> str:
        required = [self.of(item, factor) for item in node.all_of] or [self.tag(ALL_TAG)]
        text = " AND ".join(required)
        if not node.none_of:
            return f"({text})"
        # Excluded words are matched exactly, also in a wider search.
        wider, self._wider = self._wider, None
        none_of = " OR ".join(self.of(item, 0.0) for item in node.none_of)
        self._wider = wider
        return f"(({text}) NOT ({none_of}))"

    def _words(self, node: Phrase, factor: float) -> str:
        phrases = self._forms(node)
        weight = factor * sum(self._rarity.get(token, 1.0) for token in node.tokens)
        self.weights += [weight] * len(phrases)
        # A piece of code that ends inside a word: onnect_tim in connect_timeout.
        star = " *" if node.prefix or (self._wider is not None and node.allows_prefix) else ""
        texts = [f"{self._column}{' + '.join(map(_quote, phrase))}{star}" for phrase in phrases]
        return texts[0] if len(texts) == 1 else "(" + " OR ".join(texts) + ")"

    def _forms(self, node: Phrase) -> list[Sequence[str]]:
        first, rest = node.tokens[0], node.tokens[1:]
        forms = () if self._wider is None or node.quoted else self._wider.get((first, bool(rest)), ())
        return [(word, *rest) for word in forms] or [node.tokens]

    def encoded_weights(self) -> str:
        """Return the weights of the phrases in order, as recollect_rank() takes them."""
        return ",".join(f"{weight:.4g}" for weight in self.weights)

    def tag(self, *names: str) -> str:
        """Return the condition that a message has one of some tags."""
        self.weights += [0.0] * len(names)
        text = " OR ".join(_TAGS_COLUMN + _quote(name) for name in names)
        return text if len(names) == 1 else f"({text})"


def _quote(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


def fts5_condition(expression: Fts5Expression, node: Node | None, filters: Filters, earlier: Node | None = None) -> str:
    """Return the complete condition: words, tags, and not the matches of an earlier, narrower search."""
    parts = [expression.tag(ALL_TAG) if node is None else expression.of(node)]
    exclusions: list[str] = []
    for kind, (any_of, none_of) in ((ROLE_TAG, filters.role), (TOOL_TAG, filters.tool)):
        if any_of:
            parts.append(expression.tag(*sorted(encode_tag(kind, value) for value in any_of)))
        if none_of:
            exclusions.append(expression.tag(*sorted(encode_tag(kind, value) for value in none_of)))
    if earlier is not None:
        narrow = Fts5Expression({})
        exclusions.append(narrow.of(earlier))
        expression.weights += [0.0] * len(narrow.weights)
    text = " AND ".join(parts)
    return f"({text}) NOT ({' OR '.join(exclusions)})" if exclusions else text


def rarity_weights(counts: Mapping[str, int], max_count: int) -> dict[str, float]:
    """Return the weight of each word: rarer words weigh more. Counts stop at `max_count`."""
    return {word: math.log(1 + (2 * max_count + 0.5) / (count + 0.5)) for word, count in counts.items()}


def infix_pieces(phrases: Iterable[Phrase]) -> list[tuple[str, bool]]:
    """Return the pieces that may match inside words; True if they must be the end of a word."""
    pieces: dict[tuple[str, bool], None] = {}
    for phrase in phrases:
        if phrase.allows_infix:
            pieces[phrase.tokens[0], len(phrase.tokens) > 1] = None
    return list(pieces)


_MAX_TOKEN_LENGTH, _TOKEN_PREFIX_LENGTH = 200, 160  # characters, as recollect.search_token() cuts them
_MAX_QUERY_BYTES = 500_000  # bytes. The server accepts 1 MB.
_MATCHES_NOTHING = "'='"


class TsqueryExpression:
    """Builds a tsquery, and collects the weights of its phrases."""

    def __init__(self, rarity: Mapping[str, float], wider: WordForms | None = None, *, loose: bool = False) -> None:
        self._weights: list[tuple[str, float]] = []
        self._rarity = rarity
        self._wider = wider
        self.loose = loose
        """Whether word positions are ignored, as a GIN index ignores them."""

    def of(self, node: Node, factor: float = 1.0) -> str:
        """Return the tsquery of a node; excluded phrases have no weight."""
        if isinstance(node, Phrase):
            return self._words(node, factor)
        if isinstance(node, AnyOf):
            return _join_or([self.of(item, factor) for item in node.any_of])
        return self._all_of(node, factor)

    def _all_of(self, node: AllOf, factor: float) -> str:
        required = [self.of(item, factor) for item in node.all_of] or [tag_condition(ALL_TAG)]
        # Excluded words are matched exactly, also in a wider search.
        wider, self._wider = self._wider, None
        none_of = [self.of(item, 0.0) for item in node.none_of if not self.loose or _has_no_phrase(item)]
        self._wider = wider
        return exclude(_join_and(required), none_of)

    def _words(self, node: Phrase, factor: float) -> str:
        first, rest = node.tokens[0], node.tokens[1:]
        forms: Sequence[str] = ()
        if self._wider is not None and not node.quoted:
            forms = self._wider.get((first, bool(rest)), ())
        prefix = node.prefix or (self._wider is not None and node.allows_prefix)
        alternatives = [forms or (first,), *((token,) for token in rest)]
        if self.loose:
            return _phrase(alternatives, prefix=prefix, by=" & ")
        phrase = _phrase(alternatives, prefix=prefix)
        if factor:
            self._weights.append((phrase, factor * sum(self._rarity.get(token, 1.0) for token in node.tokens)))
        return f"({phrase} | {_phrase_pairs(alternatives, prefix=prefix)})" if rest else phrase

    def encoded_phrases(self) -> str:
        """Return the phrases with their weights as JSON, as the ranking query takes them."""
        fitting = [] if sum(len(text) for text, _ in self._weights) > _MAX_QUERY_BYTES else self._weights
        return json.encode(fitting)


def tsquery_condition(
    expression: TsqueryExpression, node: Node | None, filters: Filters, earlier: Node | None = None
) -> str:
    """Return the complete condition: words, tags, and not the matches of an earlier, narrower search."""
    parts = [tag_condition(ALL_TAG) if node is None else expression.of(node)]
    exclusions: list[str] = []
    for kind, (any_of, none_of) in ((ROLE_TAG, filters.role), (TOOL_TAG, filters.tool)):
        if any_of:
            parts.append(tag_condition(*sorted(encode_tag(kind, value) for value in any_of)))
        if none_of:
            exclusions.append(tag_condition(*sorted(encode_tag(kind, value) for value in none_of)))
    if earlier is not None and (not expression.loose or _has_no_phrase(earlier)):
        exclusions.append(TsqueryExpression({}).of(earlier))
    return exclude(_join_and(parts), exclusions)


def _has_no_phrase(node: Node) -> bool:
    """Return whether a node has only single words."""
    return all(len(words.tokens) == 1 for words in all_phrases(node))


def exclude(text: str, exclusions: Sequence[str]) -> str:
    """Return the conjunction of a condition and the negation of others."""
    return f"({text} & !{_join_or(exclusions)})" if exclusions else text


def limit_size(text: str) -> str:
    """Return a tsquery, or one that matches nothing if it exceeds the limit of the server."""
    return text if len(text.encode()) <= _MAX_QUERY_BYTES else _MATCHES_NOTHING


def tag_condition(*tags: str) -> str:
    """Return the condition that a message has one of some tags."""
    return _join_or([f"'={_shorten_token(name)}'" for name in tags])


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
