"""Snippets: the excerpt of a text, and the marks in it."""

from __future__ import annotations

import random

import pytest

from recollect.model.search import Hit
from recollect.storage.search.analysis import fold
from recollect.storage.search.hits import SNIPPET_LENGTH, Needle, make_snippet


def needle(*tokens: str, prefix: bool = False, suffix: bool = False) -> Needle:
    return Needle(tokens, prefix, suffix)


def marked_texts(text: str, *needles: Needle) -> list[str]:
    snippet = make_snippet(text, needles)
    return [snippet.text[low:high] for low, high in snippet.marks]


def test_a_short_text_is_shown_whole():
    snippet = make_snippet("the quick fox", [needle("quick")])
    assert snippet == ("the quick fox", ((4, 9),), 1)


@pytest.mark.parametrize(
    ("text", "query", "marks"),
    [
        ("one two one", needle("one"), ["one", "one"]),
        ("one two", needle("two", "one"), []),
        ("one, two!", needle("one", "two"), ["one, two"]),
        ("getUserName", needle("username", suffix=True), ["getUserName"]),
        ("getUserName", needle("user"), []),
        ("getUserName", needle("get", prefix=True), ["getUserName"]),
        ("reconnect_timeout", needle("connect", "tim", prefix=True, suffix=True), ["reconnect_timeout"]),
        ("a connection", needle("connect", "tim", prefix=True, suffix=True), []),
        ("Ein CAFÉ", needle("cafe"), ["CAFÉ"]),
        ("北京北京", needle("北", "京"), ["北京", "北京"]),
        ("aa aa aa", needle("aa", "aa"), ["aa aa"]),
        ("½", needle("1", "2"), ["½"]),
        ("", needle("x"), []),
    ],
)
def test_matches_are_marked(text, query, marks):
    assert marked_texts(text, query) == marks


def test_several_needles_are_shown_together():
    text = "alpha " + "x " * 500 + "alpha beta gamma " + "y " * 500 + "gamma"
    snippet = make_snippet(text, [needle("alpha"), needle("beta"), needle("gamma")])
    assert snippet.needle_count == 3
    assert marked_texts(text, needle("alpha"), needle("beta"), needle("gamma")) == ["alpha", "beta", "gamma"]
    assert snippet.text.startswith("…")
    assert snippet.text.endswith("…")


@pytest.mark.parametrize("filler", ["word ", "wörd ", "北 ", "x", "é"])
def test_a_match_at_the_end_of_a_long_text_is_marked(filler):
    text = filler * (1_000_000 // len(filler)) + " Nadel im Heu"
    assert marked_texts(text, needle("nadel")) == ["Nadel"]
    assert marked_texts(text, needle("nadel", "im")) == ["Nadel im"]
    assert marked_texts(text, needle("heu"), needle("nadel")) == ["Nadel", "Heu"]


def test_a_common_word_does_not_hide_a_rare_one():
    text = "common " * 100_000 + "rare " + "common " * 100_000
    assert {"common", "rare"} == set(marked_texts(text, needle("common"), needle("rare")))


def test_a_match_at_the_edge_of_a_block_is_marked():
    for shift in range(40):
        text = "z " * 24_980 + "z" * shift + " first second " + "z " * 40_000
        assert marked_texts(text, needle("first", "second")) == ["first second"]


def test_a_snippet_is_one_line_of_bounded_length():
    random.seed(5)
    for _ in range(300):
        text = "".join(random.choice("ab é北\n\t\x1b\ud800.") for _ in range(random.randrange(600)))
        snippet = make_snippet(text, [needle("a"), needle("b", "a"), needle("北")])
        assert len(snippet.text) <= SNIPPET_LENGTH + 42
        assert all(char.isprintable() for char in snippet.text)
        previous_end = 0
        for low, high in snippet.marks:
            assert previous_end <= low < high <= len(snippet.text)
            assert set(fold(snippet.text[low:high])) & {"a", "北"}
            previous_end = high


def test_the_snippet_of_a_hit_contains_its_marks():
    hit = Hit("s", "t", "text", "a fox & a hen", ((2, 5), (10, 13)), 1.0, 1_763_287_200_123, "1.1", "user")
    assert hit.snippet == "a <mark>fox</mark> & a <mark>hen</mark>"
    assert hit.to_dict()["snippet"] == hit.snippet
    assert hit.to_dict()["created_at"] == "2025-11-16T10:00:00.123Z"
    assert Hit("s", None, "title", "x", (), 0.0, 0).snippet == "x"
