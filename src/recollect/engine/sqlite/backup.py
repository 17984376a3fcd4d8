"""Backups: copying a store while it is in use, and bringing a copy back without losing what is there now.

Both go through SQLite's backup interface. A backup is taken within one read transaction, so that it is the store at one
moment, whoever writes meanwhile. Bringing one back is one write transaction on the live file: who has it open, in this
process or another, sees the old store until it is done and the new one from then on. Renaming a file into the place of
a live one would leave them with the old file, and its log with the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import apsw

from recollect import sql
from recollect.engine import part
from recollect.engine.sqlite import migration
from recollect.engine.sqlite.connection import (
    connect,
    connect_reader,
    connect_verified,
    expect_checksums,
    keep_log,
    patiently,
)
from recollect.engine.sqlite.failure import hindrance, meaning
from recollect.engine.sqlite.file import File
from recollect.engine.sqlite.filesystem import prepare
from recollect.engine.sqlite.log import truncated
from recollect.engine.url import MEMORY, absolute
from recollect.errors import Corrupted, DiskFull, FileExists, InvalidValue, NotADatabase, StoreUnavailable, displayed
from recollect.model.space import Backup
from recollect.model.value import iso

Progress = Callable[[int, int], object]

_STEP = 1_000
"""Pages between two reports of progress."""


def backup(file: File, path: str, *, overwrite: bool = False, progress: Progress | None = None) -> str:
    """Copy a store to a file of its own, and give its path. It is there whole or not at all."""
    path = _absolute(path)
    _refuse_in_use(file.path, path, overwrite=overwrite)
    with _whole(path) as copy:
        file.beside(lambda source: _copied_at_once(source, copy, file.timeout, progress))
        _examine(copy, file.timeout, path)
    return path


def _absolute(path: str) -> str:
    if not isinstance(path, str) or not path or "\0" in path or path == MEMORY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"A backup is named by the path of a file; got {displayed(path)}.")
    return absolute(path)


def _refuse_in_use(store: str, path: str, *, overwrite: bool) -> None:
    """Refuse to write over the store itself, a file that is there, or a database that somebody has open."""
    if store != MEMORY and os.path.realpath(path) == os.path.realpath(store):
        raise InvalidValue(f"{path} is the store itself. Choose another file for its backup.")
    if os.path.isdir(path):
        raise InvalidValue(f"{path} is a folder. Name the file that the backup is to be.")
    if os.path.exists(path) and not os.path.isfile(path):  # its name would be taken from a device or a pipe
        raise InvalidValue(f"{path} is no file. Name the file that the backup is to be.")
    if os.path.lexists(path) and (not overwrite or os.path.exists(path + "-wal")):
        raise FileExists(path=path)


@contextlib.contextmanager
def _whole(path: str):  # noqa: ANN202
    """Give the name of a file beside a path, readable by its owner only, that takes its place in the end."""
    made = None
    try:
        made = part.begin(path)
        yield made
        part.sync(made)
        os.replace(made, path)
        part.sync(os.path.dirname(path))
    except OSError as error:
        raise StoreUnavailable(path=path, reason=error.strerror or str(error)) from error
    finally:
        if made is not None:
            part.discard(made)


def _copied_at_once(source: apsw.Connection, made: str, timeout: float, progress: Progress | None) -> None:
    """Copy a database as it is at this moment: the read transaction is held until the last page is copied."""
    begun = not source.in_transaction
    if begun:
        source.execute("BEGIN")
    try:
        source.execute("PRAGMA user_version").fetchall()  # a read, which a damaged schema does not hinder
        _copy(source, made, timeout, progress)
    finally:
        if begun and source.in_transaction:
            source.execute("COMMIT")


def _copy(source: apsw.Connection, made: str, timeout: float, progress: Progress | None) -> None:
    copy = connect(made, timeout)
    try:
        expect_checksums(copy, source)
        with copy.backup("main", source, "main") as steps:
            while not steps.done:
                steps.step(_STEP if progress is not None else -1)
                if progress is not None:
                    progress(steps.page_count - steps.remaining, steps.page_count)
        # One file, without a log beside it. The copy of a damaged one may refuse, and is kept as it is.
        with contextlib.suppress(apsw.CorruptError):
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    except apsw.Error as error:
        target = part.destination(made)  # which may be on another disk than the store
        refused = DiskFull(path=target) if isinstance(error, apsw.FullError) else hindrance(copy.system_errno, target)
        if refused is not None:
            raise refused from error
        raise
    finally:
        copy.close()


def _examine(copy: str, timeout: float, path: str) -> int:
    """Make sure that a copy is a Recollect database that this program knows, and sound; give its schema version.

    `path` is the name by which its user knows it.
    """
    try:
        connection = connect_verified(copy, timeout)
        try:
            return _sound(connection, path)
        finally:
            connection.close()
    except apsw.Error as error:
        raise meaning(error, path, timeout) from error


def _sound(connection: apsw.Connection, path: str) -> int:
    version = migration.check(connection, path, sql.migrations("sqlite")[-1][0])
    if version == 0:
        raise NotADatabase(path=path, reason="it is empty")
    lines = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if lines != [("ok",)]:
        raise Corrupted(path=path, reason=" ".join(str(lines[0][0]).split()))
    return version


def look(source: str, path: str, *, verify: bool = True, timeout: float = 30.0) -> Backup:
    """Say what a backup holds, where it could be brought back to a path; both are only read."""
    source = _checked_source(source, path)
    looked = path
    try:
        if os.path.exists(path):
            _is_database(path, timeout)
        looked = source
        reader = connect_reader(source, timeout, verify=verify)
        try:
            return _described(reader, source)
        finally:
            reader.close()
    except apsw.Error as error:
        raise meaning(error, looked, timeout) from error


def _described(reader: apsw.Connection, path: str) -> Backup:
    reader.execute("BEGIN")
    version = _sound(reader, path)
    counted: Any = reader.execute("SELECT count(*), max(active_at), (SELECT count(*) FROM messages) FROM sessions").get
    sessions, active_at, messages = counted
    size = os.stat(path).st_size
    return Backup(path=path, bytes=size, schema=version, sessions=sessions, messages=messages, active_at=active_at)


def restore(source: str, path: str, now: int, *, verify: bool = True, timeout: float = 30.0) -> str | None:
    """Bring a backup back to a path, and give the path of the copy that was kept of what was there."""
    source = _checked_source(source, path)
    there = os.path.exists(path)
    prepare(path)
    stage = None
    try:
        stage = part.begin(path)
        _prepare_stage(source, stage, timeout, verify=verify)
        kept = _kept_name(path, now) if there else None
        if kept is not None and not _is_database(path, timeout):
            _put_aside(path, kept)
            prepare(path)
            _bring(stage, path, None, timeout)
        else:
            _bring(stage, path, kept, timeout)
    except OSError as error:
        raise StoreUnavailable(path=path, reason=error.strerror or str(error)) from error
    except apsw.Error as error:
        raise meaning(error, path, timeout) from error
    finally:
        if stage is not None:
            part.discard(stage)
        if not there and os.path.exists(path) and os.path.getsize(path) == 0:
            part.discard(path)
    return kept


def _checked_source(source: str, path: str) -> str:
    source = _absolute(source)
    if path == MEMORY:
        raise InvalidValue("A backup is brought back to a file. Give its path.")
    if not os.path.isfile(source):
        raise StoreUnavailable(path=source, reason="there is no such file")
    if os.path.realpath(source) == os.path.realpath(path):
        raise InvalidValue(f"{source} is the store itself. Give the file of a backup.")
    return source


def _prepare_stage(source: str, stage: str, timeout: float, *, verify: bool) -> None:
    """Copy a backup beside the store, examine it there and bring it to the schema of this program.

    The backup itself is only read: it may be on a disk that can not be written.
    """
    try:
        reader = connect_reader(source, timeout, verify=verify)
        try:
            _copied_at_once(reader, stage, timeout, None)
        finally:
            reader.close()
    except apsw.Error as error:
        raise meaning(error, source, timeout) from error
    version = _examine(stage, timeout, source)
    try:
        File(stage, timeout, 1_000).close()
    finally:
        part.discard(migration.backup_path(stage, version))


def _is_database(path: str, timeout: float) -> bool:
    """Whether a file is one of ours, damaged or not; False where it is no database at all. Others' are refused."""
    connection = connect_reader(path, timeout)
    try:
        migration.check(connection, path, 1 << 31)
    except apsw.NotADBError:
        return False
    except apsw.CorruptError:
        return True
    finally:
        connection.close()
    return True


