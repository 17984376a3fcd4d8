"""Fixtures for servers, each with a new database."""

from __future__ import annotations

import pytest
from server_harness import ServeProcess, Server


@pytest.fixture
def start_server(tmp_path):
    """Return a function that starts a server in a thread, until the end of the test."""
    started = []

    def start(database=None, **options):
        started.append(Server(database or tmp_path / "r.db", **options))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(start_server):
    return start_server()


@pytest.fixture
def api(server):
    """Return a client of the API with the token."""
    with server.client() as client:
        yield client


@pytest.fixture
def session(api):
    """Create a session and return its path below /api/v1."""
    assert api.put("/sessions/s%2F1").status_code == 200
    return "/sessions/s%2F1"


@pytest.fixture
def start_process(tmp_path):
    """Return a function that starts `recollect serve`, until the end of the test."""
    started = []

    def start(*arguments, **environment):
        started.append(ServeProcess(tmp_path, *arguments, **environment))
        return started[-1]

    start.started = started
    yield start
    for item in started:
        item.close()
