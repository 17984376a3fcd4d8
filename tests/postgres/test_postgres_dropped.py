"""Stores that nobody closed and nobody holds any more, and those that a forked child has a copy of."""

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
from recollect.engine.postgres.server import Server

LIMIT = 60
STORES = 5
HELLO = {"role": "user", "content": "hello"}
forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
threaded = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def backends(databases, database):
    """Give what names the server's processes that serve the ordinary role here since the test began."""
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:

        def found():
            rows = admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'plain'"
            )
            return {pid for (pid,) in rows}

        others = found()  # of stores that other tests of this process still hold
        yield lambda: found() - others


def ours():
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(("recollect-write", "recollect-postgres", "pool-"))
    ]


def reached(done):
    deadline = time.monotonic() + LIMIT
    while not done() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return done()


async def used(url):
    store = await recollect.open_async(url)
    session = await store.session("cli:a")
    await session.append(HELLO)
    await session.messages()
    with pytest.raises(recollect.SessionNotFound):  # an error leads to the frames that it came through
        await store.session("cli:none", create=False)
    with pytest.raises(recollect.RecollectError):
        await session.append(HELLO, expected=99)
    return weakref.ref(store._engine)


def test_a_dropped_store_leaves_no_threads_and_no_connections(postgres, backends):
    before = set(ours())

    async def main():
        return [await used(postgres) for _ in range(STORES)]

    engines = asyncio.run(main())
    assert reached(lambda: not any(engine() for engine in engines))
    assert reached(lambda: set(ours()) <= before)
    assert reached(lambda: not backends())
    with recollect.open(postgres) as store:
        assert len(store.get_session("cli:a").messages()) == STORES


def test_a_dropped_store_of_threads_leaves_no_connections(postgres, backends):
    before = set(ours())
    recollect.open(postgres).session("cli:a").append(HELLO)
    assert reached(lambda: set(ours()) <= before)
    assert reached(lambda: not backends())


def test_a_store_that_is_only_awaited_is_kept_until_it_has_answered(postgres, backends):
    async def main():
        session = await (await recollect.open_async(postgres)).session("cli:a")
        asked = [asyncio.ensure_future(session.append(HELLO)) for _ in range(30)]
        del session
        gc.collect()
        assert len(await asyncio.gather(*asked)) == len(asked)

    asyncio.run(main())
    assert reached(lambda: not backends())
    with recollect.open(postgres) as store:
        assert len(store.get_session("cli:a").messages()) == 30


def test_what_had_begun_when_the_last_hand_let_go_is_written(postgres, backends, monkeypatch):
    begun, go_on, write = threading.Event(), threading.Event(), Server.write_together

    def slowly(self, ops, spare):
        begun.set()
        assert go_on.wait(LIMIT)
        return write(self, ops, spare)

    async def main():
        store = await recollect.open_async(postgres)
        session = await store.session("cli:a")
        monkeypatch.setattr(Server, "write_together", slowly)
        asked = asyncio.ensure_future(session.append(HELLO))
        await asyncio.to_thread(begun.wait, LIMIT)
        asked.cancel()
        await asyncio.wait([asked])

    asyncio.run(main())
    gc.collect()
    monkeypatch.undo()
    go_on.set()
    assert reached(lambda: not backends())
    with recollect.open(postgres) as store:
        assert len(store.get_session("cli:a").messages()) == 1


def test_a_store_that_was_closed_is_dropped_without_more(postgres, backends):
    async def main():
        store = await recollect.open_async(postgres)
        await store.session("cli:a")
        await store.close()
        await store.close()
        return weakref.ref(store._engine)

    before = set(ours())
    engine = asyncio.run(main())
    assert reached(lambda: engine() is None)
    assert reached(lambda: set(ours()) <= before)
    assert reached(lambda: not backends())


async def closed(store, session):
    await store.close()
    await store.close()
    with pytest.raises(recollect.StoreClosed):
        await session.append(HELLO)


async def used_and_closed(store, session):
    await session.append({"role": "user", "content": "child"})
    await store.close()


async def dropped(store, session):
    del store, session
    gc.collect()


@forking
@threaded
@pytest.mark.parametrize("last", [closed, used_and_closed, dropped])
def test_a_child_that_lets_go_of_its_copy_leaves_the_parent_alone(postgres, backends, last):
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(aopen(postgres))
    session = loop.run_until_complete(store.session("cli:a"))
    loop.run_until_complete(session.append(HELLO))
    loop.run_until_complete(session.messages())
    serving = backends()
    assert serving
    child = os.fork()
    if child == 0:
        try:
            copies = [store, session]
            del store, session
            asyncio.set_event_loop(None)
            asyncio.new_event_loop().run_until_complete(last(*copies))
            copies.clear()
            gc.collect()
            os._exit(0)
        finally:  # what went wrong is printed, since nobody is there to catch it
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loop.run_until_complete(session.append(HELLO))
    assert serving <= backends()  # a connection that was ended would have been replaced
    said = [message.text for message in loop.run_until_complete(session.messages())]
    assert said == (["hello", "child", "hello"] if last is used_and_closed else ["hello", "hello"])
    loop.run_until_complete(store.close())
    loop.close()
    assert reached(lambda: not backends())


async def aopen(url):
    return await recollect.open_async(url)
