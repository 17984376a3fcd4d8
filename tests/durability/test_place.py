"""A file that is removed, replaced or cut short under a store that has it open, and what else may lie in its place."""

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
from recollect.engine.sqlite import file, place
from recollect.errors import Corrupted, NotADatabase, RecollectError, SchemaTooNew, StoreUnavailable


def said(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def texts(session) -> list[str]:
    return [message.text for message in session.messages()]


def remove(path: str) -> None:
    for name in (path, path + "-wal", path + "-shm"):
        if os.path.exists(name):
            os.unlink(name)


@pytest.fixture(autouse=True)
def _look_each_time(request, monkeypatch):
    """Look after each write, so that a test need not wait for the next look."""
    if "as_it_is" not in request.node.name:
        monkeypatch.setattr(file, "MOMENT", 0.0)


@pytest.fixture
def other(tmp_path):
    """Another store, closed: one file, with a session of the same name in it."""
    path = str(tmp_path / "other.db")
    with recollect.open(path) as store:
        store.session("cli:a").append([said("other 0"), said("other 1")])
    return path


def everything(store) -> list[list[str]]:
    return [texts(session) for session in store.list_sessions()]


class TestRemoved:
    def test_nothing_is_acknowledged_that_is_in_no_file(self, path):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(said(0))
            remove(path)
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as caught:
                    session.append(said(1))
                assert path in str(caught.value)
            with pytest.raises(StoreUnavailable):
                session.messages()
        assert not os.path.exists(path)

    @pytest.mark.parametrize("what", ["append", "messages"])
    def test_as_it_is_it_is_noticed_after_a_moment(self, path, what):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(said(0))
            session.messages()
            remove(path)
            time.sleep(2 * file.MOMENT)
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                session.append(said(1)) if what == "append" else session.messages()

    def test_a_reader_that_is_open_is_told_too(self, path):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(said(0))
            assert texts(session) == ["0"]
            remove(path)
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                session.messages()

    def test_under_asyncio_everyone_is_told(self, path):
        async def main() -> None:
            store = await recollect.open_async(path)
            sessions = [await store.session(f"cli:{number}") for number in range(8)]
            remove(path)
            for _ in range(2):
                some = (session.append(said(1)) for session in sessions)
                results = await asyncio.gather(*some, return_exceptions=True)
                assert {type(result) for result in results} == {StoreUnavailable}
                assert len({id(result) for result in results}) == len(sessions)
            await store.close()

        asyncio.run(main())

    def test_it_goes_on_when_the_file_is_put_back(self, path, tmp_path, sound):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append([said(0), said(1)])
            store.backup(tmp_path / "copy.db")
            remove(path)
            with pytest.raises(StoreUnavailable):
                session.append(said("lost"))
            shutil.copy(tmp_path / "copy.db", path)
            session.append(said(2))
            assert texts(session) == ["0", "1", "2"]
        sound(path)

    def test_a_log_that_is_removed_takes_nothing_with_it(self, path, sound):
        """What was acknowledged is only in the log, which is still open: it is folded into the file."""
        store = recollect.open(path)
        session = store.session("cli:a")
        for number in range(20):
            session.append(said(number))
        os.unlink(path + "-wal")
        with pytest.raises(StoreUnavailable):
            session.append(said("unacknowledged"))
        session.append(said("after"))
        found = texts(session)
        assert [text for text in found if text != "unacknowledged"] == [*map(str, range(20)), "after"]
        store.close()
        sound(path)
        with recollect.open(path) as store:
            assert texts(store.session("cli:a")) == found

    @pytest.mark.parametrize("goes_on", ["write", "read", "close"])
    def test_a_file_that_is_moved_takes_along_what_is_in_its_log(self, path, tmp_path, sound, goes_on):
        """What was acknowledged is only in the log, which stays behind under the old name."""
        moved = str(tmp_path / "moved.db")
        store = recollect.open(path)
        session = store.session("cli:a")
        for number in range(20):
            session.append(said(number))
        os.rename(path, moved)
        for _ in range(2 if goes_on != "close" else 0):
            with pytest.raises(StoreUnavailable):
                session.append(said("no")) if goes_on == "write" else session.messages()
        store.close()
        assert not os.path.exists(path + "-wal")
        with recollect.open(path) as store:
            assert everything(store) == []
        with recollect.open(moved) as store:
            assert texts(store.session("cli:a"))[:20] == [str(number) for number in range(20)]
        sound(moved)

    def test_a_folder_that_is_gone(self, tmp_path):
        folder = tmp_path / "folder"
        store = recollect.open(folder / "a.db")
        session = store.session("cli:a")
        shutil.rmtree(folder)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                session.append(said(1))
        store.close()

    def test_threads_at_work_are_all_told(self, path):
        with recollect.open(path) as store:
            ended: list[BaseException] = []
            acknowledged: list[str] = []

            def work(name: str) -> None:
                try:
                    session = store.session(name)
                    for number in range(100_000):
                        session.append(said(number))
                        session.messages(last=2)
                        acknowledged.append(name)
                except RecollectError as error:
                    ended.append(error)

            threads = [threading.Thread(target=work, args=(f"cli:{number}",)) for number in range(6)]
            for thread in threads:
                thread.start()
            while not acknowledged:
                threads[0].join(0.01)
            remove(path)
            for thread in threads:
                thread.join(60)
            assert {type(error) for error in ended} == {StoreUnavailable}
            assert len(ended) == 6


class TestReplaced:
    def test_what_is_written_goes_into_the_one_that_is_there(self, path, other, sound):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(said(0))
            remove(path)
            os.rename(other, path)
            with pytest.raises(StoreUnavailable, match="replaced"):
                session.append(said("nowhere"))
            assert texts(session) == ["other 0", "other 1"]
            session.append(said("other 2"))
        sound(path)
        with recollect.open(path) as store:
            assert texts(store.session("cli:a")) == ["other 0", "other 1", "other 2"]

    def test_by_something_that_is_no_store(self, path, tmp_path):
        (tmp_path / "text").write_text("just text " * 1_000)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            remove(path)
            os.rename(tmp_path / "text", path)
            with pytest.raises(StoreUnavailable):
                session.append(said(1))
            with pytest.raises(NotADatabase):
                session.append(said(1))
        assert (tmp_path / "recollect.db").read_text() == "just text " * 1_000

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_the_log_of_the_old_one_is_not_put_into_the_new_one(self, path, other, sound, goes_on):
        """Opened with a log that is not its own, a file is overwritten by it."""
        with recollect.open(path) as store:
            session = store.session("cli:b")
            session.append([said("x" * 5_000)] * 20)
            store.optimize()
            session.append(said("in the log"))
            os.rename(path, path + ".moved")
            os.rename(other, path)
            if goes_on:
                with pytest.raises(StoreUnavailable, match="replaced"):
                    session.append(said("nowhere"))
                assert everything(store) == [["other 0", "other 1"]]
        sound(path)
        with recollect.open(path) as store:
            assert everything(store) == [["other 0", "other 1"]]
        with recollect.open(path + ".moved") as store:
            assert texts(store.session("cli:b"))[20:] == ["in the log"]

    def test_a_log_that_can_not_be_folded_is_set_aside(self, path, other, sound):
        with recollect.open(path) as store:
            session = store.session("cli:b")
            session.append(said("in the log"))
            reader = apsw.Connection(path)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sessions").fetchall()
            session.append(said("after the reader began"))
            os.rename(other, path)
            with pytest.raises(StoreUnavailable, match="replaced"):
                session.append(said("nowhere"))
            assert everything(store) == [["other 0", "other 1"]]
            reader.close()
        sound(path)
        assert [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".kept")]

    def test_the_index_of_the_log_is_removed_and_another_process_writes(self, path, sound):
        """Each has an index of its own then, and nothing keeps the one from writing over what the other wrote."""
        code = (
            "import sys, recollect\n"
            "with recollect.open(sys.argv[1]) as store:\n"
            "    for number in range(20):\n"
            "        store.session('cli:b').append({'role': 'user', 'content': str(number)})\n"
        )
        with recollect.open(path) as store, recollect.open(path) as beside:
            session = store.session("cli:a")
            session.append(said("before"))
            os.unlink(path + "-shm")
            subprocess.run([sys.executable, "-c", code, path], check=True)
            with recollect.open(path) as third:
                for use in (session.messages, lambda: session.append(said("no")), lambda: beside.session("cli:a")):
                    with pytest.raises(StoreUnavailable, match="Close every store"):
                        use()
                with pytest.raises(StoreUnavailable, match="Close every store"):
                    third.session("cli:a").append(said("no"))
        sound(path)
        with recollect.open(path) as store:
            store.session("cli:a").append(said("after"))
            assert texts(store.session("cli:a")) == ["before", "after"]
            assert texts(store.session("cli:b")) == [str(number) for number in range(20)]

    @pytest.mark.parametrize("names", [["-shm"], ["-shm", "-wal"]])
    def test_what_is_beside_the_file_is_removed(self, path, sound, names):
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(said("before"))
            for name in names:
                os.unlink(path + name)
            with pytest.raises(StoreUnavailable):
                session.append(said("no"))
        sound(path)
        with recollect.open(path) as store:
            assert texts(store.session("cli:a")) == ["before"]

    def test_a_store_behind_a_link(self, tmp_path, other):
        real, link = str(tmp_path / "real.db"), str(tmp_path / "link.db")
        os.symlink(real, link)
        with recollect.open(link) as store:
            session = store.session("cli:a")
            session.append(said(0))
            assert sorted(name for name in os.listdir(tmp_path) if "link" in name) == ["link.db"]
            remove(real)
            with pytest.raises(StoreUnavailable):
                session.append(said(1))

    def test_a_child_after_a_fork(self, path):
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
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, path], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


