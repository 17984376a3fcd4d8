"""SQLite's errors are translated to errors that name the cause: a damaged file or an invalid value."""

from __future__ import annotations

import apsw
import pytest

from recollect.engine.sqlite.errors import translate_error
from recollect.errors import Corrupted, InvalidValue, RecollectError


def error_of(statement: str, *bindings: object) -> RecollectError:
    connection = apsw.Connection(":memory:")
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, 1_000)
    with pytest.raises(apsw.Error) as excinfo:
        connection.execute(statement, bindings)
    return translate_error(excinfo.value, "x.db", 1.0)


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM sessions", "SELECT kindIN()", "SELECT title FROM (SELECT 1 AS id)"]
)
def test_missing_tables_columns_and_functions_are_damage(statement):
    assert type(error_of(statement)) is Corrupted


def test_a_value_that_is_too_large_is_invalid():
    assert type(error_of("SELECT ?", "x" * 2_000)) is InvalidValue
