"""Tool calls where turns end and branches part: what becomes of those without a result, and whose a result is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from recollect.errors import ToolCallAnswered
from recollect.store import Session, Store, Turn
from recollect.testing.place import Place
from recollect.testing.talk import answers, asks, assistant, counted, numbered, texts, user
from recollect.testing.tools import calls


class TestToolsOfTurns:
    """What becomes of calls whose turn ends before they are answered."""

    def given_up(self, session: Session) -> list[tuple[str, str | None]]:
        """Give the status and error code of each call."""
        return [(call.status, call.error_code) for call in session.tool_calls()]

    def begun(self, session: Session, lease: float = 60) -> Turn:
        """Open a turn with a call that is answered, one that runs and one that waits."""
        turn = session.turn("q", lease=lease)
        turn.add(asks("done", "runs", "waits"))
        session.start_tool_call("runs")
        session.record_tool_result("done", "x")
        return turn

    def test_a_turn_whose_holder_is_gone_gives_up_its_calls(self, store: Store, place: Place):
        session = store.session("a")
        self.begun(session, lease=0.01)
        before = session.revision
        time.sleep(0.05)
        session = place.reopen().session("a")
        assert session.revision > before
        assert self.given_up(session) == [("success", None), ("canceled", "interrupted"), ("canceled", "interrupted")]
        _, ran, waited = session.tool_calls()
        assert (ran.result_message, ran.result_part, ran.latency_ms, waited.started_at) == (None, None, None, None)
        assert ran.completed_at is not None
        assert ran.started_at is not None
        assert ran.error_message is not None
        assert "interrupted" in ran.error_message
        (figures,) = session.store.tool_stats()
        assert (figures.calls, figures.canceled, figures.unanswered) == (3, 2, 0)

    def test_a_late_result_joins_its_call(self, store: Store):
        session = store.session("a")
        self.begun(session, lease=0.01)
        time.sleep(0.05)
        session = store.session("a")
        session.record_tool_result("runs", "late", latency_ms=9)
        session.append(answers("waits"))
        assert self.given_up(session) == [("success", None)] * 3
        _, ran, waited = session.tool_calls()
        assert (ran.latency_ms, ran.error_message, waited.error_message) == (9, None, None)
        assert (ran.result_message, waited.result_message) == ("1.4", "1.5")

    @pytest.mark.parametrize("way", ["fail", "cancel"])
    def test_a_turn_that_fails_or_is_cancelled_gives_up_its_calls(self, store: Store, way: str):
        session = store.session("a")
        code = {"fail": "failed", "cancel": "cancelled"}[way]
        getattr(self.begun(session), way)()
        assert self.given_up(session) == [("success", None), ("canceled", code), ("canceled", code)]

    def test_a_turn_that_is_completed_leaves_its_calls_open(self, store: Store):
        session = store.session("a")
        self.begun(session).complete()
        assert [status for _, status in calls(session)] == ["success", "running", "pending"]

    def test_a_turn_that_is_taken_over_gives_up_its_calls(self, store: Store):
        session = store.session("a")
        self.begun(session)
        with session.turn("again", take_over=True) as turn:
            assert self.given_up(session)[1:] == [("canceled", "interrupted")] * 2
            turn.add(asks("mine"))
            assert calls(session)[-1] == ("mine", "pending")

    def test_calls_outside_the_turn_are_left_alone(self, store: Store):
        session = store.session("a")
        session.append([user("q"), asks("before", "ran before")])
        session.start_tool_call("ran before")
        time.sleep(0.02)
        turn = session.turn("next")
        session.append(asks("beside"))
        turn.add(asks("within"))
        turn.fail()
        assert calls(session) == [
            ("before", "pending"), ("ran before", "running"), ("beside", "pending"), ("within", "canceled"),
        ]  # fmt: skip

    def test_an_older_call_that_the_turn_ran(self, store: Store):
        session = store.session("a")
        session.append([user("q"), asks("may I", "not yet")])
        fork = session.fork(id="f")
        turn = fork.turn("yes")
        fork.start_tool_call("may I")
        assert calls(fork) == [("may I", "running"), ("not yet", "pending")]
        turn.cancel()
        assert calls(fork) == [("may I", "canceled"), ("not yet", "pending")]
        assert calls(session) == [("may I", "pending"), ("not yet", "pending")]
        fork.record_tool_result("may I", "yes")
        assert calls(fork)[0] == ("may I", "success")

    def test_a_holder_that_wakes_up_goes_on_with_its_calls(self, store: Store):
        session = store.session("a")
        turn = self.begun(session, lease=0.01)
        time.sleep(0.05)
        assert calls(store.session("a"))[1:] == [("runs", "canceled"), ("waits", "canceled")]
        turn.add(assistant("awake"))
        assert [(c.status, c.error_code, c.completed_at) for c in session.tool_calls()[1:]] == [
            ("running", None, None), ("pending", None, None),
        ]  # fmt: skip
        turn.add(answers("runs", "waits"))
        turn.complete()
        assert self.given_up(session) == [("success", None)] * 3

    def test_a_holder_that_wakes_up_at_its_end(self, store: Store):
        session = store.session("a")
        turn = self.begun(session, lease=0.01)
        time.sleep(0.05)
        store.session("a")
        turn.complete()
        assert [status for _, status in calls(session)] == ["success", "running", "pending"]

    @pytest.mark.parametrize("key", [None, "k"])
    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_a_turn_that_is_saved_whole(self, store: Store, status: Any, key: str | None):
        session = store.session("a")
        said = [asks("one", "two"), answers("one")]
        session.save_turn("q", said, status=status, key=key)
        waits = ("pending", None) if status == "completed" else ("canceled", status)
        assert self.given_up(session) == [("success", None), waits]
        counted(session)

    def test_a_branch_that_leaves_before_the_end(self, store: Store):
        session = store.session("a")
        self.begun(session).fail()
        fork = session.fork("1.2")
        assert [status for _, status in calls(fork)] == ["pending", "canceled", "canceled"]
        fork.record_tool_result("waits", "here")
        assert [status for _, status in calls(session)] == ["success", "canceled", "canceled"]

    def test_the_history_is_sound(self, store: Store):
        session = store.session("a")
        self.begun(session).fail()
        session.append(user("go on"))
        history = session.history("anthropic")
        assert [repair.kind for repair in history.repairs].count("interrupted_call") == 2
        findings = store.check(deep=False)
        assert findings.sound
        assert "unanswered" in {finding.kind for finding in findings.notices}


class TestToolsOnBranches:
    """A call that paths share has an answer on each of them."""

    def test_a_fork_answers_a_shared_call_for_itself(self, store: Store, place: Place):
        session = store.session("a")
        session.append([user("q"), asks("t")])
        fork = session.fork(id="f")
        fork.record_tool_result("t", "in the fork", latency_ms=3)
        assert calls(fork) == [("t", "success")]
        assert calls(session) == [("t", "pending")]
        session.start_tool_call("t")
        session.record_tool_result("t", status="error", error_message="in the origin")
        store = place.reopen()
        session, fork = store.session("a"), store.session("f")
        assert calls(session) == [("t", "error")]
        assert (calls(fork), fork.tool_calls()[0].error_message) == ([("t", "success")], None)
        assert (session.tool_calls()[0].result_message, fork.tool_calls()[0].result_message) == ("1.3", "2.3")
        with pytest.raises(ToolCallAnswered):
            fork.record_tool_result("t", "again")

    def test_a_fork_that_starts_a_shared_call_leaves_the_origin_alone(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        fork = session.fork()
        fork.start_tool_call("t")
        assert (calls(fork), calls(session)) == ([("t", "running")], [("t", "pending")])
        session.record_tool_result("t", "x")
        assert (calls(fork), calls(session)) == ([("t", "running")], [("t", "success")])

    def test_going_back_before_a_result_opens_the_call_again(self, store: Store):
        session = store.session("a")
        session.append([user("q"), asks("t"), answers("t", text="first"), assistant("r")])
        session.rewind("1.2")
        assert calls(session) == [("t", "pending")]
        session.record_tool_result("t", "second")
        assert session.tool_calls()[0].result_message == "2.3"
        session.switch(1)
        assert session.tool_calls()[0].result_message == "1.3"
        assert calls(session) == [("t", "success")]
        session.rewind("1.2")
        assert calls(session) == [("t", "pending")]

    def test_a_fork_before_the_result_sees_the_call_open(self, store: Store):
        session = store.session("a")
        session.append([asks("t"), answers("t", text="x"), user("y")])
        assert calls(session.fork("1.1")) == [("t", "pending")]
        fork = session.fork("1.2")
        assert calls(fork) == [("t", "success")]
        with pytest.raises(ToolCallAnswered):
            fork.record_tool_result("t", "other")
        assert fork.record_tool_result("t", "x").id == "1.2"

    def test_a_fork_of_a_fork(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        fork = session.fork()
        fork.append(user("x"))
        second = fork.fork()
        second.record_tool_result("t", "second")
        assert [calls(s)[0][1] for s in (session, fork, second)] == ["pending", "pending", "success"]
        fork.record_tool_result("t", "first")
        third = fork.fork()
        assert third.tool_calls()[0].result_message == fork.tool_calls()[0].result_message
        assert [calls(s)[0][1] for s in (session, fork, second, third)] == ["pending", "success", "success", "success"]

    def test_what_was_answered_only_in_an_erased_session_is_open_again(self, store: Store, place: Place):
        session = store.session("a")
        session.append([asks("t"), answers("t"), asks("u")])
        fork = session.fork("1.1", id="f")
        later = session.fork("1.2", id="g")
        store.erase_session("a", forks="keep")
        store = place.reopen()
        fork, later = store.session("f"), store.session("g")
        assert (calls(fork), calls(later)) == ([("t", "pending")], [("t", "success")])
        fork.record_tool_result("t", "mine")
        assert (calls(fork), calls(later)) == ([("t", "success")], [("t", "success")])
        assert later.tool_calls()[0].result_message == "1.2"

    def test_the_answer_of_an_erased_fork_is_gone_with_it(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        fork = session.fork(id="f")
        fork.record_tool_result("t", "x")
        store.erase_session("f")
        assert calls(session) == [("t", "pending")]
        session.record_tool_result("t", "y")
        assert texts(session) == ["", ""]
        again = session.fork("1.1")
        assert calls(again) == [("t", "pending")]

    def test_a_result_that_was_deleted(self, store: Store):
        session = store.session("a")
        session.append([*numbered(2), asks("t"), answers("t")])
        session.delete_message(4)
        session.restore_message(4)
        assert calls(session) == [("t", "success")]

    def test_many_results_at_once_join_as_each_alone_would(self, store: Store):
        """So many that their calls are read at once: a fork, ids that come again, one that nobody asked for."""
        names = [f"t{number}" for number in range(80)]
        origin = store.session("a")
        origin.append([user("q"), asks("t7"), answers("t7"), *(asks(name) for name in names)])
        fork = origin.fork(id="b")
        origin.append(answers("t79"))
        fork.append(asks("t5"))
        fork.append([*(answers(name) for name in names), answers("t5"), answers("t7"), answers("nobody's")])
        assert calls(fork) == [("t7", "success"), *((name, "success") for name in names), ("t5", "success")]
        found = {call.message: call.result_message for call in fork.tool_calls()}
        assert found["1.2"] == "1.3"
        assert (found["1.9"], found["2.84"]) == ("2.165", "2.90")
        assert [status for _, status in calls(origin)] == ["success", *["pending"] * 79, "success"]
