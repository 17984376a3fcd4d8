"""The SQL of each engine: numbered migrations and named queries, in files.

A query begins with a line `-- name: <table>_<verb>` and is named the same in every engine. Nothing here runs SQL.
"""

from __future__ import annotations

import os

_HERE = os.path.dirname(__file__)
_MARK = "-- name:"


def queries(engine: str) -> dict[str, str]:
    """Read an engine's queries: name to text."""
    found: dict[str, str] = {}
    folder = os.path.join(_HERE, engine, "queries")
    for file in sorted(os.listdir(folder)):
        for block in _read(folder, file).split(_MARK)[1:]:
            name, _, text = block.partition("\n")
            # On one line: the driver hashes the text of a statement each time it is run.
            found[name.strip()] = " ".join(text.split())
    return found


def migrations(engine: str) -> list[tuple[int, str, str]]:
    """Read an engine's migrations in order: number, name, text."""
    folder = os.path.join(_HERE, engine, "migrations")
    files = sorted(file for file in os.listdir(folder) if file.endswith(".sql"))
    return [(int(file[:4]), file[5:-4], _read(folder, file)) for file in files]


def schema(engine: str) -> str:
    """Read the stated schema of an engine."""
    return _read(os.path.join(_HERE, engine), "schema.sql")


def _read(folder: str, file: str) -> str:
    with open(os.path.join(folder, file), encoding="utf-8") as text:
        return text.read()
