"""Recollect keeps every conversation between a person and an AI agent, and brings it back exactly as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.errors import (
    AmbiguousName,
    BranchNotFound,
    Conflict,
    Corrupted,
    DiskFull,
    FormatUnclear,
    InvalidValue,
    KeyReused,
    LimitReached,
    MessageNotFound,
    ModelError,
    ModelNotConfigured,
    NetworkFileSystem,
    NotADatabase,
    NotFound,
    RecollectError,
    SchemaTooNew,
    SessionBusy,
    SessionExists,
    SessionHasForks,
    SessionInTrash,
    SessionNotFound,
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
from recollect.model.message import Draft, Message
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.tool_call import ToolCall
from recollect.store import Session, Store, Stream, Turn, open

if TYPE_CHECKING:
    from recollect.store_async import AsyncSession, AsyncStore, AsyncStream, AsyncTurn, open_async

__version__ = "0.1.0"

_ASYNC = ("AsyncSession", "AsyncStore", "AsyncStream", "AsyncTurn", "open_async")


def __getattr__(name: str) -> Any:
    """Load the async half on first use: asyncio costs 40 ms that a command line need not pay."""
    if name in _ASYNC:
        from recollect import store_async  # noqa: PLC0415

        return getattr(store_async, name)
    raise AttributeError(f"module 'recollect' has no attribute {name!r}")


__all__ = [
    "AmbiguousName",
    "AsyncSession",
    "AsyncStore",
    "AsyncStream",
    "AsyncTurn",
    "AttachmentPart",
    "Branch",
    "BranchNotFound",
    "Conflict",
    "Corrupted",
    "DataPart",
    "DiskFull",
    "Draft",
    "FormatUnclear",
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
    "ReasoningPart",
    "RecollectError",
    "SchemaTooNew",
    "Session",
    "SessionBusy",
    "SessionExists",
    "SessionHasForks",
    "SessionInTrash",
    "SessionNotFound",
    "StaleRevision",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "Stream",
    "TextPart",
    "ToolCall",
    "ToolCallAnswered",
    "ToolCallNotFound",
    "ToolCallPart",
    "ToolResultPart",
    "Turn",
    "TurnClosed",
    "TurnNotFound",
    "UnknownFormat",
    "open",
    "open_async",
]
