"""AG-UI's messages: how they are stored, typed and written back."""

from __future__ import annotations

from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue
from recollect.formats.display import visible_remainder
from recollect.model.message import AttachmentPart, DataPart, ToolResultPart

FORMAT = "ag-ui"


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "zoom", "arguments": '{"x": 1}'}}


IMAGE = {"type": "image", "id": "p1", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}}
CONVERSATION: list[dict[str, Any]] = [
    {"id": "m1", "role": "developer", "content": "Be brief."},
    {"id": "m2", "role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE], "name": "Ada"},
    {"id": "m3", "role": "reasoning", "content": "Look closer.", "encryptedValue": "c2ln"},
    {
        "id": "m4",
        "role": "assistant",
        "content": "I zoom.",
        "toolCalls": [call("c1"), {**call("c2"), "metadata": {"a": 1}}],
    },
    {"id": "m5", "role": "tool", "toolCallId": "c1", "content": [IMAGE], "metadata": {"ag-ui": {}}},
    {"id": "m6", "role": "tool", "toolCallId": "c2", "content": "half", "error": "The zoom broke."},
    {"id": "m7", "role": "activity", "activityType": "PLAN", "content": {"steps": [1]}},
    {"id": "m8", "role": "assistant", "content": "A cup of tea."},
    {"id": "m9", "role": "reasoning", "content": "What next?"},
]


def test_a_conversation_comes_back_equal_without_repairs() -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append(CONVERSATION, format=FORMAT)
        history = session.history(FORMAT)
        assert (list(history), history.repairs) == (CONVERSATION, [])
        assert session.history(FORMAT, last=3) == CONVERSATION[-3:]
        assert [(part.tool, part.status) for part in session.tools.list()] == [("zoom", "success"), ("zoom", "error")]
        stored_messages = session.messages()
    roles = ["system", "user", "assistant", "assistant", "tool", "tool", "assistant", "assistant", "assistant"]
    assert [message.role for message in stored_messages] == roles
    assert (stored_messages[2].reasoning, stored_messages[3].text) == ("Look closer.", "I zoom.")
    image = stored_messages[1].parts[1]
    assert isinstance(image, AttachmentPart)
    assert (image.mime_type, image.data) == ("image/png", "AAAA")
    result = stored_messages[5].parts[0]
    assert isinstance(result, ToolResultPart)
    assert (result.text, result.error_message) == ("half", "The zoom broke.")
    assert isinstance(stored_messages[6].parts[0], DataPart)
    assert [visible_remainder(message) for message in stored_messages if visible_remainder(message)] == [
        {"name": "Ada"}
    ]


@pytest.mark.parametrize("message", [CONVERSATION[index] for index in (2, 3, 4, 6)])
def test_messages_that_only_ag_ui_has_are_detected(message: dict[str, Any]) -> None:
    assert formats.parse(message) == formats.parse(message, FORMAT)


def test_a_message_with_an_id_is_ambiguous() -> None:
    with pytest.raises(AmbiguousFormat):
        formats.parse({"id": "m1", "role": "user", "content": "Hi"})


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ({"type": "video", "source": {"type": "url", "value": "https://example.org/a"}}, ("video/*", None, "https://example.org/a")),
        ({"type": "document", "source": {"type": "file", "value": "f1", "mimeType": "application/pdf"}}, ("application/pdf", None, None)),
        ({"type": "binary", "mimeType": "image/png", "data": "AAAA", "filename": "a.png"}, ("image/png", "AAAA", None)),
        ({"type": "binary", "mimeType": "image/png", "url": "https://example.org/a"}, ("image/png", None, "https://example.org/a")),
        ({"type": "binary", "mimeType": "image/png", "id": "f1"}, ("image/png", None, None)),
    ],
)  # fmt: skip
def test_files_of_every_source(block: dict[str, Any], fields: tuple[Any, ...]) -> None:
    message = {"id": "m", "role": "user", "content": [block]}
    (draft,) = formats.parse(message, FORMAT)
    (part,) = draft.parts
    assert isinstance(part, AttachmentPart)
    assert (part.mime_type, part.data, part.url) == fields
    assert formats.render(draft, FORMAT) == [message]


def test_messages_of_other_formats_have_ids() -> None:
    other = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "failed", "is_error": True},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ]},
    ]  # fmt: skip
    function = {"name": "f", "arguments": '{"a":1}'}
    assert formats.render(formats.parse(other, "anthropic"), FORMAT) == [
        {"id": "1.1", "role": "user", "content": "Look"},
        {"id": "1.2", "role": "reasoning", "content": "Hm"},
        {"id": "1.2-1", "role": "assistant", "content": "I look.", "toolCalls": [
            {"id": "c", "type": "function", "function": function},
        ]},
        {"id": "c-result", "role": "tool", "toolCallId": "c", "content": "failed", "error": "failed"},
        {"id": "1.3-1", "role": "user", "content": [
            {"type": "image", "source": {"type": "url", "value": "https://example.org/a.png"}},
        ]},
    ]  # fmt: skip


def test_a_malformed_call_stays_in_its_message() -> None:
    message = {"id": "m", "role": "assistant", "toolCalls": [call("c1"), {"id": "c2", "type": "function"}]}
    (draft,) = formats.parse(message, FORMAT)
    assert (draft.parts, formats.render(draft, FORMAT)) == ((), [message])


def test_what_is_not_a_message_is_refused() -> None:
    for message, reason in (
        ({"id": "m", "role": "reasoning", "content": {}}, "must be a string"),
        ({"id": "m", "role": "activity", "content": "x"}, "must be a dict"),
        ({"id": "m", "role": "agent", "content": "x"}, "has no role"),
        ({"id": "m", "content": "x"}, "has no role"),
    ):
        with pytest.raises(InvalidValue, match=reason):
            formats.parse(message, FORMAT)


def test_objects() -> None:
    core: Any = pytest.importorskip("ag_ui.core")
    function = core.FunctionCall(name="f", arguments="{}")
    message = core.AssistantMessage(id="m", tool_calls=[core.ToolCall(id="c", function=function)])
    (draft,) = formats.parse(message)
    assert formats.render(draft, FORMAT) == [{
        "id": "m", "role": "assistant",
        "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }]  # fmt: skip
    assert formats.parse(core.UserMessage(id="m", content="Hi"))[0].format == FORMAT
