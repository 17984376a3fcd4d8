"""The codes of HTTP problems are public: each is listed here, and does not change with the name of its class."""

from __future__ import annotations

from recollect import errors
from recollect.server.problems import code_of

CODES = {
    "AmbiguousFormat": "format-unclear",
    "AmbiguousName": "ambiguous-name",
    "ApprovalNotFound": "approval-not-found",
    "BotError": "bot-error",
    "BotRejected": "bot-refused",
    "BranchNotFound": "branch-not-found",
    "CompactionConflict": "compacted-meanwhile",
    "CompactionNotFound": "compaction-not-found",
    "Conflict": "conflict",
    "CopyConflict": "copy-conflict",
    "Corrupted": "corrupted",
    "DeliveryFailed": "delivery-failed",
    "DiskFull": "disk-full",
    "FileExists": "file-exists",
    "ImportConflict": "stale",
    "IndexDamaged": "index-damaged",
    "InvalidConfig": "invalid-config",
    "InvalidValue": "invalid-value",
    "KeyReused": "key-reused",
    "LimitReached": "limit-reached",
    "MessageNotFound": "message-not-found",
    "ModelError": "model-error",
    "ModelNotConfigured": "model-not-configured",
    "NetworkFileSystem": "network-file-system",
    "NotADatabase": "not-a-database",
    "NotConfirmed": "not-confirmed",
    "NotFound": "not-found",
    "NotSupported": "not-supported",
    "RecollectError": "recollect-error",
    "SchemaTooNew": "schema-too-new",
    "RateLimited": "rate-limited",
    "SessionBusy": "session-busy",
    "SessionExists": "session-exists",
    "SessionHasForks": "session-has-forks",
    "SessionInTrash": "session-in-trash",
    "SessionNotFound": "session-not-found",
    "SessionTakenOver": "session-taken",
    "StaleRecord": "stale-record",
    "StaleRevision": "stale-revision",
    "StoreClosed": "store-closed",
    "StoreError": "store-error",
    "StoreLocked": "store-locked",
    "StoreReadOnly": "store-read-only",
    "StoreUnavailable": "store-unavailable",
    "ToolCallAnswered": "tool-call-answered",
    "ToolCallNotFound": "tool-call-not-found",
    "TurnClosed": "turn-closed",
    "TurnExists": "turn-exists",
    "TurnNotFound": "turn-not-found",
    "UnknownFormat": "unknown-format",
    "UnreadableFile": "unreadable-file",
}


def test_every_error_has_its_code():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RecollectError)
    ]
    assert {kind.__name__: code_of(kind("x")) for kind in kinds} == CODES


def test_codes_are_unique():
    assert len(set(CODES.values())) == len(CODES)
