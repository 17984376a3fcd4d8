"""Files that a user names are detected by their content: their names do not matter."""

from __future__ import annotations

import pathlib
import shutil
import zipfile

import pytest

import recollect
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

FIXTURES = pathlib.Path(__file__).parents[1] / "sources" / "fixtures"
FILES = [
    *sorted(path for path in (FIXTURES / "codex").rglob("*.json*") if path.name != "session_index.jsonl"),
    *sorted((FIXTURES / "gemini-cli").rglob("*.json*")),
]


@pytest.fixture
def store(tmp_path):
    with recollect.open(tmp_path / "r.db") as store:
        yield store


def sessions(store):
    return {session.id for session in store.list_sessions(delegates=None)}


@pytest.mark.parametrize("name", ["noext", "copy.bak", "2026.old.txt"])
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_a_named_file_with_any_name(store, tmp_path, file, name):
    path = tmp_path / name
    shutil.copyfile(file, path)
    report = import_files(store, [path])
    assert (len(report.conversations), report.skipped_files) == (1, 0)
    session = report.conversations[0].session
    [(_, data)] = read_originals(store, session)
    assert data == file.read_bytes()
    assert import_files(store, [path]).unchanged_files == 1


def test_a_named_file_that_grows(store, tmp_path):
    data = FILES[0].read_bytes() if FILES[0].suffix == ".jsonl" else FILES[1].read_bytes()
    path, line = tmp_path / "noext", data.index(b"\n", len(data) // 2) + 1
    path.write_bytes(data[:line])
    import_files(store, [path])
    path.write_bytes(data)
    [conversation] = import_files(store, [path]).conversations
    assert conversation.outcome == "updated"
    [(_, original)] = read_originals(store, conversation.session)
    assert original == data


@pytest.mark.parametrize("is_zip", [False, True])
def test_the_files_of_a_named_folder_or_archive(store, tmp_path, is_zip):
    folder, usual = tmp_path / "all", tmp_path / "usual"
    for number, file in enumerate(FILES):
        for target in (usual / str(number) / file.name, folder / str(number) / file.name.partition(".")[0]):
            target.parent.mkdir(parents=True)
            shutil.copyfile(file, target)
    others = {"notes": b"{odd", "list": b"[1]", "binary": bytes(9000), "empty": b"", "object": b'{"a": 1}'}
    for name, data in others.items():
        (folder / name).write_bytes(data)
    path = folder
    if is_zip:
        path = tmp_path / "all.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.rglob("*")):
                archive.write(file, file.relative_to(folder))
    assert import_files(store, [path]).skipped_files == len(others)
    with recollect.open(tmp_path / "other.db") as other:
        import_files(other, [usual])
        assert sessions(store) == sessions(other)


def test_an_empty_selection_of_sources_reads_nothing(store, tmp_path):
    shutil.copyfile(FILES[0], tmp_path / "noext")
    report = import_files(store, [tmp_path / "noext"], ImportOptions(sources=["opencode"]))
    assert (report.conversations, report.skipped_files) == ((), 1)
