"""All of the suite, on a file."""

from recollect.testing.attachments import TestAttachments
from recollect.testing.branches import TestErase, TestFork, TestRewind
from recollect.testing.concurrency import TestAtOnce, TestHandles
from recollect.testing.errors import TestErrors
from recollect.testing.formats import TestFormats
from recollect.testing.index import TestSearchChanges, TestSearchIndex, TestSearchTogether
from recollect.testing.messages import TestAppend, TestDelete, TestRead
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
from recollect.testing.streams import TestStreams
from recollect.testing.tools import TestTools, TestToolsOnBranches
from recollect.testing.turns import TestHolding, TestSaveTurn, TestTurns

__all__ = [
    "TestAppend",
    "TestAtOnce",
    "TestAttachments",
    "TestDelete",
    "TestErase",
    "TestErrors",
    "TestFork",
    "TestFormats",
    "TestHandles",
    "TestHolding",
    "TestOwners",
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
    "TestStreams",
    "TestTools",
    "TestToolsOnBranches",
    "TestTrash",
    "TestTurns",
]
