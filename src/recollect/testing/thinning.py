"""Thinning: the oldest turns of long sessions, and large outputs of tools."""

from __future__ import annotations

import pytest

from recollect.model.message import Draft
from recollect.model.part import AttachmentPart, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Session, Store
from recollect.testing.place import Place
from recollect.testing.retention import IMAGE
from recollect.testing.talk import answers, asks, assistant, counted, numbered, texts, user


def talk(store: Store, turns: int, name: str = "a") -> Session:
    """Make a session of turns of four messages: a question, a call, its result and an answer."""
    session = store.session(name)
    for number in range(turns):
        session.append([user(f"q{number}"), asks(f"c{number}"), answers(f"c{number}"), assistant(f"a{number}")])
    return session


class TestTrim:
    """The oldest turns of sessions that are too long."""

    def test_whole_turns_go_and_can_come_back(self, store: Store, place: Place):
        session = talk(store, 5)
        assert store.prune(max_messages=20).trimmed == 0
        assert store.prune(max_messages=10, dry_run=True).trimmed == 12
        assert session.refresh().message_count == 20
        revision = session.revision
        assert store.prune(max_messages=10).trimmed == 12
        session = place.reopen().session("a")
        assert [text for text in texts(session) if text] == ["q3", "a3", "q4", "a4"]
        assert session.revision > revision
        counted(session)
        assert session.store.prune(max_messages=10).trimmed == 0
        for message in session.messages(deleted=True):
            session.restore_message(message.id)
        assert session.message_count == 20
        counted(session)

    def test_the_newest_turn_and_the_system_prompt_stay(self, store: Store):
        session = store.session("a")
        session.append({"role": "system", "content": "Be brief."})
        with session.turn("first") as turn:
            turn.add(assistant("1"))
        with session.turn("second") as turn:
            for number in range(10):
                turn.add(assistant(str(number)))
        assert store.prune(max_messages=1).trimmed == 2
        assert texts(session)[:2] == ["Be brief.", "second"]
        assert len(texts(session)) == 12
        counted(session.refresh())

    def test_by_two_rules_at_once(self, store: Store):
        talk(store, 3)
        report = store.prune(older_than="30d", max_messages=4)
        assert (report.trimmed, report.count) == (8, 0)

    def test_a_past_that_a_fork_shares_stays(self, store: Store):
        session = talk(store, 4)
        fork = session.fork(6, id="f")
        assert store.prune(max_messages=4).trimmed == 0
        assert (len(texts(session)), len(texts(fork))) == (16, 6)
        store.erase_session("f")
        assert store.prune(max_messages=4).trimmed == 12
        counted(session.refresh())

    def test_over_the_branches_of_a_session(self, store: Store):
        session = talk(store, 4)
        session.rewind(8)
        session.append(numbered(6))
        session.rewind(10)
        session.append(numbered(6))
        count = session.message_count
        assert store.prune(max_messages=5, dry_run=True).trimmed == (trimmed := store.prune(max_messages=5).trimmed)
        assert session.refresh().message_count == count - trimmed <= 6
        counted(session)
        assert texts(session)[-1] == "m6"

    def test_long_ones_in_steps(self, store: Store):
        session = store.session("a")
        for _ in range(5):
            session.append(numbered(500))
        assert store.prune(max_messages=10, dry_run=True).trimmed == 2_490
        assert store.prune(max_messages=10).trimmed == 2_490
        assert session.refresh().message_count == 10
        counted(session)

    def test_a_long_turn_goes_as_a_whole(self, store: Store):
        session = store.session("a")
        session.append([user("q"), *[assistant(str(number)) for number in range(1_500)]])
        session.append(numbered(2))
        assert store.prune(max_messages=1_000).trimmed == 1_501
        assert texts(session) == ["m1", "m2"]

    def test_pinned_and_busy_ones_stay(self, store: Store):
        talk(store, 3).update(pinned=True)
        with talk(store, 3, "b").turn("q"):
            assert store.prune(max_messages=4).trimmed == 0
        assert store.prune(max_messages=4).trimmed == 12


