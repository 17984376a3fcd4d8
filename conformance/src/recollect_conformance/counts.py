"""Counts that people read: stored messages without tool steps, along the active path."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import InvalidValue
from recollect.model.message import Format, Message, ToolCallPart, ToolResultPart
from recollect.store import Session, Store
from recollect_conformance.database import list_all_sessions
from recollect_conformance.examples import (
    ANTHROPIC_MESSAGES,
    assistant,
    numbered_messages,
    tool_call_message,
    tool_result_message,
    user,
)


def is_step(message: Message) -> bool:
    """Return whether a message is a tool step: a tool message, or an assistant message with an open call."""
    result_ids = {part.call_id for part in message.parts if isinstance(part, ToolResultPart)}
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    has_open_call = any(call.call_id not in result_ids for call in calls)
    return message.role == "tool" or (message.role == "assistant" and has_open_call)


def count_shown(session: Session) -> int:
    """Return in Python the count that shown_counts() computes in SQL."""
    return sum(not is_step(message) for message in session.messages())


def question_with_tools(question: str, *calls: str) -> list[dict[str, Any]]:
    """Return a question with tool calls, answered by one message of results, and the final answer."""
    return [user(question), tool_call_message(*calls), tool_result_message(*calls), assistant("done")]


def check_shown_counts(store: Store, *counts: int) -> list[Session]:
    """Compare the counts of all sessions with a count in Python and with `counts`, oldest first."""
    sessions = sorted(list_all_sessions(store, archived=None, delegates=True), key=lambda session: session.id)
    assert store.shown_counts(sessions) == [count_shown(session) for session in sessions] == list(counts)
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
    """Store.shown_counts(): messages as people count them."""

    def test_questions_and_answers_count_and_tool_steps_do_not(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
        session.append(question_with_tools("again", "one"))
        assert session.message_count == 6
        check_shown_counts(store, 4)

    @pytest.mark.parametrize(
        ("format", "messages", "count"),
        [("anthropic", ANTHROPIC_MESSAGES[:4], 2), ("openai", _openai(), 2), ("recollect", _plain(), 2)],
    )
    def test_every_format(self, store: Store, format: Format, messages: list[dict[str, Any]], count: int):
        store.session("a").append(messages, format)
        check_shown_counts(store, count)

    def test_parallel_calls_and_calls_without_a_result(self, store: Store):
        store.session("a").append(question_with_tools("q", "one", "two", "three"))
        store.session("b").append([user("q"), tool_call_message("open")])
        store.session("c").append(
            [
                user("q"),
                tool_call_message("one", "two"),
                tool_result_message("one"),
                tool_result_message("two"),
                assistant("a"),
            ]
        )
        check_shown_counts(store, 2, 1, 2)

    def test_text_next_to_a_result_counts_as_a_message(self, store: Store):
        message = tool_result_message("one")
        message["content"].append({"type": "text", "text": "And hurry."})
        store.session("a").append([user("q"), tool_call_message("one"), message, assistant("a")])
        check_shown_counts(store, 3)

    def test_a_call_with_its_result_in_the_same_message_is_not_a_step(self, store: Store):
        call = {"kind": "tool_call", "call_id": "c", "tool": "search", "arguments": {}}
        result = {"kind": "tool_result", "call_id": "c", "text": "r"}
        text = {"kind": "text", "text": "Found."}
        store.session("a").append([{"role": "assistant", "parts": [call, result, text]}], "recollect")
        check_shown_counts(store, 1)

    def test_a_result_without_its_call_is_a_step(self, store: Store):
        store.session("a").append([user("q"), tool_result_message("unknown"), assistant("a")])
        check_shown_counts(store, 2)

    def test_deleted_messages_do_not_count(self, store: Store):
        session = store.session("a")
        session.append(question_with_tools("q", "one"))
        session.delete_messages([2])
        check_shown_counts(store, 2)
        session.delete_messages([4])
        check_shown_counts(store, 1)
        session.restore_messages([2])
        check_shown_counts(store, 1)

    def test_forks_count_the_messages_that_they_share(self, store: Store):
        origin = store.session("a")
        origin.append([*question_with_tools("q", "one"), user("q2"), tool_call_message("two")])
        early = origin.fork(3, id="b")
        early.append([assistant("other"), *question_with_tools("q", "x")])
        late = origin.fork(id="c")
        late.append([tool_result_message("two"), assistant("here")])
        late.fork(id="d").append(user("more"))
        origin.append([tool_result_message("two"), assistant("a")])
        check_shown_counts(store, 4, 4, 4, 5)

    def test_rewinds_count_the_active_path(self, store: Store):
        session = store.session("a")
        session.append(question_with_tools("q", "one"))
        session.append(question_with_tools("q", "two"))
        first = session.branch
        session.rewind(6)
        check_shown_counts(store, 3)
        session.append([tool_result_message("two"), assistant("other"), user("and")])
        check_shown_counts(store, 5)
        session.branches.switch(first)
        check_shown_counts(store, 4)

    def test_a_trashed_and_an_active_session_may_share_an_id(self, store: Store):
        store.session("a").append(question_with_tools("q", "one"))
        store.delete_session("a")
        store.session("a").append(numbered_messages(5))
        trash = list(store.list_sessions(deleted=True))
        active = list(store.list_sessions())
        assert store.shown_counts([*trash, *active, *trash]) == [2, 5, 2]

    def test_handles_ids_and_unknown_sessions(self, store: Store):
        session = store.session("a")
        session.append(question_with_tools("q", "one"))
        store.session("empty")
        assert store.shown_counts([session.info, "a", "empty", "none", "\ud800", ""]) == [2, 2, 0, 0, 0, 0]
        assert store.shown_counts([]) == []
        for wrong in ("a", [7], [None]):
            with pytest.raises(InvalidValue, match="sessions must"):
                store.shown_counts(wrong)  # type: ignore[arg-type]

    def test_ranges_and_branches_of_a_session(self, store: Store):
        session = store.session("a")
        session.append(question_with_tools("q", "t"))  # shown: 1 and 4
        session.append(numbered_messages(3))  # 5 to 7
        session.delete_messages([6])
        ranges = [(0, None), (0, 3), (3, 5), (4, 4), (7, None), (5, 10**12), (0, 0)]
        assert session.shown_counts(ranges) == [4, 1, 2, 0, 0, 1, 0]
        assert session.shown_counts([(0, 3)] * 250) == [1] * 250
        assert session.shown_counts([]) == []
        session.rewind(4)
        session.append(user("other"))
        assert session.shown_counts([(0, None), (4, None)]) == [3, 1]
        assert session.branches.shown_counts() == {1: 4, 2: 1}
        assert list(session.fork(at=1).branches.shown_counts().values()) == [0]
        invalid: tuple[Any, ...] = ((-1, None), (0, -1), (0,), 5, ("0", None), (0, "1"), (0, 1, 2), None)
        for item in invalid:
            with pytest.raises(InvalidValue, match="A range must be a pair of positions"):
                session.shown_counts([item])

    def test_more_sessions_than_one_statement_accepts(self, store: Store):
        for number in range(3):
            store.session(f"s{number}").append(numbered_messages(number + 1))
        assert store.shown_counts(["s0", "s1", "s2"] * 80) == [1, 2, 3] * 80

    def test_statistics_and_pruning_report_the_steps(self, store: Store):
        session = store.session("cli:a", model="m")
        session.append([*question_with_tools("q", "one"), *question_with_tools("q", "two", "three")])
        session.delete_messages([2])
        stats = store.stats()
        assert (stats.messages, stats.tool_steps, stats.shown_messages) == (7, 3, 4)
        for tallies in (stats.by_model, stats.by_channel, stats.by_day):
            assert [(tally.messages, tally.shown_messages) for tally in tallies] == [(7, 4)]
        assert session.stats().shown_messages == 4
        report = store.maintenance.prune(keep=0, dry_run=True)
        assert (report.messages, report.shown_messages) == (8, 4)
