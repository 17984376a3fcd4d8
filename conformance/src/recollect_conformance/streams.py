"""Streams: an answer is opened, receives text as it arrives, and is closed or interrupted."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue, RecollectError, SessionNotFound, TurnClosed
from recollect.model.message import Draft, ReasoningPart, TextPart
from recollect.store import Store, Stream
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import ANTHROPIC_RESPONSE, OPENAI_RESPONSE, check_counts, texts, user


def start_stream(store: Store) -> Stream:
    """Open a stream in session a."""
    return store.session("a").turn("q").stream()


class TestStreams:
    """An answer in progress."""

    def test_a_message_is_visible_while_it_streams(self, store: Store, database: DatabaseUnderTest):
        answer = start_stream(store)
        other = database.open().session("a")
        assert answer.id == "1.2"
        assert [message.state for message in other.messages()] == ["completed", "streaming"]
        assert other.message(2).completed_at is None
        assert other.message_count == 2
        answer.write("Hel")
        answer.flush()
        assert other.message(answer.id).text == "Hel"
        assert other.message(answer.id).state == "streaming"
        answer.write("lo")
        answer.close()
        message = other.message(answer.id)
        assert (message.text, message.state, message.role, message.turn) == ("Hello", "completed", "assistant", 1)
        assert message.completed_at is not None
        check_counts(other.refresh())
        check_counts(answer.turn.session)

    def test_chunks_are_stored_about_once_a_second(self, store: Store):
        answer = start_stream(store)
        reader = store.session("a")
        before, started = reader.revision, time.monotonic()
        for n in range(200):
            answer.write(f"{n} ")
        assert reader.refresh().revision <= before + 1 + int(time.monotonic() - started)
        time.sleep(1.05)
        answer.write("end")
        assert reader.message(2).text.startswith("0 1 2 ")
        assert reader.refresh().revision <= before + 1 + int(time.monotonic() - started)
        answer.close()
        assert reader.message(2).text.endswith("199 end")

    def test_a_stream_is_a_context_manager(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            with turn.stream() as answer:
                answer.write("one ")
                answer.write("two")
            assert session.messages()[1].state == "completed"
            with turn.stream() as second:
                second.write("three")
        assert texts(session) == ["q", "one two", "three"]
        assert session.turns.list()[0].status == "completed"

    def test_reasoning_and_text_in_their_order(self, store: Store, database: DatabaseUnderTest):
        answer = start_stream(store)
        for text, kind in (("h", "reasoning"), ("m", "reasoning"), ("A", "text"), ("B", "text"), ("?", "reasoning")):
            answer.write(text, kind)  # type: ignore[arg-type]
        answer.write("C")
        answer.close()
        message = database.reopen().session("a").messages()[1]
        assert message.parts == (
            ReasoningPart(text="hm"), TextPart(text="AB"), ReasoningPart(text="?"), TextPart(text="C"),
        )  # fmt: skip
        assert (message.text, message.reasoning) == ("ABC", "hm?")

    def test_invalid_chunks(self, store: Store):
        answer = start_stream(store)
        answer.write("a")
        for invalid in (None, 5, b"x"):
            with pytest.raises(InvalidValue):
                answer.write(invalid)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            answer.write("x", "sound")  # type: ignore[arg-type]
        answer.write("\ud800\0")
        answer.write("")
        answer.close()
        assert texts(store.session("a"))[1] == "a\ud800\0"

    @pytest.mark.parametrize("response", [ANTHROPIC_RESPONSE, OPENAI_RESPONSE])
    def test_closed_with_the_complete_response_of_the_provider(
        self, store: Store, database: DatabaseUnderTest, response: dict[str, Any]
    ):
        answer = start_stream(store)
        answer.write("Let m")
        answer.flush()
        answer.close(response)
        answer.turn.complete()
        session = database.reopen().session("a")
        message = session.messages()[1]
        assert formats.response(message) == response
        assert (message.state, message.model) == ("completed", response["model"])
        assert [call.status for call in session.tools.list()] == ["pending"]
        info = session.turns.list()[0]
        assert (info.model, info.output_tokens) == (response["model"], message.output_tokens)
        check_counts(session)
        session.tools.record_result(session.tools.list()[0].call_id, "ok")
        assert [call.status for call in session.tools.list()] == ["success"]

    def test_closed_with_a_message_in_a_named_format(self, store: Store):
        answer = start_stream(store)
        message = {"role": "assistant", "content": [{"type": "text", "text": "all", "x": 1}]}
        answer.close(message, format="anthropic")
        assert store.session("a").history("anthropic")[1] == message

    @pytest.mark.parametrize("invalid", [[], [user("a"), user("b")], 5, {"role": "robot"}, "text alone"])
    def test_closed_with_something_other_than_one_message(self, store: Store, invalid: Any):
        answer = start_stream(store)
        answer.write("kept")
        with pytest.raises(InvalidValue):
            answer.close(invalid)
        answer.close()
        assert texts(store.session("a")) == ["q", "kept"]

    @pytest.mark.parametrize(
        "other",
        [
            Draft(role="user", parts=(TextPart(text="mine"),)),
            {"role": "user", "content": "mine"},
            {"role": "system", "content": "be brief"},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ],
        ids=["draft", "user", "system", "tool"],
    )
    def test_closed_with_a_message_of_another_role(self, store: Store, other: Any):
        answer = start_stream(store)
        answer.write("so far")
        with pytest.raises(InvalidValue, match="role"):
            answer.close(other)
        answer.close()
        (_, message) = store.session("a").messages()
        assert (message.role, message.state, message.text) == ("assistant", "completed", "so far")
        check_counts(store.session("a"))

    def test_an_error_is_stored_with_the_text_so_far(self, store: Store):
        session = store.session("a")
        with pytest.raises(ConnectionError), session.turn("q") as turn, turn.stream() as answer:  # noqa: PT012  the block is the test
            answer.write("half an ans")
            raise ConnectionError("reset")
        message = session.messages()[1]
        assert (message.text, message.state) == ("half an ans", "error")
        assert message.error == {"name": "ConnectionError", "message": "reset"}
        assert session.turns.list()[0].status == "failed"
        check_counts(session)

    def test_a_keyboard_interrupt_marks_the_message_as_interrupted(self, store: Store):
        session = store.session("a")
        with pytest.raises(KeyboardInterrupt), session.turn("q") as turn, turn.stream() as answer:  # noqa: PT012  the block is the test
            answer.write("half an ans")
            raise KeyboardInterrupt
        message = session.messages()[1]
        assert (message.text, message.state, message.error) == ("half an ans", "interrupted", None)
        assert session.turns.list()[0].status == "cancelled"
        check_counts(session)

    def test_the_end_of_a_turn_interrupts_an_open_stream(self, store: Store):
        answer = start_stream(store)
        answer.write("half")
        answer.flush()
        answer.turn.complete()
        session = store.session("a")
        assert session.messages()[1].state == "interrupted"
        for act in (answer.flush, answer.close):
            with pytest.raises(TurnClosed):
                act()
        assert session.messages()[1].text == "half"
        check_counts(session)

    def test_the_last_text_is_kept_if_the_stream_is_not_closed(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            turn.stream().write("Hel")
        assert [(message.text, message.state) for message in session.messages(1)] == [("Hel", "interrupted")]
        turn = session.turn("q")
        answer = turn.stream()
        answer.write("lo")
        assert turn.fail("broke").status == "failed"
        assert session.messages(1)[0].text == "lo"
        with pytest.raises(TurnClosed):
            answer.flush()
        check_counts(session)

    def test_a_fork_keeps_the_text_of_a_stream_when_its_origin_is_erased(self, store: Store):
        answer = start_stream(store)
        answer.write("half")
        answer.flush()
        fork = store.session("a").fork(id="f")
        store.erase_session("a", forks="keep")
        for act in (answer.flush, answer.close, answer.turn.complete):
            with pytest.raises((SessionNotFound, TurnClosed)):
                act()
        assert [(message.text, message.state) for message in fork.messages(1)] == [("half", "interrupted")]
        assert [turn.status for turn in fork.turns.list()] == ["interrupted"]
        fork.turn("continue").complete()
        assert store.maintenance.check().ok
        check_counts(fork.refresh())

    def test_closing_twice_counts_once(self, store: Store):
        answer = start_stream(store)
        answer.write("the answer")
        answer.close()
        before = store.session("a").messages()[1]
        for act in (answer.close, answer.flush, answer.close):
            with contextlib.suppress(RecollectError):
                act()
        session = store.session("a")
        assert session.messages()[1].parts == before.parts
        assert session.messages()[1].state == "completed"
        assert session.messages()[1].tokens == before.tokens > 0
        check_counts(session)
        check_counts(answer.turn.session)

    def test_closing_twice_with_a_response_counts_its_usage_once(self, store: Store):
        answer = start_stream(store)
        answer.close(ANTHROPIC_RESPONSE)
        with contextlib.suppress(RecollectError):
            answer.close(ANTHROPIC_RESPONSE)
        answer.turn.complete()
        session = store.session("a")
        check_counts(session)
        assert session.turns.list()[0].output_tokens == 7
        assert len(session.tools.list()) == 1

    def test_a_message_deleted_while_it_streams(self, store: Store):
        answer = start_stream(store)
        session = store.session("a")
        session.delete_messages([answer.id])
        answer.write("into nothing")
        answer.flush()
        check_counts(session.refresh())
        answer.close(ANTHROPIC_RESPONSE)
        assert texts(session) == ["q"]
        check_counts(session.refresh())
        session.restore_messages([answer.id])
        check_counts(session)

    def test_a_message_deleted_in_a_fork_while_it_streams(self, store: Store):
        answer = start_stream(store)
        fork = store.session("a").fork()
        answer.write("shared")
        answer.close()
        assert texts(fork) == ["q", "shared"]
        check_counts(fork.refresh())
        fork.delete_messages([answer.id])
        check_counts(store.session("a"))
        check_counts(fork)

    def test_a_stream_on_a_branch_that_is_not_active(self, store: Store):
        answer = start_stream(store)
        session = store.session("a")
        session.rewind(1)
        session.append(user("elsewhere"))
        answer.write("late")
        answer.close()
        assert texts(session) == ["q", "elsewhere"]
        check_counts(session.refresh())
        session.branches.switch(1)
        assert texts(session) == ["q", "late"]
        check_counts(session)

    def test_an_empty_answer(self, store: Store, database: DatabaseUnderTest):
        start_stream(store).close()
        session = database.reopen().session("a")
        assert texts(session) == ["q", ""]
        assert session.history("anthropic") == [user("q")]
        assert session.history("openai") == [user("q")]
        check_counts(session)

    def test_a_stream_closed_with_a_pinned_message_stays_in_a_long_history(self, store: Store):
        answer = start_stream(store)
        answer.close(Draft(role="assistant", parts=(TextPart(text="always"),), metadata={"pinned": True}))
        session = store.session("a")
        session.append([user(f"u{n} " + "x" * 400) for n in range(60)])
        texts = [str(message) for message in session.history("recollect", budget=1_000)]
        assert len(texts) < 20
        assert "always" in texts[0]

    def test_a_message_pinned_while_it_streams_stays_pinned(self, store: Store):
        answer = start_stream(store)
        answer.write("half")
        answer.flush()
        session = store.session("a")
        session.mark_message(answer.id, {"pinned": True})
        answer.write(" and whole")
        answer.flush()
        assert session.message(answer.id).pinned
        answer.close()
        assert (session.message(answer.id).pinned, session.message(answer.id).text) == (True, "half and whole")
        session.mark_message(answer.id, {"pinned": None})
        assert not session.message(answer.id).pinned
