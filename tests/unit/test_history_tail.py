"""history(format, last=n) against the end of the whole history, on random sessions and in every format."""

from __future__ import annotations

import collections
import contextlib
from typing import Any
from unittest import mock

import pytest
from formats_table import EXAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import formats
from recollect.errors import RecollectError
from recollect.formats.remainder import MALFORMED
from recollect.history.tool_pairs import is_call, is_result, pair_calls
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.storage import messages, view_pages

FORMATS = formats.FORMATS
call_ids = st.sampled_from(["c", "d", "call_0", "odd id!"])
image = AttachmentPart(mime_type="image/png", url="https://example.org/a.png")
parts = st.one_of(
    st.builds(TextPart, text=st.sampled_from(["word", " ", ""])),
    st.builds(ReasoningPart, text=st.just("thought")),
    st.builds(ToolCallPart, call_id=call_ids, tool=st.sampled_from(["f", "g"]), arguments=st.just({"a": 1})),
    st.builds(ToolResultPart, call_id=call_ids, text=st.just("result")),
    st.builds(ToolResultPart, call_id=call_ids, content=st.just((TextPart(text="x"), image))),
    st.just(image),
    st.just(DataPart(data={"a": 1})),
)
pinned = st.sampled_from([None, None, None, None, {"pinned": True}])
drafts = st.builds(
    Draft,
    role=st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system"]),
    parts=st.lists(parts, max_size=3).map(tuple),
    format=st.sampled_from([None, *formats.PROVIDERS]),
    metadata=pinned,
)


def exchange(call_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return a call and its result in every format, of types that need the call to render the result."""
    function = {"name": "f", "arguments": "{}"}
    return {
        "anthropic": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "r"}]},
        ],
        "openai": [
            {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": call_id, "content": "r"},
        ],
        "openai-responses": [
            {"type": "custom_tool_call", "call_id": call_id, "name": "f", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": call_id, "output": "r"},
        ],
        "ai-sdk": [
            {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": call_id, "toolName": "g", "input": {}}]},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": call_id, "toolName": "g", "output": {"type": "text", "value": "r"}}]},
        ],
        "ai-sdk-ui": [
            {"id": "m", "role": "assistant", "parts": [{"type": "tool-f", "toolCallId": call_id, "state": "input-available", "input": {}}]},
            {"id": "n", "role": "user", "parts": [{"type": "text", "text": "r"}]},
        ],
        "gemini": [
            {"role": "model", "parts": [{"functionCall": {"id": call_id, "name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": call_id, "name": "f", "response": {"output": "r"}}}]},
        ],
        "bedrock": [
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": call_id, "name": "f", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": call_id, "content": [{"text": "r"}]}}]},
        ],
        "ollama": [
            {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "r", "tool_call_id": call_id},
        ],
        "mistral": [
            {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
            {"role": "tool", "name": "f", "tool_call_id": call_id, "content": "r"},
        ],
        "recollect": [
            {"role": "assistant", "parts": [{"kind": "tool_call", "call_id": call_id, "tool": "h", "arguments": {}}]},
            {"role": "tool", "parts": [{"kind": "tool_result", "call_id": call_id, "text": "r"}]},
        ],
        **framework_exchange(call_id),
    }  # fmt: skip


def framework_exchange(call_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the same in the formats of frameworks."""
    function = {"name": "f", "arguments": "{}"}
    return {
        "pydantic-ai": [
            {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "f", "tool_call_id": call_id, "args": {}}]},
            {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "f", "tool_call_id": call_id, "content": "r"}]},
        ],
        "langchain": [
            {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": call_id, "type": "tool_call"}]},
            {"type": "tool", "content": "r", "tool_call_id": call_id},
        ],
        "ag-ui": [
            {"id": "m", "role": "assistant", "toolCalls": [{"id": call_id, "type": "function", "function": function}]},
            {"id": "n", "role": "tool", "toolCallId": call_id, "content": "r"},
        ],
    }  # fmt: skip


exchanges = st.tuples(call_ids, st.sampled_from(FORMATS), st.integers(0, 2)).map(
    lambda choice: formats.read(exchange(choice[0])[choice[1]], choice[1])[slice(*[(0, 1), (1, 2), (0, 2)][choice[2]])]
)
features = [formats.read(messages, name) for name, table in EXAMPLES.items() for messages in table.values()]
batches = st.one_of(drafts.map(lambda draft: [draft]), exchanges, st.sampled_from(features))
numbers = st.integers(1, 40)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), batches),
        st.tuples(st.just("append"), batches),
        st.tuples(st.just("append"), batches),
        st.tuples(st.just("append"), batches),
        st.tuples(st.sampled_from(["delete", "pin", "rewind", "fork", "compact", "compact", "undo"]), numbers),
    ),
    min_size=1,
    max_size=30,
)


