"""Migrations of new, older and newer files, and files of other programs."""

from __future__ import annotations

import contextlib
import glob
import gzip
import hashlib
import os
import re
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

import recollect
from recollect import sql
from recollect.engine.sqlite import migrations
from recollect.engine.sqlite.connection import connect, connect_verified
from recollect.errors import Corrupted, NotADatabase, RecollectError, SchemaTooNew, StoreError, StoreUnavailable

LATEST = sql.migrations("sqlite")[-1][0]
RELEASED_DATABASES = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "released", "*.db.gz")))
NEW_MIGRATIONS = [
    (LATEST + 1, "note", "CREATE TABLE notes (text TEXT) STRICT; INSERT INTO notes SELECT id FROM sessions;"),
    (LATEST + 2, "mark", "ALTER TABLE notes ADD COLUMN mark INTEGER;\nUPDATE notes SET mark = 1;"),
]


def normalize(text: str) -> str:
    """Remove comments and insignificant white space."""
    text = re.sub(r"--[^\n]*", " ", text)
    return re.sub(r"\s*([(),;])\s*", r"\1", " ".join(text.split())).rstrip(";")


def read_schema(connection) -> dict[str, str]:
    rows = connection.execute("SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY 1")
    return {name: normalize(text) for name, text in rows if not name.partition(" ")[2].startswith("sqlite_")}


def digests(path) -> dict[str, str]:
    """Return the digests of a file and of its sidecar files and backups."""
    paths = glob.glob(glob.escape(str(path)) + "*")
    return {file: digest(file) for file in paths}


def digest(file: str) -> str:
    with open(file, "rb") as content:
        return hashlib.sha256(content.read()).hexdigest()


def checksum(page: bytes) -> bytes:
    """Compute the checksum of a page like SQLite's checksum VFS."""
    one = two = 0
    words = struct.unpack(f"<{len(page) // 4}I", page)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return struct.pack("<2I", one, two)


