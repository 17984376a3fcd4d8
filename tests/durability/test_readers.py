"""Readers: SQLite keeps no lock of its own on their connections, so two threads must never have the same one."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import recollect
from recollect.engine.sqlite.transaction import Transactions

THREADS, EACH = 12, 60


def test_no_two_threads_have_one_connection(tmp_path, monkeypatch):
    at_work: dict[int, str] = {}
    met: list[str] = []
    once = Transactions._once

    def noted(file, begin, connection, op):
        name = threading.current_thread().name
        if at_work.setdefault(id(connection), name) != name:
            met.append(name)
        try:
            return once(file, begin, connection, op)
        finally:
            at_work.pop(id(connection), None)

    path = str(tmp_path / "talks.db")
    with recollect.open(path) as store:
        for number in range(4):
            store.session(f"s:{number}").append([{"role": "user", "content": f"{n} " * 500} for n in range(40)])
        monkeypatch.setattr(Transactions, "_once", noted)

        def work(number):
            for turn in range(EACH):
                session = store.session(f"s:{(number + turn) % 4}")
                assert len(session.messages(last=30)) == 30
                assert len(store.list_sessions(10)) == 4
                if turn % 20 == number:
                    session.append({"role": "user", "content": "more"})
                    gc.collect()  # what an error or a cycle kept alive ends in whichever thread this is

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        assert not met

    async def tasks():
        async with recollect.open_async(path) as store:
            session = await store.session("s:0")
            await asyncio.gather(
                *(session.messages() for _ in range(100)), *(store.list_sessions() for _ in range(100))
            )

    asyncio.run(tasks())
    assert not met
