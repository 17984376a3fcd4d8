"""Statements as PostgreSQL is given them: without the conditions of parameters that were not given."""

from __future__ import annotations

import pytest

pytest.importorskip("psycopg")

from recollect.engine.postgres import book
from recollect.engine.postgres.book import Book, Statement

TEXT = "SELECT 1 FROM t WHERE (:a::text IS NULL OR x = :a::text) AND (:b::int IS NULL OR (y > (:b::int) AND (:c::int IS NULL OR z = :c)))"


@pytest.mark.parametrize(
    ("params", "text", "values"),
    [
        ({"a": None, "b": None, "c": None}, b"SELECT 1 FROM t WHERE true AND true", []),
        ({"a": "q"}, b"SELECT 1 FROM t WHERE (x = $1::text) AND true", [b"q"]),
        ({"b": 0}, b"SELECT 1 FROM t WHERE true AND ((y > ($1::int) AND true))", [b"0"]),
        ({"b": 2, "c": 3}, b"SELECT 1 FROM t WHERE true AND ((y > ($1::int) AND (z = $2)))", [b"2", b"3"]),
    ],
)
def test_conditions_of_what_is_not_given_are_left_out(params, text, values):
    statement = Statement("s", TEXT)
    form = statement.fitting(params)
    assert form.text == text
    assert form.values(params) == values
    assert statement.fitting(dict(params)) is form


def test_each_form_has_a_name_of_its_own():
    statement = Statement("s", TEXT)
    forms = [statement.fitting(params) for params in ({}, {"a": "x"}, {"b": 1}, {"a": "x", "b": 1}, {"c": 1})]
    assert len({form.name for form in forms}) == len(forms)
    assert all(form.fitting({}) is form for form in forms)


def test_what_is_left_of_a_parameter_that_is_not_given_is_null():
    statement = Statement(
        "s", "SELECT :a::text, 1 WHERE (:a::text IS NULL OR x = :a) AND NOT (:b::text IS NULL OR y = :b)"
    )
    assert statement.fitting({}).text == b"SELECT $1::text, 1 WHERE true AND NOT true"
    assert statement.fitting({}).values({}) == [None]
    with pytest.raises(KeyError):
        Statement("s", "SELECT :a::text").values({})


def test_forms_are_bounded(monkeypatch):
    monkeypatch.setattr(book, "_FORMS", 2)
    statement = Statement("s", TEXT)
    kept = [statement.fitting({"a": "x"}), statement.fitting({"b": 1})]
    assert statement.fitting({"c": 1}) is statement
    assert statement.values({"c": 1}) == [None, None, b"1"]
    assert [statement.fitting({"a": "y"}), statement.fitting({"b": 2})] == kept


def test_what_has_one_such_condition_is_left_as_it_is():
    statement = Statement("s", "SELECT 1 WHERE (:a::text IS NULL OR x = :a)")
    assert statement.fitting({"a": None}) is statement


def test_no_text_has_a_bracket_that_closes_nothing():
    whole = Book()
    for name in whole._texts:
        statement = whole.statement(name)
        for form in (statement, statement.fitting(dict.fromkeys(statement.names, None) | {"calls": []})):
            assert form.text.count(b"(") == form.text.count(b")"), name
