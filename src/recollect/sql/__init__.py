"""The SQL of each engine: numbered migrations and named queries, in files.

A query begins with a line `-- name: <table>_<verb>`, then a comment line that describes it. Its name is the same in
every engine. Comment lines directly below a marker are not sent to the database. Text that several queries of a file
share, such as the columns of a row, is written once after a line `-- shared: <name>` and inserted at `{<name>}`; a
shared text may use those that come after it in the file. Further markers, each followed by the name of a query:

    -- lock:           locks the rows that the query reads, in operations that write (concurrent transactions only)
    -- before:         a statement that runs before the query, with the same parameters
    -- then:           the second step of a query that an engine runs in two steps
    -- or then:        an alternative second step
    -- step:           a first step that several queries share
    -- without calls:  the query without tool calls, a shorter text for the usual append
    -- final:          the query usually ends its operation; the text finds its row again if the reply was lost
    -- probe:          returns a row if the query may have written anything

This module only reads the files; the engines run the statements.
"""

from __future__ import annotations

import os
import re

_DIRECTORY = os.path.dirname(__file__)
_MARKER = re.compile(
    # The comment lines directly below a marker belong to it, so that they are not part of the statement. Anywhere else,
    # a comment would hide the rest of its statement, which becomes one line.
    r"^-- (shared|name|lock|before|then|or then|step|without calls|final|probe):(.*)(?:\n--(?: .*)?)*$",
    re.MULTILINE,
)
# Engine to marker to name to text. Parsing the files takes about 30% of the time to open a store, so it happens once.
_cache: dict[str, dict[str, dict[str, str]]] = {}


def queries(engine: str) -> dict[str, str]:
    """Return the queries of an engine: name to text."""
    return _texts_by_marker(engine, "name")


def locks(engine: str) -> dict[str, str]:
    """Return the locking statements that precede some queries: query name to text."""
    return _texts_by_marker(engine, "lock")


def pre_statements(engine: str) -> dict[str, str]:
    """Return the statements that run before some queries, with the same parameters: query name to text."""
    return _texts_by_marker(engine, "before")


def second_steps(engine: str) -> dict[str, str]:
    """Return the second steps of queries that an engine runs in two steps: query name to text."""
    return _texts_by_marker(engine, "then")


def alternative_second_steps(engine: str) -> dict[str, str]:
    """Return the alternative second steps of such queries: query name to text."""
    return _texts_by_marker(engine, "or then")


def first_steps(engine: str) -> dict[str, str]:
    """Return the first steps that several queries share: name to text."""
    return _texts_by_marker(engine, "step")


def queries_without_tool_calls(engine: str) -> dict[str, str]:
    """Return the variants of queries that write no tool calls: query name to text."""
    return _texts_by_marker(engine, "without calls")


def final_query_lookups(engine: str) -> dict[str, str]:
    """Return the queries that usually end an operation, with the lookup of their row after a lost reply."""
    return _texts_by_marker(engine, "final")


def write_probes(engine: str) -> dict[str, str]:
    """Return the statements that look for rows which such a query may have written: query name to text."""
    return _texts_by_marker(engine, "probe")


def _texts_by_marker(engine: str, mark: str) -> dict[str, str]:
    parsed = _cache.get(engine)
    if parsed is None:
        parsed = _cache[engine] = _parse_queries(engine)
    return dict(parsed.get(mark, {}))


def _parse_queries(engine: str) -> dict[str, dict[str, str]]:
    parsed: dict[str, dict[str, str]] = {}
    folder = os.path.join(_DIRECTORY, engine, "queries")
    for file in sorted(os.listdir(folder)):
        blocks = _split_blocks(_read(folder, file))
        shared = [(name, body) for mark, name, body in blocks if mark == "shared"]
        for mark, name, body in blocks:
            parsed.setdefault(mark, {})[name] = _expand_shared(body, shared)
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
