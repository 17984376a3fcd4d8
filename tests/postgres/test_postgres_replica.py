"""Reads on a real replica: a store reads what it wrote, whatever the replica does."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

import recollect
from postgres_server import PostgresServer


def said(text):
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def servers():
    first = PostgresServer("fsync=off", "shared_buffers=16MB").start()
    with psycopg.connect(first.url("postgres"), autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("CREATE DATABASE talks OWNER plain")
    recollect.open(first.url("talks", "plain")).close()
    replica = PostgresServer("fsync=off", "shared_buffers=16MB", source=first).start()
    try:
        yield first, replica
    finally:
        replica.remove()
        first.remove()


@pytest.fixture
def url(servers):
    return servers[0].url("talks", "plain", replica=f"127.0.0.1:{servers[1].port}")


def paused(server, pause):
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"SELECT pg_wal_replay_{'pause' if pause else 'resume'}()")
        until = time.monotonic() + 60
        while admin.execute("SELECT pg_get_wal_replay_pause_state()").fetchone()[0] != (
            "paused" if pause else "not paused"
        ):
            assert time.monotonic() < until
            time.sleep(0.02)


def eventually(there):
    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


def replica_reads(store, monkeypatch):
    """Count what is read on the replica."""
    found = []
    replica = store._engine._server._replica
    done = replica._done
    monkeypatch.setattr(replica, "_done", lambda work: found.append(1) or done(work))
    return found


def test_a_store_reads_what_it_wrote(servers, url):
    with recollect.open(url) as store:
        session = store.session("own")
        for number in range(60):
            session.append(said(f"heron {number}"))
            assert session.messages()[-1].text == f"heron {number}"
            assert store.get_session("own").message_count == number + 1
        assert len(store.search("heron", 100)) == 60


def test_what_is_read_goes_there(servers, url, monkeypatch):
    with recollect.open(url) as store:
        store.session("there").append(said("x"))
        eventually(lambda: settled(store, "there"))
        reads = replica_reads(store, monkeypatch)
        for _ in range(5):
            assert store.get_session("there").message_count == 1
        assert len(reads) == 5


def settled(store, id):
    """Read something, and say whether the replica is known to have all that the store wrote."""
    store.get_session(id)
    replica = store._engine._server._replica
    return replica._reached == replica._writes


def test_a_replica_that_stands_still(servers, url):
    with recollect.open(url) as store, recollect.open(url) as other:
        store.session("still").append(said("before"))
        eventually(lambda: len(other.session("still", create=False).messages()) == 1)
        eventually(lambda: settled(other, "still"))
        paused(servers[1], pause=True)
        try:
            session = store.get_session("still")
            session.append(said("after"))
            assert [message.text for message in session.messages()] == ["before", "after"]
            assert other.get_session("still").message_count == 1  # what another wrote may be missing, and is here
        finally:
            paused(servers[1], pause=False)
        eventually(lambda: other.get_session("still").message_count == 2)


def test_a_replica_that_is_gone(servers, url):
    with recollect.open(url) as store:
        session = store.session("gone")
        session.append(said("x"))
        servers[1].kill()
        try:
            for number in range(5):
                session.append(said(f"{number}"))
                assert len(session.messages()) == number + 2
        finally:
            servers[1].start()
        assert len(session.messages()) == 6


def test_a_server_that_does_not_follow_is_never_read(servers, postgres, databases):
    port = psycopg.conninfo.conninfo_to_dict(postgres)["port"]
    with recollect.open(servers[0].url("talks", "plain", replica=f"127.0.0.1:{port}")) as store:
        store.session("here").append(said("x"))
        for _ in range(3):
            assert len(store.get_session("here").messages()) == 1


def test_under_asyncio_and_for_an_owner(url):
    async def story():
        async with recollect.open_async(url, owner="ann") as store:
            session = await store.session("own")
            for number in range(30):
                await session.append(said(str(number)))
                assert len(await session.messages()) == number + 1
            found = await asyncio.gather(*(store.get_session("own") for _ in range(20)))
            assert {each.message_count for each in found} == {30}
        async with recollect.open_async(url) as store:
            assert await store.get_session("own") is None or (await store.get_session("own")).message_count == 60

    asyncio.run(story())


def test_a_replica_by_itself(servers, url):
    with recollect.open(url) as store:
        store.session("alone").append(said("heron"))
        store.search("heron")
    with recollect.open(servers[1].url("talks", "plain")) as there:
        eventually(lambda: there.get_session("alone") is not None and there.search("heron", session="alone"))
        with pytest.raises(recollect.StoreReadOnly):
            there.session("alone").append(said("y"))
