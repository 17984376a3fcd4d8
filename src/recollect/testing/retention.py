"""Keeping and letting go: nothing goes unasked, the trash gives back, pruning by age, count and size."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from recollect import ops
from recollect.errors import InvalidValue, SessionInTrash, SessionNotFound
from recollect.model.message import Draft
from recollect.model.part import AttachmentPart
from recollect.model.pruning import PruneReport
from recollect.store import Store
from recollect.testing.place import Place, listed
from recollect.testing.talk import counted, numbered, texts, user

DAY = 86_400_000
IMAGE = base64.b64encode(bytes(range(256)) * 40).decode()


def ids(store: Store, **arguments: Any) -> list[str]:
    """Give the ids of a whole list."""
    return [session.id for session in listed(store, archived=None, delegates=True, **arguments)]


def later(store: Store, days: float, **rules: Any) -> PruneReport:
    """Prune as if so many days had passed."""
    scope = store.scope()
    return store.follow(ops.pruning.prune(replace(scope, now=scope.now + int(days * DAY)), **rules))


def gone(report: PruneReport) -> list[str]:
    """Name the sessions of a report."""
    return [session.id for session in report.sessions]


_ODD_RULES: list[dict[str, Any]] = [
    {"older_than": "soon"}, {"older_than": -1}, {"older_than": ""}, {"older_than": True}, {"keep": -1},
    {"keep": "3"}, {"older_than": "3x"},
    {"max_bytes": 1.5}, {"max_bytes": True}, {"max_messages": 0}, {"tool_output_over": -5},
]  # fmt: skip


class TestPruneSessions:
    """Sessions by age, count and size."""

    def test_nothing_goes_unless_a_rule_says_so(self, store: Store):
        store.session("a").append(numbered(3))
        report = later(store, 10_000)
        assert (report.count, report.bytes, report.messages, report.trimmed, report.outputs) == (0, 0, 0, 0, 0)
        assert (report.oldest_at, report.newest_at) == (None, None)
        assert store.prune().count == 0
        assert ids(store) == ["a"]

    def test_by_age_to_the_trash_and_back(self, store: Store, place: Place):
        for name in ("a", "b", "c"):
            store.session(name, title=name.upper()).append(numbered(2))
        for age in ("30d", 30 * 86_400, datetime.timedelta(days=30), "4w 2d", "720h"):
            assert gone(later(store, 29, older_than=age)) == []
        report = later(store, 31, older_than="30d")
        assert gone(report) == ["a", "b", "c"]
        assert [(session.title, session.messages, session.reason) for session in report.sessions] == [
            ("A", 2, "age"), ("B", 2, "age"), ("C", 2, "age"),
        ]  # fmt: skip
        assert (report.count, report.messages, report.dry_run, report.erased) == (3, 6, False, False)
        assert report.bytes == sum(session.bytes for session in report.sessions) > 0
        assert report.oldest_at == report.sessions[0].active_at <= (report.newest_at or 0)
        store = place.reopen()
        assert (ids(store), sorted(ids(store, deleted=True))) == ([], ["a", "b", "c"])
        with pytest.raises(SessionInTrash):
            store.session("a", create=False)
        back = store.restore_session("a")
        assert texts(back) == ["m1", "m2"]
        counted(back)

    def test_by_age_goes_by_the_last_activity(self, store: Store):
        store.session("old").append(user("x"))
        report = store.prune(older_than=0)
        assert gone(report) in (["old"], [])  # it may be of this very millisecond
        assert PruneReport.from_dict(report.to_dict()) == report

    def test_a_dry_run_says_the_same_and_changes_nothing(self, store: Store):
        for number in range(5):
            store.session(f"s{number}", pinned=number == 2).append(numbered(number + 1))
        store.session("s1:delegate:x", parent="s1").append(numbered(2))
        before = [(session.info, texts(session)) for session in listed(store, delegates=True)]
        for rules in (
            {"older_than": "1d"},
            {"keep": 1},
            {"max_bytes": 100},
            {"max_messages": 2},
            {"erase": True, "keep": 0},
        ):
            dry = later(store, 2, dry_run=True, **rules)
            assert dry.dry_run
            assert [(session.info, texts(session)) for session in listed(store, delegates=True)] == before
        wet = later(store, 2, keep=1)
        dry = later(store, 2, keep=1, dry_run=True)
        assert gone(wet) == ["s0", "s1", "s1:delegate:x", "s3"]
        assert gone(dry) == []

    def test_by_count(self, store: Store):
        for number in range(6):
            store.session(f"s{number}", pinned=number == 0)
        assert gone(store.prune(keep=3)) == ["s1", "s2"]
        assert ids(store) == ["s5", "s4", "s3", "s0"]
        assert gone(store.prune(keep=3)) == []
        assert gone(store.prune(keep=0)) == ["s3", "s4", "s5"]
        assert ids(store) == ["s0"]

    def test_by_size_the_oldest_first(self, store: Store):
        for number in range(5):
            store.session(f"s{number}", pinned=number == 1).append(user("x" * 1_000))
        sizes = {session.id: session.bytes for session in store.prune(keep=0, dry_run=True).sessions}
        whole = sum(sizes.values()) + sizes["s0"]
        assert gone(store.prune(max_bytes=whole, dry_run=True)) == []
        assert gone(store.prune(max_bytes=whole - 1, dry_run=True)) == ["s0"]
        assert gone(store.prune(max_bytes=whole - sizes["s0"] - 1)) == ["s0", "s2"]
        assert gone(store.prune(max_bytes=0)) == ["s3", "s4"]
        assert ids(store) == ["s1"]

    def test_attachments_weigh(self, store: Store):
        store.session("a").append(Draft(role="user", parts=(AttachmentPart(mime_type="image/png", data=IMAGE),)))
        (session,) = store.prune(keep=0, dry_run=True).sessions
        assert session.bytes > 10_000

    def test_rules_together_each_name_their_reason(self, store: Store):
        for number in range(4):
            store.session(f"s{number}").append(user("x" * 500))
        report = store.prune(keep=2, max_bytes=10)
        assert [(session.id, session.reason) for session in report.sessions] == [
            ("s0", "count"), ("s1", "count"), ("s2", "size"), ("s3", "size"),
        ]  # fmt: skip

    def test_what_was_restored_is_not_taken_again_at_once(self, store: Store):
        for name in ("a", "b", "c"):
            store.session(name).append(user(name))
        store.delete_session("a")
        scope = store.scope()
        store.run(ops.sessions.restore(replace(scope, now=scope.now + 31 * DAY), "a"))
        assert ids(store) == ["c", "b", "a"]
        assert gone(later(store, 31, older_than="30d", dry_run=True)) == ["b", "c"]
        assert gone(later(store, 31, keep=1, dry_run=True)) == ["b", "c"]
        assert [one.reason for one in later(store, 62, older_than="30d").sessions] == ["age"] * 3

    def test_what_is_restored_between_the_look_and_the_deed_stays(self, store: Store):
        store.session("a")
        plan = ops.pruning.prune(store.scope(), keep=0)
        found = store.run(next(plan))
        store.delete_session("a")
        scope = store.scope()
        store.run(ops.sessions.restore(replace(scope, now=scope.now + 1_000), "a"))
        with pytest.raises(StopIteration) as done:
            plan.send(store.run(plan.send(found)))
        assert gone(done.value.value) == []
        assert ids(store) == ["a"]

    def test_a_session_with_an_open_turn_stays(self, store: Store):
        with store.session("a").turn("q"):
            assert gone(later(store, 0, keep=0)) == []
            assert ids(store) == ["a"]
        assert gone(store.prune(keep=0)) == ["a"]

    def test_sub_agents_go_with_their_parent_and_not_alone(self, store: Store):
        store.session("main")
        store.session("main:delegate:a", parent="main").append(numbered(2))
        store.session("main:delegate:a:delegate:b", parent="main:delegate:a")
        store.session("other")
        assert gone(store.prune(keep=2, dry_run=True)) == []
        report = store.prune(keep=1)
        assert [(session.id, session.reason) for session in report.sessions] == [
            ("main", "count"), ("main:delegate:a", "parent"), ("main:delegate:a:delegate:b", "parent"),
        ]  # fmt: skip
        assert ids(store) == ["other"]
        assert sorted(ids(store, deleted=True)) == ["main", "main:delegate:a", "main:delegate:a:delegate:b"]

    def test_a_pinned_sub_agent_holds_its_parent(self, store: Store):
        store.session("main")
        store.session("main:delegate:a", parent="main", pinned=True)
        assert gone(store.prune(keep=0)) == []

    def test_sub_agents_of_a_parent_in_the_trash_can_go(self, store: Store):
        store.session("main")
        store.session("main:delegate:a", parent="main")
        store.delete_session("main")
        assert gone(store.prune(keep=0)) == ["main:delegate:a"]

    def test_erasing_leaves_forks_their_past(self, store: Store):
        session = store.session("a")
        session.append(numbered(4))
        session.fork(2, id="f").update(pinned=True)
        report = store.prune(keep=0, erase=True)
        assert (gone(report), report.erased) == (["a"], True)
        assert ids(store, deleted=True) == []
        assert texts(store.session("f")) == ["m1", "m2"]
        with pytest.raises(SessionNotFound):
            store.restore_session("a")

    def test_more_than_a_batch(self, store: Store):
        for number in range(210):
            store.session(f"s{number:03}")
        report = store.prune(keep=5)
        assert gone(report) == [f"s{number:03}" for number in range(205)]
        assert len(ids(store)) == 5
        assert store.empty_trash().count == 205
        assert ids(store, deleted=True) == []

    def test_what_is_used_between_the_look_and_the_deed_stays(self, store: Store):
        for name in ("a", "b", "c", "d"):
            store.session(name)
        plan = ops.pruning.prune(store.scope(), keep=0)
        found = store.run(next(plan))
        store.session("a").append(user("still here"))
        store.session("b").update(pinned=True)
        store.delete_session("c")
        op = plan.send(found)
        try:
            while True:
                op = plan.send(store.run(op))
        except StopIteration as done:
            report = done.value
        assert gone(report) == ["d"]
        assert sorted(ids(store)) == ["a", "b"]

    def test_odd_rules_are_refused(self, store: Store):
        store.session("a")
        for rule in _ODD_RULES:
            with pytest.raises(InvalidValue):
                store.prune(**rule)
            assert ids(store) == ["a"], rule


class TestEmptyTrash:
    """The trash, emptied."""

    def test_all_of_it_or_what_has_been_there_for_long(self, store: Store):
        for name in ("a", "b"):
            store.session(name).append(numbered(2))
            store.delete_session(name)
        store.session("a").append(user("another"))
        store.session("living")
        assert store.empty_trash(older_than="1d").count == 0
        dry = store.empty_trash(dry_run=True)
        assert (gone(dry), dry.messages, dry.dry_run, dry.erased) == (["a", "b"], 4, True, True)
        assert all(session.reason == "trash" for session in dry.sessions)
        assert len(ids(store, deleted=True)) == 2
        assert gone(store.empty_trash()) == ["a", "b"]
        assert ids(store, deleted=True) == []
        assert sorted(ids(store)) == ["a", "living"]
        assert store.empty_trash().count == 0

    def test_forks_keep_what_they_share(self, store: Store):
        session = store.session("a")
        session.append(numbered(4))
        session.fork(3, id="f")
        store.session("a").fork(2, id="g")
        store.delete_session("a")
        store.delete_session("g")
        assert sorted(gone(store.empty_trash())) == ["a", "g"]
        assert texts(store.session("f")) == ["m1", "m2", "m3"]
        counted(store.session("f"))
