"""The SQL of PostgreSQL compared with that of SQLite: the same names, keys that begin with the tree, a policy on every table."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.fast_paths import PostgresFastPaths
from recollect.engine.postgres.search import PostgresSearch
from recollect.engine.postgres.statements import LOCKS, SETTINGS, StatementRegistry
from recollect.model.message import Draft, TextPart, ToolCallPart
from recollect.model.session import DATA_SCHEMA_VERSION
from recollect.storage import appends, listing, messages, sessions, turns
from recollect.storage.fast_paths import FAST_PATHS, FastPath, KeyedAppendRequest
from recollect.storage.operation import Scope


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


QUERIES = sql.queries("postgres")


def test_both_engines_have_the_same_migrations():
    assert [migration[:2] for migration in sql.migrations("postgres")] == [
        migration[:2] for migration in sql.migrations("sqlite")
    ]


def test_rows_omit_the_default_data_schema_version():
    """A row has the version only if it differs from the default of a session."""
    for name in ("session_get", "sessions_default_list"):
        assert f"data_schema_version <> {DATA_SCHEMA_VERSION} " in QUERIES[name]


def test_a_lock_belongs_to_a_query():
    assert set(LOCKS) <= set(QUERIES)
    assert set(LOCKS.values()) == {name for name in QUERIES if name.endswith("_lock")}


def test_settings_belong_to_a_query():
    assert set(SETTINGS) <= set(QUERIES)
    assert set(SETTINGS.values()) == {name for name in QUERIES if name.endswith("_settings") or name == "settings_walk"}


def requests() -> dict[str, FastPath[Any]]:
    """Return a request of each kind, in each form that has a statement of its own."""
    scope = Scope("ann", "here:1:2", 1, lambda _: False, PostgresSearch)
    text = Draft(role="user", parts=(TextPart(text="x"),))
    call = Draft(role="assistant", parts=(ToolCallPart(call_id="c", tool="t"),))
    lists = dict.fromkeys(("pinned", "channel", "model", "status", "role", "tool", "parent"))
    default = {**lists, "archived": False, "delegates": False}
    pages = {
        "sessions_by_activity": {"filters": {**default, "role": "user"}},
        "sessions_by_creation": {"order": "created", "filters": default},
        "sessions_by_deletion": {"deleted": True, "filters": default},
        "sessions_default_list": {"filters": default},
        "sessions_pinned_first": {"pinned_first": True, "filters": default},
    }
    operations = {
        "session_append": appends.append(scope, "a", [text]),
        "session_append_with_calls": appends.append(scope, "a", [call]),
        "session_save": turns.save_turn(scope, "a", [text], []),
        "session_save_with_calls": turns.save_turn(scope, "a", [text], [call]),
        "session_get": sessions.get(scope, "a"),
        "session_create": sessions.create(scope, "a", {}),
        "messages_last": messages.read_backward(scope, "a", limit=3),
        **{name: listing.read_page(scope, limit=3, **options) for name, options in pages.items()},
    }
    return {name: op.fast for name, op in operations.items() if op.fast is not None}


def test_every_fast_path_has_a_handler():
    fast_paths = PostgresFastPaths(StatementRegistry())
    assert tuple(fast_paths.handlers) == FAST_PATHS
    without_statement = {KeyedAppendRequest}
    assert {type(request) for request in requests().values()} == set(FAST_PATHS) - without_statement


@pytest.mark.parametrize("name", requests())
def test_a_fast_path_has_the_parameters_of_its_statements(name):
    fast = PostgresFastPaths(StatementRegistry()).prepare(requests()[name])
    assert fast is not None
    assert fast.statement.name.decode().partition("_0")[0].startswith(name)
    assert len(fast.values) == len(fast.statement.names)
    assert (fast.lookup is None) == (fast.probe is None)
    # A read is repeated.
    assert (fast.lookup is None) == (not name.startswith(("session_append", "session_save", "session_create")))
    if fast.lookup is not None and fast.probe is not None:
        assert len(fast.lookup.values({**fast.params, "transaction": "1"})) == len(fast.lookup.names)
        assert len(fast.probe.values(fast.params)) == len(fast.probe.names)
    if fast.settings is not None:
        assert len(fast.settings.values(fast.params)) == len(fast.settings.names)


@pytest.mark.parametrize("name", ["session_append", "session_save"])
def test_a_statement_without_calls_has_the_other_parameters(name):
    registry = StatementRegistry()
    assert registry.statement(name).names == [
        parameter for parameter in registry.statement(f"{name}_with_calls").names if not parameter.startswith("calls.")
    ]


def test_both_engines_read_the_same_parameters():
    registry = StatementRegistry()
    of_dialects = {"search_backlog", "search_delete"}  # the search of each engine passes its own parameters
    for name in sql.queries("sqlite").keys() & QUERIES.keys() - of_dialects:
        text = sql.queries("sqlite")[name]
        if "?" in text:
            assert registry.multi_row(name).column_count == text.count("?"), name
        else:
            settings = registry.settings(name)
            names = {*registry.statement(name).names, *(settings.names if settings is not None else ())}
            assert names == set(re.findall(r"(?<!:):([a-z_]+)", text)), name


def test_locks_have_the_parameters_of_their_query():
    registry = StatementRegistry()
    for name in LOCKS:
        lock = registry.lock(name)
        assert lock is not None
        assert set(lock.names) <= set(registry.statement(name).names), name


def test_the_server_accepts_every_query(admin):
    registry = StatementRegistry()
    for name, text in QUERIES.items():
        statement = registry.multi_row(name)._statements[-1] if "?1" in text else registry.statement(name)
        admin.execute(b"PREPARE checked AS " + statement.text)
        admin.execute("DEALLOCATE checked")
    for name in LOCKS:
        lock = registry.lock(name)
        for statement in (lock, lock.waiting):  # pyright: ignore[reportOptionalMemberAccess]
            if statement is not None:
                admin.execute(b"PREPARE checked AS " + statement.text)
                admin.execute("DEALLOCATE checked")


def test_every_statement_knows_whether_it_returns_rows(admin):
    """A statement that is treated as one without rows would return none to its operation."""
    registry = StatementRegistry()
    for name, text in QUERIES.items():
        if "?1" not in text:
            pgconn = admin.pgconn
            pgconn.prepare(f"d_{name}".encode(), registry.statement(name).text)
            assert (pgconn.describe_prepared(f"d_{name}".encode()).nfields > 0) == registry.statement(name).returns, (
                name
            )


def test_every_primary_key_begins_with_the_distribution_key_of_a_cluster(admin):
    rows = admin.execute(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] "
        "WHERE c.relnamespace = 'recollect'::regnamespace"
    ).fetchall()
    tables = {
        row[0]
        for row in admin.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'recollect'::regnamespace AND relkind = 'r'"
        )
    }
    first_columns = dict(rows)
    assert set(first_columns) == tables
    other_keys = {
        "blobs": "owner",
        "records": "owner",
        "search_terms": "owner",
        "commits": "token",
        "watchers": "channel",
        "migrations": "number",
    }
    assert first_columns == {table: other_keys.get(table, "tree") for table in tables}


def test_every_table_with_an_owner_has_its_policy_forced(admin):
    rows = admin.execute(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid) "
        "FROM pg_class c WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
    ).fetchall()
    assert {name for name, has_policy in rows if not has_policy} == {"commits", "watchers", "migrations"}


def test_an_append_uses_no_sequence(postgres, admin):
    with recollect.open(postgres) as store:
        session = store.session("a")
        before = admin.execute("SELECT sum(last_value) FROM pg_sequences WHERE schemaname = 'recollect'").fetchone()
        session.append({"role": "user", "content": "x"})
        session.save_turn("q", {"role": "assistant", "content": "r"})
        assert (
            admin.execute("SELECT sum(last_value) FROM pg_sequences WHERE schemaname = 'recollect'").fetchone()
            == before
        )


HOT_QUERIES = ("session_advance", "session_create", "messages_last", "session_append", "session_save", "session_append_with_calls", "session_save_with_calls", "session_get", "message_get", "messages_forward", "messages_backward", "messages_tuples", "messages_last_tuples", "turn_get", "turns_of_span",
       "branch_get", "branch_path", "session_touch", "sessions_by_activity", "sessions_default_list", "sessions_by_creation", "append_get",
       "tool_calls_newest", "tool_calls_of_path", "record_get", "record_revision", "record_replace", "record_delete", "record_raise", "records_page", "records_sizes", "records_rows", "session_hold", "sessions_of_tree", "branches_of_session", "sessions_by_prefix",
       "sessions_by_folded_title", "sessions_through_activity", "sessions_through_creation", "sessions_through_title",
       "sessions_of_parent", "sessions_of_pin", "sessions_of_channel", "sessions_of_model", "sessions_of_status",
       "sessions_of_archive", "sessions_of_untitled", "sessions_pinned_first",
       "messages_pinned", "messages_last_user", "compactions_of_branch", "snapshots_of_session",
       "sessions_created_after", "branches_outline", "messages_rows", "tool_calls_of_span", "sessions_prunable", "messages_tally",
       "turns_tally", "tool_calls_tally", "messages_total_size", "messages_large", "messages_next")  # fmt: skip
QUERIES_IN_INDEX_ORDER = ("sessions_by_activity", "sessions_default_list", "sessions_by_creation", "sessions_by_folded_title", "sessions_created_after", "sessions_prunable",
          "messages_forward", "messages_backward", "messages_last", "messages_last_tuples", "messages_tuples", "messages_last_user", "messages_rows",
          "messages_next", "records_page", "records_sizes", "records_rows")  # fmt: skip


def test_hot_queries_use_their_index(postgres, databases, database):
    """Also under the policy of an owner, which must not prevent the use of an index."""
    with recollect.open(postgres, owner="ann") as store:
        for number in range(40):
            store.session(f"s{number}", title=f"T{number}").append([{"role": "user", "content": "x"}] * 3)
    registry = StatementRegistry()
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute("VACUUM ANALYZE")
    with psycopg.connect(postgres, autocommit=True) as connection:
        for node_type in ("seqscan", "bitmapscan", "sort"):  # 40 sessions are too few for the plan that many need
            connection.execute(f"SET enable_{node_type} = off")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SELECT set_config('recollect.owner', 'ann', false)")
        for name in HOT_QUERIES:
            statement = registry.statement(name)
            connection.execute(b"PREPARE hot AS " + statement.text)
            nulls = ", ".join(["NULL"] * len(statement.names))
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN EXECUTE hot({nulls})".encode()))
            connection.execute("DEALLOCATE hot")
            assert "Seq Scan" not in plan, (name, plan)
            if name in QUERIES_IN_INDEX_ORDER:
                assert "Sort" not in plan, (name, plan)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_query_names_are_unique(engine):
    folder = pathlib.Path(sql.__file__).parent / engine / "queries"
    names = [
        line.removeprefix("-- name:").strip()
        for file in folder.glob("*.sql")
        for line in file.read_text().splitlines()
        if line.startswith("-- name:")
    ]
    assert sorted(names) == sorted(set(names))
