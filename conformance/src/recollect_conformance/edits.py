"""Edits of stored messages: replacing content, marks, deleting several, popping the last ones; also in forks."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from recollect import formats
from recollect.errors import Conflict, InvalidValue, MessageNotFound, SessionInTrash, StaleRevision
from recollect.model.message import AttachmentPart, Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.model.value import to_datetime
from recollect.store import Session, Store
from recollect_conformance.concurrency import run_concurrently
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    ANTHROPIC_RESPONSE,
    assistant,
    check_counts,
    ids,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)

PICTURE = base64.b64encode(bytes(range(256)) * 20).decode()
OTHER_PICTURE = base64.b64encode(bytes(range(255, -1, -1)) * 20).decode()


def picture(data: str = PICTURE) -> dict[str, Any]:
    """Return a message with an attachment that is stored as a blob."""
    return {"role": "user", "parts": [{"kind": "attachment", "mime_type": "image/png", "data": data}]}


def call(*ids: str, tool: str = "read", **fields: Any) -> Draft:
    """Return a message with tool calls."""
    parts = tuple(ToolCallPart(call_id=id, tool=tool, arguments={}) for id in ids)
    return Draft(role="assistant", parts=parts, **fields)


def result(*ids: str, text: str = "done", **fields: Any) -> Draft:
    """Return a message with tool results that do not name their tool."""
    return Draft(role="tool", parts=tuple(ToolResultPart(call_id=id, text=text, **fields) for id in ids))


def calls_of(session: Session) -> list[tuple[str, str, str, str | None, int | None]]:
    """Return the tool calls of a session: id, tool, status, and where the result is."""
    return [
        (item.call_id, item.tool, item.status, item.result_message, item.result_part) for item in session.tools.list()
    ]


class TestReplaceMessage:
    """Replacing the content of a message."""

    def test_the_content_changes_and_the_place_stays(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(
            [user("m1"), Draft(role="user", parts=(TextPart(text="m2"),), key="k", created_at=5), user("m3")]
        )
        with session.turn("q") as turn:
            turn.add(assistant("r"))
        before = session.message("1.2")
        message = session.replace_message("1.2", assistant("a much longer text than before"))
        assert (message.id, message.key, message.created_at, message.role) == ("1.2", "k", to_datetime(5), "assistant")
        assert message.edited_at is not None
        assert session.message("1.2") == message
        assert texts(session) == ["m1", "a much longer text than before", "m3", "q", "r"]
        check_counts(session)
        assert session.replace_message("1.5", assistant("R")).turn == 4
        session = database.reopen().session("a")
        assert session.message("1.2") == message
        (version,) = session.message_versions("1.2")
        assert version == before
        assert session.message_versions("1.1") == []
        assert session.history("openai")[1] == {"role": "assistant", "content": "a much longer text than before"}

    def test_versions_are_ordered(self, store: Store):
        session = store.session("a")
        session.append(user("v1"))
        edits = [session.replace_message(1, user(f"v{number}")) for number in range(2, 6)]
        versions = session.message_versions(1)
        assert [version.text for version in versions] == ["v1", "v2", "v3", "v4"]
        assert [version.edited_at for version in versions] == [None, *(edit.edited_at for edit in edits[:-1])]
        times = [edit.edited_at_ms or 0 for edit in edits]
        assert times == sorted(set(times))
        assert (session.message(1).text, texts(session)) == ("v5", ["v5"])

    def test_erasing_removes_all_versions(self, store: Store):
        session = store.session("a")
        session.append([user("first words"), user("other")])
        store.maintenance.index()
        session.replace_message(1, user("second words"))
        store.maintenance.index()
        session.replace_message(1, user("third"), erase=True)
        assert session.message_versions(1) == []
        assert list(store.search("words")) == []
        assert [hit.message for hit in store.search("third")] == ["1.1"]
        session.replace_message(1, user("fourth"))
        assert [version.text for version in session.message_versions(1)] == ["third"]
        session.replace_message(1, user("fourth"), erase=True)  # the content is the same, the version goes
        assert session.message_versions(1) == []
        check_counts(session)

    def test_the_search_finds_the_new_words(self, store: Store):
        session = store.session("a")
        session.append(
            [user("before alpha"), tool_call_message("c", tool="finder"), tool_result_message("c", text="beta")]
        )
        session.append(numbered_messages(3))
        store.maintenance.index()
        session.replace_message(1, user("after gamma"))
        assert list(store.search("alpha")) == []
        assert [hit.message for hit in store.search("gamma")] == ["1.1"]
        assert [hit.message for hit in store.search("m2")] == ["1.5"]
        session.replace_message(2, tool_call_message("c", tool="seeker"))
        session.replace_message(3, tool_result_message("c", text="delta"))
        assert list(store.search("beta")) == list(store.search("finder")) == []
        assert [hit.message for hit in store.search("delta", tool="seeker")] == ["1.3"]
        assert {hit.message for hit in store.search("seeker")} == {"1.2"}
        assert store.maintenance.check().problems == ()

    def test_the_result_of_a_renamed_tool_is_indexed_again(self, store: Store):
        session = store.session("a")
        session.append([call("c", tool="finder"), result("c", text="beta")])
        fork = session.fork(1)
        fork.append(result("c", text="theirs"))
        store.maintenance.index()
        session.replace_message(1, call("c", tool="seeker"), erase=True)
        assert list(store.search("beta", tool="finder")) == list(store.search("theirs", tool="finder")) == []
        assert [hit.message for hit in store.search("beta", tool="seeker")] == ["1.2"]
        assert [hit.message for hit in store.search("theirs", tool="seeker")] == ["2.2"]
        assert store.maintenance.check().problems == ()

    def test_model_usage_and_metadata_stay_unless_stated(self, store: Store):
        session = store.session("a")
        first = Draft(
            role="assistant", parts=(TextPart(text="x"),), model="m", input_tokens=3, output_tokens=4,
            metadata={"pinned": True, "a": 1}, error={"e": 1}, state="error",
        )  # fmt: skip
        session.append(first)
        message = session.replace_message(1, assistant("y"))
        assert (message.model, message.input_tokens, message.output_tokens) == ("m", 3, 4)
        assert (message.metadata, message.error, message.state) == ({"pinned": True, "a": 1}, None, "completed")
        draft = Draft(
            role="assistant", parts=(TextPart(text="z"),), model="n", input_tokens=5, tokens=50, metadata={"b": 2}
        )
        message = session.replace_message(1, draft)
        assert (message.model, message.input_tokens, message.output_tokens, message.tokens) == ("n", 5, 4, 50)
        assert (message.metadata, message.pinned) == ({"b": 2}, False)
        check_counts(session)
        assert session.replace_message(1, Draft(role="user", parts=(), metadata={})).metadata == {}
        assert store.stats().input_tokens == 5

    def test_pins_follow_the_content(self, store: Store):
        session = store.session("a")
        session.append([user("m1"), *numbered_messages(6, first=2)])
        session.replace_message(1, {"role": "system", "content": "Be brief."})
        assert session.history("openai", limit=1)[0] == {"role": "system", "content": "Be brief."}
        session.replace_message(1, user("not pinned"))
        assert len(session.history("openai", limit=1)) == 1
        session.replace_message(1, Draft(role="user", parts=(TextPart(text="pinned"),), metadata={"pinned": True}))
        assert session.history("openai", limit=1)[0] == user("pinned")
        assert store.maintenance.check().problems == ()

    def test_the_same_content_changes_nothing(self, store: Store):
        session = store.session("a")
        session.append([user("x"), picture(), ANTHROPIC_RESPONSE])
        revision = session.revision
        for position, message in enumerate((user("x"), picture(), ANTHROPIC_RESPONSE), 1):
            assert session.replace_message(position, message).edited_at is None
            assert session.message_versions(position) == []
        assert session.revision == revision
        assert formats.response(session.message(3)) == ANTHROPIC_RESPONSE

    def test_a_whole_response_is_replaced_exactly(self, store: Store):
        session = store.session("a")
        session.append([user("q"), assistant("in progress")])
        session.replace_message(2, ANTHROPIC_RESPONSE)
        assert formats.response(session.message(2)) == ANTHROPIC_RESPONSE
        assert [item.call_id for item in session.tools.list()] == ["toolu_9"]
        check_counts(session)

    def test_attachments(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([picture(), picture()])
        session.replace_message(1, picture(OTHER_PICTURE))
        session = database.reopen().session("a")
        assert _data_of(session.message_versions(1)[0]) == PICTURE
        assert _data_of(session.message(1)) == OTHER_PICTURE
        assert session.store.maintenance.check().problems == ()
        session.replace_message(1, user("none"), erase=True)
        assert session.store.maintenance.check().problems == ()
        assert _data_of(session.message(2)) == PICTURE
        session.replace_message(2, picture(OTHER_PICTURE))
        session.replace_message(2, picture(OTHER_PICTURE), erase=True)
        assert session.store.maintenance.check().problems == ()
        session.store.erase_session("a")
        assert session.store.maintenance.check().problems == ()

    def test_calls_and_results_keep_their_state(self, store: Store):
        session = store.session("a")
        session.append([call("c1", "c2", "c3"), result("c1", "c2")])
        session.replace_message(1, call("c3", "c1", "c2", tool="other"))
        assert calls_of(session) == [
            ("c3", "other", "pending", None, None),
            ("c1", "other", "success", "1.2", 0),
            ("c2", "other", "success", "1.2", 1),
        ]
        parts = (
            TextPart(text="look"),
            ToolResultPart(call_id="c2", text="no", status="error", error_code="e"),
            ToolResultPart(call_id="c1", text="yes"),
        )
        session.replace_message(2, Draft(role="tool", parts=parts))
        states = {item.call_id: item for item in session.tools.list()}
        assert (states["c1"].status, states["c1"].result_part) == ("success", 2)
        assert (states["c2"].status, states["c2"].result_part, states["c2"].error_code) == ("error", 1, "e")
        assert store.maintenance.check().problems == ()
        session.tools.record_result("c3", "late")
        assert [item.status for item in session.tools.list()] == ["success", "success", "error"]

    def test_removed_and_added_calls_and_results(self, store: Store):
        session = store.session("a")
        session.append([call("c1", "c2"), result("c1", "c2"), user("next")])
        session.replace_message(2, result("c2", "c9"))
        assert calls_of(session) == [("c1", "read", "pending", None, None), ("c2", "read", "success", "1.2", 0)]
        session.replace_message(1, call("c2", "c9", "c9"))
        pending = ("c9", "read", "pending", None, None)
        assert calls_of(session) == [("c2", "read", "success", "1.2", 0), pending, pending]
        session.replace_message(2, result("c9", "c2"))
        assert calls_of(session)[0] == ("c2", "read", "success", "1.2", 1)
        assert calls_of(session)[2] == ("c9", "read", "success", "1.2", 0)
        session.replace_message(1, user("no calls"))
        assert calls_of(session) == []
        session.replace_message(2, user("no results"))
        assert store.maintenance.check().problems == ()

    def test_a_result_does_not_answer_a_later_call(self, store: Store):
        session = store.session("a")
        session.append([user("q"), user("x"), call("c1")])
        session.replace_message(2, result("c1"))
        assert calls_of(session) == [("c1", "read", "pending", None, None)]
        session.replace_message(1, call("c1"))
        session.replace_message(2, result("c1", text="again"))
        assert calls_of(session)[0] == ("c1", "read", "success", "1.2", 0)

    def test_a_message_that_answers_its_own_call(self, store: Store):
        session = store.session("a")
        both = (ToolCallPart(call_id="c", tool="t"), ToolResultPart(call_id="c", text="x"))
        session.append(Draft(role="assistant", parts=both))
        session.replace_message(1, Draft(role="assistant", parts=(TextPart(text="first"), *both)))
        assert calls_of(session) == [("c", "t", "success", "1.1", 2)]
        session.replace_message(1, Draft(role="assistant", parts=both[:1]))
        assert calls_of(session) == [("c", "t", "pending", None, None)]
        session.replace_message(1, Draft(role="assistant", parts=(*both, *both)))
        appended = store.session("b")
        appended.append(Draft(role="assistant", parts=(*both, *both)))
        assert calls_of(session) == calls_of(appended)
        assert store.maintenance.check().problems == ()

    def test_forks_see_the_new_content(self, store: Store):
        session = store.session("a")
        session.append([user("m1"), call("c1", "c2"), result("c1"), user("m4")])
        fork = session.fork(2, id="f")
        fork.append(result("c2", "c1", text="theirs"))
        other = session.fork(1, id="o")
        fork.replace_message("1.1", user("changed in the fork"))
        for handle in (session, fork, other):
            assert handle.refresh().messages()[0].text == "changed in the fork"
            assert [version.text for version in handle.message_versions("1.1")] == ["m1"]
            check_counts(handle)
        session.replace_message(2, call("c2", "c1"))
        assert calls_of(fork) == [("c2", "read", "success", "2.3", 0), ("c1", "read", "success", "2.3", 1)]
        assert calls_of(session) == [("c2", "read", "pending", None, None), ("c1", "read", "success", "1.3", 0)]
        revisions = [handle.refresh().revision for handle in (session, fork, other)]
        session.replace_message(4, user("only here"))
        assert [handle.refresh().revision for handle in (session, fork, other)] == [revisions[0] + 1, *revisions[1:]]
        store.erase_session("a", forks="keep")
        assert [version.text for version in fork.message_versions("1.1")] == ["m1"]
        assert store.maintenance.check().problems == ()

    def test_deleted_messages_and_other_branches(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        session.delete_messages([2])
        session.replace_message("1.2", user("a longer text than it was"))
        check_counts(session)
        session.restore_messages([2])
        assert texts(session) == ["m1", "a longer text than it was", "m3"]
        check_counts(session)
        session.rewind(1)
        session.replace_message("1.3", user("on the other branch"))
        check_counts(session)
        assert session.branches.switch(1).messages()[-1].text == "on the other branch"
        check_counts(session)

    def test_compactions_do_not_change(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        session.compact(before=3, summary="Two messages.")
        session.snapshots.add("memory", {"x": 1})
        session.replace_message(1, user("replaced"))
        assert [message.text for message in session.messages(active=True)][1:] == ["m3", "m4"]
        compaction = session.compactions.latest()
        assert compaction is not None
        assert compaction.summary == "Two messages."
        assert session.snapshots.list()[0].content == {"x": 1}
        session.compactions.undo()
        assert session.messages(active=True)[0].text == "replaced"

    def test_a_message_of_an_open_turn(self, store: Store):
        session = store.session("a")
        with session.turn("q") as turn:
            session.replace_message(1, user("Q"))
            stream = turn.stream()
            stream.write("half an an")
            stream.flush()
            with pytest.raises(Conflict, match="is streaming"):
                session.replace_message(stream.id, assistant("x"))
            assert session.messages()[-1].text == "half an an"
            session.mark_message(stream.id, {"seen": True, "pinned": True})
            stream.write("swer")
            stream.close()
        assert session.messages()[-1].metadata == {"seen": True, "pinned": True}
        assert session.replace_message(stream.id, assistant("x")).text == "x"
        assert texts(session) == ["Q", "x"]
        check_counts(session)
        session.append(Draft(role="assistant", parts=(), state="pending"))
        done = session.replace_message(session.messages()[-1].id, assistant("done"))
        assert (done.state, done.text, done.completed_at is not None) == ("completed", "done", True)

    def test_a_stream_does_not_restore_what_was_replaced(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        turn = session.turn("q")
        stream = turn.stream()
        stream.write("secret")
        stream.flush()
        other = database.open().session("a")
        other.turn("mine", take_over=True).complete()
        turn = other.turn("again")
        stream = turn.stream()
        stream.write("secret")
        stream.flush()
        turn.interrupt()
        other.replace_message(stream.id, assistant("redacted"), erase=True)
        for act in (stream.flush, lambda: stream.close(assistant("secret"))):
            with pytest.raises(InvalidValue, match="stream is closed"):
                act()
        assert other.message(stream.id).text == "redacted"

    def test_expected(self, store: Store):
        session = store.session("a")
        session.append(user("x"))
        with pytest.raises(StaleRevision):
            session.replace_message(1, user("y"), expected=7)
        assert session.replace_message(1, user("y"), expected=session.revision).text == "y"
        with pytest.raises(InvalidValue):
            session.replace_message(1, user("z"), expected=-1)

    def test_invalid_content(self, store: Store):
        session = store.session("a")
        session.append([Draft(role="user", parts=(), key="k"), user("x")])
        revision = session.revision
        invalid: list[Any] = [
            [], [user("a"), user("b")], "text", {"role": "nobody", "content": "x"}, None,
            Draft(role="user", parts=(TextPart(text="y"),), key="other"),
        ]  # fmt: skip
        for message in invalid:
            with pytest.raises(InvalidValue):
                session.replace_message(1, message)
        with pytest.raises(InvalidValue):
            session.replace_message(2, Draft(role="user", parts=(TextPart(text="y"),), key="k"))
        for id in (3, "1.9", "2.1"):
            with pytest.raises(MessageNotFound):
                session.replace_message(id, user("y"))
            with pytest.raises(MessageNotFound):
                session.message_versions(id)
        assert session.refresh().revision == revision
        assert session.replace_message(1, Draft(role="user", parts=(TextPart(text="y"),), key="k")).key == "k"

    def test_one_item_of_a_list_and_formats(self, store: Store):
        session = store.session("a")
        session.append(user("x"))
        assert session.replace_message(1, [assistant("one")]).text == "one"
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two"}]}
        assert session.replace_message(1, item, format="openai-responses").format == "openai-responses"
        assert session.history("openai-responses")[0]["content"][0]["text"] == "two"

    def test_hostile_content(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(user("x"))
        text = "\0 \ud83d\ude00 \ud800 \x10 '\"\\ \U0001f600"
        message = session.replace_message(
            1, Draft(role="user", parts=(TextPart(text=text),), metadata={text: [text, 2**70]})
        )
        assert message.text == text
        session.replace_message(1, user("y"))
        (first, second) = database.reopen().session("a").message_versions(1)
        assert (first.text, second) == ("x", message)

    def test_in_the_trash(self, store: Store):
        session = store.session("a")
        session.append(user("x"))
        store.delete_session("a")
        acts = (
            lambda: session.replace_message(1, user("y")),
            lambda: session.mark_message(1, {"a": 1}),
            lambda: session.delete_messages([1]),
            lambda: session.message_versions(1),
            session.pop,
        )
        for act in acts:
            with pytest.raises(SessionInTrash):
                act()
        assert store.restore_session("a").messages()[0].text == "x"

    def test_pruning_drops_outputs_of_versions_too(self, store: Store):
        session = store.session("a")
        large = "z" * 5_000
        session.append([tool_call_message("c"), tool_result_message("c", text=large), user("q"), assistant("r")])
        session.replace_message(2, tool_result_message("c", text="short"))
        report = store.maintenance.prune(tool_output_over=1_000, dry_run=True)
        assert (report.outputs, report.output_bytes > 5_000) == (1, True)
        assert store.maintenance.prune(tool_output_over=1_000).outputs == 1
        assert store.maintenance.prune(tool_output_over=1_000).outputs == 0
        (version,) = session.message_versions(2)
        assert "was dropped" in version.tool_results[0].output
        assert session.message(2).tool_results[0].output == "short"
        session.replace_message(2, tool_result_message("c", text=large))
        assert store.maintenance.prune(tool_output_over=1_000).outputs == 1
        assert session.message(2).edited_at is not None
        assert store.maintenance.check().problems == ()

    def test_pruning_counts_the_bytes_of_versions(self, store: Store):
        session = store.session("a")
        session.append(user("x"))
        small = store.maintenance.prune(max_bytes=0, dry_run=True).sessions[0].bytes
        session.replace_message(1, user("y" * 10_000))
        session.replace_message(1, picture())
        session.replace_message(1, user("x"))
        assert store.maintenance.prune(max_bytes=0, dry_run=True).sessions[0].bytes > small + 10_000 + len(PICTURE) // 2


def _data_of(message: Any) -> str | None:
    (part,) = message.parts
    assert isinstance(part, AttachmentPart)
    return part.data


class TestMarkMessage:
    """Changing the metadata of a message."""

    def test_keys_are_merged(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(Draft(role="user", parts=(TextPart(text="x"),), metadata={"a": 1, "b": None}))
        message = session.mark_message(1, {"c": [1, {"d": None}], "a": 2})
        assert message.metadata == {"a": 2, "b": None, "c": [1, {"d": None}]}
        assert (message.edited_at, message.text) == (None, "x")
        session = database.reopen().session("a")
        assert session.message(1) == message
        assert session.mark_message(1, {"a": None, "b": None, "c": None, "no": None}).metadata is None
        assert session.message(1).metadata is None
        check_counts(session)

    def test_an_unchanged_mark_is_no_change(self, store: Store):
        session = store.session("a")
        session.append(user("x"))
        session.mark_message(1, {"a": 1})
        revision = session.revision
        for marks in ({"a": 1}, {}, {"b": None}):
            assert session.mark_message(1, marks).metadata == {"a": 1}
        assert session.revision == revision
        assert session.mark_message(1, {"a": True}).metadata == {"a": True}  # which Python takes for equal
        assert session.mark_message(1, {"a": 1.0}).metadata == {"a": 1.0}
        assert session.revision == revision + 2

    def test_pinned_pins(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(6))
        assert session.mark_message(1, {"pinned": True, "x": 1}).pinned
        assert session.history("openai", limit=1)[0]["content"] == "m1"
        assert session.mark_message(1, {"pinned": None}).metadata == {"x": 1}
        assert session.mark_message(1, {"pinned": True}).pinned
        for value in (None, False, "yes"):
            session.mark_message(1, {"pinned": True})
            assert not session.mark_message(1, {"pinned": value}).pinned
            assert session.history("openai", limit=1)[0]["content"] == "m5"
        assert store.maintenance.check().problems == ()

    def test_a_system_message_stays_in_every_history(self, store: Store):
        session = store.session("a")
        session.append([{"role": "system", "content": "s"}, *numbered_messages(4)])
        session.mark_message(1, {"pinned": True})
        session.mark_message(1, {"pinned": None})
        assert session.history("openai", limit=1)[0]["role"] == "system"

    def test_forks_see_marks(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
        fork = session.fork(1)
        revision = session.revision
        fork.mark_message("1.1", {"a": 1})
        assert session.message(1).metadata == {"a": 1}
        assert session.refresh().revision == revision + 1

    @pytest.mark.parametrize("marks", [None, 5, "x", ["a"], {"a": b"x"}, {1: 2}, {"a": float("nan")}, {"a": {1}}])
    def test_invalid_marks(self, store: Store, marks: Any):
        session = store.session("a")
        session.append(user("x"))
        with pytest.raises(InvalidValue):
            session.mark_message(1, marks)
        assert session.message(1).metadata is None

    def test_the_usage_may_be_known_later(self, store: Store):
        session = store.session("a")
        session.append([user("q"), assistant("a")])
        fork = session.fork()
        message = session.mark_message(2, {"by": "billing"}, input_tokens=10, output_tokens=3)
        assert (message.input_tokens, message.output_tokens, message.metadata) == (10, 3, {"by": "billing"})
        message = session.mark_message(2, {}, output_tokens=5)
        assert (message.input_tokens, message.output_tokens, message.edited_at) == (10, 5, None)
        assert session.message(2) == message == fork.message("1.2")
        check_counts(session)
        check_counts(fork.refresh())
        assert (session.stats().input_tokens, session.stats().output_tokens) == (10, 5)
        revision = session.revision
        session.mark_message(2, {}, input_tokens=10)
        assert session.revision == revision
        session.delete_messages([2])
        session.mark_message(2, {}, input_tokens=20)
        check_counts(session)
        session.restore_messages([2])
        check_counts(session)
        assert session.input_tokens == 20
        assert store.maintenance.check().problems == ()
        for invalid in (-1, True, 1.5, "5"):
            with pytest.raises(InvalidValue, match=r"^output_tokens must be a non-negative integer or None"):
                session.mark_message(2, {}, output_tokens=invalid)  # pyright: ignore[reportArgumentType]

    def test_concurrent_marks_are_all_kept(self, store: Store, database: DatabaseUnderTest):
        store.session("a").append(user("x"))
        stores = [store, database.open()]

        def mark(writer: int) -> None:
            session = stores[writer % 2].session("a")
            for number in range(5):
                session.mark_message(1, {f"{writer}:{number}": writer})

        run_concurrently(mark)
        assert len(store.session("a").message(1).metadata or {}) == 40


class TestDeleteMessages:
    """Deleting several messages, and popping the last ones."""

    def test_the_ids_of_this_call_are_returned(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(5))
        session.delete_messages([2])
        assert session.delete_messages(["1.4", 2, 1, "1.1", session.messages()[-1]]) == ["1.4", "1.1", "1.5"]
        assert texts(session) == ["m3"]
        check_counts(session)
        revision = session.revision
        assert session.delete_messages([1, 2]) == session.delete_messages([]) == []
        assert session.revision == revision
        assert texts(database.reopen().session("a")) == ["m3"]

    def test_all_or_none(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        for unknown in (4, "1.4", "2.1", "9.9"):
            with pytest.raises(MessageNotFound):
                session.delete_messages([1, unknown])
        invalid: list[Any] = ["1.1", b"x", 5, None, {"1.1": 1}, ["x"], [None], [True], iter([1.5])]
        for ids_ in invalid:
            with pytest.raises(InvalidValue):
                session.delete_messages(ids_)
        assert texts(session) == ["m1", "m2", "m3"]

    def test_an_iterator_that_fails(self, store: Store):
        def broken() -> Any:
            yield 1
            raise RuntimeError

        session = store.session("a")
        session.append(numbered_messages(3))
        with pytest.raises(InvalidValue, match="RuntimeError"):
            session.delete_messages(broken())
        assert session.delete_messages(number for number in (1, 3)) == ["1.1", "1.3"]

    def test_branches_and_forks(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        fork = session.fork(2, id="f")
        fork.append(user("fork"))
        session.rewind(3)
        session.append(user("other"))
        assert session.delete_messages(["1.4", "1.2", "2.4" if session.branch == 2 else f"{session.branch}.4"])
        assert (texts(session), texts(fork)) == (["m1", "m3"], ["m1", "fork"])
        for handle in (session, fork.refresh()):
            check_counts(handle)
        with pytest.raises(MessageNotFound):
            session.delete_messages([fork.messages()[-1].id])
        session.branches.switch(1)
        assert texts(session) == ["m1", "m3"]
        check_counts(session)

    def test_many_messages(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(1_500))
        assert len(session.delete_messages(range(1, 1_501, 2))) == 750
        assert session.message_count == 750
        check_counts(session)

    def test_pop(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([*numbered_messages(5), picture()])
        (last,) = session.pop()
        assert (last.id, _data_of(last), last.deleted_at is not None) == ("1.6", PICTURE, True)
        session.delete_messages([4])
        assert [message.text for message in session.pop(2)] == ["m3", "m5"]
        check_counts(session)
        session = database.reopen().session("a")
        assert [message.text for message in session.pop(9)] == ["m1", "m2"]
        revision = session.revision
        assert session.pop() == []
        assert session.revision == revision
        assert session.restore_messages(["1.5"])
        assert texts(session) == ["m5"]
        assert session.append(user("next")).ids == ["1.7"]

    def test_pop_across_branches_and_forks(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        fork = session.fork(3, id="f")
        fork.append(user("fork"))
        assert [message.id for message in fork.pop(3)] == ["1.2", "1.3", "2.4"]
        assert (texts(session), texts(fork)) == (["m1", "m4"], ["m1"])
        for handle in (session.refresh(), fork):
            check_counts(handle)

    @pytest.mark.parametrize("n", [0, -1, None, True, 1.0, "1", 2**70])
    def test_invalid_numbers(self, store: Store, n: Any):
        session = store.session("a")
        session.append(user("x"))
        if n == 2**70:
            assert len(session.pop(n)) == 1
            return
        with pytest.raises(InvalidValue, match="n must be a positive integer"):
            session.pop(n)

    def test_nobody_pops_the_same_message(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(60))
        fork = session.fork(id="f")
        stores = [store, *(database.open() for _ in range(3))]

        def pop(writer: int) -> list[str]:
            handle = stores[writer % 4].session("f" if writer % 2 else "a")
            return [message.id for _ in range(5) for message in handle.pop(1 + writer % 2)]

        popped_ids = [id for ids in run_concurrently(pop) for id in ids]
        assert len(popped_ids) == len(set(popped_ids)) == 60
        assert texts(session) == texts(fork) == []
        for handle in (session.refresh(), fork.refresh()):
            check_counts(handle)

    def test_concurrent_deletions_report_each_message_once(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(30))
        session.fork(id="f")
        stores = [store, database.open()]

        def delete(writer: int) -> list[str]:
            handle = stores[writer % 2].session("f" if writer % 3 else "a")
            deleted_ids: list[str] = []
            for number in range(1, 31, 3):
                batch = [f"1.{position}" for position in range(number, number + 3)]
                deleted_ids += handle.delete_messages(batch if writer % 2 else batch[::-1])
                deleted_ids += [batch[0]] if handle.delete_messages([batch[0]]) else []
            return deleted_ids

        deleted = [id for ids_ in run_concurrently(delete) for id in ids_]
        assert sorted(deleted) == sorted(f"1.{position}" for position in range(1, 31))
        assert ids(session) == []
        check_counts(session.refresh())