class TestDropOutput:
    """Large tool outputs, dropped while the text stays."""

    def outputs(self, session: Session) -> list[str]:
        """Give what the tools answered."""
        return [part.output for message in session.messages() for part in message.tool_results]

    def test_the_sentence_says_how_much_and_the_rest_stays(self, store: Store, place: Place):
        session = store.session("a")
        session.append(
            [user("q" * 5_000), asks("1", "2"), answers("1", text="large " * 1_000), answers("2", text="small")]
        )
        tokens, revision = session.token_count, session.revision
        dry = store.prune(tool_output_over=1_000, dry_run=True)
        assert (dry.outputs, dry.output_bytes > 6_000, dry.count) == (1, True, 0)
        assert (session.refresh().token_count, self.outputs(session)[0][:6]) == (tokens, "large ")
        report = store.prune(tool_output_over=1_000)
        assert (report.outputs, report.output_bytes) == (dry.outputs, dry.output_bytes)
        session = place.reopen().session("a")
        first, second = self.outputs(session)
        assert (f"{report.output_bytes:,}" in first, len(first) < 100, second) == (True, True, "small")
        assert session.messages()[0].text == "q" * 5_000
        assert session.token_count < tokens - 1_000
        assert session.revision > revision
        counted(session)
        part = session.messages()[2].tool_results[0]
        assert part.metadata is not None
        assert part.metadata["dropped"]["bytes"] == report.output_bytes
        assert [call.status for call in session.tool_calls()] == ["success", "success"]
        assert session.store.prune(tool_output_over=0).outputs == 1

    @pytest.mark.parametrize("format", ["anthropic", "openai"])
    def test_what_is_sent_next_is_still_valid(self, store: Store, format: str):
        session = store.session("a")
        blocks = [{"type": "text", "text": "large " * 500}, {"type": "text", "text": "more"}]
        result = {"type": "tool_result", "tool_use_id": "1", "content": blocks, "cache_control": {}}
        session.append([asks("1"), {"role": "user", "content": [result]}])
        store.prune(tool_output_over=100)
        sent = session.history(format)[-1]  # pyright: ignore[reportArgumentType]
        content = sent["content"] if format == "openai" else sent["content"][0]["content"]
        assert content.startswith("[This tool output of ")
        if format == "anthropic":
            assert sent["content"][0] == {
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
        assert store.prune(tool_output_over=5_000).outputs == 1
        assert session.messages()[1].tool_results[0].content is None
        kept = other.messages()[0].parts[0]
        assert isinstance(kept, AttachmentPart)
        assert kept.data == IMAGE
        assert store.check().problems == ()

    def test_in_a_past_that_forks_share_every_count_is_right(self, store: Store):
        session = store.session("a")
        session.append([asks("1"), answers("1", text="x" * 9_000), *numbered(2)])
        fork = session.fork(3, id="f")
        revision = fork.revision
        assert store.prune(tool_output_over=1_000).outputs == 1
        for each in (session.refresh(), fork.refresh()):
            counted(each)
        assert fork.revision > revision
        assert store.check().problems == ()

    def test_pinned_ones_and_their_relatives_keep_theirs(self, store: Store):
        session = store.session("a")
        session.append([asks("1"), answers("1", text="x" * 9_000)])
        session.fork(id="f").update(pinned=True)
        with store.session("b").turn("q") as turn:
            turn.add([asks("2"), answers("2", text="x" * 9_000)])
            assert store.prune(tool_output_over=1_000).outputs == 0
        assert store.prune(tool_output_over=1_000).outputs == 1

    def test_many(self, store: Store):
        session = store.session("a")
        for number in range(50):
            session.append([asks(str(number)), answers(str(number), text="x" * 3_000)])
        assert store.prune(tool_output_over=2_000).outputs == 50
        assert all(len(text) < 100 for text in self.outputs(session))
        counted(session.refresh())
