"""What a killed process leaves behind is found after a reboot: turns, and files that are not whole."""

from __future__ import annotations

import glob
import os
import subprocess
import sys

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


def test_a_living_turn_of_another_container_is_left_alone(tmp_path):
    """In a pid namespace of its own, as in a container: nothing says that it is gone, and it is not."""
    path = str(tmp_path / "talks.db")
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", KILLED, path, "lives"]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if not running.stdout.readline():
            pytest.skip(f"no pid namespace can be made here: {running.stderr.read().decode().strip()}")
        with recollect.open(path) as store:
            assert store.recover() == []
            with pytest.raises(recollect.SessionBusy):
                store.get_session("a").turn("next")
    finally:
        running.kill()
        running.communicate()
