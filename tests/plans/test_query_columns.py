"""The columns of queries: on both engines, they have the names of the fields of the declared row class, in order."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

import apsw
import apsw.ext
import psycopg
import pytest

import recollect
import recollect.engine.postgres
import recollect.engine.sqlite
import recollect.storage
from recollect import sql
from recollect.engine.postgres.statements import StatementRegistry
from recollect.engine.sqlite.connection import connect
from recollect.engine.sqlite.ranking import register_ranking
from recollect.storage.operation import Query


def package_modules(package: ModuleType) -> list[ModuleType]:
    """Import every module of a package, and return them with the package."""
    modules = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [package, *(importlib.import_module(module.name) for module in modules)]


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


def declared_queries(*packages: ModuleType) -> list[Query]:
    """Return the queries that the modules of packages declare, each once."""
    modules = [module for package in packages for module in package_modules(package)]
    queries = {id(query): query for module in modules for query in queries_in(vars(module))}
    return sorted(queries.values(), key=lambda query: query.name)


# An engine declares the queries of its search dialect.
QUERIES = {
    "sqlite": declared_queries(recollect.storage, recollect.engine.sqlite),
    "postgres": declared_queries(recollect.storage, recollect.engine.postgres),
}


def parametrize_queries(engine: str):
    queries = QUERIES[engine]
    return pytest.mark.parametrize("query", queries, ids=[query.name for query in queries])


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


@parametrize_queries("sqlite")
def test_the_columns_on_sqlite(sqlite, query):
    assert sqlite_columns(sqlite, query.name) == fields_of(query)


@parametrize_queries("postgres")
def test_the_columns_on_postgres(postgres, query):
    assert postgres_columns(postgres, query.name) == fields_of(query)


@pytest.mark.parametrize("engine", QUERIES)
def test_a_query_is_declared_once(engine):
    names = [query.name for query in QUERIES[engine]]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_a_row_class_belongs_to_a_query():
    """Find row classes of storage that no query returns."""
    row_classes = {query.row_class for queries in QUERIES.values() for query in queries}
    classes = {
        value
        for module in package_modules(recollect.storage)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, tuple) and value.__name__.endswith("Row")
    }
    assert {value.__name__ for value in classes - row_classes} == set()
