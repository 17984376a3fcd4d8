"""Fixtures for the tests of the integrations: a new database on each engine, and the programs of a page."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Return the URL of a new, empty database: a file, and a database of a real server."""
    if request.param == "sqlite":
        return str(tmp_path / "conversations.db")
    databases = request.getfixturevalue("databases")
    databases.wipe()
    return databases.url_of(databases.common, "plain")


@pytest.fixture
def run_page(tmp_path, monkeypatch):
    """Return a function that runs the Python blocks of a page in order and returns the number of compared values."""
    from docs_pages import ARROW, find_blocks, read_page, run_example

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "page.db"))

    def run(page: str) -> int:
        namespace = {"__name__": "example"}
        count = sum(run_example(page, block, namespace) for block in find_blocks(page))
        assert count == read_page(page).count(ARROW)
        return count

    return run
