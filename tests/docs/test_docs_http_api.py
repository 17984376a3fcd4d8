"""docs/http-api.md: its examples run, and every code of an error is in its table."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from docs_pages import ROOT, blocks, section

from recollect import errors
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


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_examples_run(tmp_path):
    from running import TOKEN, Server

    server = Server(tmp_path / "r.db")
    try:
        environment = {**os.environ, "API": f"{server.url}/api/v1", "TOKEN": TOKEN}
        (example,) = blocks(PAGE, "bash")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", example.text], env=environment, cwd=tmp_path, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        server.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "turn_ended" in done.stdout
    assert '"created":[]' in done.stdout


def test_the_description_is_beside_it():
    assert (ROOT / "docs" / "openapi.json").is_file()
