"""The columns of queries: on both engines, they have the names of the fields of the declared row class, in order."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping

import apsw
import apsw.ext
import psycopg
import pytest

import recollect
import recollect.storage
from recollect import sql
from recollect.engine.postgres.statements import StatementRegistry
from recollect.engine.sqlite.connection import connect
from recollect.engine.sqlite.ranking import register_ranking
from recollect.storage.operation import Query


def storage_modules() -> Iterator[object]:
    """Import every module of storage, and return all loaded modules of the package."""
    for module in pkgutil.walk_packages(recollect.storage.__path__, "recollect.storage."):
        importlib.import_module(module.name)
    return (module for name, module in list(sys.modules.items()) if name.startswith("recollect."))


def queries_in(value: object) -> Iterator[Query]:
    """Return a query, or the queries of a container."""
    if isinstance(value, Query):
        yield value
    elif isinstance(value, Mapping):
        for item in list(value.values()):
            yield from queries_in(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from queries_in(item)


def declared_queries() -> list[Query]:
    """Return the queries that the modules declare, each once."""
    queries = {id(query): query for module in storage_modules() for query in queries_in(vars(module))}
    return sorted(queries.values(), key=lambda query: query.name)


QUERIES = declared_queries()
NAMES = [query.name for query in QUERIES]


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("columns") / "recollect.db")
    recollect.open(path).close()
    connection = connect(path, 5.0)
    register_ranking(connection)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def postgres(databases):
    name = databases.make()  # not the shared database, whose connections every other test closes
    recollect.open(databases.url_of(name, "plain")).close()
    with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as connection:
        yield connection
    databases.drop(name)


def sqlite_columns(connection: apsw.Connection, name: str) -> list[str]:
    """Return the columns of a query on SQLite, which is prepared and not run."""
    return [column for column, *_ in apsw.ext.query_info(connection, sql.queries("sqlite")[name]).description]


def postgres_columns(connection: psycopg.Connection, name: str) -> list[str]:
    """Return the columns of a query on PostgreSQL, which is prepared and not run."""
    statement = StatementRegistry().statement(name)
    pgconn = connection.pgconn
    result = pgconn.prepare(f"columns_{name}".encode(), statement.text)
    assert not result.error_message, result.error_message
    description = pgconn.describe_prepared(f"columns_{name}".encode())
    return [(description.fname(column) or b"").decode() for column in range(description.nfields)]


def fields_of(query: Query) -> list[str]:
    return list(query.row_class._fields)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
def test_the_columns_on_sqlite(sqlite, query):
    assert sqlite_columns(sqlite, query.name) == fields_of(query)


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
def test_the_columns_on_postgres(postgres, query):
    assert postgres_columns(postgres, query.name) == fields_of(query)


def test_a_query_is_declared_once():
    assert len(NAMES) == len(set(NAMES)), sorted({name for name in NAMES if NAMES.count(name) > 1})


def test_a_row_class_belongs_to_a_query():
    """Find row classes of storage that no query returns."""
    used = {query.row_class for query in QUERIES}
    classes = {
        value
        for module in storage_modules()
        if re.match(r"recollect\.storage\.", getattr(module, "__name__", ""))
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, tuple) and value.__name__.endswith("Row")
    }
    assert {value.__name__ for value in classes - used} == set()
