"""Tool calls: pending, running, then success, error or canceled; joined to their results by id."""

from __future__ import annotations

import time
from typing import Any

import pytest

from recollect.errors import InvalidValue, ToolCallAnswered, ToolCallNotFound
from recollect.store import Session, Store
from recollect.testing.place import Place
from recollect.testing.talk import NAN, OPENAI_TALK, answers, asks, assistant, counted, user


def calls(session: Session) -> list[tuple[str, str]]:
    """Give the id and status of each call of the active path."""
    return [(call.call_id, call.status) for call in session.tool_calls()]


class TestTools:
    """The life of a call."""

    def test_pending_running_success(self, store: Store, place: Place):
        session = store.session("a")
        session.append([user("q"), asks("t1")])
        call = session.tool_calls()[0]
        assert (call.message, call.part, call.call_id, call.tool) == ("1.2", 0, "t1", "read_file")
        assert (call.status, call.started_at, call.completed_at, call.latency_ms) == ("pending", None, None, None)
        session.start_tool_call("t1")
        running = session.tool_calls()[0]
        assert running.status == "running"
        assert running.started_at is not None
        time.sleep(0.02)
        message = session.record_tool_result("t1", "contents")
        assert (message.id, message.role, message.tool_results[0].output) == ("1.3", "tool", "contents")
        done = place.reopen().session("a").tool_calls()[0]
        assert (done.status, done.result_message, done.result_part) == ("success", "1.3", 0)
        assert done.started_at == running.started_at
        assert done.completed_at is not None
        assert done.latency_ms is not None
        assert done.latency_ms == done.completed_at - running.started_at >= 20

    def test_a_result_may_come_in_a_message(self, store: Store):
        session = store.session("a")
        session.append([asks("t1", "t2", "t3"), answers("t2"), user("hm"), answers("t3", "t1")])
        assert calls(session) == [("t1", "success"), ("t2", "success"), ("t3", "success")]
        assert [(c.result_message, c.result_part) for c in session.tool_calls()] == [("1.4", 1), ("1.2", 0), ("1.4", 0)]

    def test_results_of_openai(self, store: Store):
        session = store.session("a")
        session.append(OPENAI_TALK)
        assert calls(session) == [("call_1", "success"), ("call_2", "success")]
        assert [c.tool for c in session.tool_calls()] == ["weather", "weather"]

    @pytest.mark.parametrize("status", ["error", "canceled"])
    def test_a_call_that_went_wrong(self, store: Store, place: Place, status: Any):
        session = store.session("a")
        session.append(asks("t"))
        session.record_tool_result("t", status=status, error_code="E5", error_message="no such file", latency_ms=7)
        session = place.reopen().session("a")
        call = session.tool_calls()[0]
        assert (call.status, call.error_code, call.error_message) == (status, "E5", "no such file")
        assert call.latency_ms == 7
        part = session.messages()[1].tool_results[0]
        assert (part.status, part.error_code, part.error_message, part.output) == (
            status, "E5", "no such file", "no such file",
        )  # fmt: skip
        sent = session.history("anthropic", repair=False)[1]["content"][0]
        assert (sent["tool_use_id"], sent["is_error"], sent["content"]) == ("t", True, "no such file")

    def test_an_error_in_a_message(self, store: Store):
        session = store.session("a")
        result = {"type": "tool_result", "tool_use_id": "t", "content": "boom", "is_error": True}
        session.append([asks("t"), {"role": "user", "content": [result]}])
        assert calls(session) == [("t", "error")]

    @pytest.mark.parametrize("output", ["", "text", {"a": [1, None]}, [], 0, False, 1.5, "\ud800\0", 2**70])
    def test_any_json_is_a_result(self, store: Store, place: Place, output: Any):
        session = store.session("a")
        session.append(asks("t"))
        session.record_tool_result("t", output, metadata={"host": "x"})
        session.record_tool_result("t", output)
        part = place.reopen().session("a").messages()[1].tool_results[0]
        assert (part.text if isinstance(output, str) else part.data) == output
        assert part.metadata == {"host": "x"}
        assert part.status == "success"

    def test_odd_results_are_refused(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        odd: list[dict[str, Any]] = [
            {"output": NAN}, {"output": object()}, {"status": "pending"}, {"status": "done"}, {"metadata": {"x": NAN}},
            {"error_code": 5}, {"error_message": object()}, {"latency_ms": "fast"}, {"latency_ms": -1},
        ]  # fmt: skip
        for arguments in odd:
            with pytest.raises(InvalidValue):
                session.record_tool_result("t", **arguments)
        for id in ("", None, 5):
            with pytest.raises((InvalidValue, ToolCallNotFound)):
                session.record_tool_result(id, "x")  # type: ignore[arg-type]
        assert calls(session) == [("t", "pending")]
        assert len(session.messages()) == 1

    def test_an_unknown_call(self, store: Store):
        session = store.session("a")
        session.append([asks("t"), user("x")])
        store.session("b").append(asks("other"))
        for act in (session.start_tool_call, session.record_tool_result):
            with pytest.raises(ToolCallNotFound) as caught:
                act("other")
            assert "'other'" in str(caught.value)
        assert len(session.messages()) == 2
        session.append(answers("other"))
        assert calls(session) == [("t", "pending")]

    def test_a_result_that_comes_twice_is_stored_once(self, store: Store, place: Place):
        session = store.session("a")
        session.append(asks("t"))
        first = session.record_tool_result("t", {"n": 1}, latency_ms=5)
        session.append(assistant("so"))
        again = place.reopen().session("a")
        assert again.record_tool_result("t", {"n": 1}, latency_ms=9).id == first.id
        assert len(again.messages()) == 3
        assert again.tool_calls()[0].latency_ms == 5
        counted(again.refresh())

    def test_another_result_is_refused_and_the_first_kept(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        session.record_tool_result("t", "one")
        for other in ({"output": "two"}, {"output": "one", "status": "error"}, {"output": ["one"]}):
            with pytest.raises(ToolCallAnswered):
                session.record_tool_result("t", **other)  # type: ignore[arg-type]
        with pytest.raises(ToolCallAnswered):
            session.start_tool_call("t")
        assert [m.tool_results[0].output for m in session.messages()[1:]] == ["one"]
        assert calls(session) == [("t", "success")]

    def test_a_handle_knows_what_it_did(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        session.start_tool_call("t")
        stored = store.get_session("a")
        assert stored is not None
        assert session.revision == stored.revision
        session.record_tool_result("t", "x")
        counted(session)
        session.append(user("next"), expected=session.revision)

    def test_ids_that_come_again_join_the_newest_open_call(self, store: Store, place: Place):
        session = store.session("a")
        for n in range(1, 4):
            session.append([user("q"), asks("call_0")])
            session.record_tool_result("call_0", f"r{n}")
        assert calls(session) == [("call_0", "success")] * 3
        assert [c.result_message for c in session.tool_calls()] == ["1.3", "1.6", "1.9"]
        session.append([asks("call_0"), asks("call_0")])
        session.record_tool_result("call_0", "newest")
        assert [c.status for c in session.tool_calls()][-2:] == ["pending", "success"]
        session.record_tool_result("call_0", "before it")
        session = place.reopen().session("a")
        assert [c.result_message for c in session.tool_calls()][-2:] == ["1.13", "1.12"]
        with pytest.raises(ToolCallAnswered):
            session.record_tool_result("call_0", "no more")

    def test_an_id_that_comes_again_many_times(self, store: Store):
        session = store.session("a")
        session.append([message for n in range(60) for message in (asks("0"), answers("0", text=str(n)))])
        session.append([asks("1"), user("x"), asks("0")])
        session.record_tool_result("0", "last")
        session.record_tool_result("1", "one")
        assert calls(session)[-2:] == [("1", "success"), ("0", "success")]
        assert [c.result_message for c in session.tool_calls()][:60] == [f"1.{n}" for n in range(2, 122, 2)]

    def test_parallel_calls_are_told_apart(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.add(asks("a", "b", "c"))
            session.start_tool_call("b")
            session.start_tool_call("a")
            assert [status for _, status in calls(session)] == ["running", "running", "pending"]
            message = session.record_tool_result("b", "B")
            assert message.turn == 1
            session.record_tool_result("c", status="canceled")
            assert [status for _, status in calls(session)] == ["running", "success", "canceled"]
            session.record_tool_result("a", "A", status="error")
        assert [status for _, status in calls(session)] == ["error", "success", "canceled"]
        assert [message.turn for message in session.messages()] == [1, 1, 1, 1, 1]

    def test_two_calls_with_one_id_in_one_message(self, store: Store):
        session = store.session("a")
        session.append([asks("x", "x"), answers("x", "x")])
        assert calls(session) == [("x", "success"), ("x", "success")]
        assert {c.result_part for c in session.tool_calls()} == {0, 1}
