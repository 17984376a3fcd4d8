"""A disk without a byte left: a store is opened, read, exported and deleted from, with the room that was kept back."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys

import pytest
from mounts import disk_of
from test_disk import LARGE, fill, repeat, said, texts

import recollect
from recollect import export
from recollect.engine.sqlite import reserve
from recollect.errors import DiskFull


@pytest.fixture
def disk(tmp_path):
    """A disk with room for a reserve."""
    with disk_of(tmp_path / "disk", "40m") as folder:
        yield folder


@pytest.fixture
def full(disk):
    """A store that was closed, on a disk that was filled to the last byte afterwards."""
    path = str(disk / "a.db")
    with recollect.open(path) as store:
        for name in ("cli:a", "cli:b", "cli:c"):
            store.session(name).append([said(f"{number} {'word ' * 400}") for number in range(100)])
    fill(disk)
    assert shutil.disk_usage(disk).free == 0
    return path


class TestFullDisk:
    def test_a_new_process_reads_and_exports(self, full, tmp_path):
        with recollect.open(full) as store:
            assert len(texts(store.get_session("cli:a"))) == 100
            assert len(store.list_sessions()) == 3
            for format in ("jsonl", "md", "html"):
                assert export.write(store, None, format, str(tmp_path / f"out.{format}")) > 100_000

    def test_what_is_written_is_refused(self, full):
        with recollect.open(full) as store:
            session = store.session("cli:a")
            with pytest.raises(DiskFull):
                repeat(session.append, said(LARGE))

    def test_deleting_works_and_makes_room(self, full, sound):
        with recollect.open(full) as store:
            store.delete_session("cli:b")
            store.erase_session("cli:b")
            store.erase_session("cli:c")
            store.session("cli:a").append(said("there is room again"))
            assert [session.id for session in store.list_sessions()] == ["cli:a"]
        sound(full)

    def test_under_an_open_store(self, disk, sound):
        path = str(disk / "a.db")
        with recollect.open(path) as store:
            for number in range(4):
                store.session(f"cli:{number}").append([said("word " * 400) for _ in range(100)])
            assert os.path.exists(reserve.name(path))
            fill(disk)
            with pytest.raises(DiskFull):
                repeat(store.session("cli:0").append, said(LARGE))
            assert os.path.exists(reserve.name(path))  # an append may not have it
            store.delete_session("cli:1")
            store.erase_session("cli:1")
            store.prune(older_than=0, erase=True)
            assert store.list_sessions() == []
        sound(path)

    def test_under_asyncio(self, disk, sound):
        path = str(disk / "a.db")

        async def main() -> None:
            async with recollect.open_async(path) as store:
                sessions = [await store.session(f"cli:{number}") for number in range(6)]
                await asyncio.gather(*(session.append([said("word " * 400)] * 50) for session in sessions))
                await asyncio.to_thread(fill, disk)
                with pytest.raises(DiskFull):
                    await sessions[0].append([said(LARGE)] * 100)
                await asyncio.gather(*(store.delete_session(f"cli:{number}") for number in range(1, 4)))
                await store.erase_session("cli:1")
                assert {session.id for session in await store.list_sessions()} == {"cli:0", "cli:4", "cli:5"}

        asyncio.run(main())
        sound(path)

    def test_the_command_line(self, full, tmp_path):
        def call(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "recollect", *words, "--db", full]
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        assert call("sessions", "export", "cli:a", "--format", "md", "-o", str(tmp_path / "a.md")).returncode == 0
        gone = call("sessions", "delete", "cli:b", "-y")
        assert gone.returncode == 0, gone.stderr
        gone = call("sessions", "erase", "cli:b", "-y")
        assert gone.returncode == 0, gone.stderr
        assert '"cli:b"' not in call("sessions", "list", "--json").stdout


class TestReserve:
    def test_is_there_while_a_store_is_open_and_goes_with_the_last(self, path, monkeypatch):
        monkeypatch.setattr(reserve, "SCARCE", 0)
        first, second = recollect.open(path), recollect.open(path)
        assert os.stat(reserve.name(path)).st_size == reserve.SIZE
        assert os.stat(reserve.name(path)).st_blocks * 512 >= reserve.SIZE
        assert os.stat(reserve.name(path)).st_mode & 0o777 == 0o600
        first.close()
        assert os.path.exists(reserve.name(path))
        second.close()
        assert os.listdir(os.path.dirname(path)) == ["recollect.db"]

    def test_stays_where_the_disk_is_nearly_full(self, path, monkeypatch):
        monkeypatch.setattr(reserve, "SCARCE", 1 << 62)
        recollect.open(path).close()
        assert os.path.exists(reserve.name(path))

    def test_does_not_fill_a_disk_by_itself(self, path, monkeypatch):
        monkeypatch.setattr(reserve, "_AMPLE", 1 << 62)
        with recollect.open(path) as store:
            assert not os.path.exists(reserve.name(path))
            store.session("cli:a").append(said(1))

    def test_a_store_in_memory_has_none(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with recollect.open(":memory:") as store:
            store.session("cli:a")
            store.delete_session("cli:a")
        assert os.listdir(tmp_path) == []
