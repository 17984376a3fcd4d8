"""Maintenance of a database file: backup, restore, check, space and optimize.

A backup is taken within one read transaction, so it shows the store at one moment. A restore is one write
transaction on the live file: processes that have it open see the old store until it commits, then the new one.
Renaming a file over a live one would leave them with the old file, and its WAL with the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import apsw

from recollect import sql
from recollect.engine import atomic_file
from recollect.engine.engine import BackupProgress, FileCheck
from recollect.engine.sqlite import migrations
from recollect.engine.sqlite.checkpoint import truncate_wal
from recollect.engine.sqlite.connection import (
    CHECKPOINT_PAGES,
    checksum_vfs,
    connect,
    connect_reader,
    connect_verified,
    enable_checksums,
    enable_wal,
    retry_while_locked,
)
from recollect.engine.sqlite.database_file import DatabaseFile
from recollect.engine.sqlite.errors import resource_error, translate_error
from recollect.engine.sqlite.file_identity import WAL_HEADER_BYTES
from recollect.engine.sqlite.filesystem import prepare_file
from recollect.engine.url import MEMORY, absolute_path
from recollect.errors import Corrupted, DiskFull, FileExists, InvalidValue, NotADatabase, StoreUnavailable, format_value
from recollect.model.reports import Backup, Finding, OptimizeReport, Space
from recollect.model.value import format_iso

T = TypeVar("T")


class MaintenanceRunner(Protocol):
    """Calls a function with the database file."""

    def __call__(self, work: Callable[[DatabaseFile], T]) -> T:
        """Call `work` with the file and return its result."""
        ...


_ANY_VERSION = 1 << 31  # higher than any schema version: a restore may replace a database of a newer Recollect
_WAL_FRAME_HEADER_BYTES = 24  # SQLite file format, section 4.1
_PAGES_PER_STEP = 1_000  # pages (4 MB) between two calls of `progress`. Without a callback, one step copies everything


class SqliteMaintenance:
    """Maintenance of an open file. `run` calls a function with the file; in memory, writes wait until it has ended."""

    def __init__(self, run: MaintenanceRunner) -> None:
        self._run = run

    def backup(self, path: str, *, overwrite: bool, progress: BackupProgress | None) -> str:
        """Copy the database to a file, and return its absolute path."""
        return self._run(lambda file: create_backup(file, path, overwrite=overwrite, progress=progress))

    def check(self, *, deep: bool) -> FileCheck:
        """Check the file for damage."""
        return FileCheck(check_names(deep), self._run(lambda file: check_file(file, deep=deep)))

    def space(self) -> Space:
        """Return the disk usage."""
        return self._run(measure_space)

    def optimize(self) -> OptimizeReport:
        """Return free pages to the disk and rewrite the file."""
        return self._run(optimize_file)


def create_backup(
    file: DatabaseFile, path: str, *, overwrite: bool = False, progress: BackupProgress | None = None
) -> str:
    """Copy a store to another file and return its path. The file appears complete or not at all."""
    path = _check_backup_path(path)
    _check_destination(file.path, path, overwrite=overwrite)
    with _replace_atomically(path) as copy:
        file.on_own_connection(lambda source: _copy_snapshot(source, copy, file.timeout, progress))
        _verify_copy(copy, file.timeout, path)
    return path


def _check_backup_path(path: str) -> str:
    if not isinstance(path, str) or not path or "\0" in path or path == MEMORY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"The path of a backup must be a file path, got {format_value(path)}.")
    return absolute_path(path)


def _check_destination(store: str, path: str, *, overwrite: bool) -> None:
    """Refuse to overwrite the store itself, an existing file, or a database that is open (it has a WAL)."""
    if store != MEMORY and os.path.realpath(path) == os.path.realpath(store):
        raise InvalidValue(f"{path} is the store itself. Choose another file for the backup.")
    if os.path.isdir(path):
        raise InvalidValue(f"The path of a backup must be a file, got the directory {path}.")
    if os.path.exists(path) and not os.path.isfile(path):  # the backup would replace a device or a pipe
        raise InvalidValue(f"{path} is not a regular file. Pass the path of the backup file.")
    if os.path.lexists(path) and (not overwrite or os.path.exists(path + "-wal")):
        raise FileExists(path=path)


@contextlib.contextmanager
def _replace_atomically(path: str):  # noqa: ANN202
    """Yield the name of a temporary file, readable by its owner only, that replaces `path` at the end."""
    temporary = None
    try:
        temporary = atomic_file.create_temporary(path)
        yield temporary
        atomic_file.fsync_path(temporary)
        os.replace(temporary, path)
        atomic_file.fsync_path(os.path.dirname(path))
    except OSError as error:
        raise StoreUnavailable(path=path, reason=error.strerror or str(error)) from error
    finally:
        if temporary is not None:
            atomic_file.discard_temporary(temporary)


def _copy_snapshot(source: apsw.Connection, temporary: str, timeout: float, progress: BackupProgress | None) -> None:
    """Copy a snapshot of a database: one read transaction is held until the last page is copied."""
    own_transaction = not source.in_transaction
    if own_transaction:
        source.execute("BEGIN")
    try:
        source.execute("PRAGMA user_version").fetchall()  # a read starts the snapshot; this one needs no intact schema
        _copy_pages(source, temporary, timeout, progress)
    finally:
        if own_transaction and source.in_transaction:
            source.execute("COMMIT")


def _copy_pages(source: apsw.Connection, temporary: str, timeout: float, progress: BackupProgress | None) -> None:
    copy = connect(temporary, timeout)
    try:
        enable_checksums(copy, source)
        with copy.backup("main", source, "main") as steps:
            while not steps.done:
                steps.step(_PAGES_PER_STEP if progress is not None else -1)
                if progress is not None:
                    progress(steps.page_count - steps.remaining, steps.page_count)
        # A single file, without a WAL. A copy of a damaged file may refuse this, and stays in WAL mode.
        with contextlib.suppress(apsw.CorruptError):
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    except apsw.Error as error:
        target = atomic_file.destination_of(temporary)  # it may be on another disk than the store
        resource = (
            DiskFull(path=target) if isinstance(error, apsw.FullError) else resource_error(copy.system_errno, target)
        )
        if resource is not None:
            raise resource from error
        raise
    finally:
        copy.close()


def _verify_copy(copy: str, timeout: float, path: str) -> int:
    """Verify that a copy is an intact Recollect database that this version can read; return its schema version.

    `path` is the name for error messages.
    """
    try:
        connection = connect_verified(copy, timeout)
        try:
            return _check_integrity(connection, path)
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate_error(error, path, timeout) from error


def _check_integrity(connection: apsw.Connection, path: str) -> int:
    version = migrations.check_schema(connection, path, sql.migrations("sqlite")[-1][0])
    if version == 0:
        raise NotADatabase(path=path, reason="it is empty")
    lines = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if lines != [("ok",)]:
        raise Corrupted(path=path, reason=" ".join(str(lines[0][0]).split()))
    return version


def _check_length(connection: apsw.Connection, path: str) -> None:
    """Raise Corrupted if the file ends inside a page that the WAL does not have either.

    SQLite reads the missing bytes as zeros, and neither its integrity check nor the checksum VFS looks at them: both
    accept a file without the end of its last page. Only whole missing pages are errors of SQLite.
    """
    page_size = _query_number(connection, "PRAGMA page_size")
    missing = -_file_size(path) % page_size
    # A checkpoint that was killed inside a write leaves such a file too. The next one writes the page again.
    if not missing or _is_in_wal(path, _file_size(path) // page_size + 1, page_size):
        return
    if missing := -_file_size(path) % page_size:  # again: a checkpoint may have completed it since, and reset the WAL
        raise Corrupted(path=path, reason=f"the file is truncated, and the last {missing} bytes are missing")


def _is_in_wal(path: str, page: int, page_size: int) -> bool:
    """Return whether the WAL of a file has a page. Frames of an older generation of the WAL have another salt."""
    # Closing the WAL releases no lock of SQLite: its locks are on the database file and on -shm.
    with contextlib.suppress(FileNotFoundError), open(path + "-wal", "rb") as wal:
        salt = wal.read(WAL_HEADER_BYTES)[16:24]
        while len(header := wal.read(_WAL_FRAME_HEADER_BYTES)) == _WAL_FRAME_HEADER_BYTES and header[8:16] == salt:
            if int.from_bytes(header[:4], "big") == page:
                return True
            wal.seek(page_size, os.SEEK_CUR)
    return False


def describe_backup(source: str, path: str, *, verify: bool = True, timeout: float = 30.0) -> Backup:
    """Return a description of a backup, after checking that it can be restored to `path`. Both files are only read."""
    source = _check_source(source, path)
    current_path = path
    try:
        if os.path.exists(path):
            _is_database(path, timeout)  # only for the error: a restore refuses a database of another program
        current_path = source
        reader = connect_reader(source, timeout, verify=verify)
        try:
            backup = _read_backup(reader, source)
            if verify:
                _check_length(reader, source)
            return backup
        finally:
            reader.close()
    except apsw.Error as error:
        raise translate_error(error, current_path, timeout) from error


def _read_backup(reader: apsw.Connection, path: str) -> Backup:
    reader.execute("BEGIN")  # one snapshot, which ends when the caller closes the connection
    version = _check_integrity(reader, path)
    counts: Any = reader.execute("SELECT count(*), max(active_at), (SELECT count(*) FROM messages) FROM sessions").get
    sessions, active_at, messages = counts
    size = os.stat(path).st_size
    return Backup(path=path, bytes=size, schema=version, sessions=sessions, messages=messages, active_at_ms=active_at)


def restore_backup(source: str, path: str, now: int, *, verify: bool = True, timeout: float = 30.0) -> str | None:
    """Restore a backup to a path. Return the path of the copy of the previous file, or None if there was none."""
    source = _check_source(source, path)
    exists = os.path.exists(path)
    prepare_file(path)
    stage = None
    try:
        stage = atomic_file.create_temporary(path)
        _prepare_stage(source, stage, timeout, verify=verify)
        previous = _kept_path(path, now) if exists else None
        if previous is not None and not _is_database(path, timeout):
            _move_aside(path, previous)
            prepare_file(path)
            _overwrite_live(stage, path, None, timeout)
        else:
            _overwrite_live(stage, path, previous, timeout)
    except OSError as error:
        raise StoreUnavailable(path=path, reason=error.strerror or str(error)) from error
    except apsw.Error as error:
        raise translate_error(error, path, timeout) from error
    finally:
        if stage is not None:
            atomic_file.discard_temporary(stage)
        if not exists and os.path.exists(path) and os.path.getsize(path) == 0:
            atomic_file.discard_temporary(path)
    return previous


def _check_source(source: str, path: str) -> str:
    source = _check_backup_path(source)
    if path == MEMORY:
        raise InvalidValue("A backup cannot be restored to an in-memory store. Pass the path of a file.")
    if not os.path.isfile(source):
        raise StoreUnavailable(path=source, reason="the file does not exist")
    if os.path.realpath(source) == os.path.realpath(path):
        raise InvalidValue(f"{source} is the store itself. Pass the path of a backup.")
    return source


def _prepare_stage(source: str, stage: str, timeout: float, *, verify: bool) -> None:
    """Copy a backup next to the store, verify it there and migrate it to the schema of this version.

    The backup itself is only read: it may be on a read-only disk.
    """
    try:
        reader = connect_reader(source, timeout, verify=verify)
        try:
            _copy_snapshot(reader, stage, timeout, None)
            if verify:  # after the copy, which refuses a file that is not a database
                _check_length(reader, source)
        finally:
            reader.close()
    except apsw.Error as error:
        raise translate_error(error, source, timeout) from error
    version = _verify_copy(stage, timeout, source)
    try:
        DatabaseFile(stage, timeout, CHECKPOINT_PAGES).close()  # opening it migrates it
    finally:
        atomic_file.discard_temporary(migrations.backup_path(stage, version))


def _is_database(path: str, timeout: float) -> bool:
    """Return whether a file is a Recollect database, damaged or not. Refuse databases of other programs."""
    connection = connect_reader(path, timeout)
    try:
        migrations.check_schema(connection, path, _ANY_VERSION)
    except apsw.NotADBError:
        return False
    except apsw.CorruptError:
        return True
    finally:
        connection.close()
    return True


def _move_aside(path: str, previous: str) -> None:
    """Rename a file that is not a database, with its -wal and -shm. No SQLite can have it open."""
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + suffix, previous + suffix)
    os.rename(path, previous)


def _kept_path(path: str, now: int) -> str:
    """Return a free name with the time, for the copy of the previous file."""
    stamp = "".join(letter for letter in format_iso(now)[:19] if letter not in "-:")
    name, number = f"{path}.{stamp}.kept", 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{stamp}-{number}.kept"
    return name


def _overwrite_live(stage: str, path: str, previous: str | None, timeout: float) -> None:
    """Write the pages of one database over a live one, in one transaction, after backing up the previous content.

    The first step takes the write lock, which is held to the end. So the backup has every acknowledged write, and no
    process can write between the backup and the overwrite.
    """
    live, source = connect(path, timeout), connect(stage, timeout)
    try:
        with live.backup("main", source, "main") as steps:
            retry_while_locked(lambda: _take_write_lock(steps), timeout)
            if previous is not None:
                with _replace_atomically(previous) as copy:
                    _keep_previous(path, copy, timeout)
            while not steps.done:
                steps.step(-1)
        if live.execute("PRAGMA journal_mode").fetchall()[0][0] != "wal":
            retry_while_locked(lambda: enable_wal(live, path), timeout)
        truncate_wal(live, timeout)  # only saves space: if a reader holds the WAL, the pages stay there, committed
    finally:
        source.close()
        live.close()


def _take_write_lock(steps: apsw.Backup) -> None:
    steps.step(1)


def _keep_previous(path: str, copy: str, timeout: float) -> None:
    reader = connect_reader(path, timeout)
    try:
        _copy_snapshot(reader, copy, timeout, None)
    finally:
        reader.close()


_MAX_FINDINGS = 100  # of each check. A damaged index has a finding per row; more than 100 tell nothing new
_CHECKSUM_ERROR = f"error code={apsw.SQLITE_IOERR_DATA}"
_RESTORE_ADVICE = "Stop writing to the file and restore a backup (recollect.restore())."
_CHECKSUM_ADVICE = (
    "The page is damaged, or another program wrote it. If the other checks find nothing, "
    "docs/reference/file-format.md describes how to accept the page; otherwise restore a backup."
)


def check_names(deep: bool) -> tuple[str, ...]:
    """Return the names of the checks that run."""
    return ("references", "structure", "indexes", "checksums") if deep else ("references",)


def check_file(file: DatabaseFile, *, deep: bool) -> list[Finding]:
    """Check the file and return the findings. Without `deep`, only foreign keys, which is quick."""
    try:
        return _check_once(file, deep=deep)
    except Corrupted:
        pass  # a read error may be transient: check again before it is reported
    try:
        return _check_once(file, deep=deep)
    except Corrupted as error:
        return [Finding(kind="structure", message=str(error), advice=_RESTORE_ADVICE)]


def _check_once(file: DatabaseFile, *, deep: bool) -> list[Finding]:
    return file.on_own_connection(lambda connection: _collect_findings(file, connection, deep=deep))


def _collect_findings(file: DatabaseFile, connection: apsw.Connection, *, deep: bool) -> list[Finding]:
    findings = list(_check_references(connection))
    if deep:
        findings += _check_structure(connection)
        if not file.memory:
            _check_length(connection, file.path)
        if not file.memory and checksum_vfs() is not None:
            findings += _check_checksums(file)
    return findings


def _check_references(connection: apsw.Connection) -> Iterator[Finding]:
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchall()[:_MAX_FINDINGS]:
        message = f"Row {row} of {table} refers to a row of {parent} that does not exist."
        yield Finding(kind="reference", message=message, advice=_RESTORE_ADVICE)


def _check_structure(connection: apsw.Connection) -> Iterator[Finding]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})").fetchall():
        # Damage of the search index loses nothing; the operation that checks the index reports it.
        if line != "ok" and "search_" not in str(line):
            yield Finding(
                kind="structure", message=f"SQLite's integrity check reports: {line}.", advice=_RESTORE_ADVICE
            )


def _check_checksums(file: DatabaseFile) -> list[Finding]:
    connection = connect_verified(file.path, file.timeout)
    try:
        lines = connection.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})").fetchall()
        mismatch = any(_CHECKSUM_ERROR in str(line) for (line,) in lines)
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_DATA:
            raise  # an I/O error of the disk, not a wrong checksum
        mismatch = True
    finally:
        connection.close()
    message = f"A page of {file.path} does not match its checksum."
    return [Finding(kind="checksum", message=message, advice=_CHECKSUM_ADVICE)] if mismatch else []


# Pages (8 MB) to free per transaction. Other processes write in between; with more pages they would wait longer.
_PAGES_PER_VACUUM = 2_000
_SEARCH_PREFIX = "search"  # of the names of the tables of the search index
_MAX_VACUUM_ROUNDS = 1_000_000  # only a bound for the loop, which ends when no more pages become free


def measure_space(file: DatabaseFile) -> Space:
    """Return how the bytes of the file are distributed."""
    return file.on_own_connection(lambda connection: _measure_tables(file, connection))


def _measure_tables(file: DatabaseFile, connection: apsw.Connection) -> Space:
    tables = _table_sizes(connection)
    indexes = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    page = _query_number(connection, "PRAGMA page_size")
    total = page * _query_number(connection, "PRAGMA page_count")
    free = page * _query_number(connection, "PRAGMA freelist_count")
    messages = tables.get("messages", 0) + tables.get("message_versions", 0)
    output = min(_tool_output_bytes(connection), messages)
    attachments = tables.get("blobs", 0)
    index = sum(size for name, size in tables.items() if name in indexes or name.startswith(_SEARCH_PREFIX))
    return Space(
        total=total, text=messages - output, tool_output=output, attachments=attachments, index=index, free=free,
        other=total - messages - attachments - index - free, log=_file_size(file.path + "-wal"), tables=tables,
    )  # fmt: skip


def _table_sizes(connection: apsw.Connection) -> dict[str, int]:
    """Return the bytes of each table and index."""
    rows = connection.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE ORDER BY name").fetchall()
    return {str(name): int(size) for name, size in rows}  # type: ignore[arg-type]


def _tool_output_bytes(connection: apsw.Connection) -> int:
    """Return the bytes of the messages that hold tool results."""
    return _query_number(
        connection,
        "SELECT coalesce(sum(octet_length(m.parts)), 0) FROM (SELECT DISTINCT result FROM tool_calls) AS t "
        "CROSS JOIN messages AS m ON m.key = t.result",
    )


def _query_number(connection: apsw.Connection, query: str) -> int:
    value: Any = connection.execute(query).fetchall()[0][0]
    return int(value)


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size  # without opening the file, which would drop SQLite's locks when closed
    except OSError:
        return 0


def optimize_file(file: DatabaseFile) -> OptimizeReport:
    """Return free pages to the disk, rewrite the file, and truncate the WAL.

    The rewrite (VACUUM) removes the row copies that page splits left in slack space, and writes a new checksum to every
    page. Free pages are returned first, in short transactions: the rewrite needs space for a copy of all other pages.

    PRAGMA optimize is not run: its statistics contain samples of the indexes, copies of titles and ids that erasing
    does not reach. Queries have plan hints instead (INDEXED BY, CROSS JOIN).
    """
    before = _used_bytes(file)
    file.on_own_connection(_release_free_pages)
    if not file.memory:
        file.rewrite()
    return OptimizeReport(before=before, after=_used_bytes(file))


def _release_free_pages(connection: apsw.Connection) -> None:
    for _ in range(_MAX_VACUUM_ROUNDS):
        free = _query_number(connection, "PRAGMA freelist_count")
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_VACUUM})").fetchall()
        if not free or _query_number(connection, "PRAGMA freelist_count") >= free:
            return


def _used_bytes(file: DatabaseFile) -> int:
    if file.memory:
        return file.on_own_connection(
            lambda connection: (
                _query_number(connection, "PRAGMA page_size") * _query_number(connection, "PRAGMA page_count")
            )
        )
    return _file_size(file.path) + _file_size(file.path + "-wal")
