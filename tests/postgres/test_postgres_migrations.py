"""Creating and migrating tables: once with concurrent processes; newer and foreign schemas are refused unchanged."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migrations import prepare_schema


@pytest.fixture
def empty_url(databases):
    name = databases.make()
    yield databases.url_of(name, "plain")
    databases.drop(name)


def applied_migrations(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT number, name FROM recollect.migrations ORDER BY number").fetchall()


def test_ten_processes_at_once_migrate_once(empty_url):
    code = f"import recollect; store = recollect.open({empty_url!r}); store.session('a').append({{'role': 'user', 'content': 'x'}})"
    processes = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(10)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 10, errors
    assert applied_migrations(empty_url) == [(number, name) for number, name, _ in sql.migrations("postgres")]
    with recollect.open(empty_url) as store:
        assert store.session("a").message_count == 10


def test_an_older_database_is_migrated(empty_url):
    migrations = sql.migrations("postgres")
    prepare_schema(Address(empty_url), "", 10, migrations)
    more_migrations = [
        *migrations,
        (migrations[-1][0] + 1, "more", "CREATE TABLE recollect.more (tree bigint PRIMARY KEY)"),
    ]
    prepare_schema(Address(empty_url), "", 10, more_migrations)
    prepare_schema(Address(empty_url), "", 10, more_migrations)
    assert applied_migrations(empty_url)[-1] == (migrations[-1][0] + 1, "more")


def test_migrations_prepare_no_statements(empty_url, monkeypatch):
    """A pooler would pass the connection to another client, whose prepared statements may have the same names."""
    prepared_counts = []

    class RecordingConnection(psycopg.Connection):
        def close(self):
            prepared_counts.append(self.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0])
            super().close()

    migrations = sql.migrations("postgres")
    more_migrations = [
        *migrations,
        *((migrations[-1][0] + number, f"more_{number}", "SELECT 1") for number in range(1, 8)),
    ]
    prepare_schema(Address(empty_url), "", 10, migrations[:1])
    monkeypatch.setattr(psycopg, "connect", RecordingConnection.connect)
    prepare_schema(Address(empty_url), "", 10, more_migrations)
    assert prepared_counts == [0]


def test_a_failing_migration_is_rolled_back(empty_url):
    migrations = sql.migrations("postgres")
    failing_migrations = [
        *migrations,
        (migrations[-1][0] + 1, "broken", "CREATE TABLE recollect.half (x int); SELECT 1 / 0"),
    ]
    with pytest.raises(recollect.StoreError):
        prepare_schema(Address(empty_url), "", 10, failing_migrations)
    assert len(applied_migrations(empty_url)) == len(migrations)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT to_regclass('recollect.half')").fetchone() == (None,)
    recollect.open(empty_url).close()


def test_a_newer_database_is_refused(empty_url):
    recollect.open(empty_url).close()
    with psycopg.connect(empty_url) as connection:
        connection.execute("INSERT INTO recollect.migrations VALUES (999, 'future', 0)")
    with pytest.raises(recollect.errors.SchemaTooNew, match="schema 999"):
        recollect.open(empty_url)


def test_a_schema_of_another_program_is_refused(empty_url):
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE SCHEMA recollect")
        connection.execute("CREATE TABLE recollect.sessions (mine text)")
    with pytest.raises(recollect.errors.NotADatabase, match="not Recollect's"):
        recollect.open(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT count(*) FROM recollect.sessions").fetchone() == (0,)


def test_tables_of_another_program_in_another_schema_are_ignored(empty_url):
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE TABLE sessions (mine text)")
    with recollect.open(empty_url) as store:
        store.session("a").append({"role": "user", "content": "x"})


def test_waiting_for_a_concurrent_migration_times_out(empty_url):
    with psycopg.connect(empty_url) as other:
        from recollect.engine.postgres import migrations

        other.execute(f"SELECT pg_advisory_xact_lock({migrations._ADVISORY_LOCK})".encode())
        with pytest.raises(recollect.StoreLocked):
            recollect.open(empty_url, timeout=0.3)
    recollect.open(empty_url).close()


def test_migrations_fill_new_columns_for_every_owner(databases, empty_url):
    """A migration runs as the role that owns the tables and sees all rows; afterwards the policies are forced again."""
    migrations = sql.migrations("postgres")
    prepare_schema(Address(empty_url), "", 10, migrations[:1])
    admin = empty_url.replace("plain@", "postgres@", 1) if "plain@" in empty_url else None
    if admin is None:
        pytest.skip("needs the superuser of the test server")
    insert_rows_of_the_first_schema(admin)
    prepare_schema(Address(empty_url), "", 10, migrations)
    with psycopg.connect(admin) as connection:
        title_query = "SELECT owner, folded FROM recollect.sessions WHERE folded IS NOT NULL ORDER BY owner"
        assert connection.execute(title_query).fetchall() == [
            ("", "Über all"),
            ("ann", "Über all"),
            ("bob", "Über all"),
        ]
        assert connection.execute("SELECT owner, position FROM recollect.pins ORDER BY owner, position").fetchall() == [
            (owner, position) for owner in ("", "ann", "bob") for position in (1, 2)
        ]
    for owner in ("", "ann", "bob"):
        with recollect.open(empty_url, owner=owner) as store:
            assert [message.position for message in store.session("a").messages() if message.pinned] == [2]
            assert {hit.session for hit in store.search("x")} == {"a"}
            assert [(session.id, session.delegate_count) for session in store.list_sessions()] == [("a", 1)]
            report = store.maintenance.check(repair=True)
            assert report.problems == ()
            assert [finding.kind for finding in report.findings] == ["title"]
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT DISTINCT owner FROM recollect.sessions").fetchall() == [("",)]
        assert connection.execute("SELECT DISTINCT owner FROM recollect.messages").fetchall() == [("",)]


def insert_rows_of_the_first_schema(url):
    """Insert a session with messages and a delegate for each of three owners."""
    metadata_values = (
        '{"pinned":true,"a":"\\\\u0000 \\u0000"}',
        '{"a":{"pinned":true}}',
        '{"a":"\\"pinned\\":true"}',
        None,
    )
    with psycopg.connect(url) as connection:
        for tree, owner in enumerate(("", "ann", "bob"), 1):
            connection.execute(
                "INSERT INTO recollect.trees (tree, sessions, branches, owner) VALUES (%s, 1, 1, %s)", (tree, owner)
            )
            connection.execute(
                "INSERT INTO recollect.sessions (tree, number, owner, id, title, created_at, updated_at, active_at, last, message_count) "
                "VALUES (%s, 1, %s, 'a', 'Über ALL', 1, 1, 1, 5, 5)", (tree, owner),
            )  # fmt: skip
            connection.execute(
                "INSERT INTO recollect.branches (tree, number, session, last, created_at, owner) VALUES (%s, 1, 1, 5, 1, %s)", (tree, owner)
            )  # fmt: skip
            for position, (role, metadata) in enumerate(
                [("system", None), *(("user", text) for text in metadata_values)], 1
            ):
                connection.execute(
                    "INSERT INTO recollect.messages (tree, branch, position, created_at, role, metadata, parts, owner) "
                    """VALUES (%s, 1, %s, 1, %s, %s, '[{"kind":"text","text":"x"}]', %s)""",
                    (tree, position, role, metadata, owner),
                )
        connection.execute(
            "INSERT INTO recollect.sessions (tree, number, owner, id, parent, relation, created_at, updated_at, active_at) "
            "SELECT tree + 10, 1, owner, 'a:delegate:b', (tree << 20) | 1, 'delegate', 1, 1, 1 FROM recollect.trees"
        )
        connection.execute(
            "INSERT INTO recollect.branches (tree, number, session, created_at, owner) "
            "SELECT tree + 10, 1, 1, 1, owner FROM recollect.trees"
        )
        connection.execute(
            "INSERT INTO recollect.trees (tree, sessions, branches, owner) SELECT tree + 10, 1, 1, owner FROM recollect.trees"
        )
