"""Model messages and UI messages of the AI SDK, as in its documentation, are read and written."""

from __future__ import annotations

from typing import Any

import pytest
from formats_table import to_messages

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.message import DataPart, Message, TextPart, ToolCallPart, ToolResultPart

CALL = {"type": "tool-call", "toolCallId": "c", "toolName": "look_up", "input": {"word": "tea"}}
RESULT = {"type": "tool-result", "toolCallId": "c", "toolName": "look_up", "output": {"type": "json", "value": [1]}}
MODEL_MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is tea?"}, {"type": "image", "image": "AA=="}]},
    {"role": "assistant", "content": [{"type": "reasoning", "text": "Look first."}, CALL]},
    {"role": "tool", "content": [RESULT], "providerOptions": {"anthropic": {"x": 1}}},
    {"role": "assistant", "content": "A drink."},
]
TOOL_PART = {
    "type": "tool-look_up",
    "toolCallId": "c",
    "state": "output-available",
    "input": {"word": "tea"},
    "output": {"found": True},
}
UI_MESSAGES = [
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is tea?"}]},
    {
        "id": "m2",
        "role": "assistant",
        "metadata": {"seconds": 1.5},
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "Look first.", "state": "done"},
            TOOL_PART,
            {"type": "source-url", "sourceId": "s", "url": "https://example.org"},
            {"type": "data-mood", "data": {"glad": True}},
            {"type": "step-start"},
            {"type": "text", "text": "A drink.", "state": "done"},
        ],
    },
]


@pytest.mark.parametrize(("name", "messages"), [("ai-sdk", MODEL_MESSAGES), ("ai-sdk-ui", UI_MESSAGES)])
def test_messages_round_trip(name: str, messages: list[dict[str, Any]]) -> None:
    assert formats.write(to_messages(messages, name), name) == messages


def test_a_tool_part_is_a_call_and_its_result() -> None:
    parts = formats.read(UI_MESSAGES)[1].parts
    assert [type(part).__name__ for part in parts] == [
        "DataPart", "ReasoningPart", "ToolCallPart", "ToolResultPart", "DataPart", "DataPart", "DataPart", "TextPart",
    ]  # fmt: skip
    call, result = parts[2:4]
    assert isinstance(call, ToolCallPart)
    assert (call.call_id, call.tool, call.arguments) == ("c", "look_up", {"word": "tea"})
    assert isinstance(result, ToolResultPart)
    assert (result.call_id, result.tool, result.data, result.status) == ("c", "look_up", {"found": True}, "success")


