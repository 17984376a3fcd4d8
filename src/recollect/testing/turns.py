"""Turns: opened with the person's message, given steps, ended; or saved whole."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from recollect.errors import (
    AlreadySaid,
    InvalidValue,
    KeyReused,
    SessionBusy,
    SessionInTrash,
    StaleRevision,
    TurnClosed,
    TurnNotFound,
)
from recollect.store import Session, Store
from recollect.testing.place import Place
from recollect.testing.talk import (
    ANTHROPIC_RESPONSE,
    NAN,
    OPENAI_RESPONSE,
    answers,
    asks,
    assistant,
    counted,
    numbered,
    texts,
    user,
)

SHORT = 0.05


def statuses(session: Session) -> list[str]:
    """Give the status of each turn of the active path."""
    return [turn.status for turn in session.turns()]


def after_the_lease() -> None:
    """Wait until a short lease has run out."""
    time.sleep(SHORT * 1.5)


class TestTurnsTakenUp:
    """A turn that is opened, added to and ended by several, each knowing no more than its id."""

    def test_a_turn_is_taken_up_by_its_id(self, store: Store, place: Place):
        first = store.session("a").turn("Begin")
        other = place.open().session("a")
        other.resume_turn(first.id).add(assistant("one"))
        ended = other.resume_turn(first.id).complete(model="m")
        assert (ended.id, ended.status, ended.model) == (first.id, "completed", "m")
        assert texts(store.session("a")) == ["Begin", "one"]
        with pytest.raises(TurnClosed):
            other.resume_turn(first.id).add(assistant("late"))

    def test_an_interrupted_turn_is_reopened(self, store: Store, place: Place):
        session = store.session("a")
        session.turn("Begin", lease=SHORT).add(asks("t"))
        after_the_lease()
        other = place.reopen().session("a")
        assert (statuses(other), [call.status for call in other.tool_calls()]) == (["interrupted"], ["canceled"])
        turn = other.resume_turn("1.1")
        assert (statuses(other), [call.status for call in other.tool_calls()]) == (["open"], ["pending"])
        turn.add(answers("t"))
        turn.add(assistant("Done"))
        turn.complete()
        assert (statuses(other), [call.status for call in other.tool_calls()]) == (["completed"], ["success"])

    def test_a_reopened_turn_without_a_step_is_not_completed(self, store: Store):
        session = store.session("a")
        turn = session.turn("Begin")
        turn.add(asks("t"))
        assert turn.interrupt({"name": "Cut"}).status == "interrupted"
        with session.resume_turn(turn.id):
            assert statuses(session) == ["open"]
        assert (statuses(session), [call.status for call in session.tool_calls()]) == (["interrupted"], ["canceled"])
        with session.resume_turn(turn.id) as again:
            again.add(answers("t"))
        assert statuses(session) == ["completed"]

    def test_only_the_last_turn_of_the_active_branch_is_reopened(self, store: Store):
        session = store.session("a")
        first = session.turn("Begin")
        first.add(assistant("one"))
        first.interrupt()
        session.rewind(first.id)
        with pytest.raises(TurnClosed):
            session.resume_turn(first.id)
        other = store.session("b")
        earlier = other.turn("Begin")
        earlier.interrupt()
        other.turn("Next").complete()
        with pytest.raises(TurnClosed):
            other.resume_turn(earlier.id)
        assert statuses(other) == ["interrupted", "completed"]

    @pytest.mark.parametrize("name", ["1.2", "9.9", "1.99"])
    def test_what_is_no_turn_can_not_be_taken_up(self, store: Store, name: str):
        session = store.session("a")
        session.turn("Begin").add(assistant("one"))
        with pytest.raises(TurnNotFound):
            session.resume_turn(name)

    def test_the_same_key_adds_once(self, store: Store):
        session = store.session("a")
        first = session.turn("Begin", key="k1")
        with pytest.raises(AlreadySaid) as caught:
            session.turn("Begin", key="k1")
        again = session.resume_turn(caught.value.fields["turn"])
        assert first.id == again.id
        made = first.add(assistant("one"), key="k2")
        repeated = again.add(assistant("one"), key="k2")
        assert (made.ids, made.repeated, repeated.ids, repeated.repeated) == (["1.2"], False, ["1.2"], True)
        assert texts(session) == ["Begin", "one"]
        with pytest.raises(KeyReused):
            first.add(assistant("two"), key="k2")
        again.complete()
        assert statuses(session) == ["completed"]


class TestTurns:
    """The life of a turn."""

    def test_the_question_is_there_at_once_for_everyone(self, store: Store, place: Place):
        turn = store.session("a").turn("What is it?")
        other = place.open().session("a")
        assert texts(other) == ["What is it?"]
        assert other.messages()[0].role == "user"
        assert statuses(other) == ["open"]
        info = other.turns()[0]
        assert info.holder
        assert info.lease_until_at is not None
        assert info.lease_until_at > info.started_at
        assert (info.ended_at, info.latency_ms) == (None, None)
        assert turn.id == info.id == "1.1"

    def test_a_key_opens_one_turn_whatever_came_of_it(self, store: Store, place: Place):
        session = store.session("a")
        with session.turn("one", key="k1") as turn:
            turn.add(assistant("first"))
        again = place.open().session("a")
        for _ in range(2):
            with pytest.raises(AlreadySaid) as caught:
                again.turn("one", key="k1")
            assert caught.value.fields["turn"] == turn.id
        with pytest.raises(KeyReused):
            again.turn("other", key="k1")
        with pytest.raises(InvalidValue):
            again.turn("one", key="")
        assert texts(again) == ["one", "first"]
        assert statuses(again) == ["completed"]
        session.rewind(0)
        with pytest.raises(AlreadySaid):
            session.turn("one", key="k1")
        fork = session.fork(id="b")
        fork.turn("one", key="k1").complete()  # a key is a session's own
        session.turn("two", key="k2").cancel()
        with pytest.raises(AlreadySaid):
            session.turn("two", key="k2")

    def test_a_key_whose_turn_was_refused_is_free(self, store: Store):
        session = store.session("a")
        with session.turn("one"), pytest.raises(SessionBusy):
            session.turn("two", key="k")
        session.turn("two", key="k").complete()
        assert texts(session) == ["one", "two"]

    def test_steps_are_there_as_they_happen(self, store: Store, place: Place):
        session = store.session("a")
        other = place.open().session("a")
        with session.turn("read it") as turn:
            assert turn.add(asks("t1")).ids == ["1.2"]
            assert len(other.messages()) == 2
            assert turn.add([answers("t1"), assistant("done")]).ids == ["1.3", "1.4"]
            assert len(other.messages()) == 4
            assert statuses(other) == ["open"]
        assert statuses(other) == ["completed"]
        assert [message.turn for message in other.messages()] == [1, 1, 1, 1]
        assert session.message_count == 4
        counted(session)

    def test_completed_with_what_it_used(self, store: Store):
        session = store.session("a")
        ended = session.turn("q").complete(model="m", input_tokens=3, output_tokens=4, latency_ms=5)
        assert (ended.status, ended.model, ended.input_tokens, ended.output_tokens) == ("completed", "m", 3, 4)
        assert (ended.latency_ms, ended.holder, ended.lease_until_at) == (5, None, None)
        assert session.turns() == [ended]
        plain = session.turn("q").complete()
        assert plain.latency_ms is not None
        assert plain.latency_ms >= 0
        assert plain.ended_at is not None

    def test_usage_is_taken_from_the_responses(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.add(ANTHROPIC_RESPONSE)
            turn.add(answers("toolu_9"))
            turn.add(ANTHROPIC_RESPONSE)
        info = session.turns()[0]
        assert (info.model, info.input_tokens, info.output_tokens) == ("claude-test-1", 32, 14)
        counted(session)

    @pytest.mark.parametrize(
        ("error", "kept"),
        [
            (None, None),
            ({"code": 7, "deep": [1]}, {"code": 7, "deep": [1]}),
            ("text", "text"),
            (ValueError("wrong"), {"name": "ValueError", "message": "wrong"}),
        ],
    )
    def test_failed_with_its_error(self, store: Store, error: Any, kept: Any):
        session = store.session("a")
        assert session.turn("q").fail(error).error == kept
        assert session.turns()[0].error == kept
        assert statuses(session) == ["failed"]

    def test_an_error_that_can_not_be_kept_is_refused(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        for odd in (object(), NAN, {"x": {1, 2}}):
            with pytest.raises(InvalidValue):
                turn.fail(odd)
            with pytest.raises(InvalidValue):
                session.save_turn("q", error=odd)
        assert turn.cancel().status == "cancelled"

    def test_an_exception_makes_it_failed_and_goes_on(self, store: Store):
        session = store.session("a")
        with pytest.raises(ZeroDivisionError), session.turn("q") as turn:  # noqa: PT012  the block is the test
            turn.add(assistant("so far"))
            raise ZeroDivisionError("by zero")
        assert texts(session) == ["q", "so far"]
        assert statuses(session) == ["failed"]
        assert session.turns()[0].error == {"name": "ZeroDivisionError", "message": "by zero"}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
    def test_whoever_stops_it_makes_it_cancelled(self, store: Store, error: type[BaseException]):
        session = store.session("a")
        with pytest.raises(error), session.turn("q") as turn:  # noqa: PT012  the block is the test
            turn.add(assistant("so far"))
            raise error
        assert statuses(session) == ["cancelled"]
        assert texts(session) == ["q", "so far"]
        session.turn("next")

    def test_an_end_inside_the_block_stays(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.fail("no")
        with pytest.raises(KeyError), session.turn("q") as turn:  # noqa: PT012  the block is the test
            turn.complete()
            raise KeyError
        assert statuses(session) == ["failed", "completed"]

    def test_an_ended_turn_takes_no_more(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        turn.complete(model="m")
        acts = (lambda: turn.add(user("x")), turn.complete, turn.fail, turn.cancel, turn.stream)
        for act in acts:
            with pytest.raises(TurnClosed, match="completed"):
                act()
        assert texts(session) == ["q"]
        assert session.turns()[0].model == "m"
        counted(session.refresh())

    def test_an_ended_turn_says_how_it_ended_while_another_is_open(self, store: Store):
        session = store.session("a")
        first = session.turn("one")
        first.fail("no")
        second = session.turn("two")
        for act in (first.complete, lambda: first.add(user("x"))):
            with pytest.raises(TurnClosed, match="failed"):
                act()
        second.complete()
        assert statuses(session) == ["failed", "completed"]

    def test_a_turn_may_begin_with_messages_of_a_provider(self, store: Store):
        session = store.session("a")
        with session.turn([asks("t"), answers("t")], format="anthropic"):
            pass
        with session.turn({"role": "user", "content": [{"type": "text", "text": "x", "cache_control": None}]}):
            pass
        assert session.history("anthropic", repair=False)[:2] == [asks("t"), answers("t")]
        assert [turn.position for turn in session.turns()] == [1, 3]

    @pytest.mark.parametrize("odd", [[], 5, None, {"role": "robot", "content": "x"}])
    def test_a_turn_that_begins_with_nothing(self, store: Store, odd: Any):
        session = store.session("a")
        with pytest.raises(InvalidValue):
            session.turn(odd)
        with pytest.raises(InvalidValue):
            session.save_turn(odd)
        turn = session.turn("q")
        with pytest.raises(InvalidValue):
            turn.add(odd)
        assert texts(session) == ["q"]
        assert statuses(session) == ["open"]

    def test_a_stale_revision_opens_nothing(self, store: Store):
        mine, theirs = store.session("a"), store.session("a")
        theirs.append(user("theirs"))
        for begin in (mine.turn, mine.save_turn):
            with pytest.raises(StaleRevision):
                begin("q", expected=mine.revision)
        assert texts(mine) == ["theirs"]
        assert mine.turns() == []
        mine.turn("q", expected=theirs.revision)

    def test_the_turns_of_the_active_path(self, store: Store):
        session = store.session("a")
        for n in range(3):
            session.save_turn(f"q{n}", assistant(f"r{n}"))
        session.rewind("1.4")
        session.save_turn("other", assistant("r"))
        assert [turn.id for turn in session.turns()] == ["1.1", "1.3", "2.5"]
        fork = session.fork("1.2")
        fork.turn("mine")
        assert [(turn.id, turn.status) for turn in fork.turns()] == [("1.1", "completed"), ("3.3", "open")]

    def test_messages_beside_a_turn_are_not_part_of_it(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        session.append(user("by the way"))
        turn.add(assistant("r"))
        assert texts(session) == ["q", "by the way", "r"]
        assert [message.turn for message in session.messages()] == [1, None, 1]
        counted(session)

    def test_a_turn_goes_on_where_it_began_when_the_session_leaves(self, store: Store):
        session, window = store.session("a"), store.session("a")
        session.append(numbered(2))
        turn = session.turn("q")
        window.rewind(1)
        window.append(user("elsewhere"))
        turn.add(assistant("r"))
        assert texts(window) == ["m1", "elsewhere"]
        counted(session)
        turn.complete()
        counted(window.refresh())
        window.switch(1)
        assert texts(window) == ["m1", "m2", "q", "r"]
        assert statuses(window) == ["completed"]
        counted(window)

    def test_the_error_of_the_block_is_the_one_that_leaves_it(self, store: Store):
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
    """A whole turn at once."""

    def test_with_a_response(self, store: Store, place: Place):
        session = store.session("a")
        made = session.save_turn("q", OPENAI_RESPONSE, latency_ms=12)
        assert made.ids == ["1.1", "1.2"]
        counted(session)
        session = place.reopen().session("a")
        assert texts(session) == ["q", "On it."]
        info = session.turns()[0]
        assert (info.status, info.model, info.input_tokens, info.output_tokens) == ("completed", "gpt-test-1", 13, 4)
        assert (info.latency_ms, info.id, info.holder) == (12, "1.1", None)
        assert info.ended_at is not None
        assert [message.turn for message in session.messages()] == [1, 1]

    def test_with_all_that_was_said(self, store: Store):
        session = store.session("a")
        session.save_turn("q", [asks("t"), answers("t"), assistant("r")], model="m", input_tokens=1, output_tokens=2)
        session.save_turn(user("again"))
        assert len(session.messages()) == 5
        info = session.turns()[0]
        assert (info.model, info.input_tokens, info.output_tokens) == ("m", 1, 2)
        assert [call.status for call in session.tool_calls()] == ["success"]
        assert statuses(session) == ["completed", "completed"]

    def test_what_the_caller_says_counts_more_than_the_response(self, store: Store):
        session = store.session("a")
        session.save_turn("q", ANTHROPIC_RESPONSE, model="mine", input_tokens=0, output_tokens=1)
        info = session.turns()[0]
        assert (info.model, info.input_tokens, info.output_tokens) == ("mine", 0, 1)

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_with_a_status_and_an_error(self, store: Store, status: Any):
        session = store.session("a")
        session.save_turn("q", status=status, error={"code": "overloaded"})
        assert statuses(session) == [status]
        assert session.turns()[0].error == {"code": "overloaded"}
        for odd in ("open", "interrupted", "done", None):
            with pytest.raises(InvalidValue):
                session.save_turn("q", status=odd)  # type: ignore[arg-type]
        assert texts(session) == ["q"]

    def test_all_of_it_or_nothing(self, store: Store):
        session = store.session("a")
        for odd in ([assistant("r"), {"role": "user", "content": [NAN]}], object(), [assistant("r"), "text"]):
            with pytest.raises(InvalidValue):
                session.save_turn("q", odd)  # pyright: ignore[reportArgumentType]
        assert texts(session) == []
        assert session.turns() == []

    def test_a_key_is_written_once(self, store: Store, place: Place):
        session = store.session("a")
        first = session.save_turn("q", ANTHROPIC_RESPONSE, key="k")
        session = place.reopen().session("a")
        again = session.save_turn("q", ANTHROPIC_RESPONSE, key="k")
        assert (again.ids, again.repeated) == (first.ids, True)
        assert len(session.turns()) == 1
        assert len(session.tool_calls()) == 1
        counted(session)
