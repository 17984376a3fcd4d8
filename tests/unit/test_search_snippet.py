"""Snippets: the piece of a text that is shown, and the marks in it."""

from __future__ import annotations

import random

import pytest

from recollect.model.hit import Hit
from recollect.ops.search.snippet import LENGTH, Needle, excerpt
from recollect.ops.search.words import fold


def needle(*tokens: str, prefix: bool = False, suffix: bool = False) -> Needle:
    return Needle(tokens, prefix, suffix)


def marked(text: str, *needles: Needle) -> list[str]:
    found = excerpt(text, needles)
    return [found.text[low:high] for low, high in found.marks]


def test_a_short_text_is_shown_whole():
    found = excerpt("the quick fox", [needle("quick")])
    assert found == ("the quick fox", ((4, 9),), 1)


@pytest.mark.parametrize(
    ("text", "wanted", "marks"),
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
def test_marks(text, wanted, marks):
    assert marked(text, wanted) == marks


def test_several_needles_are_shown_together():
    text = "alpha " + "x " * 500 + "alpha beta gamma " + "y " * 500 + "gamma"
    found = excerpt(text, [needle("alpha"), needle("beta"), needle("gamma")])
    assert found.found == 3
    assert marked(text, needle("alpha"), needle("beta"), needle("gamma")) == ["alpha", "beta", "gamma"]
    assert found.text.startswith("…")
    assert found.text.endswith("…")


@pytest.mark.parametrize("filler", ["word ", "wörd ", "北 ", "x", "é"])
def test_a_hit_at_the_end_of_a_long_text(filler):
    text = filler * (1_000_000 // len(filler)) + " Nadel im Heu"
    assert marked(text, needle("nadel")) == ["Nadel"]
    assert marked(text, needle("nadel", "im")) == ["Nadel im"]
    assert marked(text, needle("heu"), needle("nadel")) == ["Nadel", "Heu"]


def test_a_common_word_does_not_hide_a_rare_one():
    text = "common " * 100_000 + "rare " + "common " * 100_000
    assert {"common", "rare"} == set(marked(text, needle("common"), needle("rare")))


def test_a_hit_at_the_edge_of_a_block():
    for shift in range(40):
        text = "z " * 24_980 + "z" * shift + " first second " + "z " * 40_000
        assert marked(text, needle("first", "second")) == ["first second"]


def test_it_is_one_line_of_bounded_length():
    random.seed(5)
    for _ in range(300):
        text = "".join(random.choice("ab é北\n\t\x1b\ud800.") for _ in range(random.randrange(600)))
        found = excerpt(text, [needle("a"), needle("b", "a"), needle("北")])
        assert len(found.text) <= LENGTH + 42
        assert all(char.isprintable() for char in found.text)
        at = 0
        for low, high in found.marks:
            assert at <= low < high <= len(found.text)
            assert set(fold(found.text[low:high])) & {"a", "北"}
            at = high


def test_a_hit_writes_its_marks():
    hit = Hit("s", "t", "text", "a fox & a hen", ((2, 5), (10, 13)), 1.0, 1_763_287_200_123, "1.1", "user")
    assert hit.snippet == "a <mark>fox</mark> & a <mark>hen</mark>"
    assert hit.to_dict()["snippet"] == hit.snippet
    assert hit.to_dict()["created_at"] == "2025-11-16T10:00:00.123Z"
    assert Hit("s", None, "title", "x", (), 0.0, 0).snippet == "x"
