"""docs/http-api.md: its examples run, and every code of an error is in its table."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from docs_pages import ARROW, ROOT, blocks, run, section

from recollect import errors
from recollect.agent.events import Event
from recollect.server.problem import code_of, status_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "server"))

PAGE = "docs/http-api.md"


def kinds(kind=errors.RecollectError):
    for found in kind.__subclasses__():
        if found.__module__ == "recollect.errors":
            yield found
            yield from kinds(found)


@pytest.mark.parametrize("kind", sorted(set(kinds()), key=lambda kind: kind.__name__))
def test_every_code_is_in_the_table_beside_its_status(kind):
    error = kind("x")
    rows = [row for row in section(PAGE, "Errors").text.splitlines() if f"`{code_of(error)}`" in row]
    assert len(rows) == 1
    assert str(status_of(error)) in rows[0]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Start `recollect serve` as a reader does, and say where it is."""
    from running import Command

    command = Command(tmp_path_factory.mktemp("serve"))
    try:
        command.wait_until_up()
        yield {"API": f"{command.url}/api/v1", "TOKEN": command.token}
    finally:
        command.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_examples_run(environment, tmp_path):
    (example,) = blocks(PAGE, "bash")
    failing = 'curl() { command curl --fail-with-body "$@"; }\n'  # what a reader is to see, a test must stumble over
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", failing + example.text], env={**os.environ, **environment}, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "turn_ended" in done.stdout
    assert '"created":[]' in done.stdout


def test_the_examples_in_python_run(environment, monkeypatch):
    monkeypatch.setenv("API", environment["API"])
    monkeypatch.setenv("TOKEN", environment["TOKEN"])
    (example,) = blocks(PAGE)
    assert run(PAGE, example, {"__name__": "example"}) == example.text.count(ARROW) == 3


def test_every_event_of_a_talk_is_in_the_table():
    rows = section(PAGE, "Event streams").text
    assert [
        name for name in (kind.__struct_config__.tag for kind in Event.__subclasses__()) if f"`{name}`" not in rows
    ] == []


def test_the_description_is_beside_it():
    assert (ROOT / "docs" / "openapi.json").is_file()
