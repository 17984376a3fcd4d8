"""Recollect stores every conversation between a person and an AI agent, and returns it unchanged.

This module has the names that most programs use. recollect.errors has all errors, recollect.types all other public
types, and recollect.formats the functions for messages of providers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect import errors, formats
from recollect.errors import (
    Conflict,
    InvalidValue,
    KeyReused,
    MessageNotFound,
    NotFound,
    RecollectError,
    SessionBusy,
    SessionExists,
    SessionInTrash,
    SessionNotFound,
    StaleRecord,
    StaleRevision,
    StoreClosed,
    StoreError,
    StoreLocked,
    StoreUnavailable,
    TurnClosed,
    TurnExists,
)
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResultPart,
)
from recollect.store import Session, Store, Turn, open

if TYPE_CHECKING:
    from recollect import types
    from recollect.export.copying import copy
    from recollect.store.backups import check_backup, restore
    from recollect.store_async import AsyncSession, AsyncStore, AsyncTurn, open_async

__version__ = "0.1.0"

# Public names that few programs use, with their modules. Each is loaded on first use: asyncio alone costs 40 ms.
_LAZY_NAMES = {
    "AsyncSession": "store_async",
    "AsyncStore": "store_async",
    "AsyncTurn": "store_async",
    "check_backup": "store.backups",
    "copy": "export.copying",
    "open_async": "store_async",
    "restore": "store.backups",
}


if not TYPE_CHECKING:  # a type checker that sees it would accept any name

    def __getattr__(name: str) -> Any:
        """Load the module `types`, or a name of _LAZY_NAMES, on first use."""
        if name == "types":
            return __import__("recollect.types", fromlist=["types"])
        if name in _LAZY_NAMES:
            return getattr(__import__(f"recollect.{_LAZY_NAMES[name]}", fromlist=[name]), name)
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")


__all__ = [
    "AsyncSession",
    "AsyncStore",
    "AsyncTurn",
    "AttachmentPart",
    "Conflict",
    "DataPart",
    "Draft",
    "InvalidValue",
    "KeyReused",
    "Message",
    "MessageNotFound",
    "NotFound",
    "ReasoningPart",
    "RecollectError",
    "Session",
    "SessionBusy",
    "SessionExists",
    "SessionInTrash",
    "SessionNotFound",
    "StaleRecord",
    "StaleRevision",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreLocked",
    "StoreUnavailable",
    "TextPart",
    "ToolCall",
    "ToolCallPart",
    "ToolResultPart",
    "Turn",
    "TurnClosed",
    "TurnExists",
    "check_backup",
    "copy",
    "errors",
    "formats",
    "open",
    "open_async",
    "restore",
    "types",
]
