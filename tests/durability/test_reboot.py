"""What a killed process leaves behind is found after a reboot: turns, and files that are not whole."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time

import pytest

import recollect
from recollect.engine import part, process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

KILLED = """
import os, sys, recollect
store = recollect.open(sys.argv[1])
turn = store.session("a").turn("question")
with turn.stream() as stream:
    stream.write("half")
    stream.flush()
    os.kill(os.getpid(), 9) if len(sys.argv) < 3 else print(turn.info, flush=True) or sys.stdin.read()
"""


@pytest.fixture
def rebooted(monkeypatch):
    """Return a function after which this process runs on another boot of the same machine."""

    def reboot():
        monkeypatch.setattr(process, "_boot", lambda: "another boot")
        monkeypatch.setattr(process, "_namespace", lambda: "pid:[1]")
        process._this.clear()

    monkeypatch.setattr(process, "_machine_id", lambda: "0123456789abcdef")
    process._this.clear()
    yield reboot
    process._this.clear()


def killed(path):
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False, timeout=60)
    assert done.returncode == -9


def test_a_turn_from_before_a_reboot_is_recovered(tmp_path, rebooted):
    path = str(tmp_path / "talks.db")
    killed(path)
    rebooted()
    with recollect.open(path) as store:
        assert store.recover() == ["a"]
        assert store.session("a").turns()[-1].status == "interrupted"


def test_a_turn_from_before_a_reboot_makes_way(tmp_path, rebooted):
    path = str(tmp_path / "talks.db")
    killed(path)
    rebooted()
    with recollect.open(path) as store, store.get_session("a").turn("next") as turn:
        turn.add({"role": "assistant", "content": "here"})


def test_a_part_from_before_a_reboot_is_removed(tmp_path, rebooted):
    copy = str(tmp_path / "copy.db")
    left = part.begin(copy)
    open(left + "-wal", "wb").close()
    part.begin(copy)
    assert os.path.exists(left)  # its maker, which is this process, lives
    rebooted()
    new = part.begin(copy)
    assert glob.glob(f"{copy}*") == [new]


def test_a_part_of_an_earlier_version_is_removed_by_its_process(tmp_path):
    copy = str(tmp_path / "copy.db")
    before = process.former(process.holder().rsplit(":", 2)[0])
    gone = f"{copy}.{part._checksum(before)}-999999999-1-00000000.part"
    elsewhere = f"{copy}.{part._checksum('elsewhere:00000000')}-999999999-1-00000000.part"
    for name in (gone, elsewhere):
        open(name, "wb").close()
    part.begin(copy)
    assert not os.path.exists(gone)
    assert os.path.exists(elsewhere)


@pytest.fixture
def contained(tmp_path):
    """A process in a pid namespace of its own, as in a container, in the middle of a turn; and how to kill it."""
    path = str(tmp_path / "talks.db")
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-c",
        KILLED,
        path,
        "lives",
    ]
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)

    def kill(lock=f"{path}-live"):
        running.kill()
        running.communicate()
        until = time.monotonic() + 30
        while not _unlocked(lock) and time.monotonic() < until:  # its child ends a moment later
            time.sleep(0.01)

    try:
        if not running.stdout.readline():
            pytest.skip(f"no pid namespace can be made here: {running.stderr.read().decode().strip()}")
        yield path, kill
    finally:
        running.kill()
        running.communicate()


def _unlocked(lock):
    """Return whether no other process holds a lock of the store. Asked in a child: closing drops this process's own."""
    look = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", look, lock], capture_output=True, check=False).returncode == 0


def test_a_living_turn_of_another_container_is_left_alone(contained):
    path, _ = contained
    with recollect.open(path) as store:
        assert store.recover() == []
        with pytest.raises(recollect.SessionBusy):
            store.get_session("a").turn("next")


def test_a_turn_of_a_container_that_was_killed_is_recovered(contained):
    """Its process id means nothing here. Its lock is gone, which only its end can have done."""
    path, kill = contained
    kill()
    with recollect.open(path) as store:
        assert store.recover() == ["a"]
        assert store.session("a").turns()[-1].status == "interrupted"
        with store.session("a").turn("next") as turn:
            turn.add({"role": "assistant", "content": "here"})


def test_a_lock_file_that_was_made_again_proves_nothing(contained):
    path, kill = contained
    os.rename(f"{path}-live", f"{path}-moved")
    with recollect.open(path) as store:
        kill(f"{path}-moved")
        assert store.recover() == []
        with pytest.raises(recollect.SessionBusy):
            store.get_session("a").turn("next")


def test_the_lock_file_goes_with_the_last_store(tmp_path):
    path = str(tmp_path / "talks.db")
    first, second = recollect.open(path), recollect.open(path)
    assert os.stat(f"{path}-live").st_mode & 0o777 == 0o600
    first.close()
    assert os.path.exists(f"{path}-live")
    second.close()
    assert not os.path.exists(f"{path}-live")


def test_a_child_of_fork_has_a_lock_of_its_own(tmp_path):
    path = str(tmp_path / "talks.db")
    with recollect.open(path) as store:
        ours = store.scope().holder
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            store.session("child")
            os.write(writer, store.scope().holder.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as text:
            theirs = text.read()
        os.waitpid(pid, 0)
        assert store.scope().holder == ours
        assert theirs.rpartition("~")[2] != ours.rpartition("~")[2]
        assert theirs.rpartition(".")[0].rpartition("~")[2] == ours.rpartition(".")[0].rpartition("~")[2]
        assert not _unlocked(f"{path}-live")
