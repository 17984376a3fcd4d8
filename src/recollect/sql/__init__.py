"""The SQL of each engine: numbered migrations and named queries, in files.

A query begins with a line `-- name: <table>_<verb>` and is named the same in every engine. What several queries of a
file share, such as the columns of a row, is written once after a line `-- shared: <name>` and stands in them as
`{<name>}`. Nothing here runs SQL.
"""

from __future__ import annotations

import os

_HERE = os.path.dirname(__file__)
_NAME = "-- name:"
_SHARED = "-- shared:"


def queries(engine: str) -> dict[str, str]:
    """Read an engine's queries: name to text."""
    found: dict[str, str] = {}
    folder = os.path.join(_HERE, engine, "queries")
    for file in sorted(os.listdir(folder)):
        shared, *rest = _read(folder, file).split(_NAME, 1)
        text = _NAME.join(["", *rest])
        for name, words in _blocks(shared, _SHARED):
            text = text.replace("{" + name + "}", words)
        found.update(_blocks(text, _NAME))
    return found


def _blocks(text: str, mark: str) -> list[tuple[str, str]]:
    """Read what stands after each mark: a name on its line, and a text below it."""
    blocks: list[tuple[str, str]] = []
    for block in text.split(mark)[1:]:
        name, _, words = block.partition("\n")
        # On one line: the driver hashes the text of a statement each time it is run.
        blocks.append((name.strip(), " ".join(words.split())))
    return blocks


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
