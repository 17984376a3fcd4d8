"""The complete suite on PostgreSQL."""

from __future__ import annotations

import pytest

from recollect_conformance import suite
from recollect_conformance.database import DatabaseUnderTest

globals().update(suite.classes())
# trio meets what differs between event loops in test_sqlite_file.py and test_event_loops.py; CI runs it here, too.
pytestmark = pytest.mark.parametrize(
    "connect", ["sync", "asyncio", pytest.param("trio", marks=pytest.mark.all)], indirect=True
)


@pytest.fixture
def database(connect, postgres, databases, long, monkeypatch):
    monkeypatch.setattr("recollect.engine.postgres.search._SETTLE_THRESHOLD", 1)  # each search clears the flags
    with databases.pools.reuse(), DatabaseUnderTest(lambda owner: connect(postgres, owner), thorough=long) as database:
        yield database
        # Contents are read once, by a new store: the first store would read the same rows, because a server has no file
        # that could be left behind. A long run reads them through both.
        database.verify(bodies_twice=long)
