"""Opening an existing session in a SQLite file needs no write lock, and writes nothing to the file."""

from __future__ import annotations

import asyncio
import os

import apsw
import pytest

import recollect
from recollect.errors import StoreLocked


def stored_bytes(path):
    """Return the file and its WAL."""
    return [path.read_bytes(), path.with_name(path.name + "-wal").read_bytes()]


def test_a_locked_file(tmp_path):
    path = tmp_path / "sessions.db"
    with recollect.open(path, timeout=0) as store:
        store.session("a", title="T").append({"role": "user", "content": "x"})
        before = stored_bytes(path)
        other = apsw.Connection(os.fspath(path))
        other.execute("BEGIN IMMEDIATE")
        assert store.session("a").title == store.session("a", create=False).title == "T"
        with pytest.raises(recollect.SessionNotFound):
            store.session("b", create=False)
        for create in (lambda: store.session("b"), store.session):
            with pytest.raises(StoreLocked):
                create()
        other.execute("ROLLBACK")
        other.close()
        assert stored_bytes(path) == before
        assert store.session("b").id == "b"


def test_a_locked_file_of_an_async_store(tmp_path):
    path = tmp_path / "sessions.db"

    async def open_sessions():
        async with recollect.open_async(path, timeout=0) as store:
            await (await store.session("a", title="T")).append({"role": "user", "content": "x"})
            other = apsw.Connection(os.fspath(path))
            other.execute("BEGIN IMMEDIATE")
            sessions = await asyncio.gather(*(store.session("a") for _ in range(10)))
            assert {session.title for session in sessions} == {"T"}
            other.execute("ROLLBACK")
            other.close()

    asyncio.run(open_sessions())
