"""New files, older files, newer files and files that are not ours."""

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
from recollect.engine.sqlite import migration
from recollect.engine.sqlite.connection import connect, connect_verified
from recollect.errors import Corrupted, NotADatabase, RecollectError, SchemaTooNew, StoreError, StoreUnavailable

LATEST = sql.migrations("sqlite")[-1][0]
RELEASED = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "released", "*.db.gz")))
MORE = [
    (LATEST + 1, "note", "CREATE TABLE notes (text TEXT) STRICT; INSERT INTO notes SELECT id FROM sessions;"),
    (LATEST + 2, "mark", "ALTER TABLE notes ADD COLUMN mark INTEGER;\nUPDATE notes SET mark = 1;"),
]


def normal(text: str) -> str:
    """Leave out comments and white space that mean nothing."""
    text = re.sub(r"--[^\n]*", " ", text)
    return re.sub(r"\s*([(),;])\s*", r"\1", " ".join(text.split())).rstrip(";")


def described(connection) -> dict[str, str]:
    rows = connection.execute("SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY 1")
    return {name: normal(text) for name, text in rows if not name.partition(" ")[2].startswith("sqlite_")}


def digests(path) -> dict[str, str]:
    """Fingerprint a file and whatever lies beside it under its name."""
    found = glob.glob(glob.escape(str(path)) + "*")
    return {file: digest(file) for file in found}


def digest(file: str) -> str:
    with open(file, "rb") as content:
        return hashlib.sha256(content.read()).hexdigest()


def checksum(page: bytes) -> bytes:
    """Add up a page as SQLite's checksum VFS does."""
    one = two = 0
    words = struct.unpack(f"<{len(page) // 4}I", page)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return struct.pack("<2I", one, two)


