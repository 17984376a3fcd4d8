"""The suite in memory, where one store is all there is: without the parts that need a second one."""

from __future__ import annotations

import pytest

from recollect.testing import suite
from recollect.testing.place import Place

globals().update(suite.classes(several_stores=False))


@pytest.fixture
def place(connect, long):
    with Place(lambda owner: connect(":memory:", owner), lasting=False, thorough=long) as place:
        yield place
        place.verify()
