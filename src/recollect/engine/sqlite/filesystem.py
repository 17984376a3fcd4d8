"""The folder and files of a database: private creation, network file systems, and the disk space reserve.

On a full disk SQLite can neither delete, since that first writes to the WAL, nor open a reader, which needs the -shm
file. So an open store keeps a reserve file, and deletes it when the disk is full. The last store that closes deletes it
too, unless the disk is nearly full.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator

from recollect.config import make_folder
from recollect.engine.sqlite.errors import resource_error
from recollect.engine.sqlite.file_identity import preserve_wal
from recollect.errors import NetworkFileSystem, NotADatabase, StoreUnavailable

# The kernel's names of network file systems. Their locks and shared memory are not reliable.
_NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.curlftpfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.davfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "fuse.vmhgfs-fuse",
})  # fmt: skip
_MOUNT_TABLE = "/proc/self/mountinfo"
_MOUNT_POINT_FIELD = 4  # of a line of mountinfo, counted from 0


def prepare_file(path: str) -> None:
    """Create the file with mode 0600 if it does not exist. A file that is not empty is not changed."""
    if os.path.isdir(path):
        raise NotADatabase(path=path, reason="it is a directory")
    if os.path.exists(path) and not os.path.isfile(path):
        raise NotADatabase(path=path, reason="it is a device or a pipe, not a file")
    try:
        real = os.path.realpath(path)  # a symbolic link may point to a file that does not exist yet
        make_folder(os.path.dirname(real))
        kind = network_kind(real)
        if kind is not None:
            raise NetworkFileSystem(path=path, kind=kind)
        preserve_wal(real)
        if not os.path.exists(real):
            _create_file(real)
        elif os.path.getsize(real) == 0:
            _make_private(real)
        _make_wal_writable(real)
    except OSError as error:
        resource = resource_error(error.errno or 0, path)
        raise resource or StoreUnavailable(path=path, reason=error.strerror or str(error)) from error


def _make_private(path: str) -> None:
    """Set mode 0600 if this user owns the file. chmod() does not open it, so SQLite keeps its locks."""
    try:
        os.chmod(path, 0o600)
    except PermissionError:
        return


def _make_wal_writable(path: str) -> None:
    """Make the WAL of a writable file writable.

    SQLite creates -wal and -shm with the mode of the file. If the file was read-only then, they still are.
    """
    for name in (f"{path}-wal", f"{path}-shm"):
        if os.path.exists(name) and os.stat(path).st_mode & ~os.stat(name).st_mode & stat.S_IWUSR:
            _make_private(name)


def _create_file(path: str) -> None:
    """Create an empty file with mode 0600, without ever opening a file that another process may have created first.

    Closing a database file that was opened with plain I/O drops the locks that SQLite holds on it.
    """
    temporary = os.path.join(os.path.dirname(path), f".recollect-{os.getpid()}-{os.urandom(6).hex()}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        os.link(temporary, path)  # fails if the name exists, unlike a rename
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links
        if not os.path.exists(path):
            os.rename(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def network_kind(path: str, mounts: str = _MOUNT_TABLE) -> str | None:
    """Return the name of the network file system that a path is on; None if it is local or unknown."""
    if not sys.platform.startswith("linux"):
        return None
    real = os.path.realpath(path)
    longest, kind = "", None
    for point, name in _read_mounts(mounts):
        contains = real == point or real.startswith(point.rstrip("/") + "/")
        if contains and len(point) >= len(longest):
            longest, kind = point, name
    return kind if kind in _NETWORK_FILE_SYSTEMS else None


def _read_mounts(mounts: str) -> Iterator[tuple[str, str]]:
    """Yield the mount point and type of each mounted file system; lines of another form are skipped."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as text:
            lines = text.read().splitlines()
    except OSError:
        return
    for line in lines:
        mount, _, kind = line.partition(" - ")
        fields, kinds = mount.split(), kind.split()
        if len(fields) > _MOUNT_POINT_FIELD and kinds:
            yield _unescape(fields[_MOUNT_POINT_FIELD]), kinds[0]


def _unescape(point: str) -> str:
    """Decode the octal escapes that the kernel writes for whitespace and backslashes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(escape, character)
    return point


# Bytes. A deletion writes about as many bytes to the WAL as the text that it erases has; with a smaller reserve, a
# large session could not be deleted on a full disk.
RESERVE_BYTES = 4 * 1024 * 1024
# Bytes of free space. With less, the reserve stays after the last store has closed: the disk may be full when the next
# one opens.
SCARCE_BYTES = 1024 * 1024 * 1024
_FREE_FACTOR = 4  # times RESERVE_BYTES that must be free, so that the reserve itself does not fill the disk


def reserve_path(path: str) -> str:
    """Return the path of the reserve file."""
    return f"{path}-reserve"


def keep_reserve(path: str) -> None:
    """Create the reserve file if it does not exist and the disk has enough space."""
    file = reserve_path(path)
    if os.path.exists(file):
        return
    with contextlib.suppress(OSError):
        if _free_bytes(file) < _FREE_FACTOR * RESERVE_BYTES:
            return
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            _allocate_reserve(handle)
        except OSError:
            os.unlink(file)
        finally:
            os.close(handle)


def _allocate_reserve(handle: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, RESERVE_BYTES)  # truncate() would leave a hole, which reserves no blocks
        return
    block = bytes(65_536)
    for _ in range(0, RESERVE_BYTES, len(block)):
        os.write(handle, block)


def _free_bytes(path: str) -> int:
    """Return the free bytes of the disk of a file."""
    folder = os.path.dirname(path)
    if hasattr(os, "statvfs"):
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
    import shutil  # noqa: PLC0415  Windows only; it loads all compression modules

    return shutil.disk_usage(folder).free


def release_reserve(path: str) -> bool:
    """Delete the reserve file. Return False if there was none."""
    try:
        os.unlink(reserve_path(path))
    except OSError:
        return False
    return True


def settle_reserve(path: str) -> None:
    """Delete the reserve after the last store has closed (no WAL is left), unless the disk is nearly full."""
    with contextlib.suppress(OSError):
        if not os.path.exists(f"{path}-wal") and _free_bytes(path) >= SCARCE_BYTES:
            release_reserve(path)
