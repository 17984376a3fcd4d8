"""A full disk, a read-only file system, a write lock that is held too long, flipped bits, and file permissions."""

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
from mounts import disk_of, mount, unmount

import recollect
from recollect import export
from recollect.engine.sqlite.connection import connect_verified
from recollect.engine.sqlite.errors import translate_error
from recollect.errors import Corrupted, DiskFull, StoreError, StoreLocked, StoreReadOnly, StoreUnavailable

LINUX = sys.platform.startswith("linux")
LARGE = "x" * 60_000


def user_message(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def texts(session) -> list[str]:
    return [message.text for message in session.messages()]


@pytest.fixture
def small_disk(tmp_path):
    """Create a disk of a few megabytes."""
    with disk_of(tmp_path / "small", "3m") as folder:
        yield folder


def fill_disk(folder) -> str:
    """Fill the disk to the last byte and return the path of the filler file."""
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


def write_until_full(write, message) -> None:
    """Write a message 100 times, which is more than the disk can hold."""
    for _ in range(100):
        write(message)


def read_everything(path) -> None:
    with recollect.open(path) as store:
        for session in store.list_sessions():
            session.messages()


class TestFullDisk:
    def test_a_write_raises_disk_full_and_the_store_stays_usable(self, small_disk, check_database):
        path = str(small_disk / "a.db")
        with recollect.open(path) as store:
            session = store.session("cli:a")
            for number in range(20):
                session.append(user_message(number))
            filler = fill_disk(small_disk)
            with pytest.raises(DiskFull) as exc_info:
                write_until_full(session.append, user_message(LARGE))
            assert path in str(exc_info.value)
            assert isinstance(exc_info.value.__cause__, Exception)
            texts_before = texts(session)
            assert texts_before[:20] == [str(number) for number in range(20)]
            for _ in range(3):
                with pytest.raises(DiskFull):
                    session.append([user_message(LARGE)] * 20)
            assert texts(session) == texts_before
            assert session.refresh().message_count == len(texts_before)
            os.unlink(filler)
            session.append(user_message("after"))
            assert texts(session) == [*texts_before, "after"]
            assert session.refresh().message_count == len(texts_before) + 1
        check_database(path)

    def test_an_open_store_reads_on_a_full_disk(self, small_disk):
        path = str(small_disk / "a.db")
        with recollect.open(path) as store:
            store.session("cli:a").append([user_message(number) for number in range(20)])
            filler = fill_disk(small_disk)
            assert len(texts(store.get_session("cli:a"))) == 20
            assert [session.id for session in store.list_sessions()] == ["cli:a"]
            os.unlink(filler)

    def test_opening_on_a_full_disk_works_or_raises_disk_full(self, small_disk):
        path = str(small_disk / "a.db")
        with recollect.open(path) as store:
            store.session("cli:a").append([user_message(number) for number in range(20)])
        filler = fill_disk(small_disk)
        try:
            with recollect.open(path) as store:
                assert len(texts(store.get_session("cli:a"))) == 20
        except DiskFull as error:
            assert path in str(error)  # noqa: PT017  both outcomes are correct
        os.unlink(filler)
        with recollect.open(path) as store:
            assert len(texts(store.get_session("cli:a"))) == 20

    def test_creating_a_file_on_a_full_disk_raises_and_works_later(self, small_disk):
        filler = fill_disk(small_disk)
        path = str(small_disk / "new.db")
        with pytest.raises(StoreError) as exc_info:
            recollect.open(path)
        assert isinstance(exc_info.value, DiskFull | StoreUnavailable)
        os.unlink(filler)
        with recollect.open(path) as store:
            store.session("cli:a").append(user_message(1))

    def test_a_turn_continues_after_disk_full(self, small_disk):
        path = str(small_disk / "a.db")
        with recollect.open(path) as store:
            session = store.session("cli:a")
            with session.turn("question") as turn:
                filler = fill_disk(small_disk)
                with pytest.raises(DiskFull):
                    write_until_full(turn.add, {"role": "assistant", "content": LARGE})
                os.unlink(filler)
                turn.add({"role": "assistant", "content": "done"})
            assert session.turns.list()[-1].status == "completed"
            assert texts(session)[-1] == "done"

    def test_group_commit_on_a_full_disk_stores_exactly_the_acknowledged_messages(self, small_disk, check_database):
        """Appends that fit are stored, the others raise DiskFull, and no acknowledged message is lost or duplicated."""
        path = str(small_disk / "a.db")

        async def main() -> None:
            async with recollect.open_async(path) as store:
                sessions = [await store.session(f"cli:{number}") for number in range(12)]
                for session in sessions:
                    await session.append(user_message("small"))
                filler = await asyncio.to_thread(fill_disk, small_disk)
                os.truncate(filler, os.stat(filler).st_size - 200_000)
                appends = [session.append(user_message(LARGE)) for session in sessions]
                results = await asyncio.gather(*appends, return_exceptions=True)
                assert any(isinstance(result, DiskFull) for result in results)
                for session, result in zip(sessions, results, strict=True):
                    stored_texts = [message.text for message in await session.messages()]
                    assert isinstance(result, DiskFull) or result.count == 1  # pyright: ignore[reportAttributeAccessIssue]
                    assert stored_texts == (["small"] if isinstance(result, DiskFull) else ["small", LARGE])
                os.unlink(filler)
                await asyncio.gather(*(session.append(user_message("after")) for session in sessions))
                for session in sessions:
                    assert (await session.messages())[-1].text == "after"

        asyncio.run(main())
        check_database(path)

    def test_closing_on_a_full_disk_keeps_every_message(self, small_disk):
        path = str(small_disk / "a.db")
        store = recollect.open(path)
        session = store.session("cli:a")
        for number in range(30):
            session.append(user_message(f"{number} {'x' * 3_000}"))
        filler = fill_disk(small_disk)
        with contextlib.suppress(StoreError):
            store.close()
        os.unlink(filler)
        with recollect.open(path) as store:
            assert [text.split()[0] for text in texts(store.session("cli:a"))] == [str(number) for number in range(30)]


SIZE_LIMITED = """
import asyncio, os, resource, signal, sys
import recollect
from recollect.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
def user_message(text): return {"role": "user", "content": str(text)}
with recollect.open(path) as store:
    session = store.session("cli:a")
    for number in range(10): session.append(user_message(number))
    size = os.path.getsize(path + "-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, resource.RLIM_INFINITY))
    for _ in range(3):
        try:
            session.append(user_message("x" * 200_000))
        except StoreError as error:
            print(type(error).__name__)
    assert [message.text for message in session.messages()] == [str(number) for number in range(10)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    session.append(user_message("after"))
    assert [message.text for message in session.messages()][-1] == "after"
    assert session.refresh().message_count == 11
async def main():
    async with recollect.open_async(path) as store:
        sessions = [await store.session(f"cli:{n}") for n in range(8)]
        await asyncio.gather(*(session.append(user_message("small")) for session in sessions))
        size = os.path.getsize(path + "-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 150_000, resource.RLIM_INFINITY))
        results = await asyncio.gather(*(session.append(user_message("y" * 100_000)) for session in sessions), return_exceptions=True)
        assert any(isinstance(result, StoreError) for result in results)
        for session, result in zip(sessions, results):
            count = len(await session.messages())
            before = 1 + 11 * (session.id == "cli:a")
            assert count == before + (not isinstance(result, StoreError)), (count, result)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await asyncio.gather(*(session.append(user_message("after")) for session in sessions))
asyncio.run(main())
print("the end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_file_size_limit_raises_and_the_store_stays_usable(path, check_database):
    process = subprocess.run(
        [sys.executable, "-c", SIZE_LIMITED, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.stderr == ""
    lines = process.stdout.split("\n")
    assert lines[3] == "the end"
    assert set(lines[:3]) <= {"DiskFull", "StoreUnavailable"}
    check_database(path)


class TestReadOnly:
    @pytest.fixture
    def filled_path(self, path):
        with recollect.open(path) as store:
            store.session("cli:a").append([user_message(number) for number in range(20)])
        return path

    @pytest.fixture
    def read_only_path(self, filled_path):
        """Return the path of a store on a file system that is mounted read-only."""
        folder = os.path.dirname(filled_path)
        if not mount("--bind", folder, folder):
            pytest.skip("a folder cannot be mounted read-only here")
        try:
            if not mount("-o", "remount,ro,bind", folder):
                pytest.skip("a folder cannot be mounted read-only here")
            yield filled_path
        finally:
            unmount(folder)

    @pytest.fixture
    def immutable_path(self, filled_path):
        """Return the path of a file that even root cannot change (chattr +i)."""
        is_immutable = (
            shutil.which("chattr")
            and subprocess.run(["chattr", "+i", filled_path], capture_output=True, check=False).returncode == 0
        )
        if not is_immutable:
            pytest.skip("a file cannot be made immutable here")
        yield filled_path
        subprocess.run(["chattr", "-i", filled_path], check=True)

    def check_write_refused(self, path):
        """Check that opening or writing raises an error with path and cause; reading may work."""
        with pytest.raises((StoreReadOnly, StoreUnavailable)) as exc_info, recollect.open(path, timeout=1) as store:
            store.session("cli:b").append(user_message("no"))
        assert path in str(exc_info.value)
        assert "permission" in str(exc_info.value).lower() or "write" in str(exc_info.value).lower()

    def test_writing_to_a_read_only_file_system_raises(self, read_only_path):
        self.check_write_refused(read_only_path)

    def test_a_read_only_store_can_be_read_exported_checked_and_backed_up(self, read_only_path, tmp_path_factory):
        copy = tmp_path_factory.mktemp("elsewhere") / "copy.db"
        with recollect.open(read_only_path) as store:
            assert len(texts(store.get_session("cli:a"))) == 20
            assert [session.id for session in store.list_sessions()] == ["cli:a"]
            session = store.session("cli:a")  # opening an existing session writes nothing
            assert len(texts(session)) == 20
            assert b"".join(export.chunks(store, ["cli:a"], "md"))
            assert store.maintenance.check().problems == ()
            store.maintenance.backup(copy)
            for change in (
                lambda: store.session("cli:b"),
                lambda: session.append(user_message("no")),
                lambda: store.delete_session("cli:a"),
                store.maintenance.optimize,
            ):
                with pytest.raises(StoreReadOnly):
                    change()
        with recollect.open(copy) as store:
            assert len(texts(store.session("cli:a"))) == 20

        async def read_async():
            async with recollect.open_async(read_only_path) as store:
                return len(await (await store.get_session("cli:a")).messages())

        assert asyncio.run(read_async()) == 20

    def test_search_on_a_read_only_store_states_that_new_messages_are_missing(self, filled_path, request):
        with recollect.open(filled_path) as store:
            store.search("1")
            store.session("cli:a").append(user_message("newest"))
        request.getfixturevalue("read_only_path")
        with recollect.open(filled_path) as store:
            hits = store.search("newest")
            assert hits == []
            assert filled_path in hits.index_error
            assert "read" in hits.index_error  # pyright: ignore[reportOperatorIssue]
        command = [sys.executable, "-m", "recollect", "--db", filled_path, "sessions", "search", "1"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "newest messages were not searched" in process.stderr
        assert "cli:a" in process.stdout

    def test_a_read_only_mount_shows_writes_through_another_mount(self, filled_path, tmp_path_factory):
        """A container may mount a folder read-only while the host writes to it."""
        folder, view = os.path.dirname(filled_path), tmp_path_factory.mktemp("view")
        if not (mount("--bind", folder, str(view)) and mount("-o", "remount,ro,bind", str(view))):
            pytest.skip("a folder cannot be mounted read-only here")
        try:
            with recollect.open(view / os.path.basename(filled_path)) as reader:
                assert len(texts(reader.get_session("cli:a"))) == 20
                with recollect.open(filled_path) as writer:
                    writer.session("cli:a").append(user_message("more"))
                    with pytest.raises(StoreUnavailable, match="Try again"):
                        reader.get_session("cli:a")
                    assert len(texts(reader.get_session("cli:a"))) == 21
        finally:
            unmount(view)

    def test_a_wal_without_shm_on_a_read_only_mount_raises(self, filled_path, request):
        shutil.copy(filled_path, filled_path + "2")
        with recollect.open(filled_path) as store:
            store.session("cli:a").append(user_message("in the WAL"))
            shutil.copy(filled_path + "-wal", filled_path + "2-wal")
        request.getfixturevalue("read_only_path")
        with pytest.raises(StoreUnavailable, match="Copy both"):
            recollect.open(filled_path + "2")

    def test_writing_to_an_immutable_file_raises(self, immutable_path):
        self.check_write_refused(immutable_path)

    def test_creating_a_file_on_a_read_only_file_system_raises(self, read_only_path):
        new = os.path.join(os.path.dirname(read_only_path), "new.db")
        with pytest.raises((StoreReadOnly, StoreUnavailable)) as exc_info:
            recollect.open(new)
        assert new in str(exc_info.value)

    def test_a_read_only_file_keeps_its_messages(self, filled_path):
        if not LINUX or os.geteuid() == 0:
            pytest.skip("permission bits do not bind root")
        os.chmod(filled_path, 0o400)
        self.check_write_refused(filled_path)
        os.chmod(filled_path, 0o600)
        with recollect.open(filled_path) as store:
            assert len(texts(store.session("cli:a"))) == 20


class TestLocked:
    def test_append_raises_store_locked_after_the_timeout(self, path, spawn):
        with recollect.open(path, timeout=0.2) as store:
            session = store.session("cli:a")
            child = spawn("hold_write_lock", path)
            assert child.stdout.readline() == b"locked\n"
            start = time.monotonic()
            with pytest.raises(StoreLocked, match=r"0\.2 seconds") as exc_info:
                session.append(user_message("no"))
            assert 0.15 < time.monotonic() - start < 60
            assert exc_info.value.path == path  # pyright: ignore[reportAttributeAccessIssue]
            assert texts(session) == []  # readers do not wait for the lock
            child.stdin.write(b"free\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"free\n"
            session.append(user_message("yes"))
            assert texts(session) == ["yes"]

    def test_async_appends_raise_store_locked_after_the_timeout(self, path, spawn):
        async def main() -> None:
            async with recollect.open_async(path, timeout=0.2) as store:
                session = await store.session("cli:a")
                child = spawn("hold_write_lock", path)
                assert await asyncio.to_thread(child.stdout.readline) == b"locked\n"
                results = await asyncio.gather(
                    *(session.append(user_message(n)) for n in range(4)), return_exceptions=True
                )
                assert {type(result) for result in results} == {StoreLocked}
                assert await session.messages() == []
                child.stdin.write(b"free\n")
                child.stdin.flush()
                assert await asyncio.to_thread(child.stdout.readline) == b"free\n"
                await session.append(user_message("yes"))
                assert [message.text for message in await session.messages()] == ["yes"]

        asyncio.run(main())

    def test_a_batch_waits_for_the_lock_only_once(self, path, spawn):
        """Sixty callers with a timeout of one second are two batches: none waits for a minute."""

        async def main() -> float:
            async with recollect.open_async(path, timeout=1.0) as store:
                session = await store.session("cli:a")
                child = spawn("hold_write_lock", path)
                assert await asyncio.to_thread(child.stdout.readline) == b"locked\n"
                start = time.monotonic()
                async with asyncio.timeout(60):
                    appends = (session.append(user_message(n)) for n in range(60))
                    results = await asyncio.gather(*appends, return_exceptions=True)
                assert {type(result) for result in results} == {StoreLocked}
                return time.monotonic() - start

        assert asyncio.run(main()) < 30

    def test_opening_a_locked_file_works_and_writing_raises_store_locked(self, path, spawn):
        recollect.open(path).close()
        child = spawn("hold_write_lock", path)
        assert child.stdout.readline() == b"locked\n"
        with recollect.open(path, timeout=0.2) as store:  # an initialized file needs no lock
            assert store.list_sessions() == []
            with pytest.raises(StoreLocked):
                store.session("cli:a")

    def test_a_write_waits_for_the_thread_lock_only_until_the_timeout(self, path):
        with recollect.open(path, timeout=0.1) as store:
            session = store.session("cli:a")
            with store._engine._lock, pytest.raises(StoreLocked):  # pyright: ignore[reportAttributeAccessIssue]
                session.append(user_message("no"))
            session.append(user_message("yes"))


class TestDamage:
    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ (1 << bit)]))

    def text_offset(self, path: str) -> int:
        """Return an offset inside the text of a message."""
        with open(path, "rb") as file:
            content = file.read()
        return content.index(b"word word", len(content) // 2) + 2

    def read_verified(self, path: str) -> None:
        """Read every used page and verify its checksum, as store.maintenance.check() does."""
        connection = None
        try:
            connection = connect_verified(path, 5.0)
            for table in ("sessions", "branches", "messages"):
                connection.execute(f"SELECT * FROM {table}").fetchall()
            result = connection.execute("PRAGMA integrity_check").get
            if result != "ok":
                raise Corrupted(path=path, reason=result)
        except apsw.Error as error:
            raise translate_error(error, path, 5.0) from error
        finally:
            if connection is not None:
                connection.close()

    def test_an_intact_file_has_correct_checksums(self, filled_path):
        self.read_verified(filled_path)

    @pytest.mark.parametrize("bit", [0, 5, 7])
    def test_check_finds_a_flipped_bit_in_a_message(self, filled_path, bit):
        self.flip_bit(filled_path, self.text_offset(filled_path), bit)
        with pytest.raises(Corrupted, match="checksum") as exc_info:
            self.read_verified(filled_path)
        assert filled_path in str(exc_info.value)

    def test_check_finds_a_flipped_bit_in_any_page(self, filled_path):
        missed_pages = []
        for page in range(0, os.path.getsize(filled_path) // 4096, 2):
            self.flip_bit(filled_path, page * 4096 + 200)
            try:
                self.read_verified(filled_path)
            except Corrupted:
                pass
            else:
                missed_pages.append(page + 1)
            self.flip_bit(filled_path, page * 4096 + 200)
        assert missed_pages == []
        self.read_verified(filled_path)

    @pytest.mark.parametrize("bit", range(8))
    def test_reading_a_damaged_message_raises_corrupted_or_nothing(self, filled_path, bit):
        """Normal reads do not verify checksums. An unreadable message raises Corrupted; the others can still be read."""
        self.flip_bit(filled_path, self.text_offset(filled_path), bit)
        with recollect.open(filled_path) as store:
            read = 0
            for session in store.list_sessions():
                try:
                    read += len(session.messages())
                except Corrupted as error:
                    assert filled_path in str(error)  # noqa: PT017  both outcomes are correct
            assert read >= 100

    def test_reading_an_overwritten_page_raises_corrupted(self, filled_path):
        with open(filled_path, "r+b") as file:
            file.seek(self.text_offset(filled_path) // 4096 * 4096)
            file.write(b"\xff" * 4096)
        with pytest.raises(Corrupted):
            read_everything(filled_path)

    def test_a_truncated_wal_keeps_its_complete_commits(self, path, tmp_path):
        code = (
            "import os, sys, recollect\n"
            "store = recollect.open(sys.argv[1])\n"
            "for number in range(40): store.session('cli:a').append({'role': 'user', 'content': str(number)})\n"
            "os._exit(0)\n"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        os.truncate(path + "-wal", os.path.getsize(path + "-wal") * 2 // 3)
        with recollect.open(path) as store:
            stored_texts = texts(store.session("cli:a"))
            assert stored_texts == [str(number) for number in range(len(stored_texts))]
            assert 0 < len(stored_texts) < 40
            store.session("cli:a").append(user_message("on"))


class TestPermissions:
    @pytest.mark.parametrize("mask", [0o022, 0o000, 0o077, 0o002])
    def test_files_and_folders_are_private(self, tmp_path, mask):
        previous_mask = os.umask(mask)
        try:
            path = str(tmp_path / "x" / "y" / "a.db")
            with recollect.open(path) as store:
                store.session("cli:a").append(user_message(1))
                files = {name: mode(f"{path}{name}") for name in ("", "-wal", "-shm")}
            folders = [mode(tmp_path / "x"), mode(tmp_path / "x" / "y")]
        finally:
            os.umask(previous_mask)
        assert files == {"": 0o600, "-wal": 0o600, "-shm": 0o600}
        assert folders == [0o700, 0o700]

    def test_the_default_folder_is_private(self, tmp_path, monkeypatch):
        monkeypatch.delenv("RECOLLECT_DB", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        if sys.platform == "darwin":
            monkeypatch.setenv("HOME", str(tmp_path))
        with recollect.open() as store:
            store.session("cli:a")
            folder = os.path.dirname(store.path)
            assert mode(folder) == 0o700
            assert {mode(os.path.join(folder, name)) for name in os.listdir(folder)} == {0o600}

    def test_the_mode_of_an_existing_folder_does_not_change(self, tmp_path):
        folder = tmp_path / "mine"
        folder.mkdir()
        folder.chmod(0o755)
        with recollect.open(folder / "a.db") as store:
            store.session("cli:a")
            assert mode(folder) == 0o755
            assert mode(folder / "a.db-wal") == 0o600

    def test_files_of_an_async_store_are_private(self, tmp_path):
        async def main() -> None:
            async with recollect.open_async(tmp_path / "a.db") as store:
                await (await store.session("cli:a")).append(user_message(1))
                assert {mode(tmp_path / name) for name in os.listdir(tmp_path)} == {0o600}

        previous_mask = os.umask(0)
        try:
            asyncio.run(main())
        finally:
            os.umask(previous_mask)


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


class TestErasure:
    def test_erased_text_is_not_in_the_files(self, path):
        with recollect.open(path) as store:
            store.session("cli:keep").append(user_message("harmless"))
            store.session("cli:secret", title="the-hidden-title").append(
                [user_message("the-hidden-word " * 50) for _ in range(30)]
            )
            store.erase_session("cli:secret")
            for name in ("", "-wal"):
                if os.path.exists(path + name):
                    process = subprocess.run(
                        ["grep", "-c", "-a", "the-hidden", path + name], capture_output=True, text=True, check=False
                    )
                    assert process.stdout.strip() == "0"
            assert texts(store.session("cli:keep")) == ["harmless"]
