"""The thread that writes for asyncio: whom it tells when, and that it goes on whatever happens."""

from __future__ import annotations

import asyncio
import sqlite3

import recollect
from recollect.engine.job import Job
from recollect.engine.sqlite import concurrent
from recollect.engine.sqlite.file import File
from recollect.op import Scope
from recollect.ops import sessions

HELLO = {"role": "user", "content": "hello"}


def test_those_before_are_told_before_a_lock_is_waited_for(tmp_path):
    path = str(tmp_path / "recollect.db")
    recollect.open(path).close()
    loop, file = asyncio.new_event_loop(), File(path, 60.0, 1_000)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ends = []

    def tell():
        if other.in_transaction:
            other.execute("ROLLBACK")
        ends.append(other.in_transaction)

    scope = Scope(owner="", holder="test", now=1, gone=lambda _: False)
    batch = [Job(sessions.create(scope, name, {}), loop) for name in ("a", "b")]
    assert concurrent._together(file, batch, concurrent._bare, tell)
    assert [job.error for job in batch] == [None, None]
    assert ends
    other.close()
    file.close()
    loop.close()


def test_a_fault_after_a_commit_is_told_and_others_are_answered(tmp_path, monkeypatch):
    faults = [OSError("no bell"), OSError("no bell")]

    def toll(self):
        if faults:
            raise faults.pop()

    async def main():
        async with recollect.open_async(tmp_path / "recollect.db") as store:
            session = await store.session("cli:a")
            monkeypatch.setattr(File, "toll", toll)
            told: list[object] = []
            for _ in range(1_000):  # what comes one by one is committed without a bell
                if not faults:
                    break
                told += await asyncio.gather(*(session.append(HELLO) for _ in range(8)), return_exceptions=True)
            assert not faults
            assert any(isinstance(result, OSError) for result in told)
            before = len(await session.messages())
            await session.append(HELLO)
            assert len(await session.messages()) == before + 1

    asyncio.run(asyncio.wait_for(main(), 120))
