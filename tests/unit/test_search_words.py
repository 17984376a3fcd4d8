"""Words: how text is folded, cut and found again where it was written."""

from __future__ import annotations

import sys

import apsw
import pytest

from recollect.ops.search.words import fold, spans, tag, terms, tokens


def cut(text: str) -> list[str]:
    return tokens(fold(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n.,;", []),
        ("Hello, World!", ["hello", "world"]),
        ("getUserName(x_1)", ["getusername", "x", "1"]),
        ("Café cafe\u0301", ["cafe", "cafe"]),
        ("Straße STRASSE ẞ", ["strasse", "strasse", "ss"]),
        ("Ærø Łódź þorn ħ ŧ Øre", ["aero", "lodz", "thorn", "h", "t", "ore"]),
        ("İI\u0131", ["iii"]),
        ("北京 北京", ["北", "京", "北", "京"]),
        ("abc北京def", ["abc", "北", "京", "def"]),
        ("ｶﾞ２Ａ", ["ガ", "2a"]),
        ("한국어", ["한국어"]),
        ("ที่", ["ท"]),
        ("👍🏽👨\u200d👩", ["👍", "👨", "👩"]),
        ("foo® 20°C ©2024 x™", ["foo", "20", "c", "2024", "x"]),
        ("a → b ≤ c ⟨d⟩", ["a", "b", "c", "d"]),
        ("½ ㎏ №5 ﬁ", ["1", "2", "kg", "no5", "fi"]),
        ("x\0y\ud800z", ["x", "y", "z"]),
        ("שָׁלוֹם مَرْحَبًا", ["שלום", "مرحبا"]),
    ],
)
def test_cut(text, words):
    assert cut(text) == words
    assert cut(text.upper()) == cut(text.lower()) or "İ" in text or "ẞ" in text


@pytest.mark.parametrize(
    "text", ["Ein Café, 北京 und 👍!", "ASCII only, x_1", "ｶﾞｷﾞ ½㎏ Foo™ \ud800x", "e\u0301e\u0301 ﷺ"]
)
def test_words_stand_where_they_were_written(text):
    assert [token for _, _, token in spans(text)] == cut(text)
    for low, high, token in spans(text):
        assert token in cut(text[low:high])


def test_spans():
    assert spans("Ein Café!") == [(0, 3, "ein"), (4, 8, "cafe")]
    assert spans("A b") == [(0, 1, "a"), (2, 3, "b")]
    assert spans("½") == [(0, 1, "1"), (0, 1, "2")]


def test_what_is_folded_can_be_written_as_utf_8():
    for text in ("\ud800", "a\udfffé", "é\ud83d", "\ud800北"):
        assert fold(text).encode() or not cut(text)


def test_terms_are_what_a_piece_can_be_inside_of():
    words = {"abc", "abcd", "12345", "1a2b", "f" * 20, "g" * 20, "x" * 64, "x" * 65, "0123456789abcdef0123"}
    assert terms(words) == sorted({"abcd", "1a2b", "g" * 20, "x" * 64})


def test_a_tag_is_one_token_whatever_it_is_made_of():
    values = ("", "read_file", "a b", "a_b", "a-b", "Große Suche", "北京", "—", "\ud800", "\0", "x" * 500)
    tags = [tag("t", value) for value in values]
    assert len(set(tags)) == len(tags)
    assert all(tokens(text) == [text] for text in tags)
    assert tag("t", "Read_File") == tag("t", "read_file")
    assert tag("r", "x") != tag("t", "x")


def test_sqlite_cuts_what_is_folded_at_the_same_places():
    """A word that SQLite's tokenizer does not see as one would be looked for in vain."""
    connection = apsw.Connection(":memory:")
    tokenizer = connection.fts5_tokenizer("unicode61", ["remove_diacritics", "0", "categories", "L* N* Co So"])
    for first in range(0, sys.maxunicode + 1, 4_096):
        text = " a ".join(map(chr, range(first, first + 4_096)))
        folded = fold(text)
        found = tokenizer(
            folded.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )
        assert list(found) == tokens(folded), hex(first)
    connection.close()
