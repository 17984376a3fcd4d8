"""The connection that is kept at hand beside the pool: who waits gets it, and nothing of it stays behind."""

from __future__ import annotations

import concurrent.futures
import time

import psycopg
import psycopg_pool
import pytest

import recollect
from recollect.engine.postgres import near


@pytest.fixture
def database(databases):
    """Give a database of its own to each test: the connections to the common one are kept between tests."""
    name = databases.make()
    yield name
    databases.drop(name)


@pytest.fixture
def address(databases, database):
    return f"{databases.url_of(database, 'plain')}?pool_size=1"


@pytest.fixture
def asked(monkeypatch):
    """Count how often a pool is asked for a connection."""
    times = []
    getconn = psycopg_pool.ConnectionPool.getconn

    def counting(pool, timeout=None):
        times.append(time.monotonic())
        return getconn(pool, timeout)

    monkeypatch.setattr(psycopg_pool.ConnectionPool, "getconn", counting)
    return times


def test_the_pool_is_not_asked_each_time(address, asked):
    with recollect.open(address) as store:
        store.session("a")
        before = len(asked)
        begun = time.monotonic()
        for _ in range(50):
            store.list_sessions()
        assert len(asked) - before <= 1 + (time.monotonic() - begun) / near._KEPT


def test_the_pool_has_it_back_now_and_then(address, asked, monkeypatch):
    """The pool closes what is older than it allows, which it does when it is given back."""
    monkeypatch.setattr(near, "_KEPT", 0.0)
    with recollect.open(address) as store:
        store.session("a")
        before = len(asked)
        for _ in range(5):
            store.list_sessions()
        assert len(asked) - before == 5


def test_one_who_does_one_thing_at_a_time_has_one_connection(databases, database):
    """Also where the first thing is done before the connection could be made."""
    with recollect.open(databases.url_of(database, "plain")) as store:
        for number in range(5):
            store.session(f"s{number}")
            store.list_sessions()
        assert len(processes(databases, database)) == 1


def test_many_threads_share_one_connection_and_none_is_forgotten(address):
    with recollect.open(address, timeout=20) as store:
        store.session("a")

        def read(_):
            longest = 0.0
            for _ in range(40):
                begun = time.monotonic()
                assert [session.id for session in store.list_sessions()] == ["a"]
                longest = max(longest, time.monotonic() - begun)
            return longest

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert max(pool.map(read, range(8))) < 10


def test_an_operation_that_refuses_leaves_it_fit(address):
    with recollect.open(address, timeout=5) as store:
        for _ in range(3):
            with pytest.raises(recollect.SessionNotFound):
                store.delete_session("nobody")
            assert len(store.list_sessions()) == 0


def test_one_that_was_ended_is_replaced(databases, database, address):
    with recollect.open(address, timeout=20) as store:
        store.session("a")
        assert ended(databases, database) == 1
        assert [session.id for session in store.list_sessions()] == ["a"]
        store.session("a").append({"role": "user", "content": "still here"})
        assert ended(databases, database) == 1
        store.session("a").append({"role": "user", "content": "and again"})
        assert [message.text for message in store.session("a").messages()] == ["still here", "and again"]


def test_closing_closes_it(databases, database, address):
    store = recollect.open(address)
    store.list_sessions()
    store.close()
    with pytest.raises(recollect.StoreClosed):
        store.list_sessions()
    until = time.monotonic() + 10
    while processes(databases, database) and time.monotonic() < until:
        time.sleep(0.02)
    assert processes(databases, database) == []


def processes(databases, database):
    """Name the server's processes that serve the role of the tests in a database."""
    with psycopg.connect(databases.url_of(database, "postgres")) as admin:
        found = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'plain'"
        )
        return [pid for (pid,) in found]


def ended(databases, database):
    pids = processes(databases, database)
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        for pid in pids:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    return len(pids)
