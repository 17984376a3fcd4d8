"""Stores that nobody closed and nobody holds any more: what they held is given back, and nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time

import pytest

import recollect
from recollect.engine.sqlite.file import File

LIMIT = 60
STORES = 10
HELLO = {"role": "user", "content": "hello"}


def writers() -> int:
    return sum(thread.name.startswith(("recollect-write", "recollect-read")) for thread in threading.enumerate())


def descriptors(path: str) -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(path)
        except OSError:
            continue
    return found


def until(done) -> None:
    deadline = time.monotonic() + LIMIT
    while not done() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert done()


async def used(path: str) -> None:
    store = await recollect.open_async(path)
    session = await store.session("cli:a")
    await session.append(HELLO)
    await session.messages()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
def test_dropped_stores_leave_no_threads_and_no_descriptors(path):
    before = writers()

    async def main() -> None:
        for _ in range(STORES):
            await used(path)

    asyncio.run(main())
    until(lambda: writers() == before)
    until(lambda: descriptors(path) == 0)
    assert not os.path.exists(f"{path}-wal")
    with recollect.open(path) as store:
        assert len(store.get_session("cli:a").messages()) == STORES


def test_a_store_that_is_only_awaited_is_kept_until_it_has_answered(path, sound):
    async def main() -> None:
        session = await (await recollect.open_async(path)).session("cli:a")
        asked = [asyncio.ensure_future(session.append(HELLO)) for _ in range(50)]
        del session
        gc.collect()
        assert len(await asyncio.gather(*asked)) == len(asked)

    before = writers()
    asyncio.run(main())
    until(lambda: writers() == before)
    with recollect.open(path) as store:
        assert len(store.get_session("cli:a").messages()) == 50
    sound(path)


def test_what_had_begun_when_the_last_hand_let_go_is_written(path, monkeypatch):
    begun, go_on, write = threading.Event(), threading.Event(), File.write

    def slowly(self, op):
        begun.set()
        assert go_on.wait(LIMIT)
        return write(self, op)

    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        monkeypatch.setattr(File, "write", slowly)
        asked = asyncio.ensure_future(session.append(HELLO))
        await asyncio.to_thread(begun.wait, LIMIT)
        asked.cancel()
        await asyncio.wait([asked])

    before = writers()
    asyncio.run(main())
    gc.collect()
    monkeypatch.undo()
    go_on.set()
    until(lambda: writers() == before)
    with recollect.open(path) as store:
        assert len(store.get_session("cli:a").messages()) == 1


def test_a_store_in_memory_is_let_go_of_too():
    before = writers()
    asyncio.run(used(":memory:"))
    until(lambda: writers() == before)
