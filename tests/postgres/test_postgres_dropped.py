"""Stores that were dropped without being closed, and stores that a forked child has inherited."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import traceback
import weakref

import psycopg
import pytest

import recollect
from recollect.engine.postgres.server import DatabaseServer

TIMEOUT = 60  # seconds; only a failure reaches it
STORES = 5  # more than one, so that a leak adds up
HELLO = {"role": "user", "content": "hello"}
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
ignore_fork_warning = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def backends(databases, database):
    """Return a function that returns the backend pids of the role `plain` since the start of the test."""
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:

        def read_pids():
            rows = admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'plain'"
            )
            return {pid for (pid,) in rows}

        others = read_pids()  # of stores of other tests in this process
        yield lambda: read_pids() - others


def store_threads():
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(("recollect-write", "recollect-postgres", "pool-"))
    ]


def becomes_true(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return condition()


async def open_and_use(url):
    store = await recollect.open_async(url)
    session = await store.session("cli:a")
    await session.append(HELLO)
    await session.messages()
    with pytest.raises(recollect.SessionNotFound):  # its traceback refers to frames of the engine
        await store.session("cli:none", create=False)
    with pytest.raises(recollect.RecollectError):
        await session.append(HELLO, expected=99)
    return weakref.ref(store._engine)


def test_a_dropped_async_store_releases_threads_and_connections(postgres, backends):
    before = set(store_threads())

    async def main():
        return [await open_and_use(postgres) for _ in range(STORES)]

    engines = asyncio.run(main())
    assert becomes_true(lambda: not any(engine() for engine in engines))
    assert becomes_true(lambda: set(store_threads()) <= before)
    assert becomes_true(lambda: not backends())
    with recollect.open(postgres) as store:
        assert len(store.get_session("cli:a").messages()) == STORES


def test_a_dropped_store_releases_threads_and_connections(postgres, backends):
    before = set(store_threads())
    recollect.open(postgres).session("cli:a").append(HELLO)
    assert becomes_true(lambda: set(store_threads()) <= before)
    assert becomes_true(lambda: not backends())


def test_a_store_with_pending_operations_is_not_collected(postgres, backends):
    async def main():
        session = await (await recollect.open_async(postgres)).session("cli:a")
        appends = [asyncio.ensure_future(session.append(HELLO)) for _ in range(30)]
        del session
        gc.collect()
        assert len(await asyncio.gather(*appends)) == len(appends)

    asyncio.run(main())
    assert becomes_true(lambda: not backends())
    with recollect.open(postgres) as store:
        assert len(store.get_session("cli:a").messages()) == 30


def test_an_operation_that_has_begun_completes_after_the_store_is_dropped(postgres, backends, monkeypatch):
    write_started, continue_write, write = threading.Event(), threading.Event(), DatabaseServer.write_together

    def write_slowly(self, ops, owner, exclude):
        write_started.set()
        assert continue_write.wait(TIMEOUT)
        return write(self, ops, owner, exclude)

    async def main():
        store = await recollect.open_async(postgres)
        session = await store.session("cli:a")
        monkeypatch.setattr(DatabaseServer, "write_together", write_slowly)
        append_task = asyncio.ensure_future(session.append(HELLO))
        await asyncio.to_thread(write_started.wait, TIMEOUT)
        append_task.cancel()
        await asyncio.wait([append_task])

    asyncio.run(main())
    gc.collect()
    monkeypatch.undo()
    continue_write.set()
    assert becomes_true(lambda: not backends())
    with recollect.open(postgres) as store:
        assert len(store.get_session("cli:a").messages()) == 1


def test_a_closed_store_is_collected(postgres, backends):
    async def main():
        store = await recollect.open_async(postgres)
        await store.session("cli:a")
        await store.close()
        await store.close()
        return weakref.ref(store._engine)

    before = set(store_threads())
    engine = asyncio.run(main())
    assert becomes_true(lambda: engine() is None)
    assert becomes_true(lambda: set(store_threads()) <= before)
    assert becomes_true(lambda: not backends())


async def close_store(store, session):
    await store.close()
    await store.close()
    with pytest.raises(recollect.StoreClosed):
        await session.append(HELLO)


async def use_and_close(store, session):
    await session.append({"role": "user", "content": "child"})
    await store.close()


async def drop_store(store, session):
    del store, session
    gc.collect()


@needs_fork
@ignore_fork_warning
@pytest.mark.parametrize("child_action", [close_store, use_and_close, drop_store])
def test_a_forked_child_does_not_end_the_connections_of_its_parent(postgres, backends, child_action):
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(open_store(postgres))
    session = loop.run_until_complete(store.session("cli:a"))
    loop.run_until_complete(session.append(HELLO))
    loop.run_until_complete(session.messages())
    parent_backends = backends()
    assert parent_backends
    child = os.fork()
    if child == 0:
        try:
            copies = [store, session]
            del store, session
            asyncio.set_event_loop(None)
            asyncio.new_event_loop().run_until_complete(child_action(*copies))
            copies.clear()
            gc.collect()
            os._exit(0)
        finally:  # pytest does not report errors of the child
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loop.run_until_complete(session.append(HELLO))
    assert parent_backends <= backends()  # an ended connection would have been replaced
    texts = [message.text for message in loop.run_until_complete(session.messages())]
    assert texts == (["hello", "child", "hello"] if child_action is use_and_close else ["hello", "hello"])
    loop.run_until_complete(store.close())
    loop.close()
    assert becomes_true(lambda: not backends())


async def open_store(url):
    return await recollect.open_async(url)
