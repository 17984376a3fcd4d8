"""The folder and the file: network file systems are refused, and what is made is its owner's alone."""

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
def kind(tmp_path):
    """Ask for the kind of a path under these mounts."""

    def ask(path: str, *lines: str) -> str | None:
        mounts = tmp_path / "mountinfo"
        mounts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return filesystem.network_kind(path, str(mounts))

    return ask


def mount(point: str, kind: str, source: str = "server:/x") -> str:
    return f"40 27 0:44 / {point} rw,relatime shared:5 master:1 - {kind} {source} rw"


@pytest.mark.parametrize(
    "name", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "virtiofs", "fuse.rclone", "glusterfs"]
)
def test_network_file_systems_are_known(kind, name):
    assert kind("/net/share/a.db", ROOT, mount("/net/share", name)) == name


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.gocryptfs", "fuseblk"])
def test_local_file_systems_pass(kind, name):
    assert kind("/net/share/a.db", ROOT, mount("/net/share", name)) is None


def test_the_innermost_mount_counts(kind):
    lines = [ROOT, mount("/net", "nfs4"), mount("/net/local", "ext4"), mount("/net/local/far", "cifs")]
    for order in (lines, lines[::-1]):
        assert kind("/net/a.db", *order) == "nfs4"
        assert kind("/net/local/a.db", *order) is None
        assert kind("/net/local/far/deep/a.db", *order) == "cifs"


def test_a_later_mount_on_the_same_point_covers_the_earlier(kind):
    assert kind("/net/a.db", ROOT, mount("/net", "nfs4"), mount("/net", "ext4")) is None
    assert kind("/net/a.db", ROOT, mount("/net", "ext4"), mount("/net", "nfs4")) == "nfs4"


def test_a_name_that_only_begins_the_same_is_elsewhere(kind):
    assert kind("/network/a.db", ROOT, mount("/net", "nfs4")) is None


def test_a_root_on_the_network(kind):
    assert kind("/home/a.db", "27 1 0:1 / / rw - nfs4 server:/root rw") == "nfs4"


@pytest.mark.parametrize(
    ("written", "folder"), [(r"/my\040share", "/my share"), (r"/back\134slash", "/back\\slash"), (r"/a\011b", "/a\tb")]
)
def test_odd_characters_in_a_mount_point(kind, written, folder):
    assert kind(f"{folder}/a.db", ROOT, mount(written, "nfs")) == "nfs"


def test_letters_beyond_ascii_beside_an_escape(kind):
    assert kind("/freigabe für alle/a.db", ROOT, mount(r"/freigabe\040für\040alle", "cifs")) == "cifs"


def test_optional_fields_vary_in_number(kind):
    assert kind("/n/a.db", ROOT, "40 27 0:44 / /n rw,relatime - nfs4 s:/x rw") == "nfs4"
    assert kind("/n/a.db", ROOT, "40 27 0:44 / /n rw a:1 b:2 c:3 d:4 - nfs4 s:/x rw") == "nfs4"


def test_a_link_is_followed(kind, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/net/share")
    assert kind(str(link / "a.db"), ROOT, mount("/net/share", "nfs4")) == "nfs4"


@pytest.mark.parametrize("line", ["", "garbage", "1 2 3", "40 27 0:44 / /net rw - ", "40 27 0:44 / /net rw"])
def test_a_line_that_can_not_be_read_is_passed_over(kind, line):
    assert kind("/net/share/a.db", ROOT, line, mount("/net/share", "nfs4")) == "nfs4"


def test_without_mountinfo_it_is_not_known(tmp_path):
    assert filesystem.network_kind("/a.db", str(tmp_path / "nothing")) is None


def test_a_file_on_the_network_is_refused_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "network_kind", lambda path: "nfs4")
    path = tmp_path / "a.db"
    with pytest.raises(NetworkFileSystem, match="nfs4") as caught:
        filesystem.prepare(str(path))
    assert caught.value.path == str(path)
    assert not path.exists()


def test_a_new_file_and_its_folders_are_the_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        filesystem.prepare(str(tmp_path / "x" / "y" / "a.db"))
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("x", "x/y", "x/y/a.db")}
    assert modes == {"x": 0o700, "x/y": 0o700, "x/y/a.db": 0o600}
    assert os.listdir(tmp_path / "x" / "y") == ["a.db"]


def test_an_existing_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.db"
    path.write_text("mine")
    path.chmod(0o640)
    before = path.stat()
    filesystem.prepare(str(path))
    assert path.read_text() == "mine"
    assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)


def test_an_empty_file_that_someone_made_is_closed_to_others(tmp_path):
    path = tmp_path / "a.db"
    path.touch(0o644)
    filesystem.prepare(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_to_nowhere_is_no_reason_for_an_endless_search(tmp_path):
    link = tmp_path / "a.db"
    link.symlink_to(tmp_path / "there.db")
    filesystem.prepare(str(link))
    assert link.is_symlink()
    assert stat.S_IMODE((tmp_path / "there.db").stat().st_mode) == 0o600


def test_without_hard_links_the_file_is_made_too(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    filesystem.prepare(str(tmp_path / "a.db"))
    assert os.listdir(tmp_path) == ["a.db"]


def test_a_folder_is_no_database(tmp_path):
    with pytest.raises(NotADatabase, match="folder"):
        filesystem.prepare(str(tmp_path))


def test_a_folder_that_can_not_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable) as caught:
        filesystem.prepare(str(tmp_path / "file" / "a.db"))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_pipe_and_a_device_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(NotADatabase, match="not a file"):
            filesystem.prepare(path)


def test_a_name_that_is_too_long_leaves_nothing_behind(tmp_path):
    with pytest.raises(StoreUnavailable, match="too long"):
        filesystem.prepare(str(tmp_path / ("x" * 300)))
    assert os.listdir(tmp_path) == []


def test_a_log_that_was_made_while_the_file_was_read_only(tmp_path):
    """SQLite makes it with the mode of the file, and nobody thinks of the log who makes the file writable again."""
    for name, mode in (("a.db", 0o600), ("a.db-wal", 0o400), ("a.db-shm", 0o400), ("b.db", 0o400), ("b.db-wal", 0o400)):
        (tmp_path / name).write_text("x")
        os.chmod(tmp_path / name, mode)
    for name in ("a.db", "b.db"):
        filesystem.prepare(str(tmp_path / name))
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600, "b.db": 0o400, "b.db-wal": 0o400}
