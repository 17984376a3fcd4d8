"""Hostile and broken files of all sources together: each problem is reported, the rest is imported, the store is clean."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import sqlite3
import stat
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

import recollect
from recollect.errors import UnreadableFile
from recollect.sources import registry
from recollect.sources.files import FolderTree
from recollect.sync import importer
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

ID = "cccccccc-0000-4000-8000-{:012d}"


def claude(number=1, *texts, **fields):
    """Return a transcript of Claude Code whose lines are one path."""
    lines, parent = [], None
    for index, text in enumerate(texts or ("hello",)):
        line = {
            "type": "user", "uuid": f"u{number}-{index}", "parentUuid": parent, "sessionId": ID.format(number),
            "isSidechain": False, "timestamp": f"2025-01-01T00:00:{index:02d}Z",
            "message": {"role": "user", "content": text}, **fields,
        }  # fmt: skip
        parent = line["uuid"]
        lines.append(json.dumps(line))
    return "\n".join(lines) + "\n"


def session_of(number=1):
    return f"claude-code:{ID.format(number)}"


def chatgpt(*items):
    """Return a document of ChatGPT: each item is an id and its nodes, pairs of an id and a parent."""
    return json.dumps([
        {
            "id": key, "title": key, "create_time": 1_700_000_000, "current_node": nodes[-1][0],
            "mapping": {
                node: {
                    "id": node, "parent": parent, "children": [],
                    "message": {
                        "id": node, "author": {"role": "user"}, "create_time": 1_700_000_000,
                        "content": {"content_type": "text", "parts": [f"text {node}"]},
                    },
                }
                for node, parent in nodes
            },
        }
        for key, nodes in items
    ])  # fmt: skip


@pytest.fixture
def store(tmp_path):
    location = tmp_path / "r.db"
    with recollect.open(location) as store:
        yield store
    with recollect.open(location) as store:
        assert store.maintenance.check().problems == ()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def run(store, *paths, **options):
    return import_files(store, paths, ImportOptions(indexes=False, **options))


def sessions(report):
    return {item.session for item in report.conversations}


def notes(report, kind):
    return [note for note in report.notes if note.kind == kind]


def texts(store, session):
    return [message.text for message in store.get_session(session).messages()]


def pack(path, *entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return path


class TestArchives:
    def test_a_bomb_is_refused_and_the_rest_imported(self, store, tmp_path, monkeypatch):
        monkeypatch.setattr("recollect.sources.files.RATIO_FREE_BYTES", 1 << 20)
        bomb = claude(1, "first") + claude(1, "x" * 1000).rstrip()[:-1] + " " * (20 << 20)
        document = chatgpt(("big", [("n", None)])).rstrip("]") + " " * (20 << 20)
        archive = pack(
            tmp_path / "export.zip", ("a.jsonl", bomb), ("conversations.json", document), ("b.jsonl", claude(2)),
        )  # fmt: skip
        report = run(store, archive)
        assert session_of(2) in sessions(report)
        places = {note.first for note in (*notes(report, "failed"), *notes(report, "malformed"))}
        assert {"a.jsonl", "conversations.json"} <= places
        assert any("200 times" in note.text for note in report.notes)

    def test_a_compressed_bomb(self, store, folder, monkeypatch):
        zstandard = pytest.importorskip("zstandard")
        monkeypatch.setattr("recollect.sources.files.RATIO_FREE_BYTES", 1 << 20)
        line = json.dumps({"timestamp": "2025-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "z"}})
        data = zstandard.ZstdCompressor().compress(line.encode() + b"\n" + b" " * (60 << 20))
        (folder / "rollout-z.jsonl.zst").write_bytes(data)
        (folder / "b.jsonl").write_text(claude(2))
        report = run(store, folder)
        assert session_of(2) in sessions(report)
        assert [note.first for note in notes(report, "failed")] == ["rollout-z.jsonl.zst"]

    def test_entries_that_leave_the_archive_and_links(self, store, tmp_path):
        link = zipfile.ZipInfo("link.jsonl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive = pack(
            tmp_path / "export.zip", ("../out.jsonl", claude(1)), ("/abs.jsonl", claude(2)),
            ("C:/windows.jsonl", claude(3)), ("a\\..\\..\\b.jsonl", claude(4)), (link, "/etc/passwd"),
            ("good/ok.jsonl", claude(5)),
        )  # fmt: skip
        report = run(store, archive)
        assert sessions(report) == {session_of(5)}
        assert sum(note.count for note in notes(report, "skipped")) == 5
        assert not (tmp_path.parent / "out.jsonl").exists()

    def test_archives_in_a_folder_and_in_an_archive(self, store, folder, tmp_path):
        """A large export arrives as several archives. What is in an archive of an archive of an archive is not read."""
        first = pack(folder / "data-1.zip", ("conversations.json", chatgpt(("a", [("n", None)]))))
        pack(folder / "data-2.zip", ("export/conversations.json", chatgpt(("b", [("n", None)]))), ("../x", "x"))
        (folder / "data-3.zip").write_bytes(first.read_bytes()[:-30])
        second = pack(tmp_path / "outer.zip", ("data/inner.zip", pack(
            tmp_path / "inner.zip", ("conversations.json", chatgpt(("c", [("n", None)]))), ("deep.zip", first.read_bytes()),
        ).read_bytes()))  # fmt: skip
        report = run(store, folder, second)
        assert sessions(report) == {"chatgpt:a", "chatgpt:b", "chatgpt:c"}
        assert [note.first for note in notes(report, "failed")] == ["data-3.zip"]
        assert sum(note.count for note in notes(report, "skipped")) == 1
        report = run(store, folder, second)
        assert (sessions(report), report.unchanged_files) == (set(), 3)

    def test_more_archives_than_are_opened(self, store, tmp_path, monkeypatch):
        monkeypatch.setattr("recollect.sources.files._MAX_NESTED_ARCHIVES", 2)
        monkeypatch.setattr("recollect.sources.files._MAX_NESTED_BYTES", 3 << 20)
        empty = pack(tmp_path / "empty.zip", ("x", "x")).read_bytes()
        large = io.BytesIO()
        with zipfile.ZipFile(large, "w") as archive:
            archive.writestr("x", os.urandom(5 << 20))
        entries = [("0.zip", large.getvalue()), *((f"{number}.zip", empty) for number in range(1, 5))]
        report = run(store, pack(tmp_path / "many.zip", *entries))
        assert {note.first for note in notes(report, "failed")} == {"0.zip", "2.zip", "3.zip", "4.zip"}

    @pytest.mark.parametrize("damage", ["encrypted", "checksum"])
    def test_an_entry_that_cannot_be_read_is_named(self, store, tmp_path, damage):
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("conversations.json", chatgpt(("a", [("n", None)])))
            archive.writestr("b.jsonl", claude(2))
        data = path.read_bytes()
        if damage == "encrypted":
            data = data.replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1", 1)
            data = data.replace(b"PK\x03\x04\x14\0\0", b"PK\x03\x04\x14\0\1", 1)
        else:
            data = data.replace(b"mapping", b"mopping", 1)
        path.write_bytes(data)
        report = run(store, path)
        assert sessions(report) == {session_of(2)}
        (note,) = notes(report, "failed")
        assert note.first == "conversations.json"
        assert ("encrypted" if damage == "encrypted" else "CRC") in note.text

    def test_a_thousand_files(self, store, tmp_path):
        entries = [(f"{number:04d}.jsonl", claude(number)) for number in range(1000)]
        report = run(store, pack(tmp_path / "many.zip", *entries))
        assert len(sessions(report)) == 1000

    @pytest.mark.parametrize("data", [b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" + b"x" * 500])
    def test_damaged_archives(self, store, tmp_path, data):
        path = tmp_path / "damaged.zip"
        path.write_bytes(data)
        (tmp_path / "a.jsonl").write_text(claude(1))
        report = run(store, path, tmp_path / "a.jsonl")
        assert sessions(report) == {session_of(1)}
        is_empty_archive = data.startswith(b"PK\x05")
        assert [note.first for note in notes(report, "failed")] == ([] if is_empty_archive else [str(path)])

    def test_an_archive_with_a_damaged_entry(self, store, tmp_path):
        path = pack(tmp_path / "export.zip", ("a.jsonl", claude(1, *"abcdefgh")), ("b.jsonl", claude(2)))
        data = bytearray(path.read_bytes())
        data[70:90] = bytes(20)  # in the compressed data of the first entry
        path.write_bytes(data)
        report = run(store, path)
        assert session_of(2) in sessions(report)
        assert "a.jsonl" in {note.first for note in notes(report, "failed")} or report.skipped_files == 1

    def test_a_name_that_occurs_twice_and_an_encrypted_entry(self, store, tmp_path):
        with pytest.warns(UserWarning, match="Duplicate"):
            path = pack(tmp_path / "a.zip", ("a.jsonl", claude(1)), ("a.jsonl", claude(2)), ("b.jsonl", claude(3)))
        data = bytearray(path.read_bytes())
        entry = data.rindex(b"PK\x01\x02")
        data[entry + 8] |= 1  # the flag of an encrypted entry, in the directory
        path.write_bytes(data)
        report = run(store, path)
        assert sessions(report) == {session_of(2)}


class TestFolders:
    def test_links_devices_and_folders_with_the_names_of_files(self, store, folder, tmp_path):
        (tmp_path / "secret.jsonl").write_text(claude(1))
        (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
        (folder / "loop").symlink_to(folder)
        (folder / "conversations.json").mkdir()
        (folder / "session_index.jsonl").mkdir()
        (folder / "opencode.db").mkdir()
        (folder / "empty.jsonl").touch()
        (folder / "conversations-000.json").touch()
        os.mkfifo(folder / "pipe.jsonl")
        (folder / "good.jsonl").write_text(claude(2))
        report = run(store, folder)
        assert sessions(report) == {session_of(2)}
        assert report.skipped_files == 2
        [links] = [note for note in report.notes if "symbolic link" in note.text]
        assert (links.kind, links.count) == ("skipped", 2)

    def test_a_folder_that_does_not_exist(self, store, folder):
        report = run(store, folder / "missing")
        assert [note.kind for note in report.notes] == ["failed"]

    def test_files_that_cannot_be_read_or_vanish(self, store, folder, monkeypatch):
        for number in range(6):
            (folder / f"{number}.jsonl").write_text(claude(number, "one", "two"))
        (folder / "conversations.json").write_text(chatgpt(("g", [("n", None)])))
        monkeypatch.setattr(importer, "open_tree", FailingTree)
        report = run(store, folder)
        assert {session_of(number) for number in (4, 5)} <= sessions(report)
        failures = {note.first for note in notes(report, "failed")}
        assert failures == {"0.jsonl", "1.jsonl", "2.jsonl", "conversations.json"}
        monkeypatch.undo()
        report = run(store, folder)  # what failed is read again
        assert {session_of(number) for number in range(4)} | {"chatgpt:g"} >= sessions(report) != set()
        for number in range(6):
            assert texts(store, session_of(number)) == ["one", "two"]


class FailingTree(FolderTree):
    """A tree whose files fail at different moments: 0 has no stamp, 1 cannot be opened, 2 fails in the middle."""

    def __init__(self, path):
        super().__init__(path)
        self._counts = {}

    def stamp(self, name):
        if name == "0.jsonl":
            raise UnreadableFile(f"{name} cannot be read: Permission denied.")
        return super().stamp(name)

    def head(self, name):
        return FolderTree(self.path).head(name)

    def open(self, name):
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if name in ("1.jsonl", "conversations.json"):
            raise UnreadableFile(f"{name} cannot be read: No such file or directory.")
        file = super().open(name)
        return io.BufferedReader(FailingFile(file, 300)) if name == "2.jsonl" and count > 1 else file


class FailingFile(io.RawIOBase):
    """A stream of a disk that fails after some bytes."""

    def __init__(self, file, size):
        self._file, self._size = file, size

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self._file.read(min(len(buffer), 100))
        self._size -= len(data)
        if self._size < 0:
            raise OSError(5, "Input/output error")
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        self._file.close()
        super().close()


class TestContent:
    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
    def test_other_unicode_encodings(self, store, folder, encoding):
        (folder / "a.jsonl").write_bytes(claude(1).encode(encoding))
        (folder / "conversations.json").write_bytes(chatgpt(("g", [("n", None)])).encode(encoding))
        (folder / "b.jsonl").write_text(claude(2))
        report = run(store, folder)
        assert session_of(2) in sessions(report)
        assert report.skipped_files == 2

    def test_latin_1_and_marks_at_the_beginning(self, store, folder):
        data = claude(1, "plain").encode() + claude(1, "caf\u00e9").replace("\\u00e9", "\u00e9").encode("latin-1")
        (folder / "a.jsonl").write_bytes(data)
        (folder / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + claude(2, "marked").encode())
        (folder / "conversations.json").write_bytes(b"\xef\xbb\xbf" + chatgpt(("g", [("n", None)])).encode())
        report = run(store, folder)
        assert sessions(report) == {session_of(1), session_of(2), "chatgpt:g"}
        assert [note.first for note in notes(report, "malformed")] == ["a.jsonl:2"]
        assert texts(store, session_of(2)) == ["marked"]
        [(_, original)] = read_originals(store, session_of(1))
        assert original == data

    def test_a_line_of_40_megabytes(self, store, folder):
        data = (claude(1, "one") + claude(1, "x" * (40 << 20)) + claude(1, "one", "two")).encode()
        (folder / "a.jsonl").write_bytes(data)
        report = run(store, folder)
        assert [(note.kind, note.first) for note in report.notes if note.kind != "skipped" or "MiB" in note.text] == [
            ("skipped", "a.jsonl:2")
        ]
        assert texts(store, session_of(1)) == ["one", "two"]
        [(_, original)] = read_originals(store, session_of(1))
        assert original == data

    def test_deep_json(self, store, folder):
        deep = "[" * 100_000 + "]" * 100_000
        (folder / "a.jsonl").write_text(claude(1, "one") + deep + "\n" + '{"a":' * 900 + "1" + "}" * 900 + "\n")
        (folder / "conversations.json").write_text(
            f'{chatgpt(("g", [("n", None)]))[:-1]}, {{"id": "deep", "mapping": {deep}}}]'
        )
        report = run(store, folder)
        assert {session_of(1), "chatgpt:g"} <= sessions(report)
        assert len(report.notes) >= 2

    def test_cycles_duplicates_and_odd_ids(self, store, folder):
        ids = [("a", "b"), ("b", "a"), ("c", "c"), ("d", "missing"), ("\0", None), ("x" * 5000, "d"), ("e\n", "\0")]
        (folder / "conversations.json").write_text(
            chatgpt(("cycle", ids), ("cycle", [("a", None)]), ("\0\n", [("n", None)]))
        )
        cycle = claude(1, "one", "two").replace('"parentUuid": null', '"parentUuid": "u1-1"')
        (folder / "a.jsonl").write_text(cycle + cycle + claude(1, "changed"))
        report = run(store, folder)
        assert {"chatgpt:cycle", session_of(1)} <= sessions(report)
        assert len(sessions(report)) == 3
        session = store.get_session(session_of(1))
        assert {session.message(key=key).text for key in ("u1-0", "u1-1")} == {"one", "two"}
        before = {item.session: texts(store, item.session) for item in report.conversations}
        assert run(store, folder, again=True).new_messages == 0
        assert {key: texts(store, key) for key in before} == before

    @pytest.mark.parametrize(
        "data", [b"", b"\n\n\n", b"null", b"[]", b"{}", b"[null, 1, [], {}]", b"\0" * 5000, b"[{", b'"', b"\xff\xfe"]
    )
    def test_files_without_content(self, store, folder, data):
        names = [
            "conversations.json", "a.jsonl", "session_index.jsonl", "state_5.sqlite", "opencode.db", "logs.json",
            "rollout-x.jsonl", "rollout-x.jsonl.zst", "chats/session-1.json", "storage/session/p/s.json",
        ]  # fmt: skip
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_bytes(data)
        (folder / "good.jsonl").write_text(claude(2))
        assert sessions(run(store, folder)) == {session_of(2)}

    def test_two_files_with_the_same_conversation(self, store, folder):
        (folder / "a.jsonl").write_text(claude(1, "one", "two"))
        (folder / "b.jsonl").write_text(claude(1, "one", "two", "three"))
        (folder / "c.jsonl").write_text(claude(1, "one", "other").replace("u1-1", "v1-1"))
        run(store, folder)
        session = store.get_session(session_of(1))
        paths = []
        for branch in session.branches.list():
            session.branches.switch(branch)
            paths.append([message.text for message in session.messages()])
        assert sorted(paths) == [["one", "other"], ["one", "two", "three"]]


def test_the_files_are_never_changed(store, folder):
    (folder / "a.jsonl").write_text(claude(1))
    (folder / "state_5.sqlite").write_bytes(b"SQLite format 3\0" + bytes(84))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(Path(folder).iterdir())}
    run(store, folder)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(Path(folder).iterdir())} == before


def stamps_in(folder):
    stats = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    return {path: (status.st_size, status.st_mtime_ns, status.st_ctime_ns) for path, status in stats.items()}


def contents_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_sources_are_only_read_and_nothing_is_fetched(store, tmp_path, monkeypatch):
    """Every fixture of every source is imported from a folder in which nothing changes, and no socket is opened."""
    folder = tmp_path / "fixtures"
    shutil.copytree(Path(__file__).parents[1] / "sources" / "fixtures", folder)
    database = folder / "opencode" / "opencode.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript((folder / "opencode" / "database.sql").read_text())
        for path in sorted(folder.rglob("*"), reverse=True):
            path.chmod(0o500 if path.is_dir() else 0o400)
        folder.chmod(0o500)
        before, content = stamps_in(folder), contents_in(folder)
        monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("an import opened a connection"))
        report = run(store, folder)
        assert {item.source for item in report.conversations} == set(registry.NAMES)
        assert (stamps_in(folder), contents_in(folder)) == (before, content)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000 + "]" * 100_000, "9" * 100_000, "NaN", "Infinity", "1e999", '{"a": 1, "a": 2}', '"\\ud800"', "-0"],
    ids=["deep", "huge", "nan", "infinity", "overflow", "duplicate", "surrogate", "zero"],
)
def test_values_that_json_readers_disagree_about(store, tmp_path, text):
    """A conversation with such a value is kept, the others are imported, and the original is the same text."""
    document = chatgpt(("a", [("n", None)]), ("b", [("n", None)])).replace('"title": "b"', f'"title": "b", "x": {text}')
    path = tmp_path / "conversations.json"
    path.write_text(document)
    report = run(store, path)
    assert "chatgpt:a" in sessions(report)
    originals = [data.decode() for session in sorted(sessions(report)) for _, data in read_originals(store, session)]
    assert len(originals) == 2
    assert any(f'"x": {text}' in data for data in originals)
    assert {item.outcome for item in run(store, path, again=True).conversations} == {"unchanged"}
