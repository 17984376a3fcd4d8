"""What SQLite's errors mean: none of them is a fault of Recollect where the file or the caller is at fault."""

from __future__ import annotations

import apsw
import pytest

from recollect.engine.sqlite.failure import meaning
from recollect.errors import Corrupted, InvalidValue, RecollectError


def refused(statement: str, *bindings: object) -> RecollectError:
    connection = apsw.Connection(":memory:")
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, 1_000)
    with pytest.raises(apsw.Error) as caught:
        connection.execute(statement, bindings)
    return meaning(caught.value, "x.db", 1.0)


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM sessions", "SELECT kindIN()", "SELECT title FROM (SELECT 1 AS id)"]
)
def test_tables_that_are_gone_are_damage(statement):
    assert type(refused(statement)) is Corrupted


def test_what_is_too_large_is_the_callers():
    assert type(refused("SELECT ?", "x" * 2_000)) is InvalidValue
