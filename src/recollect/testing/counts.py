"""Counts that people read: stored messages without tool steps, along the active path."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import InvalidValue
from recollect.model.message import Format, Message
from recollect.model.part import ToolCallPart, ToolResultPart
from recollect.store import Session, Store
from recollect.testing.place import listed
from recollect.testing.talk import ANTHROPIC_TALK, answers, asks, assistant, numbered, user


def is_step(message: Message) -> bool:
    """Tell whether a message is a tool step: a tool's message, or an assistant's that waits for a tool."""
    answered = {part.call_id for part in message.parts if isinstance(part, ToolResultPart)}
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    waiting = any(call.call_id not in answered for call in calls)
    return message.role == "tool" or (message.role == "assistant" and waiting)


def shown(session: Session) -> int:
    """Count in Python what shown_counts() counts in SQL."""
    return sum(not is_step(message) for message in session.messages())


def asked(question: str, *calls: str) -> list[dict[str, Any]]:
    """Return a question with tool calls, answered by one message of results, and the final answer."""
    return [user(question), asks(*calls), answers(*calls), assistant("done")]


def checked(store: Store, *counts: int) -> list[Session]:
    """Compare the counts of all sessions with a count in Python, and with the numbers given, oldest first."""
    sessions = sorted(listed(store, archived=None, delegates=True), key=lambda session: session.id)
    assert store.shown_counts(sessions) == [shown(session) for session in sessions] == list(counts)
    return sessions


def _openai() -> list[dict[str, Any]]:
    calls = [
        {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id in ("call_a", "call_b")
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "text"} for call in calls]
    return [user("q"), {"role": "assistant", "content": "Let me look.", "tool_calls": calls}, *results, assistant("a")]


def _plain() -> list[dict[str, Any]]:
    call = {"kind": "tool_call", "call_id": "c", "tool": "read", "arguments": {}}
    result = {"kind": "tool_result", "call_id": "c", "text": "r"}
    text = {"kind": "text", "text": "t"}
    return [
        {"role": "user", "parts": [text]},
        {"role": "assistant", "parts": [text, call]},
        {"role": "tool", "parts": [result]},
        {"role": "assistant", "parts": [text]},
    ]


class TestShownCounts:
    """Store.shown_counts(): what people count as messages."""

    def test_questions_and_answers_count_and_tool_steps_do_not(self, store: Store):
        session = store.session("a")
        session.append(numbered(2))
        session.append(asked("again", "one"))
        assert session.message_count == 6
        checked(store, 4)

    @pytest.mark.parametrize(
        ("format", "messages", "count"),
        [("anthropic", ANTHROPIC_TALK[:4], 2), ("openai", _openai(), 2), ("recollect", _plain(), 2)],
    )
    def test_every_format(self, store: Store, format: Format, messages: list[dict[str, Any]], count: int):
        store.session("a").append(messages, format)
        checked(store, count)

    def test_parallel_calls_and_calls_without_a_result(self, store: Store):
        store.session("a").append(asked("q", "one", "two", "three"))
        store.session("b").append([user("q"), asks("open")])
        store.session("c").append([user("q"), asks("one", "two"), answers("one"), answers("two"), assistant("a")])
        checked(store, 2, 1, 2)

    def test_text_beside_a_result_is_a_message(self, store: Store):
        beside = answers("one")
        beside["content"].append({"type": "text", "text": "And hurry."})
        store.session("a").append([user("q"), asks("one"), beside, assistant("a")])
        checked(store, 3)

    def test_a_call_answered_in_its_own_message_is_an_answer(self, store: Store):
        call = {"kind": "tool_call", "call_id": "c", "tool": "search", "arguments": {}}
        result = {"kind": "tool_result", "call_id": "c", "text": "r"}
        text = {"kind": "text", "text": "Found."}
        store.session("a").append([{"role": "assistant", "parts": [call, result, text]}], "recollect")
        checked(store, 1)

    def test_a_result_without_its_call_is_a_step(self, store: Store):
        store.session("a").append([user("q"), answers("unknown"), assistant("a")])
        checked(store, 2)

    def test_deleted_messages_do_not_count(self, store: Store):
        session = store.session("a")
        session.append(asked("q", "one"))
        session.delete_message(2)
        checked(store, 2)
        session.delete_message(4)
        checked(store, 1)
        session.restore_message(2)
        checked(store, 1)

    def test_forks_count_the_past_that_they_share(self, store: Store):
        origin = store.session("a")
        origin.append([*asked("q", "one"), user("q2"), asks("two")])
        early = origin.fork(3, id="b")
        early.append([assistant("other"), *asked("q", "x")])
        late = origin.fork(id="c")
        late.append([answers("two"), assistant("here")])
        late.fork(id="d").append(user("more"))
        origin.append([answers("two"), assistant("a")])
        checked(store, 4, 4, 4, 5)

    def test_rewinds_count_the_active_path(self, store: Store):
        session = store.session("a")
        session.append(asked("q", "one"))
        session.append(asked("q", "two"))
        first = session.branch
        session.rewind(6)
        checked(store, 3)
        session.append([answers("two"), assistant("other"), user("and")])
        checked(store, 5)
        session.switch(first)
        checked(store, 4)

    def test_the_trash_and_the_living_may_share_an_id(self, store: Store):
        store.session("a").append(asked("q", "one"))
        store.delete_session("a")
        store.session("a").append(numbered(5))
        trash = list(store.list_sessions(deleted=True))
        living = list(store.list_sessions())
        assert store.shown_counts([*trash, *living, *trash]) == [2, 5, 2]

    def test_values_ids_and_what_is_not_there(self, store: Store):
        session = store.session("a")
        session.append(asked("q", "one"))
        store.session("empty")
        assert store.shown_counts([session.info, "a", "empty", "none", "\ud800", ""]) == [2, 2, 0, 0, 0, 0]
        assert store.shown_counts([]) == []
        for wrong in ("a", [7], [None]):
            with pytest.raises(InvalidValue, match="sessions must"):
                store.shown_counts(wrong)  # type: ignore[arg-type]

    def test_more_than_one_statement_takes(self, store: Store):
        for number in range(3):
            store.session(f"s{number}").append(numbered(number + 1))
        assert store.shown_counts(["s0", "s1", "s2"] * 80) == [1, 2, 3] * 80

    def test_statistics_and_pruning_tell_the_steps(self, store: Store):
        session = store.session("cli:a", model="m")
        session.append([*asked("q", "one"), *asked("q", "two", "three")])
        session.delete_message(2)
        stats = store.stats()
        assert (stats.messages, stats.tool_steps, stats.shown_messages) == (7, 3, 4)
        for tallies in (stats.by_model, stats.by_channel, stats.by_day):
            assert [(tally.messages, tally.shown_messages) for tally in tallies] == [(7, 4)]
        assert session.stats().shown_messages == 4
        report = store.prune(keep=0, dry_run=True)
        assert (report.messages, report.shown_messages) == (8, 4)