def stock(path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def asked(path, question: str):
    connection = stock(path)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


def told(path, *statements: str, ours: bool = False) -> None:
    """Change a file with plain sqlite3, or in our way, which writes the checksums of the pages too."""
    connection = connect(path, 5.0) if ours else stock(path)
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def filled(path):
    """A database of this version with two conversations in it, closed."""
    with recollect.open(path) as store:
        store.session("cli:a").append([{"role": "user", "content": f"question {n}"} for n in range(40)])
        store.session("cli:b").append({"role": "user", "content": "other"})
    return path


def migrated(path: str, known, timeout: float = 5.0) -> None:
    connection = connect(path, timeout)
    try:
        migration.ready(connection, path, timeout, known)
    finally:
        connection.close()


def read_everything(path) -> None:
    with recollect.open(path) as store:
        for session in store.list_sessions(archived=None):
            session.messages()


class TestSchema:
    def test_the_sum_of_the_migrations_is_the_stated_schema(self):
        summed, stated = apsw.Connection(":memory:"), apsw.Connection(":memory:")
        for _, _, text in sql.migrations("sqlite"):
            summed.execute(text).fetchall()
        stated.execute(sql.schema("sqlite")).fetchall()
        assert described(summed) == described(stated)

    def test_a_new_file_has_the_stated_schema(self, filled):
        stated = apsw.Connection(":memory:")
        stated.execute(sql.schema("sqlite")).fetchall()
        connection = stock(filled)
        assert described(connection) == described(stated)
        connection.close()

    def test_migrations_are_numbered_without_gaps(self):
        assert [number for number, _, _ in sql.migrations("sqlite")] == list(range(1, LATEST + 1))

    def test_every_table_is_strict(self, filled):
        loose = asked(
            filled,
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND NOT strict AND name NOT LIKE 'sqlite_%'",
        )
        assert loose == []

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
    def test_what_only_a_new_file_can_take(self, filled, pragma, value):
        rows = asked(filled, f"PRAGMA {pragma}")
        assert rows == ([] if value is None else [(value,)])

    def test_the_header_says_the_same(self, filled):
        with open(filled, "rb") as file:
            header = file.read(100)
        assert header[:16] == b"SQLite format 3\x00"
        assert int.from_bytes(header[16:18], "big") == 4096
        assert header[18:20] == b"\x02\x02"
        assert header[20] == 8
        assert int.from_bytes(header[60:64], "big") == LATEST
        assert int.from_bytes(header[68:72], "big") == 0x52434C54

    def test_every_page_has_its_checksum(self, filled):
        with open(filled, "rb") as file:
            content = file.read()
        pages = [content[start : start + 4096] for start in range(0, len(content), 4096)]
        assert len(pages) > 10
        assert all(checksum(page[:-8]) == page[-8:] for page in pages)
        connection = connect_verified(filled, 5.0)
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        connection.close()

    def test_what_writes_is_set_up_for_safety(self, filled):
        with recollect.open(filled) as store:
            writer = store._engine._file.writer
            settings = {
                name: writer.execute(f"PRAGMA {name}").get for name in ("synchronous", "foreign_keys", "secure_delete")
            }
            assert settings == {"synchronous": 2, "foreign_keys": 1, "secure_delete": 1}

    def test_what_reads_can_not_write(self, filled):
        with recollect.open(filled) as store:
            store.list_sessions()
            readers = store._engine._file._idle
            assert readers
            for reader in readers:
                with pytest.raises(apsw.ReadOnlyError):
                    reader.execute("DELETE FROM messages")

    def test_an_empty_file_is_made_a_database(self, path):
        open(path, "w").close()
        with recollect.open(path) as store:
            store.session("cli:a").append({"role": "user", "content": "x"})
        assert asked(path, "PRAGMA user_version") == [(LATEST,)]

    def test_no_copy_is_kept_of_a_new_file(self, filled):
        assert sorted(os.listdir(os.path.dirname(filled))) == ["recollect.db"]

    def test_opening_again_changes_nothing(self, filled):
        before = digests(filled)
        recollect.open(filled).close()
        assert digests(filled) == before

    def test_memory(self):
        with recollect.open(":memory:") as store:
            store.session("cli:a").append({"role": "user", "content": "x"})
            assert store.session("cli:a").message_count == 1


class TestOlderFile:
    def test_it_is_migrated_step_by_step(self, filled):
        migrated(filled, [*sql.migrations("sqlite"), *MORE])
        assert asked(filled, "PRAGMA user_version") == [(LATEST + 2,)]
        assert asked(filled, "SELECT text, mark FROM notes ORDER BY text") == [("cli:a", 1), ("cli:b", 1)]

    def test_a_copy_is_kept_before(self, filled):
        migrated(filled, [*sql.migrations("sqlite"), *MORE])
        copy = migration.backup_path(filled, LATEST)
        assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
        assert sorted(os.listdir(os.path.dirname(filled))) == [os.path.basename(p) for p in (filled, copy)]
        assert asked(copy, "PRAGMA user_version") == [(LATEST,)]
        assert asked(copy, "PRAGMA integrity_check") == [("ok",)]
        with recollect.open(copy) as store:
            assert [m.text for m in store.get_session("cli:a").messages()] == [f"question {n}" for n in range(40)]

    def test_the_copy_holds_what_is_only_in_the_log(self, filled):
        with recollect.open(filled) as store:
            store.session("cli:late").append({"role": "user", "content": "still in the log"})
            migrated(filled, [*sql.migrations("sqlite"), *MORE])
        with recollect.open(migration.backup_path(filled, LATEST)) as store:
            assert store.get_session("cli:late").messages()[0].text == "still in the log"

    def test_a_large_copy_with_pages_of_the_log_can_be_brought_back(self, filled, tmp_path):
        with recollect.open(filled) as store:
            for _ in range(4):
                store.session("cli:late").append([{"role": "user", "content": "x" * 10_000} for _ in range(75)])
            migrated(filled, [*sql.migrations("sqlite"), *MORE])
        recollect.restore(migration.backup_path(filled, LATEST), tmp_path / "back.db")
        with recollect.open(tmp_path / "back.db") as store:
            assert store.get_session("cli:late").message_count == 300
            assert store.check().found == ()

    def test_an_earlier_copy_is_never_overwritten(self, filled):
        copy = migration.backup_path(filled, LATEST)
        shutil.copy(filled, copy)
        told(copy, "CREATE TABLE earlier (x)", ours=True)
        migrated(filled, [*sql.migrations("sqlite"), *MORE])
        assert asked(copy, "SELECT count(*) FROM earlier") == [(0,)]
        assert asked(filled, "PRAGMA user_version") == [(LATEST + 2,)]

    def test_a_copy_that_was_cut_off_does_not_stand_in_the_way(self, filled):
        part = f"{migration.backup_path(filled, LATEST)}.{os.getpid()}.part"
        with open(part, "wb") as file:
            file.write(b"half")
        migrated(filled, [*sql.migrations("sqlite"), *MORE])
        assert asked(migration.backup_path(filled, LATEST), "PRAGMA user_version") == [(LATEST,)]

    def test_the_copy_is_of_the_old_version_though_another_process_migrates_meanwhile(self, filled, monkeypatch):
        known = [*sql.migrations("sqlite"), *MORE]
        waiting = [True]

        def another_is_faster(path, timeout):
            if waiting:
                waiting.clear()
                with contextlib.suppress(apsw.BusyError):  # unless a lock keeps it out
                    migrated(filled, known, timeout=0.2)
            return connect(path, timeout)

        connection = connect(filled, 5.0)
        monkeypatch.setattr(migration, "connect", another_is_faster)
        migration.ready(connection, filled, 5.0, known)
        connection.close()
        copy = migration.backup_path(filled, LATEST)
        assert asked(copy, "PRAGMA user_version") == [(LATEST,)]
        assert asked(copy, "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'") == [(0,)]
        assert sorted(os.listdir(os.path.dirname(filled))) == [os.path.basename(p) for p in (filled, copy)]

    def test_a_copy_that_can_not_be_made_is_our_error_and_nothing_is_migrated(self, filled, monkeypatch):
        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        known = [*sql.migrations("sqlite"), *MORE]
        monkeypatch.setattr(sql, "migrations", lambda engine: known)
        monkeypatch.setattr(migration.os, "replace", full)
        with pytest.raises(RecollectError):
            recollect.open(filled)
        assert asked(filled, "PRAGMA user_version") == [(LATEST,)]

    def test_threads_of_one_process_migrate_once(self, filled, monkeypatch):
        known = [*sql.migrations("sqlite"), *MORE]
        monkeypatch.setattr(sql, "migrations", lambda engine: known)
        start = threading.Barrier(6)

        def opens(number: int) -> int:
            start.wait()
            with recollect.open(filled) as store:
                return len(store.get_session("cli:a").messages())

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(opens, range(6))) == [40] * 6
        assert asked(filled, "SELECT count(*) FROM notes") == [(2,)]
        assert asked(migration.backup_path(filled, LATEST), "PRAGMA user_version") == [(LATEST,)]

    def test_a_failing_migration_leaves_version_and_data(self, filled):
        broken = (LATEST + 2, "broken", "DELETE FROM messages; DROP VIEW chat_messages; SELECT nonsense;")
        with pytest.raises(apsw.SQLError, match="nonsense"):
            migrated(filled, [*sql.migrations("sqlite"), MORE[0], broken])
        assert asked(filled, "PRAGMA user_version") == [(LATEST + 1,)]
        assert asked(filled, "SELECT count(*) FROM chat_messages") == [(41,)]
        assert asked(filled, "SELECT count(*) FROM notes") == [(2,)]
        migrated(filled, [*sql.migrations("sqlite"), *MORE])
        assert asked(filled, "PRAGMA user_version") == [(LATEST + 2,)]

    def test_a_failing_migration_is_our_error_at_the_door(self, filled, monkeypatch):
        broken = (LATEST + 1, "broken", "SELECT nonsense")
        known = [*sql.migrations("sqlite"), broken]
        monkeypatch.setattr(sql, "migrations", lambda engine: known)
        with pytest.raises(RecollectError):
            recollect.open(filled)
        monkeypatch.undo()
        with recollect.open(filled) as store:
            assert store.get_session("cli:a").message_count == 40

    def test_each_migration_is_a_transaction_of_its_own(self, filled):
        seen = []
        connection = connect(filled, 5.0)

        def watch(_connection, statement, _bindings):
            if statement.split()[0].upper() in ("BEGIN", "COMMIT", "ROLLBACK"):
                seen.append(statement.split()[0].upper())
            return True

        connection.exec_trace = watch
        migration.ready(connection, filled, 5.0, [*sql.migrations("sqlite"), *MORE])
        connection.close()
        assert seen.count("COMMIT") >= len(MORE)
        assert all(begin == "BEGIN" and end != "BEGIN" for begin, end in zip(seen[::2], seen[1::2], strict=True))

    def test_a_live_store_of_the_old_version_still_reads(self, filled):
        with recollect.open(filled) as store:
            migrated(filled, [*sql.migrations("sqlite"), *MORE])
            assert len(store.get_session("cli:a").messages()) == 40

    def test_a_store_opens_an_old_file_by_itself(self, filled, monkeypatch):
        known = [*sql.migrations("sqlite"), *MORE]
        monkeypatch.setattr(sql, "migrations", lambda engine: known)
        with recollect.open(filled) as store:
            assert store.get_session("cli:a").message_count == 40
        assert asked(filled, "PRAGMA user_version") == [(LATEST + 2,)]
        assert os.path.exists(migration.backup_path(filled, LATEST))


