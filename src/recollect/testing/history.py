"""History: mended for the provider, within a budget, read from the end only as far as it is needed."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import InvalidValue, MessageNotFound
from recollect.store import Store
from recollect.testing.place import Place
from recollect.testing.talk import answers, asks, assistant, counted, numbered, texts, user


def contents(history: list[dict[str, Any]]) -> list[Any]:
    """Give what a history says."""
    return [message["content"] for message in history]


_NO_BOUNDS: list[dict[str, Any]] = [
    {"budget": -1},
    {"budget": "9"},
    {"limit": -1},
    {"limit": 1.0},
    {"counter": "nobody's"},
]


class TestHistory:
    """The view that is sent."""

    def test_what_is_wrong_is_mended_in_the_view_and_told_beside_it(self, store: Store, place: Place):
        session = store.session("a")
        stored = [user("q"), asks("t"), user("never mind"), answers("z"), assistant("ok")]
        session.append(stored)
        session = place.reopen().session("a")
        view = session.history("anthropic")
        assert [(repair.kind, repair.message, repair.call_id) for repair in view.repairs] == [
            ("orphan_result", "1.4", "z"), ("interrupted_call", "1.2", "t"),
        ]  # fmt: skip
        assert [message["role"] for message in view] == ["user", "assistant", "user", "assistant"]
        assert view[2]["content"][0]["tool_use_id"] == "t"
        assert [message["role"] for message in session.history("openai")] == [
            "user", "assistant", "tool", "user", "assistant",
        ]  # fmt: skip
        assert session.history("anthropic", repair=False) == stored
        assert session.history().repairs == []
        assert len(session.messages()) == 5
        assert [call.status for call in session.tool_calls()] == ["pending"]

    def test_a_deleted_result_and_an_answer_that_was_cut_off(self, store: Store):
        session = store.session("a")
        session.append([user("q"), asks("t"), answers("t"), assistant("r")])
        session.delete_message(3)
        assert [repair.kind for repair in session.history("anthropic").repairs] == ["interrupted_call"]
        session.restore_message(3)
        assert session.history("anthropic").repairs == []
        session.turn("more").stream()
        assert session.history("anthropic")[-1] == user("more")

    def test_a_budget_needs_only_the_end(self, store: Store):
        session = store.session("a")
        session.append([{"role": "system", "content": "rules", "tokens": 1}])
        session.append([{**message, "tokens": 10} for message in numbered(1_200)])
        seen: list[int] = []

        def count(message: Any) -> int:
            seen.append(message.position)
            return 10

        assert contents(session.history("openai", budget=31)) == ["rules", "m1199", "m1200"]
        assert contents(session.history("openai", budget=45, counter=count)) == ["rules", "m1199", "m1200"]
        assert len(seen) < 300
        assert contents(session.history("openai", limit=5)) == ["rules", "m1197", "m1198", "m1199", "m1200"]
        assert len(session.history("openai", budget=12_001)) == 1_201
        assert len(session.history("openai", budget=12_000)) == 1_199
        assert len(session.history("openai", budget=6_001, limit=999_999)) == 601

    def test_a_long_turn_keeps_its_question(self, store: Store):
        session = store.session("a")
        session.append([{**user("the question"), "tokens": 10}])
        for n in range(300):
            session.append([asks(f"t{n}"), answers(f"t{n}")])
        view = session.history("anthropic", budget=100)
        assert view.repairs == []
        assert view[0] == user("the question")
        assert view[-2:] == [asks("t299"), answers("t299")]
        assert 3 <= len(view) < 40
        assert session.history("anthropic", limit=1) == [user("the question")]

    def test_pinned_messages_stay(self, store: Store, place: Place):
        session = store.session("a")
        session.append([{**message, "tokens": 10} for message in numbered(600)])
        session.append([asks("t"), answers("t")])
        session.append([{**message, "tokens": 10} for message in numbered(300, first=601)])
        revision = session.revision
        pinned = session.pin_message(3)
        assert (pinned.pinned, pinned.metadata, session.revision) == (True, {"pinned": True}, revision + 1)
        session.pin_message("1.602")
        session = place.reopen().session("a")
        view = session.history("openai", budget=60)
        assert [message.get("content") for message in view][:1] == ["m3"]
        assert [message["role"] for message in view][1:3] == ["assistant", "tool"]
        assert view.repairs == []
        assert session.unpin_message(3).metadata is None
        session.unpin_message("1.602")
        assert contents(session.history("openai", budget=20)) == ["m899", "m900"]
        session.append({"role": "user", "content": "keep", "metadata": {"pinned": True, "by": "me"}})
        session.append(numbered(300))
        assert contents(session.history("openai", budget=0))[0] == "keep"
        assert session.unpin_message(903).metadata == {"by": "me"}
        with pytest.raises(MessageNotFound):
            session.pin_message(9_999)
        counted(session)

    def test_a_pin_is_of_the_message_in_every_fork(self, store: Store):
        session = store.session("a")
        session.append(numbered(4))
        fork = session.fork(2)
        before = fork.revision
        session.pin_message(1)
        assert fork.messages()[0].pinned
        assert fork.refresh().revision > before
        store.erase_session("a", forks="keep")
        assert texts(fork) == ["m1", "m2"]

    def test_instructions_in_the_middle_stay(self, store: Store):
        session = store.session("a")
        session.append(numbered(200))
        session.append({"role": "developer", "content": "be brief"})
        session.append(numbered(300))
        assert contents(session.history("openai", budget=0))[0] == "be brief"

    def test_what_is_no_bound(self, store: Store):
        session = store.session("a")
        for arguments in _NO_BOUNDS:
            with pytest.raises(InvalidValue):
                session.history("openai", **arguments)

    def test_a_path_over_several_branches(self, store: Store):
        session = store.session("a")
        session.append([{**message, "tokens": 10} for message in numbered(200)])
        session.rewind(100).append([{**message, "tokens": 10} for message in numbered(4, first=301)])
        assert contents(session.history("openai", budget=80)) == [
            "m97", "m98", "m99", "m100", "m301", "m302", "m303", "m304",
        ]  # fmt: skip
        assert session.active_tokens() == session.token_count == 1_040
