"""Recollect keeps every conversation between a person and an AI agent, and brings it back exactly as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.errors import (
    AlreadySaid,
    AmbiguousName,
    ApprovalNotFound,
    BotRefused,
    BranchNotFound,
    CompactedMeanwhile,
    CompactionNotFound,
    Conflict,
    Corrupted,
    DiskFull,
    FileExists,
    FormatUnclear,
    IndexDamaged,
    InvalidConfig,
    InvalidValue,
    KeyReused,
    LimitReached,
    MessageNotFound,
    ModelError,
    ModelNotConfigured,
    NetworkFileSystem,
    NotADatabase,
    NotFound,
    NotSupported,
    RecollectError,
    SchemaTooNew,
    SessionBusy,
    SessionExists,
    SessionHasForks,
    SessionInTrash,
    SessionNotFound,
    SessionTaken,
    StaleRevision,
    StoreClosed,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    ToolCallAnswered,
    ToolCallNotFound,
    TurnClosed,
    TurnNotFound,
    UnknownFormat,
)
from recollect.model.branch import Branch
from recollect.model.change import Change
from recollect.model.compaction import Compaction
from recollect.model.hit import Hit
from recollect.model.message import Draft, Format, Message
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.repair import Repair
from recollect.model.snapshot import Snapshot
from recollect.model.tool_call import ToolCall
from recollect.store import Session, Store, Stream, Turn, open

if TYPE_CHECKING:
    from recollect.context.compaction import CompactionPolicy
    from recollect.export.copying import copy
    from recollect.model.copied import Copied, Difference
    from recollect.model.finding import Finding, Findings
    from recollect.model.owners import Owners
    from recollect.model.presence import Arrived, Presence
    from recollect.model.pruning import Pruned, PruneReport
    from recollect.model.space import Backup, Optimized, Space
    from recollect.model.statistics import Stats, Tally, ToolStats
    from recollect.store.backups import check_backup, restore
    from recollect.store.watch import Watch
    from recollect.store_async import AsyncSession, AsyncStore, AsyncStream, AsyncTurn, open_async
    from recollect.store_async.watch import AsyncWatch

__version__ = "0.1.0"

# What only some programs name, and where: each is loaded with its first use. asyncio alone costs 40 ms.
_LATER = {
    "Arrived": "model.presence",
    "AsyncSession": "store_async",
    "AsyncStore": "store_async",
    "AsyncStream": "store_async",
    "AsyncTurn": "store_async",
    "AsyncWatch": "store_async.watch",
    "Backup": "model.space",
    "CompactionPolicy": "context.compaction",
    "Copied": "model.copied",
    "Difference": "model.copied",
    "Finding": "model.finding",
    "Findings": "model.finding",
    "Optimized": "model.space",
    "Presence": "model.presence",
    "Owners": "model.owners",
    "PruneReport": "model.pruning",
    "Pruned": "model.pruning",
    "Space": "model.space",
    "Stats": "model.statistics",
    "Tally": "model.statistics",
    "ToolStats": "model.statistics",
    "Watch": "store.watch",
    "check_backup": "store.backups",
    "copy": "export.copying",
    "open_async": "store_async",
    "restore": "store.backups",
}


if not TYPE_CHECKING:  # to a type checker that sees it, every name of the module exists

    def __getattr__(name: str) -> Any:
        """Load what not every program uses."""
        if name in _LATER:
            return getattr(__import__(f"recollect.{_LATER[name]}", fromlist=[name]), name)
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")


__all__ = [
    "AlreadySaid",
    "AmbiguousName",
    "ApprovalNotFound",
    "Arrived",
    "AsyncSession",
    "AsyncStore",
    "AsyncStream",
    "AsyncTurn",
    "AsyncWatch",
    "AttachmentPart",
    "Backup",
    "BotRefused",
    "Branch",
    "BranchNotFound",
    "Change",
    "CompactedMeanwhile",
    "Compaction",
    "CompactionNotFound",
    "CompactionPolicy",
    "Conflict",
    "Copied",
    "Corrupted",
    "DataPart",
    "Difference",
    "DiskFull",
    "Draft",
    "FileExists",
    "Finding",
    "Findings",
    "Format",
    "FormatUnclear",
    "Hit",
    "IndexDamaged",
    "InvalidConfig",
    "InvalidValue",
    "KeyReused",
    "LimitReached",
    "Message",
    "MessageNotFound",
    "ModelError",
    "ModelNotConfigured",
    "NetworkFileSystem",
    "NotADatabase",
    "NotFound",
    "NotSupported",
    "Optimized",
    "Owners",
    "Presence",
    "PruneReport",
    "Pruned",
    "ReasoningPart",
    "RecollectError",
    "Repair",
    "SchemaTooNew",
    "Session",
    "SessionBusy",
    "SessionExists",
    "SessionHasForks",
    "SessionInTrash",
    "SessionNotFound",
    "SessionTaken",
    "Snapshot",
    "Space",
    "StaleRevision",
    "Stats",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "Stream",
    "Tally",
    "TextPart",
    "ToolCall",
    "ToolCallAnswered",
    "ToolCallNotFound",
    "ToolCallPart",
    "ToolResultPart",
    "ToolStats",
    "Turn",
    "TurnClosed",
    "TurnNotFound",
    "UnknownFormat",
    "Watch",
    "check_backup",
    "copy",
    "open",
    "open_async",
    "restore",
]
