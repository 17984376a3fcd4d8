"""Liveness and readiness: the store is removed, stopped or hangs, and the server says so in time, without details."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import httpx
import pytest
from running import wait_for

from postgres_server import PostgresServer, _children
from recollect.errors import StoreUnavailable
from recollect.server import readiness as module
from recollect.server.account import Accounts
from recollect.server.readiness import PATIENCE, Readiness

SLACK = 10.0  # seconds that a busy machine may take on top


def state(server):
    """Ask as a load balancer does, without a token. Return the status, the body, and whether it came in time."""
    begun = time.monotonic()
    answer = httpx.get(f"{server.url}/api/v1/ready", timeout=60)
    assert time.monotonic() - begun < PATIENCE + SLACK
    return answer.status_code, answer.json()


def alive(server):
    return httpx.get(f"{server.url}/api/v1/health", timeout=60).status_code == 200


def test_a_server_is_ready_until_its_file_is_gone(server, tmp_path):
    assert state(server) == (200, {"status": "ready"})
    for name in ("r.db", "r.db-wal", "r.db-shm"):
        os.unlink(tmp_path / name)
    wait_for(lambda: state(server)[0] == 503)
    _, told = state(server)
    assert (told["code"], told["fields"]) == ("not-ready", {"reason": "store-unavailable"})
    assert str(tmp_path) not in str(told)
    assert alive(server)


@pytest.fixture
def own_postgres():
    server = PostgresServer("fsync=off", "shared_buffers=16MB").start()
    yield server
    server.remove()


def test_a_server_whose_database_is_stopped_is_not_ready_and_comes_back(command, own_postgres):
    url = own_postgres.url("postgres")
    server = command("--port", "0", RECOLLECT_DB=url).wait_until_up()
    wait_for(lambda: state(server)[0] == 200)
    own_postgres.stop()
    wait_for(lambda: state(server)[0] == 503)
    for _ in range(3):
        _, told = state(server)
        assert told["code"] == "not-ready"
        assert told["fields"]["reason"] in ("store-unavailable", "store-timeout")
        assert str(own_postgres.port) not in str(told)
    assert alive(server)
    own_postgres.start()
    wait_for(lambda: state(server)[0] == 200)
    server.end()
    logged = server.rest()
    assert logged.count("The server is not ready: ") == 1
    assert logged.count("The server is ready again") == 1
    assert "Traceback" not in logged


def test_a_database_that_hangs_is_answered_for_in_time(command, own_postgres):
    server = command("--port", "0", RECOLLECT_DB=own_postgres.url("postgres")).wait_until_up()
    wait_for(lambda: state(server)[0] == 200)
    stopped = [*_children(own_postgres.process.pid), own_postgres.process.pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: state(server)[0] == 503)
        assert state(server)[1]["fields"]["reason"] in ("store-timeout", "store-unavailable")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: state(server)[0] == 200)


class CountingStore:
    """A store that counts its reads, and fails or hangs on request."""

    def __init__(self):
        self.reads, self.error, self.gate = 0, None, asyncio.Event()
        self.gate.set()

    async def setting(self, name):
        self.reads += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error


class StandIn:
    def __init__(self, store):
        self.store = store


def test_asking_often_reads_once(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)

    async def story():
        accounts, store = Accounts(None, None), CountingStore()
        accounts._open[""] = StandIn(store)
        readiness = Readiness(accounts, "")
        assert await asyncio.gather(*(readiness.reason() for _ in range(100))) == [None] * 100
        assert store.reads == 1
        store.gate.clear()
        for _ in range(3):  # a read that hangs is waited for again, and none is begun beside it
            readiness._until = 0.0
            assert set(await asyncio.gather(*(readiness.reason() for _ in range(100)))) == {"store-timeout"}
        assert store.reads == 2
        store.gate.set()
        store.error = StoreUnavailable("the host of the secret database")
        await asyncio.wait([readiness._reading])
        readiness._until = 0.0
        assert await readiness.reason() == "store-unavailable"
        accounts.closing.set()
        assert await readiness.reason() == "server-stopping"
        await readiness.close()

    asyncio.run(asyncio.wait_for(story(), 60))
