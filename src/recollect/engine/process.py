"""Which process this is, and whether another one of this machine is gone.

A holder is written `node:machine.boot.namespace:pid:start`: the host name, checksums of the machine id, the boot id and
the pid namespace, the process id and when it started. A process id means something only within its boot and namespace.
A process of an earlier boot of the same machine is gone, whatever its id. Holders of earlier versions have one checksum
of boot and namespace together, `node:checksum:pid:start`: of those, only a process of this boot and namespace is known.
"""

from __future__ import annotations

import os
import sys
import zlib

_ENDED = ("Z", "X")  # it has ended and its parent has not asked how
_NONE = "00000000"  # the checksum of nothing: the system does not tell
_START = 19  # the 22nd field of /proc/<pid>/stat, counted after the command in brackets


def holder() -> str:
    """Name this process."""
    if not _this:
        pid = os.getpid()
        _this.append(f"{_machine()}:{pid}:{_started(pid)}")
    return _this[0]


_this: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_this.clear)


def gone(name: str, *, local: bool = False) -> bool:
    """Return whether a holder was a process of this machine and is gone. False if that cannot be known.

    `local` says that the holder is known to have run on this machine, as for a file on a local disk.
    """
    machine, pid, start = ([*name.rsplit(":", 2), "", ""])[:3]
    start = start.partition("~")[0]  # what follows is the place of a lock (engine/sqlite/liveness.py)
    if sys.platform == "win32" or not pid.isascii() or not pid.isdecimal() or not int(pid):
        return False
    if not _here(machine):
        return _before_reboot(machine, local=local)
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return _stat(int(pid))[0] in _ENDED or start not in ("", _started(int(pid)))


def in_another_container(name: str) -> bool:
    """Return whether a holder is of this boot and of another pid namespace, where its process id means nothing."""
    marks = tuple(name.rsplit(":", 2)[0].rpartition(":")[2].split("."))
    ours = _marks()
    return len(marks) == len(ours) and bool(_boot()) and marks[1] == ours[1] and marks[2] != ours[2]


def _here(machine: str) -> bool:
    """Return whether process ids of a holder are those of this process: the same boot and the same namespace."""
    node, _, marks = machine.rpartition(":")
    ours = _marks()
    found = tuple(marks.split("."))
    if len(found) != len(ours):
        return machine == former(_machine())
    if not _boot():  # the system does not tell: the host name has to do
        return machine == _machine()
    return bool(node) and found[1:] == ours[1:]


def _before_reboot(machine: str, *, local: bool) -> bool:
    """Return whether a holder is of an earlier boot of this machine: then it is gone.

    The same boot in another pid namespace, such as that of a container, is not known.
    """
    node, _, marks = machine.rpartition(":")
    found, ours = marks.split("."), _marks()
    if len(found) != len(ours) or not _boot() or found[1] in (ours[1], _NONE):
        return False
    return local or (node == _node() and found[0] == ours[0] != _NONE)


def former(machine: str) -> str:
    """Return how earlier versions wrote this machine, boot and namespace."""
    both = _boot() + _namespace() if _boot() and _namespace() else ""
    return f"{machine.rpartition(':')[0]}:{_checksum(both)}"


def _machine() -> str:
    return f"{_node()}:{'.'.join(_marks())}"


def _node() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _marks() -> tuple[str, str, str]:
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


def _started(pid: int) -> str:
    """Read when a process started, in the kernel's ticks; it tells a process from a later one with the same id."""
    return _stat(pid)[-1]


def _stat(pid: int) -> tuple[str, str]:
    """Read the state of a process and its start; nothing where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text:
            fields = text.read().rpartition(")")[2].split()
            return fields[0], fields[_START]
    except (OSError, IndexError):
        return "", ""
