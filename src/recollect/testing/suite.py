"""All of the suite in one place: the classes of every module of tests, for a module of tests to take over."""

from __future__ import annotations

from recollect.testing.arguments import TestArguments
from recollect.testing.attachments import TestAttachments
from recollect.testing.branches import TestErase, TestFork, TestRewind
from recollect.testing.calls import TestToolsOfTurns, TestToolsOnBranches
from recollect.testing.compaction import TestCompaction, TestCompactionOnBranches, TestSnapshots
from recollect.testing.concurrency import TestAtOnce, TestHandles
from recollect.testing.counts import TestShownCounts
from recollect.testing.deletion import TestDelete
from recollect.testing.errors import TestErrors
from recollect.testing.formats import TestFormats
from recollect.testing.history import TestHistory
from recollect.testing.index import TestSearchChanges, TestSearchIndex, TestSearchTogether
from recollect.testing.leases import TestHolding
from recollect.testing.lists import TestLists
from recollect.testing.maintenance import TestMaintenance
from recollect.testing.messages import TestAppend, TestRead
from recollect.testing.owners import TestOwners, TestSettings
from recollect.testing.presence import TestPresence
from recollect.testing.query import TestSearchFilters, TestSearchQuery, TestSearchWords
from recollect.testing.retention import TestEmptyTrash, TestPruneSessions
from recollect.testing.search import TestSearch, TestSearchHostile, TestSearchPages, TestSearchSnippets
from recollect.testing.sessions import TestSessions
from recollect.testing.statistics import TestStatistics, TestToolStatistics
from recollect.testing.streams import TestStreams
from recollect.testing.thinning import TestDropOutput, TestTrim
from recollect.testing.tools import TestTools
from recollect.testing.transfer import TestTransfer
from recollect.testing.trash import TestTrash
from recollect.testing.turns import TestSaveTurn, TestTurns, TestTurnsTakenUp
from recollect.testing.watch import TestWatch

_ANYWHERE: tuple[type, ...] = (
    TestAppend,
    TestArguments,
    TestCompaction,
    TestCompactionOnBranches,
    TestDelete,
    TestDropOutput,
    TestEmptyTrash,
    TestErase,
    TestFork,
    TestHandles,
    TestHistory,
    TestLists,
    TestMaintenance,
    TestPresence,
    TestPruneSessions,
    TestRead,
    TestRewind,
    TestSaveTurn,
    TestSearch,
    TestSearchChanges,
    TestSearchFilters,
    TestSearchHostile,
    TestSearchIndex,
    TestSearchPages,
    TestSearchQuery,
    TestShownCounts,
    TestSearchSnippets,
    TestSearchWords,
    TestSnapshots,
    TestStatistics,
    TestStreams,
    TestToolStatistics,
    TestTools,
    TestToolsOfTurns,
    TestToolsOnBranches,
    TestTransfer,
    TestTrash,
    TestTrim,
    TestTurns,
)
_SEVERAL_STORES: tuple[type, ...] = (
    TestAtOnce,
    TestAttachments,
    TestErrors,
    TestFormats,
    TestHolding,
    TestOwners,
    TestSearchTogether,
    TestSessions,
    TestSettings,
    TestTurnsTakenUp,
    TestWatch,
)
"""What opens more than one store on the same data, for other owners or after the first was closed."""


def classes(*, several_stores: bool = True) -> dict[str, type]:
    """Give the classes of tests by their names; without those that need several stores, for data that has one."""
    return {kind.__name__: kind for kind in (*_ANYWHERE, *(_SEVERAL_STORES if several_stores else ()))}
