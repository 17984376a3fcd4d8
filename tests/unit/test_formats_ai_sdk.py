"""Model messages and UI messages of the AI SDK in the shape of its documentation, in and out."""

from __future__ import annotations

from typing import Any

import pytest
from formats_table import stored

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.message import Message
from recollect.model.part import DataPart, TextPart, ToolCallPart, ToolResultPart

CALL = {"type": "tool-call", "toolCallId": "c", "toolName": "look_up", "input": {"word": "tea"}}
RESULT = {"type": "tool-result", "toolCallId": "c", "toolName": "look_up", "output": {"type": "json", "value": [1]}}
RUN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is tea?"}, {"type": "image", "image": "AA=="}]},
    {"role": "assistant", "content": [{"type": "reasoning", "text": "Look first."}, CALL]},
    {"role": "tool", "content": [RESULT], "providerOptions": {"anthropic": {"x": 1}}},
    {"role": "assistant", "content": "A drink."},
]
TOOL = {
    "type": "tool-look_up",
    "toolCallId": "c",
    "state": "output-available",
    "input": {"word": "tea"},
    "output": {"found": True},
}
PAGE = [
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is tea?"}]},
    {
        "id": "m2",
        "role": "assistant",
        "metadata": {"seconds": 1.5},
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "Look first.", "state": "done"},
            TOOL,
            {"type": "source-url", "sourceId": "s", "url": "https://example.org"},
            {"type": "data-mood", "data": {"glad": True}},
            {"type": "step-start"},
            {"type": "text", "text": "A drink.", "state": "done"},
        ],
    },
]


@pytest.mark.parametrize(("name", "talk"), [("ai-sdk", RUN), ("ai-sdk-ui", PAGE)])
def test_it_comes_back_equal(name: str, talk: list[dict[str, Any]]) -> None:
    assert formats.write(stored(talk, name), name) == talk


def test_a_tool_part_is_a_call_and_its_result() -> None:
    parts = formats.read(PAGE)[1].parts
    assert [type(part).__name__ for part in parts] == [
        "DataPart", "ReasoningPart", "ToolCallPart", "ToolResultPart", "DataPart", "DataPart", "DataPart", "TextPart",
    ]  # fmt: skip
    call, result = parts[2:4]
    assert isinstance(call, ToolCallPart)
    assert (call.call_id, call.tool, call.arguments) == ("c", "look_up", {"word": "tea"})
    assert isinstance(result, ToolResultPart)
    assert (result.call_id, result.tool, result.data, result.status) == ("c", "look_up", {"found": True}, "success")