def act(session: recollect.Session, name: str, argument: Any) -> recollect.Session:
    """Change a session. A change that does not apply is skipped."""
    with contextlib.suppress(RecollectError):
        if name == "append":
            session.append(argument)
        elif name == "delete":
            session.delete_messages([argument])
        elif name == "pin":
            session.mark_message(argument, {"pinned": True})
        elif name == "rewind":
            session.rewind(argument)
        elif name == "fork":
            return session.fork(at=argument)
        elif name == "compact":
            session.compact(before=argument, summary=f"Before {argument}.")
        else:
            session.compactions.undo()
    return session


def split_results(history: list[dict[str, Any]], cut: int, format: str) -> list[str]:
    """Return the call ids of the results after a cut whose calls are before it."""
    rendered = [read_again(item, format) for item in history]
    answers = pair_calls(rendered).answers
    crossing = sorted(result for call, result in answers.items() if call[0] < cut <= result[0])
    return [part.call_id for index, inner in crossing if is_result(part := rendered[index].parts[inner])]


def read_again(item: dict[str, Any], format: str) -> Message:
    try:
        again = formats.read(item, format)
    except MALFORMED:
        again = []
    inner = tuple(part for draft in again for part in draft.parts)
    return Message(1, 1, again[0].role if again else "user", inner, created_at_ms=0)


def assert_tails(session: recollect.Session) -> None:
    """Compare the last messages with the end of the whole history, in every format and of every length."""
    parts = [part for message in session.messages(active=True) for part in message.parts]
    ids = collections.Counter((type(part), part.call_id) for part in parts if is_call(part) or is_result(part))
    # With one call and one result, there is one way to pair them.
    unique = {id for (_, id) in ids if (ids[ToolCallPart, id], ids[ToolResultPart, id]) == (1, 1)}
    for format in FORMATS:
        whole = session.history(format, repair=False)
        for last in {0, 1, 2, 3, 5, 8, len(whole) // 2, max(len(whole) - 1, 0), len(whole), len(whole) + 3}:
            tail = session.history(format, last=last)
            cut = max(len(whole) - last, 0)
            assert tail == whole[cut:], (format, last)
            fast_tail = session.history(format, last=last, repair=False)
            assert (fast_tail, fast_tail.repairs) == (whole[cut:], []), (format, last)
            assert [report.kind for report in tail.repairs] == ["split_pair"] * len(tail.repairs)
            call_ids, expected = [report.call_id for report in tail.repairs], split_results(whole, cut, format)
            assert [id for id in call_ids if id in unique] == [id for id in expected if id in unique], (format, last)
            assert set(call_ids) <= {
                part.call_id for item in whole[:cut] for part in read_again(item, format).tool_calls
            }
            for report in tail.repairs:
                assert session.message(report.message).tool_results, report


def assert_pages(session: recollect.Session) -> None:
    """Compare the pages of the active messages with slices of all of them."""
    whole = session.messages(active=True)
    for cursor in [0, *whole[::3], 99]:
        position = cursor if isinstance(cursor, int) else cursor.position
        later = [message for message in whole if message.position > position]
        earlier = [message for message in whole if message.position < position]
        for size in (1, 4, 50):
            assert session.messages(active=True, after=cursor, limit=size) == later[:size]
            assert session.messages(size, active=True, after=cursor) == later[-size:]
            assert session.messages(active=True, before=cursor, limit=size) == earlier[-size:]
            assert (
                session.messages(active=True, after=2, before=cursor, limit=size)
                == [m for m in earlier if m.position > 2][:size]
            )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions, st.sampled_from([1, 2, 8]))
def test_the_tail_is_the_end_of_the_history(changes, margin):
    with recollect.open(":memory:") as store, mock.patch.multiple(view_pages, _TAIL_MARGIN=margin, _TAIL_GROWTH=2):
        session = store.session("a")
        for name, argument in changes:
            session = act(session, name, argument)
        assert_tails(session)
        assert_pages(session)


def call_message(id: str) -> dict[str, Any]:
    return exchange(id)["anthropic"][0]


