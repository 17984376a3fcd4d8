"""The suite in memory, where one store is all there is: without the parts that need a second one."""

from __future__ import annotations

import pytest

from recollect.testing.branches import TestErase, TestFork, TestRewind
from recollect.testing.concurrency import TestHandles
from recollect.testing.index import TestSearchChanges, TestSearchIndex
from recollect.testing.messages import TestAppend, TestDelete, TestRead
from recollect.testing.place import Place
from recollect.testing.search import (
    TestSearch,
    TestSearchFilters,
    TestSearchHostile,
    TestSearchPages,
    TestSearchQuery,
    TestSearchSnippets,
    TestSearchWords,
)
from recollect.testing.sessions import TestTrash
from recollect.testing.streams import TestStreams
from recollect.testing.tools import TestTools, TestToolsOnBranches
from recollect.testing.turns import TestSaveTurn, TestTurns

__all__ = [
    "TestAppend",
    "TestDelete",
    "TestErase",
    "TestFork",
    "TestHandles",
    "TestRead",
    "TestRewind",
    "TestSaveTurn",
    "TestSearch",
    "TestSearchChanges",
    "TestSearchFilters",
    "TestSearchHostile",
    "TestSearchIndex",
    "TestSearchPages",
    "TestSearchQuery",
    "TestSearchSnippets",
    "TestSearchWords",
    "TestStreams",
    "TestTools",
    "TestToolsOnBranches",
    "TestTrash",
    "TestTurns",
]


@pytest.fixture
def place(connect):
    with Place(lambda owner: connect(":memory:", owner), lasting=False) as place:
        yield place
        place.verify()
