"""The SQL of each engine: numbered migrations and named queries, in files.

A query begins with a line `-- name: <table>_<verb>` and is named the same in every engine. What several queries of a
file share, such as the columns of a row, is written once after a line `-- shared: <name>` and stands in them as
`{<name>}`. An engine where two operations can run at once has `-- lock: <name>` too: what is to be locked before that
query is run by an operation that writes; and `-- before: <name>`, what is to be run before it by any. What an engine
does in two steps has `-- then: <name>`, the second one, and perhaps `-- or then: <name>`, another one for some cases;
or `-- step: <name>`, one that several queries begin with.
Where each journey to a server counts, `-- brief: <name>` is a query as it is without the calls of tools, and
`-- ends: <name>` says that an operation which begins with the query mostly ends with it; below it stands what finds its
row again where the answer was lost, and after `-- traces: <name>` what gives a row unless the query surely met nothing.
Nothing here runs SQL.
"""

from __future__ import annotations

import os
import re

_HERE = os.path.dirname(__file__)
_MARK = re.compile(r"^-- (shared|name|lock|before|then|or then|step|brief|ends|traces):(.*)$", re.MULTILINE)
_kept: dict[str, dict[str, dict[str, str]]] = {}  # taking the files apart is a third of what opening a store costs


def queries(engine: str) -> dict[str, str]:
    """Read an engine's queries: name to text."""
    return _marked(engine, "name")


def locks(engine: str) -> dict[str, str]:
    """Read what an engine locks before some of its queries: the query's name to text."""
    return _marked(engine, "lock")


def befores(engine: str) -> dict[str, str]:
    """Read what an engine runs before some of its queries, with the same parameters: the query's name to text."""
    return _marked(engine, "before")


def thens(engine: str) -> dict[str, str]:
    """Read the second steps of queries that an engine does in two: the query's name to text."""
    return _marked(engine, "then")


def alternatives(engine: str) -> dict[str, str]:
    """Read the other second steps of such queries: the query's name to text."""
    return _marked(engine, "or then")


def steps(engine: str) -> dict[str, str]:
    """Read the first steps that several queries of an engine begin with: name to text."""
    return _marked(engine, "step")


def briefs(engine: str) -> dict[str, str]:
    """Read queries as they are without the calls of tools: the query's name to text."""
    return _marked(engine, "brief")


def ends(engine: str) -> dict[str, str]:
    """Read which queries an operation mostly ends with, and what finds their row again: the query's name to text."""
    return _marked(engine, "ends")


def traces(engine: str) -> dict[str, str]:
    """Read what looks for anything that such a query may have written: the query's name to text."""
    return _marked(engine, "traces")


def _marked(engine: str, mark: str) -> dict[str, str]:
    found = _kept.get(engine)
    if found is None:
        found = _kept[engine] = _found(engine)
    return dict(found.get(mark, {}))


def _found(engine: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    folder = os.path.join(_HERE, engine, "queries")
    for file in sorted(os.listdir(folder)):
        blocks = _blocks(_read(folder, file))
        shared = [(name, words) for mark, name, words in blocks if mark == "shared"]
        for mark, name, words in blocks:
            found.setdefault(mark, {})[name] = _filled(words, shared)
    return found


def _filled(words: str, shared: list[tuple[str, str]]) -> str:
    for name, text in shared:
        words = words.replace("{" + name + "}", text)
    return words


def _blocks(text: str) -> list[tuple[str, str, str]]:
    """Read what stands after each mark: the mark, a name on its line, and a text below it."""
    pieces = _MARK.split(text)[1:]
    # On one line: the driver hashes the text of a statement each time it is run.
    return [
        (mark, name.strip(), " ".join(words.split()))
        for mark, name, words in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]


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
