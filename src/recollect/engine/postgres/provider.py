"""The entry point of the PostgreSQL engine."""

from __future__ import annotations

from recollect import sql
from recollect.engine.engine import AsyncEngine, Engine
from recollect.engine.postgres.server import DatabaseServer
from recollect.engine.postgres.sync_engine import PostgresEngine
from recollect.lazy_imports import import_before_fork

files = None  # they belong to the server


def schema_version() -> int:
    """Return the number of the newest migration."""
    return sql.migrations("postgres")[-1][0]


def open(url: str, *, owner: str, timeout: float, trusted: bool = False) -> Engine:
    """Connect to a server. Unless `trusted`, a role that bypasses row-level security is refused for an owner."""
    return PostgresEngine(DatabaseServer(url, owner, timeout, trusted=trusted), owner)


def open_async(url: str, *, owner: str, timeout: float) -> AsyncEngine:
    """Connect to a server for concurrent tasks."""
    from recollect.engine.postgres.async_engine import (  # noqa: PLC0415  it imports asyncio: 40 ms
        AsyncPostgresEngine,
        SharedServer,
    )

    return AsyncPostgresEngine(SharedServer(DatabaseServer(url, owner, timeout)), owner)


def _load_search() -> None:
    """Import the module that a search imports on first use."""
    __import__("recollect.engine.postgres.search")


import_before_fork(_load_search)
