"""Migration 8 on SQLite: settings become records, also after a kill in the middle of the migration."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import recollect
from recollect import sql
from recollect.agent import approvals
from recollect.channels.bot.ledger import Ledger
from recollect.engine.sqlite import migrations
from recollect.engine.sqlite.connection import connect
from settings_of_version_7 import check_records, check_users_of_records, setting_rows

MIGRATIONS = sql.migrations("sqlite")
OWNERS = ("", "ann", "bob")
# Applies the migration, and kills the process before it is committed.
KILLED_MIGRATION = """
import os, signal, sys
from recollect import sql
from recollect.engine.sqlite import migrations
from recollect.engine.sqlite.connection import connect

connection = connect(sys.argv[1], 5.0)
connection.create_scalar_function("kill", lambda: os.kill(os.getpid(), signal.SIGKILL))
*earlier, (number, name, text) = sql.migrations("sqlite")[:8]
migrations.prepare_schema(connection, sys.argv[1], 5.0, [*earlier, (number, name, text + "; SELECT kill();")])
"""


@pytest.fixture
def path(tmp_path):
    """Create a file of schema version 7 with settings of three owners, and return its path."""
    path = str(tmp_path / "sessions.db")
    open(path, "wb").close()
    connection = connect(path, 5.0)
    migrations.prepare_schema(connection, path, 5.0, MIGRATIONS[:7])
    for owner in OWNERS:
        connection.executemany(
            "INSERT INTO settings (owner, key, value, updated_at) VALUES (?, ?, ?, ?)", setting_rows(owner)
        )
    connection.close()
    return path


def test_settings_become_records(path):
    for owner in OWNERS:
        with recollect.open(path, owner=owner) as store:
            check_records(store)
            check_users_of_records(store)
            assert (store.maintenance.owners().names, store.maintenance.check().problems) == (OWNERS, ())


def test_a_killed_migration_is_repeated(path):
    for _ in range(2):
        process = subprocess.run([sys.executable, "-c", KILLED_MIGRATION, path], capture_output=True, check=False)
        assert process.returncode == -9, process.stderr
    with recollect.open(path) as store:
        check_records(store)


def test_the_agent_and_the_bot_find_their_records(path):
    async def scenario():
        async with recollect.open_async(path) as store:
            assert [(grant.server, grant.tool) for grant in await approvals.grants(store)] == [("bank", "pay")]
            assert await approvals.revoke(store) == 1
            assert await approvals.grants(store) == []
            ledger = Ledger(store, "telegram:99")
            await ledger.load()
            assert ledger.marks == {"offset": "7"}

    asyncio.run(scenario())


def test_text_of_dropped_settings_is_not_in_the_file(path):
    recollect.open(path).close()
    with open(path, "rb") as file:
        assert b"SEKRET" not in file.read()