def connect_stock(path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def query(path, statement: str):
    connection = connect_stock(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def execute(path, *statements: str, with_checksums: bool = False) -> None:
    """Execute statements with the stock sqlite3, or with Recollect's connection, which writes page checksums."""
    connection = connect(path, 5.0) if with_checksums else connect_stock(path)
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def filled_path(path):
    """Create a database of this version with two sessions, close it, and return its path."""
    with recollect.open(path) as store:
        store.session("cli:a").append([{"role": "user", "content": f"question {n}"} for n in range(40)])
        store.session("cli:b").append({"role": "user", "content": "other"})
    return path


def migrate(path: str, steps, timeout: float = 5.0) -> None:
    connection = connect(path, timeout)
    try:
        migrations.prepare_schema(connection, path, timeout, steps)
    finally:
        connection.close()


def read_everything(path) -> None:
    with recollect.open(path) as store:
        for session in store.list_sessions(archived=None):
            session.messages()


class TestSchema:
    def test_the_migrations_create_the_schema_of_schema_sql(self):
        migration_result, schema = apsw.Connection(":memory:"), apsw.Connection(":memory:")
        for _, _, text in sql.migrations("sqlite"):
            migration_result.execute(text).fetchall()
        schema.execute(sql.schema("sqlite")).fetchall()
        assert read_schema(migration_result) == read_schema(schema)

    def test_a_new_file_has_the_schema_of_schema_sql(self, filled_path):
        schema = apsw.Connection(":memory:")
        schema.execute(sql.schema("sqlite")).fetchall()
        connection = connect_stock(filled_path)
        assert read_schema(connection) == read_schema(schema)
        connection.close()

    def test_migrations_are_numbered_without_gaps(self):
        assert [number for number, _, _ in sql.migrations("sqlite")] == list(range(1, LATEST + 1))

    def test_every_table_is_strict(self, filled_path):
        tables = query(
            filled_path,
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND NOT strict AND name NOT LIKE 'sqlite_%'",
        )
        assert tables == []

    def test_a_migration_has_no_transaction_of_its_own(self):
        for _, _, text in sql.migrations("sqlite"):
            assert not re.search(r"^\s*(BEGIN|COMMIT|ROLLBACK|VACUUM)\b", text, re.IGNORECASE | re.MULTILINE)


class TestNewFile:
    @pytest.mark.parametrize(
        ("pragma", "value"),
        [
            ("user_version", LATEST),
            ("application_id", 0x52434C54),
            ("journal_mode", "wal"),
            ("page_size", 4096),
            ("auto_vacuum", 2),
            ("encoding", "UTF-8"),
            ("foreign_key_check", None),
            ("integrity_check", "ok"),
        ],
    )
    def test_pragmas_of_a_new_file(self, filled_path, pragma, value):
        rows = query(filled_path, f"PRAGMA {pragma}")
        assert rows == ([] if value is None else [(value,)])

    def test_the_header_of_a_new_file(self, filled_path):
        with open(filled_path, "rb") as file:
            header = file.read(100)
        assert header[:16] == b"SQLite format 3\x00"
        assert int.from_bytes(header[16:18], "big") == 4096
        assert header[18:20] == b"\x02\x02"
        assert header[20] == 8
        assert int.from_bytes(header[60:64], "big") == LATEST
        assert int.from_bytes(header[68:72], "big") == 0x52434C54

    def test_every_page_has_its_checksum(self, filled_path):
        with open(filled_path, "rb") as file:
            content = file.read()
        pages = [content[start : start + 4096] for start in range(0, len(content), 4096)]
        assert len(pages) > 10
        assert all(checksum(page[:-8]) == page[-8:] for page in pages)
        connection = connect_verified(filled_path, 5.0)
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        connection.close()

    def test_pragmas_of_the_writer(self, filled_path):
        with recollect.open(filled_path) as store:
            writer = store._engine._file.writer  # pyright: ignore[reportAttributeAccessIssue]
            settings = {
                name: writer.execute(f"PRAGMA {name}").get for name in ("synchronous", "foreign_keys", "secure_delete")
            }
            assert settings == {"synchronous": 2, "foreign_keys": 1, "secure_delete": 1}

    def test_readers_cannot_write(self, filled_path):
        with recollect.open(filled_path) as store:
            store.list_sessions()
            readers = store._engine._file._idle  # pyright: ignore[reportAttributeAccessIssue]
            assert readers
            for reader in readers:
                with pytest.raises(apsw.ReadOnlyError):
                    reader.execute("DELETE FROM messages")

    def test_an_empty_file_becomes_a_database(self, path):
        open(path, "w").close()
        with recollect.open(path) as store:
            store.session("cli:a").append({"role": "user", "content": "x"})
        assert query(path, "PRAGMA user_version") == [(LATEST,)]

    def test_a_new_file_has_no_backup(self, filled_path):
        assert sorted(os.listdir(os.path.dirname(filled_path))) == ["recollect.db"]

    def test_opening_again_changes_nothing(self, filled_path):
        before = digests(filled_path)
        recollect.open(filled_path).close()
        assert digests(filled_path) == before

    def test_a_memory_database(self):
        with recollect.open(":memory:") as store:
            store.session("cli:a").append({"role": "user", "content": "x"})
            assert store.session("cli:a").message_count == 1


class TestOlderFile:
    def test_all_new_migrations_are_applied(self, filled_path):
        migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        assert query(filled_path, "PRAGMA user_version") == [(LATEST + 2,)]
        assert query(filled_path, "SELECT text, mark FROM notes ORDER BY text") == [("cli:a", 1), ("cli:b", 1)]

    def test_a_backup_is_kept(self, filled_path):
        migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        copy = migrations.backup_path(filled_path, LATEST)
        assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
        assert sorted(os.listdir(os.path.dirname(filled_path))) == [os.path.basename(p) for p in (filled_path, copy)]
        assert query(copy, "PRAGMA user_version") == [(LATEST,)]
        assert query(copy, "PRAGMA integrity_check") == [("ok",)]
        with recollect.open(copy) as store:
            assert [m.text for m in store.get_session("cli:a").messages()] == [f"question {n}" for n in range(40)]

    def test_the_backup_contains_the_wal(self, filled_path):
        with recollect.open(filled_path) as store:
            store.session("cli:late").append({"role": "user", "content": "still in the WAL"})
            migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        with recollect.open(migrations.backup_path(filled_path, LATEST)) as store:
            assert store.get_session("cli:late").messages()[0].text == "still in the WAL"

    def test_a_large_backup_with_wal_pages_can_be_restored(self, filled_path, tmp_path):
        with recollect.open(filled_path) as store:
            for _ in range(4):
                store.session("cli:late").append([{"role": "user", "content": "x" * 10_000} for _ in range(75)])
            migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        recollect.restore(migrations.backup_path(filled_path, LATEST), tmp_path / "back.db")
        with recollect.open(tmp_path / "back.db") as store:
            assert store.get_session("cli:late").message_count == 300
            assert store.maintenance.check().findings == ()

    def test_an_earlier_backup_is_not_overwritten(self, filled_path):
        copy = migrations.backup_path(filled_path, LATEST)
        shutil.copy(filled_path, copy)
        execute(copy, "CREATE TABLE earlier (x)", with_checksums=True)
        migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        assert query(copy, "SELECT count(*) FROM earlier") == [(0,)]
        assert query(filled_path, "PRAGMA user_version") == [(LATEST + 2,)]

    def test_an_incomplete_backup_does_not_block_the_migration(self, filled_path):
        temporary = f"{migrations.backup_path(filled_path, LATEST)}.{os.getpid()}.part"
        with open(temporary, "wb") as file:
            file.write(b"half")
        migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        assert query(migrations.backup_path(filled_path, LATEST), "PRAGMA user_version") == [(LATEST,)]

    def test_the_backup_has_the_old_version_if_another_process_migrates_concurrently(self, filled_path, monkeypatch):
        steps = [*sql.migrations("sqlite"), *NEW_MIGRATIONS]
        first_call = [True]

        def migrate_then_connect(path, timeout):
            if first_call:
                first_call.clear()
                with contextlib.suppress(apsw.BusyError):  # if a lock excludes it
                    migrate(filled_path, steps, timeout=0.2)
            return connect(path, timeout)

        connection = connect(filled_path, 5.0)
        monkeypatch.setattr(migrations, "connect", migrate_then_connect)
        migrations.prepare_schema(connection, filled_path, 5.0, steps)
        connection.close()
        copy = migrations.backup_path(filled_path, LATEST)
        assert query(copy, "PRAGMA user_version") == [(LATEST,)]
        assert query(copy, "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'") == [(0,)]
        assert sorted(os.listdir(os.path.dirname(filled_path))) == [os.path.basename(p) for p in (filled_path, copy)]

    def test_a_failed_backup_raises_a_recollect_error_and_migrates_nothing(self, filled_path, monkeypatch):
        def fail(*_: object) -> int:
            raise OSError(28, "No space left on device")

        steps = [*sql.migrations("sqlite"), *NEW_MIGRATIONS]
        monkeypatch.setattr(sql, "migrations", lambda engine: steps)
        monkeypatch.setattr(migrations.os, "replace", fail)
        with pytest.raises(RecollectError):
            recollect.open(filled_path)
        assert query(filled_path, "PRAGMA user_version") == [(LATEST,)]

    def test_threads_of_one_process_migrate_once(self, filled_path, monkeypatch):
        steps = [*sql.migrations("sqlite"), *NEW_MIGRATIONS]
        monkeypatch.setattr(sql, "migrations", lambda engine: steps)
        start = threading.Barrier(6)

        def count_messages(number: int) -> int:
            start.wait()
            with recollect.open(filled_path) as store:
                return len(store.get_session("cli:a").messages())

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(count_messages, range(6))) == [40] * 6
        assert query(filled_path, "SELECT count(*) FROM notes") == [(2,)]
        assert query(migrations.backup_path(filled_path, LATEST), "PRAGMA user_version") == [(LATEST,)]

    def test_a_failed_migration_keeps_version_and_data(self, filled_path):
        broken = (LATEST + 2, "broken", "DELETE FROM messages; DROP VIEW chat_messages; SELECT nonsense;")
        with pytest.raises(apsw.SQLError, match="nonsense"):
            migrate(filled_path, [*sql.migrations("sqlite"), NEW_MIGRATIONS[0], broken])
        assert query(filled_path, "PRAGMA user_version") == [(LATEST + 1,)]
        assert query(filled_path, "SELECT count(*) FROM chat_messages") == [(41,)]
        assert query(filled_path, "SELECT count(*) FROM notes") == [(2,)]
        migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        assert query(filled_path, "PRAGMA user_version") == [(LATEST + 2,)]

    def test_a_failed_migration_raises_a_recollect_error_on_open(self, filled_path, monkeypatch):
        broken = (LATEST + 1, "broken", "SELECT nonsense")
        steps = [*sql.migrations("sqlite"), broken]
        monkeypatch.setattr(sql, "migrations", lambda engine: steps)
        with pytest.raises(RecollectError):
            recollect.open(filled_path)
        monkeypatch.undo()
        with recollect.open(filled_path) as store:
            assert store.get_session("cli:a").message_count == 40

    def test_each_migration_is_one_transaction(self, filled_path):
        statements = []
        connection = connect(filled_path, 5.0)

        def record_statement(_connection, statement, _bindings):
            if statement.split()[0].upper() in ("BEGIN", "COMMIT", "ROLLBACK"):
                statements.append(statement.split()[0].upper())
            return True

        connection.exec_trace = record_statement
        migrations.prepare_schema(connection, filled_path, 5.0, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
        connection.close()
        assert statements.count("COMMIT") >= len(NEW_MIGRATIONS)
        assert all(
            begin == "BEGIN" and end != "BEGIN" for begin, end in zip(statements[::2], statements[1::2], strict=True)
        )

    def test_an_open_store_of_the_old_version_still_reads(self, filled_path):
        with recollect.open(filled_path) as store:
            migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
            assert len(store.get_session("cli:a").messages()) == 40

    def test_open_migrates_an_old_file(self, filled_path, monkeypatch):
        steps = [*sql.migrations("sqlite"), *NEW_MIGRATIONS]
        monkeypatch.setattr(sql, "migrations", lambda engine: steps)
        with recollect.open(filled_path) as store:
            assert store.get_session("cli:a").message_count == 40
        assert query(filled_path, "PRAGMA user_version") == [(LATEST + 2,)]
        assert os.path.exists(migrations.backup_path(filled_path, LATEST))

    @pytest.mark.parametrize("columns", ["open_turns", "branch|last|open_turns"])
    def test_a_file_of_the_first_versions_lacks_columns_of_sessions(self, path, columns):
        """Migration 1 did not create them at first."""
        number, name, text = sql.migrations("sqlite")[0]
        head, table, rest = text.partition("CREATE TABLE sessions (")
        early_text = head + table + re.sub(rf"\n    (?:{columns}) INTEGER.*", "", rest, count=columns.count("|") + 1)
        open(path, "wb").close()
        migrate(path, [(number, name, early_text)])
        execute(
            path,
            "INSERT INTO trees (key, owner, branches) VALUES (1, '', 2)",
            "INSERT INTO sessions (key, owner, id, tree, created_at, updated_at, active_at) "
            "VALUES (1, '', 'a', 1, 5, 5, 5), (2, '', 'b', 1, 5, 5, 5)",
            "INSERT INTO branches (key, tree, number, session, last, open_turn, created_at) "
            "VALUES (1, 1, 1, 1, 4, 1, 5), (2, 1, 2, 2, 3, NULL, 5)",
            "UPDATE sessions SET head = key",
            with_checksums=True,
        )
        if columns == "open_turns":
            execute(path, "UPDATE sessions SET branch = key, last = 5 - key", with_checksums=True)
        recollect.open(path).close()
        rows = query(path, "SELECT id, branch, last, open_turns FROM sessions ORDER BY id")
        assert rows == [("a", 1, 4, 1), ("b", 2, 3, 0)]


class TestNewerFile:
    def test_a_newer_file_is_refused_and_unchanged(self, filled_path):
        execute(filled_path, f"PRAGMA user_version = {LATEST + 5}", with_checksums=True)
        before = digests(filled_path)
        with pytest.raises(SchemaTooNew, match="pip install -U recollect") as error:
            recollect.open(filled_path)
        assert (error.value.found, error.value.known) == (LATEST + 5, LATEST)  # pyright: ignore[reportAttributeAccessIssue]
        assert digests(filled_path) == before

    def test_a_store_opened_before_the_migration_still_works(self, filled_path):
        with recollect.open(filled_path) as store:
            migrate(filled_path, [*sql.migrations("sqlite"), *NEW_MIGRATIONS])
            with pytest.raises(SchemaTooNew):
                recollect.open(filled_path)
            assert store.get_session("cli:b").message_count == 1

    def test_another_file_can_be_opened_after_a_refused_one(self, filled_path, tmp_path):
        execute(filled_path, f"PRAGMA user_version = {LATEST + 5}", with_checksums=True)
        with pytest.raises(SchemaTooNew):
            recollect.open(filled_path)
        recollect.open(tmp_path / "other.db").close()


class TestForeignFile:
    def assert_refused(self, path, *errors):
        before = digests(path)
        with pytest.raises(errors) as error:
            recollect.open(path)
        assert digests(path) == before
        assert str(path) in str(error.value)
        return error.value

    @pytest.mark.parametrize("statements", [
        ["CREATE TABLE t (x)"],
        ["CREATE TABLE t (x)", "PRAGMA user_version = 1"],
        ["PRAGMA user_version = 1"],
        ["PRAGMA application_id = 7", "CREATE TABLE t (x)"],
        ["PRAGMA application_id = 7", "PRAGMA user_version = 1"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE t (x)"],
    ], ids=" ".join)  # fmt: skip
    def test_the_database_of_another_program(self, path, statements):
        execute(path, *statements)
        error = self.assert_refused(path, NotADatabase)
        assert "another program" in str(error)

    @pytest.mark.parametrize(
        "text", [b"hello", b"x" * 5000, b"\0" * 5000, b"SQLite format 3", b"\x1f\x8b" + b"z" * 600]
    )
    def test_a_file_that_is_not_a_database(self, path, text):
        with open(path, "wb") as file:
            file.write(text)
        self.assert_refused(path, NotADatabase)

    def test_a_folder(self, tmp_path):
        with pytest.raises(NotADatabase, match="folder"):
            recollect.open(tmp_path)

    @pytest.mark.parametrize("keep", [2, 50, 99, 100, 512, 4095])
    def test_a_file_truncated_within_the_first_page(self, filled_path, keep):
        os.truncate(filled_path, keep)
        self.assert_refused(filled_path, NotADatabase, Corrupted)

    @pytest.mark.parametrize("pages", [1, 2, 5])
    def test_a_file_truncated_after_some_pages(self, filled_path, pages):
        os.truncate(filled_path, 4096 * pages)
        before = digest(filled_path)
        with pytest.raises(Corrupted):
            read_everything(filled_path)
        assert digest(filled_path) == before

    def test_an_overwritten_first_page(self, filled_path):
        with open(filled_path, "r+b") as file:
            file.seek(100)
            file.write(b"\x5a" * 3000)
        with pytest.raises((Corrupted, NotADatabase)):
            recollect.open(filled_path)

    def test_a_path_below_a_file(self, filled_path):
        with pytest.raises(StoreUnavailable):
            recollect.open(filled_path + "/x.db")

    @pytest.mark.skipif(not os.path.exists("/dev/null"), reason="a device")
    def test_a_device(self):
        before = os.stat("/dev/null").st_mode
        with pytest.raises(StoreError):
            recollect.open("/dev/null")
        assert os.stat("/dev/null").st_mode == before

    def test_a_new_file_in_place_of_a_refused_one(self, path):
        with open(path, "wb") as file:
            file.write(b"text")
        with pytest.raises(NotADatabase):
            recollect.open(path)
        os.unlink(path)
        recollect.open(path).close()


RACING_PROGRAM = """
import sys
from recollect import sql
from recollect.engine.sqlite import migrations
path, extra = sys.argv[1], sys.argv[2] == "old"
if extra:
    more = [(len(sql.migrations("sqlite")) + 1, "slow", "CREATE TABLE notes (text TEXT) STRICT; INSERT INTO notes SELECT id FROM sessions;")]
    known = [*sql.migrations("sqlite"), *more]
    sql.migrations = lambda engine: known
import recollect
print("ready", flush=True)
sys.stdin.readline()
with recollect.open(path) as store:
    store.session(f"cli:{sys.argv[3]}").append({"role": "user", "content": "hi"})
"""


def race(path: str, kind: str, count: int = 10) -> None:
    """Start many processes that open a file at the same time, and check that none fails."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACING_PROGRAM, path, kind, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout.readline() == b"ready\n"
        for process in processes:
            process.stdin.write(b"go\n")
            process.stdin.flush()
        errors = [process.communicate(timeout=60)[1].decode() for process in processes]
        assert errors == [""] * count
        assert [process.returncode for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class TestConcurrency:
    def test_ten_processes_create_a_file_concurrently(self, path):
        race(path, "new")
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert query(path, "SELECT count(*) FROM chat_messages") == [(10,)]
        assert query(path, "PRAGMA journal_mode") == [("wal",)]
        with open(path, "rb") as file:
            assert file.read(21)[20] == 8
        assert os.listdir(os.path.dirname(path)) == ["recollect.db"]

    def test_ten_processes_migrate_an_old_file_once(self, filled_path):
        race(filled_path, "old")
        assert query(filled_path, "PRAGMA user_version") == [(LATEST + 1,)]
        assert query(filled_path, "SELECT count(*) FROM notes") == [(2,)]
        assert query(filled_path, "SELECT count(*) FROM chat_messages") == [(51,)]
        copy = migrations.backup_path(filled_path, LATEST)
        assert sorted(os.listdir(os.path.dirname(filled_path))) == [os.path.basename(p) for p in (filled_path, copy)]
        assert query(copy, "SELECT count(*) FROM chat_messages") == [(41,)]
        assert query(copy, "PRAGMA user_version") == [(LATEST,)]
        assert query(copy, "PRAGMA integrity_check") == [("ok",)]


def test_a_database_of_every_released_version_opens(tmp_path):
    """Open each gzipped database in the folder released/. The folder does not exist before the first release."""
    for archive in RELEASED_DATABASES:
        path = tmp_path / os.path.basename(archive).removesuffix(".gz")
        with gzip.open(archive) as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)
        (version,) = query(path, "PRAGMA user_version")[0]
        (count,) = query(path, "SELECT count(*) FROM messages")[0]
        with recollect.open(path) as store:
            sessions = store.list_sessions(1000, archived=None, delegates=True)
            assert sessions
            assert any(session.messages() for session in sessions)
        assert query(path, "SELECT count(*) FROM messages") == [(count,)]
        assert query(path, "PRAGMA user_version") == [(LATEST,)]
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert os.path.exists(migrations.backup_path(str(path), version)) == (version < LATEST)
