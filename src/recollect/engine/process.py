"""Process identity: the holder name of this process, and whether the process of another holder has ended.

A holder is the name of a process, `node:machine.boot.namespace:pid:start`: the host name, checksums of the machine id,
the boot id and the pid namespace, the process id and its start time. A process id is meaningful only within its boot
and namespace. A process of an earlier boot of the same machine has ended. Holders of earlier versions have one checksum
of boot and namespace together, `node:checksum:pid:start`; they are recognized only in the same boot and namespace.
"""

from __future__ import annotations

import os
import sys
import zlib

_ENDED_STATES = ("Z", "X")  # zombie, dead: it has ended, and its parent has not read its exit status
_EMPTY_CHECKSUM = "00000000"  # CRC-32 of the empty string: the system does not provide the value
_START_FIELD = 19  # of starttime in /proc/<pid>/stat, counted from 0 after the command in parentheses


def holder() -> str:
    """Return the holder name of this process."""
    if not _holder_cache:
        pid = os.getpid()
        _holder_cache.append(f"{_machine()}:{pid}:{_start_time(pid)}")
    return _holder_cache[0]


_holder_cache: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_holder_cache.clear)  # a child has its own process id


def is_gone(name: str, *, local: bool = False) -> bool:
    """Return whether a holder was a process of this machine and is gone. False if that cannot be known.

    `local` states that the holder is known to have run on this machine, as for a file on a local disk.
    """
    machine, pid, start = ([*name.rsplit(":", 2), "", ""])[:3]
    start = start.partition("~")[0]  # the rest is the position of a lock (engine/sqlite/liveness.py)
    if sys.platform == "win32" or not pid.isascii() or not pid.isdecimal() or not int(pid):
        return False
    if not _is_same_namespace(machine):
        return _is_from_earlier_boot(machine, local=local)
    try:
        os.kill(int(pid), 0)  # signal 0 is not delivered; it only tests whether the process exists
    except (ProcessLookupError, OverflowError):  # OverflowError: the number is larger than any process id
        return True
    except OSError:  # a process of another user
        return False
    # The kernel may have reused the process id: then the start time differs.
    return _stat(int(pid))[0] in _ENDED_STATES or start not in ("", _start_time(int(pid)))


def in_another_container(name: str) -> bool:
    """Return whether a holder is of this boot and of another pid namespace, where its process id means nothing."""
    checksums = tuple(name.rsplit(":", 2)[0].rpartition(":")[2].split("."))
    own_checksums = _machine_checksums()
    return (
        len(checksums) == len(own_checksums)
        and bool(_boot())
        and checksums[1] == own_checksums[1]
        and checksums[2] != own_checksums[2]
    )


def _is_same_namespace(machine: str) -> bool:
    """Return whether the process id of a holder is valid here: the same boot and the same pid namespace."""
    node, _, joined_checksums = machine.rpartition(":")
    own_checksums = _machine_checksums()
    checksums = tuple(joined_checksums.split("."))
    if len(checksums) != len(own_checksums):
        return machine == legacy_machine(_machine())
    if not _boot():  # the system has no boot id: the host name decides
        return machine == _machine()
    return bool(node) and checksums[1:] == own_checksums[1:]


def _is_from_earlier_boot(machine: str, *, local: bool) -> bool:
    """Return whether a holder is from an earlier boot of this machine, so that its process has ended.

    A process of the current boot in another pid namespace, such as a container, cannot be tested.
    """
    node, _, joined_checksums = machine.rpartition(":")
    checksums, own_checksums = joined_checksums.split("."), _machine_checksums()
    # A machine without a boot id writes the checksum of the empty string, from which the boot cannot be known.
    if len(checksums) != len(own_checksums) or not _boot() or checksums[1] in (own_checksums[1], _EMPTY_CHECKSUM):
        return False
    return local or (node == _node() and checksums[0] == own_checksums[0] != _EMPTY_CHECKSUM)


def legacy_machine(machine: str) -> str:
    """Return the machine part of a holder as earlier versions wrote it."""
    identity = _boot() + _namespace() if _boot() and _namespace() else ""
    return f"{machine.rpartition(':')[0]}:{_checksum(identity)}"


def _machine() -> str:
    return f"{_node()}:{'.'.join(_machine_checksums())}"


def _node() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _machine_checksums() -> tuple[str, str, str]:
    """Return checksums of the machine, its boot and the pid namespace."""
    return _checksum(_machine_id()), _checksum(_boot()), _checksum(_namespace())


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _machine_id() -> str:
    return _read("/etc/machine-id")


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id")


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as text:
            return text.read()
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks, which distinguishes it from a later one with the same id."""
    return _stat(pid)[-1]


def _stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and its start time; empty strings if the kernel does not provide them."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text:
            # The command may contain spaces and parentheses; the fields after its closing parenthesis do not.
            fields = text.read().rpartition(")")[2].split()
            return fields[0], fields[_START_FIELD]
    except (OSError, IndexError):
        return "", ""
