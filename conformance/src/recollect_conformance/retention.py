"""Retention: pruning by age, count and size, and emptying the trash."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from recollect import storage
from recollect.errors import InvalidValue, SessionInTrash, SessionNotFound
from recollect.model.message import AttachmentPart, Draft
from recollect.model.reports import PruneReport
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import check_counts, numbered_messages, texts, user

DAY = 86_400_000  # milliseconds, the unit of `now`
IMAGE = base64.b64encode(bytes(range(256)) * 40).decode()


def list_ids(store: Store, **arguments: Any) -> list[str]:
    """Return the ids of a complete list."""
    return [session.id for session in list_all_sessions(store, archived=None, delegates=True, **arguments)]


def prune_after(store: Store, days: float, **rules: Any) -> PruneReport:
    """Prune as if `days` days had passed."""
    scope = store._scope()
    return store._follow(storage.retention.prune(replace(scope, now=scope.now + int(days * DAY)), **rules))


def pruned_ids(report: PruneReport) -> list[str]:
    """Return the ids of the sessions of a report."""
    return [session.id for session in report.sessions]


_INVALID_RULES: list[dict[str, Any]] = [
    {"older_than": "soon"}, {"older_than": -1}, {"older_than": ""}, {"older_than": True}, {"keep": -1},
    {"keep": "3"}, {"older_than": "3x"},
    {"max_bytes": 1.5}, {"max_bytes": True}, {"max_messages": 0}, {"tool_output_over": -5},
]  # fmt: skip


class TestPruneSessions:
    """Pruning by age, count and size."""

    def test_without_rules_nothing_is_pruned(self, store: Store):
        store.session("a").append(numbered_messages(3))
        report = prune_after(store, 10_000)
        assert (report.count, report.bytes, report.messages, report.trimmed, report.outputs) == (0, 0, 0, 0, 0)
        assert (report.oldest_at, report.newest_at) == (None, None)
        assert store.maintenance.prune().count == 0
        assert list_ids(store) == ["a"]

    def test_prune_by_age_and_restore(self, store: Store, database: DatabaseUnderTest):
        for name in ("a", "b", "c"):
            store.session(name, title=name.upper()).append(numbered_messages(2))
        for age in ("30d", 30 * 86_400, datetime.timedelta(days=30), "4w 2d", "720h"):
            assert pruned_ids(prune_after(store, 29, older_than=age)) == []
        report = prune_after(store, 31, older_than="30d")
        assert pruned_ids(report) == ["a", "b", "c"]
        assert [(session.title, session.messages, session.reason) for session in report.sessions] == [
            ("A", 2, "age"), ("B", 2, "age"), ("C", 2, "age"),
        ]  # fmt: skip
        assert (report.count, report.messages, report.dry_run, report.erased) == (3, 6, False, False)
        assert report.bytes == sum(session.bytes for session in report.sessions) > 0
        assert report.oldest_at == report.sessions[0].active_at
        assert report.newest_at is not None
        assert report.newest_at >= report.sessions[0].active_at
        store = database.reopen()
        assert (list_ids(store), sorted(list_ids(store, deleted=True))) == ([], ["a", "b", "c"])
        with pytest.raises(SessionInTrash):
            store.session("a", create=False)
        session = store.restore_session("a")
        assert texts(session) == ["m1", "m2"]
        check_counts(session)

    def test_age_counts_from_the_last_activity(self, store: Store):
        store.session("old").append(user("x"))
        report = store.maintenance.prune(older_than=0)
        assert pruned_ids(report) in (["old"], [])  # it may have been active in this millisecond
        assert PruneReport.from_dict(report.to_dict()) == report

    def test_a_dry_run_reports_the_same_and_changes_nothing(self, store: Store):
        for number in range(5):
            store.session(f"s{number}", pinned=number == 2).append(numbered_messages(number + 1))
        store.session("s1:delegate:x", parent="s1").append(numbered_messages(2))
        before = [(session.info, texts(session)) for session in list_all_sessions(store, delegates=True)]
        for rules in (
            {"older_than": "1d"},
            {"keep": 1},
            {"max_bytes": 100},
            {"max_messages": 2},
            {"erase": True, "keep": 0},
        ):
            preview = prune_after(store, 2, dry_run=True, **rules)
            assert preview.dry_run
            assert [(session.info, texts(session)) for session in list_all_sessions(store, delegates=True)] == before
        report = prune_after(store, 2, keep=1)
        preview = prune_after(store, 2, keep=1, dry_run=True)
        assert pruned_ids(report) == ["s0", "s1", "s1:delegate:x", "s3"]
        assert pruned_ids(preview) == []

    def test_prune_by_count(self, store: Store):
        for number in range(6):
            store.session(f"s{number}", pinned=number == 0)
        assert pruned_ids(store.maintenance.prune(keep=3)) == ["s1", "s2"]
        assert list_ids(store) == ["s5", "s4", "s3", "s0"]
        assert pruned_ids(store.maintenance.prune(keep=3)) == []
        assert pruned_ids(store.maintenance.prune(keep=0)) == ["s3", "s4", "s5"]
        assert list_ids(store) == ["s0"]

    def test_prune_by_size_begins_with_the_oldest(self, store: Store):
        for number in range(5):
            store.session(f"s{number}", pinned=number == 1).append(user("x" * 1_000))
        sizes = {session.id: session.bytes for session in store.maintenance.prune(keep=0, dry_run=True).sessions}
        total = sum(sizes.values()) + sizes["s0"]
        assert pruned_ids(store.maintenance.prune(max_bytes=total, dry_run=True)) == []
        assert pruned_ids(store.maintenance.prune(max_bytes=total - 1, dry_run=True)) == ["s0"]
        assert pruned_ids(store.maintenance.prune(max_bytes=total - sizes["s0"] - 1)) == ["s0", "s2"]
        assert pruned_ids(store.maintenance.prune(max_bytes=0)) == ["s3", "s4"]
        assert list_ids(store) == ["s1"]

    def test_attachments_count_as_size(self, store: Store):
        store.session("a").append(Draft(role="user", parts=(AttachmentPart(mime_type="image/png", data=IMAGE),)))
        (session,) = store.maintenance.prune(keep=0, dry_run=True).sessions
        assert session.bytes > 10_000

    def test_combined_rules_report_the_reason_for_each_session(self, store: Store):
        for number in range(4):
            store.session(f"s{number}").append(user("x" * 500))
        report = store.maintenance.prune(keep=2, max_bytes=10)
        assert [(session.id, session.reason) for session in report.sessions] == [
            ("s0", "count"), ("s1", "count"), ("s2", "size"), ("s3", "size"),
        ]  # fmt: skip

    def test_a_restored_session_is_not_pruned_again_immediately(self, store: Store):
        for name in ("a", "b", "c"):
            store.session(name).append(user(name))
        store.delete_session("a")
        scope = store._scope()
        store._run(storage.sessions.restore(replace(scope, now=scope.now + 31 * DAY), "a"))
        assert list_ids(store) == ["c", "b", "a"]
        assert pruned_ids(prune_after(store, 31, older_than="30d", dry_run=True)) == ["b", "c"]
        assert pruned_ids(prune_after(store, 31, keep=1, dry_run=True)) == ["b", "c"]
        assert [session.reason for session in prune_after(store, 62, older_than="30d").sessions] == ["age"] * 3

    def test_a_session_restored_between_plan_and_deletion_stays(self, store: Store):
        store.session("a")
        plan = storage.retention.prune(store._scope(), keep=0)
        candidates = store._run(next(plan))
        store.delete_session("a")
        scope = store._scope()
        store._run(storage.sessions.restore(replace(scope, now=scope.now + 1_000), "a"))
        with pytest.raises(StopIteration) as stopped:
            plan.send(store._run(plan.send(candidates)))
        assert pruned_ids(stopped.value.value) == []
        assert list_ids(store) == ["a"]

    def test_a_session_with_an_open_turn_stays(self, store: Store):
        with store.session("a").turn("q"):
            assert pruned_ids(prune_after(store, 0, keep=0)) == []
            assert list_ids(store) == ["a"]
        assert pruned_ids(store.maintenance.prune(keep=0)) == ["a"]

    def test_delegates_are_pruned_with_their_parent_and_not_alone(self, store: Store):
        store.session("main")
        store.session("main:delegate:a", parent="main").append(numbered_messages(2))
        store.session("main:delegate:a:delegate:b", parent="main:delegate:a")
        store.session("other")
        assert pruned_ids(store.maintenance.prune(keep=2, dry_run=True)) == []
        report = store.maintenance.prune(keep=1)
        assert [(session.id, session.reason) for session in report.sessions] == [
            ("main", "count"), ("main:delegate:a", "parent"), ("main:delegate:a:delegate:b", "parent"),
        ]  # fmt: skip
        assert list_ids(store) == ["other"]
        assert sorted(list_ids(store, deleted=True)) == ["main", "main:delegate:a", "main:delegate:a:delegate:b"]

    def test_a_pinned_delegate_prevents_pruning_its_parent(self, store: Store):
        store.session("main")
        store.session("main:delegate:a", parent="main", pinned=True)
        assert pruned_ids(store.maintenance.prune(keep=0)) == []

    def test_delegates_of_a_parent_in_the_trash_can_be_pruned(self, store: Store):
        store.session("main")
        store.session("main:delegate:a", parent="main")
        store.delete_session("main")
        assert pruned_ids(store.maintenance.prune(keep=0)) == ["main:delegate:a"]

    def test_erasing_keeps_the_messages_that_forks_share(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        session.fork(2, id="f").update(pinned=True)
        report = store.maintenance.prune(keep=0, erase=True)
        assert (pruned_ids(report), report.erased) == (["a"], True)
        assert list_ids(store, deleted=True) == []
        assert texts(store.session("f")) == ["m1", "m2"]
        with pytest.raises(SessionNotFound):
            store.restore_session("a")

    def test_prune_more_than_a_batch(self, store: Store):
        for number in range(210):
            store.session(f"s{number:03}")
        report = store.maintenance.prune(keep=5)
        assert pruned_ids(report) == [f"s{number:03}" for number in range(205)]
        assert len(list_ids(store)) == 5
        assert store.maintenance.empty_trash().count == 205
        assert list_ids(store, deleted=True) == []

    def test_a_session_used_between_plan_and_deletion_stays(self, store: Store):
        for name in ("a", "b", "c", "d"):
            store.session(name)
        plan = storage.retention.prune(store._scope(), keep=0)
        candidates = store._run(next(plan))
        store.session("a").append(user("still here"))
        store.session("b").update(pinned=True)
        store.delete_session("c")
        op = plan.send(candidates)
        try:
            while True:
                op = plan.send(store._run(op))
        except StopIteration as done:
            report = done.value
        assert pruned_ids(report) == ["d"]
        assert sorted(list_ids(store)) == ["a", "b"]

    def test_invalid_rules_are_refused(self, store: Store):
        store.session("a")
        for rule in _INVALID_RULES:
            with pytest.raises(InvalidValue):
                store.maintenance.prune(**rule)
            assert list_ids(store) == ["a"], rule


class TestEmptyTrash:
    """Emptying the trash."""

    def test_all_sessions_or_only_old_ones(self, store: Store):
        for name in ("a", "b"):
            store.session(name).append(numbered_messages(2))
            store.delete_session(name)
        store.session("a").append(user("another"))
        store.session("living")
        assert store.maintenance.empty_trash(older_than="1d").count == 0
        preview = store.maintenance.empty_trash(dry_run=True)
        assert (pruned_ids(preview), preview.messages, preview.dry_run, preview.erased) == (["a", "b"], 4, True, True)
        assert all(session.reason == "trash" for session in preview.sessions)
        assert len(list_ids(store, deleted=True)) == 2
        assert pruned_ids(store.maintenance.empty_trash()) == ["a", "b"]
        assert list_ids(store, deleted=True) == []
        assert sorted(list_ids(store)) == ["a", "living"]
        assert store.maintenance.empty_trash().count == 0

    def test_forks_keep_the_messages_that_they_share(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        session.fork(3, id="f")
        store.session("a").fork(2, id="g")
        store.delete_session("a")
        store.delete_session("g")
        assert sorted(pruned_ids(store.maintenance.empty_trash())) == ["a", "g"]
        assert texts(store.session("f")) == ["m1", "m2", "m3"]
        check_counts(store.session("f"))
