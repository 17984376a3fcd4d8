"""LangChain's messages: how they are stored, typed and written back in the form in which they were read."""

from __future__ import annotations

from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue
from recollect.formats.display import is_truncated, visible_remainder
from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart

FORMAT = "langchain"
CALL = {"name": "zoom", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
CONVERSATION: list[dict[str, Any]] = [
    {"type": "system", "content": "Be brief."},
    {
        "type": "human",
        "id": "m1",
        "content": ["What is in the picture?", {"type": "image", "base64": "AAAA", "mime_type": "image/png"}],
    },
    {
        "type": "ai",
        "id": "m2",
        "content": [
            {"type": "thinking", "thinking": "Look closer.", "signature": "c2ln"},
            {"type": "text", "text": "I zoom."},
            {"type": "tool_use", "id": "c1", "name": "zoom", "input": {"x": 1}},
        ],
        "tool_calls": [CALL, {**CALL, "id": "c2"}],
        "invalid_tool_calls": [
            {"name": "crop", "args": '{"a', "id": "c3", "error": "JSON", "type": "invalid_tool_call"}
        ],
        "usage_metadata": {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17},
        "response_metadata": {"model_name": "some-model", "finish_reason": "length"},
    },
    {"type": "tool", "content": "A cup.", "tool_call_id": "c1", "name": "zoom", "artifact": {"pixels": [1]}},
    {"type": "tool", "content": ["x", {"type": "image", "url": "https://example.org/a.png"}], "tool_call_id": "c2"},
    {"type": "tool", "content": "Invalid.", "tool_call_id": "c3", "status": "error"},
    {"type": "ai", "content": "A cup of tea.", "tool_calls": [], "invalid_tool_calls": []},
]


def test_a_conversation_comes_back_equal_without_repairs() -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append(CONVERSATION)
        history = session.history(FORMAT)
        assert (list(history), history.repairs) == (CONVERSATION, [])
        assert session.history(FORMAT, last=2) == CONVERSATION[-2:]
        assert [(call.tool, call.status) for call in session.tools.list()] == [
            ("zoom", "success"), ("zoom", "success"), ("crop", "error"),
        ]  # fmt: skip
        answer = session.messages()[2]
    assert (answer.model, answer.input_tokens, answer.output_tokens) == ("some-model", 12, 5)
    assert (answer.text, answer.reasoning, is_truncated(answer)) == ("I zoom.", "Look closer.", True)
    assert [type(part) for part in answer.parts] == [ReasoningPart, TextPart, ToolCallPart, ToolCallPart, ToolCallPart]
    assert answer.tool_calls[2].arguments_text == '{"a'
    assert not visible_remainder(answer)


@pytest.mark.parametrize("message", CONVERSATION)
def test_dicts_around_the_fields_are_kept(message: dict[str, Any]) -> None:
    classes = {"human": "HumanMessage", "ai": "AIMessage", "system": "SystemMessage", "tool": "ToolMessage"}
    path = ["langchain", "schema", "messages", classes[message["type"]]]
    fields = {name: value for name, value in message.items() if name != "type"}
    for form in (
        {"type": message["type"], "data": message},
        {"type": message["type"], "data": fields},
        {"lc": 1, "type": "constructor", "id": path, "kwargs": message},
        {"lc": 1, "type": "constructor", "id": path, "kwargs": fields, "name": "x"},
    ):
        (draft,) = formats.parse(form)
        (plain,) = formats.parse(message)
        assert (draft.role, draft.parts) == (plain.role, plain.parts)
        assert formats.render(draft, FORMAT) == [form]


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ({"type": "chat", "role": "assistant", "content": "x"}, "assistant"),
        ({"type": "chat", "role": "critic", "content": "x"}, "user"),
        ({"type": "AIMessageChunk", "content": "x", "tool_call_chunks": [{"id": "c"}]}, "assistant"),
        ({"type": "function", "name": "f", "content": "x"}, "tool"),
        ({"role": "developer", "content": "x", "id": "m"}, "system"),
        ({"role": "user", "content": ["x"]}, "user"),
        ({"type": "human", "content": []}, "user"),
    ],
)
def test_other_types_and_roles(message: dict[str, Any], role: str) -> None:
    (draft,) = formats.parse(message, FORMAT)
    assert draft.role == role
    assert formats.render(draft, FORMAT) == [message]


