"""Where the bytes of the file are, and giving back those that nothing uses."""

from __future__ import annotations

import os
from typing import Any

import apsw

from recollect.engine.sqlite.file import File
from recollect.model.space import Optimized, Space

_STEP = 2_000
"""Pages that are given back in one transaction, so that others can write in between."""

_SEARCH = "search"  # tables whose name begins so are the search index
_ROUNDS = 1_000_000


def measure(file: File) -> Space:
    """Say where the bytes are."""
    return file.beside(lambda connection: _measured(file, connection))


def _measured(file: File, connection: apsw.Connection) -> Space:
    tables = _tables(connection)
    indexes = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    page = _number(connection, "PRAGMA page_size")
    total = page * _number(connection, "PRAGMA page_count")
    free = page * _number(connection, "PRAGMA freelist_count")
    messages = tables.get("messages", 0)
    output = min(_output(connection), messages)
    attachments = tables.get("blobs", 0)
    index = sum(size for name, size in tables.items() if name in indexes or name.startswith(_SEARCH))
    return Space(
        total=total, text=messages - output, tool_output=output, attachments=attachments, index=index, free=free,
        other=total - messages - attachments - index - free, log=_size(file.path + "-wal"), tables=tables,
    )  # fmt: skip


def _tables(connection: apsw.Connection) -> dict[str, int]:
    """Add up the pages of each table and index."""
    found = connection.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE ORDER BY name").fetchall()
    return {str(name): int(size) for name, size in found}  # type: ignore[arg-type]


def _output(connection: apsw.Connection) -> int:
    """Add up the messages that hold tool results."""
    return _number(
        connection,
        "SELECT coalesce(sum(octet_length(m.parts)), 0) FROM (SELECT DISTINCT result FROM tool_calls) AS t "
        "CROSS JOIN messages AS m ON m.key = t.result",
    )


def _number(connection: apsw.Connection, query: str) -> int:
    value: Any = connection.execute(query).fetchall()[0][0]
    return int(value)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # a look at the name: the file is not opened
    except OSError:
        return 0


def optimize(file: File) -> Optimized:
    """Return free pages to the disk, rewrite the file, and truncate the log.

    The rewrite (VACUUM) removes what page splits left in unused space, and gives every page a fresh checksum. Free
    pages go first, in short transactions: the rewrite needs room for a second copy of the rest.

    PRAGMA optimize is not run: its statistics are samples of the indexes, copies of titles and ids that erasing does
    not reach. The plans that matter are hinted.
    """
    before = _taken(file)
    file.beside(_give_back)
    if not file.memory:
        file.rewrite()
    return Optimized(before=before, after=_taken(file))


def _give_back(connection: apsw.Connection) -> None:
    for _ in range(_ROUNDS):
        free = _number(connection, "PRAGMA freelist_count")
        connection.execute(f"PRAGMA incremental_vacuum({_STEP})").fetchall()
        if not free or _number(connection, "PRAGMA freelist_count") >= free:
            return


def _taken(file: File) -> int:
    if file.memory:
        return file.beside(
            lambda connection: _number(connection, "PRAGMA page_size") * _number(connection, "PRAGMA page_count")
        )
    return _size(file.path) + _size(file.path + "-wal")
