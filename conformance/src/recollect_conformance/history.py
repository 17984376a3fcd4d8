"""History: repaired for the provider, within a token budget, read from the end only as far as needed."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import InvalidValue, MessageNotFound
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    assistant,
    check_counts,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)


def message_contents(history: list[dict[str, Any]]) -> list[Any]:
    """Return the contents of the messages of a history."""
    return [message["content"] for message in history]


_INVALID_LIMITS: list[dict[str, Any]] = [
    {"budget": -1},
    {"budget": "9"},
    {"limit": -1},
    {"limit": 1.0},
    {"counter": "unknown"},
]


class TestHistory:
    """The messages that the model receives."""

    def test_repairs_are_made_in_the_history_only_and_reported(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        messages = [user("q"), tool_call_message("t"), user("never mind"), tool_result_message("z"), assistant("ok")]
        session.append(messages)
        session = database.reopen().session("a")
        view = session.history("anthropic")
        assert [(repair.kind, repair.message, repair.call_id) for repair in view.repairs] == [
            ("orphan_result", "1.4", "z"), ("interrupted_call", "1.2", "t"),
        ]  # fmt: skip
        assert [message["role"] for message in view] == ["user", "assistant", "user", "assistant"]
        assert view[2]["content"][0]["tool_use_id"] == "t"
        assert [message["role"] for message in session.history("openai")] == [
            "user", "assistant", "tool", "user", "assistant",
        ]  # fmt: skip
        assert session.history("anthropic", repair=False) == messages
        assert session.history().repairs == []
        assert len(session.messages()) == 5
        assert [call.status for call in session.tools.list()] == ["pending"]

    def test_a_deleted_result_and_an_interrupted_answer(self, store: Store):
        session = store.session("a")
        session.append([user("q"), tool_call_message("t"), tool_result_message("t"), assistant("r")])
        session.delete_messages([3])
        assert [repair.kind for repair in session.history("anthropic").repairs] == ["interrupted_call"]
        session.restore_messages([3])
        assert session.history("anthropic").repairs == []
        session.turn("more").stream()
        assert session.history("anthropic")[-1] == user("more")

    def test_a_budget_reads_only_the_end_of_the_session(self, store: Store):
        session = store.session("a")
        session.append([{"role": "system", "content": "rules", "tokens": 1}])
        session.append([{**message, "tokens": 10} for message in numbered_messages(1_200)])
        positions: list[int] = []

        def count(message: Any) -> int:
            positions.append(message.position)
            return 10

        assert message_contents(session.history("openai", budget=31)) == ["rules", "m1199", "m1200"]
        assert message_contents(session.history("openai", budget=45, counter=count)) == ["rules", "m1199", "m1200"]
        assert len(positions) < 300
        assert message_contents(session.history("openai", limit=5)) == ["rules", "m1197", "m1198", "m1199", "m1200"]
        assert len(session.history("openai", budget=12_001)) == 1_201
        assert len(session.history("openai", budget=12_000)) == 1_199
        assert len(session.history("openai", budget=6_001, limit=999_999)) == 601

    def test_a_long_turn_keeps_its_question(self, store: Store):
        session = store.session("a")
        session.append([{**user("the question"), "tokens": 10}])
        for n in range(300):
            session.append([tool_call_message(f"t{n}"), tool_result_message(f"t{n}")])
        view = session.history("anthropic", budget=100)
        assert view.repairs == []
        assert view[0] == user("the question")
        assert view[-2:] == [tool_call_message("t299"), tool_result_message("t299")]
        assert 3 <= len(view) < 40
        assert session.history("anthropic", limit=1) == [user("the question")]

    def test_pinned_messages_stay(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([{**message, "tokens": 10} for message in numbered_messages(600)])
        session.append([tool_call_message("t"), tool_result_message("t")])
        session.append([{**message, "tokens": 10} for message in numbered_messages(300, first=601)])
        revision = session.revision
        pinned = session.mark_message(3, {"pinned": True})
        assert (pinned.pinned, pinned.metadata, session.revision) == (True, {"pinned": True}, revision + 1)
        session.mark_message("1.602", {"pinned": True})
        session = database.reopen().session("a")
        view = session.history("openai", budget=60)
        assert [message.get("content") for message in view][:1] == ["m3"]
        assert [message["role"] for message in view][1:3] == ["assistant", "tool"]
        assert view.repairs == []
        assert session.mark_message(3, {"pinned": None}).metadata is None
        session.mark_message("1.602", {"pinned": None})
        assert message_contents(session.history("openai", budget=20)) == ["m899", "m900"]
        session.append({"role": "user", "content": "keep", "metadata": {"pinned": True, "by": "me"}})
        session.append(numbered_messages(300))
        assert message_contents(session.history("openai", budget=0))[0] == "keep"
        assert session.mark_message(903, {"pinned": None}).metadata == {"by": "me"}
        with pytest.raises(MessageNotFound):
            session.mark_message(9_999, {"pinned": True})
        check_counts(session)

    def test_a_pin_applies_to_the_message_in_every_fork(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        fork = session.fork(2)
        before = fork.revision
        session.mark_message(1, {"pinned": True})
        assert fork.messages()[0].pinned
        assert fork.refresh().revision > before
        store.erase_session("a", forks="keep")
        assert texts(fork) == ["m1", "m2"]

    def test_instructions_in_the_middle_stay(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(200))
        session.append({"role": "developer", "content": "be brief"})
        session.append(numbered_messages(300))
        assert message_contents(session.history("openai", budget=0))[0] == "be brief"

    def test_invalid_limits(self, store: Store):
        session = store.session("a")
        for arguments in _INVALID_LIMITS:
            with pytest.raises(InvalidValue):
                session.history("openai", **arguments)

    def test_a_path_over_several_branches(self, store: Store):
        session = store.session("a")
        session.append([{**message, "tokens": 10} for message in numbered_messages(200)])
        session.rewind(100).append([{**message, "tokens": 10} for message in numbered_messages(4, first=301)])
        assert message_contents(session.history("openai", budget=80)) == [
            "m97", "m98", "m99", "m100", "m301", "m302", "m303", "m304",
        ]  # fmt: skip
        assert session.active_tokens() == session.token_count == 1_040