def test_a_ui_message_is_split_into_its_steps() -> None:
    messages = to_messages(UI_MESSAGES, "ai-sdk-ui")
    assert formats.write(messages, "anthropic")[1:] == [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "look_up", "input": {"word": "tea"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": '{"found":true}'}]},
        {"role": "assistant", "content": "A drink."},
    ]
    assert [m.get("role", m.get("type")) for m in formats.write(messages, "openai-responses")] == [
        "user", "function_call", "function_call_output", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["anthropic", "openai", "openai-responses", "ai-sdk"])
def test_a_tool_part_round_trips_through_other_formats(target: str) -> None:
    translation = formats.write(to_messages(UI_MESSAGES, "ai-sdk-ui"), target)
    ui_messages = formats.write(to_messages(translation, target), "ai-sdk-ui")
    assert [message["role"] for message in ui_messages] == ["user", "assistant"]
    (tool,) = [part for part in ui_messages[1]["parts"] if part["type"] == "tool-look_up"]
    assert (tool["toolCallId"], tool["state"], tool["input"]) == ("c", "output-available", {"word": "tea"})
    assert tool["output"] in ({"found": True}, '{"found":true}')
    assert ui_messages[1]["parts"][-2:] == [{"type": "step-start"}, {"type": "text", "text": "A drink."}]


def test_a_later_result_is_merged_into_its_tool_part() -> None:
    tool_part = {"type": "tool-look_up", "toolCallId": "c", "state": "input-available", "input": {}}
    ui_messages = [{"id": "m", "role": "assistant", "parts": [tool_part, {**tool_part, "toolCallId": "d"}]}]
    messages = to_messages(ui_messages, "ai-sdk-ui")
    for position, part in enumerate([
        ToolResultPart(call_id="c", data=[1]),
        ToolResultPart(call_id="d", status="error", text="gone"),
        ToolResultPart(call_id="unknown call", text="lost"),
    ], 2):  # fmt: skip
        messages.append(Message(branch=1, position=position, role="tool", parts=(part,), created_at_ms=0))
    assert formats.write(messages, "ai-sdk-ui")[0]["parts"] == [
        {**tool_part, "state": "output-available", "output": [1]},
        {**tool_part, "toolCallId": "d", "state": "output-error", "errorText": "gone"},
    ]
    assert formats.write(messages[:1], "ai-sdk-ui") == ui_messages


def test_streaming_provider_executed_and_denied_tool_parts() -> None:
    streaming_part = {"type": "tool-f", "toolCallId": "c", "state": "input-streaming", "input": {"a": None}}
    provider_executed_part = {**TOOL_PART, "providerExecuted": True}
    denied_part = {
        **TOOL_PART,
        "state": "output-denied",
        "approval": {"id": "a", "approved": False, "reason": "too expensive"},
    }
    del denied_part["output"]
    ui_messages = [{"id": "m", "role": "assistant", "parts": [streaming_part, provider_executed_part, denied_part]}]
    parts = formats.read(ui_messages)[0].parts
    assert [type(part) for part in parts] == [DataPart, DataPart, ToolCallPart, ToolResultPart]
    assert isinstance(parts[3], ToolResultPart)
    assert (parts[3].status, parts[3].error_message) == ("cancelled", "too expensive")
    assert formats.write(to_messages(ui_messages, "ai-sdk-ui"), "ai-sdk-ui") == ui_messages
    assert formats.write(to_messages(ui_messages, "ai-sdk-ui"), "openai")[1]["content"] == "too expensive"


OLD_MODEL_MESSAGES = [
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "f", "args": {"a": 1}}]},
    {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "f", "result": "x", "isError": True}],
    },
    {"role": "user", "content": [{"type": "file", "data": "AA==", "mimeType": "application/pdf"}]},
]
OLD_UI_MESSAGES = [
    {
        "id": "m",
        "role": "assistant",
        "content": "done",
        "toolInvocations": [{"state": "result", "toolCallId": "c", "toolName": "f", "args": {"a": 1}, "result": "x"}],
    },
    {
        "id": "n",
        "role": "assistant",
        "content": "",
        "parts": [
            {
                "type": "tool-invocation",
                "toolInvocation": {"state": "call", "toolCallId": "d", "toolName": "f", "args": {"a": 1}},
            },
            {"type": "reasoning", "reasoning": "hm", "details": []},
        ],
    },
]


@pytest.mark.parametrize(("name", "messages"), [("ai-sdk", OLD_MODEL_MESSAGES), ("ai-sdk-ui", OLD_UI_MESSAGES)])
def test_messages_with_older_field_names_round_trip(name: str, messages: list[dict[str, Any]]) -> None:
    assert formats.write(to_messages(messages, name), name) == messages
    assert [draft.format for draft in formats.read(messages)] == [name] * len(messages)
    output = formats.write(to_messages(messages, name), "anthropic")
    blocks = [block for m in output if isinstance(m["content"], list) for block in m["content"]]
    assert {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}} in blocks
    answer = next(block for block in blocks if block["type"] == "tool_result")
    assert (answer["content"], answer.get("is_error")) == ("x", True if name == "ai-sdk" else None)


def test_a_result_gets_the_tool_name_of_its_call() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "d"}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "2"},
    ]
    output = formats.write(to_messages(messages, "openai"), "ai-sdk")
    assert [message["role"] for message in output] == ["assistant", "tool"]
    assert output[1]["content"] == [
        {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": {"type": "text", "value": "1"}},
        {"type": "tool-result", "toolCallId": "d", "toolName": "f", "output": {"type": "text", "value": "2"}},
    ]


def test_an_invalid_ui_message_is_refused() -> None:
    for message in ({"role": "user"}, {"role": "tool", "parts": []}, {"role": "user", "parts": ["hi"]}, {"parts": []}):
        with pytest.raises(InvalidValue):
            formats.read(message, "ai-sdk-ui")


def test_a_tool_call_in_a_user_message_is_not_written() -> None:
    call = ToolCallPart(call_id="c", tool="f", arguments={})
    message = Message(branch=1, position=1, role="user", parts=(call, TextPart(text="hi")), created_at_ms=0)
    assert formats.write([message], "ai-sdk") == [{"role": "user", "content": "hi"}]
    assert formats.write([message], "ai-sdk-ui") == [
        {"id": "1.1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    ]
