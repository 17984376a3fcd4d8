"""Text that is erased from a message leaves the original bytes, the states of imports, and the files of the database."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

import recollect
from recollect.export.pipeline import run_operation, scope_of
from recollect.sources import registry
from recollect.storage import imports
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import toy_source
from toy_source import ToySource, chain, lines

START = {"start": "a", "cwd": "/work"}


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    source = ToySource()
    monkeypatch.setattr(registry, "get_source", lambda name: source)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    location = tmp_path / "r.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    with recollect.open(location, owner="ann") as store:
        yield store


def run(store, *paths, **options):
    return import_files(store, paths, ImportOptions(sources=["toy"], **options))


def test_bytes_and_states_do_not_remember_erased_text(tmp_path):
    state = toy_source.ToyReader.state
    toy_source.ToyReader.state = lambda self: {**state(self), "last": "the SEKRET"}  # as real readers do
    try:
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", f"the SEKRET {os.urandom(3000).hex()}"), {"title": "the SEKRET"}))
        with recollect.open(tmp_path / "r.db") as store:
            run(store, file)
            rows = run_operation(store, imports.read_chunks(scope_of(store), "toy:a", "", "", 10))
            chunk = rows[0][1]
            session = store.get_session("toy:a")
            session.update(title="other")
            session.replace_message(2, {"role": "user", "content": "gone"}, erase=True)
            for again in (False, True):
                with file.open("ab") as stream:
                    stream.write(b"\n")
                run(store, file, again=again)
                assert store.get_session("toy:a").title == "other"
            for path in tmp_path.glob("r.db*"):
                data = path.read_bytes()
                assert b"SEKRET" not in data
                assert not any(chunk[start : start + 64] in data for start in range(32, len(chunk) - 64, 64))
    finally:
        toy_source.ToyReader.state = state


@pytest.mark.parametrize("kind", ["replace", "erase"])
def test_the_original_of_a_parent_that_has_an_erased_message(store, tmp_path, kind):
    file = tmp_path / "a.jsonl"
    sub = {"id": "k", "text": "secret", "session": "toy:a:agent:1"}
    file.write_bytes(lines(START, *chain("one"), {"child": "toy:a:agent:1"}, sub))
    run(store, file)
    child = store.get_session("toy:a:agent:1")
    with pytest.raises(recollect.NotFound, match=r"part of the one of 'toy:a'"):
        read_originals(store, child.id)
    if kind == "replace":
        child.replace_message(1, {"role": "user", "content": "gone"}, erase=True)
    else:
        store.erase_session(child.id)
    with pytest.raises(recollect.NotFound, match="erased"):
        read_originals(store, "toy:a")
    run(store, file, again=True)
    with pytest.raises(recollect.NotFound, match="erased"):
        read_originals(store, "toy:a")
