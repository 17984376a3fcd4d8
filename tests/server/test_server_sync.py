"""`recollect serve` with [sync]: conversations of other tools appear in the server while their files grow."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from server_harness import LIMIT, Events, wait_for

FOLDER = pathlib.Path(__file__).parents[1] / "sync"
sys.path.insert(0, str(FOLDER))

from toy_source import chain, lines  # noqa: E402  # pyright: ignore[reportMissingImports]

PATCH = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from recollect.sources import registry
from toy_source import ToySource
registry.NAMES = ("codex",)
registry.get_source = lambda name: ToySource()
"""


@pytest.fixture
def variables(tmp_path):
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(PATCH)
    (tmp_path / ".toy").mkdir()
    return {"PYTHONPATH": str(tmp_path / "patch"), "RECOLLECT_SYNC": "1"}


def write(tmp_path, *items):
    with (tmp_path / ".toy" / "a.jsonl").open("ab") as file:
        file.write(lines(*items))


def test_a_file_that_grows_is_a_change_for_every_client(start_process, variables, tmp_path):
    server = start_process(**variables).wait_until_up()
    with server.client() as api, api.stream("GET", "/changes") as response:
        events = Events(response)
        next(events)
        write(tmp_path, {"start": "a"}, *chain("one"))
        assert next(events)[1]["session"] == "toy:a"
        wait_for(lambda: api.get("/sessions/toy:a").json().get("message_count") == 1)
        write(tmp_path, *chain("two", first=1, after="m0"))
        wait_for(lambda: any(item[1].get("session") == "toy:a" for item in [next(events)]))
        wait_for(lambda: api.get("/sessions/toy:a").json()["message_count"] == 2)
    server.end()
    output = server.remaining_output()
    assert "info Sync follows the files of codex" in output
    assert "info Sync imported 1 message of 1 conversation" in output
    assert "Traceback" not in output
    assert "one" not in [word for line in output.splitlines() for word in line.split()]


def test_nothing_is_read_without_the_setting(start_process, variables, tmp_path):
    write(tmp_path, {"start": "a"}, *chain("one"))
    server = start_process(**{**variables, "RECOLLECT_SYNC": "0"}).wait_until_up()
    with server.client() as api:
        assert api.get("/sessions").json()["sessions"] == []
    server.end()
    assert "Sync" not in server.remaining_output()


def test_a_database_in_memory_is_refused(variables, tmp_path):
    environment = {"HOME": str(tmp_path), "RECOLLECT_DB": ":memory:", **variables}
    process = subprocess.run(
        [sys.executable, "-m", "recollect", "serve", "--port", "0"], capture_output=True, text=True, env=environment,
        timeout=LIMIT, check=False,
    )  # fmt: skip
    assert process.returncode == 1
    assert process.stderr == "recollect: sync.enabled needs a database file or PostgreSQL, got :memory:.\n"
