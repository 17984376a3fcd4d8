"""Trimming: the oldest turns of long sessions, and large tool outputs."""

from __future__ import annotations

import pytest

from recollect.model.message import AttachmentPart, Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Session, Store
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
from recollect_conformance.retention import IMAGE


def session_of_turns(store: Store, turns: int, name: str = "a") -> Session:
    """Create a session with turns of four messages: a question, a call, its result and an answer."""
    session = store.session(name)
    for number in range(turns):
        session.append(
            [
                user(f"q{number}"),
                tool_call_message(f"c{number}"),
                tool_result_message(f"c{number}"),
                assistant(f"a{number}"),
            ]
        )
    return session


class TestTrim:
    """Deleting the oldest turns of long sessions."""

    def test_complete_turns_are_deleted_and_can_be_restored(self, store: Store, database: DatabaseUnderTest):
        session = session_of_turns(store, 5)
        assert store.maintenance.prune(max_messages=20).trimmed == 0
        assert store.maintenance.prune(max_messages=10, dry_run=True).trimmed == 12
        assert session.refresh().message_count == 20
        revision = session.revision
        assert store.maintenance.prune(max_messages=10).trimmed == 12
        session = database.reopen().session("a")
        assert [text for text in texts(session) if text] == ["q3", "a3", "q4", "a4"]
        assert session.revision > revision
        check_counts(session)
        assert session.store.maintenance.prune(max_messages=10).trimmed == 0
        for message in session.messages(deleted=True):
            session.restore_messages([message.id])
        assert session.message_count == 20
        check_counts(session)

    def test_the_newest_turn_and_the_system_prompt_stay(self, store: Store):
        session = store.session("a")
        session.append({"role": "system", "content": "Be brief."})
        with session.turn("first") as turn:
            turn.add(assistant("1"))
        with session.turn("second") as turn:
            for number in range(10):
                turn.add(assistant(str(number)))
        assert store.maintenance.prune(max_messages=1).trimmed == 2
        assert texts(session)[:2] == ["Be brief.", "second"]
        assert len(texts(session)) == 12
        check_counts(session.refresh())

    def test_trimming_together_with_another_rule(self, store: Store):
        session_of_turns(store, 3)
        report = store.maintenance.prune(older_than="30d", max_messages=4)
        assert (report.trimmed, report.count) == (8, 0)

    def test_messages_that_a_fork_shares_stay(self, store: Store):
        session = session_of_turns(store, 4)
        fork = session.fork(6, id="f")
        assert store.maintenance.prune(max_messages=4).trimmed == 0
        assert (len(texts(session)), len(texts(fork))) == (16, 6)
        store.erase_session("f")
        assert store.maintenance.prune(max_messages=4).trimmed == 12
        check_counts(session.refresh())

    def test_trimming_over_several_branches(self, store: Store):
        session = session_of_turns(store, 4)
        session.rewind(8)
        session.append(numbered_messages(6))
        session.rewind(10)
        session.append(numbered_messages(6))
        count = session.message_count
        assert store.maintenance.prune(max_messages=5, dry_run=True).trimmed == (
            removed_count := store.maintenance.prune(max_messages=5).trimmed
        )
        assert session.refresh().message_count == count - removed_count <= 6
        check_counts(session)
        assert texts(session)[-1] == "m6"

    def test_long_sessions_are_trimmed_in_batches(self, store: Store):
        session = store.session("a")
        for _ in range(5):
            session.append(numbered_messages(500))
        assert store.maintenance.prune(max_messages=10, dry_run=True).trimmed == 2_490
        assert store.maintenance.prune(max_messages=10).trimmed == 2_490
        assert session.refresh().message_count == 10
        check_counts(session)

    def test_a_long_turn_is_deleted_completely(self, store: Store):
        session = store.session("a")
        session.append([user("q"), *[assistant(str(number)) for number in range(1_500)]])
        session.append(numbered_messages(2))
        assert store.maintenance.prune(max_messages=1_000).trimmed == 1_501
        assert texts(session) == ["m1", "m2"]

    def test_pinned_and_busy_sessions_are_not_trimmed(self, store: Store):
        session_of_turns(store, 3).update(pinned=True)
        with session_of_turns(store, 3, "b").turn("q"):
            assert store.maintenance.prune(max_messages=4).trimmed == 0
        assert store.maintenance.prune(max_messages=4).trimmed == 12


