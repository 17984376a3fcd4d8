"""The SQL of PostgreSQL compared with that of SQLite: the same names, keys that begin with the tree, a policy on every table."""

from __future__ import annotations

import pathlib

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.statements import StatementRegistry
from recollect.model.session import DATA_SCHEMA_VERSION


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


SUMS = {"messages", "tokens", "input_tokens", "output_tokens", "now", "expected"}
ROWS = {"rows", "calls", "turn"}


def test_both_engines_have_the_same_migrations():
    assert [migration[:2] for migration in sql.migrations("postgres")] == [
        migration[:2] for migration in sql.migrations("sqlite")
    ]


def test_rows_omit_the_default_data_schema_version():
    """A row has the version only if it differs from the default of a session."""
    for name in ("session_get", "sessions_default_list"):
        assert f"data_schema_version <> {DATA_SCHEMA_VERSION} " in sql.queries("postgres")[name]


def test_a_lock_belongs_to_a_query():
    assert set(sql.locks("postgres")) <= set(sql.queries("postgres"))


def test_a_second_step_belongs_to_a_query():
    assert set(sql.second_steps("sqlite")) <= set(sql.queries("sqlite"))
    assert set(sql.alternative_second_steps("sqlite")) <= set(sql.second_steps("sqlite"))


def test_final_query_lookups_belong_to_queries():
    assert (
        set(sql.queries_without_tool_calls("postgres"))
        <= set(sql.final_query_lookups("postgres"))
        <= set(sql.queries("postgres"))
    )


def test_parameters_have_the_same_names():
    """The parameters of an operation fit both engines; PostgreSQL may ignore some of them."""
    import re

    registry = StatementRegistry()
    list_parameters = {"sort_limit", *(name.removeprefix("sessions_") for name in sql.first_steps("sqlite"))}
    session_parameters = {*re.findall(r":([a-z_]+)", sql.queries("sqlite")["session_insert"]), "folded"}
    queries = sql.queries("sqlite")
    for name in queries.keys() & sql.queries("postgres").keys() - {"search_backlog"}:  # each engine has its own rows
        text = queries[name]
        parameters = set(re.findall(r"(?<!:):([a-z_]+)", text))
        if parameters:
            parameters |= SUMS if name in sql.second_steps("sqlite") else set()  # computed between the two steps
            parameters |= (
                SUMS | ROWS if name in sql.queries_without_tool_calls("postgres") else set()
            )  # written by separate statements on SQLite
            parameters |= {"now"} if name == "session_open" else set()  # the same
            parameters |= session_parameters if name == "session_ensure" else set()  # the same
            parameters |= (
                {"has_cursor", "has_bounds"} if {"since", "limit"} <= parameters else set()
            )  # whether these conditions apply
            parameters |= list_parameters if name.startswith("sessions_through_") else set()  # of a previous step
            names = registry.statement(name).names
            assert {parameter.partition(".")[0] for parameter in names} <= parameters, name
        else:
            assert registry.multi_row(name).column_count <= text.count("?") if "?" in text else True, name


def test_the_server_accepts_every_query(admin):
    registry = StatementRegistry()
    for name in sql.queries("postgres"):
        text = sql.queries("postgres")[name]
        statement = registry.multi_row(name)._statements[-1] if "?1" in text else registry.statement(name)
        admin.execute(b"PREPARE checked AS " + statement.text)
        admin.execute("DEALLOCATE checked")
    for name in sql.locks("postgres"):
        lock = registry.lock(name)
        assert set(lock.names) <= set(registry.statement(name).names)
        admin.execute(b"PREPARE checked AS " + lock.text)
        admin.execute("DEALLOCATE checked")
    for name in sql.final_query_lookups("postgres"):
        statement = registry.statement(name)
        if statement.without_tool_calls is not None:  # pyright: ignore[reportAttributeAccessIssue]
            shorter = statement.without_tool_calls  # pyright: ignore[reportAttributeAccessIssue]
            assert set(shorter.names) == {
                parameter for parameter in statement.names if not parameter.startswith("calls.")
            }
            admin.execute(b"PREPARE checked AS " + shorter.text)
            admin.execute("DEALLOCATE checked")
        if statement.lookup is not None:  # pyright: ignore[reportAttributeAccessIssue]
            assert set(statement.lookup.names) <= {*statement.names, "transaction"}  # pyright: ignore[reportAttributeAccessIssue]
            admin.execute(b"PREPARE checked AS " + statement.lookup.text)  # pyright: ignore[reportAttributeAccessIssue]
            admin.execute("DEALLOCATE checked")
            assert set(statement.probe.names) <= set(statement.names)  # pyright: ignore[reportAttributeAccessIssue]
            admin.execute(b"PREPARE checked AS " + statement.probe.text)  # pyright: ignore[reportAttributeAccessIssue]
            admin.execute("DEALLOCATE checked")
    for name in sql.pre_statements("postgres"):
        admin.execute(b"PREPARE checked AS " + registry.pre_statement(name).text)
        admin.execute("DEALLOCATE checked")


def test_every_statement_knows_whether_it_returns_rows(admin):
    """A statement that is treated as one without rows would return none to its operation."""
    registry = StatementRegistry()
    for name, text in sql.queries("postgres").items():
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
        "search_terms": "owner",
        "settings": "owner",
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


HOT_QUERIES = ("session_advance", "session_open", "session_ensure", "session_create", "messages_last", "session_append", "session_save", "session_get", "message_get", "messages_forward", "messages_backward", "messages_tuples", "turn_get", "turns_of_span",
       "branch_get", "branch_path", "session_touch", "sessions_by_activity", "sessions_default_list", "sessions_by_creation", "append_get",
       "tool_calls_newest", "tool_calls_of_path", "sessions_of_tree", "branches_of_session", "sessions_by_prefix",
       "sessions_by_folded_title", "sessions_through_activity", "sessions_through_creation", "sessions_through_title",
       "messages_pinned", "messages_last_user", "compactions_of_branch", "snapshots_of_session",
       "sessions_created_after", "branches_outline", "messages_rows", "tool_calls_of_span", "sessions_prunable", "messages_tally",
       "turns_tally", "tool_calls_tally", "messages_total_size", "messages_large", "messages_next")  # fmt: skip
QUERIES_IN_INDEX_ORDER = ("sessions_by_activity", "sessions_default_list", "sessions_by_creation", "sessions_by_folded_title", "sessions_created_after", "sessions_prunable",
          "messages_forward", "messages_backward", "messages_last", "messages_tuples", "messages_last_user", "messages_rows",
          "messages_next")  # fmt: skip


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
