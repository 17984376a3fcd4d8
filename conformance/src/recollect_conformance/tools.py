"""Tool calls: their states, their results, calls that a turn leaves open, and calls that branches share."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from recollect.errors import InvalidValue, ToolCallAnswered, ToolCallNotFound
from recollect.store import Session, Store, Turn
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    NAN,
    OPENAI_MESSAGES,
    assistant,
    check_counts,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)


def call_statuses(session: Session) -> list[tuple[str, str]]:
    """Return the id and status of each call of the active path."""
    return [(call.call_id, call.status) for call in session.tools.list()]


class TestTools:
    """The states of a call, and its result."""

    def test_pending_running_success(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([user("q"), tool_call_message("t1")])
        call = session.tools.list()[0]
        assert (call.message, call.part, call.call_id, call.tool) == ("1.2", 0, "t1", "read_file")
        assert (call.status, call.started_at, call.completed_at, call.latency_ms) == ("pending", None, None, None)
        session.tools.start("t1")
        running = session.tools.list()[0]
        assert running.status == "running"
        assert running.started_at is not None
        time.sleep(0.02)
        message = session.tools.record_result("t1", "contents")
        assert (message.id, message.role, message.tool_results[0].output) == ("1.3", "tool", "contents")
        done = database.reopen().session("a").tools.list()[0]
        assert (done.status, done.result_message, done.result_part) == ("success", "1.3", 0)
        assert done.started_at == running.started_at
        assert done.completed_at is not None
        assert done.latency_ms is not None
        assert timedelta(milliseconds=done.latency_ms) == done.completed_at - running.started_at
        assert done.latency_ms >= 20

    def test_a_result_in_a_message(self, store: Store):
        session = store.session("a")
        session.append(
            [
                tool_call_message("t1", "t2", "t3"),
                tool_result_message("t2"),
                user("hm"),
                tool_result_message("t3", "t1"),
            ]
        )
        assert call_statuses(session) == [("t1", "success"), ("t2", "success"), ("t3", "success")]
        assert [(c.result_message, c.result_part) for c in session.tools.list()] == [("1.4", 1), ("1.2", 0), ("1.4", 0)]

    def test_results_of_openai(self, store: Store):
        session = store.session("a")
        session.append(OPENAI_MESSAGES)
        assert call_statuses(session) == [("call_1", "success"), ("call_2", "success")]
        assert [c.tool for c in session.tools.list()] == ["weather", "weather"]

    @pytest.mark.parametrize("status", ["error", "cancelled"])
    def test_a_failed_call(self, store: Store, database: DatabaseUnderTest, status: Any):
        session = store.session("a")
        session.append(tool_call_message("t"))
        session.tools.record_result("t", status=status, error_code="E5", error_message="no such file", latency_ms=7)
        session = database.reopen().session("a")
        call = session.tools.list()[0]
        assert (call.status, call.error_code, call.error_message) == (status, "E5", "no such file")
        assert call.latency_ms == 7
        part = session.messages()[1].tool_results[0]
        assert (part.status, part.error_code, part.error_message, part.output) == (
            status, "E5", "no such file", "no such file",
        )  # fmt: skip
        block = session.history("anthropic", repair=False)[1]["content"][0]
        assert (block["tool_use_id"], block["is_error"], block["content"]) == ("t", True, "no such file")

    def test_an_error_in_a_message(self, store: Store):
        session = store.session("a")
        result = {"type": "tool_result", "tool_use_id": "t", "content": "boom", "is_error": True}
        session.append([tool_call_message("t"), {"role": "user", "content": [result]}])
        assert call_statuses(session) == [("t", "error")]

    @pytest.mark.parametrize("output", ["", "text", {"a": [1, None]}, [], 0, False, 1.5, "\ud800\0", 2**70])
    def test_any_json_is_a_result(self, store: Store, database: DatabaseUnderTest, output: Any):
        session = store.session("a")
        session.append(tool_call_message("t"))
        session.tools.record_result("t", output, metadata={"host": "x"})
        session.tools.record_result("t", output)
        part = database.reopen().session("a").messages()[1].tool_results[0]
        assert (part.text if isinstance(output, str) else part.data) == output
        assert part.metadata == {"host": "x"}
        assert part.status == "success"

    def test_invalid_results_are_refused(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        invalid: list[dict[str, Any]] = [
            {"output": NAN}, {"output": object()}, {"status": "pending"}, {"status": "done"}, {"metadata": {"x": NAN}},
            {"error_code": 5}, {"error_message": object()}, {"latency_ms": "fast"}, {"latency_ms": -1},
        ]  # fmt: skip
        for arguments in invalid:
            with pytest.raises(InvalidValue):
                session.tools.record_result("t", **arguments)
        for id in ("", None, 5):
            with pytest.raises((InvalidValue, ToolCallNotFound)):
                session.tools.record_result(id, "x")  # type: ignore[arg-type]
        assert call_statuses(session) == [("t", "pending")]
        assert len(session.messages()) == 1

    def test_an_unknown_call(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("t"), user("x")])
        store.session("b").append(tool_call_message("other"))
        for call in (session.tools.start, session.tools.record_result):
            with pytest.raises(ToolCallNotFound) as excinfo:
                call("other")
            assert "'other'" in str(excinfo.value)
        assert len(session.messages()) == 2
        session.append(tool_result_message("other"))
        assert call_statuses(session) == [("t", "pending")]

    def test_a_repeated_result_is_stored_once(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(tool_call_message("t"))
        first = session.tools.record_result("t", {"n": 1}, latency_ms=5)
        session.append(assistant("so"))
        new_session = database.reopen().session("a")
        assert new_session.tools.record_result("t", {"n": 1}, latency_ms=9).id == first.id
        assert len(new_session.messages()) == 3
        assert new_session.tools.list()[0].latency_ms == 5
        check_counts(new_session.refresh())

    def test_a_different_result_is_refused_and_the_first_kept(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        session.tools.record_result("t", "one")
        for other in ({"output": "two"}, {"output": "one", "status": "error"}, {"output": ["one"]}):
            with pytest.raises(ToolCallAnswered):
                session.tools.record_result("t", **other)  # type: ignore[arg-type]
        with pytest.raises(ToolCallAnswered):
            session.tools.start("t")
        assert [m.tool_results[0].output for m in session.messages()[1:]] == ["one"]
        assert call_statuses(session) == [("t", "success")]

    def test_a_handle_has_the_revision_of_its_own_changes(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        session.tools.start("t")
        info = store.get_session("a")
        assert info is not None
        assert session.revision == info.revision
        session.tools.record_result("t", "x")
        check_counts(session)
        session.append(user("next"), expected=session.revision)

    def test_a_result_for_a_repeated_call_id_belongs_to_the_newest_open_call(
        self, store: Store, database: DatabaseUnderTest
    ):
        session = store.session("a")
        for n in range(1, 4):
            session.append([user("q"), tool_call_message("call_0")])
            session.tools.record_result("call_0", f"r{n}")
        assert call_statuses(session) == [("call_0", "success")] * 3
        assert [c.result_message for c in session.tools.list()] == ["1.3", "1.6", "1.9"]
        session.append([tool_call_message("call_0"), tool_call_message("call_0")])
        session.tools.record_result("call_0", "newest")
        assert [c.status for c in session.tools.list()][-2:] == ["pending", "success"]
        session.tools.record_result("call_0", "before it")
        session = database.reopen().session("a")
        assert [c.result_message for c in session.tools.list()][-2:] == ["1.13", "1.12"]
        with pytest.raises(ToolCallAnswered):
            session.tools.record_result("call_0", "no more")

    def test_a_call_id_that_repeats_many_times(self, store: Store):
        session = store.session("a")
        session.append(
            [message for n in range(60) for message in (tool_call_message("0"), tool_result_message("0", text=str(n)))]
        )
        session.append([tool_call_message("1"), user("x"), tool_call_message("0")])
        session.tools.record_result("0", "last")
        session.tools.record_result("1", "one")
        assert call_statuses(session)[-2:] == [("1", "success"), ("0", "success")]
        assert [c.result_message for c in session.tools.list()][:60] == [f"1.{n}" for n in range(2, 122, 2)]

    def test_parallel_calls_are_distinguished(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.add(tool_call_message("a", "b", "c"))
            session.tools.start("b")
            session.tools.start("a")
            assert [status for _, status in call_statuses(session)] == ["running", "running", "pending"]
            message = session.tools.record_result("b", "B")
            assert message.turn == 1
            session.tools.record_result("c", status="cancelled")
            assert [status for _, status in call_statuses(session)] == ["running", "success", "cancelled"]
            session.tools.record_result("a", "A", status="error")
        assert [status for _, status in call_statuses(session)] == ["error", "success", "cancelled"]
        assert [message.turn for message in session.messages()] == [1, 1, 1, 1, 1]

    def test_two_calls_with_one_id_in_one_message(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("x", "x"), tool_result_message("x", "x")])
        assert call_statuses(session) == [("x", "success"), ("x", "success")]
        assert {c.result_part for c in session.tools.list()} == {0, 1}


class TestToolsOfTurns:
    """Calls whose turn ends before they have a result."""

    def call_errors(self, session: Session) -> list[tuple[str, str | None]]:
        """Return the status and error code of each call."""
        return [(call.status, call.error_code) for call in session.tools.list()]

    def open_turn(self, session: Session, lease: float = 60) -> Turn:
        """Open a turn with a completed, a running and a pending call."""
        turn = session.turn("q", lease=lease)
        turn.add(tool_call_message("done", "runs", "waits"))
        session.tools.start("runs")
        session.tools.record_result("done", "x")
        return turn

    def test_an_abandoned_turn_cancels_its_calls(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        self.open_turn(session, lease=0.01)
        before = session.revision
        time.sleep(0.05)
        session = database.reopen().session("a")
        assert session.revision > before
        assert self.call_errors(session) == [
            ("success", None),
            ("cancelled", "interrupted"),
            ("cancelled", "interrupted"),
        ]
        _, running, pending = session.tools.list()
        assert (running.result_message, running.result_part, running.latency_ms, pending.started_at) == (
            None,
            None,
            None,
            None,
        )
        assert running.completed_at is not None
        assert running.started_at is not None
        assert running.error_message is not None
        assert "interrupted" in running.error_message
        (stats,) = session.store.tools.stats()
        assert (stats.calls, stats.cancelled, stats.unanswered) == (3, 2, 0)

    def test_a_late_result_belongs_to_its_call(self, store: Store):
        session = store.session("a")
        self.open_turn(session, lease=0.01)
        time.sleep(0.05)
        session = store.session("a")
        session.tools.record_result("runs", "late", latency_ms=9)
        session.append(tool_result_message("waits"))
        assert self.call_errors(session) == [("success", None)] * 3
        _, running, pending = session.tools.list()
        assert (running.latency_ms, running.error_message, pending.error_message) == (9, None, None)
        assert (running.result_message, pending.result_message) == ("1.4", "1.5")

    @pytest.mark.parametrize("way", ["fail", "cancel"])
    def test_a_failed_or_cancelled_turn_cancels_its_calls(self, store: Store, way: str):
        session = store.session("a")
        code = {"fail": "failed", "cancel": "cancelled"}[way]
        getattr(self.open_turn(session), way)()
        assert self.call_errors(session) == [("success", None), ("cancelled", code), ("cancelled", code)]

    def test_a_turn_that_is_completed_leaves_its_calls_open(self, store: Store):
        session = store.session("a")
        self.open_turn(session).complete()
        assert [status for _, status in call_statuses(session)] == ["success", "running", "pending"]

    def test_a_turn_that_is_taken_over_cancels_its_calls(self, store: Store):
        session = store.session("a")
        self.open_turn(session)
        with session.turn("again", take_over=True) as turn:
            assert self.call_errors(session)[1:] == [("cancelled", "interrupted")] * 2
            turn.add(tool_call_message("mine"))
            assert call_statuses(session)[-1] == ("mine", "pending")

    def test_calls_outside_the_turn_are_not_cancelled(self, store: Store):
        session = store.session("a")
        session.append([user("q"), tool_call_message("before", "ran before")])
        session.tools.start("ran before")
        time.sleep(0.02)
        turn = session.turn("next")
        session.append(tool_call_message("outside"))
        turn.add(tool_call_message("within"))
        turn.fail()
        assert call_statuses(session) == [
            ("before", "pending"), ("ran before", "running"), ("outside", "pending"), ("within", "cancelled"),
        ]  # fmt: skip

    def test_an_older_call_that_the_turn_started_is_cancelled(self, store: Store):
        session = store.session("a")
        session.append([user("q"), tool_call_message("may I", "not yet")])
        fork = session.fork(id="f")
        turn = fork.turn("yes")
        fork.tools.start("may I")
        assert call_statuses(fork) == [("may I", "running"), ("not yet", "pending")]
        turn.cancel()
        assert call_statuses(fork) == [("may I", "cancelled"), ("not yet", "pending")]
        assert call_statuses(session) == [("may I", "pending"), ("not yet", "pending")]
        fork.tools.record_result("may I", "yes")
        assert call_statuses(fork)[0] == ("may I", "success")

    def test_a_late_holder_reopens_its_calls(self, store: Store):
        session = store.session("a")
        turn = self.open_turn(session, lease=0.01)
        time.sleep(0.05)
        assert call_statuses(store.session("a"))[1:] == [("runs", "cancelled"), ("waits", "cancelled")]
        turn.add(assistant("awake"))
        assert [(c.status, c.error_code, c.completed_at) for c in session.tools.list()[1:]] == [
            ("running", None, None), ("pending", None, None),
        ]  # fmt: skip
        turn.add(tool_result_message("runs", "waits"))
        turn.complete()
        assert self.call_errors(session) == [("success", None)] * 3

    def test_a_late_holder_completes_its_turn(self, store: Store):
        session = store.session("a")
        turn = self.open_turn(session, lease=0.01)
        time.sleep(0.05)
        store.session("a")
        turn.complete()
        assert [status for _, status in call_statuses(session)] == ["success", "running", "pending"]

    @pytest.mark.parametrize("key", [None, "k"])
    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_calls_of_a_saved_turn(self, store: Store, status: Any, key: str | None):
        session = store.session("a")
        messages = [tool_call_message("one", "two"), tool_result_message("one")]
        session.save_turn("q", messages, status=status, key=key)
        waits = ("pending", None) if status == "completed" else ("cancelled", status)
        assert self.call_errors(session) == [("success", None), waits]
        check_counts(session)

    def test_a_fork_before_the_end_of_the_turn(self, store: Store):
        session = store.session("a")
        self.open_turn(session).fail()
        fork = session.fork("1.2")
        assert [status for _, status in call_statuses(fork)] == ["pending", "cancelled", "cancelled"]
        fork.tools.record_result("waits", "here")
        assert [status for _, status in call_statuses(session)] == ["success", "cancelled", "cancelled"]

    def test_the_history_after_a_failed_turn_is_valid(self, store: Store):
        session = store.session("a")
        self.open_turn(session).fail()
        session.append(user("continue"))
        history = session.history("anthropic")
        assert [repair.kind for repair in history.repairs].count("interrupted_call") == 2
        findings = store.maintenance.check(deep=False)
        assert findings.ok
        assert "unanswered" in {finding.kind for finding in findings.notices}


class TestToolsOnBranches:
    """A call that branches share has a result on each of them."""

    def test_a_fork_answers_a_shared_call_for_itself(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([user("q"), tool_call_message("t")])
        fork = session.fork(id="f")
        fork.tools.record_result("t", "in the fork", latency_ms=3)
        assert call_statuses(fork) == [("t", "success")]
        assert call_statuses(session) == [("t", "pending")]
        session.tools.start("t")
        session.tools.record_result("t", status="error", error_message="in the origin")
        store = database.reopen()
        session, fork = store.session("a"), store.session("f")
        assert call_statuses(session) == [("t", "error")]
        assert (call_statuses(fork), fork.tools.list()[0].error_message) == ([("t", "success")], None)
        assert (session.tools.list()[0].result_message, fork.tools.list()[0].result_message) == ("1.3", "2.3")
        with pytest.raises(ToolCallAnswered):
            fork.tools.record_result("t", "again")

    def test_a_fork_that_starts_a_shared_call_does_not_change_the_origin(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        fork = session.fork()
        fork.tools.start("t")
        assert (call_statuses(fork), call_statuses(session)) == ([("t", "running")], [("t", "pending")])
        session.tools.record_result("t", "x")
        assert (call_statuses(fork), call_statuses(session)) == ([("t", "running")], [("t", "success")])

    def test_rewinding_before_a_result_reopens_the_call(self, store: Store):
        session = store.session("a")
        session.append([user("q"), tool_call_message("t"), tool_result_message("t", text="first"), assistant("r")])
        session.rewind("1.2")
        assert call_statuses(session) == [("t", "pending")]
        session.tools.record_result("t", "second")
        assert session.tools.list()[0].result_message == "2.3"
        session.branches.switch(1)
        assert session.tools.list()[0].result_message == "1.3"
        assert call_statuses(session) == [("t", "success")]
        session.rewind("1.2")
        assert call_statuses(session) == [("t", "pending")]

    def test_a_fork_before_the_result_sees_the_call_open(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("t"), tool_result_message("t", text="x"), user("y")])
        assert call_statuses(session.fork("1.1")) == [("t", "pending")]
        fork = session.fork("1.2")
        assert call_statuses(fork) == [("t", "success")]
        with pytest.raises(ToolCallAnswered):
            fork.tools.record_result("t", "other")
        assert fork.tools.record_result("t", "x").id == "1.2"

    def test_a_fork_of_a_fork(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        fork = session.fork()
        fork.append(user("x"))
        second = fork.fork()
        second.tools.record_result("t", "second")
        assert [call_statuses(s)[0][1] for s in (session, fork, second)] == ["pending", "pending", "success"]
        fork.tools.record_result("t", "first")
        third = fork.fork()
        assert third.tools.list()[0].result_message == fork.tools.list()[0].result_message
        assert [call_statuses(s)[0][1] for s in (session, fork, second, third)] == [
            "pending",
            "success",
            "success",
            "success",
        ]

    def test_a_call_whose_result_was_erased_is_open_again(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([tool_call_message("t"), tool_result_message("t"), tool_call_message("u")])
        fork = session.fork("1.1", id="f")
        later = session.fork("1.2", id="g")
        store.erase_session("a", forks="keep")
        store = database.reopen()
        fork, later = store.session("f"), store.session("g")
        assert (call_statuses(fork), call_statuses(later)) == ([("t", "pending")], [("t", "success")])
        fork.tools.record_result("t", "mine")
        assert (call_statuses(fork), call_statuses(later)) == ([("t", "success")], [("t", "success")])
        assert later.tools.list()[0].result_message == "1.2"

    def test_a_result_in_an_erased_fork_is_erased(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        fork = session.fork(id="f")
        fork.tools.record_result("t", "x")
        store.erase_session("f")
        assert call_statuses(session) == [("t", "pending")]
        session.tools.record_result("t", "y")
        assert texts(session) == ["", ""]
        second_fork = session.fork("1.1")
        assert call_statuses(second_fork) == [("t", "pending")]

    def test_a_deleted_and_restored_result(self, store: Store):
        session = store.session("a")
        session.append([*numbered_messages(2), tool_call_message("t"), tool_result_message("t")])
        session.delete_messages([4])
        session.restore_messages([4])
        assert call_statuses(session) == [("t", "success")]

    def test_many_results_in_one_append_belong_to_their_calls(self, store: Store):
        """Append enough results that their calls are read in one query: in a fork, repeated ids, one without a call."""
        names = [f"t{number}" for number in range(80)]
        origin = store.session("a")
        origin.append(
            [
                user("q"),
                tool_call_message("t7"),
                tool_result_message("t7"),
                *(tool_call_message(name) for name in names),
            ]
        )
        fork = origin.fork(id="b")
        origin.append(tool_result_message("t79"))
        fork.append(tool_call_message("t5"))
        fork.append(
            [
                *(tool_result_message(name) for name in names),
                tool_result_message("t5"),
                tool_result_message("t7"),
                tool_result_message("unknown"),
            ]
        )
        assert call_statuses(fork) == [("t7", "success"), *((name, "success") for name in names), ("t5", "success")]
        results = {call.message: call.result_message for call in fork.tools.list()}
        assert results["1.2"] == "1.3"
        assert (results["1.9"], results["2.84"]) == ("2.165", "2.90")
        assert [status for _, status in call_statuses(origin)] == ["success", *["pending"] * 79, "success"]
