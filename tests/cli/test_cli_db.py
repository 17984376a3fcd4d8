"""`recollect db`: where the database is, and that it is up to date."""

from __future__ import annotations

import json
import os

import pytest

import recollect


def test_the_environment(call, path):
    assert call("db", "path").stdout == path + "\n"
    assert not os.path.exists(path)
    assert json.loads(call("db", "path", "--json").stdout) == {"path": path, "exists": False}
    recollect.open(path).close()
    assert json.loads(call("db", "path", "--json").stdout) == {"path": path, "exists": True}


def test_the_default(call, tmp_path):
    shown = call("db", "path", RECOLLECT_DB="", XDG_DATA_HOME=str(tmp_path / "data")).stdout
    assert shown == str(tmp_path / "data" / "recollect" / "recollect.db") + "\n"


def test_memory(call):
    assert call("--db", ":memory:", "db", "path").stdout == ":memory:\n"


def test_migrate_makes_and_updates_and_says_so(call, path):
    assert "up to date" in call("db", "migrate").stderr
    assert os.path.exists(path)
    assert json.loads(call("db", "migrate", "--json").stdout)["path"] == path


@pytest.mark.parametrize("command", ["check", "stats", "reindex", "optimize", "backup"])
def test_a_database_that_is_not_there_is_neither_sound_nor_made(call, path, tmp_path, command):
    more = [str(tmp_path / "copy.db")] if command == "backup" else []
    shown = call("db", command, *more, code=3)
    assert f"There is no database at {path} to " in shown.stderr
    assert shown.stdout == ""
    assert os.listdir(tmp_path) == []
