"""The complete suite on an engine that another distribution registers as an entry point."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
from importlib.metadata import entry_points

import pytest

import recollect
from recollect import sql
from recollect.engine import registry
from recollect.errors import InvalidValue, NotFound, NotSupported
from recollect_conformance import suite
from recollect_conformance.database import DatabaseUnderTest

globals().update(suite.classes())

DISTRIBUTION = pathlib.Path(__file__).parent / "other_engine"


@pytest.fixture(autouse=True)
def _distribution():
    """Install the distribution: put the folder with its module and its metadata on the path."""
    sys.path.append(str(DISTRIBUTION))
    importlib.invalidate_caches()
    yield
    sys.path.remove(str(DISTRIBUTION))


@pytest.fixture
def database(connect, tmp_path, long):
    url = f"steps://{tmp_path}/sessions.db"
    with DatabaseUnderTest(lambda owner: connect(url, owner), thorough=long) as database:
        yield database
        database.verify()


def test_the_store_runs_on_the_registered_engine(tmp_path):
    with recollect.open(f"steps://{tmp_path}/sessions.db") as store:
        assert type(store._engine).__name__ == "StepsEngine"
        store.session("a").append({"role": "user", "content": "hello"})
    with recollect.open(tmp_path / "sessions.db") as store:
        assert [message.text for message in store.session("a").messages()] == ["hello"]


def test_the_command_line_works_on_the_registered_engine(tmp_path, capsys, monkeypatch):
    from recollect.cli import recollect as command
    from recollect.cli.exit_codes import run_command

    def call(*args):
        assert run_command(command, [*args, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RECOLLECT_DB", f"steps://{tmp_path}/sessions.db")
    assert call("db", "path")["exists"] is False
    assert call("sessions", "list")["sessions"] == []
    assert not (tmp_path / "sessions.db").exists()
    assert call("db", "migrate")["schema"] == sql.migrations("sqlite")[-1][0]
    with recollect.open() as store:
        store.session("a").append({"role": "user", "content": "hello"})
    backup = str(tmp_path / "backup.db")
    call("db", "backup", backup)
    with recollect.open() as store:
        store.erase_session("a")
    assert call("db", "restore", backup, "--yes")["kept"]
    assert [session["id"] for session in call("sessions", "list")["sessions"]] == ["a"]


def test_a_store_of_the_registered_engine_is_copied(tmp_path):
    source, target = f"steps://{tmp_path}/sessions.db", tmp_path / "copy.db"
    with pytest.raises(NotFound, match="Check the path of the source"):
        recollect.copy(source, target)
    with recollect.open(source) as store:
        store.session("a").append({"role": "user", "content": "hello"})
    assert recollect.copy(source, target).counts["messages"] == 1


def test_an_engine_that_is_not_installed_is_refused(tmp_path):
    sys.path.remove(str(DISTRIBUTION))
    try:
        with pytest.raises(InvalidValue, match="steps: is not a supported kind of store"):
            recollect.open(f"steps://{tmp_path}/sessions.db")
    finally:
        sys.path.append(str(DISTRIBUTION))


def test_the_built_in_engines_are_the_entry_points_of_recollect():
    engines = {entry.name: entry.value for entry in entry_points(group=registry.GROUP) if entry.name != "steps"}
    assert engines == registry.PROVIDERS


@pytest.mark.parametrize(
    ("module", "reason"),
    [(None, "No module named 'broken_engine'"), ("", "it has no 'files'"), ("import nothing_there", "nothing_there")],
)
def test_an_engine_that_cannot_be_loaded_is_reported_with_its_package(tmp_path, monkeypatch, module, reason):
    metadata = tmp_path / "broken_engine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-engine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{registry.GROUP}]\nbroken = broken_engine\n")
    if module is not None:
        (tmp_path / "broken_engine.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_engine", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(
        NotSupported, match="The engine of broken: URLs cannot be loaded: the package broken-engine"
    ) as info:
        recollect.open("broken://server/database")
    assert reason in str(info.value)


def test_the_scheme_of_a_url_may_have_capital_letters(tmp_path):
    with recollect.open(f"STEPS://{tmp_path}/sessions.db") as store:
        assert store.path == str(tmp_path / "sessions.db")
