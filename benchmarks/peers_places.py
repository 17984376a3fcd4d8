"""Where the stores of peers.py live: a folder for each, or a database of a PostgreSQL server started for them."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from typing import Any

from contenders import NAMES

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
POSTGRES = tuple(name for name in NAMES if name.endswith(("postgres", "psycopg", "asyncpg-pool")))
MEMORY = "/dev/shm"  # noqa: S108
SETTINGS = ("fsync=on", "synchronous_commit=on", "max_connections=300")


class Places:
    """New places, copies of prepared ones, and how many bytes are in them."""

    def __init__(self, names: list[str]) -> None:
        self.folder = tempfile.mkdtemp(prefix="recollect-peers-")
        # What is only prepared needs no disk; it is moved there before it is measured.
        self.memory = tempfile.mkdtemp(prefix="recollect-peers-", dir=MEMORY if os.path.isdir(MEMORY) else None)
        self.server: Any = None
        self.count = 0
        if any(name in POSTGRES for name in names):
            sys.path.insert(0, os.path.join(ROOT, "tests"))
            from postgres_server import PostgresServer  # noqa: PLC0415

            self.server = PostgresServer(*SETTINGS).start()

    def remove(self) -> None:
        """Stop the server, and remove everything."""
        if self.server is not None:
            self.server.remove()
        for folder in (self.folder, self.memory):
            shutil.rmtree(folder, ignore_errors=True)

    def new(self, name: str) -> str:
        """Give an empty place to measure in."""
        return self._database(self._number()) if name in POSTGRES else self._file(self.folder)

    def preparing(self, name: str) -> str:
        """Give an empty place to prepare in, where nothing waits for the disk."""
        if name not in POSTGRES:
            return self._file(self.memory)
        number = self._number()
        place = self._database(number)
        self._execute(f"ALTER DATABASE peers{number} SET synchronous_commit = off")
        return place

    def prepared(self, name: str, place: str) -> str:
        """Give what was prepared a place on the disk, where it is measured."""
        if name in POSTGRES:
            self._execute(f"ALTER DATABASE {_database_of(place)} RESET synchronous_commit", "CHECKPOINT")
            return place
        return self._moved(place, shutil.move)

    def copy(self, name: str, place: str) -> str:
        """Give a copy, to write in."""
        if name not in POSTGRES:
            return self._moved(place, shutil.copytree)
        number = self._number()
        self._execute(f"CREATE DATABASE peers{number} TEMPLATE {_database_of(place)}", "CHECKPOINT")
        return self.server.url(f"peers{number}", "postgres")

    def drop(self, name: str, place: str) -> None:
        """Remove what is no longer needed."""
        if name in POSTGRES:
            self._execute(f"DROP DATABASE {_database_of(place)} WITH (FORCE)")
        else:
            shutil.rmtree(os.path.dirname(place), ignore_errors=True)

    def bytes(self, name: str, place: str) -> int:
        """Count the bytes of a store that nobody has open: all of its files, or all tables and indexes of its own."""
        if name not in POSTGRES:
            found = glob.glob(place + "*") + glob.glob(place + ".jsonl/*")
            return sum(os.path.getsize(file) for file in found if os.path.isfile(file))
        import psycopg  # noqa: PLC0415

        with psycopg.connect(place) as connection:
            return connection.execute(
                "SELECT sum(pg_total_relation_size(pg_class.oid))::bigint FROM pg_class "
                "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                "WHERE relkind IN ('r', 'm') AND nspname !~ '^(pg_|information_schema)'"
            ).fetchone()[0]

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _file(self, folder: str) -> str:
        made = os.path.join(folder, str(self._number()))
        os.makedirs(made)
        return os.path.join(made, "store.db")

    def _moved(self, place: str, action: Any) -> str:
        target = os.path.join(self.folder, str(self._number()))
        action(os.path.dirname(place), target)
        return os.path.join(target, os.path.basename(place))

    def _database(self, number: int) -> str:
        self._execute(f"CREATE DATABASE peers{number}")
        return self.server.url(f"peers{number}", "postgres")

    def _execute(self, *statements: str) -> None:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self.server.url("postgres", "postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


def _database_of(place: str) -> str:
    return place.partition("?")[0].rpartition("/")[2]
