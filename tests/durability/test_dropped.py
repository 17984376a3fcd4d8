"""Stores that were dropped without being closed: threads and descriptors are released, and no write is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time

import pytest

import recollect
from recollect.engine.sqlite.database_file import DatabaseFile

TIMEOUT = 60  # seconds; only a failure reaches it
STORES = 10  # more than one, so that a leak adds up
HELLO = {"role": "user", "content": "hello"}


def count_threads() -> int:
    return sum(thread.name.startswith(("recollect-write", "recollect-read")) for thread in threading.enumerate())


def count_descriptors(path: str) -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(path)
        except OSError:
            continue
    return count


def wait_until(condition) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert condition()


async def open_and_use(path: str) -> None:
    store = await recollect.open_async(path)
    session = await store.session("cli:a")
    await session.append(HELLO)
    await session.messages()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_dropped_stores_release_threads_and_descriptors(path):
    before = count_threads()

    async def main() -> None:
        for _ in range(STORES):
            await open_and_use(path)

    asyncio.run(main())
    wait_until(lambda: count_threads() == before)
    wait_until(lambda: count_descriptors(path) == 0)
    assert not os.path.exists(f"{path}-wal")
    with recollect.open(path) as store:
        assert len(store.get_session("cli:a").messages()) == STORES


def test_a_store_with_pending_operations_is_not_collected(path, check_database):
    async def main() -> None:
        session = await (await recollect.open_async(path)).session("cli:a")
        appends = [asyncio.ensure_future(session.append(HELLO)) for _ in range(50)]
        del session
        gc.collect()
        assert len(await asyncio.gather(*appends)) == len(appends)

    before = count_threads()
    asyncio.run(main())
    wait_until(lambda: count_threads() == before)
    with recollect.open(path) as store:
        assert len(store.get_session("cli:a").messages()) == 50
    check_database(path)


def test_an_operation_that_has_begun_completes_after_the_store_is_dropped(path, monkeypatch):
    write_started, continue_write, write = threading.Event(), threading.Event(), DatabaseFile.write

    def write_slowly(self, op):
        write_started.set()
        assert continue_write.wait(TIMEOUT)
        return write(self, op)

    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        monkeypatch.setattr(DatabaseFile, "write", write_slowly)
        append_task = asyncio.ensure_future(session.append(HELLO))
        await asyncio.to_thread(write_started.wait, TIMEOUT)
        append_task.cancel()
        await asyncio.wait([append_task])

    before = count_threads()
    asyncio.run(main())
    gc.collect()
    monkeypatch.undo()
    continue_write.set()
    wait_until(lambda: count_threads() == before)
    with recollect.open(path) as store:
        assert len(store.get_session("cli:a").messages()) == 1


def test_a_dropped_store_in_memory_releases_its_threads():
    before = count_threads()
    asyncio.run(open_and_use(":memory:"))
    wait_until(lambda: count_threads() == before)
