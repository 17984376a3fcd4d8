"""Translation of PostgreSQL's errors to Recollect's. No message contains a password."""

from __future__ import annotations

import psycopg

from recollect.errors import (
    Corrupted,
    DiskFull,
    InvalidValue,
    LimitReached,
    RecollectError,
    SchemaTooNew,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)

# Errors after which the same operation may succeed.
RETRYABLE = frozenset({
    "40001", "40P01",  # serialization failure, deadlock
    "23505",           # unique violation: another transaction inserted the row first; the second attempt finds it
    "26000", "42P05",  # a pooler handed out a connection without a prepared statement, or that has it already
    "0A000",           # a cached plan is older than the schema
})  # fmt: skip

_PREPARED_STATEMENT_ERRORS = frozenset({"26000", "42P05"})
NEEDS_NEW_CONNECTION = _PREPARED_STATEMENT_ERRORS | {"0A000"}  # retried on another connection

# The server, or a pooler in front of it, ends the connection or accepts none at the moment.
CONNECTION_ENDED = frozenset(
    {"57P01", "57P02", "57P03", "57P05", "08000", "08003", "08006", "08001", "08004", "08007", "08P01"}
)

_LIMITS = {
    # By the name of the violated constraint: the key is (tree << 20) | number, of 62 bits.
    "trees_most": ("The number of sessions in a store", 4_398_046_511_103),
    "trees_sessions": ("The number of sessions in a tree of forks", 1_048_575),
    "trees_branches": ("The number of branches in a tree of forks", 1_048_575),
}
_READ_ONLY, _NO_PERMISSION, _DISK_FULL, _QUERY_CANCELLED, _OUT_OF_RANGE = "25006", "42501", "53100", "57014", "22003"
_TOO_LONG = "54000"
_NO_TABLE = ("42P01", "3F000")
_MAX_MESSAGES = 2_147_483_647  # positions are `integer`


def translate_error(error: psycopg.Error, url: str, seconds: float) -> RecollectError:
    """Return the error for the caller; raise it from the driver's error. `seconds` is the store's timeout."""
    state = error.sqlstate or ""
    if state == _QUERY_CANCELLED:
        return _statement_cancelled(url, seconds, _reason(error))
    if state == _DISK_FULL:
        return DiskFull(path=url)
    if state == _READ_ONLY:
        return read_only_error(url, _reason(error))
    if state == _NO_PERMISSION:
        return _permission_error(url, _reason(error))
    if state.startswith("XX"):
        return Corrupted(
            f"PostgreSQL reports damage in {url}: {_reason(error)}. Stop writing to it and restore a backup.",
            path=url,
            reason=_reason(error),
        )
    if state in _PREPARED_STATEMENT_ERRORS:
        reason = "a pooler in front of it hands out connections on which other statements were prepared"
        return StoreUnavailable(
            f"{url}: {reason}. Add ?prepare=off to the URL. Nothing was written.",
            path=url,
            reason=reason,
        )
    if state in _NO_TABLE:
        reason = "its tables do not exist any more"
        return StoreUnavailable(
            f"{url}: {reason}. Restore a backup, or open the store again to create empty tables.",
            path=url,
            reason=reason,
        )
    limit = _limit_error(error)
    if limit is not None:
        return limit
    if isinstance(error, psycopg.OperationalError):
        return unavailable_error(url, _reason(error))
    return StoreError(
        f"The database refused an operation: {_reason(error)}. This is a bug in Recollect; please report it."
    )


def _limit_error(error: psycopg.Error) -> RecollectError | None:
    """Return an error if a value exceeds a limit of the server, else None."""
    if error.sqlstate == _TOO_LONG:
        return InvalidValue(
            f"A text is too long for an index of PostgreSQL: {_reason(error)}. Nothing was written; shorten the text."
        )
    if error.sqlstate == _OUT_OF_RANGE:
        return LimitReached(what="The number of messages on a branch", limit=_MAX_MESSAGES)
    limit = _LIMITS.get(error.diag.constraint_name or "")
    return None if limit is None else LimitReached(what=limit[0], limit=limit[1])


def unavailable_error(url: str, reason: str) -> StoreUnavailable:
    """Return the error for a server that cannot be reached or refuses the connection."""
    return StoreUnavailable(
        f"{url} cannot be reached: {reason}. Check that the server runs, and check the host, port, database, user and "
        "password. No acknowledged write is lost.",
        path=url,
        reason=reason,
    )


def pool_exhausted(url: str, count: int, seconds: float) -> StoreUnavailable:
    """Return the error for a pool whose connections are all in use."""
    reason = f"all {count} connections were in use for {seconds:g} seconds"
    return StoreUnavailable(
        f"{url}: {reason}. Nothing was written: try again, or allow more connections with ?pool_size=... in the URL.",
        path=url,
        reason=reason,
    )


def lock_timeout_error(url: str, seconds: float) -> StoreLocked:
    """Return the error for a lock that another transaction held for longer than the timeout."""
    return StoreLocked(
        f"{url} did not answer within {seconds:g} seconds; another transaction may hold this session. Nothing was "
        "written: try again, or end the transaction that holds it (see pg_stat_activity).",
        path=url,
        seconds=seconds,
    )


def _statement_cancelled(url: str, seconds: float, reason: str) -> StoreLocked:
    """Return the error for a cancelled statement: by the store's timeout, or by a statement_timeout of the server."""
    if "statement timeout" not in reason:
        return lock_timeout_error(url, seconds)
    return StoreLocked(
        f"{url} cancelled a statement: the statement_timeout that is set for the role or the database expired "
        f"({reason}); another transaction may hold this session. Nothing was written: try again, or raise the limit.",
        path=url,
        seconds=seconds,
    )


def read_only_error(url: str, reason: str) -> StoreReadOnly:
    """Return the error for a server or role that does not allow writes."""
    return StoreReadOnly(
        f"{url} is read-only: {reason}. Connect to the primary server (in a URL with several hosts: "
        "target_session_attrs=read-write), with a role that may write in the schema recollect.",
        path=url,
        reason=reason,
    )


def _permission_error(url: str, reason: str) -> StoreReadOnly:
    """Return the error for a missing privilege; the role may have others, and be usable for these."""
    return StoreReadOnly(
        f"{url}: the role lacks a privilege: {reason}. Connect as the role that created the tables, or GRANT this one "
        "USAGE ON SCHEMA recollect, and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA recollect.",
        path=url,
        reason=reason,
    )


def schema_too_new(url: str, version: int, latest: int) -> SchemaTooNew:
    """Return the error for a database of a newer version."""
    return SchemaTooNew(
        f"{url} was written by a newer version of Recollect (schema {version}; this version knows up to {latest}). "
        "Upgrade with `pip install -U recollect`. The database was not changed.",
        path=url,
        found=version,
        known=latest,
    )


def _reason(error: psycopg.Error) -> str:
    """Return the server's message, or the driver's, on one line."""
    primary = error.diag.message_primary
    text = primary or str(error)
    return " ".join(text.split()).rstrip(".?") or type(error).__name__


def connection_reason(error: psycopg.Error) -> str:
    """Return why a connection failed, without the address that the driver puts first and its closing question."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.endswith("?")]
    reasons = [line for line in lines if not line.startswith(("- ", "Multiple"))] or lines
    return " ".join(reasons).rstrip(".?") or type(error).__name__
