"""The entry point of the PostgreSQL engine."""

from __future__ import annotations

from recollect import sql
from recollect.engine.engine import AsyncEngine, Engine
from recollect.engine.postgres.sync_engine import PostgresEngine
from recollect.lazy_imports import import_before_fork

files = None  # they belong to the server


def schema_version() -> int:
    """Return the number of the newest migration."""
    return sql.migrations("postgres")[-1][0]


def open(url: str, *, owner: str, timeout: float, trusted: bool = False) -> Engine:
    """Connect to a server. Unless `trusted`, a role that bypasses row-level security is refused for an owner."""
    return PostgresEngine(url, owner=owner, timeout=timeout, trusted=trusted)


def open_async(url: str, *, owner: str, timeout: float) -> AsyncEngine:
    """Connect to a server for concurrent tasks."""
    from recollect.engine.postgres.async_engine import AsyncPostgresEngine  # noqa: PLC0415  it imports asyncio: 40 ms

    return AsyncPostgresEngine(url, owner=owner, timeout=timeout)


def _load_search() -> None:
    """Import the module that a search imports on first use."""
    __import__("recollect.engine.postgres.search")


import_before_fork(_load_search)
