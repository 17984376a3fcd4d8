"""The folder and the file of a database: made readable by their owner only, and not on a network file system."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator

from recollect.config import make_folder
from recollect.engine.sqlite.failure import hindrance
from recollect.engine.sqlite.place import save_log
from recollect.errors import NetworkFileSystem, NotADatabase, StoreUnavailable

# File systems of other machines, as the kernel names them. Their locks and shared memory can not be relied on.
_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.curlftpfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.davfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "fuse.vmhgfs-fuse",
})  # fmt: skip
_MOUNTS = "/proc/self/mountinfo"
_POINT = 4


def prepare(path: str) -> None:
    """Make sure that there is a file to open, private to its owner; one that holds anything is left as it is."""
    if os.path.isdir(path):
        raise NotADatabase(path=path, reason="it is a folder")
    if os.path.exists(path) and not os.path.isfile(path):
        raise NotADatabase(path=path, reason="it is a device or a pipe, not a file")
    try:
        real = os.path.realpath(path)  # a link may lead to a file that is not there yet
        make_folder(os.path.dirname(real))
        kind = network_kind(real)
        if kind is not None:
            raise NetworkFileSystem(path=path, kind=kind)
        save_log(real)
        if not os.path.exists(real):
            _make_file(real)
        elif os.path.getsize(real) == 0:
            _keep_private(real)
        _loosen(real)
    except OSError as error:
        told = hindrance(error.errno or 0, path)
        raise told or StoreUnavailable(path=path, reason=error.strerror or str(error)) from error


def _keep_private(path: str) -> None:
    """Close an empty file that someone made for us to others, if it is ours to close. It is not opened for that."""
    try:
        os.chmod(path, 0o600)
    except PermissionError:
        return


def _loosen(path: str) -> None:
    """Let the log of a file that may be written be written too.

    SQLite makes it with the mode of the file. Where that was read-only for a while, what lies beside it stayed so.
    """
    for name in (f"{path}-wal", f"{path}-shm"):
        if os.path.exists(name) and os.stat(path).st_mode & ~os.stat(name).st_mode & stat.S_IWUSR:
            _keep_private(name)


def _make_file(path: str) -> None:
    """Make an empty file of mode 0600 at once, without ever opening what another process may have put there.

    Plain I/O on a live database file drops the locks that SQLite holds on it when it is closed.
    """
    fresh = os.path.join(os.path.dirname(path), f".recollect-{os.getpid()}-{os.urandom(6).hex()}")
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    except OSError:  # no hard links here
        if not os.path.exists(path):
            os.rename(fresh, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)


def network_kind(path: str, mounts: str = _MOUNTS) -> str | None:
    """Name the network file system that a path is on; None where it is local, or where that is not known."""
    if not sys.platform.startswith("linux"):
        return None
    real = os.path.realpath(path)
    best, kind = "", None
    for point, name in _mounted(mounts):
        within = real == point or real.startswith(point.rstrip("/") + "/")
        if within and len(point) >= len(best):
            best, kind = point, name
    return kind if kind in _NETWORK else None


def _mounted(mounts: str) -> Iterator[tuple[str, str]]:
    """Read where file systems are mounted, and of which kind they are; lines of another form are passed over."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as text:
            lines = text.read().splitlines()
    except OSError:
        return
    for line in lines:
        place, _, kind = line.partition(" - ")
        fields, kinds = place.split(), kind.split()
        if len(fields) > _POINT and kinds:
            yield _unescaped(fields[_POINT]), kinds[0]


def _unescaped(point: str) -> str:
    """Read the blanks and backslashes that the kernel writes as octal numbers."""
    for written, meant in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(written, meant)
    return point
