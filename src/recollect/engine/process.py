"""Which process this is, and whether another one of this machine is gone.

A holder is written `node:fingerprint:pid:start`. The fingerprint is that of the boot and the process namespace, so
that a process id of another container, or from before a reboot, is never taken for one of ours.
"""

from __future__ import annotations

import os
import sys
import zlib

_ENDED = ("Z", "X")  # it has ended and its parent has not asked how
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


def gone(name: str) -> bool:
    """Whether a holder was a process of this machine and is gone. False where that can not be known."""
    machine, pid, start = ([*name.rsplit(":", 2), "", ""])[:3]
    if sys.platform == "win32" or machine != _machine() or not pid.isascii() or not pid.isdecimal() or not int(pid):
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return _stat(int(pid))[0] in _ENDED or start not in ("", _started(int(pid)))


def _machine() -> str:
    node = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return f"{node}:{zlib.crc32(_boot().encode()):08x}"


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as text:
            return text.read() + os.readlink("/proc/self/ns/pid")
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