class TestCutShort:
    @pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.6, 0.9, 0.99])
    def test_a_file_that_was_cut_short_is_found_and_raises_no_strangers_error(self, filled, share):
        os.truncate(filled, int(os.path.getsize(filled) * share))
        met = []
        try:
            with recollect.open(filled) as store:
                met += [finding.message for finding in store.check().problems]
                for session in store.list_sessions():
                    session.messages()
        except (Corrupted, NotADatabase) as error:
            met.append(str(error))
            assert filled in str(error)  # noqa: PT017  both ends are fine
        assert met

    def test_cut_short_while_it_is_open(self, filled):
        with recollect.open(filled) as store:
            os.truncate(filled, os.path.getsize(filled) // 3 // 4096 * 4096)
            with pytest.raises(RecollectError):
                everything(store)
            try:
                assert store.check().problems
            except Corrupted as error:
                assert filled in str(error)  # noqa: PT017  both ends are fine

    def test_emptied_while_it_is_open(self, filled):
        with recollect.open(filled) as store:
            store.optimize()
            os.truncate(filled, 0)
            for _ in range(2):
                for use in (everything, lambda store: store.search("x"), lambda store: store.session("cli:a")):
                    with pytest.raises((Corrupted, NotADatabase)):
                        use(store)

    def test_nothing_is_written_into_a_file_that_is_none_of_ours(self, path):
        content = b"SQLite format 3\0" + b"\xff" * 8_000
        with open(path, "wb") as opened:
            opened.write(content)
        with pytest.raises((NotADatabase, Corrupted)):
            recollect.open(path)
        with open(path, "rb") as opened:
            assert opened.read() == content


class TestLeftBehind:
    def test_the_log_of_a_store_that_was_killed(self, path, spawn, sound):
        """Nothing is in the file itself yet: the log has it all, and is taken over by whoever opens the file next."""
        child = spawn("append", path, "cli:a", 0)
        acknowledged = [child.stdout.readline().decode().strip() for _ in range(30)]
        child.kill()
        child.communicate()
        assert os.path.getsize(path + "-wal") > 0
        os.unlink(path + "-shm")  # the index of the log is made anew from it
        with recollect.open(path) as store:
            assert texts(store.session("cli:a"))[:30] == acknowledged
        assert not os.path.exists(path + "-wal")
        sound(path)

    @pytest.mark.parametrize("lost", ["moved", "emptied"])
    def test_a_log_whose_file_is_gone_is_kept(self, path, spawn, sound, lost):
        """SQLite removes such a log when it makes the file anew; with the file it belongs to it still has everything."""
        child = spawn("append", path, "cli:a", 0)
        acknowledged = [child.stdout.readline().decode().strip() for _ in range(30)]
        child.kill()
        child.communicate()
        elsewhere = path + ".elsewhere"
        shutil.copy(path, elsewhere)
        os.unlink(path) if lost == "moved" else os.truncate(path, 0)
        with recollect.open(path) as store:
            assert everything(store) == []
        (kept,) = glob.glob(path + "-wal.*.kept")
        assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600
        os.rename(kept, elsewhere + "-wal")
        with recollect.open(elsewhere) as store:
            assert texts(store.session("cli:a"))[:30] == acknowledged
        sound(elsewhere)

    @pytest.mark.parametrize("content", [b"", b"rubbish" * 1_000, bytes(40_000)])
    def test_a_log_that_is_none(self, path, sound, content):
        with recollect.open(path) as store:
            store.session("cli:a").append(said(0))
        with open(path + "-wal", "wb") as opened:
            opened.write(content)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            session.append(said(1))
            assert texts(session) == ["0", "1"]
        sound(path)

    def test_a_newer_version_is_left_as_it_is(self, path):
        import apsw

        recollect.open(path).close()
        with apsw.Connection(path) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()
        with open(path, "rb") as opened:
            before = opened.read()
        with pytest.raises(SchemaTooNew, match="999"):
            recollect.open(path)
        with open(path, "rb") as opened:
            assert opened.read() == before
        assert not os.path.exists(path + "-reserve")


def test_a_row_that_can_not_be_read_does_not_end_the_thread_that_writes(path):
    """What waits together is tried together; what is wrong with one must reach that one, and no one else."""

    async def main() -> None:
        async with recollect.open_async(path) as store:
            bad, good = await store.session("cli:bad", metadata={"a": 1}), await store.session("cli:good")
            store._engine._file.writer.execute("UPDATE sessions SET metadata = '{\"a\": ' WHERE id = 'cli:bad'")
            for _ in range(3):
                some = [bad.update(title="x"), *(good.append(said(number)) for number in range(4))]
                first, *rest = await asyncio.wait_for(asyncio.gather(*some, return_exceptions=True), 60)
                assert isinstance(first, Corrupted)
                assert not [result for result in rest if isinstance(result, BaseException)]
            assert len(await good.messages()) == 12

    asyncio.run(main())


ELSEWHERE = (
    "import recollect, sys; recollect.open(sys.argv[1]).session('cli:new').append({'role': 'user', 'content': 'n'})"
)


def told(changes, name: str) -> None:
    """Wait for a change; the watch has a deadline of its own."""
    assert name in (change.session for change in changes)


class TestWatched:
    """A watch goes on with the file that has the name, whoever writes to it."""

    @pytest.mark.parametrize("log", ["with its log", "without"])
    def test_a_replaced_file_is_noticed_and_heard(self, path, other, log, sound):
        with recollect.open(path) as store:
            store.session("cli:gone").append(said(0))
            with store.watch(timeout=60) as changes:
                if log == "without":
                    remove(path)
                os.replace(other, path)
                told(changes, "cli:gone")
                subprocess.run([sys.executable, "-c", ELSEWHERE, path], check=True, timeout=60)
                told(changes, "cli:new")
            assert sorted(everything(store)) == [["n"], ["other 0", "other 1"]]
        sound(path)

    def test_a_restore_over_what_was_no_database_any_more(self, path, other):
        with recollect.open(path) as store:
            store.session("cli:gone").append(said(0))
            with store.watch(timeout=60) as changes:
                remove(path)
                with open(path, "w", encoding="utf-8") as text:
                    text.write("nothing that SQLite could read\n" * 100)
                assert changes._bell.wait(0.1) is None  # it is passed over, and the next is waited for
                recollect.restore(other, path)
                told(changes, "cli:gone")
                subprocess.run([sys.executable, "-c", ELSEWHERE, path], check=True, timeout=60)
                told(changes, "cli:new")

    def test_a_disk_that_fails_is_told_in_our_words(self, path, monkeypatch):
        def failing(connection):
            raise apsw.IOError("disk I/O error")

        with recollect.open(path) as store, store.watch(timeout=60) as changes:
            monkeypatch.setattr("recollect.engine.sqlite.watch._version", failing)
            with pytest.raises(RecollectError):
                next(iter(changes))

    def test_for_a_task(self, path, other):
        async def main() -> None:
            async with recollect.open_async(path) as store:
                await store.session("cli:gone")
                async with store.watch(timeout=60) as changes:
                    os.replace(other, path)
                    assert [change.session async for change in _until(changes, "cli:gone")]
                    await asyncio.to_thread(
                        subprocess.run, [sys.executable, "-c", ELSEWHERE, path], check=True, timeout=60
                    )
                    assert [change.session async for change in _until(changes, "cli:new")]

        asyncio.run(main())


async def _until(changes, name: str):
    async for change in changes:
        if change.session == name:
            yield change
            return


def test_logs_that_are_set_aside_within_one_second_keep_names_of_their_own(path):
    for number in range(3):
        for name in (f"{path}-wal", f"{path}-shm"):
            with open(name, "w", encoding="utf-8") as file:
                file.write(f"log {number}" * 10)
        with open(path, "w", encoding="utf-8") as file:
            file.write("a file")
        opened = place.place(path)
        assert opened is not None
        place.set_aside(opened)
        assert not os.path.exists(f"{path}-wal")
    logs = [pathlib.Path(name).read_text(encoding="utf-8") for name in glob.glob(f"{path}-wal.*.kept")]
    assert sorted(logs) == [f"log {number}" * 10 for number in range(3)]
