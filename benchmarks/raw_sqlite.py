"""The baseline: Python's sqlite3 on one table, JSON text, one commit per turn, synchronous=FULL."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from data import Turn


class RawSqlite:
    """A minimal conversation store: one table for messages, one for sessions."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS messages (session TEXT, position INTEGER, role TEXT, body TEXT,"
            " PRIMARY KEY (session, position)) WITHOUT ROWID"
        )
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, title TEXT, updated INTEGER)"
        )
        self.connection.execute("CREATE INDEX IF NOT EXISTS sessions_updated ON sessions (updated)")

    def append(self, session: str, position: int, turn: Turn) -> int:
        """Write a turn in a transaction and return the next position."""
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for message in turn:
            execute(
                "INSERT INTO messages VALUES (?, ?, ?, ?)", (session, position, message["role"], json.dumps(message))
            )
            position += 1
        execute("COMMIT")
        return position

    def load(self, session: str) -> list[Any]:
        """Read a session."""
        rows = self.connection.execute(
            "SELECT role, body FROM messages WHERE session = ? ORDER BY position", (session,)
        )
        return [json.loads(body) for _, body in rows]

    def last(self, session: str, count: int) -> list[Any]:
        """Read the last messages of a session."""
        rows = self.connection.execute(
            "SELECT role, body FROM messages WHERE session = ? ORDER BY position DESC LIMIT ?", (session, count)
        )
        return [json.loads(body) for _, body in rows][::-1]

    def list(self, count: int) -> list[Any]:
        """Read the first page of the list."""
        rows = self.connection.execute(
            "SELECT id, title, updated FROM sessions ORDER BY updated DESC LIMIT ?", (count,)
        )
        return rows.fetchall()

    def close(self) -> None:
        """Checkpoint the WAL and close the connection."""
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.close()
