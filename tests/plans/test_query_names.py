"""The names of queries: operations use queries of all engines, and an engine names the queries that only it has."""

from __future__ import annotations

import pathlib
import re

import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.statements import LOCKS, SETTINGS

QUERIES = {engine: set(sql.queries(engine)) for engine in ("sqlite", "postgres")}
PACKAGES = pathlib.Path(recollect.__file__).parent
# Names that the package of an engine builds from the name of a query.
DERIVED_NAMES = {
    "sqlite": set(),
    "postgres": {*LOCKS.values(), *SETTINGS.values()},
}


def used_names(package: str) -> set[str]:
    """Return the names of the queries that the modules of a package run, declare or list."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((PACKAGES / package).rglob("*.py")))
    names = set(re.findall(r'\b(?:fetch_one|fetch_all|execute|execute_many|Query)\(\s*"([a-z_]+)"', source))
    return names | {name for names in QUERIES.values() for name in names if f'"{name}"' in source}


@pytest.mark.parametrize("engine", QUERIES)
def test_every_engine_has_the_queries_of_operations(engine):
    assert used_names("storage") <= QUERIES[engine]


@pytest.mark.parametrize("engine", QUERIES)
def test_an_engine_names_the_queries_that_only_it_has(engine):
    own = used_names(f"engine/{engine}") | DERIVED_NAMES[engine]
    assert own <= QUERIES[engine]
    assert QUERIES[engine] - used_names("storage") <= own


@pytest.mark.parametrize("engine", QUERIES)
def test_no_query_is_without_effect(engine):
    """A step that only one engine needs is a method of its search dialect, not a query without rows on the other."""
    queries = sql.queries(engine).items()
    assert [name for name, text in queries if re.fullmatch(r"SELECT .* WHERE (.* AND )?false", text)] == []
