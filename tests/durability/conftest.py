"""Fixtures of the durability tests: a path, child processes that are always ended, and a check of the whole file."""

from __future__ import annotations

import apsw
import children
import pytest

import recollect
from recollect.engine.sqlite.connection import connect_verified


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def filled_path(path):
    """Return the path of a closed store with two sessions of 100 messages."""
    with recollect.open(path) as store:
        for name in ("cli:a", "cli:b"):
            texts = [f"{number} {'word ' * 100}" for number in range(100)]
            store.session(name).append([{"role": "user", "content": text} for text in texts])
    return path


@pytest.fixture
def spawn():
    """Return a function that starts child processes; all of them are killed after the test."""
    processes = []

    def start(command_name, *args, **options):
        child = children.start(command_name, *args, **options)
        processes.append(child)
        return child

    yield start
    for child in processes:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture
def check_database():
    """Return a function that checks a file: structure, references, checksums, and the stored message counts."""

    def check(path: str) -> None:
        connection = connect_verified(path, 10.0)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            assert _wrong_counts(connection) == []
        finally:
            connection.close()

    return check


def _wrong_counts(connection: apsw.Connection) -> list[tuple]:
    """Return the sessions without forks whose stored count differs from the number of their messages."""
    return connection.execute(
        "SELECT s.id, s.message_count, s.last, count(m.key), max(m.key & 4294967295) FROM sessions AS s "
        "LEFT JOIN messages AS m ON m.key >> 32 = s.head GROUP BY s.key "
        "HAVING s.message_count <> count(m.key) OR s.last <> coalesce(max(m.key & 4294967295), 0)"
    ).fetchall()
