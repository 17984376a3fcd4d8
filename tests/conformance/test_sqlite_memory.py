"""The suite in memory, without the tests that need a second store."""

from __future__ import annotations

import pytest

from recollect_conformance import suite
from recollect_conformance.database import DatabaseUnderTest

globals().update(suite.classes(several_stores=False))


@pytest.fixture
def database(connect, long):
    with DatabaseUnderTest(lambda owner: connect(":memory:", owner), persistent=False, thorough=long) as database:
        yield database
        database.verify()
