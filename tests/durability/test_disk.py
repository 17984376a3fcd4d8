"""A full disk, a read-only file, a lock that is held too long, a flipped byte, and who may read the files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time

import apsw
import pytest
from mounts import disk_of, mounted, unmount

import recollect
from recollect import export
from recollect.engine.sqlite.connection import connect_verified
from recollect.engine.sqlite.failure import meaning
from recollect.errors import Corrupted, DiskFull, StoreError, StoreLocked, StoreReadOnly, StoreUnavailable

LINUX = sys.platform.startswith("linux")
LARGE = "x" * 60_000


def said(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def texts(session) -> list[str]:
    return [message.text for message in session.messages()]


@pytest.fixture
def small(tmp_path):
    """A disk of a few megabytes."""
    with disk_of(tmp_path / "small", "3m") as folder:
        yield folder


def fill(folder) -> str:
    """Take all the space that is left."""
    path = str(folder / "filler")
    with open(path, "ab", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            try:
                for _ in range(10_000):
                    if file.write(b"x" * size) < size:
                        break
            except OSError:
                continue
    return path


def repeat(write, message) -> None:
    """Write the same again and again, more than there is room for."""
    for _ in range(100):
        write(message)


def read_everything(path) -> None:
    with recollect.open(path) as store:
        for session in store.list_sessions():
            session.messages()


class TestFullDisk:
    def test_a_write_is_refused_and_everything_else_goes_on(self, small, sound):
        path = str(small / "a.db")
        with recollect.open(path) as store:
            session = store.session("cli:a")
            for number in range(20):
                session.append(said(number))
            filler = fill(small)
            with pytest.raises(DiskFull) as caught:
                repeat(session.append, said(LARGE))
            assert path in str(caught.value)
            assert isinstance(caught.value.__cause__, Exception)
            before = texts(session)
            assert before[:20] == [str(number) for number in range(20)]
            for _ in range(3):
                with pytest.raises(DiskFull):
                    session.append([said(LARGE)] * 20)
            assert texts(session) == before
            assert session.refresh().message_count == len(before)
            os.unlink(filler)
            session.append(said("after"))
            assert texts(session) == [*before, "after"]
            assert session.refresh().message_count == len(before) + 1
        sound(path)

    def test_a_store_that_is_open_reads_on_a_full_disk(self, small):
        path = str(small / "a.db")
        with recollect.open(path) as store:
            store.session("cli:a").append([said(number) for number in range(20)])
            filler = fill(small)
            assert len(texts(store.get_session("cli:a"))) == 20
            assert [session.id for session in store.list_sessions()] == ["cli:a"]
            os.unlink(filler)

    def test_opening_on_a_full_disk_works_or_says_that_it_is_full(self, small):
        path = str(small / "a.db")
        with recollect.open(path) as store:
            store.session("cli:a").append([said(number) for number in range(20)])
        filler = fill(small)
        try:
            with recollect.open(path) as store:
                assert len(texts(store.get_session("cli:a"))) == 20
        except DiskFull as full:
            assert path in str(full)  # noqa: PT017  both ends are fine
        os.unlink(filler)
        with recollect.open(path) as store:
            assert len(texts(store.get_session("cli:a"))) == 20

    def test_a_new_file_on_a_full_disk_is_refused_and_made_later(self, small):
        filler = fill(small)
        path = str(small / "new.db")
        with pytest.raises(StoreError) as caught:
            recollect.open(path)
        assert isinstance(caught.value, DiskFull | StoreUnavailable)
        os.unlink(filler)
        with recollect.open(path) as store:
            store.session("cli:a").append(said(1))

    def test_a_turn_that_meets_it_can_go_on(self, small):
        path = str(small / "a.db")
        with recollect.open(path) as store:
            session = store.session("cli:a")
            with session.turn("question") as turn:
                filler = fill(small)
                with pytest.raises(DiskFull):
                    repeat(turn.add, {"role": "assistant", "content": LARGE})
                os.unlink(filler)
                turn.add({"role": "assistant", "content": "done"})
            assert session.turns()[-1].status == "completed"
            assert texts(session)[-1] == "done"

    def test_a_group_commit_that_meets_it(self, small, sound):
        """What fits is kept, what does not fit says so, and nothing acknowledged is lost or doubled."""
        path = str(small / "a.db")

        async def main() -> None:
            async with recollect.open_async(path) as store:
                sessions = [await store.session(f"cli:{number}") for number in range(12)]
                for session in sessions:
                    await session.append(said("small"))
                filler = await asyncio.to_thread(fill, small)
                os.truncate(filler, os.stat(filler).st_size - 200_000)
                some = [session.append(said(LARGE)) for session in sessions]
                results = await asyncio.gather(*some, return_exceptions=True)
                assert any(isinstance(result, DiskFull) for result in results)
                for session, result in zip(sessions, results, strict=True):
                    found = [message.text for message in await session.messages()]
                    assert isinstance(result, DiskFull) or result.count == 1
                    assert found == (["small"] if isinstance(result, DiskFull) else ["small", LARGE])
                os.unlink(filler)
                await asyncio.gather(*(session.append(said("after")) for session in sessions))
                for session in sessions:
                    assert (await session.messages())[-1].text == "after"

        asyncio.run(main())
        sound(path)

    def test_closing_on_a_full_disk_loses_nothing(self, small):
        path = str(small / "a.db")
        store = recollect.open(path)
        session = store.session("cli:a")
        for number in range(30):
            session.append(said(f"{number} {'x' * 3_000}"))
        filler = fill(small)
        with contextlib.suppress(StoreError):
            store.close()
        os.unlink(filler)
        with recollect.open(path) as store:
            assert [text.split()[0] for text in texts(store.session("cli:a"))] == [str(number) for number in range(30)]


LIMITED = """
import asyncio, os, resource, signal, sys
import recollect
from recollect.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
def said(text): return {"role": "user", "content": str(text)}
with recollect.open(path) as store:
    session = store.session("cli:a")
    for number in range(10): session.append(said(number))
    size = os.path.getsize(path + "-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, resource.RLIM_INFINITY))
    for _ in range(3):
        try:
            session.append(said("x" * 200_000))
        except StoreError as error:
            print(type(error).__name__)
    assert [message.text for message in session.messages()] == [str(number) for number in range(10)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    session.append(said("after"))
    assert [message.text for message in session.messages()][-1] == "after"
    assert session.refresh().message_count == 11
async def main():
    async with recollect.open_async(path) as store:
        sessions = [await store.session(f"cli:{n}") for n in range(8)]
        await asyncio.gather(*(one.append(said("small")) for one in sessions))
        size = os.path.getsize(path + "-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 150_000, resource.RLIM_INFINITY))
        results = await asyncio.gather(*(one.append(said("y" * 100_000)) for one in sessions), return_exceptions=True)
        assert any(isinstance(result, StoreError) for result in results)
        for one, result in zip(sessions, results):
            count = len(await one.messages())
            before = 1 + 11 * (one.id == "cli:a")
            assert count == before + (not isinstance(result, StoreError)), (count, result)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await asyncio.gather(*(one.append(said("after")) for one in sessions))
asyncio.run(main())
print("the end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_limit_on_the_size_of_files(path, sound):
    run = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    lines = run.stdout.split("\n")
    assert lines[3] == "the end"
    assert set(lines[:3]) <= {"DiskFull", "StoreUnavailable"}
    sound(path)


class TestReadOnly:
    @pytest.fixture
    def filled(self, path):
        with recollect.open(path) as store:
            store.session("cli:a").append([said(number) for number in range(20)])
        return path

    @pytest.fixture
    def frozen(self, filled):
        """The folder on a file system that is mounted read-only."""
        folder = os.path.dirname(filled)
        if not mounted("--bind", folder, folder):
            pytest.skip("a folder can not be mounted read-only here")
        try:
            if not mounted("-o", "remount,ro,bind", folder):
                pytest.skip("a folder can not be mounted read-only here")
            yield filled
        finally:
            unmount(folder)

    @pytest.fixture
    def fixed(self, filled):
        """The file marked as not to be changed, even by root."""
        made = (
            shutil.which("chattr")
            and subprocess.run(["chattr", "+i", filled], capture_output=True, check=False).returncode == 0
        )
        if not made:
            pytest.skip("a file can not be made immutable here")
        yield filled
        subprocess.run(["chattr", "-i", filled], check=True)

    def refused(self, path):
        """Opening or writing says what is wrong; reading may work."""
        with pytest.raises((StoreReadOnly, StoreUnavailable)) as caught, recollect.open(path, timeout=1) as store:
            store.session("cli:b").append(said("no"))
        assert path in str(caught.value)
        assert "permission" in str(caught.value).lower() or "write" in str(caught.value).lower()

    def test_a_file_system_that_is_read_only(self, frozen):
        self.refused(frozen)

    def test_what_is_on_it_can_be_read_exported_checked_and_copied(self, frozen, tmp_path_factory):
        copy = tmp_path_factory.mktemp("elsewhere") / "copy.db"
        with recollect.open(frozen) as store:
            assert len(texts(store.get_session("cli:a"))) == 20
            assert [session.id for session in store.list_sessions()] == ["cli:a"]
            assert b"".join(export.chunks(store, ["cli:a"], "md"))
            assert store.check().problems == ()
            store.backup(copy)
            for change in (lambda: store.session("cli:a"), lambda: store.delete_session("cli:a"), store.optimize):
                with pytest.raises(StoreReadOnly):
                    change()
        with recollect.open(copy) as store:
            assert len(texts(store.session("cli:a"))) == 20

        async def under_asyncio():
            async with recollect.open_async(frozen) as store:
                return len(await (await store.get_session("cli:a")).messages())

        assert asyncio.run(under_asyncio()) == 20

    def test_a_search_on_it_says_what_it_could_not_look_at(self, filled, request):
        with recollect.open(filled) as store:
            store.search("1")
            store.session("cli:a").append(said("newest"))
        request.getfixturevalue("frozen")
        with recollect.open(filled) as store:
            found = store.search("newest")
            assert found == []
            assert filled in found.hindered
            assert "read" in found.hindered
        command = [sys.executable, "-m", "recollect", "--db", filled, "sessions", "search", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "not looked at" in done.stderr
        assert "cli:a" in done.stdout

    def test_what_someone_writes_through_another_mount_is_seen(self, filled, tmp_path_factory):
        """A container may have the folder read-only, in which the machine itself writes."""
        folder, view = os.path.dirname(filled), tmp_path_factory.mktemp("view")
        if not (mounted("--bind", folder, str(view)) and mounted("-o", "remount,ro,bind", str(view))):
            pytest.skip("a folder can not be mounted read-only here")
        try:
            with recollect.open(view / os.path.basename(filled)) as reader:
                assert len(texts(reader.get_session("cli:a"))) == 20
                with recollect.open(filled) as writer:
                    writer.session("cli:a").append(said("more"))
                    with pytest.raises(StoreUnavailable, match="Try again"):
                        reader.get_session("cli:a")
                    assert len(texts(reader.get_session("cli:a"))) == 21
        finally:
            unmount(view)

    def test_a_log_on_it_that_has_no_index(self, filled, request):
        shutil.copy(filled, filled + "2")
        with recollect.open(filled) as store:
            store.session("cli:a").append(said("in the log"))
            shutil.copy(filled + "-wal", filled + "2-wal")
        request.getfixturevalue("frozen")
        with pytest.raises(StoreUnavailable, match="Copy both"):
            recollect.open(filled + "2")

    def test_a_file_that_can_not_be_changed(self, fixed):
        self.refused(fixed)

    def test_a_new_file_on_a_file_system_that_is_read_only(self, frozen):
        new = os.path.join(os.path.dirname(frozen), "new.db")
        with pytest.raises((StoreReadOnly, StoreUnavailable)) as caught:
            recollect.open(new)
        assert new in str(caught.value)

    def test_nothing_is_lost_by_it(self, filled):
        if not LINUX or os.geteuid() == 0:
            pytest.skip("permission bits do not bind root")
        os.chmod(filled, 0o400)
        self.refused(filled)
        os.chmod(filled, 0o600)
        with recollect.open(filled) as store:
            assert len(texts(store.session("cli:a"))) == 20


class TestLocked:
    def test_locked_too_long_is_said_and_passes(self, path, spawn):
        with recollect.open(path, timeout=0.2) as store:
            session = store.session("cli:a")
            child = spawn("lock", path)
            assert child.stdout.readline() == b"locked\n"
            began = time.monotonic()
            with pytest.raises(StoreLocked, match=r"0\.2 seconds") as caught:
                session.append(said("no"))
            assert 0.15 < time.monotonic() - began < 60
            assert caught.value.path == path
            assert texts(session) == []  # readers are not kept out
            child.stdin.write(b"free\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"free\n"
            session.append(said("yes"))
            assert texts(session) == ["yes"]

    def test_under_asyncio_too(self, path, spawn):
        async def main() -> None:
            async with recollect.open_async(path, timeout=0.2) as store:
                session = await store.session("cli:a")
                child = spawn("lock", path)
                assert await asyncio.to_thread(child.stdout.readline) == b"locked\n"
                results = await asyncio.gather(*(session.append(said(n)) for n in range(4)), return_exceptions=True)
                assert {type(result) for result in results} == {StoreLocked}
                assert await session.messages() == []
                child.stdin.write(b"free\n")
                child.stdin.flush()
                assert await asyncio.to_thread(child.stdout.readline) == b"free\n"
                await session.append(said("yes"))
                assert [message.text for message in await session.messages()] == ["yes"]

        asyncio.run(main())

    def test_a_batch_does_not_wait_once_for_each_of_its_operations(self, path, spawn):
        """Sixty callers that asked for a second are two groups: none waits for a minute, or for ever."""

        async def main() -> float:
            async with recollect.open_async(path, timeout=1.0) as store:
                session = await store.session("cli:a")
                child = spawn("lock", path)
                assert await asyncio.to_thread(child.stdout.readline) == b"locked\n"
                began = time.monotonic()
                async with asyncio.timeout(60):
                    appends = (session.append(said(n)) for n in range(60))
                    results = await asyncio.gather(*appends, return_exceptions=True)
                assert {type(result) for result in results} == {StoreLocked}
                return time.monotonic() - began

        assert asyncio.run(main()) < 30

    def test_opening_waits_and_then_says_so(self, path, spawn):
        recollect.open(path).close()
        child = spawn("lock", path)
        assert child.stdout.readline() == b"locked\n"
        with recollect.open(path, timeout=0.2) as store:  # a file that is ready needs no lock
            assert store.list_sessions() == []
            with pytest.raises(StoreLocked):
                store.session("cli:a")

    def test_a_thread_that_holds_the_store_too_long(self, path):
        with recollect.open(path, timeout=0.1) as store:
            session = store.session("cli:a")
            with store._engine._lock, pytest.raises(StoreLocked):
                session.append(said("no"))
            session.append(said("yes"))


class TestDamage:
    def flip(self, path: str, place: int, bit: int = 0) -> None:
        with open(path, "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ (1 << bit)]))

    def said_at(self, path: str) -> int:
        """Find a place in the middle of what was said."""
        with open(path, "rb") as file:
            content = file.read()
        return content.index(b"word word", len(content) // 2) + 2

    def verified(self, path: str) -> None:
        """Read every page in use, with its checksum, as a check of the store does."""
        connection = None
        try:
            connection = connect_verified(path, 5.0)
            for table in ("sessions", "branches", "messages"):
                connection.execute(f"SELECT * FROM {table}").fetchall()
            told = connection.execute("PRAGMA integrity_check").get
            if told != "ok":
                raise Corrupted(path=path, reason=told)
        except apsw.Error as error:
            raise meaning(error, path, 5.0) from error
        finally:
            if connection is not None:
                connection.close()

    def test_what_is_whole_is_found_whole(self, filled):
        self.verified(filled)

    @pytest.mark.parametrize("bit", [0, 5, 7])
    def test_a_flipped_bit_in_what_was_said_is_found_by_a_check(self, filled, bit):
        self.flip(filled, self.said_at(filled), bit)
        with pytest.raises(Corrupted, match="checksum") as caught:
            self.verified(filled)
        assert filled in str(caught.value)

    def test_a_flipped_bit_in_any_page_is_found_by_a_check(self, filled):
        missed = []
        for page in range(0, os.path.getsize(filled) // 4096, 2):
            self.flip(filled, page * 4096 + 200)
            try:
                self.verified(filled)
            except Corrupted:
                pass
            else:
                missed.append(page + 1)
            self.flip(filled, page * 4096 + 200)
        assert missed == []
        self.verified(filled)

    @pytest.mark.parametrize("bit", range(8))
    def test_reading_what_is_damaged_raises_no_strangers_error(self, filled, bit):
        """Ordinary reading does not add up checksums. What it can not read is Corrupted; the rest can still be read."""
        self.flip(filled, self.said_at(filled), bit)
        with recollect.open(filled) as store:
            read = 0
            for session in store.list_sessions():
                try:
                    read += len(session.messages())
                except Corrupted as error:
                    assert filled in str(error)  # noqa: PT017  both ends are fine
            assert read >= 100

    def test_a_page_that_was_overwritten_is_found_by_reading(self, filled):
        with open(filled, "r+b") as file:
            file.seek(self.said_at(filled) // 4096 * 4096)
            file.write(b"\xff" * 4096)
        with pytest.raises(Corrupted):
            read_everything(filled)

    def test_a_log_that_was_cut_off_gives_what_was_whole(self, path, tmp_path):
        code = (
            "import os, sys, recollect\n"
            "store = recollect.open(sys.argv[1])\n"
            "for number in range(40): store.session('cli:a').append({'role': 'user', 'content': str(number)})\n"
            "os._exit(0)\n"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        os.truncate(path + "-wal", os.path.getsize(path + "-wal") * 2 // 3)
        with recollect.open(path) as store:
            found = texts(store.session("cli:a"))
            assert found == [str(number) for number in range(len(found))]
            assert 0 < len(found) < 40
            store.session("cli:a").append(said("on"))


class TestPermissions:
    @pytest.mark.parametrize("mask", [0o022, 0o000, 0o077, 0o002])
    def test_only_the_owner_may_read(self, tmp_path, mask):
        before = os.umask(mask)
        try:
            path = str(tmp_path / "x" / "y" / "a.db")
            with recollect.open(path) as store:
                store.session("cli:a").append(said(1))
                files = {name: mode(f"{path}{name}") for name in ("", "-wal", "-shm")}
            folders = [mode(tmp_path / "x"), mode(tmp_path / "x" / "y")]
        finally:
            os.umask(before)
        assert files == {"": 0o600, "-wal": 0o600, "-shm": 0o600}
        assert folders == [0o700, 0o700]

    def test_an_empty_default_folder(self, tmp_path, monkeypatch):
        monkeypatch.delenv("RECOLLECT_DB", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        if sys.platform == "darwin":
            monkeypatch.setenv("HOME", str(tmp_path))
        with recollect.open() as store:
            store.session("cli:a")
            folder = os.path.dirname(store.path)
            assert mode(folder) == 0o700
            assert {mode(os.path.join(folder, name)) for name in os.listdir(folder)} == {0o600}

    def test_an_existing_folder_is_left_as_it_is(self, tmp_path):
        folder = tmp_path / "mine"
        folder.mkdir()
        folder.chmod(0o755)
        with recollect.open(folder / "a.db") as store:
            store.session("cli:a")
            assert mode(folder) == 0o755
            assert mode(folder / "a.db-wal") == 0o600

    def test_under_asyncio(self, tmp_path):
        async def main() -> None:
            async with recollect.open_async(tmp_path / "a.db") as store:
                await (await store.session("cli:a")).append(said(1))
                assert {mode(tmp_path / name) for name in os.listdir(tmp_path)} == {0o600}

        before = os.umask(0)
        try:
            asyncio.run(main())
        finally:
            os.umask(before)


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


class TestErasure:
    def test_what_was_erased_can_not_be_found_in_the_files(self, path):
        with recollect.open(path) as store:
            store.session("cli:keep").append(said("harmless"))
            store.session("cli:secret", title="the-hidden-title").append(
                [said("the-hidden-word " * 50) for _ in range(30)]
            )
            store.erase_session("cli:secret")
            for name in ("", "-wal"):
                if os.path.exists(path + name):
                    run = subprocess.run(
                        ["grep", "-c", "-a", "the-hidden", path + name], capture_output=True, text=True, check=False
                    )
                    assert run.stdout.strip() == "0"
            assert texts(store.session("cli:keep")) == ["harmless"]
