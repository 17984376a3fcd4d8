"""The fast path for common messages returns the same draft as the full reader."""

from __future__ import annotations

import msgspec
import pytest

import recollect
from recollect import formats
from recollect.formats import anthropic, openai_chat, openai_responses, registry
from recollect.formats.detection import detect_format
from recollect.model.message import ReasoningPart, TextPart, ToolCallPart, ToolResultPart

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
COMMON_MESSAGES = [
    (openai_chat, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    (openai_chat, {"role": "assistant", "content": "I look", "tool_calls": [CALL, {**CALL, "id": "c2"}]}),
    (openai_chat, {"role": "assistant", "content": "", "tool_calls": [CALL]}),
    (openai_chat, {"role": "tool", "tool_call_id": "c1", "content": "found"}),
    (openai_chat, {"role": "tool", "tool_call_id": "", "content": ""}),
    (anthropic, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}]}),
    (
        anthropic,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t", "name": "f", "input": None},
            ],
        },
    ),
    (anthropic, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "found"}]}),
]


@pytest.mark.parametrize(("module", "message"), COMMON_MESSAGES)
def test_the_fast_path_returns_what_the_full_reader_returns(module, message):
    draft = module.read_fast(message)
    assert draft is not None
    assert [draft] == module.read(message) == formats.read(message) == formats.read(message, module.NAME)
    assert detect_format(message) == module.NAME


CALL_ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT_ITEM = {"type": "function_call_output", "call_id": "c", "output": "found"}


@pytest.mark.parametrize(
    "item",
    [
        CALL_ITEM,
        {"id": "fc_1", **CALL_ITEM, "status": "completed", "namespace": "n", "arguments": '{"trunc'},
        {"role": "user", **CALL_ITEM},
        OUTPUT_ITEM,
        {**OUTPUT_ITEM, "id": "fco_1", "status": "failed"},
        {**OUTPUT_ITEM, "output": "", "block": "x"},
    ],
)
def test_the_fast_path_of_items_returns_what_the_full_reader_returns(item):
    draft = openai_responses.read_fast(item)
    assert draft is not None
    assert [draft] == openai_responses.read(item) == formats.read(item, "openai-responses") == formats.read(item)
    assert formats.write([message_of(draft)], "openai-responses") == [item]


@pytest.mark.parametrize(
    "item",
    [
        {**CALL_ITEM, "arguments": None},
        {**CALL_ITEM, "id": None},
        {**CALL_ITEM, "object": "response"},
        {"type": "function_call", "call_id": "c", "name": "f"},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {**CALL_ITEM, 5: "x"},
        {**OUTPUT_ITEM, "output": [{"type": "input_text", "text": "x"}]},
        {"type": "function_call_output", "call_id": "c"},
        {"type": ["function_call"], "call_id": "c"},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
        {"role": "user", "content": "x"},
    ],
)
def test_other_items_are_left_to_the_full_reader(item):
    assert openai_responses.read_fast(item) is None


HARMLESS = {
    "id": "x_1",
    "status": "completed",
    "call_id": "other",
    "arguments": "other",
    "output": "other",
    "name": "n",
}
SUMMARY = {
    "block": {"type": "reasoning", "summary": [{"type": "summary_text", "text": None}]},
    "at": [["summary", 0, "text"]],
}
CALL_PART = ToolCallPart(call_id="c", tool="f", arguments_text="{}")
RESULT_PART = ToolResultPart(call_id="c", text="r")


@pytest.mark.parametrize("role", ["assistant", "tool", "user"])
@pytest.mark.parametrize("part", [CALL_PART, RESULT_PART, ReasoningPart(text="t"), TextPart(text="t")])
@pytest.mark.parametrize(
    "native",
    [
        HARMLESS, SUMMARY, {**SUMMARY, "at": [["summary", 1, "text"]]}, {**SUMMARY, "at": []}, {**SUMMARY, "cut": [1]},
        {"block": {**SUMMARY["block"], "object": "response", "output": []}, "at": SUMMARY["at"]},
        {"block": {**SUMMARY["block"], "role": "developer"}, "at": SUMMARY["at"]},
        {"block": {**SUMMARY["block"], "summary": [{}, {"text": "hidden"}]}, "at": SUMMARY["at"]},
        {"type": "custom_tool_call", "input": "hidden"}, {"type": ["x"]}, {"object": "response"}, {"role": "developer"},
        {"status": "failed"}, {"text": "hidden"}, [],
    ],
)  # fmt: skip
def test_no_remainder_changes_the_common_fields_of_a_fast_item(part, role, native):
    message = recollect.Message(
        1, 1, role, (msgspec.structs.replace(part, native=native),), 0, format="openai-responses"
    )
    for item in formats.write([message], "openai-responses"):
        (draft,) = formats.read(item, "openai-responses")
        assert draft.role == role or {draft.role, role} <= {"tool", "user", "assistant"}
        (output,) = draft.parts
        fields = ("call_id", "tool", "arguments_text", "text")
        assert [getattr(output, name, None) for name in fields] == [getattr(part, name, None) for name in fields]


def message_of(draft):
    return recollect.Message(1, 1, draft.role, draft.parts, 0, format=draft.format, native=draft.native)


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_string_message_is_read_as_its_format_module_reads_it(name, role):
    message = {"role": role, "content": "a text"}
    assert formats.read(message, name) == registry.load_module(name).read(message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "type": "custom"}]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]},
        {"role": "assistant", "content": [], "tool_calls": [CALL]},
        {"role": "assistant", "refusal": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": 5, "content": "x"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "caller": {}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "x": 1}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}, {"type": "text", "text": "y"}]},
        {"role": "system", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
    ],
)  # fmt: skip
def test_other_messages_are_left_to_the_full_reader(message):
    assert openai_chat.read_fast(message) is None
    assert anthropic.read_fast(message) is None
