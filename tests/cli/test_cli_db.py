"""`recollect db`: the path of the database, its migration, and a missing file."""

from __future__ import annotations

import json
import os

import pytest

import recollect


def test_the_path_from_the_environment(call, path):
    assert call("db", "path").stdout == path + "\n"
    assert not os.path.exists(path)
    assert json.loads(call("db", "path", "--json").stdout) == {"path": path, "exists": False}
    recollect.open(path).close()
    assert json.loads(call("db", "path", "--json").stdout) == {"path": path, "exists": True}


def test_the_default_path(call, tmp_path):
    output = call("db", "path", RECOLLECT_DB="", XDG_DATA_HOME=str(tmp_path / "data")).stdout
    assert output == str(tmp_path / "data" / "recollect" / "recollect.db") + "\n"


def test_the_path_of_a_memory_database(call):
    assert call("--db", ":memory:", "db", "path").stdout == ":memory:\n"


def test_migrate_creates_and_updates_the_database(call, path):
    assert "up to date" in call("db", "migrate").stderr
    assert os.path.exists(path)
    assert json.loads(call("db", "migrate", "--json").stdout)["path"] == path


@pytest.mark.parametrize("command", ["check", "stats", "reindex", "optimize", "backup"])
def test_a_missing_database_is_an_error_and_is_not_created(call, path, tmp_path, command):
    arguments = [str(tmp_path / "copy.db")] if command == "backup" else []
    result = call("db", command, *arguments, code=3)
    assert f"No database exists at {path}; there is nothing to " in result.stderr
    assert result.stdout == ""
    assert os.listdir(tmp_path) == []
