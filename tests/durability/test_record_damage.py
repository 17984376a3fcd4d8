"""Damaged records: a check reports them, and a repair removes those of sessions that do not exist."""

from __future__ import annotations

import pytest

import recollect
from recollect.engine.sqlite.connection import connect


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "sessions.db")
    with recollect.open(path) as store:
        for records in (store.records, store.session("a").records):
            for number in range(600):  # more than one page of a check
                records.put("kind", f"{number}", number)
    return path


def change(path, statement):
    connection = connect(path, 5.0)
    connection.execute(statement).fetchall()
    connection.close()


def findings(path, **options):
    with recollect.open(path) as store:
        return [(item.kind, item.session, item.message) for item in store.maintenance.check(**options).problems]


@pytest.mark.parametrize(
    "columns",
    ["value = '{\"a\":'", "value = NULL", "data = x'00'", "value = ''", "key = CAST(x'ff' AS TEXT)"],
)  # fmt: skip
def test_an_unreadable_record_is_reported(path, columns):
    assert findings(path) == []
    change(path, f"UPDATE records SET {columns} WHERE key = '599'")
    problems = findings(path)
    assert [(kind, session) for kind, session, _ in problems] == [("record", "a"), ("record", None)]
    assert "of kind 'kind' of session 'a' cannot be read" in problems[0][2]
    assert "of kind 'kind' of the store cannot be read" in problems[1][2]


def test_records_of_a_missing_session_are_reported_and_removed(path):
    change(path, "UPDATE records SET session = 77 WHERE session <> 0")
    assert [kind for kind, _, _ in findings(path, deep=False)] == ["record"]
    with recollect.open(path) as store:
        report = store.maintenance.check(deep=False, repair=True)
        assert [item.repaired for item in report.findings] == [True]
        assert len(store.records.list("kind", limit=1_000)) == 600
    assert findings(path) == []


def test_records_of_a_session_of_another_owner_are_reported(path):
    change(path, "UPDATE records SET owner = 'ann' WHERE session <> 0")
    with recollect.open(path, owner="ann") as store:
        assert [item.kind for item in store.maintenance.check(file=False).problems] == ["record"]
