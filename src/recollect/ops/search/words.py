"""Words as search knows them: folded, so that A finds Å and ss finds ß; a Chinese or Japanese character is one each.

The same text goes to every engine's index and into every query, so that both are cut the same way. What is folded is
ASCII, or words with spaces between them: an engine's own tokenizer only has to split at what is neither letter nor
digit nor symbol.
"""

from __future__ import annotations

import re
import unicodedata

from recollect.model.title import PLAIN

SHORTEST_INSIDE = 3
"""Of how many characters at least a term is, to be looked for inside of words."""

_LONGEST_TERM = 64
_LONG_NUMBER = 20

# Scripts that are written without spaces, and pictures: each character is a word of its own.
_WHOLE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
_MIXED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2190, 0x2BFF), (0x2E80, 0x2FDF), (0x3005, 0x3007),
    (0x3021, 0x3029), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x1F000, 0x1FAFF),
)  # fmt: skip
# Of the mixed ones, marks, brackets, arrows and signs of mathematics are no words: FTS5 has none of them as a token.
_NO_WORD = ("M", "P", "Z", "Cc", "Cf", "Sc", "Sk", "Sm")


def _words_among(first: int, last: int) -> str:
    """Write the words of a block as ranges: a set of single characters beyond the first 65,536 is slow to match."""
    found: list[list[int]] = []
    for code in range(first, last + 1):
        if unicodedata.category(chr(code)).startswith(_NO_WORD):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in found)


_SINGLE = _WHOLE + "".join(_words_among(first, last) for first, last in _MIXED)
# Marks above and below letters: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670"

# Signs that stand for letters: kg in one, numero, a circled A.
_LETTERED = "\u2100-\u2121\u2123-\u214f\u24b6-\u24e9\u3200-\u33ff"
# Letters to Python that FTS5 takes for vowel signs.
_VOWELS = "\u19b0-\u19c9\u1cf2\u1cf3"

_marks = re.compile(f"[{_MARKS}]")
_token = re.compile(f"[{_SINGLE}]|[^\\W_{_SINGLE}{_VOWELS}]+")
_written = re.compile(f"[{_SINGLE}]|(?:[^\\W_{_SINGLE}{_VOWELS}]|[{_MARKS}{_LETTERED}])+")
_ascii_token = re.compile(r"[a-z0-9]+")
_hexadecimal = re.compile(r"[0-9a-f]+")

# Letters that have no accent to take away, but that people type without it: some more than titles are put in order by.
_PLAIN = PLAIN | str.maketrans({"\u0131": "i", "ħ": "h", "ŧ": "t"})


def fold(text: str) -> str:
    """Write a text as it is indexed: small letters without accents, and nothing but words where it is not ASCII."""
    return text.lower() if text.isascii() else " ".join(_token.findall(_bare(text)))


def _bare(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.replace("™", " ")).casefold().translate(_PLAIN)
    return unicodedata.normalize("NFC", _marks.sub("", unicodedata.normalize("NFD", plain)))


def tokens(folded: str) -> list[str]:
    """Cut a folded text into its tokens."""
    return (_ascii_token if folded.isascii() else _token).findall(folded)


def spans(text: str) -> list[tuple[int, int, str]]:
    """Find the tokens of a text as it was written: where each begins and ends, and how it is folded.

    What is folded to several has the same place for all of them.
    """
    if text.isascii():
        return [(match.start(), match.end(), match[0]) for match in _ascii_token.finditer(text.lower())]
    return [
        (match.start(), match.end(), token) for match in _written.finditer(text) for token in tokens(fold(match[0]))
    ]


def terms(words: set[str]) -> list[str]:
    """Choose the words that may be looked for by a piece from inside of them."""
    return sorted(filter(_has_inside, words))


def _has_inside(word: str) -> bool:
    if not SHORTEST_INSIDE < len(word) <= _LONGEST_TERM or word.isdecimal():
        return False
    return len(word) < _LONG_NUMBER or not _hexadecimal.fullmatch(word)


def tag(kind: str, value: str = "") -> str:
    """Write a property of a message as one token, whatever it is made of: the role, the tool, the model."""
    # Half of a surrogate pair can not be written as UTF-8.
    return kind + _bare(value).encode("utf-8", "replace").hex()
