"""Atomic files: a temporary file next to its destination, readable by its owner only, renamed when it is complete.

A process that is killed leaves its temporary file behind. The file name identifies the process that created it
(engine/process.py), so the next writer of the same destination removes the files of processes that no longer run.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator

from recollect.engine.process import holder, is_gone, legacy_machine

# After the name of the destination or of a `.kept` copy of it: checksums of machine, boot and pid namespace (in earlier
# versions one checksum for all three), process id, start time and a random number.
_TEMPORARY_NAME = r"(?:\..*\.kept)?\.([0-9a-f]{8})([0-9a-f]{8})?([0-9a-f]{8})?-(\d+)-(\d*)-[0-9a-f]{8}\.part"
_SIDECAR_SUFFIXES = ("", "-wal", "-shm", "-journal", "-reserve")  # the file itself, and the sidecar files of a database


def create_temporary(path: str) -> str:
    """Create an empty temporary file for a destination and return its name. Raises OSError.

    Temporary files of the same destination that a killed process left behind are removed first.
    """
    for old_file in _abandoned_files(path):
        discard_temporary(old_file)
    machine, pid, start = holder().rsplit(":", 2)
    machine_checksum, boot, namespace = _machine_checksums(machine)
    temporary = f"{path}.{machine_checksum}{boot}{namespace}-{pid}-{start}-{os.urandom(4).hex()}.part"
    # O_EXCL does not follow a symbolic link that another user put there, and never opens an existing file.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return temporary


def destination_of(temporary: str) -> str:
    """Return the destination of a temporary file."""
    return temporary.rsplit(".", 2)[0]


def discard_temporary(temporary: str) -> None:
    """Remove a temporary file, with the files that SQLite may have created next to it."""
    for suffix in _SIDECAR_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary + suffix)


def fsync_path(path: str) -> None:
    """Sync a file to disk, or the names in a directory.

    A rename is durable only after the fsync of the directory that contains the name.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _abandoned_files(path: str) -> Iterator[str]:
    """Yield the temporary files of a destination, and of copies of it, whose processes no longer run."""
    folder, name = os.path.split(os.path.abspath(path))
    machine = holder().rsplit(":", 2)[0]
    pattern = re.compile(re.escape(name) + _TEMPORARY_NAME, re.DOTALL)
    for entry in os.listdir(folder):
        match = pattern.fullmatch(entry)
        creator_machine = None if match is None else _creator_machine(machine, match)
        if match is not None and creator_machine is not None and is_gone(f"{creator_machine}:{match[4]}:{match[5]}"):
            yield os.path.join(folder, entry)


def _creator_machine(machine: str, match: re.Match[str]) -> str | None:
    """Return the machine part of the holder that created a temporary file; None if that was another machine."""
    if match[3] is None:  # made by an earlier version
        legacy = legacy_machine(machine)
        return legacy if match[1] == _checksum(legacy) else None
    node, _, checksums = machine.rpartition(":")
    machine_id = checksums.partition(".")[0]
    return f"{node}:{machine_id}.{match[2]}.{match[3]}" if match[1] == _machine_checksums(machine)[0] else None


def _machine_checksums(machine: str) -> tuple[str, str, str]:
    """Return checksums of a machine (its name and its id), of its boot and of the pid namespace."""
    machine_id, boot, namespace = machine.rpartition(":")[2].split(".")
    return _checksum(f"{machine.rpartition(':')[0]}:{machine_id}"), boot, namespace


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
