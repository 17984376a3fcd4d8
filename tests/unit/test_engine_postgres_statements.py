"""Variants of prepared statements omit the conditions of parameters without a value."""

from __future__ import annotations

import pytest

pytest.importorskip("psycopg")

from recollect.engine.postgres import statements
from recollect.engine.postgres.statements import PreparedStatement, StatementRegistry

TEXT = "SELECT 1 FROM t WHERE (:a::text IS NULL OR x = :a::text) AND (:b::int IS NULL OR (y > (:b::int) AND (:c::int IS NULL OR z = :c)))"


@pytest.mark.parametrize(
    ("params", "text", "values"),
    [
        ({"a": None, "b": None, "c": None}, b"SELECT 1 FROM t WHERE true AND true", []),
        ({"a": "q"}, b"SELECT 1 FROM t WHERE (x = $1::text) AND true", ["q"]),
        ({"b": 0}, b"SELECT 1 FROM t WHERE true AND ((y > ($1::int) AND true))", [0]),
        ({"b": 2, "c": 3}, b"SELECT 1 FROM t WHERE true AND ((y > ($1::int) AND (z = $2)))", [2, 3]),
    ],
)
def test_conditions_without_a_value_are_omitted(params, text, values):
    statement = PreparedStatement("s", TEXT)
    variant = statement.variant_for(params)
    assert variant.text == text
    assert variant.values(params) == values
    assert statement.variant_for(dict(params)) is variant


def test_each_variant_has_its_own_name():
    statement = PreparedStatement("s", TEXT)
    variants = [statement.variant_for(params) for params in ({}, {"a": "x"}, {"b": 1}, {"a": "x", "b": 1}, {"c": 1})]
    assert len({variant.name for variant in variants}) == len(variants)
    assert all(variant.variant_for({}) is variant for variant in variants)


def test_a_parameter_without_a_value_is_null_outside_its_condition():
    statement = PreparedStatement(
        "s", "SELECT :a::text, 1 WHERE (:a::text IS NULL OR x = :a) AND NOT (:b::text IS NULL OR y = :b)"
    )
    assert statement.variant_for({}).text == b"SELECT $1::text, 1 WHERE true AND NOT true"
    assert statement.variant_for({}).values({}) == [None]
    with pytest.raises(KeyError):
        PreparedStatement("s", "SELECT :a::text").values({})


def test_the_number_of_variants_is_bounded(monkeypatch):
    monkeypatch.setattr(statements, "_MAX_VARIANTS", 2)
    statement = PreparedStatement("s", TEXT)
    variants = [statement.variant_for({"a": "x"}), statement.variant_for({"b": 1})]
    assert statement.variant_for({"c": 1}) is statement
    assert statement.values({"c": 1}) == [None, None, 1]
    assert [statement.variant_for({"a": "y"}), statement.variant_for({"b": 2})] == variants


def test_a_statement_with_one_condition_has_no_variants():
    statement = PreparedStatement("s", "SELECT 1 WHERE (:a::text IS NULL OR x = :a)")
    assert statement.variant_for({"a": None}) is statement


def test_the_parentheses_of_every_statement_are_balanced():
    registry = StatementRegistry()
    for name in registry._texts:
        statement = registry.statement(name)
        for variant in (statement, statement.variant_for(dict.fromkeys(statement.names, None) | {"calls": []})):
            assert variant.text.count(b"(") == variant.text.count(b")"), name
