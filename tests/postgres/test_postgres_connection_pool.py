"""The connection pool: operations share connections, lost ones are replaced, and closing closes all of them."""

from __future__ import annotations

import concurrent.futures
import time

import psycopg
import pytest

import recollect


@pytest.fixture
def database(databases):
    """Create a database for each test: connections to the shared one are reused between tests."""
    name = databases.make()
    yield name
    databases.drop(name)


@pytest.fixture
def address(databases, database):
    return f"{databases.url_of(database, 'plain')}?pool_size=1"


def test_sequential_operations_use_one_connection(databases, database):
    """Also if the first operation starts before the first connection is open."""
    with recollect.open(databases.url_of(database, "plain")) as store:
        for number in range(5):
            store.session(f"s{number}")
            store.list_sessions()
        assert len(read_pids(databases, database)) == 1


def test_many_threads_share_one_connection_without_starvation(address):
    with recollect.open(address, timeout=20) as store:
        store.session("a")

        def read(_):
            longest = 0.0
            for _ in range(40):
                start = time.monotonic()
                assert [session.id for session in store.list_sessions()] == ["a"]
                longest = max(longest, time.monotonic() - start)
            return longest

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert max(pool.map(read, range(8))) < 10


def test_the_connection_is_usable_after_an_error(address):
    with recollect.open(address, timeout=5) as store:
        for _ in range(3):
            with pytest.raises(recollect.SessionNotFound):
                store.delete_session("missing")
            assert len(store.list_sessions()) == 0


def test_a_terminated_connection_is_replaced(databases, database, address):
    with recollect.open(address, timeout=20) as store:
        store.session("a")
        assert terminate_backends(databases, database) == 1
        assert [session.id for session in store.list_sessions()] == ["a"]
        store.session("a").append({"role": "user", "content": "still here"})
        assert terminate_backends(databases, database) == 1
        store.session("a").append({"role": "user", "content": "and again"})
        assert [message.text for message in store.session("a").messages()] == ["still here", "and again"]


def test_close_closes_the_connections(databases, database, address):
    store = recollect.open(address)
    store.list_sessions()
    store.close()
    with pytest.raises(recollect.StoreClosed):
        store.list_sessions()
    deadline = time.monotonic() + 10
    while read_pids(databases, database) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert read_pids(databases, database) == []


def read_pids(databases, database):
    """Return the backend pids of the role `plain` in a database."""
    with psycopg.connect(databases.url_of(database, "postgres")) as admin:
        rows = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'plain'"
        )
        return [pid for (pid,) in rows]


def terminate_backends(databases, database):
    pids = read_pids(databases, database)
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        for pid in pids:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    return len(pids)
