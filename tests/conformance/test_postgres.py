"""All of the suite, on PostgreSQL."""

from __future__ import annotations

import pytest

from recollect.testing import suite
from recollect.testing.place import Place

globals().update(suite.classes())


@pytest.fixture
def place(connect, postgres, databases, long, monkeypatch):
    monkeypatch.setattr("recollect.ops.search.index._MANY", 1)  # each search settles what it indexed
    with databases.pools.kept(), Place(lambda owner: connect(postgres, owner), thorough=long) as place:
        yield place
        # Bodies are read once, by a store that is opened for it: what the first one says of them was read from the same
        # rows, for a server keeps no file that could be left behind. A long run reads them from both.
        place.verify(bodies_twice=long)
