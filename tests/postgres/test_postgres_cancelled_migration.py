"""Migration 8 on PostgreSQL: "canceled" becomes "cancelled" for every owner, also after a kill in the middle of it."""

from __future__ import annotations

import re

import psycopg
import pytest
from test_postgres_settings_migration import kill_migration

import recollect
from cancelled_of_version_7 import PARTS, STATUSES
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migrations import prepare_schema

MIGRATIONS = sql.migrations("postgres")
OWNERS = ("", "ann")


STATUS_COLUMN = "status recollect.call_status NOT NULL"
# The column of a database that was created before migration 1 had the domain.
STATUS_COLUMN_WITHOUT_DOMAIN = """
status text COLLATE "C" NOT NULL CHECK (status IN ('pending', 'running', 'success', 'error', 'canceled'))
"""


def without_domain(text: str) -> str:
    """Return a migration as an early version applied it."""
    text = re.sub("CREATE DOMAIN recollect.call_status .*?;", "", text, flags=re.DOTALL)
    return text.replace(STATUS_COLUMN, STATUS_COLUMN_WITHOUT_DOMAIN)


@pytest.fixture(params=["with domain", "without domain"])
def url(databases, request):
    """Create a database of schema version 7 with messages and tool calls of two owners, and yield its URL."""
    name = databases.make()
    url = databases.url_of(name, "plain")
    migrations = MIGRATIONS[:7]
    if request.param == "without domain":
        migrations = [(number, title, without_domain(text)) for number, title, text in migrations]
        assert migrations != MIGRATIONS[:7]
    prepare_schema(Address(url), "", 10, migrations)
    with psycopg.connect(databases.url_of(name, "postgres")) as connection:
        for tree, owner in enumerate(OWNERS):
            connection.cursor().executemany(
                "INSERT INTO recollect.messages (tree, branch, position, created_at, owner, role, parts) "
                "VALUES (%s, 1, %s, 1, %s, 'tool', %s)",
                [(tree, number, owner, old) for number, (old, _) in enumerate(PARTS)],
            )
            connection.cursor().executemany(
                "INSERT INTO recollect.tool_calls (tree, message_branch, message_position, part, branch, created_at, owner, "
                "call_id, tool, status) VALUES (%s, 1, %s, 0, 1, 1, %s, 'canceled', 'canceled', %s)",
                [(tree, number, owner, status) for number, status in enumerate(STATUSES)],
            )
    yield url, databases.url_of(name, "postgres")
    databases.drop(name)


def check_contents(url: str, admin_url: str) -> None:
    recollect.open(url).close()
    with psycopg.connect(admin_url) as connection:
        for tree, owner in enumerate(OWNERS):
            rows = connection.execute(
                "SELECT parts, owner FROM recollect.messages WHERE tree = %s ORDER BY position", (tree,)
            ).fetchall()
            assert rows == [(new, owner) for _, new in PARTS]
            calls = connection.execute(
                "SELECT status, call_id, owner FROM recollect.tool_calls WHERE tree = %s ORDER BY message_position",
                (tree,),
            ).fetchall()
            expected = ["cancelled" if status == "canceled" else status for status in STATUSES]
            assert calls == [(status, "canceled", owner) for status in expected]
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("UPDATE recollect.tool_calls SET status = 'canceled'")
    with psycopg.connect(url) as connection:  # row-level security confines the owner of the tables again
        tables = "SELECT relname FROM pg_class WHERE relname IN ('messages', 'tool_calls') AND relforcerowsecurity"
        assert sorted(connection.execute(tables).fetchall()) == [("messages",), ("tool_calls",)]
        assert connection.execute("SELECT to_regproc('recollect.respelled')").fetchone() == (None,)


def test_every_status_is_changed(url):
    check_contents(*url)


def test_a_killed_migration_is_repeated(url):
    kill_migration(url[0])
    check_contents(*url)
