"""The conformance suite on SQLite: in a file and in memory, sync, under asyncio and under trio."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sync", pytest.param("asyncio", marks=pytest.mark.all)])
def connect(request):
    """Yield a function that opens a store, at a path or in memory, for an owner.

    The modules for a file and for PostgreSQL run under asyncio every time, and add the parameter "trio".
    """
    import recollect
    from recollect_conformance.blocking import BlockingAdapter

    if request.param == "sync":
        yield lambda path, owner: recollect.open(path, owner=owner)
        return
    with BlockingAdapter(request.param) as adapter:
        yield lambda path, owner: adapter.open(recollect.open_async(path, owner=owner))


@pytest.fixture
def database(connect, tmp_path, long):
    from recollect_conformance.database import DatabaseUnderTest

    with DatabaseUnderTest(lambda owner: connect(tmp_path / "sessions.db", owner), thorough=long) as database:
        yield database
        database.verify()


@pytest.fixture
def store(database):
    return database.open()
