"""A file on its way to its name: written beside it, readable by its owner only, and put in its place when it is whole.

A process that is killed meanwhile leaves its part behind, with everything that was to be in the file. So a part says in
its name whose it is, and whoever writes to the same name next removes those of processes that are gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator

from recollect.engine.process import former, gone, holder

# Machine, boot, pid namespace, process and its start; earlier versions wrote one checksum for the first three.
_MAKER = r"(?:\..*\.kept)?\.([0-9a-f]{8})([0-9a-f]{8})?([0-9a-f]{8})?-(\d+)-(\d*)-[0-9a-f]{8}\.part"
_BESIDE = ("", "-wal", "-shm", "-journal", "-reserve")


def begin(path: str) -> str:
    """Make a new, empty part of the file that is to be at a path, and give its name. No link is followed to it."""
    for left in _abandoned(path):
        discard(left)
    machine, pid, start = holder().rsplit(":", 2)
    stamp, boot, namespace = _stamps(machine)
    part = f"{path}.{stamp}{boot}{namespace}-{pid}-{start}-{os.urandom(4).hex()}.part"
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return part


def destination(part: str) -> str:
    """Say for which path a part is."""
    return part.rsplit(".", 2)[0]


def discard(part: str) -> None:
    """Remove a part, with what SQLite may have put beside it."""
    for ending in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part + ending)


def sync(path: str) -> None:
    """Have the disk hold what was written to a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _abandoned(path: str) -> Iterator[str]:
    """Name the parts of this file, and of copies that were to be kept of it, whose makers are gone."""
    folder, name = os.path.split(os.path.abspath(path))
    machine = holder().rsplit(":", 2)[0]
    of_it = re.compile(re.escape(name) + _MAKER, re.DOTALL)
    for entry in os.listdir(folder):
        found = of_it.fullmatch(entry)
        maker = None if found is None else _maker(machine, found)
        if found is not None and maker is not None and gone(f"{maker}:{found[4]}:{found[5]}"):
            yield os.path.join(folder, entry)


def _maker(machine: str, found: re.Match[str]) -> str | None:
    """Return the machine part of the holder that made a part; None if it was made elsewhere, as on a shared disk."""
    if found[3] is None:  # of an earlier version
        before = former(machine)
        return before if found[1] == _checksum(before) else None
    node, _, marks = machine.rpartition(":")
    id_ = marks.partition(".")[0]
    return f"{node}:{id_}.{found[2]}.{found[3]}" if found[1] == _stamps(machine)[0] else None


def _stamps(machine: str) -> tuple[str, str, str]:
    """Return checksums of a machine (its name and its id), of its boot and of the pid namespace."""
    id_, boot, namespace = machine.rpartition(":")[2].split(".")
    return _checksum(f"{machine.rpartition(':')[0]}:{id_}"), boot, namespace


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
