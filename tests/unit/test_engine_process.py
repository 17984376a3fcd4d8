"""Which process holds a turn, and whether it still runs."""

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
    assert not process.is_gone(process.holder())


def test_a_holder_names_the_process_and_its_start():
    machine, pid, start = parts(process.holder())
    assert int(pid) == os.getpid()
    assert start.isdecimal()
    assert os.uname().nodename in machine


def test_a_child_is_alive_until_it_ends():
    with child("input()") as running:
        name = running.stdout.readline().decode().strip()  # pyright: ignore[reportOptionalMemberAccess]
        assert int(parts(name)[1]) == running.pid
        is_gone = process.is_gone(name)
        running.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
        running.wait()
        assert not is_gone
    assert process.is_gone(name)


def test_a_zombie_is_gone():
    """A zombie still has its id and its start time, and will never write again."""
    with child("input()") as running:
        name = running.stdout.readline().decode().strip()  # pyright: ignore[reportOptionalMemberAccess]
        running.kill()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert process.is_gone(name)


def test_a_reused_process_id_is_another_process():
    machine, pid, start = parts(process.holder())
    assert process.is_gone(f"{machine}:{pid}:{int(start) - 1}")
    assert not process.is_gone(f"{machine}:{pid}:{start}")


def test_a_process_of_another_user_is_alive():
    machine, _, _ = parts(process.holder())
    assert not process.is_gone(f"{machine}:1:{process._start_time(1)}")


@pytest.mark.parametrize("machine", ["elsewhere", "elsewhere:00000000", ""])
def test_a_process_on_another_machine_is_not_reported_as_gone(machine):
    _, _, start = parts(process.holder())
    assert not process.is_gone(f"{machine}:999999999:{start}")


def change_checksum(machine: str, index: int) -> str:
    """Return a machine with another checksum: 0 of the machine id, 1 of the boot, 2 of the pid namespace."""
    node, _, suffix = machine.rpartition(":")
    checksums = suffix.split(".")
    checksums[index] = f"{int(checksums[index], 16) ^ 1:08x}"
    return f"{node}:{'.'.join(checksums)}"


@pytest.fixture
def with_machine_id(monkeypatch):
    """Set a machine id, even if this machine has none."""
    monkeypatch.setattr(process, "_machine_id", lambda: "0123456789abcdef")
    process._holder_cache.clear()
    yield
    process._holder_cache.clear()


def test_a_process_from_before_a_reboot_is_gone(with_machine_id):
    machine, pid, start = parts(process.holder())
    for id in (pid, "1", "999999999"):
        assert process.is_gone(f"{change_checksum(machine, 1)}:{id}:{start}")
        # A reboot changes the namespace too.
        assert process.is_gone(f"{change_checksum(change_checksum(machine, 1), 2)}:{id}:{start}")


def test_a_process_on_another_machine_of_the_same_name_is_not_reported_as_gone(with_machine_id):
    machine, _, start = parts(process.holder())
    other = change_checksum(change_checksum(machine, 0), 1)
    assert not process.is_gone(f"{other}:999999999:{start}")
    assert process.is_gone(f"{other}:999999999:{start}", local=True)  # only one machine uses a local disk


def test_without_a_machine_id_only_a_local_disk_identifies_the_machine(monkeypatch):
    monkeypatch.setattr(process, "_machine_id", lambda: "")
    other = f"{change_checksum(process._machine(), 1)}:999999999:1"
    assert not process.is_gone(other)
    assert process.is_gone(other, local=True)


@pytest.mark.parametrize("local", [True, False])
def test_a_process_in_another_container_is_not_reported_as_gone(local):
    machine, _, start = parts(process.holder())
    assert not process.is_gone(f"{change_checksum(machine, 2)}:999999999:{start}", local=local)


def test_a_process_of_an_unknown_boot_is_not_reported_as_gone(monkeypatch):
    machine, _, start = parts(process.holder())
    assert not process.is_gone(f"{machine.rpartition(':')[0]}:00000000.00000000.00000000:999999999:{start}", local=True)
    other = f"{change_checksum(machine, 1)}:999999999:{start}"
    monkeypatch.setattr(process, "_boot", lambda: "")
    assert not process.is_gone(other, local=True)


def test_a_renamed_host_is_the_same_machine(monkeypatch):
    with child("input()") as running:
        name = running.stdout.readline().decode().strip()  # pyright: ignore[reportOptionalMemberAccess]
        monkeypatch.setattr(process, "_node", lambda: "renamed")
        assert not process.is_gone(name)
        running.kill()
        running.wait()
        assert process.is_gone(name)


@pytest.mark.parametrize("local", [True, False])
def test_holders_of_earlier_versions_are_parsed(local):
    machine, pid, start = parts(process.holder())
    legacy = process.legacy_machine(machine)
    assert legacy.count(":") == 1
    assert not process.is_gone(f"{legacy}:{pid}:{start}", local=local)
    assert process.is_gone(f"{legacy}:{pid}:{int(start) - 1}", local=local)
    assert process.is_gone(f"{legacy}:999999999:1", local=local)
    node, _, checksum = legacy.rpartition(":")
    # Another checksum means another boot or another container.
    assert not process.is_gone(f"{node}:{int(checksum, 16) ^ 1:08x}:999999999:{start}", local=local)


@pytest.mark.parametrize(
    "name",
    ["", ":", "::", ":::", "a", "a:b", "a:b:c:d", "x" * 1000, "\ud800:1:2", "a:-1:2", "a:1e3:2", "\x00"],
    ids=repr,
)
def test_an_invalid_holder_is_not_reported_as_gone(name):
    assert not process.is_gone(name)


@pytest.mark.parametrize("pid", ["0", "-1", "", "x", "²", "٣", "9" * 40], ids=repr)
def test_an_invalid_process_id_does_not_raise(pid):
    machine, _, start = parts(process.holder())
    assert process.is_gone(f"{machine}:{pid}:{start}") in (True, False)


@pytest.mark.parametrize("pid", ["0", "-1", "x", "²"])
def test_an_invalid_process_id_is_not_reported_as_gone(pid):
    machine, _, start = parts(process.holder())
    assert not process.is_gone(f"{machine}:{pid}:{start}")


def test_the_start_time_of_a_command_with_parentheses_and_spaces(tmp_path):
    command = tmp_path / "a) R 1 (b"
    command.symlink_to("/bin/sleep")
    with subprocess.Popen([str(command), "30"]) as running:
        start_time = process._start_time(running.pid)
        running.kill()
    assert start_time.isdecimal()
    assert int(start_time) >= int(process._start_time(os.getpid()))


def test_a_forked_child_has_its_own_holder():
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
    assert process.is_gone(name)
