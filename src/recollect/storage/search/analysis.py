"""Text analysis: folding, tokens, and the index document of a message.

Text is folded so that A finds Å and ss finds ß; a Chinese or Japanese character is a token of its own. The same folded
text goes into every engine's index and into every query, so that both are tokenized alike. Folded text is ASCII, or
words separated by spaces: an engine's tokenizer only has to split at characters other than letters, digits and symbols.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from recollect.model.json import UNSET, decode, encode_standard
from recollect.model.message import (
    INJECTION_KEY,
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.title import TRANSLITERATION

MIN_INFIX_LENGTH = 3
"""Characters. Shorter pieces would match too many words."""

_MAX_TERM_LENGTH = 64  # characters. Longer words are data rather than language.
_MAX_HEX_LENGTH = 20  # characters. Longer hexadecimal words are hashes.

# Scripts without spaces, and pictographs: each character is a token.
_WORD_BLOCKS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
_MIXED_BLOCKS = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2190, 0x2BFF), (0x2E80, 0x2FDF), (0x3005, 0x3007),
    (0x3021, 0x3029), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x1F000, 0x1FAFF),
)  # fmt: skip
# Categories in mixed blocks that are not tokens: FTS5 does not tokenize marks, brackets, arrows and math signs.
_NON_WORD_CATEGORIES = ("M", "P", "Z", "Cc", "Cf", "Sc", "Sk", "Sm")


def _word_ranges(first: int, last: int) -> str:
    """Return the tokens of a block as regex ranges: single characters beyond U+FFFF are slow to match."""
    ranges: list[list[int]] = []
    for code in range(first, last + 1):
        if unicodedata.category(chr(code)).startswith(_NON_WORD_CATEGORIES):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


_SINGLE_CHARACTER_TOKENS = _WORD_BLOCKS + "".join(_word_ranges(first, last) for first, last in _MIXED_BLOCKS)
# Combining marks: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670"

# Symbols that expand to letters: a square kg, numero, a circled A.
_LETTER_SYMBOLS = "\u2100-\u2121\u2123-\u214f\u24b6-\u24e9\u3200-\u33ff"
# Letters in Python that are vowel signs in FTS5.
_VOWEL_SIGNS = "\u19b0-\u19c9\u1cf2\u1cf3"

_MARK_PATTERN = re.compile(f"[{_MARKS}]")
_TOKEN_PATTERN = re.compile(f"[{_SINGLE_CHARACTER_TOKENS}]|[^\\W_{_SINGLE_CHARACTER_TOKENS}{_VOWEL_SIGNS}]+")
_SOURCE_TOKEN_PATTERN = re.compile(
    f"[{_SINGLE_CHARACTER_TOKENS}]|(?:[^\\W_{_SINGLE_CHARACTER_TOKENS}{_VOWEL_SIGNS}]|[{_MARKS}{_LETTER_SYMBOLS}])+"
)
_ASCII_TOKEN_PATTERN = re.compile(r"[a-z0-9]+")
_HEX_PATTERN = re.compile(r"[0-9a-f]+")

# Letters without a decomposition that people type as ASCII; a few more than sort titles use.
_LETTER_FOLDING = TRANSLITERATION | str.maketrans({"\u0131": "i", "ħ": "h", "ŧ": "t"})


def fold(text: str) -> str:
    """Return a text as it is indexed: casefolded, without accents; if not ASCII, only its tokens."""
    return text.lower() if text.isascii() else " ".join(_TOKEN_PATTERN.findall(_fold_letters(text)))


def _fold_letters(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.replace("™", " ")).casefold().translate(_LETTER_FOLDING)
    return unicodedata.normalize("NFC", _MARK_PATTERN.sub("", unicodedata.normalize("NFD", plain)))


def tokenize(text: str) -> list[str]:
    """Return the tokens of a folded text."""
    return (_ASCII_TOKEN_PATTERN if text.isascii() else _TOKEN_PATTERN).findall(text)


def token_spans(text: str) -> list[tuple[int, int, str]]:
    """Return the tokens of the original text: start, end and folded token.

    A word that folds to several tokens has the same start and end for all of them.
    """
    if text.isascii():
        return [(match.start(), match.end(), match[0]) for match in _ASCII_TOKEN_PATTERN.finditer(text.lower())]
    return [
        (match.start(), match.end(), token)
        for match in _SOURCE_TOKEN_PATTERN.finditer(text)
        for token in tokenize(fold(match[0]))
    ]


def infix_terms(words: set[str]) -> list[str]:
    """Return the words that a search may find by a piece of them."""
    return sorted(filter(_is_infix_term, words))


def _is_infix_term(word: str) -> bool:
    if not MIN_INFIX_LENGTH < len(word) <= _MAX_TERM_LENGTH or word.isdecimal():
        return False
    return len(word) < _MAX_HEX_LENGTH or not _HEX_PATTERN.fullmatch(word)


def encode_tag(kind: str, value: str = "") -> str:
    """Return a property of a message, such as its role or tool, as one token."""
    # Half of a surrogate pair cannot be encoded as UTF-8.
    return kind + _fold_letters(value).encode("utf-8", "replace").hex()


ALL_TAG = "a"
ROLE_TAG, TOOL_TAG, CONTEXT_TAG = "r", "t", "i"
_MAX_CONTEXT_WORDS = 2_000  # different words of a message, about 10 pages, because tools repeat the same context
_MAX_JSON_LENGTH = 1_000_000  # characters. Longer results are indexed as text, to bound the time of parsing.


class TextPiece(NamedTuple):
    """One part of a message as text: its kind, the tool it belongs to, and the column it is indexed in."""

    kind: str
    text: str
    tool: str | None
    column: int


class IndexDocument(NamedTuple):
    """The columns of the index for one message."""

    text: str
    calls: str
    results: str
    tags: str


TEXT_COLUMN, CALLS_COLUMN, RESULTS_COLUMN = range(3)


def text_pieces(parts: Sequence[Part], tools: Mapping[int, str], *, context: bool = False) -> Iterator[TextPiece]:
    """Yield the searchable texts of a message; `tools` has the tool name of a result by part.

    With `context`, yield the context that a tool added to the message instead. It is repeated in every conversation,
    so only a filter finds it.
    """
    for index, part in enumerate(parts):
        if context is not (part.metadata is not None and INJECTION_KEY in part.metadata):
            continue
        if isinstance(part, TextPart | ReasoningPart):
            kind = "text" if isinstance(part, TextPart) else "reasoning"
            yield TextPiece(kind, part.text, None, TEXT_COLUMN)
        elif isinstance(part, ToolCallPart):
            yield TextPiece("tool_call", f"{part.tool} {_call_text(part)}", part.tool, CALLS_COLUMN)
        elif isinstance(part, ToolResultPart):
            tool = part.tool or tools.get(index)
            yield TextPiece("tool_result", _result_text(part), tool, RESULTS_COLUMN)
        elif isinstance(part, AttachmentPart):
            yield TextPiece(
                "attachment", " ".join(filter(None, (part.name, _readable_url(part.url)))), None, TEXT_COLUMN
            )
        else:
            yield TextPiece("data", _data_text(part), None, TEXT_COLUMN)


def _call_text(part: ToolCallPart) -> str:
    value = part.input
    return value if isinstance(value, str) else _json_text(value)


def _result_text(part: ToolResultPart) -> str:
    """Return a tool result as text; JSON without its escapes, which would become part of words."""
    text = part.output
    if text[:1] in ("{", "[") and len(text) <= _MAX_JSON_LENGTH:
        with contextlib.suppress(ValueError, RecursionError):
            text = _json_text(decode(text))
    error = part.error_message
    return text if error is None or error == text else f"{text} {error}".lstrip()


def _json_text(value: Any) -> str:
    """Return the names and values of a JSON value as text, in order."""
    words: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                stack += [inner, f"{key}:"]
        elif isinstance(item, list):
            stack += reversed(item)
        elif item is not None:
            words.append(item if isinstance(item, str) else encode_standard(item))
    return " ".join(words)


def _readable_url(url: str | None) -> str | None:
    return None if url is None or url.startswith("data:") else url


def _data_text(part: DataPart) -> str:
    value: Any = part.native if part.data is UNSET else part.data
    return _json_text(value)


def make_document(role: str, parts: Sequence[Part], tools: Mapping[int, str]) -> IndexDocument:
    """Return the index document of a message."""
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    tags = [ALL_TAG, encode_tag(ROLE_TAG, role)]
    for piece in text_pieces(parts, tools):
        columns[piece.column].append(piece.text)
        if piece.tool is not None:
            tags.append(encode_tag(TOOL_TAG, piece.tool))
    words = (word for piece in text_pieces(parts, tools, context=True) for word in tokenize(fold(piece.text)))
    tags += [encode_tag(CONTEXT_TAG, word) for word in islice(dict.fromkeys(words), _MAX_CONTEXT_WORDS)]
    text, calls, results = (fold("\n".join(texts)) for texts in columns)
    return IndexDocument(text, calls, results, " ".join(dict.fromkeys(tags)))
