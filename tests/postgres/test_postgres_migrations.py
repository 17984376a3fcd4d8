"""Making and migrating the tables: once, however many start; newer and foreign ones are refused and left alone."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migration import ready


@pytest.fixture
def empty(databases):
    name = databases.make()
    yield databases.url_of(name, "plain")
    databases.drop(name)


def applied(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT number, name FROM recollect.migrations ORDER BY number").fetchall()


def test_ten_processes_at_once_migrate_once(empty):
    code = f"import recollect; store = recollect.open({empty!r}); store.session('a').append({{'role': 'user', 'content': 'x'}})"
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(10)]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 10, errors
    assert applied(empty) == [(number, name) for number, name, _ in sql.migrations("postgres")]
    with recollect.open(empty) as store:
        assert store.session("a").message_count == 10


def test_an_older_database_is_brought_up_to_date(empty):
    known = sql.migrations("postgres")
    ready(Address(empty), "", 10, known)
    more = [*known, (known[-1][0] + 1, "more", "CREATE TABLE recollect.more (tree bigint PRIMARY KEY)")]
    ready(Address(empty), "", 10, more)
    ready(Address(empty), "", 10, more)
    assert applied(empty)[-1] == (known[-1][0] + 1, "more")


def test_nothing_is_prepared_on_the_way(empty, monkeypatch):
    """A pooler would hand the connection to others with it, and theirs may have the same name."""
    prepared = []

    class Watched(psycopg.Connection):
        def close(self):
            prepared.append(self.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0])
            super().close()

    known = sql.migrations("postgres")
    more = [*known, *((known[-1][0] + number, f"more_{number}", "SELECT 1") for number in range(1, 8))]
    ready(Address(empty), "", 10, known[:1])
    monkeypatch.setattr(psycopg, "connect", Watched.connect)
    ready(Address(empty), "", 10, more)
    assert prepared == [0]


def test_a_migration_that_fails_leaves_nothing(empty):
    known = sql.migrations("postgres")
    broken = [*known, (known[-1][0] + 1, "broken", "CREATE TABLE recollect.half (x int); SELECT 1 / 0")]
    with pytest.raises(recollect.StoreError):
        ready(Address(empty), "", 10, broken)
    assert len(applied(empty)) == len(known)
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT to_regclass('recollect.half')").fetchone() == (None,)
    recollect.open(empty).close()


def test_a_newer_database_is_refused(empty):
    recollect.open(empty).close()
    with psycopg.connect(empty) as connection:
        connection.execute("INSERT INTO recollect.migrations VALUES (999, 'future', 0)")
    with pytest.raises(recollect.SchemaTooNew, match="schema 999"):
        recollect.open(empty)


def test_a_schema_of_another_program_is_refused(empty):
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA recollect")
        connection.execute("CREATE TABLE recollect.sessions (mine text)")
    with pytest.raises(recollect.NotADatabase, match="not Recollect's"):
        recollect.open(empty)
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT count(*) FROM recollect.sessions").fetchone() == (0,)


def test_tables_of_another_program_beside_ours(empty):
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE TABLE sessions (mine text)")
    with recollect.open(empty) as store:
        store.session("a").append({"role": "user", "content": "x"})


def test_waiting_for_another_that_migrates_ends(empty):
    with psycopg.connect(empty) as other:
        from recollect.engine.postgres import migration

        other.execute(f"SELECT pg_advisory_xact_lock({migration._LOCK})")
        with pytest.raises(recollect.StoreLocked):
            recollect.open(empty, timeout=0.3)
    recollect.open(empty).close()


def test_what_is_added_is_filled_in_for_every_owner(databases, empty):
    """A migration runs as the role that owns the tables, and sees the rows of all, whose policies hold again after it."""
    known = sql.migrations("postgres")
    ready(Address(empty), "", 10, known[:1])
    admin = empty.replace("plain@", "postgres@", 1) if "plain@" in empty else None
    if admin is None:
        pytest.skip("only on a server of our own")
    pinned = ('{"pinned":true,"a":"\\\\u0000 \\u0000"}', '{"a":{"pinned":true}}', '{"a":"\\"pinned\\":true"}', None)
    with psycopg.connect(admin) as connection:
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
            for position, (role, metadata) in enumerate([("system", None), *(("user", text) for text in pinned)], 1):
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
    ready(Address(empty), "", 10, known)
    with psycopg.connect(admin) as connection:
        titled = "SELECT owner, folded FROM recollect.sessions WHERE folded IS NOT NULL ORDER BY owner"
        assert connection.execute(titled).fetchall() == [("", "Über all"), ("ann", "Über all"), ("bob", "Über all")]
        assert connection.execute("SELECT owner, position FROM recollect.pins ORDER BY owner, position").fetchall() == [
            (owner, position) for owner in ("", "ann", "bob") for position in (1, 2)
        ]
    for owner in ("", "ann", "bob"):
        with recollect.open(empty, owner=owner) as store:
            assert [message.position for message in store.session("a").messages() if message.pinned] == [2]
            assert {hit.session for hit in store.search("x")} == {"a"}
            assert [(session.id, session.delegate_count) for session in store.list_sessions()] == [("a", 1)]
            found = store.check(repair=True)
            assert found.problems == ()
            assert [finding.kind for finding in found.found] == ["title"]
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT DISTINCT owner FROM recollect.sessions").fetchall() == [("",)]
        assert connection.execute("SELECT DISTINCT owner FROM recollect.messages").fetchall() == [("",)]
