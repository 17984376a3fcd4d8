"""Schema migrations of a PostgreSQL database, applied by one process at a time, and checks of server and role."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import psycopg

from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.errors import (
    connection_reason,
    lock_timeout_error,
    read_only_error,
    schema_too_new,
    translate_error,
    unavailable_error,
)
from recollect.engine.postgres.statements import PreparedStatement
from recollect.errors import NotADatabase, RecollectError, StoreUnavailable

OLDEST_VERSION = 140_000  # PostgreSQL 14, the oldest version that the tests run on
_ADVISORY_LOCK = 0x5265636F6C6C  # "Recoll" in ASCII: advisory locks are shared by all programs of a database
# Whether row-level security does not apply to this role.
BYPASSES_ROW_SECURITY = PreparedStatement(
    "role_check",
    "SELECT coalesce((SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user), true)",
)
# The columns of _ServerState. The last one is the first setting that differs from the value that the policies need, as
# `name = value`: a role or database may set a default with ALTER ROLE or ALTER DATABASE.
_SERVER_STATE = """
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
        ) AS requirement (name, expected), current_setting(name, true) AS setting
        WHERE setting <> expected LIMIT 1
    ), '')
"""
# CREATE SCHEMA IF NOT EXISTS would need the CREATE privilege even if the schema exists.
_CREATE_TABLE = """
DO $$ BEGIN
    IF to_regnamespace('recollect') IS NULL THEN
        CREATE SCHEMA recollect;
    END IF;
END $$;
CREATE TABLE IF NOT EXISTS recollect.migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL
)
"""

PostgresMigration = tuple[int, str, str]


class _ServerState(NamedTuple):
    encoding: str
    replica: bool
    has_migrations: bool
    schema_exists: bool
    bad_setting: str


def prepare_schema(
    address: Address, owner: str, timeout: float, all_migrations: list[PostgresMigration] | None = None
) -> None:
    """Check the server and the role, create or migrate the tables. Refuse newer or foreign ones before any change."""
    migrations = sql.migrations("postgres") if all_migrations is None else all_migrations
    url = address.display_url
    try:
        # No prepared statements: behind a pooler, another client may have prepared one of the same name.
        connection = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise unavailable_error(url, address.without_password(connection_reason(error))) from None
    try:
        with connection:
            state = _check_server(connection, url, owner)
            if _schema_version(connection, state, url, migrations[-1][0]) < migrations[-1][0]:
                if state.replica:
                    raise read_only_error(url, "it is a replica, and its tables are older than this version")
                _migrate(connection, url, migrations, timeout)
    except psycopg.errors.LockNotAvailable as error:
        raise lock_timeout_error(url, timeout) from error
    except psycopg.Error as error:
        raise translate_error(error, url, timeout) from error


def _check_server(connection: psycopg.Connection[Any], url: str, owner: str) -> _ServerState:
    version = connection.info.server_version
    if version < OLDEST_VERSION:
        display_version = f"{version // 10_000}" if version >= 100_000 else str(version)  # noqa: PLR2004
        raise _unusable_error(
            url,
            f"PostgreSQL {display_version} is too old; Recollect needs version {OLDEST_VERSION // 10_000} or newer",
        )
    if owner:
        check_role(connection.execute(BYPASSES_ROW_SECURITY.text).fetchone(), url)
    row = connection.execute(_SERVER_STATE).fetchone()
    assert row is not None
    state = _ServerState(*row)
    if state.encoding != "UTF8":
        raise _unusable_error(url, f"the encoding of the database is {state.encoding}; create it with ENCODING 'UTF8'")
    if state.bad_setting:
        name = state.bad_setting.partition(" ")[0]
        raise _unusable_error(
            url,
            f"{state.bad_setting} is set for this role, the database or in the URL; "
            f"ALTER ROLE ... RESET {name} undoes it",
        )
    if state.schema_exists and not state.has_migrations:
        raise NotADatabase(
            f"{url} has a schema named recollect that is not Recollect's. Use another database. Nothing was changed.",
            path=url,
            reason="its schema recollect is another program's",
        )
    return state


def check_role(row: tuple[Any, ...] | None, url: str) -> None:
    """Raise StoreUnavailable if the role of a row of BYPASSES_ROW_SECURITY bypasses row-level security."""
    if row is None or row[0]:
        raise _unusable_error(
            url,
            "this role is a superuser or bypasses row-level security, so a store for one owner would not be confined "
            "to it; connect with an ordinary role",
        )


def _unusable_error(url: str, reason: str) -> RecollectError:
    return StoreUnavailable(f"{url} cannot be used: {reason}.", path=url, reason=reason)


def _schema_version(connection: psycopg.Connection[Any], state: _ServerState, url: str, latest: int) -> int:
    return _applied_version(connection, url, latest) if state.has_migrations else 0


def _applied_version(connection: psycopg.Connection[Any], url: str, latest: int) -> int:
    row = connection.execute("SELECT coalesce(max(number), 0) FROM recollect.migrations").fetchone()
    assert row is not None
    if row[0] > latest:
        raise schema_too_new(url, row[0], latest)
    return row[0]


def _migrate(
    connection: psycopg.Connection[Any], url: str, migrations: list[PostgresMigration], timeout: float
) -> None:
    """Apply missing migrations, each in its own transaction. The advisory lock admits one process at a time."""
    for number, name, text in migrations:
        with connection.transaction():
            connection.execute(b"SET LOCAL lock_timeout = %d" % max(int(timeout * 1000), 1))
            connection.execute(b"SELECT pg_advisory_xact_lock(%d)" % _ADVISORY_LOCK)
            connection.execute(_CREATE_TABLE)
            if _applied_version(connection, url, migrations[-1][0]) < number:
                connection.execute(text.encode())
                connection.execute(
                    "INSERT INTO recollect.migrations (number, name, applied_at) VALUES (%s, %s, %s)",
                    (number, name, time.time_ns() // 1_000_000),
                )
