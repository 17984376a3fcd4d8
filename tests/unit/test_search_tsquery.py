"""A query as PostgreSQL takes it."""

from __future__ import annotations

import json

import pytest

from recollect.ops.search.query import parse
from recollect.ops.search.tsquery import Sought, fitting, within


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("red", "'red'"),
        ("red*", "'red':*"),
        ("red sky", "('red' & 'sky')"),
        ("red OR sky", "('red' | 'sky')"),
        ("red -sky", "('red' & !'sky')"),
        ("-sky", "('=a' & !'sky')"),
        ("-(red OR sky)", "('=a' & !('red' | 'sky'))"),
        ("red.sky", "(('red' <-> 'sky') | '=+red sky')"),
        ('"a b c"*', "(('a' <-> 'b' <-> 'c':*) | ('=+a b' & '=+b c':*))"),
        ("role:user", "('=a' & '=r75736572')"),
        ("red -role:user", "('red' & !'=r75736572')"),
    ],
)
def test_written(typed: str, written: str):
    query = parse(typed, 0)
    assert within(Sought({}), query.words, query.filters) == written


def test_wider():
    query = parse("abc -abc x.y", 0)
    wider = {("abc", False): ["abc", "xabc"]}
    text = within(Sought({}, wider), query.words, query.filters, parse("abc", 0).words)
    assert text == "(((('abc' | 'xabc') & (('x' <-> 'y':*) | '=+x y':*)) & !'abc') & !'abc')"


def test_phrases_weigh_what_their_words_do():
    query = parse("rare OR usual.usual -gone", 0)
    sought = Sought({"rare": 3.0, "usual": 0.5, "gone": 9.0})
    sought.of(query.words)
    assert json.loads(sought.phrases()) == [["'rare'", 3.0], ["('usual' <-> 'usual')", 1.0]]


def test_a_long_word_is_cut_and_told_apart():
    one, other = (Sought({}).of(parse("x" * 300 + end, 0).words) for end in "ab")
    assert one != other
    assert len(one) == len(other) == 160 + 32 + 2
    assert Sought({}).of(parse("x" * 300 + "*", 0).words) == f"'{'x' * 160}':*"


def test_what_is_too_large_finds_nothing():
    assert fitting("'a'") == "'a'"
    assert fitting("'a' | " * 100_000) == "'='"
