"""Migration 8 on PostgreSQL: settings of every owner become records, also after a kill in the middle of the migration."""

from __future__ import annotations

import subprocess
import sys
import time

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migrations import prepare_schema
from settings_of_version_7 import check_records, check_users_of_records, setting_rows

MIGRATIONS = sql.migrations("postgres")
OWNERS = ("", "ann", "bob")
# Applies the migration, and waits before it is committed.
WAITING_MIGRATION = """
import sys
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migrations import prepare_schema

*earlier, (number, name, text) = sql.migrations("postgres")[:8]
text += "; SELECT set_config('application_name', 'migrated', false); SELECT pg_sleep(600);"
prepare_schema(Address(sys.argv[1]), "", 600, [*earlier, (number, name, text)])
"""


@pytest.fixture
def url(databases):
    """Create a database of schema version 7 with settings of three owners, and yield its URL."""
    name = databases.make()
    url = databases.url_of(name, "plain")
    prepare_schema(Address(url), "", 10, MIGRATIONS[:7])
    with psycopg.connect(databases.url_of(name, "postgres")) as connection:
        for owner in OWNERS:
            rows = [
                (owner, key.replace("\x10", "\x10p").replace("\0", "\x100"), value, at)
                for _, key, value, at in setting_rows(owner)
            ]
            connection.cursor().executemany(
                "INSERT INTO recollect.settings (owner, key, value, updated_at) VALUES (%s, %s, %s, %s)", rows
            )
    yield url
    databases.drop(name)


def kill_migration(url: str) -> None:
    """Apply the migration in another process, and kill it before the commit."""
    process = subprocess.Popen([sys.executable, "-c", WAITING_MIGRATION, url], stderr=subprocess.PIPE)
    with psycopg.connect(url, autocommit=True) as connection:
        deadline = time.monotonic() + 60
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrated'"
        while connection.execute(query).fetchone() == (0,):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.communicate()
        # The server notices a lost client only when the statement ends.
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'migrated'")


def test_settings_become_records(url):
    for owner in OWNERS:
        with recollect.open(url, owner=owner) as store:
            check_records(store)
            check_users_of_records(store)
            assert (store.maintenance.owners().names, store.maintenance.check().problems) == (OWNERS, ())


def test_a_killed_migration_is_repeated(url):
    kill_migration(url)
    with recollect.open(url) as store:
        check_records(store)


def test_the_longest_keys_of_settings_fit_the_index(databases, url):
    """In characters of four bytes, which cannot be compressed, and with the longest owner."""
    characters = "".join(map(chr, range(0x20000, 0x20000 + 640)))
    owner, key = characters[:128], characters[128:]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
        connection.execute("INSERT INTO recollect.settings (key, value, updated_at) VALUES (%s, '1', 1)", (key,))
    with recollect.open(url, owner=owner) as store:
        assert store.records.get("setting", key).value == 1
        assert store.records.delete("setting", key)
