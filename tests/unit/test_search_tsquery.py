"""Queries as tsquery expressions for PostgreSQL."""

from __future__ import annotations

import json

import pytest

from recollect.engine.postgres.search import PostgresSearch, limit_size
from recollect.storage.search.dialect import Condition, Expression
from recollect.storage.search.query import message_condition, parse_query


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_the_tsquery_of_a_query(text: str, expected: str):
    query = parse_query(text, 0)
    assert compile_condition(message_condition(query.words, query.filters)).text == expected


def compile_condition(node, word_weights=None, forms=None) -> Expression:
    return PostgresSearch().compile(Condition(node, word_weights or {}, forms))


def test_infix_matches_widen_only_wanted_words():
    query = parse_query("abc -abc x.y", 0)
    node = message_condition(query.words, query.filters, narrower=parse_query("abc", 0).words)
    text = compile_condition(node, forms={("abc", False): ["abc", "xabc"]}).text
    assert text == "(((('abc' | 'xabc') & (('x' <-> 'y':*) | '=+x y':*)) & !'abc') & !'abc')"


def test_a_phrase_weighs_the_sum_of_its_words():
    words = parse_query("rare OR usual.usual -gone", 0).words
    weights = compile_condition(words, {"rare": 3.0, "usual": 0.5, "gone": 9.0}).weights
    assert json.loads(weights) == [["'rare'", 3.0], ["('usual' <-> 'usual')", 1.0]]


def test_a_long_word_is_truncated_and_stays_distinct():
    one, other = (compile_condition(parse_query("x" * 300 + end, 0).words).text for end in "ab")
    assert one != other
    assert len(one) == len(other) == 160 + 32 + 2
    assert compile_condition(parse_query("x" * 300 + "*", 0).words).text == f"'{'x' * 160}':*"


def test_a_query_that_is_too_large_matches_nothing():
    assert limit_size("'a'") == "'a'"
    assert limit_size("'a' | " * 100_000) == "'='"
