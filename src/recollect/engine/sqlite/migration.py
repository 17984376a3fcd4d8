"""Bringing a database file to the schema that this program knows, or refusing one that is not ours or is newer."""

from __future__ import annotations

import os

import apsw

from recollect import sql
from recollect.engine import part
from recollect.engine.sqlite.connection import (
    APPLICATION_ID,
    configure,
    connect,
    expect_checksums,
    keep_log,
    patiently,
    sealed,
    shape,
)
from recollect.engine.url import MEMORY
from recollect.errors import NotADatabase, SchemaTooNew, StoreUnavailable

Migration = tuple[int, str, str]


def ready(connection: apsw.Connection, path: str, timeout: float, known: list[Migration] | None = None) -> None:
    """Make a new file, migrate an older one, refuse a newer or a foreign one before anything is changed."""
    migrations = sql.migrations("sqlite") if known is None else known
    latest = migrations[-1][0]
    version = check(connection, path, latest)
    if version == 0:
        patiently(lambda: shape(connection, path), timeout)
    elif path != MEMORY and not sealed(path) and connection.execute("PRAGMA journal_mode").fetchall()[0][0] != "wal":
        # A copy is one file, without a log beside it. Opened as a store it needs one.
        patiently(lambda: keep_log(connection, path), timeout)
    configure(connection)
    pending = [migration for migration in migrations if migration[0] > version]
    for index, migration in enumerate(pending):
        _apply(connection, path, migration, latest, timeout, copy=index == 0)


def check(connection: apsw.Connection, path: str, latest: int) -> int:
    """Read the schema version: 0 for an empty file. Refuse what is not ours or newer than this program."""
    connection.execute("SAVEPOINT looking")  # one view of all of it: another process may be making the file
    try:
        return _checked(connection, path, latest)
    finally:
        if connection.in_transaction:  # an error of the disk ends it by itself
            connection.execute("RELEASE looking")


def _checked(connection: apsw.Connection, path: str, latest: int) -> int:
    version = _number(connection, "user_version")
    if version > 0 and _number(connection, "application_id") == APPLICATION_ID:
        if version > latest:
            raise SchemaTooNew(path=path, found=version, known=latest)
        return version
    if version or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        raise NotADatabase(path=path, reason="it is the SQLite database of another program")
    return 0


def _number(connection: apsw.Connection, pragma: str) -> int:
    value = connection.execute(f"PRAGMA {pragma}").fetchall()[0][0]
    assert isinstance(value, int)
    return value


def _apply(
    connection: apsw.Connection, path: str, migration: Migration, latest: int, timeout: float, *, copy: bool
) -> None:
    """Apply one migration in a transaction of its own, unless another process has done it meanwhile.

    The copy of the old database is taken inside it, when nobody else can write any more.
    """
    number, _, text = migration
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check(connection, path, latest)
        if version < number:
            if copy and version > 0 and path != MEMORY:
                _keep_copy(path, version, timeout)
            connection.execute(text).fetchall()
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def backup_path(path: str, version: int) -> str:
    """Name the copy that is kept of a database before it is migrated from a version."""
    return f"{path}.v{version}.backup"


def _keep_copy(path: str, version: int, timeout: float) -> None:
    """Copy the database as it is, once, under a name that says its version. An earlier copy is never overwritten."""
    final = backup_path(path, version)
    if os.path.exists(final):
        return
    made = None
    try:
        made = part.begin(final)
        _copy(path, made, timeout)
        part.sync(made)
        os.replace(made, final)
        part.sync(os.path.dirname(final))
    except OSError as error:
        reason = f"a copy could not be made before its schema is changed ({error.strerror or error})"
        raise StoreUnavailable(path=path, reason=reason) from error
    finally:
        if made is not None:
            part.discard(made)


def _copy(path: str, made: str, timeout: float) -> None:
    source, copy = connect(path, timeout), connect(made, timeout)
    try:
        expect_checksums(copy, source)
        with copy.backup("main", source, "main") as backup:
            backup.step()
        # A copy that is one file: without this it would need its own log beside it.
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        copy.close()
        source.close()
