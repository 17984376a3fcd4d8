"""Keeping and letting go: nothing goes unasked, the trash gives back, pruning by age, count and size, thinning."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from recollect import ops
from recollect.errors import InvalidValue, SessionInTrash, SessionNotFound
from recollect.model.message import Draft
from recollect.model.part import AttachmentPart, TextPart, ToolCallPart, ToolResultPart
from recollect.model.pruning import PruneReport
from recollect.store import Session, Store
from recollect.testing.place import Place, listed
from recollect.testing.talk import answers, asks, assistant, counted, numbered, texts, user

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
        store.session("s1:delegate:x").append(numbered(2))
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

    def test_a_session_with_an_open_turn_stays(self, store: Store):
        with store.session("a").turn("q"):
            assert gone(later(store, 0, keep=0)) == []
            assert ids(store) == ["a"]
        assert gone(store.prune(keep=0)) == ["a"]

    def test_sub_agents_go_with_their_parent_and_not_alone(self, store: Store):
        store.session("main")
        store.session("main:delegate:a").append(numbered(2))
        store.session("main:delegate:a:delegate:b")
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
        store.session("main:delegate:a", pinned=True)
        assert gone(store.prune(keep=0)) == []

    def test_sub_agents_of_a_parent_in_the_trash_can_go(self, store: Store):
        store.session("main")
        store.session("main:delegate:a")
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


def talk(store: Store, turns: int, name: str = "a") -> Session:
    """Make a session of turns of four messages: a question, a call, its result and an answer."""
    session = store.session(name)
    for number in range(turns):
        session.append([user(f"q{number}"), asks(f"c{number}"), answers(f"c{number}"), assistant(f"a{number}")])
    return session


class TestTrim:
    """The oldest turns of sessions that are too long."""

    def test_whole_turns_go_and_can_come_back(self, store: Store, place: Place):
        session = talk(store, 5)
        assert store.prune(max_messages=20).trimmed == 0
        assert store.prune(max_messages=10, dry_run=True).trimmed == 12
        assert session.refresh().message_count == 20
        revision = session.revision
        assert store.prune(max_messages=10).trimmed == 12
        session = place.reopen().session("a")
        assert [text for text in texts(session) if text] == ["q3", "a3", "q4", "a4"]
        assert session.revision > revision
        counted(session)
        assert session.store.prune(max_messages=10).trimmed == 0
        for message in session.messages(deleted=True):
            session.restore_message(message.id)
        assert session.message_count == 20
        counted(session)

    def test_the_newest_turn_and_the_system_prompt_stay(self, store: Store):
        session = store.session("a")
        session.append({"role": "system", "content": "Be brief."})
        with session.turn("first") as turn:
            turn.add(assistant("1"))
        with session.turn("second") as turn:
            for number in range(10):
                turn.add(assistant(str(number)))
        assert store.prune(max_messages=1).trimmed == 2
        assert texts(session)[:2] == ["Be brief.", "second"]
        assert len(texts(session)) == 12
        counted(session.refresh())

    def test_by_two_rules_at_once(self, store: Store):
        talk(store, 3)
        report = store.prune(older_than="30d", max_messages=4)
        assert (report.trimmed, report.count) == (8, 0)

    def test_a_past_that_a_fork_shares_stays(self, store: Store):
        session = talk(store, 4)
        fork = session.fork(6, id="f")
        assert store.prune(max_messages=4).trimmed == 0
        assert (len(texts(session)), len(texts(fork))) == (16, 6)
        store.erase_session("f")
        assert store.prune(max_messages=4).trimmed == 12
        counted(session.refresh())

    def test_over_the_branches_of_a_session(self, store: Store):
        session = talk(store, 4)
        session.rewind(8)
        session.append(numbered(6))
        session.rewind(10)
        session.append(numbered(6))
        count = session.message_count
        assert store.prune(max_messages=5, dry_run=True).trimmed == (trimmed := store.prune(max_messages=5).trimmed)
        assert session.refresh().message_count == count - trimmed <= 6
        counted(session)
        assert texts(session)[-1] == "m6"

    def test_long_ones_in_steps(self, store: Store):
        session = store.session("a")
        for _ in range(5):
            session.append(numbered(500))
        assert store.prune(max_messages=10, dry_run=True).trimmed == 2_490
        assert store.prune(max_messages=10).trimmed == 2_490
        assert session.refresh().message_count == 10
        counted(session)

    def test_a_long_turn_goes_as_a_whole(self, store: Store):
        session = store.session("a")
        session.append([user("q"), *[assistant(str(number)) for number in range(1_500)]])
        session.append(numbered(2))
        assert store.prune(max_messages=1_000).trimmed == 1_501
        assert texts(session) == ["m1", "m2"]

    def test_pinned_and_busy_ones_stay(self, store: Store):
        talk(store, 3).update(pinned=True)
        with talk(store, 3, "b").turn("q"):
            assert store.prune(max_messages=4).trimmed == 0
        assert store.prune(max_messages=4).trimmed == 12


class TestDropOutput:
    """Large tool outputs, dropped while the text stays."""

    def outputs(self, session: Session) -> list[str]:
        """Give what the tools answered."""
        return [part.output for message in session.messages() for part in message.tool_results]

    def test_the_sentence_says_how_much_and_the_rest_stays(self, store: Store, place: Place):
        session = store.session("a")
        session.append(
            [user("q" * 5_000), asks("1", "2"), answers("1", text="large " * 1_000), answers("2", text="small")]
        )
        tokens, revision = session.token_count, session.revision
        dry = store.prune(tool_output_over=1_000, dry_run=True)
        assert (dry.outputs, dry.output_bytes > 6_000, dry.count) == (1, True, 0)
        assert (session.refresh().token_count, self.outputs(session)[0][:6]) == (tokens, "large ")
        report = store.prune(tool_output_over=1_000)
        assert (report.outputs, report.output_bytes) == (dry.outputs, dry.output_bytes)
        session = place.reopen().session("a")
        first, second = self.outputs(session)
        assert (f"{report.output_bytes:,}" in first, len(first) < 100, second) == (True, True, "small")
        assert session.messages()[0].text == "q" * 5_000
        assert session.token_count < tokens - 1_000
        assert session.revision > revision
        counted(session)
        part = session.messages()[2].tool_results[0]
        assert part.metadata is not None
        assert part.metadata["dropped"]["bytes"] == report.output_bytes
        assert [call.status for call in session.tool_calls()] == ["success", "success"]
        assert session.store.prune(tool_output_over=0).outputs == 1

    @pytest.mark.parametrize("format", ["anthropic", "openai"])
    def test_what_is_sent_next_is_still_valid(self, store: Store, format: str):
        session = store.session("a")
        blocks = [{"type": "text", "text": "large " * 500}, {"type": "text", "text": "more"}]
        result = {"type": "tool_result", "tool_use_id": "1", "content": blocks, "cache_control": {}}
        session.append([asks("1"), {"role": "user", "content": [result]}])
        store.prune(tool_output_over=100)
        sent = session.history(format)[-1]
        content = sent["content"] if format == "openai" else sent["content"][0]["content"]
        assert content.startswith("[This tool output of ")
        if format == "anthropic":
            assert sent["content"][0] == {
                "type": "tool_result", "tool_use_id": "1", "content": content, "cache_control": {},
            }  # fmt: skip

    def test_payloads_are_released(self, store: Store):
        image = AttachmentPart(mime_type="image/png", data=IMAGE)
        call = ToolCallPart(call_id="1", tool="draw", arguments={})
        result = ToolResultPart(call_id="1", content=(TextPart(text="here"), image))
        session = store.session("a")
        session.append([Draft(role="assistant", parts=(call,)), Draft(role="tool", parts=(result,))])
        other = store.session("b")
        other.append(Draft(role="user", parts=(image,)))
        assert store.prune(tool_output_over=5_000).outputs == 1
        assert session.messages()[1].tool_results[0].content is None
        kept = other.messages()[0].parts[0]
        assert isinstance(kept, AttachmentPart)
        assert kept.data == IMAGE
        assert store.check().problems == ()

    def test_in_a_past_that_forks_share_every_count_is_right(self, store: Store):
        session = store.session("a")
        session.append([asks("1"), answers("1", text="x" * 9_000), *numbered(2)])
        fork = session.fork(3, id="f")
        revision = fork.revision
        assert store.prune(tool_output_over=1_000).outputs == 1
        for each in (session.refresh(), fork.refresh()):
            counted(each)
        assert fork.revision > revision
        assert store.check().problems == ()

    def test_pinned_ones_and_their_relatives_keep_theirs(self, store: Store):
        session = store.session("a")
        session.append([asks("1"), answers("1", text="x" * 9_000)])
        session.fork(id="f").update(pinned=True)
        with store.session("b").turn("q") as turn:
            turn.add([asks("2"), answers("2", text="x" * 9_000)])
            assert store.prune(tool_output_over=1_000).outputs == 0
        assert store.prune(tool_output_over=1_000).outputs == 1

    def test_many(self, store: Store):
        session = store.session("a")
        for number in range(50):
            session.append([asks(str(number)), answers(str(number), text="x" * 3_000)])
        assert store.prune(tool_output_over=2_000).outputs == 50
        assert all(len(text) < 100 for text in self.outputs(session))
        counted(session.refresh())
