"""The SQL of PostgreSQL beside that of SQLite: the same names, keys that begin with the tree, a policy on every table."""

from __future__ import annotations

import pathlib

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.book import Book
from recollect.model.session import DATA_SCHEMA_VERSION


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


SUMS = {"messages", "tokens", "input_tokens", "output_tokens", "now", "expected"}
ROWS = {"rows", "calls", "turn"}


def test_both_engines_have_the_same_queries():
    assert sorted(sql.queries("postgres")) == sorted(sql.queries("sqlite"))


def test_both_engines_have_the_same_migrations():
    assert [each[:2] for each in sql.migrations("postgres")] == [each[:2] for each in sql.migrations("sqlite")]


def test_the_usual_version_of_the_data_is_the_one_that_is_not_told():
    """A row says it only where it is another than the one that a session has without it."""
    for name in ("session_get", "sessions_usual"):
        assert f"data_schema_version <> {DATA_SCHEMA_VERSION} " in sql.queries("postgres")[name]


def test_a_lock_belongs_to_a_query():
    assert set(sql.locks("postgres")) <= set(sql.queries("postgres"))


def test_a_second_step_belongs_to_a_query():
    assert set(sql.thens("sqlite")) <= set(sql.queries("sqlite"))
    assert set(sql.alternatives("sqlite")) <= set(sql.thens("sqlite"))


def test_what_an_operation_ends_with_is_a_query():
    assert set(sql.briefs("postgres")) <= set(sql.ends("postgres")) <= set(sql.queries("postgres"))


def test_parameters_have_the_same_names():
    """What an operation hands over fits both; a parameter that one of them does not need is no fault."""
    import re

    book = Book()
    narrowed = {"few", *(name.removeprefix("sessions_") for name in sql.steps("sqlite"))}
    created = {*re.findall(r":([a-z_]+)", sql.queries("sqlite")["session_insert"]), "folded"}
    for name, text in sql.queries("sqlite").items():
        theirs = set(re.findall(r"(?<!:):([a-z_]+)", text))
        if theirs:
            theirs |= {"sought", "phrases"} if "match" in theirs else set()  # how this engine is told what to look for
            theirs |= SUMS if name in sql.thens("sqlite") else set()  # reckoned with between the two steps
            theirs |= SUMS | ROWS if name in sql.briefs("postgres") else set()  # written by steps of its own
            theirs |= {"now"} if name == "session_open" else set()  # the same
            theirs |= created if name == "session_ensure" else set()  # made by steps of its own
            theirs |= {"beyond", "bounded"} if {"since", "limit"} <= theirs else set()  # which conditions say anything
            theirs |= narrowed if name.startswith("sessions_through_") else set()  # asked for by a step before it
            assert {each.partition(".")[0] for each in book.statement(name).names} <= theirs, name
        else:
            assert book.many(name).count <= text.count("?") if "?" in text else True, name


def test_every_query_is_understood_by_the_server(admin):
    book = Book()
    for name in sql.queries("postgres"):
        text = sql.queries("postgres")[name]
        statement = book.many(name)._widths[-1] if "?1" in text else book.statement(name)
        admin.execute(b"PREPARE checked AS " + statement.text)
        admin.execute("DEALLOCATE checked")
    for name in sql.locks("postgres"):
        lock = book.lock(name)
        assert set(lock.names) <= set(book.statement(name).names)
        admin.execute(b"PREPARE checked AS " + lock.text)
        admin.execute("DEALLOCATE checked")
    for name in sql.ends("postgres"):
        whole = book.statement(name)
        if whole.brief is not None:
            assert set(whole.brief.names) == {each for each in whole.names if not each.startswith("calls.")}
            admin.execute(b"PREPARE checked AS " + whole.brief.text)
            admin.execute("DEALLOCATE checked")
        if whole.recall is not None:
            assert set(whole.recall.names) <= {*whole.names, "transaction"}
            admin.execute(b"PREPARE checked AS " + whole.recall.text)
            admin.execute("DEALLOCATE checked")
            assert set(whole.traces.names) <= set(whole.names)
            admin.execute(b"PREPARE checked AS " + whole.traces.text)
            admin.execute("DEALLOCATE checked")
    for name in sql.befores("postgres"):
        admin.execute(b"PREPARE checked AS " + book.before(name).text)
        admin.execute("DEALLOCATE checked")


