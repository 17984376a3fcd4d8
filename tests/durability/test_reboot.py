"""Open turns and temporary files of killed processes are recovered after a reboot or a container restart."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time

import pytest

import recollect
from recollect.engine import atomic_file, process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

OPEN_TURN = """
import os, sys, recollect
store = recollect.open(sys.argv[1])
turn = store.session("a").turn("question")
with turn.stream() as stream:
    stream.write("half")
    stream.flush()
    os.kill(os.getpid(), 9) if len(sys.argv) < 3 else print(turn.info, flush=True) or sys.stdin.read()
"""


@pytest.fixture
def reboot(monkeypatch):
    """Return a function that makes this process appear to run after a reboot of the same machine."""

    def simulate_reboot():
        monkeypatch.setattr(process, "_boot", lambda: "another boot")
        monkeypatch.setattr(process, "_namespace", lambda: "pid:[1]")
        process._holder_cache.clear()

    monkeypatch.setattr(process, "_machine_id", lambda: "0123456789abcdef")
    process._holder_cache.clear()
    yield simulate_reboot
    process._holder_cache.clear()


def kill_during_turn(path):
    child = subprocess.run([sys.executable, "-c", OPEN_TURN, path], check=False, timeout=60)
    assert child.returncode == -9


def test_a_turn_from_before_a_reboot_is_recovered(tmp_path, reboot):
    path = str(tmp_path / "sessions.db")
    kill_during_turn(path)
    reboot()
    with recollect.open(path) as store:
        assert store.maintenance.recover() == ["a"]
        assert store.session("a").turns.list()[-1].status == "interrupted"


def test_a_turn_from_before_a_reboot_does_not_block_a_new_turn(tmp_path, reboot):
    path = str(tmp_path / "sessions.db")
    kill_during_turn(path)
    reboot()
    with recollect.open(path) as store, store.get_session("a").turn("next") as turn:
        turn.add({"role": "assistant", "content": "here"})


def test_a_temporary_file_from_before_a_reboot_is_removed(tmp_path, reboot):
    copy = str(tmp_path / "copy.db")
    old_temporary = atomic_file.create_temporary(copy)
    open(old_temporary + "-wal", "wb").close()
    atomic_file.create_temporary(copy)
    assert os.path.exists(old_temporary)  # its process, this one, is running
    reboot()
    new_temporary = atomic_file.create_temporary(copy)
    assert glob.glob(f"{copy}*") == [new_temporary]


def test_a_temporary_file_of_an_earlier_version_is_removed(tmp_path):
    copy = str(tmp_path / "copy.db")
    legacy_machine = process.legacy_machine(process.holder().rsplit(":", 2)[0])
    legacy_temporary = f"{copy}.{atomic_file._checksum(legacy_machine)}-999999999-1-00000000.part"
    foreign_temporary = f"{copy}.{atomic_file._checksum('other-machine:00000000')}-999999999-1-00000000.part"
    for name in (legacy_temporary, foreign_temporary):
        open(name, "wb").close()
    atomic_file.create_temporary(copy)
    assert not os.path.exists(legacy_temporary)
    assert os.path.exists(foreign_temporary)


@pytest.fixture
def container(tmp_path):
    """Start a process in its own pid namespace, as in a container, with an open turn. Return its path and a kill function."""
    path = str(tmp_path / "sessions.db")
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-c",
        OPEN_TURN,
        path,
        "lives",
    ]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)

    def kill(lock=f"{path}-live"):
        child.kill()
        child.communicate()
        deadline = time.monotonic() + 30
        while not _is_unlocked(lock) and time.monotonic() < deadline:  # its child ends a little later
            time.sleep(0.01)

    try:
        if not child.stdout.readline():
            pytest.skip(f"a pid namespace cannot be created here: {child.stderr.read().decode().strip()}")
        yield path, kill
    finally:
        child.kill()
        child.communicate()


def _is_unlocked(lock):
    """Return whether no other process holds a lock of the store. Tested in a child: closing the file drops own locks."""
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", script, lock], capture_output=True, check=False).returncode == 0


def test_a_turn_of_a_running_container_is_not_interrupted(container):
    path, _ = container
    with recollect.open(path) as store:
        assert store.maintenance.recover() == []
        with pytest.raises(recollect.SessionBusy):
            store.get_session("a").turn("next")


def test_a_turn_of_a_killed_container_is_recovered(container):
    """Its process id means nothing here; its lock is free, so it has ended."""
    path, kill = container
    kill()
    with recollect.open(path) as store:
        assert store.maintenance.recover() == ["a"]
        assert store.session("a").turns.list()[-1].status == "interrupted"
        with store.session("a").turn("next") as turn:
            turn.add({"role": "assistant", "content": "here"})


def test_a_replaced_lock_file_does_not_prove_that_a_process_ended(container):
    path, kill = container
    os.rename(f"{path}-live", f"{path}-moved")
    with recollect.open(path) as store:
        kill(f"{path}-moved")
        assert store.maintenance.recover() == []
        with pytest.raises(recollect.SessionBusy):
            store.get_session("a").turn("next")


def test_the_last_store_removes_the_lock_file(tmp_path):
    path = str(tmp_path / "sessions.db")
    first, second = recollect.open(path), recollect.open(path)
    assert os.stat(f"{path}-live").st_mode & 0o777 == 0o600
    first.close()
    assert os.path.exists(f"{path}-live")
    second.close()
    assert not os.path.exists(f"{path}-live")


def test_a_forked_child_has_its_own_lock(tmp_path):
    path = str(tmp_path / "sessions.db")
    with recollect.open(path) as store:
        parent_holder = store._scope().holder
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            store.session("child")
            os.write(writer, store._scope().holder.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as text:
            child_holder = text.read()
        os.waitpid(pid, 0)
        assert store._scope().holder == parent_holder
        assert child_holder.rpartition("~")[2] != parent_holder.rpartition("~")[2]
        assert child_holder.rpartition(".")[0].rpartition("~")[2] == parent_holder.rpartition(".")[0].rpartition("~")[2]
        assert not _is_unlocked(f"{path}-live")
