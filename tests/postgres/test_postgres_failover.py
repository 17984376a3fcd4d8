"""Failover: writes continue on the new primary, and only commits that the replicas have are acknowledged."""

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
from recollect.engine.postgres.server import DatabaseServer
from recollect.engine.postgres.transactions import CommitToken

SMALL = ("fsync=off", "shared_buffers=16MB")


def user_message(text):
    return {"role": "user", "content": text}


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def server():
    server = PostgresServer(*SMALL).start()
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("CREATE DATABASE chats")
    yield server
    server.remove()


def url_of_servers(*servers):
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/chats?target_session_attrs=read-write&connect_timeout=5"


class TestSeveralHosts:
    """A URL with several hosts."""

    def test_hosts_and_ports_are_parsed(self):
        address = Address("postgresql://app:secret@a,b:6543,c:5433/chats?target_session_attrs=read-write&pool_size=3")
        parameters = conninfo_to_dict(address.conninfo)
        assert (parameters["host"], parameters["port"]) == ("a,b,c", ",6543,5433")
        assert parameters["target_session_attrs"] == "read-write"
        assert address.pool_size == 3
        assert address.display_url == "postgresql://app@a,b:6543,c:5433/chats"

    def test_one_port_applies_to_all_hosts(self):
        assert Address("postgresql://a,b/chats?port=6000").display_url == "postgresql://a:6000,b:6000/chats"

    def test_listen_accepts_several_hosts(self):
        parameters = conninfo_to_dict(Address("postgresql://pooler:6432/chats?listen=a:5433,b").listen_conninfo)
        assert (parameters["host"], parameters["port"]) == ("a,b", "5433,5432")

    def test_writes_and_watches_continue_on_the_promoted_replica(self, server):
        """The replica is the first host and is skipped until it is promoted."""
        replica = PostgresServer(*SMALL, source=server).start()
        try:
            _wait_for_replica(server, "*")
            counts = asyncio.run(_write_through_failover(server, replica))
            with recollect.open(replica.url("chats")) as store:
                for name, count in counts.items():
                    assert [message.text for message in store.get_session(name).messages()] == [
                        str(number) for number in range(count)
                    ]
        finally:
            replica.remove()


def _wait_for_replica(server, names):
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        admin.execute("SELECT pg_reload_conf()")
        wait_until(lambda: admin.execute("SELECT sync_state FROM pg_stat_replication").fetchone() == ("sync",))


async def _write_through_failover(server, replica):
    counts, stop = {}, asyncio.Event()

    async def write(store, name):
        session = await store.session(name)
        while not stop.is_set():
            await session.append(user_message(str(counts.get(name, 0))))
            counts[name] = counts.get(name, 0) + 1

    async with recollect.open_async(url_of_servers(replica, server), timeout=120) as store:
        tasks = [asyncio.create_task(write(store, f"s{number}")) for number in range(4)]
        async with store.watch(timeout=60) as watch:
            while sum(counts.values()) < 20:
                await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            with psycopg.connect(replica.url("postgres"), autocommit=True) as admin:
                admin.execute("SELECT pg_promote(true)")
            before = sum(counts.values())
            while sum(counts.values()) < before + 20:
                await asyncio.sleep(0.01)
            stop.set()
            await asyncio.gather(*tasks)
            last_revisions = {f"s{number}": (await store.get_session(f"s{number}")).revision for number in range(4)}
            revisions = {}
            async for name, revision in watch:  # the new server reports the changes that the old one did not
                revisions[name] = revision
                if revisions == last_revisions:
                    break
    return counts


