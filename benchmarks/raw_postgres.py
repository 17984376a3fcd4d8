"""The baseline: psycopg 3 on one table of PostgreSQL, JSON text, one commit per turn."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from data import Turn


class RawPostgres:
    """A minimal conversation store: one table."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS raw (session text, position integer, role text, body text,"
            " PRIMARY KEY (session, position))"
        )

    def append(self, session: str, position: int, turn: Turn) -> int:
        """Write a turn in a transaction and return the next position."""
        rows = [(session, position + n, message["role"], json.dumps(message)) for n, message in enumerate(turn)]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO raw VALUES (%s, %s, %s, %s)", rows)
        return position + len(turn)

    def load(self, session: str) -> list[Any]:
        """Read a session."""
        rows = self.connection.execute(
            "SELECT role, body FROM raw WHERE session = %s ORDER BY position", (session,)
        ).fetchall()
        return [json.loads(body) for _, body in rows]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
