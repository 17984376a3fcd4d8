"""The writer thread of the async SQLite engine: when it answers callers, and that it continues after an error."""

from __future__ import annotations

import asyncio
import sqlite3

import recollect
from recollect.engine.sqlite import async_engine
from recollect.engine.sqlite.database_file import DatabaseFile
from recollect.engine.sqlite.search import SqliteSearch
from recollect.engine.write_queue import QueuedOperation
from recollect.storage import sessions
from recollect.storage.operation import Scope

HELLO = {"role": "user", "content": "hello"}


def test_earlier_operations_are_answered_before_waiting_for_a_lock(tmp_path):
    path = str(tmp_path / "recollect.db")
    recollect.open(path).close()
    loop, file = asyncio.new_event_loop(), DatabaseFile(path, 60.0, 1_000)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    lock_states = []

    def answer_callers():
        if blocker.in_transaction:
            blocker.execute("ROLLBACK")
        lock_states.append(blocker.in_transaction)

    scope = Scope(owner="", holder="test", now=1, is_gone=lambda _: False, search_dialect=SqliteSearch)
    batch = [QueuedOperation(sessions.create(scope, name, {}), loop, "") for name in ("a", "b")]
    assert async_engine._commit_together(file, batch, async_engine._run_without_savepoint, answer_callers)
    assert [job.error for job in batch] == [None, None]
    assert lock_states
    blocker.close()
    file.close()
    loop.close()


def test_an_error_after_a_commit_is_raised_and_later_writes_succeed(tmp_path, monkeypatch):
    errors = [OSError("no notifier"), OSError("no notifier")]

    def fail(self):
        if errors:
            raise errors.pop()

    async def main():
        async with recollect.open_async(tmp_path / "recollect.db") as store:
            session = await store.session("cli:a")
            monkeypatch.setattr(DatabaseFile, "notify_watchers", fail)
            results: list[object] = []
            for _ in range(1_000):  # a single write is committed without the notifier
                if not errors:
                    break
                results += await asyncio.gather(*(session.append(HELLO) for _ in range(8)), return_exceptions=True)
            assert not errors
            assert any(isinstance(result, OSError) for result in results)
            count = len(await session.messages())
            await session.append(HELLO)
            assert len(await session.messages()) == count + 1

    asyncio.run(asyncio.wait_for(main(), 120))
