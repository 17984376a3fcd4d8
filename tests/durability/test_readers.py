"""Reader connections are opened without SQLite's mutex, so two threads must never use the same one."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import recollect
from recollect.engine.sqlite.transactions import Transactions

THREADS, ROUNDS = 12, 60


def test_no_two_threads_use_one_connection(tmp_path, monkeypatch):
    users: dict[int, str] = {}
    conflicts: list[str] = []
    run_once = Transactions._run_once

    def record_user(file, begin, connection, op):
        name = threading.current_thread().name
        if users.setdefault(id(connection), name) != name:
            conflicts.append(name)
        try:
            return run_once(file, begin, connection, op)
        finally:
            users.pop(id(connection), None)

    path = str(tmp_path / "sessions.db")
    with recollect.open(path) as store:
        for number in range(4):
            store.session(f"s:{number}").append([{"role": "user", "content": f"{n} " * 500} for n in range(40)])
        monkeypatch.setattr(Transactions, "_run_once", record_user)

        def work(number):
            for step in range(ROUNDS):
                session = store.session(f"s:{(number + step) % 4}")
                assert len(session.messages(last=30)) == 30
                assert len(store.list_sessions(10)) == 4
                if step % 20 == number:
                    session.append({"role": "user", "content": "more"})
                    gc.collect()  # objects in reference cycles are finalized on this thread

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        assert not conflicts

    async def tasks():
        async with recollect.open_async(path) as store:
            session = await store.session("s:0")
            await asyncio.gather(
                *(session.messages() for _ in range(100)), *(store.list_sessions() for _ in range(100))
            )

    asyncio.run(tasks())
    assert not conflicts