class TestNewerFile:
    def test_it_is_refused_and_left_as_it_is(self, filled):
        told(filled, f"PRAGMA user_version = {LATEST + 5}", ours=True)
        before = digests(filled)
        with pytest.raises(SchemaTooNew, match="pip install -U recollect") as caught:
            recollect.open(filled)
        assert (caught.value.found, caught.value.known) == (LATEST + 5, LATEST)
        assert digests(filled) == before

    def test_a_store_that_was_open_meanwhile_is_not_harmed(self, filled):
        with recollect.open(filled) as store:
            migrated(filled, [*sql.migrations("sqlite"), *MORE])
            with pytest.raises(SchemaTooNew):
                recollect.open(filled)
            assert store.get_session("cli:b").message_count == 1

    def test_a_new_file_can_be_opened_beside_it(self, filled, tmp_path):
        told(filled, f"PRAGMA user_version = {LATEST + 5}", ours=True)
        with pytest.raises(SchemaTooNew):
            recollect.open(filled)
        recollect.open(tmp_path / "other.db").close()


class TestForeignFile:
    def refused(self, path, *kinds):
        before = digests(path)
        with pytest.raises(kinds) as caught:
            recollect.open(path)
        assert digests(path) == before
        assert str(path) in str(caught.value)
        return caught.value

    @pytest.mark.parametrize("statements", [
        ["CREATE TABLE t (x)"],
        ["CREATE TABLE t (x)", "PRAGMA user_version = 1"],
        ["PRAGMA user_version = 1"],
        ["PRAGMA application_id = 7", "CREATE TABLE t (x)"],
        ["PRAGMA application_id = 7", "PRAGMA user_version = 1"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE t (x)"],
    ], ids=" ".join)  # fmt: skip
    def test_another_programs_database(self, path, statements):
        told(path, *statements)
        error = self.refused(path, NotADatabase)
        assert "another program" in str(error)

    @pytest.mark.parametrize(
        "text", [b"hello", b"x" * 5000, b"\0" * 5000, b"SQLite format 3", b"\x1f\x8b" + b"z" * 600]
    )
    def test_a_file_that_is_no_database(self, path, text):
        with open(path, "wb") as file:
            file.write(text)
        self.refused(path, NotADatabase)

    def test_a_folder(self, tmp_path):
        with pytest.raises(NotADatabase, match="folder"):
            recollect.open(tmp_path)

    @pytest.mark.parametrize("keep", [2, 50, 99, 100, 512, 4095])
    def test_the_beginning_of_a_database(self, filled, keep):
        os.truncate(filled, keep)
        self.refused(filled, NotADatabase, Corrupted)

    @pytest.mark.parametrize("pages", [1, 2, 5])
    def test_a_database_that_lost_its_end(self, filled, pages):
        os.truncate(filled, 4096 * pages)
        before = digest(filled)
        with pytest.raises(Corrupted):
            read_everything(filled)
        assert digest(filled) == before

    def test_a_first_page_of_noise(self, filled):
        with open(filled, "r+b") as file:
            file.seek(100)
            file.write(b"\x5a" * 3000)
        with pytest.raises((Corrupted, NotADatabase)):
            recollect.open(filled)

    def test_a_path_below_a_file(self, filled):
        with pytest.raises(StoreUnavailable):
            recollect.open(filled + "/x.db")

    @pytest.mark.skipif(not os.path.exists("/dev/null"), reason="a device")
    def test_a_device(self):
        before = os.stat("/dev/null").st_mode
        with pytest.raises(StoreError):
            recollect.open("/dev/null")
        assert os.stat("/dev/null").st_mode == before

    def test_a_refused_file_can_be_opened_once_it_is_gone(self, path):
        with open(path, "wb") as file:
            file.write(b"text")
        with pytest.raises(NotADatabase):
            recollect.open(path)
        os.unlink(path)
        recollect.open(path).close()


RACER = """
import sys
from recollect import sql
from recollect.engine.sqlite import migration
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
    """Let many processes open a file at the same moment."""
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, path, kind, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        for runner in runners:
            assert runner.stdout.readline() == b"ready\n"
        for runner in runners:
            runner.stdin.write(b"go\n")
            runner.stdin.flush()
        complaints = [runner.communicate(timeout=60)[1].decode() for runner in runners]
        assert complaints == [""] * count
        assert [runner.returncode for runner in runners] == [0] * count
    finally:
        for runner in runners:
            runner.kill()
            runner.communicate()


class TestTogether:
    def test_ten_processes_make_a_new_file_at_once(self, path):
        race(path, "new")
        assert asked(path, "PRAGMA integrity_check") == [("ok",)]
        assert asked(path, "SELECT count(*) FROM chat_messages") == [(10,)]
        assert asked(path, "PRAGMA journal_mode") == [("wal",)]
        with open(path, "rb") as file:
            assert file.read(21)[20] == 8
        assert os.listdir(os.path.dirname(path)) == ["recollect.db"]

    def test_ten_processes_migrate_an_old_file_once(self, filled):
        race(filled, "old")
        assert asked(filled, "PRAGMA user_version") == [(LATEST + 1,)]
        assert asked(filled, "SELECT count(*) FROM notes") == [(2,)]
        assert asked(filled, "SELECT count(*) FROM chat_messages") == [(51,)]
        copy = migration.backup_path(filled, LATEST)
        assert sorted(os.listdir(os.path.dirname(filled))) == [os.path.basename(p) for p in (filled, copy)]
        assert asked(copy, "SELECT count(*) FROM chat_messages") == [(41,)]
        assert asked(copy, "PRAGMA user_version") == [(LATEST,)]
        assert asked(copy, "PRAGMA integrity_check") == [("ok",)]


def test_a_database_of_every_released_version_opens(tmp_path):
    """Drop a gzipped database of each release into released/ and it is tried here; before the first there is none."""
    for packed in RELEASED:
        path = tmp_path / os.path.basename(packed).removesuffix(".gz")
        with gzip.open(packed) as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)
        (version,) = asked(path, "PRAGMA user_version")[0]
        (count,) = asked(path, "SELECT count(*) FROM messages")[0]
        with recollect.open(path) as store:
            sessions = store.list_sessions(1000, archived=None, delegates=True)
            assert sessions
            assert any(session.messages() for session in sessions)
        assert asked(path, "SELECT count(*) FROM messages") == [(count,)]
        assert asked(path, "PRAGMA user_version") == [(LATEST,)]
        assert asked(path, "PRAGMA integrity_check") == [("ok",)]
        assert os.path.exists(migration.backup_path(str(path), version)) == (version < LATEST)
