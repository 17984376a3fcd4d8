"""All of the suite, on PostgreSQL."""

from __future__ import annotations

import pytest

from recollect.testing.attachments import TestAttachments
from recollect.testing.branches import TestErase, TestFork, TestRewind
from recollect.testing.compaction import TestCompaction, TestCompactionOnBranches, TestSnapshots
from recollect.testing.concurrency import TestAtOnce, TestHandles
from recollect.testing.errors import TestErrors
from recollect.testing.formats import TestFormats
from recollect.testing.history import TestHistory
from recollect.testing.index import TestSearchChanges, TestSearchIndex, TestSearchTogether
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
from recollect.testing.sessions import TestOwners, TestSessions, TestSettings, TestTrash
from recollect.testing.statistics import TestStatistics, TestToolStatistics
from recollect.testing.streams import TestStreams
from recollect.testing.tools import TestTools, TestToolsOnBranches
from recollect.testing.transfer import TestTransfer
from recollect.testing.turns import TestHolding, TestSaveTurn, TestTurns, TestTurnsTakenUp
from recollect.testing.watch import TestWatch

__all__ = [
    "TestAppend",
    "TestAtOnce",
    "TestAttachments",
    "TestCompaction",
    "TestCompactionOnBranches",
    "TestDelete",
    "TestDropOutput",
    "TestEmptyTrash",
    "TestErase",
    "TestErrors",
    "TestFork",
    "TestFormats",
    "TestHandles",
    "TestHistory",
    "TestHolding",
    "TestLists",
    "TestMaintenance",
    "TestOwners",
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
    "TestSearchTogether",
    "TestSearchWords",
    "TestSessions",
    "TestSettings",
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
    "TestTurnsTakenUp",
    "TestWatch",
]


@pytest.fixture
def place(connect, postgres, databases):
    with databases.pools.kept(), Place(lambda owner: connect(postgres, owner)) as place:
        yield place
        place.verify()