class TestReplicasThatDoNotConfirm:
    """With synchronous replication, the server reports success for a commit on its disk alone if the wait was cancelled."""

    @pytest.fixture
    def lose_replica(self, server):
        """Return a function after which commits wait for a replica that does not exist."""

        def wait_for_missing_replica():
            with psycopg.connect(server.url("chats"), autocommit=True) as admin:
                admin.execute("CREATE TABLE probe (n int)")
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
                admin.execute("SELECT pg_reload_conf()")
                notices = []
                admin.add_notice_handler(lambda notice: notices.append(notice.source_function))

                def commit_waits_for_replica():
                    timer = threading.Timer(0.1, admin.cancel_safe)
                    timer.start()
                    with contextlib.suppress(psycopg.errors.QueryCanceled):
                        admin.execute("INSERT INTO probe VALUES (1)")
                    timer.join()
                    return notices == ["SyncRepWaitForLSN"]

                wait_until(commit_waits_for_replica)

        return wait_for_missing_replica

    def test_an_append_without_replicas_is_not_acknowledged(self, server, lose_replica):
        with recollect.open(server.url("chats"), timeout=1.5) as store:
            session = store.session("a")
            session.append(user_message("first"))
            lose_replica()
            with pytest.raises(recollect.StoreUnavailable, match="may or may not have been stored"):
                session.append(user_message("second"))
            assert len(session.messages()) == 2  # this server has it; a promoted replica would not

    def test_a_batch_without_replicas_is_not_acknowledged(self, server, lose_replica):
        async def append_batch():
            async with recollect.open_async(server.url("chats"), timeout=1.5) as store:
                sessions = [await store.session(f"s{number}") for number in range(5)]
                await asyncio.to_thread(lose_replica)
                appends = [session.append(user_message("x")) for session in sessions]
                results = await asyncio.gather(*appends, return_exceptions=True)
                assert {type(result) for result in results} == {recollect.StoreUnavailable}

        asyncio.run(append_batch())

    def test_a_commit_token_without_replicas_is_not_accepted(self, server, lose_replica):
        """A restarted server shows commits that no replica has."""
        recollect.open(server.url("chats")).close()
        engine = DatabaseServer(server.url("chats"), "", 0.5)
        try:
            with psycopg.connect(server.url("chats")) as connection:
                connection.execute("INSERT INTO recollect.commits (token, at) VALUES (1, 1)")
            assert engine._resolve_commit(CommitToken(1, 1), time.monotonic() + 30) is not None
            lose_replica()
            with pytest.raises(recollect.StoreUnavailable, match="may or may not have been stored"):
                engine._resolve_commit(CommitToken(1, 1), time.monotonic() + 0.5)
        finally:
            engine.close()


def test_the_pool_reconnects_without_long_delays(postgres, monkeypatch):
    """Without doubled delays, so that a waiter continues soon after the server is back."""
    port = conninfo_to_dict(postgres)["port"]
    proxy = LoopbackProxy(port)
    delays = []
    schedule = psycopg_pool.ConnectionPool.schedule_task

    def record_task(pool, task, delay):
        if isinstance(task, psycopg_pool.pool.AddConnection):
            delays.append(delay)
        schedule(pool, task, delay)

    monkeypatch.setattr(psycopg_pool.ConnectionPool, "schedule_task", record_task)
    try:
        with recollect.open(postgres.replace(f":{port}/", f":{proxy.port}/"), timeout=120) as store:
            session = store.session("a")
            proxy.refuses = True
            proxy.cut()
            writer = threading.Thread(target=session.append, args=(user_message("x"),))
            writer.start()
            wait_until(lambda: len(delays) >= 5)
            proxy.refuses = False
            writer.join()
            assert max(delays) < 1.5
            assert [message.text for message in session.messages()] == ["x"]
    finally:
        proxy.close()


def test_commit_tokens_are_deleted_after_an_hour_at_most_once_per_minute(postgres, monkeypatch):
    from recollect.engine.postgres import server as module

    def read_tokens():
        return {row[0] for row in admin.execute("SELECT token FROM recollect.commits WHERE token < 100")}

    def insert_token(token, age):
        admin.execute("INSERT INTO recollect.commits (token, at) VALUES (%s, %s)", (token, now - age))

    monkeypatch.setattr(module, "_SWEEP_AFTER_COMMITS", 3)
    now = time.time_ns() // 1_000_000
    with psycopg.connect(postgres, autocommit=True) as admin, recollect.open(postgres) as store:
        session = store.session("a")
        insert_token(1, 3_700_000)
        insert_token(2, 3_000_000)
        store._engine._server._last_sweep = 0  # pyright: ignore[reportAttributeAccessIssue]  opening the session may have deleted old tokens
        for _ in range(4):
            session.append(user_message("x"))
        assert read_tokens() == {2}
        insert_token(3, 3_700_000)
        for _ in range(10):
            session.append(user_message("x"))
        assert read_tokens() == {2, 3}
