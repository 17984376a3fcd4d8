"""Backups while others write, a backup brought back under live stores, and every kind of damage found by a check."""

from __future__ import annotations

import asyncio
import contextlib
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


def said(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def texts(session) -> list[str]:
    return [message.text for message in session.messages()]


_STALLED = """
import sys, time, recollect
def stall(*_):
    print("begun", flush=True)
    time.sleep(600)
recollect.open(sys.argv[1]).backup(sys.argv[2], progress=stall)
"""


def told(path: str, *statements: str) -> None:
    """Change a file behind the library's back, in its own way: every page keeps its checksum."""
    connection = connect(path, 5.0)
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


@pytest.fixture
def limited():
    """Give what lets a file of this process be only so large, for a while."""

    @contextlib.contextmanager
    def limit(size: int):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit


def in_order(messages) -> None:
    numbers = [int(message.text) for message in messages]
    assert numbers == list(range(len(numbers)))


class TestBackup:
    def test_while_four_processes_write(self, path, spawn, tmp_path, sound):
        with recollect.open(path) as store:
            writers = [spawn("append", path, f"s{number}", 0) for number in range(4)]
            for writer in writers:
                for _ in range(5):
                    writer.stdout.readline()
            copies = []
            for number in range(5):
                acknowledged = [int(writer.stdout.readline()) for writer in writers]
                copy = store.backup(tmp_path / f"copy{number}.db", progress=(lambda *_: None) if number % 2 else None)
                copies.append((copy, acknowledged))
            for writer in writers:
                writer.kill()
                writer.communicate()
        for copy, acknowledged in copies:
            sound(copy)
            with recollect.open(copy) as store:
                assert store.check().problems == ()
                for number, last in enumerate(acknowledged):
                    messages = store.get_session(f"s{number}").messages()
                    in_order(messages)
                    assert len(messages) > last  # what was acknowledged before it began is in it
        sound(path)

    def test_under_asyncio_while_tasks_write(self, path, tmp_path, sound):
        copy = str(tmp_path / "copy.db")

        async def story():
            async with recollect.open_async(path) as store:

                async def write(number):
                    session = await store.session(f"s{number}")
                    for count in range(40):
                        await session.append(said(count))

                tasks = [asyncio.create_task(write(number)) for number in range(8)]
                await asyncio.sleep(0.02)
                seen = []
                await store.backup(copy, progress=lambda done, total: seen.append((done, total)))
                await asyncio.gather(*tasks)
                assert seen

        asyncio.run(story())
        sound(copy)
        with recollect.open(copy) as store:
            for session in store.list_sessions():
                in_order(session.messages())

    def test_of_a_store_in_memory(self, tmp_path):
        copy = str(tmp_path / "copy.db")
        with recollect.open(":memory:") as store:
            store.session("a").append([said(number) for number in range(3)])
            store.backup(copy)
        with recollect.open(copy) as store:
            in_order(store.session("a").messages())
            assert store.check().found == ()
            assert store._engine._file.writer.execute("PRAGMA journal_mode").get == "wal"

    def test_of_a_large_store_in_memory(self, tmp_path):
        copy = str(tmp_path / "copy.db")
        with recollect.open(":memory:") as store:
            store.session("a").append([said("x" * 10_000 + str(number)) for number in range(600)])
            store.backup(copy)
        with recollect.open(copy) as store:
            assert len(store.session("a").messages()) == 600
            assert store.check().found == ()  # every page has its checksum, also those written before the first

    def test_of_a_large_store_whose_last_pages_are_in_the_log(self, path, tmp_path):
        with recollect.open(path) as store:
            for number in range(300):
                store.session("a").append(said("x" * 10_000 + str(number)))
            assert os.path.getsize(path + "-wal") > 1_000_000
            copy = store.backup(tmp_path / "copy.db")
            assert store.session("a").append(said("later")).ids == ["1.301"]
            kept = recollect.restore(copy, path)
            assert len(store.session("a").messages()) == 300
            recollect.restore(kept, path)
            assert len(store.session("a").messages()) == 301
            assert store.check().found == ()

    def test_of_a_large_store_that_another_program_wrote_to(self, path, tmp_path):
        with recollect.open(path) as store:
            store.session("a").append([said("x" * 10_000 + str(number)) for number in range(600)])
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE messages SET metadata = '{}'")
            other.commit()
        with recollect.open(path) as store:
            assert [found.kind for found in store.check().problems] == ["checksum"]
            copy = store.backup(tmp_path / "copy.db")
        recollect.restore(copy, tmp_path / "back.db")
        with recollect.open(tmp_path / "back.db") as store:
            assert len(store.session("a").messages()) == 600
            assert store.check().found == ()

    def test_where_a_file_may_not_be_so_large(self, path, tmp_path, limited):
        with recollect.open(path) as store:
            store.session("a").append([said("x" * 10_000 + str(number)) for number in range(300)])
            copy = store.backup(tmp_path / "copy.db")
            with limited(1_000_000), pytest.raises(StoreUnavailable, match=r"small\.db can not be used.*ulimit -f"):
                store.backup(tmp_path / "small.db")
        with limited(1_000_000):
            for place in (tmp_path / "new.db", path):
                with pytest.raises(StoreUnavailable, match=r"can not be used.*ulimit -f"):
                    recollect.restore(copy, place)
        assert sorted(os.listdir(tmp_path)) == ["copy.db", "recollect.db"]

    def test_over_what_is_no_file_is_refused(self, path, tmp_path):
        place = tmp_path / "pipe"  # and never a device: where this fails, it is gone
        os.mkfifo(place)
        with recollect.open(path) as store, pytest.raises(recollect.InvalidValue, match="is no file"):
            store.backup(place, overwrite=True)
        assert place.is_fifo()

    def test_nothing_is_left_of_one_that_fails(self, path, tmp_path):
        with recollect.open(path) as store:
            store.session("a").append(said("x"))

            def stop(done, total):
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                store.backup(tmp_path / "copy.db", progress=stop)
            store.session("a").append(said("y"))
        assert sorted(os.listdir(tmp_path)) == ["recollect.db"]

    def test_over_a_database_that_is_in_use_is_refused(self, path, tmp_path):
        other = str(tmp_path / "other.db")
        with recollect.open(path) as store, recollect.open(other) as busy:
            busy.session("a").append(said("x"))
            with pytest.raises(recollect.FileExists):
                store.backup(other, overwrite=True)
            assert texts(busy.session("a")) == ["x"]

    def test_on_a_full_disk(self, path, tmp_path):
        with recollect.open(path) as store:
            store.session("a").append(said("x" * 10_000))
            with disk_of(tmp_path / "small", "64k") as folder:
                with pytest.raises(DiskFull) as caught:
                    store.backup(folder / "copy.db")
                assert str(folder / "copy.db") in str(caught.value)
                assert os.listdir(folder) == []

    def test_what_a_killed_one_left_is_removed_by_the_next(self, filled, tmp_path):
        """And only that: another one to the same file may be under way."""
        copy = str(tmp_path / "copy.db")
        lives, dies = (subprocess.Popen([sys.executable, "-c", _STALLED, filled, copy], stdout=-1) for _ in range(2))
        try:
            assert [child.stdout.readline() for child in (lives, dies)] == [b"begun\n"] * 2
            dies.kill()
            dies.communicate()
            assert len(glob.glob(copy + ".*.part")) == 2
            with recollect.open(filled) as store:
                store.backup(copy)
            (left,) = glob.glob(copy + ".*.part")
            assert f"-{lives.pid}-" in left
        finally:
            lives.kill()
            lives.communicate()
        recollect.restore(copy, tmp_path / "restored.db")
        with recollect.open(tmp_path / "restored.db") as store:
            store.backup(copy, overwrite=True)
        assert glob.glob(str(tmp_path / "*.part*")) == []


class TestRestore:
    @pytest.fixture
    def backup(self, path, tmp_path):
        """A store with three messages and its backup, after which two more were written and a session was begun."""
        copy = str(tmp_path / "backup.db")
        with recollect.open(path) as store:
            session = store.session("a", title="Before", task="Earlier")
            session.append([said(number) for number in range(3)])
            store.backup(copy)
            session.append([said(number) for number in range(3, 5)])
            session.update(title="After")
            store.session("new").append(said("new"))
        return copy

    def test_what_was_there_is_kept_beside_it(self, backup, path, sound):
        kept = recollect.restore(backup, path)
        assert os.path.dirname(kept) == os.path.dirname(path)
        assert kept.endswith(".kept")
        assert os.stat(kept).st_mode & 0o777 == 0o600
        for place, count, title in ((path, 3, "Before"), (kept, 5, "After"), (backup, 3, "Before")):
            with recollect.open(place) as store:
                assert store.check().found == ()
                assert (len(store.session("a").messages()), store.session("a").title) == (count, title)
                assert (store.get_session("new") is not None) == (place == kept)
            sound(place)
        assert sorted(os.listdir(os.path.dirname(path))) == sorted(map(os.path.basename, (path, kept, backup)))

    def test_twice_in_a_second_keeps_both(self, backup, path):
        first, second = recollect.restore(backup, path), recollect.restore(backup, path)
        assert first != second
        assert os.path.exists(first)
        assert os.path.exists(second)

    def test_to_where_nothing_is(self, backup, tmp_path, sound):
        place = str(tmp_path / "folder" / "fresh.db")
        assert recollect.restore(backup, place) is None
        assert os.listdir(tmp_path / "folder") == ["fresh.db"]
        assert os.stat(place).st_mode & 0o777 == 0o600
        with recollect.open(place) as store:
            assert len(store.session("a").messages()) == 3
            assert store._engine._file.writer.execute("PRAGMA journal_mode").get == "wal"
        sound(place)

    def test_to_the_default_place(self, backup, path, monkeypatch):
        monkeypatch.setenv("RECOLLECT_DB", path)
        assert recollect.restore(backup) is not None

    def test_under_stores_that_are_open(self, backup, path, sound):
        with recollect.open(path) as store:
            session = store.session("a")
            assert len(session.messages()) == 5
            recollect.restore(backup, path)
            assert len(session.messages()) == 3
            assert session.refresh().title == "Before"
            assert session.append(said("3")).ids == ["1.4"]
            in_order(session.messages())
            with pytest.raises(recollect.SessionNotFound):
                store.session("new", create=False)
            assert store.check().found == ()
        sound(path)

    def test_under_processes_that_write(self, backup, path, spawn, sound):
        """Each of their writes is in the copy that is kept, or in the store as it is from then on; none is torn."""
        writers = [spawn("append", path, f"s{number}", 0) for number in range(3)]
        for writer in writers:
            for _ in range(10):
                writer.stdout.readline()
        kept = recollect.restore(backup, path)
        complaints = [writer.communicate(timeout=60)[1].decode() for writer in writers]
        assert all("SessionNotFound" in complaint for complaint in complaints), complaints  # theirs are in the copy
        sound(path)
        with recollect.open(kept) as store:
            assert store.check().problems == ()
            for number in range(3):
                messages = store.get_session(f"s{number}").messages()
                in_order(messages)
                assert len(messages) >= 10
        with recollect.open(path) as store:
            assert store.check().problems == ()
            assert [session.id for session in store.list_sessions()] == ["a"]
            in_order(store.session("a").messages())

    def test_a_lock_that_is_held_too_long_changes_nothing(self, backup, path, spawn):
        child = spawn("lock", path)
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(StoreLocked):
            recollect.restore(backup, path, timeout=0.3)
        child.communicate(b"\n")
        with recollect.open(path) as store:
            assert len(store.session("a").messages()) == 5
        assert glob.glob(path + "*.kept") == glob.glob(path + "*.part") == []

    def test_what_is_no_backup_is_refused_and_the_store_is_left(self, backup, path, tmp_path):
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
        told(newer, "PRAGMA user_version = 999")
        for source, error in (
            (foreign, NotADatabase), (text, NotADatabase), (empty, NotADatabase), (newer, SchemaTooNew),
            (tmp_path / "none.db", StoreUnavailable), (path, recollect.InvalidValue),
        ):  # fmt: skip
            for done in (recollect.restore, recollect.check_backup):
                with pytest.raises(error):
                    done(source, path)
        with pytest.raises(recollect.InvalidValue):
            recollect.restore(backup, ":memory:")
        with recollect.open(path) as store:
            assert len(store.session("a").messages()) == 5
        assert glob.glob(path + "*.kept") == glob.glob(path + "*.part*") == []

    def test_a_damaged_backup_is_refused(self, backup, path):
        with open(backup, "r+b") as file:
            body = file.read()
            file.seek(body.index(b"Earlier"))
            file.write(b"Eagerly")
        for done in (recollect.restore, recollect.check_backup):
            with pytest.raises(Corrupted):
                done(backup, path)
        with recollect.open(path) as store:
            assert store.session("a").title == "After"
        assert recollect.check_backup(backup, path, verify=False).messages == 3
        assert recollect.restore(backup, path, verify=False) is not None
        with recollect.open(path) as store:
            assert store.session("a").task == "Eagerly"

    def test_a_large_copy_that_another_program_made(self, path, tmp_path):
        copy, place = str(tmp_path / "copy.db"), str(tmp_path / "back.db")
        with recollect.open(path) as store:
            store.session("a").append([said("x" * 10_000 + str(number)) for number in range(600)])
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("VACUUM INTO ?", (copy,))
        with pytest.raises(Corrupted):
            recollect.restore(copy, place)
        assert not os.path.exists(place)
        recollect.restore(copy, place, verify=False)
        with recollect.open(place) as store:
            assert len(store.session("a").messages()) == 600
            assert store.check().found == ()

    @pytest.mark.parametrize("harm", ["text", "pages", "schema"])
    def test_over_a_store_that_is_damaged(self, backup, path, harm):
        if harm == "text":
            with open(path, "wb") as file:
                file.write(b"not a database " * 1_000)
        else:
            with open(path, "r+b") as file:
                file.seek(4096 * 3 if harm == "pages" else 105)
                file.write(b"\xff" * (4096 * 3 if harm == "pages" else 2_000))
        before = pages(path)
        kept = recollect.restore(backup, path)
        assert pages(kept)[1:] == before[1:]
        with recollect.open(path) as store:
            assert store.check().found == ()
            assert len(store.session("a").messages()) == 3

    def test_over_the_database_of_another_program_is_refused(self, backup, tmp_path):
        foreign = str(tmp_path / "foreign.db")
        connection = connect_new(foreign)
        connection.execute("CREATE TABLE theirs (a)")
        connection.close()
        for done in (recollect.restore, recollect.check_backup):
            with pytest.raises(NotADatabase):
                done(backup, foreign)
        assert os.path.exists(foreign)
        assert glob.glob(foreign + "*") == [foreign]

    def test_what_it_holds_is_said_and_nothing_is_changed(self, backup, path):
        with recollect.open(path) as store:
            before = set(os.listdir(os.path.dirname(path)))
            os.chmod(backup, 0o400)
            found = recollect.check_backup(backup, path)
            assert set(os.listdir(os.path.dirname(path))) == before
            assert len(store.session("a").messages()) == 5
        assert (found.path, found.bytes) == (backup, os.path.getsize(backup))
        assert (found.schema, found.sessions, found.messages) == (sql.migrations("sqlite")[-1][0], 1, 3)
        assert found.active_at is not None

    def test_an_older_backup_is_brought_up_to_date(self, backup, path, monkeypatch):
        known = sql.migrations("sqlite")
        version = known[-1][0]
        monkeypatch.setattr(sql, "migrations", lambda engine: [*known, (version + 1, "more", "CREATE TABLE more (a)")])
        assert recollect.check_backup(backup, path).schema == version
        recollect.restore(backup, path)
        with recollect.open(path) as store:
            assert [session.title for session in store.list_sessions(order="title")] == ["Before"]
            assert store._engine._file.writer.execute("PRAGMA user_version").get == version + 1
        assert glob.glob(path + "*.backup*") == glob.glob(path + "*.part*") == []


def pages(path: str) -> list[bytes]:
    """Read the pages of a file that nobody has open, without their checksums."""
    with open(path, "rb") as file:
        body = file.read()
    return [body[start : start + 4088] for start in range(0, len(body), 4096)]


def connect_new(path: str):
    open(path, "w").close()
    return connect(path, 5.0)


# What is done to a file, and the kind and words of what a check must find.
DAMAGE = {
    "a count of messages": ("UPDATE sessions SET message_count = 99 WHERE id = 'a'", "counter", "message_count 99 instead of 8", True),
    "a count of tokens": ("UPDATE sessions SET token_count = 1, output_tokens = 5 WHERE id = 'f'", "counter", "output_tokens 5 instead of 0", True),
    "a count in the trash": ("UPDATE sessions SET message_count = 0 WHERE id = 'trash'", "counter", "'trash'", True),
    "the counter of a head": ("UPDATE sessions SET last = last - 1 WHERE id = 'a'", "counter", "counts positions up to", True),
    "the counter of a branch": ("UPDATE branches SET last = 2 WHERE key = 1", "counter", "there is a message at", True),
    "a message that is gone": ("DELETE FROM messages WHERE key = (1 << 32) | 2", "message", "lacks 1 of its messages", False),
    "a message of no branch": ("INSERT INTO messages (key, role, created_at, parts) VALUES ((77 << 32) | 1, 'user', 1, '[]')", "message", "branch 77", False),
    "a message that can not be read": ("UPDATE messages SET parts = '[{\"kind\":\"text\"}]' WHERE key = (1 << 32) | 2", "message", "1.2", False),
    "a message that is no JSON": ("UPDATE messages SET parts = '[{' WHERE key = (1 << 32) | 2", "message", "1.2", False),
    "the count of open turns": ("UPDATE sessions SET open_turns = 3 WHERE id = 'a'", "counter", "3 open turns; there are 0", True),
    "a turn that holds a branch and has ended": ("UPDATE branches SET open_turn = 7 WHERE key = 1", "turn", "which is completed", True),
    "a turn that is gone": ("UPDATE branches SET open_turn = 1 WHERE key = 1", "turn", "which is gone", True),
    "a turn that no branch knows": ("UPDATE turns SET status = 'open', holder = 'x', lease_until = 1", "turn", "does not know it", True),
    "the number of a branch": ("UPDATE sessions SET branch = 9 WHERE id = 'a'", "branch", "names its branch 9", True),
    "a head that is another's": ("UPDATE sessions SET head = 1 WHERE id = 'f'", "branch", "not its own", False),
    "a call without its message": ("UPDATE tool_calls SET message = message + 60", "tool call", "asks", False),
    "a call at another part": ("UPDATE tool_calls SET part = 5", "tool call", "'1'", False),
    "a result that is gone": ("UPDATE tool_calls SET result = result + 60", "tool call", "answers", False),
    "a result at another part": ("UPDATE tool_calls SET result_part = 3", "tool call", "'1'", False),
    "a status without a result": ("UPDATE tool_calls SET status = 'pending'", "tool call", "wrong status", False),
    "a key for nothing": ("UPDATE appends SET position = 500", "idempotency key", "'k'", False),
    "a key on no branch": ("UPDATE appends SET branch = 500", "idempotency key", "'k'", False),
    "the references to a payload": ("UPDATE blobs SET refs = 5", "payload", "counts 5 references; there are 2", True),
    "a payload that is gone": ("DELETE FROM blobs", "payload", "is gone, and 2 messages", False),
    "a payload that is another": ("UPDATE blobs SET data = zeroblob(size)", "payload", "not what was stored", False),
    "the size of a payload": ("UPDATE blobs SET size = 5", "payload", "another size", False),
    "a title": ("UPDATE titles SET folded = 'other' WHERE session = 1", "title", "another title", True),
    "a title that is gone": ("DELETE FROM titles WHERE session = 1", "title", "another title", True),
    "numbers of branches": ("UPDATE trees SET branches = 1", "counter", "twice", False),
    "a reference": ("UPDATE branches SET tree = 55 WHERE key = 1", "reference", "trees", False),
    "an index": ("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'pinned_at IS NOT NULL AND', '') WHERE name = 'sessions_pinned'", "structure", "sessions_pinned", False),
}  # fmt: skip


class TestCheck:
    @pytest.fixture
    def filled(self, path):
        """A store with some of everything, closed."""
        with recollect.open(path) as store:
            session = store.session("a", title="Title")
            session.append([said(number) for number in range(4)], key="k")
            session.append(
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]}
            )
            session.record_tool_result("1", "r")
            session.save_turn("q", {"role": "assistant", "content": "a"})
            fork = session.fork(2, id="f", title="Fork")
            for _ in range(2):
                fork.append(recollect.Draft(role="user", parts=(recollect.AttachmentPart(data="QUJD" * 3_000),)))
            session.rewind(8)
            session.rewind(4)
            session.append([said(number) for number in range(4)])
            store.session("trash").append(said("x"))
            store.delete_session("trash")
            assert store.check().found == ()
        return path

    @pytest.mark.parametrize("name", DAMAGE)
    def test_damage_is_found_and_what_can_be_derived_is_put_right(self, filled, name):
        statement, kind, words, derivable = DAMAGE[name]
        told(filled, *statement.split("; "))
        with recollect.open(filled) as store:
            findings = store.check()
            found = [finding for finding in findings.problems if finding.kind == kind and words in finding.message]
            assert found, findings
            assert not findings.sound
            assert all(finding.advice for finding in findings.found)
            repaired = store.check(repair=True)
            assert any(words in finding.message for finding in repaired.repaired) == derivable, repaired
            assert store.check().sound == derivable

    def test_a_title_from_before_is_only_a_notice(self, filled):
        with recollect.open(filled) as store:
            store.session("a").update(title="Été")
        told(filled, "UPDATE titles SET folded = lower('Été') WHERE session = 1")
        with recollect.open(filled) as store:
            assert store.check().sound
            assert store.check(repair=True).repaired
            assert store.check().found == ()

    def test_a_flipped_bit_is_found_by_its_checksum(self, filled):
        with open(filled, "r+b") as file:
            body = file.read()
            file.seek(body.index(b"Title"))
            file.write(b"Tidal")
        with recollect.open(filled) as store:
            (finding,) = [finding for finding in store.check().problems if finding.kind == "checksum"]
            assert "checksum" in finding.message
            assert not [finding for finding in store.check(deep=False).problems if finding.kind == "checksum"]

    def test_a_page_of_rubbish_is_told_in_words(self, filled):
        connection = connect(filled, 5.0)
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'turns'").get
        connection.close()
        with open(filled, "r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
        with recollect.open(filled) as store:
            try:
                findings = store.check()
            except Corrupted:
                findings = None
            assert findings is None or not findings.sound

    def test_under_asyncio(self, filled):
        told(filled, "UPDATE sessions SET message_count = 99 WHERE id = 'a'")

        async def story():
            async with recollect.open_async(filled) as store:
                seen = []
                assert not (await store.check(progress=lambda *told: seen.append(told))).sound
                assert seen == [(3, 3)]
                assert (await store.check(repair=True)).sound
                assert (await store.check()).found == ()
                assert (await store.session("a")).message_count == 8

        asyncio.run(story())

    def test_while_others_write(self, path, spawn):
        """What is written between two steps of a check is never taken for damage."""
        with recollect.open(path) as store:
            writers = [spawn("turns", path, f"s{number}", 0) for number in range(3)]
            for writer in writers:
                for _ in range(9):
                    writer.stdout.readline()
            for _ in range(10):
                assert store.check().problems == ()
            for writer in writers:
                writer.kill()
                writer.communicate()
            assert store.check().problems == ()


def test_optimize_under_processes_that_write(path, spawn, sound):
    with recollect.open(path) as store:
        for number in range(10):
            store.session(f"old{number}").append(said("x" * 50_000))
        writers = [spawn("append", path, f"s{number}", 0) for number in range(3)]
        for writer in writers:
            writer.stdout.readline()
        for number in range(10):
            store.erase_session(f"old{number}")
        assert store.optimize().after > 0
        for writer in writers:
            for _ in range(10):
                writer.stdout.readline()
            writer.kill()
            writer.communicate()
        assert store.check().problems == ()
        for number in range(3):
            in_order(store.session(f"s{number}").messages())
    sound(path)


def test_an_engine_without_a_file_says_so(path):
    class Elsewhere:
        def run(self, op):
            return inner._engine.run(op)

    with recollect.open(path) as inner:
        inner.session("a").append(said("x"))
        store = recollect.Store(Elsewhere())
        for act in (store.space, store.optimize, lambda: store.backup("x.db")):
            with pytest.raises(recollect.NotSupported):
                act()
        findings = store.check()
        assert findings.sound
        assert "structure" not in findings.checked