def test_a_call_that_the_content_repeats_is_one_part() -> None:
    def calls_of(*content: dict[str, Any]) -> list[Any]:
        message = {"type": "ai", "content": list(content), "tool_calls": [CALL, {**CALL, "id": "c2"}]}
        (draft,) = formats.parse(message)
        assert formats.render(draft, FORMAT) == [message]
        return [type(part) for part in draft.parts]

    block = {"type": "tool_use", "id": "c1", "name": "zoom", "input": {"x": 1}, "caller": {"type": "direct"}}
    other = {**CALL, "id": "c2"}
    assert calls_of(block, other) == [ToolCallPart, ToolCallPart]
    assert calls_of(block) == [ToolCallPart, ToolCallPart]
    assert calls_of(other) == [DataPart, ToolCallPart, ToolCallPart]  # in another order
    assert calls_of({**block, "input": {"x": 2}}) == [DataPart, ToolCallPart, ToolCallPart]
    assert calls_of({**block, "input": {"x": True}}) == [DataPart, ToolCallPart, ToolCallPart]


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ({"type": "image", "base64": "AAAA", "mime_type": "image/png"}, ("image/png", "AAAA", None)),
        ({"type": "image", "source_type": "base64", "data": "AAAA", "mime_type": "image/png"}, ("image/png", "AAAA", None)),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, ("image/png", "AAAA", None)),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a"}}, ("image/*", None, "https://example.org/a")),
        ({"type": "image_url", "image_url": "https://example.org/a"}, ("image/*", None, "https://example.org/a")),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, ("audio/wav", "AAAA", None)),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}, ("application/pdf", None, "data:application/pdf;base64,AAAA")),
        ({"type": "video", "file_id": "f1", "mime_type": "video/mp4"}, ("video/mp4", None, None)),
    ],
)  # fmt: skip
def test_files_of_every_kind_of_block(block: dict[str, Any], fields: tuple[Any, ...]) -> None:
    message = {"type": "human", "content": [block]}
    (draft,) = formats.parse(message)
    (part,) = draft.parts
    assert isinstance(part, AttachmentPart)
    assert (part.mime_type, part.data, part.url) == fields
    assert formats.render(draft, FORMAT) == [message]


def test_messages_of_other_formats() -> None:
    other = [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "failed", "is_error": True},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ]},
    ]  # fmt: skip
    assert formats.render(formats.parse(other, "anthropic"), FORMAT) == [
        {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}]},
        {"type": "tool", "content": "failed", "tool_call_id": "c", "status": "error"},
        {"type": "human", "content": [{"type": "image", "url": "https://example.org/a.png"}]},
    ]


def test_what_is_not_a_message_is_refused() -> None:
    for message, reason in (
        ({"type": "remove", "content": "", "id": "m"}, "delete_messages"),
        ({"type": "other", "content": "x"}, "known type"),
        ({"type": [], "content": "x"}, "known type"),
        ({"type": "human", "content": 5}, "string or a list"),
        ({"type": "human", "content": [5]}, "string or a dict"),
        ({"type": "tool", "content": 5, "tool_call_id": "c"}, "string or a list"),
        ({"type": "human", "data": {"type": "ai", "content": "x"}}, "two types"),
    ):
        with pytest.raises(InvalidValue, match=reason):
            formats.parse(message, FORMAT)


@pytest.mark.parametrize("message", [{"type": "system", "content": "x", "uuid": "u"}, {"type": "tool", "output": "x"}])
def test_types_that_other_programs_use_are_ambiguous(message: dict[str, Any]) -> None:
    with pytest.raises(AmbiguousFormat):
        formats.parse(message)


def test_objects_are_read_without_their_defaults() -> None:
    messages: Any = pytest.importorskip("langchain_core.messages")
    message = messages.AIMessage("Yes", id="m1")
    message.response_metadata["model"] = "some-model"  # changed in place: pydantic does not count it as set
    (draft,) = formats.parse(message)
    assert (draft.model, draft.native) == (
        "some-model",
        {"fields": {"response_metadata": {"model": "some-model"}, "id": "m1"}},
    )
    assert messages.convert_to_messages(formats.render(draft, FORMAT)) == [message]

    class CustomMessage(messages.HumanMessage):
        pass

    assert formats.parse(CustomMessage("Hi"))[0].format == FORMAT
    with pytest.raises(InvalidValue, match="cannot dump"):
        formats.parse(messages.ToolMessage("x", tool_call_id="c", artifact=object()))
