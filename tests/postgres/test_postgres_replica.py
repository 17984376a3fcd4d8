"""Reads on a replica: a store always reads its own writes."""

from __future__ import annotations

import asyncio
import time

import psycopg
import psycopg.conninfo
import pytest

import recollect
from postgres_server import PostgresServer


def user_message(text):
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def servers():
    primary = PostgresServer("fsync=off", "shared_buffers=16MB").start()
    with psycopg.connect(primary.url("postgres"), autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("CREATE DATABASE chats OWNER plain")
    recollect.open(primary.url("chats", "plain")).close()
    replica = PostgresServer("fsync=off", "shared_buffers=16MB", source=primary).start()
    try:
        yield primary, replica
    finally:
        replica.remove()
        primary.remove()


@pytest.fixture
def url(servers):
    return servers[0].url("chats", "plain", replica=f"127.0.0.1:{servers[1].port}")


def set_replay_paused(server, pause):
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"SELECT pg_wal_replay_{'pause' if pause else 'resume'}()")
        deadline = time.monotonic() + 60
        while admin.execute("SELECT pg_get_wal_replay_pause_state()").fetchone()[0] != (
            "paused" if pause else "not paused"
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def replica_reads(store, monkeypatch):
    """Record the reads on the replica."""
    reads = []
    replica = store._engine._server._replica
    run = replica._run
    monkeypatch.setattr(replica, "_run", lambda work: reads.append(1) or run(work))
    return reads


def test_a_store_reads_its_own_writes(servers, url):
    with recollect.open(url) as store:
        session = store.session("own")
        for number in range(60):
            session.append(user_message(f"heron {number}"))
            assert session.messages()[-1].text == f"heron {number}"
            assert store.get_session("own").message_count == number + 1
        assert len(store.search("heron", 100)) == 60


def test_reads_use_a_replica_that_has_caught_up(servers, url, monkeypatch):
    with recollect.open(url) as store:
        store.session("there").append(user_message("x"))
        wait_until(lambda: has_caught_up(store, "there"))
        reads = replica_reads(store, monkeypatch)
        for _ in range(5):
            assert store.get_session("there").message_count == 1
        assert len(reads) == 5


def has_caught_up(store, id):
    """Read a session, and return whether the replica is known to have every write of the store."""
    store.get_session(id)
    replica = store._engine._server._replica
    return replica._replayed_writes == replica._writes


def test_a_replica_that_lags_is_not_read_after_a_write(servers, url):
    with recollect.open(url) as store, recollect.open(url) as other:
        store.session("still").append(user_message("before"))
        wait_until(lambda: len(other.session("still", create=False).messages()) == 1)
        wait_until(lambda: has_caught_up(other, "still"))
        set_replay_paused(servers[1], pause=True)
        try:
            session = store.get_session("still")
            session.append(user_message("after"))
            assert [message.text for message in session.messages()] == ["before", "after"]
            # A write of another store may be missing, and is missing here.
            assert other.get_session("still").message_count == 1
        finally:
            set_replay_paused(servers[1], pause=False)
        wait_until(lambda: other.get_session("still").message_count == 2)


def test_the_primary_answers_if_the_replica_is_down(servers, url):
    with recollect.open(url) as store:
        session = store.session("gone")
        session.append(user_message("x"))
        servers[1].kill()
        try:
            for number in range(5):
                session.append(user_message(f"{number}"))
                assert len(session.messages()) == number + 2
        finally:
            servers[1].start()
        assert len(session.messages()) == 6


def test_a_server_of_another_cluster_is_not_read(servers, postgres, databases):
    port = psycopg.conninfo.conninfo_to_dict(postgres)["port"]
    with recollect.open(servers[0].url("chats", "plain", replica=f"127.0.0.1:{port}")) as store:
        store.session("here").append(user_message("x"))
        for _ in range(3):
            assert len(store.get_session("here").messages()) == 1


def test_an_async_store_with_an_owner_reads_its_own_writes(url):
    async def write_and_read():
        async with recollect.open_async(url, owner="ann") as store:
            session = await store.session("own")
            for number in range(30):
                await session.append(user_message(str(number)))
                assert len(await session.messages()) == number + 1
            copies = await asyncio.gather(*(store.get_session("own") for _ in range(20)))
            assert {copy.message_count for copy in copies} == {30}
        async with recollect.open_async(url) as store:
            assert await store.get_session("own") is None or (await store.get_session("own")).message_count == 60

    asyncio.run(write_and_read())


def test_a_store_on_a_replica_only_reads(servers, url):
    with recollect.open(url) as store:
        store.session("alone").append(user_message("heron"))
        store.search("heron")
    with recollect.open(servers[1].url("chats", "plain")) as replica_store:
        wait_until(
            lambda: replica_store.get_session("alone") is not None and replica_store.search("heron", session="alone")
        )
        with pytest.raises(recollect.errors.StoreReadOnly):
            replica_store.session("alone").append(user_message("y"))


def test_a_session_that_the_replica_does_not_have_yet_is_opened_on_the_primary(servers, url):
    """Another process created it: the replica lags behind that one, and answers the reads of this store."""
    with recollect.open(url) as store, recollect.open(servers[0].url("chats", "plain")) as other:
        store.session("there")
        wait_until(lambda: has_caught_up(store, "there"))
        set_replay_paused(servers[1], pause=True)
        try:
            for create in (False, True):
                id = f"new {create}"
                other.session(id, title="T")
                assert store.get_session(id) is None
                session = store.session(id, title="other") if create else store.session(id, create=False)
                assert session.title == "T"
                with pytest.raises(recollect.SessionNotFound):
                    store.session("missing", create=False)
        finally:
            set_replay_paused(servers[1], pause=False)


def test_owners_of_one_store_read_on_the_replica(servers, url, monkeypatch):
    with recollect.open(url) as store:
        views = {name: store.as_owner(name) for name in ("ann", "bob", "")}
        for name, view in views.items():
            view.session("shared").append(user_message(f"{name} writes"))
            assert view.session("shared").messages()[-1].text == f"{name} writes"  # its own write
            view.maintenance.index()  # a search would write the index, and the next read would be on the primary server
        wait_until(lambda: has_caught_up(store, "shared"))
        reads = replica_reads(store, monkeypatch)
        for name, view in views.items():
            assert [message.text for message in view.session("shared").messages()] == [f"{name} writes"]
            assert [hit.session for hit in view.search(f"{name} writes")] == ["shared"]
        assert len(reads) >= 6
        views["ann"].erase_session("shared")
        assert views["ann"].get_session("shared") is None
        assert views["bob"].get_session("shared") is not None


def test_owners_watch_on_a_replica(servers):
    """It accepts no LISTEN; the watches of all owners poll."""
    with (
        recollect.open(servers[0].url("chats", "plain")) as writer,
        recollect.open(servers[1].url("chats", "plain")) as store,
    ):
        names = ("ann", "bob")
        watches = [store.as_owner(name).watch(timeout=30) for name in names]
        for name, watch in zip(names, watches, strict=True):
            session = writer.as_owner(name).session(f"watched by {name}")
            session.append(user_message("x"))
            assert next(change for change in watch if change.revision == session.revision).session == session.id
            watch.close()