def test_a_ui_message_is_split_into_its_steps() -> None:
    kept = stored(PAGE, "ai-sdk-ui")
    assert formats.write(kept, "anthropic")[1:] == [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "look_up", "input": {"word": "tea"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": '{"found":true}'}]},
        {"role": "assistant", "content": "A drink."},
    ]
    assert [m.get("role", m.get("type")) for m in formats.write(kept, "openai-responses")] == [
        "user", "function_call", "function_call_output", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["anthropic", "openai", "openai-responses", "ai-sdk"])
def test_there_and_back_it_is_a_tool_part_again(target: str) -> None:
    there = formats.write(stored(PAGE, "ai-sdk-ui"), target)
    back = formats.write(stored(there, target), "ai-sdk-ui")
    assert [message["role"] for message in back] == ["user", "assistant"]
    (tool,) = [part for part in back[1]["parts"] if part["type"] == "tool-look_up"]
    assert (tool["toolCallId"], tool["state"], tool["input"]) == ("c", "output-available", {"word": "tea"})
    assert tool["output"] in ({"found": True}, '{"found":true}')
    assert back[1]["parts"][-2:] == [{"type": "step-start"}, {"type": "text", "text": "A drink."}]


def test_a_result_that_came_later_is_put_into_its_part() -> None:
    asked = {"type": "tool-look_up", "toolCallId": "c", "state": "input-available", "input": {}}
    page = [{"id": "m", "role": "assistant", "parts": [asked, {**asked, "toolCallId": "d"}]}]
    kept = stored(page, "ai-sdk-ui")
    for place, part in enumerate([
        ToolResultPart(call_id="c", data=[1]),
        ToolResultPart(call_id="d", status="error", text="gone"),
        ToolResultPart(call_id="never asked", text="lost"),
    ], 2):  # fmt: skip
        kept.append(Message(branch=1, position=place, role="tool", parts=(part,), created_at=0))
    assert formats.write(kept, "ai-sdk-ui")[0]["parts"] == [
        {**asked, "state": "output-available", "output": [1]},
        {**asked, "toolCallId": "d", "state": "output-error", "errorText": "gone"},
    ]
    assert formats.write(kept[:1], "ai-sdk-ui") == page


def test_what_has_no_result_yet_and_what_a_provider_ran() -> None:
    streaming = {"type": "tool-f", "toolCallId": "c", "state": "input-streaming", "input": {"a": None}}
    ran = {**TOOL, "providerExecuted": True}
    denied = {**TOOL, "state": "output-denied", "approval": {"id": "a", "approved": False, "reason": "too dear"}}
    del denied["output"]
    page = [{"id": "m", "role": "assistant", "parts": [streaming, ran, denied]}]
    parts = formats.read(page)[0].parts
    assert [type(part) for part in parts] == [DataPart, DataPart, ToolCallPart, ToolResultPart]
    assert isinstance(parts[3], ToolResultPart)
    assert (parts[3].status, parts[3].error_message) == ("canceled", "too dear")
    assert formats.write(stored(page, "ai-sdk-ui"), "ai-sdk-ui") == page
    assert formats.write(stored(page, "ai-sdk-ui"), "openai")[1]["content"] == "too dear"


OLD_TALK = [
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "f", "args": {"a": 1}}]},
    {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "f", "result": "x", "isError": True}],
    },
    {"role": "user", "content": [{"type": "file", "data": "AA==", "mimeType": "application/pdf"}]},
]
OLD_PAGE = [
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


@pytest.mark.parametrize(("name", "talk"), [("ai-sdk", OLD_TALK), ("ai-sdk-ui", OLD_PAGE)])
def test_older_names_are_read_and_come_back(name: str, talk: list[dict[str, Any]]) -> None:
    assert formats.write(stored(talk, name), name) == talk
    assert [draft.format for draft in formats.read(talk)] == [name] * len(talk)
    written = formats.write(stored(talk, name), "anthropic")
    used = [block for m in written if isinstance(m["content"], list) for block in m["content"]]
    assert {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}} in used
    answer = next(block for block in used if block["type"] == "tool_result")
    assert (answer["content"], answer.get("is_error")) == ("x", True if name == "ai-sdk" else None)


def test_a_tools_name_is_found_for_its_result() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk = [
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "d"}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "2"},
    ]
    written = formats.write(stored(talk, "openai"), "ai-sdk")
    assert [message["role"] for message in written] == ["assistant", "tool"]
    assert written[1]["content"] == [
        {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": {"type": "text", "value": "1"}},
        {"type": "tool-result", "toolCallId": "d", "toolName": "f", "output": {"type": "text", "value": "2"}},
    ]


def test_what_is_no_ui_message_is_refused() -> None:
    for message in ({"role": "user"}, {"role": "tool", "parts": []}, {"role": "user", "parts": ["hi"]}, {"parts": []}):
        with pytest.raises(InvalidValue):
            formats.read(message, "ai-sdk-ui")


def test_what_a_person_asks_of_a_tool_is_no_call() -> None:
    call = ToolCallPart(call_id="c", tool="f", arguments={})
    odd = Message(branch=1, position=1, role="user", parts=(call, TextPart(text="hi")), created_at=0)
    assert formats.write([odd], "ai-sdk") == [{"role": "user", "content": "hi"}]
    assert formats.write([odd], "ai-sdk-ui") == [
        {"id": "1.1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    ]
