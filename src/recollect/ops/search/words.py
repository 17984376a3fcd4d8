"""Words as search knows them: folded, so that A finds Å and ss finds ß; a Chinese or Japanese character is one each.

The same text goes to every engine's index and into every query, so that both are cut the same way. An engine's own
tokenizer only has to split at what is neither letter nor digit nor symbol.
"""

from __future__ import annotations

import re
import unicodedata

SHORTEST_INSIDE = 3
"""Of how many characters at least a term is, to be looked for inside of words."""

_LONGEST_TERM = 64
_LONG_NUMBER = 20

# Scripts that are written without spaces, and pictures: each character is a word of its own.
_SINGLE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2190-\u2bff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U0001f000-\U0001faff"
    "\U00020000-\U0003ffff"
)
# Marks above and below letters: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670"

_single = re.compile(f"([{_SINGLE}])")
_marks = re.compile(f"[{_MARKS}]")
_token = re.compile(f"[{_SINGLE}]|(?:[^\\W_{_SINGLE}]|[{_MARKS}])+")
_ascii_token = re.compile(r"[a-z0-9]+")
_hexadecimal = re.compile(r"[0-9a-f]+")

# Letters that have no accent to take away, but that people type without it.
_PLAIN = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "\u0131": "i", "ħ": "h", "ŧ": "t"}
)


def fold(text: str) -> str:
    """Write a text as it is indexed: small letters without accents, and single characters with space around them."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_PLAIN)
    bare = unicodedata.normalize("NFC", _marks.sub("", unicodedata.normalize("NFD", plain)))
    # What can not be written as UTF-8 can not be indexed: half of a surrogate pair.
    return _single.sub(r" \1 ", bare).encode("utf-8", "replace").decode()


def tokens(folded: str) -> list[str]:
    """Cut a folded text into its tokens."""
    return (_ascii_token if folded.isascii() else _token).findall(folded)


def spans(text: str) -> list[tuple[int, int, str]]:
    """Find the tokens of a text as it was written: where each begins and ends, and how it is folded."""
    if text.isascii():
        return [(match.start(), match.end(), match[0]) for match in _ascii_token.finditer(text.lower())]
    return [(match.start(), match.end(), fold(match[0]).strip()) for match in _token.finditer(text)]


def terms(words: set[str]) -> list[str]:
    """Choose the words that may be looked for by a piece from inside of them."""
    return sorted(filter(_has_inside, words))


def _has_inside(word: str) -> bool:
    if not SHORTEST_INSIDE < len(word) <= _LONGEST_TERM or word.isdecimal():
        return False
    return len(word) < _LONG_NUMBER or not _hexadecimal.fullmatch(word)


def tag(kind: str, value: str = "") -> str:
    """Write a property of a message as one token, whatever it is made of: the role, the tool, the model."""
    return kind + fold(value).encode().hex()
