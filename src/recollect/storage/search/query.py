"""The query language: the typed text as a tree of words and phrases, with filters.

    deploy failed            both words, in any order
    "exact words" pre*       a phrase; the beginning of a word
    red OR blue, NOT green   also `-green`; AND is understood; (brackets) group
    role: tool: context: model: channel: status: label: session: before: after: pinned: archived:

Every text is a valid query: anything that is not an operator is a word, an unclosed quote ends with the text, and
brackets and operators without an operand are ignored. A filter applies to the whole query, in any position;
after NOT or `-`, it excludes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from recollect.model import validation
from recollect.model.message import ROLES
from recollect.model.session import SESSION_STATUSES
from recollect.model.times import DAY, TimeLike, parse_time_text, to_milliseconds
from recollect.storage.search.analysis import (
    ALL_TAG,
    CONTEXT_TAG,
    MIN_INFIX_LENGTH,
    ROLE_TAG,
    TOOL_TAG,
    encode_tag,
    fold,
    tokenize,
)
from recollect.storage.session_filters import NO_SESSION_FILTERS, SessionFilters

# Limits of a query, so that any pasted text is searched in bounded time. The excess is ignored.
_MAX_WORDS = 48  # words, phrases and filters
_MAX_PHRASE_TOKENS = 64  # words of a phrase
_MAX_DEPTH = 12  # nested brackets
_END_OF_TIME = 1 << 62  # milliseconds, later than any stored time
_BOOLEANS = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}

_LEXEME_PATTERN = re.compile(
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
_AGO_PATTERN = re.compile(r"(\d{1,4})([dwmy])")
_UNIT_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


class Phrase(NamedTuple):
    """A word or a phrase. With `prefix`, the last word may be longer; with `quoted`, it is matched literally."""

    tokens: tuple[str, ...]
    prefix: bool
    quoted: bool

    @property
    def allows_infix(self) -> bool:
        """True if it may match inside longer words."""
        return not self.quoted and len(self.tokens[0]) >= MIN_INFIX_LENGTH

    @property
    def allows_prefix(self) -> bool:
        """True if its last word may be a prefix, for a phrase that ends inside a word."""
        return not self.quoted and len(self.tokens) > 1


class Tag(NamedTuple):
    """A property of a message, such as its role. Only a condition for an engine has tags, a parsed text has none."""

    name: str


class AllOf(NamedTuple):
    """A conjunction: all of some nodes and none of others."""

    all_of: tuple[Node, ...]
    none_of: tuple[Node, ...]


class AnyOf(NamedTuple):
    """A disjunction of nodes."""

    any_of: tuple[Node, ...]


Node: TypeAlias = "Phrase | Tag | AllOf | AnyOf"


class Filters(NamedTuple):
    """The filters of a query. A pair of sets means: one of the first, and none of the second.

    Of the first labels, a session has all. The last four filters are those of SessionFilters, which cannot be typed.
    """

    role: tuple[frozenset[str], frozenset[str]]
    tool: tuple[frozenset[str], frozenset[str]]
    context: tuple[frozenset[str], frozenset[str]]
    model: tuple[frozenset[str], frozenset[str]]
    channel: tuple[frozenset[str], frozenset[str]]
    status: tuple[frozenset[str], frozenset[str]]
    label: tuple[frozenset[str], frozenset[str]]
    session: str | None
    no_session: frozenset[str]
    since: int | None
    until: int | None
    pinned: bool | None
    archived: bool | None
    external_id: str | None = None
    id_prefix: str | None = None
    id_limit: str | None = None
    metadata: str | None = None


_NO_CONDITION: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
NO_FILTERS = Filters(
    role=_NO_CONDITION, tool=_NO_CONDITION, context=_NO_CONDITION, model=_NO_CONDITION, channel=_NO_CONDITION,
    status=_NO_CONDITION, label=_NO_CONDITION, session=None, no_session=frozenset(), since=None, until=None,
    pinned=None, archived=None,
)  # fmt: skip


class ParsedQuery(NamedTuple):
    """A parsed query."""

    words: Node | None
    filters: Filters


_SET_FILTERS = ("role", "tool", "context", "model", "channel", "status", "label")
_SINGLE_FILTERS = ("session", "since", "until", "pinned", "archived")


class _Lexeme(NamedTuple):
    kind: str
    text: str
    name: str = ""
    prefix: bool = False


def parse_query(text: str, now: int) -> ParsedQuery:
    """Parse a query. `now` is the reference of relative times, in milliseconds."""
    query = _QueryParser(text, now).read()
    if query.words is None and query.filters == NO_FILTERS:  # operators alone are words
        tokens = tuple(tokenize(fold(text))[:_MAX_PHRASE_TOKENS])
        return ParsedQuery(Phrase(tokens, prefix=False, quoted=False) if tokens else None, NO_FILTERS)
    return query


class _QueryParser:
    """A recursive descent parser.

    or = and {"OR" and};  and = {{"AND" | "NOT" | "-"} operand};  operand = word | phrase | filter | "(" or ")"
    """

    def __init__(self, text: str, now: int) -> None:
        self.now = now
        self.lexemes = list(_lexemes(text))
        self.at = 0
        self.sets: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in _SET_FILTERS}
        self.single: dict[str, str | int | bool] = {}
        self.no_session: set[str] = set()
        self.negated = False

    def read(self) -> ParsedQuery:
        nodes: list[Node] = []
        while self.at < len(self.lexemes):  # an unmatched closing bracket is skipped
            node = self._parse_or(0)
            if node is not None:
                nodes.append(node)
            self.at += 1
        return ParsedQuery(_make_all_of(nodes, []), self._filters())

    def _filters(self) -> Filters:
        sets = {name: (frozenset(any_of), frozenset(none_of)) for name, (any_of, none_of) in self.sets.items()}
        single = {name: self.single.get(name) for name in _SINGLE_FILTERS}
        return Filters(**sets, **single, no_session=frozenset(self.no_session))  # type: ignore[arg-type]

    def _peek(self) -> _Lexeme | None:
        return self.lexemes[self.at] if self.at < len(self.lexemes) else None

    def _parse_or(self, depth: int) -> Node | None:
        nodes: list[Node] = []
        while True:
            node = self._parse_and(depth)
            if node is not None:
                nodes.append(node)
            lexeme = self._peek()
            if lexeme is None or lexeme.kind != "OR":
                break
            self.at += 1
        return _make_any_of(nodes)

    def _parse_and(self, depth: int) -> Node | None:
        required: list[Node] = []
        none_of: list[Node] = []
        while (
            (lexeme := self._peek()) is not None
            and lexeme.kind != "OR"
            and (lexeme.kind, lexeme.text) != ("bracket", ")")
        ):
            negative = False
            while lexeme is not None and lexeme.kind in ("AND", "NOT", "minus"):
                negative ^= lexeme.kind != "AND"
                self.at += 1
                lexeme = self._peek()
            node = self._parse_operand(depth, negative=negative)
            if node is not None:
                (none_of if negative else required).append(node)
        return _make_all_of(required, none_of)

    def _parse_operand(self, depth: int, *, negative: bool) -> Node | None:
        lexeme = self._peek()
        if lexeme is None or lexeme.kind == "OR" or (lexeme.kind, lexeme.text) == ("bracket", ")"):
            return None
        self.at += 1
        if lexeme.kind == "bracket":
            return self._parse_group(depth, negative=negative)
        if lexeme.kind == "filter" and self._add_filter(lexeme, negative=negative ^ self.negated):
            return None
        return _make_phrase(lexeme)

    def _parse_group(self, depth: int, *, negative: bool) -> Node | None:
        if depth >= _MAX_DEPTH:  # the group is ignored
            return None
        previous, self.negated = self.negated, self.negated ^ negative
        node = self._parse_or(depth + 1)
        self.negated = previous
        self.at += 1
        return node

    def _add_filter(self, lexeme: _Lexeme, *, negative: bool) -> bool:
        """Add a filter; return False if its value is invalid, so that its text is searched."""
        name, value = lexeme.name, lexeme.text
        if name in _SET_FILTERS:
            if (
                (name == "role" and value.lower() not in ROLES)
                or (name == "status" and value.lower() not in SESSION_STATUSES)
                or (name == "context" and not tokenize(fold(value)))
            ):
                return False
            self.sets[name][negative].add(value.lower() if name in ("role", "status") else value)
            return True
        if name == "session":
            if negative:
                self.no_session.add(value)
            else:
                self.single["session"] = value
            return True
        if name in ("before", "after"):
            return self._add_time_filter(value, until=(name == "before") is not negative)
        flag = _BOOLEANS.get(value.lower())
        if flag is not None:
            self.single[name] = flag is not negative
        return flag is not None

    def _add_time_filter(self, value: str, *, until: bool) -> bool:
        time_ms = _parse_time(value, self.now)
        if time_ms is None:
            return False
        self.single["until" if until else "since"] = time_ms
        return True


_FILTER_NAMES = (*_SET_FILTERS, "session", "before", "after", "pinned", "archived")


def _lexemes(text: str) -> Iterator[_Lexeme]:
    words = 0
    for match in _LEXEME_PATTERN.finditer(text):
        kind = match.lastgroup
        lexeme = None
        if match["bracket"]:
            lexeme = _Lexeme("bracket", match["bracket"])
        elif match["minus"]:
            lexeme = _Lexeme("minus", "-")
        elif match["name"]:
            lexeme = _filter_lexeme(match)
        elif match["phrase"] is not None:
            lexeme = _Lexeme("phrase", match["phrase"], prefix=bool(match["star"]))
        elif match["word"]:
            lexeme = _word_lexeme(match["word"])
        if lexeme is None or kind == "space":
            continue
        words += lexeme.kind in ("word", "phrase", "filter")
        if words > _MAX_WORDS:
            return
        yield lexeme


def _filter_lexeme(match: re.Match[str]) -> _Lexeme:
    name, value = match["name"].lower(), match["value"] if match["quoted"] is None else match["quoted"]
    if name in _FILTER_NAMES and value:
        return _Lexeme("filter", value, name)
    return _word_lexeme(match[0]) if match["quoted"] is None else _Lexeme("word", match[0])


def _word_lexeme(word: str) -> _Lexeme:
    if word in ("AND", "OR", "NOT"):
        return _Lexeme(word, word)
    return _Lexeme("word", word.rstrip("*"), prefix=word.endswith("*"))


def _make_phrase(lexeme: _Lexeme) -> Phrase | None:
    text = f"{lexeme.name}:{lexeme.text}" if lexeme.kind == "filter" else lexeme.text
    tokens = tuple(tokenize(fold(text)))
    is_complete = len(tokens) <= _MAX_PHRASE_TOKENS
    return (
        Phrase(tokens[:_MAX_PHRASE_TOKENS], lexeme.prefix and is_complete, lexeme.kind == "phrase") if tokens else None
    )


def _make_all_of(required: list[Node], none_of: list[Node]) -> Node | None:
    if len(required) == 1 and not none_of:
        return required[0]
    return AllOf(tuple(required), tuple(none_of)) if required or none_of else None


def _make_any_of(nodes: list[Node]) -> Node | None:
    if len(nodes) < 2:  # noqa: PLR2004
        return nodes[0] if nodes else None
    return AnyOf(tuple(nodes))


def _parse_time(text: str, now: int) -> int | None:
    """Parse a date, a time, or 7d for seven days ago. Unlike in a duration, m is a month."""
    ago = _AGO_PATTERN.fullmatch(text.lower())
    return parse_time_text(text, now) if ago is None else now - int(ago[1]) * _UNIT_DAYS[ago[2]] * DAY


def combine_filters(
    query: ParsedQuery,
    *,
    session: str | None,
    sets: dict[str, frozenset[str]],
    since: int | None,
    until: int | None,
    archived: bool | None,
    pinned: bool | None,
    shared: SessionFilters = NO_SESSION_FILTERS,
) -> ParsedQuery:
    """Combine the typed filters with those of the caller; both must hold."""
    filters = query.filters
    session_id = session if filters.session is None else filters.session
    if (
        session is not None
        and session is not session_id
        and validation.check_plain_text("session", session) != session_id
    ):
        session_id = "\0"  # matches no session
    sets_by_name: dict[str, Any] = {}
    for name, values in sets.items():
        any_of, none_of = getattr(filters, name)
        sets_by_name[name] = (any_of & values if any_of and values else any_of | values, none_of)
        if any_of and values and not any_of & values:
            sets_by_name[name] = (frozenset(("\0",)), none_of)  # matches nothing
    return ParsedQuery(
        query.words,
        filters._replace(
            **sets_by_name,
            label=(filters.label[0].union(shared.label_list), filters.label[1]),
            external_id=shared.external_id,
            id_prefix=shared.id_prefix,
            id_limit=shared.id_limit,
            metadata=shared.metadata,
            session=session_id,
            since=max((time for time in (since, filters.since) if time is not None), default=None),
            until=min((time for time in (until, filters.until) if time is not None), default=None),
            archived=archived if archived is not None else filters.archived,
            pinned=pinned if pinned is not None else filters.pinned,
        ),
    )


def wanted_phrases(node: Node | None) -> Iterator[Phrase]:
    """Yield the phrases that a hit may contain."""
    return all_phrases(node, include_excluded=False)


def all_phrases(node: Node | None, *, include_excluded: bool = True) -> Iterator[Phrase]:
    """Yield all phrases, including the excluded ones."""
    if isinstance(node, Phrase):
        yield node
    elif node is not None and not isinstance(node, Tag):
        children = (
            node.any_of if isinstance(node, AnyOf) else (*node.all_of, *(node.none_of if include_excluded else ()))
        )
        for item in children:
            yield from all_phrases(item, include_excluded=include_excluded)


def infix_pieces(node: Node | None) -> list[tuple[str, bool]]:
    """Return the pieces that may match inside words; True if they must be the end of a word."""
    pieces = [(phrase.tokens[0], len(phrase.tokens) > 1) for phrase in wanted_phrases(node) if phrase.allows_infix]
    return list(dict.fromkeys(pieces))


def message_condition(words: Node | None, filters: Filters, *, narrower: Node | None = None) -> Node:
    """Return the condition for messages: the words, the tags, and not the matches of an earlier, narrower search."""
    required: list[Node] = [Tag(ALL_TAG) if words is None else words]
    none_of: list[Node] = []
    for kind, (values, exclusions) in ((ROLE_TAG, filters.role), (TOOL_TAG, filters.tool)):
        if values:
            required.append(AnyOf(_tags(kind, values)))
        none_of += _tags(kind, exclusions)
    values, exclusions = filters.context
    if values:
        required.append(AnyOf(tuple(map(_context_words, sorted(values)))))
    none_of += map(_context_words, sorted(exclusions))
    if narrower is not None:
        none_of.append(narrower)
    return AllOf(tuple(required), tuple(none_of)) if none_of or len(required) > 1 else required[0]


def _context_words(value: str) -> AllOf:
    """Return the condition that the context of a message has all words of a value."""
    return AllOf(_tags(CONTEXT_TAG, context_tokens([value])), ())


def context_tokens(values: Iterable[str]) -> list[str]:
    """Return the words of values of the filter `context`."""
    tokens = (token for value in values for token in tokenize(fold(value))[:_MAX_PHRASE_TOKENS])
    return list(dict.fromkeys(tokens))


def _tags(kind: str, values: Iterable[str]) -> tuple[Tag, ...]:
    return tuple(Tag(name) for name in sorted({encode_tag(kind, value) for value in values}))


def parse_time_argument(value: TimeLike | None, name: str, now: int) -> int | None:
    """Return a time argument in milliseconds."""
    from recollect.errors import InvalidValue, format_value  # noqa: PLC0415  only if one is set

    if value is None:
        return None
    time = _parse_time(value, now) if isinstance(value, str) else to_milliseconds(value)
    if time is None or abs(time) >= _END_OF_TIME:
        raise InvalidValue(
            f"{name} must be a time (milliseconds, a datetime, or text such as 2025-03-07), got {format_value(value)}."
        )
    return time
