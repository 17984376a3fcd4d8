"""Imports that are killed, and imports of the same files at the same time."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys
import threading
import time

import pytest

import recollect
from recollect.sources import registry
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from toy_source import ToySource, chain, lines

FOLDER = pathlib.Path(__file__).parent
PROGRAM = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import recollect
from recollect.sources import registry
from recollect.sync import conversation_batches, importer, transcript_import
from toy_source import ToySource
source = ToySource()
registry.get_source = lambda name: source
transcript_import.MAX_MESSAGES = conversation_batches.MAX_MESSAGES = 5
with recollect.open(sys.argv[2]) as store:
    importer.import_files(store, [pathlib.Path(sys.argv[3])], importer.ImportOptions(sources=["toy"], indexes=False))
"""


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    source = ToySource()
    monkeypatch.setattr(registry, "get_source", lambda name: source)


@pytest.fixture(params=["sqlite", "postgres"])
def location(request, tmp_path):
    return str(tmp_path / "r.db") if request.param == "sqlite" else request.getfixturevalue("postgres")


def write_files(folder):
    """Write conversations of 60 messages with a branch, and a document, and return their texts by session."""
    folder.mkdir()
    contents = {}
    for name in "abcdef":
        texts = [f"{name}{number} " + "x" * 300 for number in range(60)]
        data = lines(
            {"start": name}, *chain(*texts), {"id": "side", "after": "m30", "text": "side"}, {"active": "m59"}
        )  # fmt: skip
        (folder / f"{name}.jsonl").write_bytes(data)
        contents[f"toy:{name}"] = texts
    document = [{"id": f"doc{number}", "items": chain("one", f"two {number}")} for number in range(5)]
    (folder / "export.json").write_text(json.dumps(document))
    contents |= {f"toy:doc{number}": ["one", f"two {number}"] for number in range(5)}
    return contents


def check(location, folder, contents):
    with recollect.open(location) as store:
        import_files(store, [folder], ImportOptions(sources=["toy"]))
        for session, texts in contents.items():
            handle = store.session(session, create=False)
            assert [message.text for message in handle.messages()] == texts
            assert len(handle.branches.list()) == (1 if "doc" in session else 2)
        for name in "abcdef":
            [(_, data)] = read_originals(store, f"toy:{name}")
            assert data == (folder / f"{name}.jsonl").read_bytes()
        assert store.maintenance.check().problems == ()
        assert import_files(store, [folder], ImportOptions(sources=["toy"])).unchanged_files == 7


def test_a_killed_import_continues(location, tmp_path, long):
    folder = tmp_path / "files"
    contents = write_files(folder)
    generator = random.Random(1)
    for _ in range(40 if long else 6):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(FOLDER), location, str(folder)])
        time.sleep(0.15 + generator.random() * 0.4)
        process.kill()
        process.wait()
    check(location, folder, contents)


def test_imports_at_the_same_time_write_each_message_once(location, tmp_path):
    folder = tmp_path / "files"
    contents = write_files(folder)
    errors = []

    def work():
        try:
            with recollect.open(location) as store:
                import_files(store, [folder], ImportOptions(sources=["toy"]))
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    check(location, folder, contents)