def result_message(id: str) -> dict[str, Any]:
    return exchange(id)["anthropic"][1]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(view_pages, "_TAIL_MARGIN", 1)
    with recollect.open(":memory:") as store:
        yield store.session("a")


def filler(count: int, name: str = "m") -> list[dict[str, Any]]:
    return [{"role": "assistant" if n % 2 else "user", "content": f"{name}{n}"} for n in range(count)]


def test_a_pinned_result_makes_its_compacted_call_active(session):
    session.append([user("q"), call_message("x"), *filler(2)])
    session.compact(before=4, summary="s")
    session.append([*filler(20), result_message("x")])
    assert_tails(session)
    session.mark_message(session.messages(last=1)[0], {"pinned": True})
    assert session.history("anthropic", last=1).repairs[0].call_id == "x"
    assert_tails(session)


def test_a_pinned_call_before_a_compacted_range_makes_its_result_active(session):
    session.append([call_message("x"), *filler(3), result_message("x"), *filler(30)])
    session.mark_message(1, {"pinned": True})
    session.compact(before=20, summary="s")
    session.append(filler(30, "n"))
    assert [message.position for message in session.messages(active=True)][:4] == [1, 2, 5, 20]
    assert_tails(session)


def test_a_pinned_call_inside_a_compacted_range(session):
    session.append([user("q"), call_message("x"), *filler(100), call_message("y"), *filler(100)])
    session.compact(before=200, summary="s")
    session.mark_message(103, {"pinned": True})
    session.append([result_message("y"), result_message("x"), *filler(3, "n")])
    assert [report.call_id for report in session.history("openai", last=5).repairs] == ["y"]
    assert_tails(session)


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "ai-sdk-ui"])
def test_a_pair_that_the_cut_splits_is_reported(session, format):
    id = "call00001"  # which no format changes
    session.append([*filler(40), call_message(id), result_message(id), *filler(5, "n")])
    assert session.history(format, last=5).repairs == []
    assert session.history(format, last=7).repairs == []
    (report,) = session.history(format, last=6).repairs
    assert (report.kind, report.message, report.call_id) == ("split_pair", "1.42", id)
    assert report.sentence == "The call of tool result 'call00001' in message 1.42 is before the last 6 messages."


def test_a_call_id_that_the_format_changes_is_reported_with_its_message(session):
    session.append([*filler(9), *formats.read(exchange("odd id!")["openai"], "openai"), *filler(2)])
    (report,) = session.history("anthropic", last=3).repairs
    assert (report.message, report.call_id) == ("1.11", "odd_id_")


def test_a_result_without_a_call_is_not_reported(session):
    session.append([*filler(20), result_message("x"), *filler(2)])
    assert session.history("anthropic", last=3).repairs == []


class TestCost:
    """The number of messages that are read does not depend on the length of the session."""

    @pytest.fixture
    def reads(self, monkeypatch):
        """Record how many messages each statement returns."""
        counts: list[int] = []
        decode = messages.messages_from_rows

        def record(rows, branch):
            counts.append(len(rows))
            return decode(rows, branch)

        monkeypatch.setattr(messages, "messages_from_rows", record)
        return counts

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("length", [200, 10_000])
    def test_the_end_of_a_long_session_is_read(self, reads, format, length):
        with recollect.open(":memory:") as store:
            session = store.session("a")
            session.append(
                [
                    message
                    for n in range(length // 4)
                    for message in [user("q"), *exchange(f"c{n}")["openai"], {"role": "assistant", "content": "a"}]
                ]
            )
            session.mark_message(3, {"pinned": True})
            session.append({"role": "system", "content": "s"})
            for change in (
                list,
                lambda: session.compact(before=length - 9, summary="s"),
                lambda: session.rewind(length),
            ):
                change()
                for target in (session, session.fork()):
                    reads.clear()
                    history = target.history(format, last=10)
                    assert sum(reads) <= 250, reads
                    assert history == target.history(format, repair=False)[-10:]

    def test_one_read_suffices_in_the_format_of_the_messages(self, reads):
        with recollect.open(":memory:") as store:
            for format in FORMATS:
                session = store.session(format)
                messages = [message for n in range(200) for message in exchange(f"c{n}")[format]]
                for message in messages:
                    session.append(message, format=format)
                reads.clear()
                assert len(session.history(format, last=50)) == 50
                assert len(reads) <= 2, format
                assert sum(reads) <= 60
