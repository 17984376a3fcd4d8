"""Which process holds a turn, and whether it is gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from recollect.engine import process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def parts(name: str) -> tuple[str, str, str]:
    machine, pid, start = name.rsplit(":", 2)
    return machine, pid, start


def child(code: str = "") -> subprocess.Popen[bytes]:
    text = f"from recollect.engine.process import holder\nprint(holder(), flush=True)\n{code}"
    return subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_this_process_is_alive():
    assert process.holder() == process.holder()
    assert not process.gone(process.holder())


def test_a_holder_names_the_process_and_its_start():
    machine, pid, start = parts(process.holder())
    assert int(pid) == os.getpid()
    assert start.isdecimal()
    assert os.uname().nodename in machine


def test_a_child_is_alive_until_it_ends():
    with child("input()") as running:
        name = running.stdout.readline().decode().strip()
        assert int(parts(name)[1]) == running.pid
        alive = process.gone(name)
        running.stdin.close()
        running.wait()
        assert not alive
    assert process.gone(name)


def test_a_killed_child_that_nobody_waited_for_is_gone():
    """A zombie still has its id and its start time, and will never write again."""
    with child("input()") as running:
        name = running.stdout.readline().decode().strip()
        running.kill()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert process.gone(name)


def test_a_process_id_that_was_given_again_is_another_process():
    machine, pid, start = parts(process.holder())
    assert process.gone(f"{machine}:{pid}:{int(start) - 1}")
    assert not process.gone(f"{machine}:{pid}:{start}")


def test_a_process_of_another_user_is_alive():
    machine, _, _ = parts(process.holder())
    assert not process.gone(f"{machine}:1:{process._started(1)}")


@pytest.mark.parametrize("where", ["elsewhere", "elsewhere:00000000", ""])
def test_another_machine_is_not_known(where):
    _, _, start = parts(process.holder())
    assert not process.gone(f"{where}:999999999:{start}")


def changed(machine: str, mark: int) -> str:
    """Return a machine with another checksum: 0 of the machine id, 1 of the boot, 2 of the pid namespace."""
    node, _, marks = machine.rpartition(":")
    found = marks.split(".")
    found[mark] = f"{int(found[mark], 16) ^ 1:08x}"
    return f"{node}:{'.'.join(found)}"


@pytest.fixture
def with_machine_id(monkeypatch):
    """A machine that has an id, whether or not this one does."""
    monkeypatch.setattr(process, "_machine_id", lambda: "0123456789abcdef")
    process._this.clear()
    yield
    process._this.clear()


def test_a_process_from_before_a_reboot_is_gone(with_machine_id):
    machine, pid, start = parts(process.holder())
    for id in (pid, "1", "999999999"):
        assert process.gone(f"{changed(machine, 1)}:{id}:{start}")
        assert process.gone(f"{changed(changed(machine, 1), 2)}:{id}:{start}")  # the namespace is a new one too


def test_another_machine_of_the_same_name_is_not_known(with_machine_id):
    machine, _, start = parts(process.holder())
    other = changed(changed(machine, 0), 1)
    assert not process.gone(f"{other}:999999999:{start}")
    assert process.gone(f"{other}:999999999:{start}", local=True)  # a file on a local disk has no other machine


def test_a_machine_without_an_id_is_known_by_its_disk_only(monkeypatch):
    monkeypatch.setattr(process, "_machine_id", lambda: "")
    other = f"{changed(process._machine(), 1)}:999999999:1"
    assert not process.gone(other)
    assert process.gone(other, local=True)


@pytest.mark.parametrize("local", [True, False])
def test_another_container_of_this_boot_is_not_known(local):
    machine, _, start = parts(process.holder())
    assert not process.gone(f"{changed(machine, 2)}:999999999:{start}", local=local)


def test_a_boot_that_is_not_told_is_not_known(monkeypatch):
    machine, _, start = parts(process.holder())
    assert not process.gone(f"{machine.rpartition(':')[0]}:00000000.00000000.00000000:999999999:{start}", local=True)
    other = f"{changed(machine, 1)}:999999999:{start}"
    monkeypatch.setattr(process, "_boot", lambda: "")
    assert not process.gone(other, local=True)


def test_a_host_that_was_renamed_is_the_same(monkeypatch):
    with child("input()") as running:
        name = running.stdout.readline().decode().strip()
        monkeypatch.setattr(process, "_node", lambda: "renamed")
        assert not process.gone(name)
        running.kill()
        running.wait()
        assert process.gone(name)


@pytest.mark.parametrize("local", [True, False])
def test_holders_of_earlier_versions_are_understood(local):
    machine, pid, start = parts(process.holder())
    before = process.former(machine)
    assert before.count(":") == 1
    assert not process.gone(f"{before}:{pid}:{start}", local=local)
    assert process.gone(f"{before}:{pid}:{int(start) - 1}", local=local)
    assert process.gone(f"{before}:999999999:1", local=local)
    node, _, mark = before.rpartition(":")
    assert not process.gone(f"{node}:{int(mark, 16) ^ 1:08x}:999999999:{start}", local=local)  # a boot or a container


@pytest.mark.parametrize(
    "name",
    ["", ":", "::", ":::", "a", "a:b", "a:b:c:d", "x" * 1000, "\ud800:1:2", "a:-1:2", "a:1e3:2", "\x00"],
    ids=repr,
)
def test_garbage_is_not_known(name):
    assert not process.gone(name)


@pytest.mark.parametrize("pid", ["0", "-1", "", "x", "²", "٣", "9" * 40], ids=repr)
def test_garbage_of_this_machine_does_not_raise(pid):
    machine, _, start = parts(process.holder())
    assert process.gone(f"{machine}:{pid}:{start}") in (True, False)


@pytest.mark.parametrize("pid", ["0", "-1", "x", "²"])
def test_what_is_no_process_id_is_not_known(pid):
    machine, _, start = parts(process.holder())
    assert not process.gone(f"{machine}:{pid}:{start}")


def test_a_command_with_brackets_and_spaces_in_its_name(tmp_path):
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "30"]) as running:
        started = process._started(running.pid)
        running.kill()
    assert started.isdecimal()
    assert int(started) >= int(process._started(os.getpid()))


def test_a_forked_child_has_a_name_of_its_own():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, process.holder().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as text:
        name = text.read()
    os.waitpid(pid, 0)
    assert parts(name)[1] == str(pid)
    assert process.gone(name)
