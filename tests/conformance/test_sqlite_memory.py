"""The suite in memory, where one store is all there is: without the parts that need a second one."""

from __future__ import annotations

import pytest

from recollect.testing.branches import TestErase, TestFork, TestRewind
from recollect.testing.compaction import TestCompaction, TestCompactionOnBranches, TestSnapshots
from recollect.testing.concurrency import TestHandles
from recollect.testing.history import TestHistory
from recollect.testing.index import TestSearchChanges, TestSearchIndex
from recollect.testing.lists import TestLists
from recollect.testing.maintenance import TestMaintenance
from recollect.testing.messages import TestAppend, TestDelete, TestRead
from recollect.testing.place import Place
from recollect.testing.presence import TestPresence
from recollect.testing.retention import TestDropOutput, TestEmptyTrash, TestPruneSessions, TestTrim
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
from recollect.testing.statistics import TestStatistics, TestToolStatistics
from recollect.testing.streams import TestStreams
from recollect.testing.tools import TestTools, TestToolsOnBranches
from recollect.testing.transfer import TestTransfer
from recollect.testing.turns import TestSaveTurn, TestTurns

__all__ = [
    "TestAppend",
    "TestCompaction",
    "TestCompactionOnBranches",
    "TestDelete",
    "TestDropOutput",
    "TestEmptyTrash",
    "TestErase",
    "TestFork",
    "TestHandles",
    "TestHistory",
    "TestLists",
    "TestMaintenance",
    "TestPresence",
    "TestPruneSessions",
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
    "TestSnapshots",
    "TestStatistics",
    "TestStreams",
    "TestToolStatistics",
    "TestTools",
    "TestToolsOnBranches",
    "TestTransfer",
    "TestTrash",
    "TestTrim",
    "TestTurns",
]


@pytest.fixture
def place(connect):
    with Place(lambda owner: connect(":memory:", owner), lasting=False) as place:
        yield place
        place.verify()
