"""The columns of queries: on both engines, they have the names of the fields of the declared row class, in order.

The columns that most sessions and messages lack travel in one JSON array, which operations decode by position; its
expressions are compared with the fields of the values.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
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
from recollect.engine.postgres.statements import LOCKS, SETTINGS, StatementRegistry
from recollect.engine.sqlite.connection import connect
from recollect.engine.sqlite.ranking import register_ranking
from recollect.model.message import Message
from recollect.model.session import SessionInfo
from recollect.storage.fast_paths import ListedSessionRow, NewestMessageRow, StoredSessionRow
from recollect.storage.messages import MessageRow
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


# An engine declares the queries of its fast paths and of its search dialect.
QUERIES = {
    "sqlite": declared_queries(recollect.storage, recollect.engine.sqlite),
    "postgres": declared_queries(recollect.storage, recollect.engine.postgres),
}


# Queries that are not declared, because nothing reads their columns: only the presence of a row counts, or the engine
# waits for the statement because it returns a row.
UNREAD_COLUMNS = {
    "sqlite": {"compaction_insert", "session_trash"},
    "postgres": {
        "compaction_insert", "session_trash", "session_append_probe", "session_create_probe",
        "search_terms_delete_unused", *LOCKS.values(), *SETTINGS.values(),
    },
}  # fmt: skip


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
    result = pgconn.prepare(b"", statement.text)  # unnamed, so that the next one replaces it
    assert not result.error_message, result.error_message
    description = pgconn.describe_prepared(b"")
    return [(description.fname(column) or b"").decode() for column in range(description.nfields)]


def fields_of(query: Query) -> list[str]:
    return list(query.row_class._fields)  # pyright: ignore[reportAttributeAccessIssue]


@parametrize_queries("sqlite")
def test_the_columns_on_sqlite(sqlite, query):
    assert sqlite_columns(sqlite, query.name) == fields_of(query)


@parametrize_queries("postgres")
def test_the_columns_on_postgres(postgres, query):
    assert postgres_columns(postgres, query.name) == fields_of(query)


def test_every_query_whose_columns_are_read_is_declared_on_sqlite(sqlite):
    """Otherwise nothing would compare its columns."""
    with_columns = {name for name in sql.queries("sqlite") if sqlite_columns(sqlite, name)}
    assert with_columns == {query.name for query in QUERIES["sqlite"]} | UNREAD_COLUMNS["sqlite"]


def test_every_query_whose_columns_are_read_is_declared_on_postgres(postgres):
    # A statement for many rows, with parameters such as `?1`, returns none to the operation.
    names = [name for name, text in sql.queries("postgres").items() if not re.search(r"\?\d", text)]
    with_columns = {name for name in names if postgres_columns(postgres, name)}
    assert with_columns == {query.name for query in QUERIES["postgres"]} | UNREAD_COLUMNS["postgres"]


# The JSON array of rare columns. For each row class: its first column that is a field of the value, and the fields of
# the value in the order in which the columns and then the array are decoded.
_SESSION = ("id", list(SessionInfo.__struct_encode_fields__))
_NOT_RARE = ("branch", "parts", "key", "edited_at")
_MESSAGE = (
    "position", [*(name for name in Message.__struct_encode_fields__ if name not in _NOT_RARE), "blobs", "key", "edited_at"],
)  # fmt: skip
DECODED_FIELDS = {
    StoredSessionRow: _SESSION, ListedSessionRow: _SESSION, MessageRow: _MESSAGE, NewestMessageRow: _MESSAGE,
}  # fmt: skip
EXPRESSION_FIELDS = {
    "(SELECT p.id FROM sessions AS p WHERE p.key = sessions.parent)": "parent",
    "parent_id": "parent",
    "client_key": "key",
}
"""Expressions of the array that are not the name of a field."""


def rare_queries(engine: str):
    queries = [query for query in QUERIES[engine] if query.row_class in DECODED_FIELDS]
    return [pytest.param(engine, query, id=f"{engine}-{query.name}") for query in queries]


def rare_columns(text: str) -> tuple[set[str], list[str]]:
    """Return the names in the condition of the JSON array of a query, and its expressions as names of fields."""
    before, end, _ = text.partition(") END AS rare")
    assert end
    condition, array = re.split(r" THEN (?:json_array|json_build_array)\(", before.rpartition("CASE WHEN")[2])
    expressions, depth = [""], 0
    for character in array:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            expressions.append("")
        else:
            expressions[-1] += character
    names = [expression.strip() for expression in expressions]
    return set(re.findall(r"[a-z_]+", condition)), [EXPRESSION_FIELDS.get(name, name) for name in names]


@pytest.mark.parametrize(("engine", "query"), [*rare_queries("sqlite"), *rare_queries("postgres")])
def test_the_rare_columns_have_the_order_in_which_they_are_decoded(engine, query):
    condition, array = rare_columns(sql.queries(engine)[query.name])
    first_field, decoded_fields = DECODED_FIELDS[query.row_class]
    columns = fields_of(query)
    assert [*columns[columns.index(first_field) : columns.index("rare")], *array] == decoded_fields
    # A rare column that is missing from the condition would be lost if it is the only one. A parent has a relation.
    assert {"client_key" if name == "key" else name for name in array} - {"parent"} <= condition


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
