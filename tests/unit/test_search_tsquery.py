"""Queries as tsquery expressions for PostgreSQL."""

from __future__ import annotations

import json

import pytest

from recollect.storage.search.expressions import TsqueryExpression, limit_size, tsquery_condition
from recollect.storage.search.query import parse_query


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
    assert tsquery_condition(TsqueryExpression({}), query.words, query.filters) == expected


def test_infix_matches_widen_only_wanted_words():
    query = parse_query("abc -abc x.y", 0)
    infix_matches = {("abc", False): ["abc", "xabc"]}
    text = tsquery_condition(
        TsqueryExpression({}, infix_matches), query.words, query.filters, parse_query("abc", 0).words
    )
    assert text == "(((('abc' | 'xabc') & (('x' <-> 'y':*) | '=+x y':*)) & !'abc') & !'abc')"


def test_a_phrase_weighs_the_sum_of_its_words():
    query = parse_query("rare OR usual.usual -gone", 0)
    expression = TsqueryExpression({"rare": 3.0, "usual": 0.5, "gone": 9.0})
    expression.of(query.words)
    assert json.loads(expression.encoded_phrases()) == [["'rare'", 3.0], ["('usual' <-> 'usual')", 1.0]]


def test_a_long_word_is_truncated_and_stays_distinct():
    one, other = (TsqueryExpression({}).of(parse_query("x" * 300 + end, 0).words) for end in "ab")
    assert one != other
    assert len(one) == len(other) == 160 + 32 + 2
    assert TsqueryExpression({}).of(parse_query("x" * 300 + "*", 0).words) == f"'{'x' * 160}':*"


def test_a_query_that_is_too_large_matches_nothing():
    assert limit_size("'a'") == "'a'"
    assert limit_size("'a' | " * 100_000) == "'='"
