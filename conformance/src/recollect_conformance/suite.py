"""The complete suite: the test classes of every module."""

from __future__ import annotations

from recollect_conformance.arguments import TestArguments
from recollect_conformance.as_owner import TestAsOwner, TestAsOwnerOfClosedStore
from recollect_conformance.attachments import TestAttachments
from recollect_conformance.branches import TestErase, TestFork, TestRewind
from recollect_conformance.combined_appends import (
    TestAppendAfter,
    TestAppendKeys,
    TestAppendWithUpdate,
    TestCombinedAppendConcurrency,
    TestExpectedRevision,
)
from recollect_conformance.compaction import TestCompaction, TestCompactionOnBranches, TestSnapshots
from recollect_conformance.concurrency import TestConcurrency, TestHandles
from recollect_conformance.counts import TestShownCounts
from recollect_conformance.deletion import TestDelete
from recollect_conformance.edits import TestDeleteMessages, TestMarkMessage, TestReplaceMessage
from recollect_conformance.errors import TestErrors
from recollect_conformance.fields import TestFields
from recollect_conformance.filters import TestFilters, TestReversedLists
from recollect_conformance.formats import TestFormats
from recollect_conformance.history import TestHistory
from recollect_conformance.labels import TestLabels
from recollect_conformance.leases import TestLeases
from recollect_conformance.lists import TestLists
from recollect_conformance.maintenance import TestMaintenance
from recollect_conformance.message_keys import TestMessageKeys, TestMessageKeysSeveralStores
from recollect_conformance.messages import TestAppend, TestRead
from recollect_conformance.opening import TestOpening
from recollect_conformance.owners import TestOwners
from recollect_conformance.pages import TestHistoryTail, TestPages
from recollect_conformance.presence import TestPresence
from recollect_conformance.records import TestRecordOrder, TestRecords, TestSessionRecords, TestSharedRecords
from recollect_conformance.relations import TestRelations
from recollect_conformance.retention import TestEmptyTrash, TestPruneSessions
from recollect_conformance.search import TestSearch, TestSearchHostile, TestSearchPages, TestSearchSnippets
from recollect_conformance.search_index import TestSearchChanges, TestSearchIndex, TestSearchIndexSeveralStores
from recollect_conformance.search_query import TestSearchFilters, TestSearchQuery, TestSearchWords
from recollect_conformance.session_ids import TestSessionIds
from recollect_conformance.sessions import TestSessions
from recollect_conformance.statistics import TestStatistics, TestToolStatistics
from recollect_conformance.streams import TestStreams
from recollect_conformance.times import TestTimes
from recollect_conformance.tools import TestTools, TestToolsOfTurns, TestToolsOnBranches
from recollect_conformance.transfer import TestTransfer
from recollect_conformance.trash import TestTrash
from recollect_conformance.trimming import TestDropOutput, TestTrim
from recollect_conformance.turns import TestSaveTurn, TestTurnResumption, TestTurns
from recollect_conformance.watch import TestWatch

_SINGLE_STORE: tuple[type, ...] = (
    TestAppend,
    TestAppendAfter,
    TestAppendKeys,
    TestArguments,
    TestAsOwner,
    TestCompaction,
    TestCompactionOnBranches,
    TestDelete,
    TestDropOutput,
    TestEmptyTrash,
    TestErase,
    TestExpectedRevision,
    TestFilters,
    TestFields,
    TestFork,
    TestHandles,
    TestHistory,
    TestHistoryTail,
    TestLists,
    TestMaintenance,
    TestPages,
    TestMessageKeys,
    TestPresence,
    TestPruneSessions,
    TestRead,
    TestRecordOrder,
    TestRecords,
    TestReversedLists,
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
    TestSessionRecords,
    TestSnapshots,
    TestStatistics,
    TestStreams,
    TestToolStatistics,
    TestTimes,
    TestTools,
    TestToolsOfTurns,
    TestToolsOnBranches,
    TestTransfer,
    TestTrash,
    TestTrim,
    TestTurns,
)
_SEVERAL_STORES: tuple[type, ...] = (
    TestAsOwnerOfClosedStore,
    TestConcurrency,
    TestAppendWithUpdate,
    TestAttachments,
    TestCombinedAppendConcurrency,
    TestDeleteMessages,
    TestErrors,
    TestFormats,
    TestLabels,
    TestLeases,
    TestOpening,
    TestOwners,
    TestRelations,
    TestMarkMessage,
    TestMessageKeysSeveralStores,
    TestOwners,
    TestReplaceMessage,
    TestSearchIndexSeveralStores,
    TestSessionIds,
    TestSessions,
    TestSharedRecords,
    TestTurnResumption,
    TestWatch,
)
"""Classes that open more than one store on the database, for other owners or after the first one is closed."""


def classes(*, several_stores: bool = True) -> dict[str, type]:
    """Return the test classes by name. With `several_stores=False`, only those that need a single store."""
    return {kind.__name__: kind for kind in (*_SINGLE_STORE, *(_SEVERAL_STORES if several_stores else ()))}
