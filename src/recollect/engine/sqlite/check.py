"""Checking the file itself: its structure and indexes, references between rows, and the checksum of each page."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from recollect.engine.sqlite.connection import checksum_vfs, connect_verified
from recollect.engine.sqlite.file import File
from recollect.errors import Corrupted
from recollect.model.finding import Finding

_MOST = 100
_MISMATCH = f"error code={apsw.SQLITE_IOERR_DATA}"
_RESTORE = "Stop writing to the file and restore a backup (recollect.restore())."
_WRITTEN = (
    "The page is damaged, or another program than Recollect wrote it. Where the file is otherwise sound, "
    "docs/format.md says how to accept it; else restore a backup."
)


def checked(deep: bool) -> tuple[str, ...]:
    """Name what is looked at."""
    return ("references", "structure", "indexes", "checksums") if deep else ("references",)


def check(file: File, *, deep: bool) -> list[Finding]:
    """Look at the whole file. Without `deep` only at what is quickly found."""
    try:
        return _looked(file, deep=deep)
    except Corrupted:
        pass  # the disk may have failed for a moment: looked at again before it is said
    try:
        return _looked(file, deep=deep)
    except Corrupted as error:
        return [Finding(kind="structure", message=str(error), advice=_RESTORE)]


def _looked(file: File, *, deep: bool) -> list[Finding]:
    return file.beside(lambda connection: _found(file, connection, deep=deep))


def _found(file: File, connection: apsw.Connection, *, deep: bool) -> list[Finding]:
    found = list(_references(connection))
    if deep:
        found += _structure(connection)
        if not file.memory and checksum_vfs() is not None:
            found += _checksums(file)
    return found


def _references(connection: apsw.Connection) -> Iterator[Finding]:
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchall()[:_MOST]:
        message = f"Row {row} of {table} refers to a row of {parent} that is not there."
        yield Finding(kind="reference", message=message, advice=_RESTORE)


def _structure(connection: apsw.Connection) -> Iterator[Finding]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST})").fetchall():
        # Of the search index, whose damage loses nothing, the operation that checks it speaks.
        if line != "ok" and "search_" not in str(line):
            yield Finding(kind="structure", message=f"SQLite's own check says: {line}.", advice=_RESTORE)


def _checksums(file: File) -> list[Finding]:
    connection = connect_verified(file.path, file.timeout)
    try:
        lines = connection.execute(f"PRAGMA integrity_check({_MOST})").fetchall()
        wrong = any(_MISMATCH in str(line) for (line,) in lines)
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_DATA:
            raise  # the disk, and not what is on it
        wrong = True
    finally:
        connection.close()
    message = f"A page of {file.path} does not match its checksum."
    return [Finding(kind="checksum", message=message, advice=_WRITTEN)] if wrong else []
