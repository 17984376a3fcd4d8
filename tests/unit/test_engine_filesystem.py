"""The folder and the file of a database: network file systems are refused, and new files are private to their owner."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from recollect.engine.sqlite import filesystem
from recollect.errors import NetworkFileSystem, NotADatabase, StoreUnavailable

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/mountinfo")

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw"


@pytest.fixture
def network_kind_of(tmp_path):
    """Return a function that detects the network file system of a path under these mounts."""

    def detect(path: str, *lines: str) -> str | None:
        mounts = tmp_path / "mountinfo"
        mounts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return filesystem.network_kind(path, str(mounts))

    return detect


def mount(point: str, type_name: str, source: str = "server:/x") -> str:
    return f"40 27 0:44 / {point} rw,relatime shared:5 master:1 - {type_name} {source} rw"


@pytest.mark.parametrize(
    "name", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "virtiofs", "fuse.rclone", "glusterfs"]
)
def test_network_file_systems_are_detected(network_kind_of, name):
    assert network_kind_of("/net/share/a.db", ROOT, mount("/net/share", name)) == name


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.gocryptfs", "fuseblk"])
def test_local_file_systems_are_accepted(network_kind_of, name):
    assert network_kind_of("/net/share/a.db", ROOT, mount("/net/share", name)) is None


def test_the_innermost_mount_counts(network_kind_of):
    lines = [ROOT, mount("/net", "nfs4"), mount("/net/local", "ext4"), mount("/net/local/far", "cifs")]
    for order in (lines, lines[::-1]):
        assert network_kind_of("/net/a.db", *order) == "nfs4"
        assert network_kind_of("/net/local/a.db", *order) is None
        assert network_kind_of("/net/local/far/deep/a.db", *order) == "cifs"


def test_a_later_mount_on_the_same_point_covers_the_earlier(network_kind_of):
    assert network_kind_of("/net/a.db", ROOT, mount("/net", "nfs4"), mount("/net", "ext4")) is None
    assert network_kind_of("/net/a.db", ROOT, mount("/net", "ext4"), mount("/net", "nfs4")) == "nfs4"


def test_a_path_with_the_same_prefix_is_not_on_the_mount(network_kind_of):
    assert network_kind_of("/network/a.db", ROOT, mount("/net", "nfs4")) is None


def test_a_root_on_the_network(network_kind_of):
    assert network_kind_of("/home/a.db", "27 1 0:1 / / rw - nfs4 server:/root rw") == "nfs4"


@pytest.mark.parametrize(
    ("mount_point", "folder"),
    [(r"/my\040share", "/my share"), (r"/back\134slash", "/back\\slash"), (r"/a\011b", "/a\tb")],
)
def test_escaped_characters_in_a_mount_point(network_kind_of, mount_point, folder):
    assert network_kind_of(f"{folder}/a.db", ROOT, mount(mount_point, "nfs")) == "nfs"


def test_non_ascii_letters_next_to_an_escape(network_kind_of):
    assert network_kind_of("/freigabe für alle/a.db", ROOT, mount(r"/freigabe\040für\040alle", "cifs")) == "cifs"


def test_optional_fields_vary_in_number(network_kind_of):
    assert network_kind_of("/n/a.db", ROOT, "40 27 0:44 / /n rw,relatime - nfs4 s:/x rw") == "nfs4"
    assert network_kind_of("/n/a.db", ROOT, "40 27 0:44 / /n rw a:1 b:2 c:3 d:4 - nfs4 s:/x rw") == "nfs4"


def test_a_symlink_is_followed(network_kind_of, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/net/share")
    assert network_kind_of(str(link / "a.db"), ROOT, mount("/net/share", "nfs4")) == "nfs4"


@pytest.mark.parametrize("line", ["", "garbage", "1 2 3", "40 27 0:44 / /net rw - ", "40 27 0:44 / /net rw"])
def test_an_invalid_line_is_ignored(network_kind_of, line):
    assert network_kind_of("/net/share/a.db", ROOT, line, mount("/net/share", "nfs4")) == "nfs4"


def test_without_mountinfo_the_kind_is_unknown(tmp_path):
    assert filesystem.network_kind("/a.db", str(tmp_path / "nothing")) is None


def test_a_file_on_the_network_is_refused_before_it_is_created(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "network_kind", lambda path: "nfs4")
    path = tmp_path / "a.db"
    with pytest.raises(NetworkFileSystem, match="nfs4") as excinfo:
        filesystem.prepare_file(str(path))
    assert excinfo.value.path == str(path)  # pyright: ignore[reportAttributeAccessIssue]
    assert not path.exists()


def test_a_new_file_and_its_folders_are_private_to_their_owner(tmp_path):
    before = os.umask(0)
    try:
        filesystem.prepare_file(str(tmp_path / "x" / "y" / "a.db"))
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("x", "x/y", "x/y/a.db")}
    assert modes == {"x": 0o700, "x/y": 0o700, "x/y/a.db": 0o600}
    assert os.listdir(tmp_path / "x" / "y") == ["a.db"]


def test_an_existing_file_is_unchanged(tmp_path):
    path = tmp_path / "a.db"
    path.write_text("mine")
    path.chmod(0o640)
    before = path.stat()
    filesystem.prepare_file(str(path))
    assert path.read_text() == "mine"
    assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)


def test_an_existing_empty_file_becomes_private(tmp_path):
    path = tmp_path / "a.db"
    path.touch(0o644)
    filesystem.prepare_file(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_dangling_symlink_does_not_cause_an_endless_loop(tmp_path):
    link = tmp_path / "a.db"
    link.symlink_to(tmp_path / "there.db")
    filesystem.prepare_file(str(link))
    assert link.is_symlink()
    assert stat.S_IMODE((tmp_path / "there.db").stat().st_mode) == 0o600


def test_the_file_is_created_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    filesystem.prepare_file(str(tmp_path / "a.db"))
    assert os.listdir(tmp_path) == ["a.db"]


def test_a_folder_is_not_a_database(tmp_path):
    with pytest.raises(NotADatabase, match="folder"):
        filesystem.prepare_file(str(tmp_path))


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable) as excinfo:
        filesystem.prepare_file(str(tmp_path / "file" / "a.db"))
    assert isinstance(excinfo.value.__cause__, OSError)


def test_a_pipe_or_a_device_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(NotADatabase, match="not a file"):
            filesystem.prepare_file(path)


def test_a_name_that_is_too_long_leaves_no_file(tmp_path):
    with pytest.raises(StoreUnavailable, match="too long"):
        filesystem.prepare_file(str(tmp_path / ("x" * 300)))
    assert os.listdir(tmp_path) == []


def test_a_wal_created_while_the_file_was_read_only_becomes_writable(tmp_path):
    """SQLite creates the WAL with the mode of the file; a later chmod of the file does not change the WAL."""
    for name, mode in (("a.db", 0o600), ("a.db-wal", 0o400), ("a.db-shm", 0o400), ("b.db", 0o400), ("b.db-wal", 0o400)):
        (tmp_path / name).write_text("x")
        os.chmod(tmp_path / name, mode)
    for name in ("a.db", "b.db"):
        filesystem.prepare_file(str(tmp_path / name))
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600, "b.db": 0o400, "b.db-wal": 0o400}
