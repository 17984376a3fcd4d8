"""Migration 8 on SQLite: "canceled" becomes "cancelled", also after a kill in the middle of the migration."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_settings_migration import KILLED_MIGRATION

import recollect
from cancelled_of_version_7 import PARTS, STATUSES
from recollect import sql
from recollect.engine.sqlite import migrations
from recollect.engine.sqlite.connection import connect
from recollect.model.message import Draft, ToolResultPart
from recollect.storage import appends
from recollect.storage.messages import encode_draft

MIGRATIONS = sql.migrations("sqlite")
BROKEN = '[{"kind":"tool_result","status":"canceled"'


@pytest.fixture
def path(tmp_path):
    """Create a file of schema version 7 with the messages and a tool call of every status, and return its path."""
    path = str(tmp_path / "sessions.db")
    open(path, "wb").close()
    connection = connect(path, 5.0)
    migrations.prepare_schema(connection, path, 5.0, MIGRATIONS[:7])
    connection.executemany(
        "INSERT INTO messages (key, role, created_at, parts) VALUES (?, 'tool', 1, ?)",
        [(number, old) for number, (old, _) in enumerate([*PARTS, (BROKEN, BROKEN)])],
    )
    connection.executemany(
        "INSERT INTO tool_calls (message, part, branch, call_id, tool, status, result, created_at, error_message) "
        "VALUES (?, 0, 1, 'canceled', 'canceled', ?, ?, 5, 'canceled')",
        [(number, status, number) for number, status in enumerate(STATUSES)],
    )
    connection.close()
    return path


def check_contents(path: str) -> None:
    recollect.open(path).close()
    connection = connect(path, 5.0)
    parts = [row[0] for row in connection.execute("SELECT parts FROM messages ORDER BY key")]
    assert parts == [*(new for _, new in PARTS), BROKEN]
    calls = connection.execute("SELECT * FROM tool_calls").fetchall()
    assert calls == [
        (number, 0, 1, "canceled", "canceled", "cancelled" if status == "canceled" else status, number, None, 5, None,
         None, None, None, "canceled")
        for number, status in enumerate(STATUSES)
    ]  # fmt: skip
    assert connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'former%'").fetchall() == []
    connection.close()


def test_every_status_is_changed(path):
    check_contents(path)


def test_a_killed_migration_is_repeated(path):
    for _ in range(2):
        process = subprocess.run([sys.executable, "-c", KILLED_MIGRATION, path], capture_output=True, check=False)
        assert process.returncode == -9, process.stderr
        connection = connect(path, 5.0)
        assert connection.execute("SELECT count(*) FROM tool_calls WHERE status = 'canceled'").fetchall() == [(1,)]
        connection.close()
    check_contents(path)


def test_an_idempotency_key_of_version_7_has_the_same_content_again():
    digests = [
        appends._digest([encode_draft(Draft(role="tool", parts=(result,)), 5)], "")
        for result in (
            ToolResultPart(call_id="c", status="canceled"),  # pyright: ignore[reportArgumentType]  as version 7 wrote it
            ToolResultPart(call_id="c", status="cancelled"),
            ToolResultPart(call_id="c", status="error"),
        )
    ]
    assert digests[0] == digests[1] != digests[2]
