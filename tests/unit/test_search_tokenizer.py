"""Tokens: how text is folded and split, and where each token is in the original text."""

from __future__ import annotations

import sys

import apsw
import pytest

from recollect.storage.search.analysis import encode_tag, fold, infix_terms, token_spans, tokenize


def tokens_of(text: str) -> list[str]:
    return tokenize(fold(text))


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_tokens_of_a_text(text, expected):
    assert tokens_of(text) == expected
    assert tokens_of(text.upper()) == tokens_of(text.lower()) or "İ" in text or "ẞ" in text


@pytest.mark.parametrize(
    "text", ["Ein Café, 北京 und 👍!", "ASCII only, x_1", "ｶﾞｷﾞ ½㎏ Foo™ \ud800x", "e\u0301e\u0301 ﷺ"]
)
def test_spans_are_those_of_the_original_text(text):
    assert [token for _, _, token in token_spans(text)] == tokens_of(text)
    for low, high, token in token_spans(text):
        assert token in tokens_of(text[low:high])


def test_examples_of_spans():
    assert token_spans("Ein Café!") == [(0, 3, "ein"), (4, 8, "cafe")]
    assert token_spans("A b") == [(0, 1, "a"), (2, 3, "b")]
    assert token_spans("½") == [(0, 1, "1"), (0, 1, "2")]


def test_folded_text_can_be_encoded_as_utf_8():
    for text in ("\ud800", "a\udfffé", "é\ud83d", "\ud800北"):
        assert fold(text).encode() or not tokens_of(text)


def test_infix_terms_are_words_that_can_contain_a_piece():
    words = {"abc", "abcd", "12345", "1a2b", "f" * 20, "g" * 20, "x" * 64, "x" * 65, "0123456789abcdef0123"}
    assert infix_terms(words) == sorted({"abcd", "1a2b", "g" * 20, "x" * 64})


def test_a_tag_is_one_token_for_any_value():
    values = ("", "read_file", "a b", "a_b", "a-b", "Große Suche", "北京", "—", "\ud800", "\0", "x" * 500)
    tags = [encode_tag("t", value) for value in values]
    assert len(set(tags)) == len(tags)
    assert all(tokenize(text) == [text] for text in tags)
    assert encode_tag("t", "Read_File") == encode_tag("t", "read_file")
    assert encode_tag("r", "x") != encode_tag("t", "x")


def test_sqlite_splits_folded_text_into_the_same_tokens():
    """A search would never match a word that SQLite's tokenizer splits differently."""
    connection = apsw.Connection(":memory:")
    tokenizer = connection.fts5_tokenizer("unicode61", ["remove_diacritics", "0", "categories", "L* N* Co So"])
    for first in range(0, sys.maxunicode + 1, 4_096):
        text = " a ".join(map(chr, range(first, first + 4_096)))
        folded_text = fold(text)
        sqlite_tokens = tokenizer(
            folded_text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )
        assert list(sqlite_tokens) == tokenize(folded_text), hex(first)
    connection.close()
