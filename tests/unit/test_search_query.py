"""The query language: how a query is parsed and written for SQLite."""

from __future__ import annotations

import datetime

import pytest

from recollect.engine.sqlite.search import SqliteSearch
from recollect.errors import InvalidValue
from recollect.storage.search.dialect import Condition, Expression
from recollect.storage.search.query import (
    NO_FILTERS,
    AllOf,
    AnyOf,
    Phrase,
    infix_pieces,
    message_condition,
    parse_query,
    parse_time_argument,
    wanted_phrases,
)
from recollect.storage.search.retrieval import rarity_weights
from recollect.storage.session_filters import filter_values

NOW = 1_763_287_200_123  # milliseconds: 2025-11-16T10:00:00.123Z, an ordinary time
MIDNIGHT = 1_763_251_200_000  # milliseconds: the beginning of the day of NOW, in UTC
DAY = 86_400_000  # milliseconds, to compute relative times


def word(*tokens: str, prefix: bool = False, quoted: bool = False) -> Phrase:
    return Phrase(tokens, prefix, quoted)


def parse(text: str):
    return parse_query(text, NOW).words


def filters(text: str) -> dict:
    values = parse_query(text, NOW).filters
    return {
        name: value for name, value, default in zip(values._fields, values, NO_FILTERS, strict=True) if value != default
    }


A, B, C = word("a"), word("b"), word("c")


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("", None),
        ("()", None),
        ("a", A),
        ("A", A),
        ("a b", AllOf((A, B), ())),
        ("a AND b", AllOf((A, B), ())),
        ("a OR b", AnyOf((A, B))),
        ("a b OR c", AnyOf((AllOf((A, B), ()), C))),
        ("a (b OR c)", AllOf((A, AnyOf((B, C))), ())),
        ("a -b", AllOf((A,), (B,))),
        ("a NOT b", AllOf((A,), (B,))),
        ("a AND NOT b", AllOf((A,), (B,))),
        ("NOT a", AllOf((), (A,))),
        ("NOT NOT a", A),
        ("NOT -a", A),
        ("-(a b)", AllOf((), (AllOf((A, B), ()),))),
        ("a-b", word("a", "b")),
        ("--a", A),
        ("- a", A),
        ("a*", word("a", prefix=True)),
        ("a**", word("a", prefix=True)),
        ("*", None),
        ('"a b"', word("a", "b", quoted=True)),
        ('"a b"*', word("a", "b", prefix=True, quoted=True)),
        ('"a b', word("a", "b", quoted=True)),
        ('a"b"', AllOf((A, word("b", quoted=True)), ())),
        ("x:a", word("x", "a")),
        ("x:a*", word("x", "a", prefix=True)),
        ('x:"a b"', word("x", "a", "b")),
        ("https://a.b", word("https", "a", "b")),
        ("AND", word("and")),
        ("OR OR", word("or", "or")),
        ("a OR", A),
        ("OR a", A),
        ("a)", A),
        ("(a", A),
        ("((((a))))", A),
        ("role:nobody", word("role", "nobody")),
        ("after:never", word("after", "never")),
        ("pinned:perhaps", word("pinned", "perhaps")),
        ("role:", word("role")),
    ],
)
def test_words_and_operators(text, node):
    assert parse(text) == node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("role:user", {"role": ({"user"}, set())}),
        ("ROLE:User role:tool", {"role": ({"user", "tool"}, set())}),
        ("-role:user", {"role": (set(), {"user"})}),
        ("NOT role:user role:tool", {"role": ({"tool"}, {"user"})}),
        ("-(role:user tool:x)", {"role": (set(), {"user"}), "tool": (set(), {"x"})}),
        ("-(a -(role:user))", {"role": ({"user"}, set())}),
        ('tool:"my tool"', {"tool": ({"my tool"}, set())}),
        ("channel:Discord model:m-1", {"channel": ({"Discord"}, set()), "model": ({"m-1"}, set())}),
        ("status:FAILED", {"status": ({"failed"}, set())}),
        ("session:a:b", {"session": "a:b"}),
        ("-session:a -session:b", {"no_session": {"a", "b"}}),
        ("pinned:yes archived:0", {"pinned": True, "archived": False}),
        ("-pinned:yes", {"pinned": False}),
        ("after:2025 before:2025-03", {"since": 1_735_689_600_000, "until": 1_740_787_200_000}),
        ("-after:2025", {"until": 1_735_689_600_000}),
        ("after:today", {"since": MIDNIGHT}),
        ("after:yesterday before:now", {"since": MIDNIGHT - DAY, "until": NOW}),
        ("after:7d", {"since": NOW - 7 * DAY}),
        ("after:2w", {"since": NOW - 14 * DAY}),
        ("after:1y", {"since": NOW - 365 * DAY}),
        ("after:2025-03-07T12:00+02:00", {"since": 1_741_341_600_000}),
        ("after:1969", {"since": -365 * DAY}),
    ],
)
def test_filters(text, expected):
    assert filters(text) == expected


