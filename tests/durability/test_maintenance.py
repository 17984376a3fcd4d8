"""Backups while other processes write, restores under open stores, and checks that find every kind of damage."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import glob
import os
import resource
import shutil
import sqlite3
import subprocess
import sys

import pytest
from mounts import disk_of

import recollect
from recollect import sql
from recollect.engine.sqlite.connection import connect
from recollect.errors import Corrupted, DiskFull, NotADatabase, SchemaTooNew, StoreLocked, StoreUnavailable


def user_message(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def texts(session) -> list[str]:
    return [message.text for message in session.messages()]


_STALLED_BACKUP = """
import sys, time, recollect
def stall(*_):
    print("started", flush=True)
    time.sleep(600)
recollect.open(sys.argv[1]).maintenance.backup(sys.argv[2], progress=stall)
"""


def execute_directly(path: str, *statements: str) -> None:
    """Run statements on a file without the store; every page keeps a correct checksum."""
    connection = connect(path, 5.0)
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


@pytest.fixture
def limit_file_size():
    """Return a context manager that limits the size of files of this process."""

    @contextlib.contextmanager
    def limit(size: int):
        previous_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, previous_limit[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, previous_limit)

    return limit


def check_order(messages) -> None:
    numbers = [int(message.text) for message in messages]
    assert numbers == list(range(len(numbers)))


class TestBackup:
    def test_backup_while_four_processes_write(self, path, spawn, tmp_path, check_database):
        with recollect.open(path) as store:
            writers = [spawn("append", path, f"s{number}", 0) for number in range(4)]
            for writer in writers:
                for _ in range(5):
                    writer.stdout.readline()
            copies = []
            for number in range(5):
                last_numbers = [int(writer.stdout.readline()) for writer in writers]
                copy = store.maintenance.backup(
                    tmp_path / f"copy{number}.db", progress=(lambda *_: None) if number % 2 else None
                )
                copies.append((copy, last_numbers))
            for writer in writers:
                writer.kill()
                writer.communicate()
        for copy, last_numbers in copies:
            check_database(copy)
            with recollect.open(copy) as store:
                assert store.maintenance.check().problems == ()
                for number, last in enumerate(last_numbers):
                    messages = store.get_session(f"s{number}").messages()
                    check_order(messages)
                    assert len(messages) > last  # messages that were acknowledged before the backup are in it
        check_database(path)

    def test_async_backup_while_tasks_write(self, path, tmp_path, check_database):
        copy = str(tmp_path / "copy.db")

        async def back_up_while_writing():
            async with recollect.open_async(path) as store:

                async def write(number):
                    session = await store.session(f"s{number}")
                    for count in range(40):
                        await session.append(user_message(count))

                tasks = [asyncio.create_task(write(number)) for number in range(8)]
                await asyncio.sleep(0.02)
                progress_calls = []
                await store.maintenance.backup(copy, progress=lambda done, total: progress_calls.append((done, total)))
                await asyncio.gather(*tasks)
                assert progress_calls

        asyncio.run(back_up_while_writing())
        check_database(copy)
        with recollect.open(copy) as store:
            for session in store.list_sessions():
                check_order(session.messages())

    def test_backup_of_a_store_in_memory(self, tmp_path):
        copy = str(tmp_path / "copy.db")
        with recollect.open(":memory:") as store:
            store.session("a").append([user_message(number) for number in range(3)])
            store.maintenance.backup(copy)
        with recollect.open(copy) as store:
            check_order(store.session("a").messages())
            assert store.maintenance.check().findings == ()
            assert store._engine._file.writer.execute("PRAGMA journal_mode").get == "wal"  # pyright: ignore[reportAttributeAccessIssue]

    def test_backup_of_a_large_store_in_memory(self, tmp_path):
        copy = str(tmp_path / "copy.db")
        with recollect.open(":memory:") as store:
            store.session("a").append([user_message("x" * 10_000 + str(number)) for number in range(600)])
            store.maintenance.backup(copy)
        with recollect.open(copy) as store:
            assert len(store.session("a").messages()) == 600
            assert (
                store.maintenance.check().findings == ()
            )  # every page has a checksum, also those written before page 1

    def test_backup_of_a_large_store_with_pages_in_the_wal(self, path, tmp_path):
        with recollect.open(path) as store:
            for number in range(300):
                store.session("a").append(user_message("x" * 10_000 + str(number)))
            assert os.path.getsize(path + "-wal") > 1_000_000
            copy = store.maintenance.backup(tmp_path / "copy.db")
            assert store.session("a").append(user_message("later")).ids == ["1.301"]
            kept_path = recollect.restore(copy, path)
            assert len(store.session("a").messages()) == 300
            recollect.restore(kept_path, path)
            assert len(store.session("a").messages()) == 301
            assert store.maintenance.check().findings == ()

    def test_backup_of_a_large_store_that_another_program_changed(self, path, tmp_path):
        with recollect.open(path) as store:
            store.session("a").append([user_message("x" * 10_000 + str(number)) for number in range(600)])
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE messages SET metadata = '{}'")
            other.commit()
        with recollect.open(path) as store:
            assert [finding.kind for finding in store.maintenance.check().problems] == ["checksum"]
            copy = store.maintenance.backup(tmp_path / "copy.db")
        recollect.restore(copy, tmp_path / "back.db")
        with recollect.open(tmp_path / "back.db") as store:
            assert len(store.session("a").messages()) == 600
            assert store.maintenance.check().findings == ()

    def test_backup_and_restore_with_a_file_size_limit_raise(self, path, tmp_path, limit_file_size):
        with recollect.open(path) as store:
            store.session("a").append([user_message("x" * 10_000 + str(number)) for number in range(300)])
            copy = store.maintenance.backup(tmp_path / "copy.db")
            with (
                limit_file_size(1_000_000),
                pytest.raises(StoreUnavailable, match=r"small\.db cannot be used.*ulimit -f"),
            ):
                store.maintenance.backup(tmp_path / "small.db")
        with limit_file_size(1_000_000):
            for target in (tmp_path / "new.db", path):
                with pytest.raises(StoreUnavailable, match=r"cannot be used.*ulimit -f"):
                    recollect.restore(copy, target)
        assert sorted(os.listdir(tmp_path)) == ["copy.db", "recollect.db"]

    def test_backup_over_a_pipe_is_refused(self, path, tmp_path):
        target = tmp_path / "pipe"  # not a device: if this test fails, the file is replaced
        os.mkfifo(target)
        with recollect.open(path) as store, pytest.raises(recollect.InvalidValue, match="is not a regular file"):
            store.maintenance.backup(target, overwrite=True)
        assert target.is_fifo()

    def test_a_failed_backup_leaves_no_file(self, path, tmp_path):
        with recollect.open(path) as store:
            store.session("a").append(user_message("x"))

            def interrupt(done, total):
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                store.maintenance.backup(tmp_path / "copy.db", progress=interrupt)
            store.session("a").append(user_message("y"))
        assert sorted(os.listdir(tmp_path)) == ["recollect.db"]

    def test_backup_over_an_open_database_is_refused(self, path, tmp_path):
        other = str(tmp_path / "other.db")
        with recollect.open(path) as store, recollect.open(other) as open_store:
            open_store.session("a").append(user_message("x"))
            with pytest.raises(recollect.errors.FileExists):
                store.maintenance.backup(other, overwrite=True)
            assert texts(open_store.session("a")) == ["x"]

    def test_backup_to_a_full_disk_raises_disk_full(self, path, tmp_path):
        with recollect.open(path) as store:
            store.session("a").append(user_message("x" * 10_000))
            with disk_of(tmp_path / "small", "64k") as folder:
                with pytest.raises(DiskFull) as exc_info:
                    store.maintenance.backup(folder / "copy.db")
                assert str(folder / "copy.db") in str(exc_info.value)
                assert os.listdir(folder) == []

    def test_temporary_files_of_killed_backups_are_removed(self, filled_path, tmp_path):
        """Only of killed processes: another backup to the same file may be running."""
        copy = str(tmp_path / "copy.db")
        running_child, killed_child = (
            subprocess.Popen([sys.executable, "-c", _STALLED_BACKUP, filled_path, copy], stdout=-1) for _ in range(2)
        )
        try:
            assert [child.stdout.readline() for child in (running_child, killed_child)] == [b"started\n"] * 2
            killed_child.kill()
            killed_child.communicate()
            assert len(glob.glob(copy + ".*.part")) == 2
            with recollect.open(filled_path) as store:
                store.maintenance.backup(copy)
            (temporary,) = glob.glob(copy + ".*.part")
            assert f"-{running_child.pid}-" in temporary
        finally:
            running_child.kill()
            running_child.communicate()
        recollect.restore(copy, tmp_path / "restored.db")
        with recollect.open(tmp_path / "restored.db") as store:
            store.maintenance.backup(copy, overwrite=True)
        assert glob.glob(str(tmp_path / "*.part*")) == []


class TestRestore:
    @pytest.fixture
    def backup(self, path, tmp_path):
        """Back up a store with three messages, then add two messages and a session to the store. Return the backup."""
        copy = str(tmp_path / "backup.db")
        with recollect.open(path) as store:
            session = store.session("a", title="Before", task="Earlier")
            session.append([user_message(number) for number in range(3)])
            store.maintenance.backup(copy)
            session.append([user_message(number) for number in range(3, 5)])
            session.update(title="After")
            store.session("new").append(user_message("new"))
        return copy

    def test_restore_keeps_the_previous_file(self, backup, path, check_database):
        kept_path = recollect.restore(backup, path)
        assert kept_path is not None
        assert os.path.dirname(kept_path) == os.path.dirname(path)
        assert kept_path.endswith(".kept")
        assert os.stat(kept_path).st_mode & 0o777 == 0o600
        for target, count, title in ((path, 3, "Before"), (kept_path, 5, "After"), (backup, 3, "Before")):
            with recollect.open(target) as store:
                assert store.maintenance.check().findings == ()
                assert (len(store.session("a").messages()), store.session("a").title) == (count, title)
                assert (store.get_session("new") is not None) == (target == kept_path)
            check_database(target)
        assert sorted(os.listdir(os.path.dirname(path))) == sorted(map(os.path.basename, (path, kept_path, backup)))

    def test_two_restores_in_one_second_keep_both_files(self, backup, path):
        first, second = recollect.restore(backup, path), recollect.restore(backup, path)
        assert first != second
        assert os.path.exists(first)
        assert os.path.exists(second)

    def test_restore_to_a_new_path(self, backup, tmp_path, check_database):
        target = str(tmp_path / "folder" / "fresh.db")
        assert recollect.restore(backup, target) is None
        assert os.listdir(tmp_path / "folder") == ["fresh.db"]
        assert os.stat(target).st_mode & 0o777 == 0o600
        with recollect.open(target) as store:
            assert len(store.session("a").messages()) == 3
            assert store._engine._file.writer.execute("PRAGMA journal_mode").get == "wal"  # pyright: ignore[reportAttributeAccessIssue]
        check_database(target)

    def test_restore_to_the_default_database(self, backup, path, monkeypatch):
        monkeypatch.setenv("RECOLLECT_DB", path)
        assert recollect.restore(backup) is not None

    def test_restore_under_an_open_store(self, backup, path, check_database):
        with recollect.open(path) as store:
            session = store.session("a")
            assert len(session.messages()) == 5
            recollect.restore(backup, path)
            assert len(session.messages()) == 3
            assert session.refresh().title == "Before"
            assert session.append(user_message("3")).ids == ["1.4"]
            check_order(session.messages())
            with pytest.raises(recollect.SessionNotFound):
                store.session("new", create=False)
            assert store.maintenance.check().findings == ()
        check_database(path)

    def test_restore_while_processes_write(self, backup, path, spawn, check_database):
        """Each of their writes is either in the copy of the previous file or in the restored store; none is split."""
        writers = [spawn("append", path, f"s{number}", 0) for number in range(3)]
        for writer in writers:
            for _ in range(10):
                writer.stdout.readline()
        kept_path = recollect.restore(backup, path)
        error_outputs = [writer.communicate(timeout=60)[1].decode() for writer in writers]
        # Their sessions are in the copy of the previous file.
        assert all("SessionNotFound" in output for output in error_outputs), error_outputs
        check_database(path)
        with recollect.open(kept_path) as store:
            assert store.maintenance.check().problems == ()
            for number in range(3):
                messages = store.get_session(f"s{number}").messages()
                check_order(messages)
                assert len(messages) >= 10
        with recollect.open(path) as store:
            assert store.maintenance.check().problems == ()
            assert [session.id for session in store.list_sessions()] == ["a"]
            check_order(store.session("a").messages())

    def test_restore_raises_store_locked_and_changes_nothing(self, backup, path, spawn):
        child = spawn("hold_write_lock", path)
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(StoreLocked):
            recollect.restore(backup, path, timeout=0.3)
        child.communicate(b"\n")
        with recollect.open(path) as store:
            assert len(store.session("a").messages()) == 5
        assert glob.glob(path + "*.kept") == glob.glob(path + "*.part") == []

    def test_a_file_that_is_not_a_backup_is_refused(self, backup, path, tmp_path):
        foreign = str(tmp_path / "foreign.db")
        connection = connect_new(foreign)
        connection.execute("CREATE TABLE theirs (a)")
        connection.close()
        text = tmp_path / "text.db"
        text.write_text("This is not a database. " * 500)
        empty = tmp_path / "empty.db"
        empty.touch()
        newer = str(tmp_path / "newer.db")
        shutil.copy(backup, newer)
        execute_directly(newer, "PRAGMA user_version = 999")
        for source, error in (
            (foreign, NotADatabase), (text, NotADatabase), (empty, NotADatabase), (newer, SchemaTooNew),
            (tmp_path / "none.db", StoreUnavailable), (path, recollect.InvalidValue),
        ):  # fmt: skip
            for action in (recollect.restore, recollect.check_backup):
                with pytest.raises(error):
                    action(source, path)
        with pytest.raises(recollect.InvalidValue):
            recollect.restore(backup, ":memory:")
        with recollect.open(path) as store:
            assert len(store.session("a").messages()) == 5
        assert glob.glob(path + "*.kept") == glob.glob(path + "*.part*") == []

    def test_a_damaged_backup_is_refused(self, backup, path):
        with open(backup, "r+b") as file:
            content = file.read()
            file.seek(content.index(b"Earlier"))
            file.write(b"Eagerly")
        for action in (recollect.restore, recollect.check_backup):
            with pytest.raises(Corrupted):
                action(backup, path)
        with recollect.open(path) as store:
            assert store.session("a").title == "After"
        assert recollect.check_backup(backup, path, verify=False).messages == 3
        assert recollect.restore(backup, path, verify=False) is not None
        with recollect.open(path) as store:
            assert store.session("a").task == "Eagerly"

    def test_a_copy_by_another_program_needs_verify_false(self, path, tmp_path):
        copy, target = str(tmp_path / "copy.db"), str(tmp_path / "back.db")
        with recollect.open(path) as store:
            store.session("a").append([user_message("x" * 10_000 + str(number)) for number in range(600)])
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("VACUUM INTO ?", (copy,))
        with pytest.raises(Corrupted):
            recollect.restore(copy, target)
        assert not os.path.exists(target)
        recollect.restore(copy, target, verify=False)
        with recollect.open(target) as store:
            assert len(store.session("a").messages()) == 600
            assert store.maintenance.check().findings == ()

    @pytest.mark.parametrize("damage", ["text", "pages", "schema"])
    def test_restore_over_a_damaged_store(self, backup, path, damage):
        if damage == "text":
            with open(path, "wb") as file:
                file.write(b"not a database " * 1_000)
        else:
            with open(path, "r+b") as file:
                file.seek(4096 * 3 if damage == "pages" else 105)
                file.write(b"\xff" * (4096 * 3 if damage == "pages" else 2_000))
        pages_before = pages(path)
        kept_path = recollect.restore(backup, path)
        assert pages(kept_path)[1:] == pages_before[1:]
        with recollect.open(path) as store:
            assert store.maintenance.check().findings == ()
            assert len(store.session("a").messages()) == 3

    def test_restore_over_a_foreign_database_is_refused(self, backup, tmp_path):
        foreign = str(tmp_path / "foreign.db")
        connection = connect_new(foreign)
        connection.execute("CREATE TABLE theirs (a)")
        connection.close()
        for action in (recollect.restore, recollect.check_backup):
            with pytest.raises(NotADatabase):
                action(backup, foreign)
        assert os.path.exists(foreign)
        assert glob.glob(foreign + "*") == [foreign]

    def test_check_backup_describes_the_backup_and_changes_nothing(self, backup, path):
        with recollect.open(path) as store:
            names_before = set(os.listdir(os.path.dirname(path)))
            os.chmod(backup, 0o400)
            description = recollect.check_backup(backup, path)
            assert set(os.listdir(os.path.dirname(path))) == names_before
            assert len(store.session("a").messages()) == 5
        assert (description.path, description.bytes) == (backup, os.path.getsize(backup))
        assert (description.schema, description.sessions, description.messages) == (
            sql.migrations("sqlite")[-1][0],
            1,
            3,
        )
        assert description.active_at.utcoffset() == datetime.timedelta(0)

    def test_an_older_backup_is_migrated(self, backup, path, monkeypatch):
        migrations = sql.migrations("sqlite")
        version = migrations[-1][0]
        monkeypatch.setattr(
            sql, "migrations", lambda engine: [*migrations, (version + 1, "more", "CREATE TABLE more (a)")]
        )
        assert recollect.check_backup(backup, path).schema == version
        recollect.restore(backup, path)
        with recollect.open(path) as store:
            assert [session.title for session in store.list_sessions(order="title")] == ["Before"]
            assert store._engine._file.writer.execute("PRAGMA user_version").get == version + 1  # pyright: ignore[reportAttributeAccessIssue]
        assert glob.glob(path + "*.backup*") == glob.glob(path + "*.part*") == []


def pages(path: str) -> list[bytes]:
    """Return the pages of a file that no process has open, without their checksums."""
    with open(path, "rb") as file:
        content = file.read()
    return [content[start : start + 4088] for start in range(0, len(content), 4096)]


def connect_new(path: str):
    open(path, "w").close()
    return connect(path, 5.0)


# Damage: the statement, the kind and a part of the message of the finding, and whether repair=True can correct it.
DAMAGE = {
    "a count of messages": ("UPDATE sessions SET message_count = 99 WHERE id = 'a'", "counter", "message_count 99 instead of 8", True),
    "a count of tokens": ("UPDATE sessions SET token_count = 1, output_tokens = 5 WHERE id = 'f'", "counter", "output_tokens 5 instead of 0", True),
    "a count in the trash": ("UPDATE sessions SET message_count = 0 WHERE id = 'trash'", "counter", "'trash'", True),
    "the counter of a head": ("UPDATE sessions SET last = last - 1 WHERE id = 'a'", "counter", "has a last position of", True),
    "the counter of a branch": ("UPDATE branches SET last = 2 WHERE key = 1", "counter", "but a message at", True),
    "a message that is gone": ("DELETE FROM messages WHERE key = (1 << 32) | 2", "message", "lacks 1 of its messages", False),
    "a message of no branch": ("INSERT INTO messages (key, role, created_at, parts) VALUES ((77 << 32) | 1, 'user', 1, '[]')", "message", "branch 77", False),
    "a message that cannot be read": ("UPDATE messages SET parts = '[{\"kind\":\"text\"}]' WHERE key = (1 << 32) | 2", "message", "1.2", False),
    "a message that is not JSON": ("UPDATE messages SET parts = '[{' WHERE key = (1 << 32) | 2", "message", "1.2", False),
    "the count of open turns": ("UPDATE sessions SET open_turns = 3 WHERE id = 'a'", "counter", "3 open turns; there are 0", True),
    "a turn that holds a branch and has ended": ("UPDATE branches SET open_turn = 7 WHERE key = 1", "turn", "which is completed", True),
    "a turn that is gone": ("UPDATE branches SET open_turn = 1 WHERE key = 1", "turn", "which is gone", True),
    "a turn that no branch knows": ("UPDATE turns SET status = 'open', holder = 'x', lease_until = 1", "turn", "does not hold its branch", True),
    "the number of a branch": ("UPDATE sessions SET branch = 9 WHERE id = 'a'", "branch", "stores branch number 9", True),
    "a head that is another's": ("UPDATE sessions SET head = 1 WHERE id = 'f'", "branch", "belongs to another session", False),
    "a call without its message": ("UPDATE tool_calls SET message = message + 60", "tool call", "asks", False),
    "a call at another part": ("UPDATE tool_calls SET part = 5", "tool call", "'1'", False),
    "a result that is gone": ("UPDATE tool_calls SET result = result + 60", "tool call", "answers", False),
    "a result at another part": ("UPDATE tool_calls SET result_part = 3", "tool call", "'1'", False),
    "a status without a result": ("UPDATE tool_calls SET status = 'pending'", "tool call", "wrong status", False),
    "a key for nothing": ("UPDATE appends SET position = 500", "idempotency key", "'k'", False),
    "a key on no branch": ("UPDATE appends SET branch = 500", "idempotency key", "'k'", False),
    "a message key twice": ("UPDATE messages SET client_key = 'mk' WHERE key = (1 << 32) | 2", "message key", "has the key 'mk'", False),
    "a version of nothing": ("UPDATE message_versions SET message = message + 500", "message", "has an earlier version, but does not exist", False),
    "a version that cannot be read": ("UPDATE message_versions SET parts = '[{\"kind\":\"text\"}]'", "message", "Version 1 of message", False),
    "a version that is not JSON": ("UPDATE message_versions SET metadata = '[{'", "message", "Version 1 of message", False),
    "the references to a payload": ("UPDATE blobs SET refs = 5", "payload", "counts 5 references; there are 2", True),
    "a payload that is gone": ("DELETE FROM blobs", "payload", "is missing; 2 messages", False),
    "a payload that is another": ("UPDATE blobs SET data = zeroblob(size)", "payload", "does not match its checksum", False),
    "the size of a payload": ("UPDATE blobs SET size = 5", "payload", "does not have its stored size", False),
    "a title": ("UPDATE titles SET folded = 'other' WHERE session = 1", "title", "does not match its title", True),
    "a title that is gone": ("DELETE FROM titles WHERE session = 1", "title", "does not match its title", True),
    "a label that is gone": ("DELETE FROM session_labels WHERE label = 'y'", "label", "labels that differ", True),
    "a label of another": ("UPDATE session_labels SET label = 'z' WHERE label = 'y'", "label", "labels that differ", True),
    "labels of no session": ("UPDATE sessions SET labels = NULL WHERE id = 'a'", "label", "labels that differ", True),
    "numbers of branches": ("UPDATE trees SET branches = 1", "counter", "twice", False),
    "a reference": ("UPDATE branches SET tree = 55 WHERE key = 1", "reference", "trees", False),
    "an index": ("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'pinned_at IS NOT NULL AND', '') WHERE name = 'sessions_pinned'", "structure", "sessions_pinned", False),
}  # fmt: skip


class TestCheck:
    @pytest.fixture
    def filled_path(self, path):
        """Return the path of a closed store with every kind of row."""
        with recollect.open(path) as store:
            session = store.session("a", title="Title", labels=["x", "y"])
            session.append([user_message(number) for number in range(4)], key="k")
            session.append(
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]}
            )
            session.tools.record_result("1", "r")
            session.save_turn("q", {"role": "assistant", "content": "a"})
            fork = session.fork(2, id="f", title="Fork")
            for _ in range(2):
                fork.append(recollect.Draft(role="user", parts=(recollect.AttachmentPart(data="QUJD" * 3_000),)))
            session.append(
                recollect.Draft(role="user", parts=(recollect.AttachmentPart(data="QUJE" * 3_000),), key="mk")
            )
            session.replace_message(session.message(key="mk").id, user_message("replaced"))
            session.rewind(8)
            session.rewind(4)
            session.append([user_message(number) for number in range(4)])
            store.session("trash").append(user_message("x"))
            store.delete_session("trash")
            assert store.maintenance.check().findings == ()
        return path

    @pytest.mark.parametrize("name", DAMAGE)
    def test_check_finds_damage_and_repairs_derived_values(self, filled_path, name):
        statement, kind, text, derivable = DAMAGE[name]
        execute_directly(filled_path, *statement.split("; "))
        with recollect.open(filled_path) as store:
            findings = store.maintenance.check()
            matches = [finding for finding in findings.problems if finding.kind == kind and text in finding.message]
            assert matches, findings
            assert not findings.ok
            assert all(finding.advice for finding in findings.findings)
            repair_report = store.maintenance.check(repair=True)
            assert any(text in finding.message for finding in repair_report.repairs) == derivable, repair_report
            assert store.maintenance.check().ok == derivable

    def test_an_outdated_title_sort_key_is_only_a_notice(self, filled_path):
        with recollect.open(filled_path) as store:
            store.session("a").update(title="Été")
        execute_directly(filled_path, "UPDATE titles SET folded = lower('Été') WHERE session = 1")
        with recollect.open(filled_path) as store:
            assert store.maintenance.check().ok
            assert store.maintenance.check(repair=True).repairs
            assert store.maintenance.check().findings == ()

    def test_check_finds_a_flipped_bit_by_the_checksum(self, filled_path):
        with open(filled_path, "r+b") as file:
            content = file.read()
            file.seek(content.index(b"Title"))
            file.write(b"Tidal")
        with recollect.open(filled_path) as store:
            (finding,) = [finding for finding in store.maintenance.check().problems if finding.kind == "checksum"]
            assert "checksum" in finding.message
            assert not [
                finding for finding in store.maintenance.check(deep=False).problems if finding.kind == "checksum"
            ]

    def test_check_reports_an_overwritten_page(self, filled_path):
        connection = connect(filled_path, 5.0)
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'turns'").get
        connection.close()
        with open(filled_path, "r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
        with recollect.open(filled_path) as store:
            try:
                findings = store.maintenance.check()
            except Corrupted:
                findings = None
            assert findings is None or not findings.ok

    def test_async_check_repairs_counts(self, filled_path):
        execute_directly(filled_path, "UPDATE sessions SET message_count = 99 WHERE id = 'a'")

        async def check_and_repair():
            async with recollect.open_async(filled_path) as store:
                progress_calls = []
                assert not (await store.maintenance.check(progress=lambda *counts: progress_calls.append(counts))).ok
                assert progress_calls == [(3, 3)]
                assert (await store.maintenance.check(repair=True)).ok
                assert (await store.maintenance.check()).findings == ()
                assert (await store.session("a")).message_count == 8

        asyncio.run(check_and_repair())

    def test_check_finds_no_problem_while_processes_write(self, path, spawn):
        """Writes between two steps of a check are not reported as damage."""
        with recollect.open(path) as store:
            writers = [spawn("hold_turns", path, f"s{number}", 0) for number in range(3)]
            for writer in writers:
                for _ in range(9):
                    writer.stdout.readline()
            for _ in range(10):
                assert store.maintenance.check().problems == ()
            for writer in writers:
                writer.kill()
                writer.communicate()
            assert store.maintenance.check().problems == ()


def test_optimize_while_processes_write(path, spawn, check_database):
    with recollect.open(path) as store:
        for number in range(10):
            store.session(f"old{number}").append(user_message("x" * 50_000))
        writers = [spawn("append", path, f"s{number}", 0) for number in range(3)]
        for writer in writers:
            writer.stdout.readline()
        for number in range(10):
            store.erase_session(f"old{number}")
        assert store.maintenance.optimize().after > 0
        for writer in writers:
            for _ in range(10):
                writer.stdout.readline()
            writer.kill()
            writer.communicate()
        assert store.maintenance.check().problems == ()
        for number in range(3):
            check_order(store.session(f"s{number}").messages())
    check_database(path)


def test_an_engine_without_a_file_raises_not_supported(path):
    class EngineWithoutFile:
        maintenance = None

        def __getattr__(self, name):
            return getattr(inner._engine, name)

    with recollect.open(path) as inner:
        inner.session("a").append(user_message("x"))
        store = recollect.Store(EngineWithoutFile())
        for action in (store.maintenance.space, store.maintenance.optimize, lambda: store.maintenance.backup("x.db")):
            with pytest.raises(recollect.errors.NotSupported):
                action()
        findings = store.maintenance.check()
        assert findings.ok
        assert "structure" not in findings.checks
