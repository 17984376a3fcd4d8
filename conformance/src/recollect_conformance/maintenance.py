"""Maintenance: check, backup, space. An engine without a file supports less of it."""

from __future__ import annotations

import os
from typing import Any

import pytest

import recollect.store
from recollect.errors import FileExists, InvalidValue, NotSupported
from recollect.model.reports import Findings
from recollect.store import Store
from recollect_conformance.examples import numbered_messages, texts, tool_call_message, tool_result_message, user


def fill_store(store: Store) -> None:
    """Fill a store with every kind of data."""
    session = store.session("a", title="Title")
    session.append(numbered_messages(4), key="k")
    session.append([tool_call_message("1"), tool_result_message("1", text="x" * 5_000)])
    session.save_turn("q", {"role": "assistant", "content": "a"})
    session.fork(2, id="f").append(numbered_messages(2))
    session.rewind(3)
    session.append(numbered_messages(2))
    store.session("trash").append(numbered_messages(2))
    store.delete_session("trash")


class TestMaintenance:
    """Check, backup and optimize."""

    def test_a_check_of_a_valid_store_reports_no_problems(self, store: Store):
        fill_store(store)
        steps: list[tuple[int, int]] = []
        for deep in (True, False):
            findings = store.maintenance.check(deep=deep, progress=lambda done, total: steps.append((done, total)))
            assert (findings.findings, findings.problems, findings.notices, findings.ok) == ((), (), (), True)
            assert "counters" in findings.checks
        assert steps[-1] == (3, 3)
        assert store.maintenance.check(repair=True).repairs == ()
        assert Findings.from_json(findings.to_json()) == findings

    def test_a_check_reports_unanswered_tool_calls(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("1", "2"))
        assert store.maintenance.check().notices == ()  # the result may still arrive
        session.append(user("never mind"))
        (notice,) = store.maintenance.check().notices
        assert (notice.kind, notice.session, store.maintenance.check().ok) == ("unanswered", "a", True)
        assert "1, 2" in notice.message
        session.tools.record_result("1", "x")
        session.tools.record_result("2", status="cancelled")
        assert store.maintenance.check().findings == ()

    def test_a_check_reports_an_open_turn_only_if_its_holder_is_gone(self, store: Store):
        session = store.session("a")
        turn = session.turn("q", lease=0.001)
        while not store.maintenance.check().findings:
            pass
        (notice,) = store.maintenance.check().notices
        assert notice.kind == "turn"
        (repair,) = store.maintenance.check(repair=True).repairs
        assert repair.message == notice.message
        assert store.maintenance.check().findings == ()
        assert session.turns.list()[0].status == "interrupted"
        with session.turn("live"):
            assert store.maintenance.check().findings == ()
        assert turn.id == "1.1"

    def test_a_check_of_more_sessions_than_a_page(self, store: Store):
        for number in range(55):
            store.session(f"s{number}").append(user("x"))
        steps: list[Any] = []
        assert store.maintenance.check(deep=False, progress=lambda *progress: steps.append(progress)).ok
        assert steps == [(50, 55), (55, 55)]

    def test_a_backup_is_a_complete_copy(self, store: Store, tmp_path: Any):
        fill_store(store)
        path = str(tmp_path / "backup.db")
        steps: list[tuple[int, int]] = []
        try:
            backup = store.maintenance.backup(path, progress=lambda done, total: steps.append((done, total)))
        except NotSupported:
            pytest.skip("This engine does not support backups.")
        assert backup == path
        assert steps
        assert steps[-1][0] == steps[-1][1] > 0
        assert "backup.db" in os.listdir(tmp_path)
        assert not os.path.exists(path + "-wal")
        assert os.name != "posix" or os.stat(path).st_mode & 0o777 == 0o600
        store.session("a").append(user("later"))
        with pytest.raises(FileExists):
            store.maintenance.backup(path)
        with recollect.store.open(path) as copy:
            assert texts(copy.session("a"))[-2:] == ["m1", "m2"]
            assert copy.maintenance.check().findings == ()
            assert [session.id for session in copy.list_sessions(deleted=True)] == ["trash"]
        store.maintenance.backup(path, overwrite=True)
        with recollect.store.open(path) as copy:
            assert texts(copy.session("a"))[-1] == "later"

    def test_invalid_backup_paths(self, store: Store, tmp_path: Any):
        try:
            store.maintenance.backup(tmp_path / "first.db")
        except NotSupported:
            pytest.skip("This engine does not support backups.")
        for odd in ("", ":memory:", "a\0b", str(tmp_path)):
            with pytest.raises(InvalidValue):
                store.maintenance.backup(odd, overwrite=True)
        if store.path != ":memory:":
            with pytest.raises(InvalidValue):
                store.maintenance.backup(store.path, overwrite=True)
        with pytest.raises(recollect.StoreUnavailable):
            store.maintenance.backup(tmp_path / "nowhere" / "b.db")

    def test_space_adds_up_and_is_reclaimed(self, store: Store):
        session = store.session("a")
        for number in range(20):
            session.append([tool_call_message(str(number)), tool_result_message(str(number), text="x" * 50_000)])
        session.append({"role": "user", "content": "y" * 300_000})
        try:
            space = store.maintenance.space()
        except NotSupported:
            pytest.skip("This engine has no file whose size could be measured.")
        parts = (space.text, space.tool_output, space.attachments, space.index, space.free, space.other)
        assert sum(parts) == space.total
        assert all(size >= 0 for size in parts)
        assert space.tool_output >= 1_000_000
        assert space.text >= 300_000
        assert space.tables["messages"] + space.tables["message_versions"] == space.text + space.tool_output
        store.erase_session("a")
        after = store.maintenance.space()
        assert space.total - after.total + after.free > 1_000_000
        result = store.maintenance.optimize()
        assert result.freed == max(result.before - result.after, 0)
        assert store.maintenance.space().free == 0
        assert store.maintenance.space().total < space.total - 1_000_000
        assert store.maintenance.check().findings == ()
