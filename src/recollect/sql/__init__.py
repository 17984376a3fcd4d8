"""The SQL of each engine: numbered migrations and named queries, in files.

A query begins with a line `-- name: <table>_<verb>`, then a comment line that describes it. An operation names queries
that every engine has under the same name; a query of one engine only is named by the code of that engine. Text that
several queries of a file share, such as the columns of a row, is written once after a line `-- shared: <name>` and
inserted at `{<name>}`; a shared text may use those that come after it in the file. Comment lines below a marker are not
sent to the database.

This module only reads the files; the engines run the statements.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_DIRECTORY = os.path.dirname(__file__)
_MARKER = re.compile(
    # The comment lines directly below a marker belong to it, so that they are not part of the statement. Anywhere else,
    # a comment would hide the rest of its statement, which becomes one line.
    r"^-- (shared|name):(.*)(?:\n--(?: .*)?)*$",
    re.MULTILINE,
)
_cache: dict[str, dict[str, str]] = {}  # parsing the files takes about 30% of the time to open a store


def queries(engine: str) -> Mapping[str, str]:
    """Return the queries of an engine: name to text."""
    if engine not in _cache:
        _cache[engine] = _parse_queries(engine)
    return _cache[engine]


def _parse_queries(engine: str) -> dict[str, str]:
    parsed: dict[str, str] = {}
    folder = os.path.join(_DIRECTORY, engine, "queries")
    for file in sorted(os.listdir(folder)):
        blocks = _split_blocks(_read(folder, file))
        shared = [(name, body) for mark, name, body in blocks if mark == "shared"]
        for mark, name, body in blocks:
            if mark != "shared":
                parsed[name] = _expand_shared(body, shared)
    return parsed


def _expand_shared(body: str, shared: list[tuple[str, str]]) -> str:
    for name, text in shared:
        body = body.replace("{" + name + "}", text)
    return body


def _split_blocks(text: str) -> list[tuple[str, str, str]]:
    """Return the marker, the name on its line and the text below it, for each marker."""
    pieces = _MARKER.split(text)[1:]
    # On one line: the driver hashes the text of a statement each time that it runs, and short texts hash faster.
    return [
        (mark, name.strip(), " ".join(body.split()))
        for mark, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]


def migrations(engine: str) -> list[tuple[int, str, str]]:
    """Return the migrations of an engine in order: number, name, text."""
    folder = os.path.join(_DIRECTORY, engine, "migrations")
    files = sorted(file for file in os.listdir(folder) if file.endswith(".sql"))
    return [(int(file[:4]), file[5:-4], _read(folder, file)) for file in files]


def schema(engine: str) -> str:
    """Return the complete schema of an engine."""
    return _read(os.path.join(_DIRECTORY, engine), "schema.sql")


def _read(folder: str, file: str) -> str:
    with open(os.path.join(folder, file), encoding="utf-8") as text:
        return text.read()
