"""Bringing a database to the schema that this program knows, once, however many processes start; or refusing it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import psycopg

from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.failure import connection_reason, locked, meaning, read_only, too_new, unavailable
from recollect.errors import NotADatabase, RecollectError, StoreUnavailable

OLDEST = 140_000
_LOCK = 0x5265636F6C6C  # any number will do that others are not likely to take
_MIGHTY = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
_STATE = """
SELECT
    current_setting('server_encoding'),
    pg_is_in_recovery(),
    to_regclass('recollect.migrations') IS NOT NULL,
    EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'recollect'
    ),
    coalesce((
        SELECT name || ' = ' || setting FROM (VALUES
            ('row_security', 'on'), ('standard_conforming_strings', 'on'),
            ('recollect.owner', ''), ('recollect.listing', ''), ('recollect.sought', ''), ('recollect.piece', '')
        ) AS needed (name, usual), current_setting(name, true) AS setting
        WHERE setting <> usual LIMIT 1
    ), '')
"""
# IF NOT EXISTS would need the right to make a schema also where it is there.
_TABLE = """
DO $$ BEGIN
    IF to_regnamespace('recollect') IS NULL THEN
        CREATE SCHEMA recollect;
    END IF;
END $$;
CREATE TABLE IF NOT EXISTS recollect.migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL
)
"""

Migration = tuple[int, str, str]


class _State(NamedTuple):
    encoding: str
    replica: bool
    ours: bool
    taken: bool
    unfit: str


def ready(address: Address, owner: str, timeout: float, known: list[Migration] | None = None) -> None:
    """Check the server and the role, make the tables, migrate older ones, refuse newer or foreign ones."""
    migrations = sql.migrations("postgres") if known is None else known
    where = address.shown
    try:
        # Nothing is prepared: behind a pooler, another may have prepared something of the same name.
        connection = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise unavailable(where, address.without_password(connection_reason(error))) from None
    try:
        with connection:
            state = _checked(connection, where, owner)
            if _version(connection, state, where, migrations[-1][0]) < migrations[-1][0]:
                if state.replica:
                    raise read_only(where, "it is a replica, and its tables are older than this program")
                _migrate(connection, where, migrations, timeout)
    except psycopg.errors.LockNotAvailable as error:
        raise locked(where, timeout) from error
    except psycopg.Error as error:
        raise meaning(error, where, timeout) from error


def _checked(connection: psycopg.Connection[Any], where: str, owner: str) -> _State:
    version = connection.info.server_version
    if version < OLDEST:
        shown = f"{version // 10_000}" if version >= 100_000 else str(version)  # noqa: PLR2004
        raise _refused(where, f"PostgreSQL {shown} is too old; Recollect needs version {OLDEST // 10_000} or newer")
    if owner:
        _check_role(connection, where)
    row = connection.execute(_STATE).fetchone()
    assert row is not None
    state = _State(*row)
    if state.encoding != "UTF8":
        raise _refused(where, f"the database has the encoding {state.encoding}; make it anew with ENCODING 'UTF8'")
    if state.unfit:
        name = state.unfit.partition(" ")[0]
        raise _refused(
            where,
            f"{state.unfit} is set for this role, the database or in the URL; ALTER ROLE ... RESET {name} undoes it",
        )
    if state.taken and not state.ours:
        raise NotADatabase(
            f"{where} has a schema named recollect that is not Recollect's. Use another database. Nothing was changed.",
            path=where,
            reason="its schema recollect is another program's",
        )
    return state


def _check_role(connection: psycopg.Connection[Any], where: str) -> None:
    row = connection.execute(_MIGHTY).fetchone()
    if row is None or row[0]:
        raise _refused(
            where,
            "this role is a superuser or may pass row-level security by, so that a store for one owner would not be "
            "kept to it; connect with an ordinary role",
        )


def _refused(where: str, reason: str) -> RecollectError:
    return StoreUnavailable(f"{where} can not be used: {reason}.", path=where, reason=reason)


def _version(connection: psycopg.Connection[Any], state: _State, where: str, latest: int) -> int:
    return _applied(connection, where, latest) if state.ours else 0


def _applied(connection: psycopg.Connection[Any], where: str, latest: int) -> int:
    row = connection.execute("SELECT coalesce(max(number), 0) FROM recollect.migrations").fetchone()
    assert row is not None
    if row[0] > latest:
        raise too_new(where, row[0], latest)
    return row[0]


def _migrate(connection: psycopg.Connection[Any], where: str, migrations: list[Migration], timeout: float) -> None:
    """Apply what is missing, each in a transaction of its own, one process at a time."""
    for number, name, text in migrations:
        with connection.transaction():
            connection.execute(b"SET LOCAL lock_timeout = %d" % max(int(timeout * 1000), 1))
            connection.execute(b"SELECT pg_advisory_xact_lock(%d)" % _LOCK)
            connection.execute(_TABLE)
            if _applied(connection, where, migrations[-1][0]) < number:
                connection.execute(text.encode())
                connection.execute(
                    "INSERT INTO recollect.migrations (number, name, applied_at) VALUES (%s, %s, %s)",
                    (number, name, time.time_ns() // 1_000_000),
                )
