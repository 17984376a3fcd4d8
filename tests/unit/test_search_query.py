"""The query language: what a text is read as."""

from __future__ import annotations

import datetime

import pytest

from recollect.errors import InvalidValue
from recollect.ops.search.match import Expression, inside, rarity, within
from recollect.ops.search.query import (
    NO_FILTERS,
    Both,
    Either,
    Words,
    moment,
    parse,
    positive,
    values,
)

NOW = 1_763_287_200_123  # 2025-11-16T10:00:00.123Z
MIDNIGHT = 1_763_251_200_000
DAY = 86_400_000


def word(*tokens: str, prefix: bool = False, quoted: bool = False) -> Words:
    return Words(tokens, prefix, quoted)


def read(text: str):
    return parse(text, NOW).words


def filters(text: str) -> dict:
    found = parse(text, NOW).filters
    return {name: value for name, value, none in zip(found._fields, found, NO_FILTERS, strict=True) if value != none}


A, B, C = word("a"), word("b"), word("c")


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("", None),
        ("()", None),
        ("a", A),
        ("A", A),
        ("a b", Both((A, B), ())),
        ("a AND b", Both((A, B), ())),
        ("a OR b", Either((A, B))),
        ("a b OR c", Either((Both((A, B), ()), C))),
        ("a (b OR c)", Both((A, Either((B, C))), ())),
        ("a -b", Both((A,), (B,))),
        ("a NOT b", Both((A,), (B,))),
        ("a AND NOT b", Both((A,), (B,))),
        ("NOT a", Both((), (A,))),
        ("NOT NOT a", A),
        ("NOT -a", A),
        ("-(a b)", Both((), (Both((A, B), ()),))),
        ("a-b", word("a", "b")),
        ("--a", A),
        ("- a", A),
        ("a*", word("a", prefix=True)),
        ("a**", word("a", prefix=True)),
        ("*", None),
        ('"a b"', word("a", "b", quoted=True)),
        ('"a b"*', word("a", "b", prefix=True, quoted=True)),
        ('"a b', word("a", "b", quoted=True)),
        ('a"b"', Both((A, word("b", quoted=True)), ())),
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
def test_words(text, node):
    assert read(text) == node


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


def test_a_filter_holds_wherever_it_stands():
    assert filters("(a OR role:user) b") == filters("role:user a b")
    assert read("(a OR role:user) b") == Both((A, B), ())


def test_long_queries_are_cut_short():
    assert len(list(positive(read("a " * 1_000)))) == 48
    assert len(read('"' + "a " * 1_000 + '"').tokens) == 64
    assert len(read("a." * 1_000).tokens) == 64
    assert not read("a." * 1_000 + "*").prefix
    assert len(read("AND " * 1_000).tokens) == 64


def test_what_is_looked_for_is_what_is_not_excluded():
    assert list(positive(read("a -b (c OR -d)"))) == [A, C]
    assert list(positive(None)) == []


def test_times_that_a_caller_gives():
    day = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    assert moment(day, "since", NOW) == moment("2025", "since", NOW) == 1_735_689_600_000
    assert moment(day.date(), "since", NOW) == 1_735_689_600_000
    assert moment(day.replace(tzinfo=None), "since", NOW) == 1_735_689_600_000
    assert (moment(0, "since", NOW), moment(None, "since", NOW)) == (0, None)
    for odd in (True, 1.5, "x", "", 1 << 62, datetime.timedelta(1)):
        with pytest.raises(InvalidValue):
            moment(odd, "since", NOW)


def test_values_that_a_caller_gives():
    assert (values(None), values("a"), values(["a", "b"])) == (frozenset(), {"a"}, {"a", "b"})
    for odd in (5, [5], b"x", ["a", None]):
        with pytest.raises(InvalidValue):
            values(odd)


class TestExpression:
    """What SQLite's full-text search is asked."""

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
    def test_written(self, text, expected):
        expression = Expression({})
        assert expression.of(read(text)) == expected
        assert len(expression.weights) == expected.count('"') // 2 - expected.count("+")

    def test_what_is_excluded_weighs_nothing_and_is_meant_as_it_stands(self):
        expression = Expression(
            {"abc": 2.0, "abd": 3.0}, {("abc", False): ["abc", "xabc"], ("abd", False): ["abd", "xabd"]}
        )
        text = expression.of(read("abc -abd"))
        assert "xabc" in text
        assert "xabd" not in text
        assert expression.weights == [2.0, 2.0, 0.0]
        assert expression.weighed() == "2,2,0"

    def test_what_is_quoted_is_not_looked_for_inside_of_words(self):
        assert inside(positive(read('"abc" abd abe_f'))) == [("abd", False), ("abe", True)]
        expression = Expression({}, {("abc", False): ["abc", "xabc"]})
        assert "xabc" not in expression.of(read('"abc"'))
        assert "*" not in expression.of(read('"abc d"'))
        assert "*" in expression.of(read("abc_d"))
        assert "xabc" in expression.of(read("abc"))
        assert "xabc" not in expression.of(read("abc_d"))  # that would have to be its end

    def test_filters_are_tags(self):
        expression = Expression({})
        query = parse("a role:user -tool:x", NOW)
        user, tool = "r" + b"user".hex(), "t" + b"x".hex()
        assert (
            within(expression, query.words, query.filters)
            == f'(- tags : "a" AND tags : "{user}") NOT (tags : "{tool}")'
        )
        assert expression.weights == [1.0, 0.0, 0.0]

    def test_rare_words_weigh_more(self):
        weights = rarity({"often": 2_000, "some": 100, "never": 0}, 2_000)
        assert 0 < weights["often"] < weights["some"] < weights["never"]