class TestDropOutput:
    """Dropping large tool outputs while the texts stay."""

    def outputs(self, session: Session) -> list[str]:
        """Return the texts of the tool results."""
        return [part.output for message in session.messages() for part in message.tool_results]

    def test_the_replacement_states_the_size_and_other_parts_stay(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(
            [
                user("q" * 5_000),
                tool_call_message("1", "2"),
                tool_result_message("1", text="large " * 1_000),
                tool_result_message("2", text="small"),
            ]
        )
        tokens, revision = session.token_count, session.revision
        preview = store.maintenance.prune(tool_output_over=1_000, dry_run=True)
        assert (preview.outputs, preview.output_bytes > 6_000, preview.count) == (1, True, 0)
        assert (session.refresh().token_count, self.outputs(session)[0][:6]) == (tokens, "large ")
        report = store.maintenance.prune(tool_output_over=1_000)
        assert (report.outputs, report.output_bytes) == (preview.outputs, preview.output_bytes)
        session = database.reopen().session("a")
        first, second = self.outputs(session)
        assert (f"{report.output_bytes:,}" in first, len(first) < 100, second) == (True, True, "small")
        assert session.messages()[0].text == "q" * 5_000
        assert session.token_count < tokens - 1_000
        assert session.revision > revision
        check_counts(session)
        part = session.messages()[2].tool_results[0]
        assert part.metadata is not None
        assert part.metadata["dropped"]["bytes"] == report.output_bytes
        assert [call.status for call in session.tools.list()] == ["success", "success"]
        assert session.store.maintenance.prune(tool_output_over=0).outputs == 1

    @pytest.mark.parametrize("format", ["anthropic", "openai"])
    def test_the_next_history_is_still_valid(self, store: Store, format: str):
        session = store.session("a")
        blocks = [{"type": "text", "text": "large " * 500}, {"type": "text", "text": "more"}]
        result = {"type": "tool_result", "tool_use_id": "1", "content": blocks, "cache_control": {}}
        session.append([tool_call_message("1"), {"role": "user", "content": [result]}])
        store.maintenance.prune(tool_output_over=100)
        last_message = session.history(format)[-1]  # pyright: ignore[reportArgumentType]
        content = last_message["content"] if format == "openai" else last_message["content"][0]["content"]
        assert content.startswith("[This tool output of ")
        if format == "anthropic":
            assert last_message["content"][0] == {
                "type": "tool_result", "tool_use_id": "1", "content": content, "cache_control": {},
            }  # fmt: skip

    def test_payloads_are_released(self, store: Store):
        image = AttachmentPart(mime_type="image/png", data=IMAGE)
        call = ToolCallPart(call_id="1", tool="draw", arguments={})
        result = ToolResultPart(call_id="1", content=(TextPart(text="here"), image))
        session = store.session("a")
        session.append([Draft(role="assistant", parts=(call,)), Draft(role="tool", parts=(result,))])
        other = store.session("b")
        other.append(Draft(role="user", parts=(image,)))
        assert store.maintenance.prune(tool_output_over=5_000).outputs == 1
        assert session.messages()[1].tool_results[0].content is None
        part = other.messages()[0].parts[0]
        assert isinstance(part, AttachmentPart)
        assert part.data == IMAGE
        assert store.maintenance.check().problems == ()

    def test_counts_of_forks_that_share_a_dropped_output(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("1"), tool_result_message("1", text="x" * 9_000), *numbered_messages(2)])
        fork = session.fork(3, id="f")
        revision = fork.revision
        assert store.maintenance.prune(tool_output_over=1_000).outputs == 1
        for handle in (session.refresh(), fork.refresh()):
            check_counts(handle)
        assert fork.revision > revision
        assert store.maintenance.check().problems == ()

    def test_outputs_of_busy_sessions_and_of_pinned_trees_are_kept(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("1"), tool_result_message("1", text="x" * 9_000)])
        session.fork(id="f").update(pinned=True)
        with store.session("b").turn("q") as turn:
            turn.add([tool_call_message("2"), tool_result_message("2", text="x" * 9_000)])
            assert store.maintenance.prune(tool_output_over=1_000).outputs == 0
        assert store.maintenance.prune(tool_output_over=1_000).outputs == 1

    def test_many_outputs(self, store: Store):
        session = store.session("a")
        for number in range(50):
            session.append([tool_call_message(str(number)), tool_result_message(str(number), text="x" * 3_000)])
        assert store.maintenance.prune(tool_output_over=2_000).outputs == 50
        assert all(len(text) < 100 for text in self.outputs(session))
        check_counts(session.refresh())
