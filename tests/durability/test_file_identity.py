"""Database files that are removed, replaced or truncated while a store has them open, and files that are not databases."""

from __future__ import annotations

import asyncio
import glob
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import threading
import time

import apsw
import pytest

import recollect
from recollect.engine.sqlite import database_file, file_identity
from recollect.errors import Corrupted, NotADatabase, RecollectError, SchemaTooNew, StoreUnavailable


def user_message(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def texts(session) -> list[str]:
    return [message.text for message in session.messages()]


def remove(path: str) -> None:
    for name in (path, path + "-wal", path + "-shm"):
        if os.path.exists(name):
            os.unlink(name)


@pytest.fixture(autouse=True)
def _check_identity_always(request, monkeypatch):
    """Check the file identity after each operation, so that a test need not wait for the interval."""
    if "default_interval" not in request.node.name:
        monkeypatch.setattr(database_file, "IDENTITY_CHECK_INTERVAL", 0.0)


@pytest.fixture
def other_path(tmp_path):
    """Return the path of another closed store with a session of the same id."""
    path = str(tmp_path / "other.db")
    with recollect.open(path) as store:
        store.session("cli:a").append([user_message("other 0"), user_message("other 1")])
    return path


def all_texts(store) -> list[list[str]]:
    return [texts(session) for session in store.list_sessions()]


class TestRemoved:
    def test_writes_to_a_removed_file_raise(self, path):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(user_message(0))
            remove(path)
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as exc_info:
                    session.append(user_message(1))
                assert path in str(exc_info.value)
            with pytest.raises(StoreUnavailable):
                session.messages()
        assert not os.path.exists(path)

    @pytest.mark.parametrize("action", ["append", "messages"])
    def test_a_removed_file_is_noticed_within_the_default_interval(self, path, action):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(user_message(0))
            session.messages()
            remove(path)
            time.sleep(2 * database_file.IDENTITY_CHECK_INTERVAL)
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                session.append(user_message(1)) if action == "append" else session.messages()

    def test_reads_of_a_removed_file_raise(self, path):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(user_message(0))
            assert texts(session) == ["0"]
            remove(path)
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                session.messages()

    def test_every_async_caller_gets_its_own_error(self, path):
        async def main() -> None:
            store = await recollect.open_async(path)
            sessions = [await store.session(f"cli:{number}") for number in range(8)]
            remove(path)
            for _ in range(2):
                appends = (session.append(user_message(1)) for session in sessions)
                results = await asyncio.gather(*appends, return_exceptions=True)
                assert {type(result) for result in results} == {StoreUnavailable}
                assert len({id(result) for result in results}) == len(sessions)
            await store.close()

        asyncio.run(main())

    def test_a_store_continues_when_the_file_is_put_back(self, path, tmp_path, check_database):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append([user_message(0), user_message(1)])
            store.maintenance.backup(tmp_path / "copy.db")
            remove(path)
            with pytest.raises(StoreUnavailable):
                session.append(user_message("lost"))
            shutil.copy(tmp_path / "copy.db", path)
            session.append(user_message(2))
            assert texts(session) == ["0", "1", "2"]
        check_database(path)

    def test_a_removed_wal_is_checkpointed_while_it_is_open(self, path, check_database):
        """The acknowledged messages are only in the WAL, which is still open: it is checkpointed into the file."""
        store = recollect.open(path)
        session = store.session("cli:a")
        for number in range(20):
            session.append(user_message(number))
        os.unlink(path + "-wal")
        with pytest.raises(StoreUnavailable):
            session.append(user_message("unacknowledged"))
        session.append(user_message("after"))
        stored_texts = texts(session)
        assert [text for text in stored_texts if text != "unacknowledged"] == [*map(str, range(20)), "after"]
        store.close()
        check_database(path)
        with recollect.open(path) as store:
            assert texts(store.session("cli:a")) == stored_texts

    @pytest.mark.parametrize("next_use", ["write", "read", "close"])
    def test_the_wal_of_a_moved_file_is_checkpointed_into_it(self, path, tmp_path, check_database, next_use):
        """The acknowledged messages are only in the WAL, which keeps the old name."""
        moved_path = str(tmp_path / "moved.db")
        store = recollect.open(path)
        session = store.session("cli:a")
        for number in range(20):
            session.append(user_message(number))
        os.rename(path, moved_path)
        for _ in range(2 if next_use != "close" else 0):
            with pytest.raises(StoreUnavailable):
                session.append(user_message("no")) if next_use == "write" else session.messages()
        store.close()
        assert not os.path.exists(path + "-wal")
        with recollect.open(path) as store:
            assert all_texts(store) == []
        with recollect.open(moved_path) as store:
            assert texts(store.session("cli:a"))[:20] == [str(number) for number in range(20)]
        check_database(moved_path)

    def test_writes_to_a_removed_folder_raise(self, tmp_path):
        folder = tmp_path / "folder"
        store = recollect.open(folder / "a.db")
        session = store.session("cli:a")
        shutil.rmtree(folder)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                session.append(user_message(1))
        store.close()

    def test_every_thread_gets_the_error(self, path):
        with recollect.open(path) as store:
            errors: list[BaseException] = []
            acknowledged_names: list[str] = []

            def work(name: str) -> None:
                try:
                    session = store.session(name)
                    for number in range(100_000):
                        session.append(user_message(number))
                        session.messages(last=2)
                        acknowledged_names.append(name)
                except RecollectError as error:
                    errors.append(error)

            threads = [threading.Thread(target=work, args=(f"cli:{number}",)) for number in range(6)]
            for thread in threads:
                thread.start()
            while not acknowledged_names:
                threads[0].join(0.01)
            remove(path)
            for thread in threads:
                thread.join(60)
            assert {type(error) for error in errors} == {StoreUnavailable}
            assert len(errors) == 6


class TestReplaced:
    def test_a_store_continues_with_the_file_that_replaced_its_own(self, path, other_path, check_database):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(user_message(0))
            remove(path)
            os.rename(other_path, path)
            with pytest.raises(StoreUnavailable, match="replaced"):
                session.append(user_message("nowhere"))
            assert texts(session) == ["other 0", "other 1"]
            session.append(user_message("other 2"))
        check_database(path)
        with recollect.open(path) as store:
            assert texts(store.session("cli:a")) == ["other 0", "other 1", "other 2"]

    def test_a_file_that_is_not_a_database_is_refused_and_unchanged(self, path, tmp_path):
        (tmp_path / "text").write_text("just text " * 1_000)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            remove(path)
            os.rename(tmp_path / "text", path)
            with pytest.raises(StoreUnavailable):
                session.append(user_message(1))
            with pytest.raises(NotADatabase):
                session.append(user_message(1))
        assert (tmp_path / "recollect.db").read_text() == "just text " * 1_000

    @pytest.mark.parametrize("uses_store", [True, False])
    def test_the_wal_of_a_replaced_file_is_not_applied_to_the_new_file(
        self, path, other_path, check_database, uses_store
    ):
        """A file that is opened with the WAL of another one would be overwritten by it."""
        with recollect.open(path) as store:
            session = store.session("cli:b")
            session.append([user_message("x" * 5_000)] * 20)
            store.maintenance.optimize()
            session.append(user_message("in the WAL"))
            os.rename(path, path + ".moved")
            os.rename(other_path, path)
            if uses_store:
                with pytest.raises(StoreUnavailable, match="replaced"):
                    session.append(user_message("nowhere"))
                assert all_texts(store) == [["other 0", "other 1"]]
        check_database(path)
        with recollect.open(path) as store:
            assert all_texts(store) == [["other 0", "other 1"]]
        with recollect.open(path + ".moved") as store:
            assert texts(store.session("cli:b"))[20:] == ["in the WAL"]

    def test_a_wal_that_cannot_be_checkpointed_is_renamed(self, path, other_path, check_database):
        with recollect.open(path) as store:
            session = store.session("cli:b")
            session.append(user_message("in the WAL"))
            reader = apsw.Connection(path)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sessions").fetchall()
            session.append(user_message("after the reader began"))
            os.rename(other_path, path)
            with pytest.raises(StoreUnavailable, match="replaced"):
                session.append(user_message("nowhere"))
            assert all_texts(store) == [["other 0", "other 1"]]
            reader.close()
        check_database(path)
        assert [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".kept")]

    def test_a_removed_shm_file_stops_writes_after_another_process_wrote(self, path, check_database):
        """Each process has its own -shm file then, and no lock keeps them from overwriting each other."""
        code = (
            "import sys, recollect\n"
            "with recollect.open(sys.argv[1]) as store:\n"
            "    for number in range(20):\n"
            "        store.session('cli:b').append({'role': 'user', 'content': str(number)})\n"
        )
        with recollect.open(path) as store, recollect.open(path) as second_store:
            session = store.session("cli:a")
            session.append(user_message("before"))
            os.unlink(path + "-shm")
            subprocess.run([sys.executable, "-c", code, path], check=True)
            with recollect.open(path) as third:
                for action in (
                    session.messages,
                    lambda: session.append(user_message("no")),
                    lambda: second_store.session("cli:a"),
                ):
                    with pytest.raises(StoreUnavailable, match="Close every store"):
                        action()
                with pytest.raises(StoreUnavailable, match="Close every store"):
                    third.session("cli:a").append(user_message("no"))
        check_database(path)
        with recollect.open(path) as store:
            store.session("cli:a").append(user_message("after"))
            assert texts(store.session("cli:a")) == ["before", "after"]
            assert texts(store.session("cli:b")) == [str(number) for number in range(20)]

    @pytest.mark.parametrize("names", [["-shm"], ["-shm", "-wal"]])
    def test_writes_after_the_removal_of_shm_or_wal_raise(self, path, check_database, names):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(user_message("before"))
            for name in names:
                os.unlink(path + name)
            with pytest.raises(StoreUnavailable):
                session.append(user_message("no"))
        check_database(path)
        with recollect.open(path) as store:
            assert texts(store.session("cli:a")) == ["before"]

    def test_a_file_behind_a_symbolic_link_is_checked(self, tmp_path, other_path):
        real, link = str(tmp_path / "real.db"), str(tmp_path / "link.db")
        os.symlink(real, link)
        with recollect.open(link) as store:
            session = store.session("cli:a")
            session.append(user_message(0))
            assert sorted(name for name in os.listdir(tmp_path) if "link" in name) == ["link.db"]
            remove(real)
            with pytest.raises(StoreUnavailable):
                session.append(user_message(1))

    def test_a_forked_child_notices_the_removed_file(self, path):
        code = (
            "import os, sys, recollect\n"
            "path = sys.argv[1]\n"
            "store = recollect.open(path); session = store.session('cli:a')\n"
            "for name in ('', '-wal', '-shm'):\n"
            "    if os.path.exists(path + name): os.unlink(path + name)\n"
            "pid = os.fork()\n"
            "try: session.append({'role': 'user', 'content': 'x'})\n"
            "except recollect.StoreUnavailable: code = 0\n"
            "else: code = 1\n"
            "if pid == 0: os._exit(code)\n"
            "sys.exit(code or os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        )
        process = subprocess.run([sys.executable, "-W", "ignore", "-c", code, path], capture_output=True, check=False)
        assert (process.returncode, process.stderr) == (0, b"")


class TestTruncated:
    @pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.6, 0.9, 0.99])
    def test_a_truncated_file_is_reported_as_damage(self, filled_path, share):
        os.truncate(filled_path, int(os.path.getsize(filled_path) * share))
        problems = []
        try:
            with recollect.open(filled_path) as store:
                problems += [finding.message for finding in store.maintenance.check().problems]
                for session in store.list_sessions():
                    session.messages()
        except (Corrupted, NotADatabase) as error:
            problems.append(str(error))
            assert filled_path in str(error)  # noqa: PT017  both outcomes are correct
        assert problems

    def test_a_file_truncated_while_open_is_reported(self, filled_path):
        with recollect.open(filled_path) as store:
            os.truncate(filled_path, os.path.getsize(filled_path) // 3 // 4096 * 4096)
            with pytest.raises(RecollectError):
                all_texts(store)
            try:
                assert store.maintenance.check().problems
            except Corrupted as error:
                assert filled_path in str(error)  # noqa: PT017  both outcomes are correct

    def test_a_file_emptied_while_open_is_reported(self, filled_path):
        with recollect.open(filled_path) as store:
            store.maintenance.optimize()
            os.truncate(filled_path, 0)
            for _ in range(2):
                for action in (all_texts, lambda store: store.search("x"), lambda store: store.session("cli:a")):
                    with pytest.raises((Corrupted, NotADatabase)):
                        action(store)

    def test_a_foreign_file_is_refused_and_unchanged(self, path):
        content = b"SQLite format 3\0" + b"\xff" * 8_000
        with open(path, "wb") as file:
            file.write(content)
        with pytest.raises((NotADatabase, Corrupted)):
            recollect.open(path)
        with open(path, "rb") as file:
            assert file.read() == content


class TestLeftBehind:
    def test_the_wal_of_a_killed_process_is_recovered(self, path, spawn, check_database):
        """All messages are in the WAL; the next process that opens the file uses it."""
        child = spawn("append", path, "cli:a", 0)
        acknowledged_texts = [child.stdout.readline().decode().strip() for _ in range(30)]
        child.kill()
        child.communicate()
        assert os.path.getsize(path + "-wal") > 0
        os.unlink(path + "-shm")  # SQLite builds it again from the WAL
        with recollect.open(path) as store:
            assert texts(store.session("cli:a"))[:30] == acknowledged_texts
        assert not os.path.exists(path + "-wal")
        check_database(path)

    @pytest.mark.parametrize("loss", ["moved", "emptied"])
    def test_a_wal_without_its_file_is_renamed_and_kept(self, path, spawn, check_database, loss):
        """SQLite deletes such a WAL when it creates the file; together with its own file it has every message."""
        child = spawn("append", path, "cli:a", 0)
        acknowledged_texts = [child.stdout.readline().decode().strip() for _ in range(30)]
        child.kill()
        child.communicate()
        copy_path = path + ".elsewhere"
        shutil.copy(path, copy_path)
        os.unlink(path) if loss == "moved" else os.truncate(path, 0)
        with recollect.open(path) as store:
            assert all_texts(store) == []
        (kept_wal,) = glob.glob(path + "-wal.*.kept")
        assert stat.S_IMODE(os.stat(kept_wal).st_mode) == 0o600
        os.rename(kept_wal, copy_path + "-wal")
        with recollect.open(copy_path) as store:
            assert texts(store.session("cli:a"))[:30] == acknowledged_texts
        check_database(copy_path)

    @pytest.mark.parametrize("content", [b"", b"garbage" * 1_000, bytes(40_000)])
    def test_a_file_that_is_not_a_wal_is_ignored(self, path, check_database, content):
        with recollect.open(path) as store:
            store.session("cli:a").append(user_message(0))
        with open(path + "-wal", "wb") as file:
            file.write(content)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(user_message(1))
            assert texts(session) == ["0", "1"]
        check_database(path)

    def test_a_database_of_a_newer_version_is_refused_and_unchanged(self, path):
        import apsw

        recollect.open(path).close()
        with apsw.Connection(path) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()
        with open(path, "rb") as file:
            before = file.read()
        with pytest.raises(SchemaTooNew, match="999"):
            recollect.open(path)
        with open(path, "rb") as file:
            assert file.read() == before
        assert not os.path.exists(path + "-reserve")


def test_an_unreadable_row_does_not_end_the_writer_thread(path):
    """Operations of a batch share a transaction; the error of one must reach only its own caller."""

    async def main() -> None:
        async with recollect.open_async(path) as store:
            bad, good = await store.session("cli:bad", metadata={"a": 1}), await store.session("cli:good")
            store._engine._file.writer.execute("UPDATE sessions SET metadata = '{\"a\": ' WHERE id = 'cli:bad'")  # pyright: ignore[reportAttributeAccessIssue]
            for _ in range(3):
                appends = [bad.update(title="x"), *(good.append(user_message(number)) for number in range(4))]
                first, *rest = await asyncio.wait_for(asyncio.gather(*appends, return_exceptions=True), 60)
                assert isinstance(first, Corrupted)
                assert not [result for result in rest if isinstance(result, BaseException)]
            assert len(await good.messages()) == 12

    asyncio.run(main())


APPEND_IN_ANOTHER_PROCESS = (
    "import recollect, sys; recollect.open(sys.argv[1]).session('cli:new').append({'role': 'user', 'content': 'n'})"
)


def wait_for_change(changes, name: str) -> None:
    """Wait for a change of a session; the watch has a timeout."""
    assert name in (change.session for change in changes)


class TestWatched:
    """A watch follows the file that has the name, no matter which process writes to it."""

    @pytest.mark.parametrize("wal", ["with its WAL", "without"])
    def test_a_watch_follows_a_replaced_file(self, path, other_path, wal, check_database):
        with recollect.open(path) as store:
            store.session("cli:gone").append(user_message(0))
            with store.watch(timeout=60) as changes:
                if wal == "without":
                    remove(path)
                os.replace(other_path, path)
                wait_for_change(changes, "cli:gone")
                subprocess.run([sys.executable, "-c", APPEND_IN_ANOTHER_PROCESS, path], check=True, timeout=60)
                wait_for_change(changes, "cli:new")
            assert sorted(all_texts(store)) == [["n"], ["other 0", "other 1"]]
        check_database(path)

    def test_a_watch_follows_a_restored_file(self, path, other_path):
        with recollect.open(path) as store:
            store.session("cli:gone").append(user_message(0))
            with store.watch(timeout=60) as changes:
                remove(path)
                with open(path, "w", encoding="utf-8") as text:
                    text.write("not a database\n" * 100)
                assert changes._notifier.wait(0.1) is None  # ignored until it is a database
                recollect.restore(other_path, path)
                wait_for_change(changes, "cli:gone")
                subprocess.run([sys.executable, "-c", APPEND_IN_ANOTHER_PROCESS, path], check=True, timeout=60)
                wait_for_change(changes, "cli:new")

    def test_a_watch_raises_a_recollect_error_if_the_disk_fails(self, path, monkeypatch):
        def raise_disk_error(connection):
            raise apsw.IOError("disk I/O error")

        with recollect.open(path) as store, store.watch(timeout=60) as changes:
            monkeypatch.setattr("recollect.engine.sqlite.change_notifier._data_version", raise_disk_error)
            with pytest.raises(RecollectError):
                next(iter(changes))

    def test_an_async_watch_follows_a_replaced_file(self, path, other_path):
        async def main() -> None:
            async with recollect.open_async(path) as store:
                await store.session("cli:gone")
                async with store.watch(timeout=60) as changes:
                    os.replace(other_path, path)
                    assert [change.session async for change in _changes_until(changes, "cli:gone")]
                    await asyncio.to_thread(
                        subprocess.run, [sys.executable, "-c", APPEND_IN_ANOTHER_PROCESS, path], check=True, timeout=60
                    )
                    assert [change.session async for change in _changes_until(changes, "cli:new")]

        asyncio.run(main())


async def _changes_until(changes, name: str):
    async for change in changes:
        if change.session == name:
            yield change
            return


def test_wals_that_are_renamed_in_the_same_second_get_different_names(path):
    for number in range(3):
        for name in (f"{path}-wal", f"{path}-shm"):
            with open(name, "w", encoding="utf-8") as file:
                file.write(f"wal {number}" * 10)
        with open(path, "w", encoding="utf-8") as file:
            file.write("a file")
        identity = file_identity.identify_files(path)
        assert identity is not None
        file_identity.set_wal_aside(identity)
        assert not os.path.exists(f"{path}-wal")
    contents = [pathlib.Path(name).read_text(encoding="utf-8") for name in glob.glob(f"{path}-wal.*.kept")]
    assert sorted(contents) == [f"wal {number}" * 10 for number in range(3)]
