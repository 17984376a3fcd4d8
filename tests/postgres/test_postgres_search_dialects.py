"""Each engine compiles its own search: which modules are loaded, and which expressions are built."""

from __future__ import annotations

import subprocess
import sys

import pytest

import recollect
from recollect.engine.postgres import search as postgres_search
from recollect.engine.sqlite import search as sqlite_search
from recollect_conformance.examples import user

PROGRAM = """
import sys
import recollect

def find_loaded():
    names = ("storage.search", "engine.sqlite.search", "engine.postgres.search")
    return [name for name in names if f"recollect.{{name}}" in sys.modules]

with recollect.open({path!r}) as store:
    store.session("a").append({{"role": "user", "content": "hello"}})
    store.list_sessions()
    print(find_loaded())
    store.search("hello")
    print(find_loaded())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request):
    return request.param


@pytest.fixture
def path(engine, request, tmp_path):
    """Return the location of an empty database of the engine."""
    return str(tmp_path / "recollect.db") if engine == "sqlite" else request.getfixturevalue("postgres")


def test_only_a_search_loads_the_search_of_its_engine(engine, path):
    program = PROGRAM.format(path=path)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.splitlines() == ["[]", f"['storage.search', 'engine.{engine}.search']"]


def test_no_engine_builds_expressions_of_the_other(engine, path, monkeypatch):
    """Run every step of search: indexing, all stages and filters, removing, clearing and checking."""
    if engine == "sqlite":
        monkeypatch.delattr(postgres_search, "TsqueryCompiler")
    else:
        monkeypatch.delattr(sqlite_search, "Fts5Compiler")
    with recollect.open(path) as store:
        store.session("a", title="A heron").append([user(f"heron {number}") for number in range(5)])
        store.session("b").append(user("the nest of a heron"))
        assert len(store.search('heron OR "a stork" -crane role:user')) == 6
        assert len(store.search("ero")) == 7
        store.erase_session("b")
        assert store.maintenance.reindex() == 5
        assert store.maintenance.check(repair=True).problems == ()
        assert len(store.search("heron")) == 6
