"""A server that takes over from another: writes go on there by themselves, and only what replicas have is acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import psycopg
import psycopg_pool
import pytest
from loopback_proxy import LoopbackProxy
from psycopg.conninfo import conninfo_to_dict

import recollect
from postgres_server import PostgresServer
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.server import Server
from recollect.engine.postgres.transaction import Mark

SMALL = ("fsync=off", "shared_buffers=16MB")


def said(text):
    return {"role": "user", "content": text}


def wait_until(there):
    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def server():
    server = PostgresServer(*SMALL).start()
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("CREATE DATABASE talks")
    yield server
    server.remove()


def several(*servers):
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/talks?target_session_attrs=read-write&connect_timeout=5"


class TestSeveralHosts:
    """A URL that names every server, and which of them is wanted."""

    def test_how_it_is_read(self):
        address = Address("postgresql://app:secret@a,b:6543,c:5433/talks?target_session_attrs=read-write&pool_size=3")
        known = conninfo_to_dict(address.conninfo)
        assert (known["host"], known["port"]) == ("a,b,c", ",6543,5433")
        assert known["target_session_attrs"] == "read-write"
        assert address.pool_size == 3
        assert address.shown == "postgresql://app@a,b:6543,c:5433/talks"

    def test_one_port_for_all(self):
        assert Address("postgresql://a,b/talks?port=6000").shown == "postgresql://a:6000,b:6000/talks"

    def test_several_to_listen_at(self):
        known = conninfo_to_dict(Address("postgresql://pooler:6432/talks?listen=a:5433,b").listening)
        assert (known["host"], known["port"]) == ("a,b", "5433,5432")

    def test_writes_and_watches_go_on_at_the_server_that_takes_over(self, server):
        """The replica is named first, and passed by until it is no longer one."""
        replica = PostgresServer(*SMALL, source=server).start()
        try:
            _wait_for_replica(server, "*")
            done = asyncio.run(_story(server, replica))
            with recollect.open(replica.url("talks")) as store:
                for name, count in done.items():
                    assert [message.text for message in store.get_session(name).messages()] == [
                        str(number) for number in range(count)
                    ]
        finally:
            replica.remove()


def _wait_for_replica(server, names):
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        admin.execute("SELECT pg_reload_conf()")
        wait_until(lambda: admin.execute("SELECT sync_state FROM pg_stat_replication").fetchone() == ("sync",))


async def _story(server, replica):
    done, over = {}, asyncio.Event()

    async def write(store, name):
        session = await store.session(name)
        while not over.is_set():
            await session.append(said(str(done.get(name, 0))))
            done[name] = done.get(name, 0) + 1

    async with recollect.open_async(several(replica, server), timeout=120) as store:
        tasks = [asyncio.create_task(write(store, f"s{number}")) for number in range(4)]
        async with store.watch(timeout=60) as watch:
            while sum(done.values()) < 20:
                await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            with psycopg.connect(replica.url("postgres"), autocommit=True) as admin:
                admin.execute("SELECT pg_promote(true)")
            before = sum(done.values())
            while sum(done.values()) < before + 20:
                await asyncio.sleep(0.01)
            over.set()
            await asyncio.gather(*tasks)
            last = {f"s{number}": (await store.get_session(f"s{number}")).revision for number in range(4)}
            seen = {}
            async for name, revision in watch:  # what the old server had to tell is told by the new one
                seen[name] = revision
                if seen == last:
                    break
    return done


class TestReplicasThatDoNotConfirm:
    """With synchronous replication a commit that stopped waiting is on one disk alone: the server calls it done."""

    @pytest.fixture
    def alone(self, server):
        """A server whose replica never comes, from the moment on that this is called."""

        def leave():
            with psycopg.connect(server.url("talks"), autocommit=True) as admin:
                admin.execute("CREATE TABLE probe (n int)")
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                admin.execute("SELECT pg_reload_conf()")
                heard = []
                admin.add_notice_handler(lambda notice: heard.append(notice.source_function))

                def stuck():
                    cancelling = threading.Timer(0.1, admin.cancel_safe)
                    cancelling.start()
                    with contextlib.suppress(psycopg.errors.QueryCanceled):
                        admin.execute("INSERT INTO probe VALUES (1)")
                    cancelling.join()
                    return heard == ["SyncRepWaitForLSN"]

                wait_until(stuck)

        return leave

    def test_nothing_is_acknowledged(self, server, alone):
        with recollect.open(server.url("talks"), timeout=1.5) as store:
            session = store.session("a")
            session.append(said("first"))
            alone()
            with pytest.raises(recollect.StoreUnavailable, match="may have been stored or not"):
                session.append(said("second"))
            assert len(session.messages()) == 2  # on this server it is there; another that took over would not have it

    def test_nothing_of_a_batch_is_acknowledged(self, server, alone):
        async def story():
            async with recollect.open_async(server.url("talks"), timeout=1.5) as store:
                sessions = [await store.session(f"s{number}") for number in range(5)]
                await asyncio.to_thread(alone)
                work = [session.append(said("x")) for session in sessions]
                results = await asyncio.gather(*work, return_exceptions=True)
                assert {type(result) for result in results} == {recollect.StoreUnavailable}

        asyncio.run(story())

    def test_a_mark_alone_is_no_proof(self, server, alone):
        """A server that was restarted shows what it had committed for itself."""
        recollect.open(server.url("talks")).close()
        engine = Server(server.url("talks"), "", 0.5)
        try:
            with psycopg.connect(server.url("talks")) as link:
                link.execute("INSERT INTO recollect.commits (token, at) VALUES (1, 1)")
            assert engine._settled(Mark(1, 1), time.monotonic() + 30) is not None
            alone()
            with pytest.raises(recollect.StoreUnavailable, match="may have been stored or not"):
                engine._settled(Mark(1, 1), time.monotonic() + 0.5)
        finally:
            engine.close()


def test_a_server_that_is_away_is_asked_again_and_again(postgres, monkeypatch):
    """Not after twice as long each time, so that who waits goes on soon after it is back."""
    port = conninfo_to_dict(postgres)["port"]
    proxy = LoopbackProxy(port)
    delays = []
    schedule = psycopg_pool.ConnectionPool.schedule_task

    def scheduled(pool, task, delay):
        if isinstance(task, psycopg_pool.pool.AddConnection):
            delays.append(delay)
        schedule(pool, task, delay)

    monkeypatch.setattr(psycopg_pool.ConnectionPool, "schedule_task", scheduled)
    try:
        with recollect.open(postgres.replace(f":{port}/", f":{proxy.port}/"), timeout=120) as store:
            session = store.session("a")
            proxy.shut = True
            proxy.cut()
            writing = threading.Thread(target=session.append, args=(said("x"),))
            writing.start()
            wait_until(lambda: len(delays) >= 5)
            proxy.shut = False
            writing.join()
            assert max(delays) < 1.5
            assert [message.text for message in session.messages()] == ["x"]
    finally:
        proxy.close()


def test_marks_are_forgotten_after_an_hour_and_not_looked_through_all_the_time(postgres, monkeypatch):
    from recollect.engine.postgres import server as module

    def marks():
        return {row[0] for row in admin.execute("SELECT token FROM recollect.commits WHERE token < 100")}

    def mark(token, age):
        admin.execute("INSERT INTO recollect.commits (token, at) VALUES (%s, %s)", (token, now - age))

    monkeypatch.setattr(module, "_SWEEP", 3)
    now = time.time_ns() // 1_000_000
    with psycopg.connect(postgres, autocommit=True) as admin, recollect.open(postgres) as store:
        session = store.session("a")
        mark(1, 3_700_000)
        mark(2, 3_000_000)
        store._engine._server._swept = 0  # opening the session may have swept
        for _ in range(4):
            session.append(said("x"))
        assert marks() == {2}
        mark(3, 3_700_000)
        for _ in range(10):
            session.append(said("x"))
        assert marks() == {2, 3}
