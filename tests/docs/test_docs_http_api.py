"""docs/reference/http-api.md documents every error code and event, and its examples run."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from docs_pages import ARROW, ROOT, find_blocks, find_section, run_example

from recollect import errors
from recollect.agent.events import Event
from recollect.server.problems import code_of, status_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "server"))

PAGE = "docs/reference/http-api.md"


def walk_errors(parent=errors.RecollectError):
    for error in parent.__subclasses__():
        if error.__module__ == "recollect.errors":
            yield error
            yield from walk_errors(error)


@pytest.mark.parametrize("cls", sorted(set(walk_errors()), key=lambda cls: cls.__name__))  # pyright: ignore[reportAttributeAccessIssue]
def test_every_error_code_is_documented_with_its_status(cls):
    error = cls("x")
    rows = [row for row in find_section(PAGE, "Errors").text.splitlines() if f"`{code_of(error)}`" in row]
    assert len(rows) == 1
    assert str(status_of(error)) in rows[0]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Start `recollect serve` and yield the environment variables of the examples."""
    from server_harness import ServeProcess

    process = ServeProcess(tmp_path_factory.mktemp("serve"))
    try:
        process.wait_until_up()
        yield {"API": f"{process.url}/api/v1", "TOKEN": process.token}
    finally:
        process.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_examples_run(environment, tmp_path):
    (example,) = find_blocks(PAGE, "bash")
    failing = (
        'curl() { command curl --fail-with-body "$@"; }\n'  # readers see the body of an error; the test must fail on it
    )
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", failing + example.text], env={**os.environ, **environment}, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    assert "turn_ended" in process.stdout
    assert '"created":[]' in process.stdout


def test_the_python_example_runs(environment, monkeypatch):
    monkeypatch.setenv("API", environment["API"])
    monkeypatch.setenv("TOKEN", environment["TOKEN"])
    (example,) = find_blocks(PAGE)
    assert run_example(PAGE, example, {"__name__": "example"}) == example.text.count(ARROW) == 3


def test_every_event_is_documented():
    rows = find_section(PAGE, "Event streams").text
    assert [
        name for name in (event.__struct_config__.tag for event in Event.__subclasses__()) if f"`{name}`" not in rows
    ] == []


def test_the_openapi_description_exists():
    assert (ROOT / "docs" / "openapi.json").is_file()
