"""Liveness and readiness if the store is deleted, stopped or hangs: reported in time and without details."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import httpx
import pytest
from server_harness import wait_for

from postgres_server import PostgresServer, _children
from recollect.errors import StoreUnavailable
from recollect.server.account import Accounts
from recollect.server.api import health as module
from recollect.server.api.health import STORE_TIMEOUT, Readiness

SLACK = 10.0  # seconds that a busy machine may need in addition


def readiness_of(server):
    """Return status and body of /ready, requested like a load balancer without a token. Fail if it is late."""
    start = time.monotonic()
    answer = httpx.get(f"{server.url}/api/v1/ready", timeout=60)
    assert time.monotonic() - start < STORE_TIMEOUT + SLACK
    return answer.status_code, answer.json()


def is_alive(server):
    return httpx.get(f"{server.url}/api/v1/health", timeout=60).status_code == 200


def test_a_server_is_ready_until_its_file_is_deleted(server, tmp_path):
    assert readiness_of(server) == (200, {"status": "ready"})
    for name in ("r.db", "r.db-wal", "r.db-shm"):
        os.unlink(tmp_path / name)
    wait_for(lambda: readiness_of(server)[0] == 503)
    _, problem = readiness_of(server)
    assert (problem["code"], problem["fields"]) == ("not-ready", {"reason": "store-unavailable"})
    assert str(tmp_path) not in str(problem)
    assert is_alive(server)


@pytest.fixture
def own_postgres():
    server = PostgresServer("fsync=off", "shared_buffers=16MB").start()
    yield server
    server.remove()


def test_a_server_is_not_ready_while_its_database_is_stopped(start_process, own_postgres):
    url = own_postgres.url("postgres")
    server = start_process("--port", "0", RECOLLECT_DB=url).wait_until_up()
    wait_for(lambda: readiness_of(server)[0] == 200)
    own_postgres.stop()
    wait_for(lambda: readiness_of(server)[0] == 503)
    for _ in range(3):
        _, problem = readiness_of(server)
        assert problem["code"] == "not-ready"
        assert problem["fields"]["reason"] in ("store-unavailable", "store-timeout")
        assert str(own_postgres.port) not in str(problem)
    assert is_alive(server)
    own_postgres.start()
    wait_for(lambda: readiness_of(server)[0] == 200)
    server.end()
    output = server.remaining_output()
    assert output.count("The server is not ready: ") == 1
    assert output.count("The server is ready again") == 1
    assert "Traceback" not in output


def test_readiness_is_reported_in_time_if_the_database_hangs(start_process, own_postgres):
    server = start_process("--port", "0", RECOLLECT_DB=own_postgres.url("postgres")).wait_until_up()
    wait_for(lambda: readiness_of(server)[0] == 200)
    pids = [*_children(own_postgres.process.pid), own_postgres.process.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: readiness_of(server)[0] == 503)
        assert readiness_of(server)[1]["fields"]["reason"] in ("store-timeout", "store-unavailable")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: readiness_of(server)[0] == 200)


class CountingStore:
    """A store that counts its reads, and fails or hangs on request."""

    def __init__(self):
        self.reads, self.error, self.gate = 0, None, asyncio.Event()
        self.gate.set()

    @property
    def records(self):
        return self

    async def get(self, kind, key):
        self.reads += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error


class FakeAccount:
    def __init__(self, store):
        self.store = store


def test_concurrent_readiness_requests_read_the_store_once(monkeypatch):
    monkeypatch.setattr(module, "STORE_TIMEOUT", 0.05)

    async def scenario():
        accounts, store = Accounts(None, None), CountingStore()
        accounts._open[""] = FakeAccount(store)
        readiness = Readiness(accounts, "")
        assert await asyncio.gather(*(readiness.reason() for _ in range(100))) == [None] * 100
        assert store.reads == 1
        store.gate.clear()
        for _ in range(3):  # the pending read is awaited again; a second one is not started
            readiness._until = 0.0
            assert set(await asyncio.gather(*(readiness.reason() for _ in range(100)))) == {"store-timeout"}
        assert store.reads == 2
        store.gate.set()
        store.error = StoreUnavailable("the host of the secret database")  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.wait([readiness._reading])
        readiness._until = 0.0
        assert await readiness.reason() == "store-unavailable"
        accounts.closing.set()
        assert await readiness.reason() == "server-stopping"
        await readiness.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
