"""The public types that few programs name: groups of methods, streams, watches, values, reports and aliases.

`recollect` itself has the types that most programs name, such as Store, Session and Message. A module is loaded when
one of its names is used: annotations of a program that checks types load nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.history.compaction import CompactionPolicy, Summarize
    from recollect.history.render import History
    from recollect.history.window import Counter
    from recollect.model.compaction import Compaction, SummaryMessage
    from recollect.model.message import Format, Messages, Part, RegisteredFormat, Repair, ResultStatus
    from recollect.model.record import Record
    from recollect.model.reports import (
        Backup,
        CopyReport,
        Difference,
        Finding,
        Findings,
        OptimizeReport,
        Owners,
        Period,
        PrunedSession,
        PruneReport,
        Space,
        Stats,
        Tally,
        ToolStats,
    )
    from recollect.model.search import Hit, Page
    from recollect.model.session import (
        ArriveResult,
        Branch,
        Change,
        NewSessionFields,
        Presence,
        Relation,
        SessionChanges,
        SessionEdits,
        SessionInfo,
        SessionStatus,
        SessionUpdates,
        Snapshot,
        SnapshotKind,
    )
    from recollect.model.times import DurationLike, TimeLike
    from recollect.model.turn import ChunkKind, EndStatus, TurnInfo
    from recollect.storage.appends import Appended
    from recollect.storage.integrity import CheckProgress
    from recollect.storage.listing import Order
    from recollect.storage.pages import Cursor
    from recollect.storage.paths import MessageId
    from recollect.storage.session_filters import FilterValues
    from recollect.store import Records, Stream
    from recollect.store.maintenance import StoreMaintenance
    from recollect.store.session_groups import (
        SessionBranches,
        SessionCompactions,
        SessionPresence,
        SessionSnapshots,
        SessionTurns,
    )
    from recollect.store.tools import SessionTools, StoreTools
    from recollect.store.watch import Watch
    from recollect.store_async import AsyncRecords, AsyncStream
    from recollect.store_async.maintenance import AsyncStoreMaintenance
    from recollect.store_async.session_groups import (
        AsyncSessionBranches,
        AsyncSessionCompactions,
        AsyncSessionPresence,
        AsyncSessionSnapshots,
        AsyncSessionTurns,
    )
    from recollect.store_async.tools import AsyncSessionTools, AsyncStoreTools
    from recollect.store_async.watch import AsyncWatch

_MODULES = {
    "Appended": "storage.appends",
    "ArriveResult": "model.session",
    "AsyncRecords": "store_async",
    "AsyncSessionBranches": "store_async.session_groups",
    "AsyncSessionCompactions": "store_async.session_groups",
    "AsyncSessionPresence": "store_async.session_groups",
    "AsyncSessionSnapshots": "store_async.session_groups",
    "AsyncSessionTools": "store_async.tools",
    "AsyncSessionTurns": "store_async.session_groups",
    "AsyncStoreMaintenance": "store_async.maintenance",
    "AsyncStoreTools": "store_async.tools",
    "AsyncStream": "store_async",
    "AsyncWatch": "store_async.watch",
    "Backup": "model.reports",
    "Branch": "model.session",
    "Change": "model.session",
    "CheckProgress": "storage.integrity",
    "ChunkKind": "model.turn",
    "Compaction": "model.compaction",
    "CompactionPolicy": "history.compaction",
    "CopyReport": "model.reports",
    "Counter": "history.window",
    "Cursor": "storage.pages",
    "Difference": "model.reports",
    "DurationLike": "model.times",
    "EndStatus": "model.turn",
    "FilterValues": "storage.session_filters",
    "Finding": "model.reports",
    "Findings": "model.reports",
    "Format": "model.message",
    "History": "history.render",
    "Hit": "model.search",
    "MessageId": "storage.paths",
    "Messages": "model.message",
    "NewSessionFields": "model.session",
    "OptimizeReport": "model.reports",
    "Order": "storage.listing",
    "Owners": "model.reports",
    "Page": "model.search",
    "Part": "model.message",
    "Period": "model.reports",
    "Presence": "model.session",
    "PruneReport": "model.reports",
    "PrunedSession": "model.reports",
    "Record": "model.record",
    "Records": "store",
    "RegisteredFormat": "model.message",
    "Relation": "model.session",
    "Repair": "model.message",
    "ResultStatus": "model.message",
    "SessionBranches": "store.session_groups",
    "SessionChanges": "model.session",
    "SessionCompactions": "store.session_groups",
    "SessionEdits": "model.session",
    "SessionInfo": "model.session",
    "SessionPresence": "store.session_groups",
    "SessionSnapshots": "store.session_groups",
    "SessionStatus": "model.session",
    "SessionTools": "store.tools",
    "SessionTurns": "store.session_groups",
    "SessionUpdates": "model.session",
    "Snapshot": "model.session",
    "SnapshotKind": "model.session",
    "Space": "model.reports",
    "Stats": "model.reports",
    "StoreMaintenance": "store.maintenance",
    "StoreTools": "store.tools",
    "Stream": "store",
    "Summarize": "history.compaction",
    "SummaryMessage": "model.compaction",
    "Tally": "model.reports",
    "TimeLike": "model.times",
    "ToolStats": "model.reports",
    "TurnInfo": "model.turn",
    "Watch": "store.watch",
}
"""The module of each name."""

__all__ = [
    "Appended",
    "ArriveResult",
    "AsyncRecords",
    "AsyncSessionBranches",
    "AsyncSessionCompactions",
    "AsyncSessionPresence",
    "AsyncSessionSnapshots",
    "AsyncSessionTools",
    "AsyncSessionTurns",
    "AsyncStoreMaintenance",
    "AsyncStoreTools",
    "AsyncStream",
    "AsyncWatch",
    "Backup",
    "Branch",
    "Change",
    "CheckProgress",
    "ChunkKind",
    "Compaction",
    "CompactionPolicy",
    "CopyReport",
    "Counter",
    "Cursor",
    "Difference",
    "DurationLike",
    "EndStatus",
    "FilterValues",
    "Finding",
    "Findings",
    "Format",
    "History",
    "Hit",
    "MessageId",
    "Messages",
    "NewSessionFields",
    "OptimizeReport",
    "Order",
    "Owners",
    "Page",
    "Part",
    "Period",
    "Presence",
    "PruneReport",
    "PrunedSession",
    "Record",
    "Records",
    "RegisteredFormat",
    "Relation",
    "Repair",
    "ResultStatus",
    "SessionBranches",
    "SessionChanges",
    "SessionCompactions",
    "SessionEdits",
    "SessionInfo",
    "SessionPresence",
    "SessionSnapshots",
    "SessionStatus",
    "SessionTools",
    "SessionTurns",
    "SessionUpdates",
    "Snapshot",
    "SnapshotKind",
    "Space",
    "Stats",
    "StoreMaintenance",
    "StoreTools",
    "Stream",
    "Summarize",
    "SummaryMessage",
    "Tally",
    "TimeLike",
    "ToolStats",
    "TurnInfo",
    "Watch",
]


if not TYPE_CHECKING:  # a type checker that sees it would accept any name

    def __getattr__(name: str) -> Any:
        """Load a name on first use."""
        if name not in _MODULES:
            raise AttributeError(f"module 'recollect.types' has no attribute {name!r}")
        value = getattr(__import__(f"recollect.{_MODULES[name]}", fromlist=[name]), name)
        globals()[name] = value
        return value