def test_a_filter_applies_to_the_whole_query():
    assert filters("(a OR role:user) b") == filters("role:user a b")
    assert parse("(a OR role:user) b") == AllOf((A, B), ())


def test_long_queries_are_truncated():
    assert len(list(wanted_phrases(parse("a " * 1_000)))) == 48
    assert len(parse('"' + "a " * 1_000 + '"').tokens) == 64  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert len(parse("a." * 1_000).tokens) == 64  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert not parse("a." * 1_000 + "*").prefix  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert len(parse("AND " * 1_000).tokens) == 64  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def test_excluded_phrases_are_not_wanted():
    assert list(wanted_phrases(parse("a -b (c OR -d)"))) == [A, C]
    assert list(wanted_phrases(None)) == []


def test_time_arguments():
    day = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    assert parse_time_argument(day, "since", NOW) == parse_time_argument("2025", "since", NOW) == 1_735_689_600_000
    assert parse_time_argument(day.date(), "since", NOW) == 1_735_689_600_000
    assert parse_time_argument(day.replace(tzinfo=None), "since", NOW) == 1_735_689_600_000
    assert (parse_time_argument(0, "since", NOW), parse_time_argument(None, "since", NOW)) == (0, None)
    for value in (True, 1.5, "x", "", 1 << 62, datetime.timedelta(1)):
        with pytest.raises(InvalidValue):
            parse_time_argument(value, "since", NOW)


def test_filter_arguments():
    assert (filter_values(None), filter_values("a"), filter_values(["a", "b"])) == (frozenset(), {"a"}, {"a", "b"})
    for value in (5, [5], b"x", ["a", None]):
        with pytest.raises(InvalidValue):
            filter_values(value)


def compile_condition(node, word_weights=None, forms=None) -> Expression:
    return SqliteSearch().compile(Condition(node, word_weights or {}, forms))


class TestExpression:
    """Expressions for SQLite's full-text search."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a", '- tags : "a"'),
            ("a b", '(- tags : "a" AND - tags : "b")'),
            ("a OR b", '(- tags : "a" OR - tags : "b")'),
            ("a -b", '((- tags : "a") NOT (- tags : "b"))'),
            ("-b", '((tags : "a") NOT (- tags : "b"))'),
            ('"a b"*', '- tags : "a" + "b" *'),
        ],
    )
    def test_the_expression_of_a_query(self, text, expected):
        expression = compile_condition(parse(text))
        assert expression.text == expected
        assert expression.weights.count(",") + 1 == expected.count('"') // 2 - expected.count("+")

    def test_excluded_words_have_no_weight_and_no_infix_matches(self):
        forms = {("abc", False): ["abc", "xabc"], ("abd", False): ["abd", "xabd"]}
        text, weights = compile_condition(parse("abc -abd"), {"abc": 2.0, "abd": 3.0}, forms)
        assert "xabc" in text
        assert "xabd" not in text
        assert weights == "2,2,0"

    def test_quoted_phrases_do_not_match_inside_words(self):
        assert infix_pieces(parse('"abc" abd abe_f')) == [("abd", False), ("abe", True)]
        forms = {("abc", False): ["abc", "xabc"]}
        for text, piece, is_found in (
            ('"abc"', "xabc", False), ('"abc d"', "*", False), ("abc_d", "*", True), ("abc", "xabc", True),
            # The first of several tokens must be the end of a word, which is the key ("abc", True).
            ("abc_d", "xabc", False),
        ):  # fmt: skip
            assert (piece in compile_condition(parse(text), forms=forms).text) == is_found, text

    def test_filters_are_tags(self):
        query = parse_query("a role:user -tool:x", NOW)
        user, tool = "r" + b"user".hex(), "t" + b"x".hex()
        assert compile_condition(message_condition(query.words, query.filters)) == (
            f'((- tags : "a" AND (tags : "{user}")) NOT (tags : "{tool}"))',
            "1,0,0",
        )

    def test_a_wider_search_excludes_the_narrow_matches(self):
        query = parse_query("abc", NOW)
        node = message_condition(query.words, query.filters, narrower=query.words)
        assert compile_condition(node, forms={("abc", False): ["abc", "xabc"]}) == (
            '(((- tags : "abc" OR - tags : "xabc")) NOT (- tags : "abc"))',
            "1,1,0",
        )

    def test_titles_have_no_tags(self):
        assert SqliteSearch().compile(Condition(parse("a b")), titles=True).text == '("a" AND "b")'

    def test_rare_words_weigh_more(self):
        weights = rarity_weights({"often": 2_000, "some": 100, "never": 0}, 2_000)
        assert 0 < weights["often"] < weights["some"] < weights["never"]
