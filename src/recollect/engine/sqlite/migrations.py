"""Schema migrations of a database file. Files of other programs and of newer versions are refused."""

from __future__ import annotations

import os

import apsw

from recollect import sql
from recollect.engine import atomic_file
from recollect.engine.sqlite.connection import (
    APPLICATION_ID,
    configure,
    connect,
    enable_checksums,
    enable_wal,
    initialize_file,
    is_read_only_mount,
    retry_while_locked,
)
from recollect.engine.url import MEMORY
from recollect.errors import NotADatabase, SchemaTooNew, StoreUnavailable

SqliteMigration = tuple[int, str, str]

# Columns of `sessions` that migration 1 of the first versions did not create, and their values.
_COLUMNS_OF_MIGRATION_1 = {
    "branch": ("INTEGER NOT NULL DEFAULT 1", "SELECT number FROM branches WHERE branches.key = sessions.head"),
    "last": (
        "INTEGER NOT NULL DEFAULT 0 CHECK (last < 4294967296)",
        "SELECT last FROM branches WHERE branches.key = sessions.head",
    ),
    "open_turns": (
        "INTEGER NOT NULL DEFAULT 0",
        "SELECT count(*) FROM branches WHERE branches.session = sessions.key AND branches.open_turn IS NOT NULL",
    ),
}


def prepare_schema(
    connection: apsw.Connection, path: str, timeout: float, all_migrations: list[SqliteMigration] | None = None
) -> None:
    """Initialize a new file or migrate an older one. Files of newer versions and of other programs are not changed."""
    migrations = sql.migrations("sqlite") if all_migrations is None else all_migrations
    latest = migrations[-1][0]
    version = check_schema(connection, path, latest)
    if version == 0:
        retry_while_locked(lambda: initialize_file(connection, path), timeout)
    elif (
        path != MEMORY
        and not is_read_only_mount(path)
        and connection.execute("PRAGMA journal_mode").fetchall()[0][0] != "wal"
    ):
        # A backup is a single file in rollback mode. Opened as a store, it needs a WAL.
        retry_while_locked(lambda: enable_wal(connection, path), timeout)
    configure(connection)
    pending = [migration for migration in migrations if migration[0] > version]
    for index, migration in enumerate(pending):
        _apply_migration(connection, path, migration, latest, timeout, copy=index == 0)


def check_schema(connection: apsw.Connection, path: str, latest: int) -> int:
    """Return the schema version, 0 for an empty file. Refuse files of other programs and of newer versions."""
    connection.execute("SAVEPOINT schema_check")  # one snapshot: another process may be creating the file
    try:
        return _read_schema_version(connection, path, latest)
    finally:
        if connection.in_transaction:  # after an I/O error, SQLite has rolled back already
            connection.execute("RELEASE schema_check")


def _read_schema_version(connection: apsw.Connection, path: str, latest: int) -> int:
    version = _pragma_number(connection, "user_version")
    if version > 0 and _pragma_number(connection, "application_id") == APPLICATION_ID:
        if version > latest:
            raise SchemaTooNew(path=path, found=version, known=latest)
        return version
    if version or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        raise NotADatabase(path=path, reason="it is a SQLite database of another program")
    return 0


def _pragma_number(connection: apsw.Connection, pragma: str) -> int:
    value = connection.execute(f"PRAGMA {pragma}").fetchall()[0][0]
    assert isinstance(value, int)
    return value


def _apply_migration(
    connection: apsw.Connection, path: str, migration: SqliteMigration, latest: int, timeout: float, *, copy: bool
) -> None:
    """Apply one migration in its own transaction, unless another process has done it meanwhile.

    The backup of the old database is made inside the transaction, when no other process can write.
    """
    number, _, text = migration
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check_schema(connection, path, latest)
        if version < number:
            if copy and version > 0 and path != MEMORY:
                _keep_backup(path, version, timeout)
            if version == 1:
                _add_columns_of_migration_1(connection)
            connection.execute(text).fetchall()
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_columns_of_migration_1(connection: apsw.Connection) -> None:
    columns = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info('sessions')")}
    for name, (definition, value) in _COLUMNS_OF_MIGRATION_1.items():
        if name not in columns:
            connection.execute(f"ALTER TABLE sessions ADD COLUMN {name} {definition}")
            connection.execute(f"UPDATE sessions SET {name} = coalesce(({value}), {name})")


def backup_path(path: str, version: int) -> str:
    """Return the path of the backup that is made before a migration from a version."""
    return f"{path}.v{version}.backup"


def _keep_backup(path: str, version: int, timeout: float) -> None:
    """Back up the database, once per version. An existing backup is never overwritten."""
    final = backup_path(path, version)
    if os.path.exists(final):
        return
    temporary = None
    try:
        temporary = atomic_file.create_temporary(final)
        _copy_file(path, temporary, timeout)
        atomic_file.fsync_path(temporary)
        os.replace(temporary, final)
        atomic_file.fsync_path(os.path.dirname(final))
    except OSError as error:
        reason = f"the backup before the schema migration failed ({error.strerror or error})"
        raise StoreUnavailable(path=path, reason=reason) from error
    finally:
        if temporary is not None:
            atomic_file.discard_temporary(temporary)


def _copy_file(path: str, temporary: str, timeout: float) -> None:
    source, copy = connect(path, timeout), connect(temporary, timeout)
    try:
        enable_checksums(copy, source)
        with copy.backup("main", source, "main") as backup:
            backup.step()
        # A single file: in WAL mode, the copy would need a -wal file next to it.
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        copy.close()
        source.close()
