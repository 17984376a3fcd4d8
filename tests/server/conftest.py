"""Servers for the tests, each with a database of its own."""

from __future__ import annotations

import pytest
from running import Command, Server


@pytest.fixture
def serving(tmp_path):
    """Start servers in threads; each ends with the test."""
    started = []

    def start(place=None, **options):
        started.append(Server(place or tmp_path / "r.db", **options))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(serving):
    return serving()


@pytest.fixture
def api(server):
    """A client of the API, with the token."""
    with server.client() as client:
        yield client


@pytest.fixture
def session(api):
    """The address of a session that is there, relative to the API."""
    assert api.put("/sessions/s%2F1").status_code == 200
    return "/sessions/s%2F1"


@pytest.fixture
def command(tmp_path):
    """Start `recollect serve`; each ends with the test."""
    started = []

    def start(*arguments, **environment):
        started.append(Command(tmp_path, *arguments, **environment))
        return started[-1]

    start.started = started
    yield start
    for item in started:
        item.close()
