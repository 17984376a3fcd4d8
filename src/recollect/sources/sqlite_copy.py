"""Reads a SQLite database of another tool from a private copy, while the tool may be writing to it.

The copy has the database and its WAL or rollback journal. It is consistent because it is made again if one of the files
changes meanwhile. The database is untrusted: only ordinary tables are read, its schema cannot call functions with side
effects, and a query stops after a number of steps.
"""

from __future__ import annotations

import base64
import math
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from recollect.errors import UnreadableFile
from recollect.sources.files import FileStamp, FileTree, FolderTree

MAGIC = b"SQLite format 3\x00"
SIDE_FILES = ("-wal", "-journal")
_ATTEMPTS = 40  # with pauses of 50 ms, two seconds until a busy database is reported
_PAUSE = 0.05  # seconds between attempts; a tool that streams an answer writes in bursts that are shorter
_CLOCK_STEP = 20_000_000  # nanoseconds; Linux advances the time of a changed file in steps of up to 10 ms
_STEPS_PER_CALL = 100_000  # of SQLite's virtual machine
_MAX_CALLS = 20_000  # so that a query ends after about 20 s; reading a million rows takes 0.5 s
_MAX_VALUE = 512 << 20  # bytes of one value, half of SQLite's own limit
_NAME = "copy.db"

_Stamps = tuple[FileStamp | None, ...]


class TableColumns(NamedTuple):
    """A table and the names of its columns."""

    name: str
    columns: tuple[str, ...]


