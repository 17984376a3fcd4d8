"""A full disk: a store can be opened, read, exported and deleted from, with the space of the reserve."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys

import pytest
from mounts import disk_of
from test_disk import LARGE, fill_disk, texts, user_message, write_until_full

import recollect
from recollect import export
from recollect.engine.sqlite import filesystem
from recollect.errors import DiskFull


@pytest.fixture
def disk(tmp_path):
    """Create a disk with space for a reserve."""
    with disk_of(tmp_path / "disk", "40m") as folder:
        yield folder


@pytest.fixture
def full_disk_path(disk):
    """Return the path of a closed store on a disk that was filled to the last byte afterwards."""
    path = str(disk / "a.db")
    with recollect.open(path) as store:
        for name in ("cli:a", "cli:b", "cli:c"):
            store.session(name).append([user_message(f"{number} {'word ' * 400}") for number in range(100)])
    fill_disk(disk)
    assert shutil.disk_usage(disk).free == 0
    return path


class TestFullDisk:
    def test_a_new_process_reads_and_exports_on_a_full_disk(self, full_disk_path, tmp_path):
        with recollect.open(full_disk_path) as store:
            assert len(texts(store.get_session("cli:a"))) == 100
            assert len(store.list_sessions()) == 3
            for format in ("jsonl", "md", "html"):
                assert export.write(store, None, format, str(tmp_path / f"out.{format}")) > 100_000

    def test_append_on_a_full_disk_raises_disk_full(self, full_disk_path):
        with recollect.open(full_disk_path) as store:
            session = store.session("cli:a")
            with pytest.raises(DiskFull):
                write_until_full(session.append, user_message(LARGE))

    def test_deleting_on_a_full_disk_frees_space(self, full_disk_path, check_database):
        with recollect.open(full_disk_path) as store:
            store.delete_session("cli:b")
            store.erase_session("cli:b")
            store.erase_session("cli:c")
            store.session("cli:a").append(user_message("after the deletion"))
            assert [session.id for session in store.list_sessions()] == ["cli:a"]
        check_database(full_disk_path)

    def test_an_open_store_deletes_on_a_full_disk(self, disk, check_database):
        path = str(disk / "a.db")
        with recollect.open(path) as store:
            for number in range(4):
                store.session(f"cli:{number}").append([user_message("word " * 400) for _ in range(100)])
            assert os.path.exists(filesystem.reserve_path(path))
            fill_disk(disk)
            with pytest.raises(DiskFull):
                write_until_full(store.session("cli:0").append, user_message(LARGE))
            assert os.path.exists(filesystem.reserve_path(path))  # an append must not use it
            store.delete_session("cli:1")
            store.erase_session("cli:1")
            store.maintenance.prune(older_than=0, erase=True)
            assert store.list_sessions() == []
        check_database(path)

    def test_an_async_store_deletes_on_a_full_disk(self, disk, check_database):
        path = str(disk / "a.db")

        async def main() -> None:
            async with recollect.open_async(path) as store:
                sessions = [await store.session(f"cli:{number}") for number in range(6)]
                await asyncio.gather(*(session.append([user_message("word " * 400)] * 50) for session in sessions))
                await asyncio.to_thread(fill_disk, disk)
                with pytest.raises(DiskFull):
                    await sessions[0].append([user_message(LARGE)] * 100)
                await asyncio.gather(*(store.delete_session(f"cli:{number}") for number in range(1, 4)))
                await store.erase_session("cli:1")
                assert {session.id for session in await store.list_sessions()} == {"cli:0", "cli:4", "cli:5"}

        asyncio.run(main())
        check_database(path)

    def test_the_command_line_deletes_on_a_full_disk(self, full_disk_path, tmp_path):
        def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "recollect", *arguments, "--db", full_disk_path]
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        assert (
            run_command("sessions", "export", "cli:a", "--format", "md", "-o", str(tmp_path / "a.md")).returncode == 0
        )
        process = run_command("sessions", "delete", "cli:b", "-y")
        assert process.returncode == 0, process.stderr
        process = run_command("sessions", "erase", "cli:b", "-y")
        assert process.returncode == 0, process.stderr
        assert '"cli:b"' not in run_command("sessions", "list", "--json").stdout


class TestReserve:
    def test_reserve_exists_until_the_last_store_closes(self, path, monkeypatch):
        monkeypatch.setattr(filesystem, "SCARCE_BYTES", 0)
        first, second = recollect.open(path), recollect.open(path)
        assert os.stat(filesystem.reserve_path(path)).st_size == filesystem.RESERVE_BYTES
        assert os.stat(filesystem.reserve_path(path)).st_blocks * 512 >= filesystem.RESERVE_BYTES
        assert os.stat(filesystem.reserve_path(path)).st_mode & 0o777 == 0o600
        first.close()
        assert os.path.exists(filesystem.reserve_path(path))
        second.close()
        assert os.listdir(os.path.dirname(path)) == ["recollect.db"]

    def test_reserve_stays_if_the_disk_is_nearly_full(self, path, monkeypatch):
        monkeypatch.setattr(filesystem, "SCARCE_BYTES", 1 << 62)
        recollect.open(path).close()
        assert os.path.exists(filesystem.reserve_path(path))

    def test_reserve_is_not_created_if_space_is_scarce(self, path, monkeypatch):
        monkeypatch.setattr(filesystem, "_FREE_FACTOR", 1 << 62)
        with recollect.open(path) as store:
            assert not os.path.exists(filesystem.reserve_path(path))
            store.session("cli:a").append(user_message(1))

    def test_a_store_in_memory_has_no_reserve(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with recollect.open(":memory:") as store:
            store.session("cli:a")
            store.delete_session("cli:a")
        assert os.listdir(tmp_path) == []
