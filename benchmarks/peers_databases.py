"""The databases of peers.py: a folder for each store, or a database on a PostgreSQL server that is started for them."""

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


class Databases:
    """Creates, copies and drops databases, and counts their bytes."""

    def __init__(self, names: list[str]) -> None:
        self.folder = tempfile.mkdtemp(prefix="recollect-peers-")
        # Preparation needs no disk. A prepared store is moved to the disk before it is measured.
        self.memory = tempfile.mkdtemp(prefix="recollect-peers-", dir=MEMORY if os.path.isdir(MEMORY) else None)
        self.server: Any = None
        self.count = 0
        if any(name in POSTGRES for name in names):
            sys.path.insert(0, os.path.join(ROOT, "tests"))
            from postgres_server import PostgresServer  # noqa: PLC0415

            self.server = PostgresServer(*SETTINGS).start()

    def remove(self) -> None:
        """Stop the server and delete all databases."""
        if self.server is not None:
            self.server.remove()
        for folder in (self.folder, self.memory):
            shutil.rmtree(folder, ignore_errors=True)

    def new(self, name: str) -> str:
        """Return the location of a new database for a measurement."""
        return self._database(self._number()) if name in POSTGRES else self._file(self.folder)

    def new_for_preparation(self, name: str) -> str:
        """Return the location of a new database for preparation, without syncs to the disk."""
        if name not in POSTGRES:
            return self._file(self.memory)
        number = self._number()
        location = self._database(number)
        self._execute(f"ALTER DATABASE peers{number} SET synchronous_commit = off")
        return location

    def move_to_disk(self, name: str, location: str) -> str:
        """Move a prepared database to the disk, and return its location."""
        if name in POSTGRES:
            self._execute(f"ALTER DATABASE {_database_of(location)} RESET synchronous_commit", "CHECKPOINT")
            return location
        return self._transfer(location, shutil.move)

    def copy(self, name: str, location: str) -> str:
        """Return the location of a copy of a prepared database."""
        if name not in POSTGRES:
            return self._transfer(location, shutil.copytree)
        number = self._number()
        self._execute(f"CREATE DATABASE peers{number} TEMPLATE {_database_of(location)}", "CHECKPOINT")
        return self.server.url(f"peers{number}", "postgres")

    def drop(self, name: str, location: str) -> None:
        """Delete a database."""
        if name in POSTGRES:
            self._execute(f"DROP DATABASE {_database_of(location)} WITH (FORCE)")
        else:
            shutil.rmtree(os.path.dirname(location), ignore_errors=True)

    def bytes(self, name: str, location: str) -> int:
        """Count the bytes of a closed store: all of its files, or all of its tables and indexes."""
        if name not in POSTGRES:
            paths = glob.glob(location + "*") + glob.glob(location + ".jsonl/*")
            return sum(os.path.getsize(file) for file in paths if os.path.isfile(file))
        import psycopg  # noqa: PLC0415

        with psycopg.connect(location) as connection:
            return connection.execute(
                "SELECT sum(pg_total_relation_size(pg_class.oid))::bigint FROM pg_class "
                "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                "WHERE relkind IN ('r', 'm') AND nspname !~ '^(pg_|information_schema)'"
            ).fetchone()[0]

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _file(self, folder: str) -> str:
        directory = os.path.join(folder, str(self._number()))
        os.makedirs(directory)
        return os.path.join(directory, "store.db")

    def _transfer(self, location: str, action: Any) -> str:
        target = os.path.join(self.folder, str(self._number()))
        action(os.path.dirname(location), target)
        return os.path.join(target, os.path.basename(location))

    def _database(self, number: int) -> str:
        self._execute(f"CREATE DATABASE peers{number}")
        return self.server.url(f"peers{number}", "postgres")

    def _execute(self, *statements: str) -> None:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self.server.url("postgres", "postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


def _database_of(location: str) -> str:
    return location.partition("?")[0].rpartition("/")[2]