def _put_aside(path: str, kept: str) -> None:
    """Move what is no database out of the way, with what lies beside it. No SQLite can have it open."""
    for ending in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + ending, kept + ending)
    os.rename(path, kept)


def _kept_name(path: str, now: int) -> str:
    """Name the copy of what was there before, by the time; a name that is taken is never used."""
    stamp = "".join(letter for letter in iso(now)[:19] if letter not in "-:")
    name, number = f"{path}.{stamp}.kept", 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{stamp}-{number}.kept"
    return name


def _bring(stage: str, path: str, kept: str | None, timeout: float) -> None:
    """Write the pages of one database over another, in one transaction, after a copy of the other was kept.

    The first step takes the write lock, which is held to the end. So the copy has everything that was acknowledged, and
    nothing is written between the two.
    """
    live, source = connect(path, timeout), connect(stage, timeout)
    try:
        with live.backup("main", source, "main") as steps:
            patiently(lambda: _begin(steps), timeout)
            if kept is not None:
                with _whole(kept) as copy:
                    _keep(path, copy, timeout)
            while not steps.done:
                steps.step(-1)
        if live.execute("PRAGMA journal_mode").fetchall()[0][0] != "wal":
            patiently(lambda: keep_log(live, path), timeout)
        truncated(live, timeout)  # to save space only: if a reader holds the log, the pages stay there, committed
    finally:
        source.close()
        live.close()


def _begin(steps: apsw.Backup) -> None:
    steps.step(1)


def _keep(path: str, copy: str, timeout: float) -> None:
    reader = connect_reader(path, timeout)
    try:
        _copied_at_once(reader, copy, timeout, None)
    finally:
        reader.close()