class DatabaseCopy:
    """An open private copy of a database."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        try:
            self._connection = sqlite3.connect(
                f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        connection = self._connection
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        if sys.version_info >= (3, 12):  # closing does not copy the WAL into a database that is deleted next
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
        self._calls = 0
        connection.set_progress_handler(self._count_call, _STEPS_PER_CALL)
        for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
            list(self._execute(f"PRAGMA {pragma}"))
        self.tables = {table.name: table for table in self._read_tables()}

    def close(self) -> None:
        """Close the copy."""
        self._connection.close()

    def rows(
        self, table: str, column: str | None = None, value: Any = None, order: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table, or those with a value in a column, as JSON data.

        `order` names columns, separated by commas; those that the table lacks are ignored.
        """
        columns = self.tables[table].columns if table in self.tables else ()
        if not columns or (column is not None and column not in columns):
            return
        query = f"SELECT {', '.join(map(_quote, columns))} FROM {_quote(table)}"
        if column is not None:
            if type(value) not in (str, int):
                return  # bytes, a number or NULL is not an id of any tool
            query += f" WHERE {_quote(column)} = {'CAST(? AS TEXT)' if type(value) is str else '?'}"
            value = value.encode("utf-8", "surrogateescape") if type(value) is str else value
        terms = [_quote(term) for term in order.split(",") if term in columns]
        query += f" ORDER BY {', '.join(terms)}" if terms else ""
        for row in self._execute(query, () if column is None else (value,)):
            yield {name: _to_json(item) for name, item in zip(columns, row, strict=True)}

    def summaries(self, table: str, column: str) -> Iterator[tuple[str, str]]:
        """Yield each text in a column, and a text that changes with the rows that have it.

        It depends on the number of rows and on the latest change, by `time_updated` or `seq`, or on the length of all
        values if the table has neither. So it reads no long values of large tables.
        """
        columns = self.tables[table].columns
        progress = [_quote(name) for name in ("time_updated", "seq") if name in columns]
        terms = [f"max({name}), total({name})" for name in progress]
        terms = terms or [f"total(length({_quote(name)}))" for name in columns]
        query = f"SELECT {_quote(column)}, count(*), {', '.join(terms)} FROM {_quote(table)} GROUP BY 1"
        for key, *values in self._execute(query):
            if type(key) is str:
                yield key, repr(values)

    def _read_tables(self) -> Iterator[TableColumns]:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        for name, sql in list(self._execute(query)):
            if type(name) is not str or type(sql) is not str or not sql.upper().startswith("CREATE TABLE"):
                continue  # a virtual table
            columns = tuple([row[1] for row in self._execute(f"PRAGMA table_info({_quote(name)})")])
            yield TableColumns(name, columns)

    def _execute(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a query and yield its rows. Raise UnreadableFile if it takes too long, or for damage."""
        self._calls = 0
        try:
            yield from self._connection.execute(query, values)
        except (sqlite3.Error, OverflowError, UnicodeError, ValueError) as error:
            raise self._unreadable(error) from error

    def _count_call(self) -> int:
        self._calls += 1
        return int(self._calls > _MAX_CALLS)

    def _unreadable(self, error: Exception) -> UnreadableFile:
        return UnreadableFile(f"{self._name} cannot be read as a database: {error}.")


@contextmanager
def open_copy(tree: FileTree, name: str) -> Generator[DatabaseCopy, None, None]:
    """Copy a database of a tree to a private folder, and open the copy. Raise UnreadableFile if that fails."""
    with tempfile.TemporaryDirectory(prefix="recollect-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / _NAME
        _copy_consistently(*_locate(tree, name), path)
        with closing(DatabaseCopy(path, name)) as copy:
            yield copy


def is_database(tree: FileTree, name: str) -> bool:
    """Return whether a file is a SQLite database."""
    if name.endswith((".json", ".jsonl", *SIDE_FILES)):
        return False  # folders of other tools have thousands of files of lines
    return tree.head(name)[: len(MAGIC)] == MAGIC


def side_files(tree: FileTree, name: str) -> tuple[str, ...]:
    """Return the names of the WAL and the journal of a database, if they exist."""
    stamps = _stamps(*_locate(tree, name))[1:]
    return tuple([name + suffix for suffix, stamp in zip(SIDE_FILES, stamps, strict=True) if stamp is not None])


def read_tables(tree: FileTree, name: str) -> dict[str, TableColumns]:
    """Return the tables of a database; none if it cannot be read, for the reason in `tree.problems`.

    The last few answers are cached.
    """
    try:
        key = (str(tree.path), name, _stamps(*_locate(tree, name)))
        if key not in _cache:
            with open_copy(tree, name) as copy:
                while len(_cache) >= _MAX_CACHE:
                    _cache.pop(next(iter(_cache)))
                _cache[key] = copy.tables
    except UnreadableFile as error:
        tree.problems[name] = str(error)
        return {}
    return _cache[key]


_MAX_CACHE = 16  # databases that several sources look at in turn
_cache: dict[tuple[str, str, _Stamps], dict[str, TableColumns]] = {}


def _copy_consistently(tree: FileTree, name: str, target: Path) -> None:
    """Copy a database and its side files, again until none of them changes meanwhile."""
    for _ in range(_ATTEMPTS):
        before = _stamps(tree, name)
        if _is_recent(before):
            time.sleep(_PAUSE)  # another change in the same step of the clock would not be visible
            before = _stamps(tree, name)
        for suffix, stamp in zip(("", *SIDE_FILES), before, strict=True):
            path = target.with_name(target.name + suffix)
            path.unlink(missing_ok=True)
            if stamp is not None:
                _copy_file(tree, name + suffix, path)
        if _stamps(tree, name) == before:
            return
        time.sleep(_PAUSE)
    raise UnreadableFile(f"{name} changed during each of {_ATTEMPTS} attempts to copy it. Import it again later.")


def _copy_file(tree: FileTree, name: str, path: Path) -> None:
    try:
        with closing(tree.open(name)) as source, path.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except OSError as error:
        raise UnreadableFile(f"{name} cannot be copied: {error.strerror or error}.") from error


def _stamps(tree: FileTree, name: str) -> _Stamps:
    """Return the stamps of a database and of its side files, None for one that does not exist."""
    side_stamps: list[FileStamp | None] = []
    for suffix in SIDE_FILES:
        try:
            side_stamps.append(tree.stamp(name + suffix))
        except UnreadableFile:
            side_stamps.append(None)
    return (tree.stamp(name), *side_stamps)


def _locate(tree: FileTree, name: str) -> tuple[FileTree, str]:
    """Return the folder of a database as a tree. A tree of a single file does not have the side files."""
    path = tree.local_path(name)
    if path is None:
        return tree, name  # in an archive
    if path == tree.path:
        path = path.resolve()  # SQLite puts the WAL next to the target of a link
    return FolderTree(path.parent), path.name


def _is_recent(stamps: _Stamps) -> bool:
    now = time.time_ns()
    return any(stamp is not None and abs(now - stamp.modification) < _CLOCK_STEP for stamp in stamps)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _to_json(value: Any) -> Any:
    """Return a value of SQLite as JSON data: bytes as base64, infinity as text, each in an object that names it."""
    if type(value) is bytes:
        return {"base64": base64.b64encode(value).decode()}
    if type(value) is float and not math.isfinite(value):
        return {"real": str(value)}
    return value
