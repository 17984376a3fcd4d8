"""The files that belong to a transcript, such as outputs of tools: their bytes are part of its original."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest

import recollect
from recollect.sync import line_files
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

ID = "aaaaaaaa-0000-4000-8000-000000000001"
SESSION = f"claude-code:{ID}"
FOLDER = "tool-results"


def claude(number, content):
    return json.dumps({
        "type": "user", "uuid": f"m{number}", "parentUuid": f"m{number - 1}" if number else None, "sessionId": ID,
        "isSidechain": False, "cwd": "/w", "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "message": {"role": "user", "content": content},
    }).encode() + b"\n"  # fmt: skip


def result(number, name):
    text = f"<persisted-output>\nOutput too large. Full output saved to: /p/{ID}/{FOLDER}/{name}\n\nPreview:\nbegin"
    return claude(number, [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}])


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "projects" / "-w"
    (folder / ID / FOLDER).mkdir(parents=True)
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    location = tmp_path / "r.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    with recollect.open(location, owner="ann") as store:
        yield store
        assert store.maintenance.check().problems == ()


def run(store, path, **options):
    return import_files(store, [path], ImportOptions(sources=["claude-code"], **options))


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def originals(store):
    return {name.replace("/", os.sep): data for name, data in read_originals(store, SESSION)}


@pytest.mark.parametrize("size", [0, 1, 70_000, 1 << 20, (1 << 20) + 1, 4 << 20])
def test_outputs_of_any_size_are_written_again(store, project, size):
    (project / f"{ID}.jsonl").write_bytes(claude(0, "hello") + result(1, "a.txt"))
    (project / ID / FOLDER / "a.txt").write_bytes(os.urandom(size))
    (project / ID / FOLDER / "b.json").write_bytes(b'{"other": "file"}')
    assert run(store, project).conversations[0].outcome == "new"
    assert originals(store) == files_of(project)


def test_outputs_that_change_appear_or_shrink(store, project):
    transcript, output = project / f"{ID}.jsonl", project / ID / FOLDER / "a.txt"
    transcript.write_bytes(claude(0, "hello"))
    output.write_bytes(b"x" * 3_000_000)
    run(store, project)
    for number, data in enumerate([b"short", b"y" * 2_000_000, b""], 1):
        output.write_bytes(data)
        (project / ID / FOLDER / f"{number}.txt").write_text(str(number))
        transcript.write_bytes(transcript.read_bytes() + claude(number, "more"))
        run(store, project)
        assert originals(store) == files_of(project)
    output.write_bytes(b"only the output has changed")
    run(store, project)
    assert originals(store) == files_of(project)
    before = files_of(project)
    output.unlink()
    run(store, project)
    assert originals(store) == before


def test_only_outputs_that_changed_are_read(store, project, monkeypatch):
    transcript = project / f"{ID}.jsonl"
    transcript.write_bytes(claude(0, "hello"))
    for name in "abc":
        (project / ID / FOLDER / f"{name}.txt").write_text(name)
    run(store, project)
    paths = []
    keep = line_files.sidecar_records
    monkeypatch.setattr(
        "recollect.sync.transcript_import.sidecar_records",
        lambda key, path, data: paths.append(path) or keep(key, path, data),
    )
    transcript.write_bytes(transcript.read_bytes() + claude(1, "more"))
    (project / ID / FOLDER / "b.txt").write_text("changed")
    run(store, project)
    assert paths == [f"{ID}/{FOLDER}/b.txt"]


def test_an_output_over_the_limit_is_reported(store, project):
    transcript = project / f"{ID}.jsonl"
    transcript.write_bytes(claude(0, "hello"))
    (project / ID / FOLDER / "a.txt").write_bytes(b"x" * ((4 << 20) + 1))
    [note] = run(store, project).notes
    assert (note.kind, note.first) == ("missing", f"{ID}/{FOLDER}/a.txt")
    assert list(originals(store)) == [transcript.name]


def test_outputs_cost_less_than_their_text_again(tmp_path, project):
    words = [f"{number * 7919 % 10_007:x}" for number in range(60_000)]
    text = " ".join(words)
    (project / f"{ID}.jsonl").write_bytes(claude(0, "hello") + b"".join(result(n, f"{n}.txt") for n in range(1, 9)))
    for number in range(1, 9):
        (project / ID / FOLDER / f"{number}.txt").write_text(f"{number} {text}")
    with recollect.open(tmp_path / "r.db") as store:
        run(store, project, indexes=False)
        store.maintenance.optimize()
    total = sum(len(data) for data in files_of(project).values())
    assert (tmp_path / "r.db").stat().st_size < 1.7 * total


@pytest.mark.parametrize("is_zip", [False, True])
def test_the_command_writes_a_folder_or_an_archive(tmp_path, project, is_zip):
    (project / f"{ID}.jsonl").write_bytes(claude(0, "hello") + result(1, "a.txt"))
    (project / ID / FOLDER / "a.txt").write_bytes(os.urandom(2_000_000))
    with recollect.open(tmp_path / "r.db") as store:
        run(store, project)
    target = tmp_path / ("out.zip" if is_zip else "out")
    command = [sys.executable, "-m", "recollect", "--db", tmp_path / "r.db", "sessions", "export", SESSION]
    subprocess.run([*command, "--format", "native", "-o", target], check=True, capture_output=True, timeout=60)
    if is_zip:
        with zipfile.ZipFile(target) as archive:
            archive.extractall(tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(project)
