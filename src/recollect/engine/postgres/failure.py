"""What PostgreSQL's errors mean, in Recollect's own. No sentence has a password in it."""

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

AGAIN = frozenset({
    "40001", "40P01",  # two transactions that can not both have been first; locks taken crosswise
    "23505",           # two that made the same row at once: the second finds it there
    "26000", "42P05",  # a pooler gave a connection that does not know what was prepared, or that knows it already
    "0A000",           # a plan that is older than the schema
})  # fmt: skip
"""What may succeed when it is run again."""

_PREPARED = frozenset({"26000", "42P05"})
FRESH = _PREPARED | {"0A000"}
"""Of those, what needs another connection."""

GONE = frozenset({"57P01", "57P02", "57P03", "57P05", "08000", "08003", "08006", "08001", "08004", "08007", "08P01"})
"""The server, or a pooler before it, ends the connection or does not take one at the moment."""

_LIMITS = {
    "trees_most": ("The number of sessions in a store", 4_398_046_511_103),
    "trees_sessions": ("The number of sessions in a tree of forks", 1_048_575),
    "trees_branches": ("The number of branches in a tree of forks", 1_048_575),
}
_READ_ONLY, _NO_RIGHT, _FULL, _WAITED, _OUT_OF_RANGE = "25006", "42501", "53100", "57014", "22003"
_TOO_LONG = "54000"
_NO_TABLE = ("42P01", "3F000")
_LONGEST = 2_147_483_647


def meaning(error: psycopg.Error, where: str, seconds: float) -> RecollectError:
    """Give the error that the caller is to see; the driver's own becomes its cause."""
    state = error.sqlstate or ""
    if state == _WAITED:
        return _stopped(where, seconds, _reason(error))
    if state == _FULL:
        return DiskFull(path=where)
    if state == _READ_ONLY:
        return read_only(where, _reason(error))
    if state == _NO_RIGHT:
        return _forbidden(where, _reason(error))
    if state.startswith("XX"):
        return Corrupted(
            f"PostgreSQL reports damage in {where}: {_reason(error)}. Stop writing to it and restore a backup.",
            path=where,
            reason=_reason(error),
        )
    if state in _PREPARED:
        reason = "a pooler in front of it hands out connections on which other statements were prepared"
        return StoreUnavailable(
            f"{where}: {reason}. Put ?prepare=off into the URL. Nothing was written.",
            path=where,
            reason=reason,
        )
    if state in _NO_TABLE:
        reason = "its tables are gone"
        return StoreUnavailable(
            f"{where}: {reason}. Restore a backup, or open it again to make them anew, with nothing in them.",
            path=where,
            reason=reason,
        )
    limit = _limit(error)
    if limit is not None:
        return limit
    if isinstance(error, psycopg.OperationalError):
        return unavailable(where, _reason(error))
    return StoreError(
        f"The database refused an operation: {_reason(error)}. This is a fault in Recollect; please report it."
    )


def _limit(error: psycopg.Error) -> RecollectError | None:
    """Say what is larger than the server takes; None where nothing is."""
    if error.sqlstate == _TOO_LONG:
        return InvalidValue(
            f"A text is too long for PostgreSQL to find it by: {_reason(error)}. Nothing was written; shorten it."
        )
    if error.sqlstate == _OUT_OF_RANGE:
        return LimitReached(what="The number of messages on a branch", limit=_LONGEST)
    found = _LIMITS.get(error.diag.constraint_name or "")
    return None if found is None else LimitReached(what=found[0], limit=found[1])


def unavailable(where: str, reason: str) -> StoreUnavailable:
    """Say that the server can not be reached or does not let us in."""
    return StoreUnavailable(
        f"{where} can not be reached: {reason}. Check that the server runs, and the host, port, database, user and "
        "password. Nothing acknowledged is lost.",
        path=where,
        reason=reason,
    )


def crowded(where: str, count: int, seconds: float) -> StoreUnavailable:
    """Say that every connection is taken."""
    reason = f"all {count} connections were in use for {seconds:g} seconds"
    return StoreUnavailable(
        f"{where}: {reason}. Nothing was written: try again, or allow more with ?pool_size=... in the URL.",
        path=where,
        reason=reason,
    )


def locked(where: str, seconds: float) -> StoreLocked:
    """Say that another transaction held what was needed for too long."""
    return StoreLocked(
        f"{where} did not answer within {seconds:g} seconds; another transaction may hold this session. Nothing was "
        "written: try again, or end what holds it (pg_stat_activity shows it).",
        path=where,
        seconds=seconds,
    )


def _stopped(where: str, seconds: float, reason: str) -> StoreLocked:
    """Say why a statement was ended: by us, when the time was up, or by a limit that the server was given."""
    if "statement timeout" not in reason:
        return locked(where, seconds)
    return StoreLocked(
        f"{where} ended a statement: a statement_timeout that is set for the role or the database is over ({reason}); "
        "another transaction may hold this session. Nothing was written: try again, or allow more time.",
        path=where,
        seconds=seconds,
    )


def read_only(where: str, reason: str) -> StoreReadOnly:
    """Say that this server or this role does not write."""
    return StoreReadOnly(
        f"{where} can be read but not written: {reason}. Connect to the primary server (in a URL with several hosts: "
        "target_session_attrs=read-write), with a role that may write in the schema recollect.",
        path=where,
        reason=reason,
    )


def _forbidden(where: str, reason: str) -> StoreReadOnly:
    """Say that the role lacks a right; it may have others, for which alone it can be used."""
    return StoreReadOnly(
        f"{where}: the role lacks a right: {reason}. Connect as the role that made the tables, or GRANT this one USAGE "
        "ON SCHEMA recollect, and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA recollect.",
        path=where,
        reason=reason,
    )


def too_new(where: str, found: int, known: int) -> SchemaTooNew:
    """Say that a newer program made this database."""
    return SchemaTooNew(
        f"{where} was written by a newer Recollect (schema {found}; this one knows up to {known}). Upgrade with "
        "`pip install -U recollect`. The database was left as it is.",
        path=where,
        found=found,
        known=known,
    )


def _reason(error: psycopg.Error) -> str:
    """Take the server's own sentence, or the last line of what the driver says, on one line."""
    primary = error.diag.message_primary
    text = primary or str(error)
    return " ".join(text.split()).rstrip(".?") or type(error).__name__


def connection_reason(error: psycopg.Error) -> str:
    """Say why a connection was refused; the driver puts the address before it, and asks back at the end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.endswith("?")]
    kept = [line for line in lines if not line.startswith(("- ", "Multiple"))] or lines
    return " ".join(kept).rstrip(".?") or type(error).__name__
