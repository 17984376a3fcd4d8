"""The shipped suite on SQLite: in a file and in memory, sync and async."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sync", "async"])
def connect(request):
    """Give a function that opens a store, at a path or in memory, for an owner."""
    import recollect
    from recollect.testing.portal import Portal

    if request.param == "sync":
        yield lambda path, owner: recollect.open(path, owner=owner)
        return
    with Portal() as portal:
        yield lambda path, owner: portal.opened(recollect.open_async(path, owner=owner))


@pytest.fixture
def place(connect, tmp_path, long):
    from recollect.testing.place import Place

    with Place(lambda owner: connect(tmp_path / "talks.db", owner), thorough=long) as place:
        yield place
        place.verify()


@pytest.fixture
def store(place):
    return place.open()