def test_what_gives_rows_is_known(admin):
    """A statement that is taken for one without rows would give its operation nothing."""
    book = Book()
    for name, text in sql.queries("postgres").items():
        if "?1" not in text:
            described = admin.pgconn
            described.prepare(f"d_{name}".encode(), book.statement(name).text)
            assert (described.describe_prepared(f"d_{name}".encode()).nfields > 0) == book.statement(name).returns, name


def test_every_primary_key_begins_with_what_a_cluster_distributes_by(admin):
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
    first = dict(rows)
    assert set(first) == tables
    others = {
        "blobs": "owner",
        "search_terms": "owner",
        "settings": "owner",
        "commits": "token",
        "watchers": "channel",
        "migrations": "number",
    }
    assert first == {table: others.get(table, "tree") for table in tables}


def test_every_table_with_an_owner_has_its_policy_forced(admin):
    rows = admin.execute(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid) "
        "FROM pg_class c WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'"
    ).fetchall()
    assert {name for name, kept in rows if not kept} == {"commits", "watchers", "migrations"}


def test_no_sequence_is_used_by_an_append(postgres, admin):
    with recollect.open(postgres) as store:
        session = store.session("a")
        before = admin.execute("SELECT sum(last_value) FROM pg_sequences WHERE schemaname = 'recollect'").fetchone()
        session.append({"role": "user", "content": "x"})
        session.save_turn("q", {"role": "assistant", "content": "r"})
        assert (
            admin.execute("SELECT sum(last_value) FROM pg_sequences WHERE schemaname = 'recollect'").fetchone()
            == before
        )


HOT = ("session_advance", "session_open", "session_ensure", "session_create", "messages_last", "session_append", "session_save", "session_get", "message_get", "messages_forward", "messages_backward", "messages_tell", "turn_get", "turns_of_span",
       "branch_get", "branch_path", "session_stir", "sessions_by_activity", "sessions_usual", "sessions_by_creation", "append_get",
       "tool_calls_newest", "tool_calls_of_path", "sessions_of_tree", "branches_of_session", "sessions_by_prefix",
       "sessions_by_folded_title", "sessions_through_activity", "sessions_through_creation", "sessions_through_title",
       "messages_pinned", "messages_asked", "compactions_of_branch", "snapshots_of_session",
       "sessions_from", "branches_outline", "messages_rows", "tool_calls_of_span", "sessions_resting", "messages_tally",
       "turns_tally", "tool_calls_tally", "messages_weight", "messages_large", "messages_next")  # fmt: skip
SORTED = ("sessions_by_activity", "sessions_usual", "sessions_by_creation", "sessions_by_folded_title", "sessions_from", "sessions_resting",
          "messages_forward", "messages_backward", "messages_last", "messages_tell", "messages_asked", "messages_rows",
          "messages_next")  # fmt: skip


def test_hot_queries_use_their_index(postgres, databases, database):
    """Also under the policy of an owner, which must not keep an index from being used."""
    with recollect.open(postgres, owner="ann") as store:
        for number in range(40):
            store.session(f"s{number}", title=f"T{number}").append([{"role": "user", "content": "x"}] * 3)
    book = Book()
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute("VACUUM ANALYZE")
    with psycopg.connect(postgres, autocommit=True) as connection:
        for kind in ("seqscan", "bitmapscan", "sort"):  # forty sessions are too few for a plan that is meant for many
            connection.execute(f"SET enable_{kind} = off")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SELECT set_config('recollect.owner', 'ann', false)")
        for name in HOT:
            statement = book.statement(name)
            connection.execute(b"PREPARE hot AS " + statement.text)
            nulls = ", ".join(["NULL"] * len(statement.names))
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN EXECUTE hot({nulls})"))
            connection.execute("DEALLOCATE hot")
            assert "Seq Scan" not in plan, (name, plan)
            if name in SORTED:
                assert "Sort" not in plan, (name, plan)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_no_two_queries_have_one_name(engine):
    folder = pathlib.Path(sql.__file__).parent / engine / "queries"
    names = [
        line.removeprefix("-- name:").strip()
        for file in folder.glob("*.sql")
        for line in file.read_text().splitlines()
        if line.startswith("-- name:")
    ]
    assert sorted(names) == sorted(set(names))
