"""A server for a team: many owners share the connections to a PostgreSQL server that allows fewer."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import psycopg
import pytest
from server_harness import LIMIT

from postgres_server import PostgresServer

OWNERS = 150  # people: more than the server has connections
MAX_CONNECTIONS = 100  # the default of PostgreSQL
SERVER_CONNECTIONS = 12  # the pool of 10, the one that listens, and one that ends


@pytest.fixture(scope="module")
def own_postgres():
    server = PostgresServer("fsync=off", "shared_buffers=16MB", f"max_connections={MAX_CONNECTIONS}").start()
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("CREATE DATABASE chats OWNER plain")
    yield server
    server.remove()


def token_of(number):
    return f"token-of-owner-{number:03}-{'0123456789' * 3}"


@pytest.fixture
def team_server(own_postgres, start_process, tmp_path):
    lines = [f'owner{number} = "{token_of(number)}"' for number in range(OWNERS)]
    config = tmp_path / "team.toml"
    config.write_text("\n".join(["[model]", 'name = "demo"', "[server.owners]", *lines]))
    config.chmod(0o600)
    url = own_postgres.url("chats", "plain")
    return start_process("--port", "0", RECOLLECT_DB=url, RECOLLECT_CONFIG=str(config)).wait_until_up()


def connection_count(postgres):
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as admin:
        count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'plain'"
        row = admin.execute(count).fetchone()
        assert row is not None
        return row[0]


class Owner:
    """A person of the team with a browser and a program."""

    def __init__(self, server, number):
        self.number = number
        self.server = server
        headers = {"Authorization": f"Bearer {token_of(number)}"}
        self.client = httpx.AsyncClient(base_url=f"{server.url}/api/v1", headers=headers, timeout=LIMIT)

    async def log_in(self):
        async with httpx.AsyncClient(base_url=self.server.url, timeout=LIMIT) as browser:
            origin = {"Origin": self.server.url}
            answer = await browser.post("/login", data={"token": token_of(self.number)}, headers=origin)
            assert answer.status_code == 303, answer.text
            page = await browser.get("/", follow_redirects=True)
            assert page.status_code == 200, page.text

    async def use(self, all_are_listening):
        """Open an event stream, wait until all owners have one, then write, and receive the change."""
        async with self.client.stream("GET", "/changes", headers={"Accept": "text/event-stream"}) as stream:
            assert stream.status_code == 200
            lines = stream.aiter_lines()
            await self.next_event(lines, "ready")
            await all_are_listening.wait()
            text = f"from {self.number}"
            created = await self.client.put("/sessions/shared-id", json={"title": text})
            assert created.status_code in (200, 201), created.text
            message = {"messages": {"role": "user", "content": text}}
            appended = await self.client.post("/sessions/shared-id/messages", json=message)
            assert appended.status_code in (200, 201), appended.text
            while (await self.next_event(lines, "change"))["session"] != "shared-id":
                pass
            await self.check(text)

    async def next_event(self, lines, name):
        event = None
        async with asyncio.timeout(LIMIT):
            async for line in lines:
                field, _, value = line.partition(": ")
                if field == "event":
                    event = value
                elif field == "data" and event == name:
                    return json.loads(value)
        raise AssertionError(f"The stream of owner {self.number} ended.")

    async def check(self, text):
        """Check that the owner has exactly the own session."""
        sessions = (await self.client.get("/sessions")).json()["sessions"]
        assert text in [session["title"] for session in sessions]
        assert not [session for session in sessions if session["id"] == "shared-id" and session["title"] != text]
        messages = (await self.client.get("/sessions/shared-id/messages")).json()["messages"]
        assert [message["parts"][0]["text"] for message in messages] == [text]


def test_more_owners_than_the_database_has_connections(team_server, own_postgres):
    """Every owner logs in, lists, appends, and has an event stream open at the same time."""

    async def use_all():
        owners = [Owner(team_server, number) for number in range(OWNERS)]
        all_are_listening = asyncio.Barrier(OWNERS)
        counts = []

        async def watch_connections():
            while True:
                counts.append(await asyncio.to_thread(connection_count, own_postgres))
                await asyncio.sleep(0.1)

        watcher = asyncio.create_task(watch_connections())
        try:
            await asyncio.gather(*(owner.log_in() for owner in owners))
            await asyncio.gather(*(owner.use(all_are_listening) for owner in owners))
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await asyncio.gather(*(owner.client.aclose() for owner in owners))
        return max(counts)

    assert asyncio.run(use_all()) <= SERVER_CONNECTIONS
    with psycopg.connect(own_postgres.url("chats"), autocommit=True) as admin:
        counts = admin.execute("SELECT owner, count(*) FROM recollect.messages GROUP BY owner").fetchall()
    assert sorted(counts) == sorted((f"owner{number}", 1) for number in range(OWNERS))
