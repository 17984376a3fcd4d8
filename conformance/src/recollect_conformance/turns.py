"""Turns: opened with the user's message, extended by steps and ended, or saved in one call."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from recollect.errors import (
    InvalidValue,
    KeyReused,
    SessionBusy,
    SessionInTrash,
    StaleRevision,
    TurnClosed,
    TurnExists,
    TurnNotFound,
)
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    ANTHROPIC_RESPONSE,
    NAN,
    OPENAI_RESPONSE,
    assistant,
    check_counts,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)

SHORT_LEASE = 0.05  # seconds. Short, because tests wait until it expires; longer than opening a turn takes.


def statuses(session: Session) -> list[str]:
    """Return the status of each turn of the active path."""
    return [turn.status for turn in session.turns.list()]


def wait_for_lease() -> None:
    """Wait until a short lease has expired."""
    time.sleep(SHORT_LEASE * 1.5)


class TestTurnResumption:
    """A turn that several handles open, extend and end, each by its id alone."""

    def test_a_turn_is_resumed_by_its_id(self, store: Store, database: DatabaseUnderTest):
        first = store.session("a").turn("Begin")
        other = database.open().session("a")
        other.turns.resume(first.id).add(assistant("one"))
        ended = other.turns.resume(first.id).complete(model="m")
        assert (ended.id, ended.status, ended.model) == (first.id, "completed", "m")
        assert texts(store.session("a")) == ["Begin", "one"]
        with pytest.raises(TurnClosed):
            other.turns.resume(first.id).add(assistant("late"))

    def test_an_interrupted_turn_is_reopened(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.turn("Begin", lease=SHORT_LEASE).add(tool_call_message("t"))
        wait_for_lease()
        other = database.reopen().session("a")
        assert (statuses(other), [call.status for call in other.tools.list()]) == (["interrupted"], ["cancelled"])
        turn = other.turns.resume("1.1")
        assert (statuses(other), [call.status for call in other.tools.list()]) == (["open"], ["pending"])
        turn.add(tool_result_message("t"))
        turn.add(assistant("Done"))
        turn.complete()
        assert (statuses(other), [call.status for call in other.tools.list()]) == (["completed"], ["success"])

    def test_a_reopened_turn_without_a_step_is_not_completed(self, store: Store):
        session = store.session("a")
        turn = session.turn("Begin")
        turn.add(tool_call_message("t"))
        assert turn.interrupt({"name": "Cut"}).status == "interrupted"
        with session.turns.resume(turn.id):
            assert statuses(session) == ["open"]
        assert (statuses(session), [call.status for call in session.tools.list()]) == (["interrupted"], ["cancelled"])
        with session.turns.resume(turn.id) as second_turn:
            second_turn.add(tool_result_message("t"))
        assert statuses(session) == ["completed"]

    def test_only_the_last_turn_of_the_active_branch_is_reopened(self, store: Store):
        session = store.session("a")
        first = session.turn("Begin")
        first.add(assistant("one"))
        first.interrupt()
        session.rewind(first.id)
        with pytest.raises(TurnClosed):
            session.turns.resume(first.id)
        other = store.session("b")
        earlier = other.turn("Begin")
        earlier.interrupt()
        other.turn("Next").complete()
        with pytest.raises(TurnClosed):
            other.turns.resume(earlier.id)
        assert statuses(other) == ["interrupted", "completed"]

    @pytest.mark.parametrize("name", ["1.2", "9.9", "1.99"])
    def test_an_unknown_turn_cannot_be_resumed(self, store: Store, name: str):
        session = store.session("a")
        session.turn("Begin").add(assistant("one"))
        with pytest.raises(TurnNotFound):
            session.turns.resume(name)

    def test_the_same_key_adds_once(self, store: Store):
        session = store.session("a")
        first = session.turn("Begin", key="k1")
        with pytest.raises(TurnExists) as excinfo:
            session.turn("Begin", key="k1")
        same_turn = session.turns.resume(excinfo.value.fields["turn"])
        assert first.id == same_turn.id
        result = first.add(assistant("one"), key="k2")
        second_result = same_turn.add(assistant("one"), key="k2")
        assert (result.ids, result.repeated, second_result.ids, second_result.repeated) == (
            ["1.2"],
            False,
            ["1.2"],
            True,
        )
        assert texts(session) == ["Begin", "one"]
        with pytest.raises(KeyReused):
            first.add(assistant("two"), key="k2")
        same_turn.complete()
        assert statuses(session) == ["completed"]


class TestTurns:
    """The states of a turn."""

    def test_the_question_is_visible_to_other_stores_immediately(self, store: Store, database: DatabaseUnderTest):
        turn = store.session("a").turn("What is it?")
        other = database.open().session("a")
        assert texts(other) == ["What is it?"]
        assert other.messages()[0].role == "user"
        assert statuses(other) == ["open"]
        info = other.turns.list()[0]
        assert info.holder
        assert info.lease_until_at is not None
        assert info.lease_until_at > info.started_at
        assert (info.ended_at, info.latency_ms) == (None, None)
        assert turn.id == info.id == "1.1"

    def test_a_key_opens_one_turn_regardless_of_its_status(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        with session.turn("one", key="k1") as turn:
            turn.add(assistant("first"))
        other_handle = database.open().session("a")
        for _ in range(2):
            with pytest.raises(TurnExists) as excinfo:
                other_handle.turn("one", key="k1")
            assert excinfo.value.fields["turn"] == turn.id
        with pytest.raises(KeyReused):
            other_handle.turn("other", key="k1")
        with pytest.raises(InvalidValue):
            other_handle.turn("one", key="")
        assert texts(other_handle) == ["one", "first"]
        assert statuses(other_handle) == ["completed"]
        session.rewind(0)
        with pytest.raises(TurnExists):
            session.turn("one", key="k1")
        fork = session.fork(id="b")
        fork.turn("one", key="k1").complete()  # a key belongs to its session
        session.turn("two", key="k2").cancel()
        with pytest.raises(TurnExists):
            session.turn("two", key="k2")

    def test_a_key_of_a_refused_turn_can_be_used_again(self, store: Store):
        session = store.session("a")
        with session.turn("one"), pytest.raises(SessionBusy):
            session.turn("two", key="k")
        session.turn("two", key="k").complete()
        assert texts(session) == ["one", "two"]

    def test_steps_are_visible_as_they_happen(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        other = database.open().session("a")
        with session.turn("read it") as turn:
            assert turn.add(tool_call_message("t1")).ids == ["1.2"]
            assert len(other.messages()) == 2
            assert turn.add([tool_result_message("t1"), assistant("done")]).ids == ["1.3", "1.4"]
            assert len(other.messages()) == 4
            assert statuses(other) == ["open"]
        assert statuses(other) == ["completed"]
        assert [message.turn for message in other.messages()] == [1, 1, 1, 1]
        assert session.message_count == 4
        check_counts(session)

    def test_completed_with_its_usage(self, store: Store):
        session = store.session("a")
        ended = session.turn("q").complete(model="m", input_tokens=3, output_tokens=4, latency_ms=5)
        assert (ended.status, ended.model, ended.input_tokens, ended.output_tokens) == ("completed", "m", 3, 4)
        assert (ended.latency_ms, ended.holder, ended.lease_until_at) == (5, None, None)
        assert session.turns.list() == [ended]
        plain = session.turn("q").complete()
        assert plain.latency_ms is not None
        assert plain.latency_ms >= 0
        assert plain.ended_at is not None

    def test_usage_is_the_sum_over_the_responses(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.add(ANTHROPIC_RESPONSE)
            turn.add(tool_result_message("toolu_9"))
            turn.add(ANTHROPIC_RESPONSE)
        info = session.turns.list()[0]
        assert (info.model, info.input_tokens, info.output_tokens) == ("claude-test-1", 32, 14)
        check_counts(session)

    @pytest.mark.parametrize(
        ("error", "error_info"),
        [
            (None, None),
            ({"code": 7, "deep": [1]}, {"code": 7, "deep": [1]}),
            ("text", "text"),
            (ValueError("wrong"), {"name": "ValueError", "message": "wrong"}),
        ],
    )
    def test_failed_with_its_error(self, store: Store, error: Any, error_info: Any):
        session = store.session("a")
        assert session.turn("q").fail(error).error == error_info
        assert session.turns.list()[0].error == error_info
        assert statuses(session) == ["failed"]

    def test_an_error_that_cannot_be_stored_is_refused(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        for invalid in (object(), NAN, {"x": {1, 2}}):
            with pytest.raises(InvalidValue):
                turn.fail(invalid)
            with pytest.raises(InvalidValue):
                session.save_turn("q", error=invalid)
        assert turn.cancel().status == "cancelled"

    def test_an_exception_fails_the_turn_and_propagates(self, store: Store):
        session = store.session("a")
        with pytest.raises(ZeroDivisionError), session.turn("q") as turn:  # noqa: PT012  the block is the test
            turn.add(assistant("so far"))
            raise ZeroDivisionError("by zero")
        assert texts(session) == ["q", "so far"]
        assert statuses(session) == ["failed"]
        assert session.turns.list()[0].error == {"name": "ZeroDivisionError", "message": "by zero"}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
    def test_an_interrupt_cancels_the_turn(self, store: Store, error: type[BaseException]):
        session = store.session("a")
        with pytest.raises(error), session.turn("q") as turn:  # noqa: PT012  the block is the test
            turn.add(assistant("so far"))
            raise error
        assert statuses(session) == ["cancelled"]
        assert texts(session) == ["q", "so far"]
        session.turn("next")

    def test_a_status_set_inside_the_block_is_kept(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.fail("no")
        with pytest.raises(KeyError), session.turn("q") as turn:  # noqa: PT012  the block is the test
            turn.complete()
            raise KeyError
        assert statuses(session) == ["failed", "completed"]

    def test_an_ended_turn_accepts_no_messages(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        turn.complete(model="m")
        calls = (lambda: turn.add(user("x")), turn.complete, turn.fail, turn.cancel, turn.stream)
        for call in calls:
            with pytest.raises(TurnClosed, match="completed"):
                call()
        assert texts(session) == ["q"]
        assert session.turns.list()[0].model == "m"
        check_counts(session.refresh())

    def test_an_ended_turn_reports_its_status_while_another_is_open(self, store: Store):
        session = store.session("a")
        first = session.turn("one")
        first.fail("no")
        second = session.turn("two")
        for act in (first.complete, lambda: first.add(user("x"))):
            with pytest.raises(TurnClosed, match="failed"):
                act()
        second.complete()
        assert statuses(session) == ["failed", "completed"]

    def test_a_turn_can_begin_with_messages_of_a_provider(self, store: Store):
        session = store.session("a")
        with session.turn([tool_call_message("t"), tool_result_message("t")], format="anthropic"):
            pass
        with session.turn({"role": "user", "content": [{"type": "text", "text": "x", "cache_control": None}]}):
            pass
        assert session.history("anthropic", repair=False)[:2] == [tool_call_message("t"), tool_result_message("t")]
        assert [turn.position for turn in session.turns.list()] == [1, 3]

    @pytest.mark.parametrize("invalid", [[], 5, None, {"role": "robot", "content": "x"}])
    def test_a_turn_without_a_valid_message_is_refused(self, store: Store, invalid: Any):
        session = store.session("a")
        with pytest.raises(InvalidValue):
            session.turn(invalid)
        with pytest.raises(InvalidValue):
            session.save_turn(invalid)
        turn = session.turn("q")
        with pytest.raises(InvalidValue):
            turn.add(invalid)
        assert texts(session) == ["q"]
        assert statuses(session) == ["open"]

    def test_a_stale_revision_opens_nothing(self, store: Store):
        mine, theirs = store.session("a"), store.session("a")
        theirs.append(user("theirs"))
        for start in (mine.turn, mine.save_turn):
            with pytest.raises(StaleRevision):
                start("q", expected=mine.revision)
        assert texts(mine) == ["theirs"]
        assert mine.turns.list() == []
        mine.turn("q", expected=theirs.revision)

    def test_the_turns_of_the_active_path(self, store: Store):
        session = store.session("a")
        for n in range(3):
            session.save_turn(f"q{n}", assistant(f"r{n}"))
        session.rewind("1.4")
        session.save_turn("other", assistant("r"))
        assert [turn.id for turn in session.turns.list()] == ["1.1", "1.3", "2.5"]
        fork = session.fork("1.2")
        fork.turn("mine")
        assert [(turn.id, turn.status) for turn in fork.turns.list()] == [("1.1", "completed"), ("3.3", "open")]

    def test_messages_appended_during_a_turn_are_not_part_of_it(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        session.append(user("by the way"))
        turn.add(assistant("r"))
        assert texts(session) == ["q", "by the way", "r"]
        assert [message.turn for message in session.messages()] == [1, None, 1]
        check_counts(session)

    def test_a_turn_continues_on_its_branch_when_the_session_switches(self, store: Store):
        session, window = store.session("a"), store.session("a")
        session.append(numbered_messages(2))
        turn = session.turn("q")
        window.rewind(1)
        window.append(user("elsewhere"))
        turn.add(assistant("r"))
        assert texts(window) == ["m1", "elsewhere"]
        check_counts(session)
        turn.complete()
        check_counts(window.refresh())
        window.branches.switch(1)
        assert texts(window) == ["m1", "m2", "q", "r"]
        assert statuses(window) == ["completed"]
        check_counts(window)

    def test_the_exception_of_the_block_propagates(self, store: Store):
        session = store.session("a")
        with pytest.raises(ZeroDivisionError), session.turn("q"):  # noqa: PT012  the block is the test
            store.delete_session("a")
            raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError), store.session("b").turn("q"):  # noqa: PT012  the block is the test
            store.erase_session("b")
            raise ZeroDivisionError
        with pytest.raises(SessionInTrash), store.session("c").turn("q"):
            store.delete_session("c")
        turn = store.session("d").turn("q")
        store.erase_session("d")
        with pytest.raises(TurnNotFound):
            turn.complete()


class TestSaveTurn:
    """A complete turn in one call."""

    def test_with_a_response(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        turn = session.save_turn("q", OPENAI_RESPONSE, latency_ms=12)
        assert turn.ids == ["1.1", "1.2"]
        check_counts(session)
        session = database.reopen().session("a")
        assert texts(session) == ["q", "On it."]
        info = session.turns.list()[0]
        assert (info.status, info.model, info.input_tokens, info.output_tokens) == ("completed", "gpt-test-1", 13, 4)
        assert (info.latency_ms, info.id, info.holder) == (12, "1.1", None)
        assert info.ended_at is not None
        assert [message.turn for message in session.messages()] == [1, 1]

    def test_with_all_messages(self, store: Store):
        session = store.session("a")
        session.save_turn(
            "q",
            [tool_call_message("t"), tool_result_message("t"), assistant("r")],
            model="m",
            input_tokens=1,
            output_tokens=2,
        )
        session.save_turn(user("again"))
        assert len(session.messages()) == 5
        info = session.turns.list()[0]
        assert (info.model, info.input_tokens, info.output_tokens) == ("m", 1, 2)
        assert [call.status for call in session.tools.list()] == ["success"]
        assert statuses(session) == ["completed", "completed"]

    def test_arguments_take_precedence_over_the_response(self, store: Store):
        session = store.session("a")
        session.save_turn("q", ANTHROPIC_RESPONSE, model="mine", input_tokens=0, output_tokens=1)
        info = session.turns.list()[0]
        assert (info.model, info.input_tokens, info.output_tokens) == ("mine", 0, 1)

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_with_a_status_and_an_error(self, store: Store, status: Any):
        session = store.session("a")
        session.save_turn("q", status=status, error={"code": "overloaded"})
        assert statuses(session) == [status]
        assert session.turns.list()[0].error == {"code": "overloaded"}
        for invalid in ("open", "interrupted", "done", None):
            with pytest.raises(InvalidValue):
                session.save_turn("q", status=invalid)  # type: ignore[arg-type]
        assert texts(session) == ["q"]

    def test_save_turn_is_atomic(self, store: Store):
        session = store.session("a")
        for invalid in ([assistant("r"), {"role": "user", "content": [NAN]}], object(), [assistant("r"), "text"]):
            with pytest.raises(InvalidValue):
                session.save_turn("q", invalid)  # pyright: ignore[reportArgumentType]
        assert texts(session) == []
        assert session.turns.list() == []

    def test_a_key_is_written_once(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        first = session.save_turn("q", ANTHROPIC_RESPONSE, key="k")
        session = database.reopen().session("a")
        second = session.save_turn("q", ANTHROPIC_RESPONSE, key="k")
        assert (second.ids, second.repeated) == (first.ids, True)
        assert len(session.turns.list()) == 1
        assert len(session.tools.list()) == 1
        check_counts(session)
