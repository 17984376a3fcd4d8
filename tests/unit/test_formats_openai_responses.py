"""Items of the Responses API, as in its documentation, are read and written."""

from __future__ import annotations

from typing import Any

import pytest
from formats_table import to_messages

from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue
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

NAME = "openai-responses"
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [
        {"type": "summary_text", "text": "**Find the town**"},
        {"type": "summary_text", "text": "Then its weather."},
    ],
    "encrypted_content": "gAAAAB",
    "status": None,
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"town": "Delft"}',
    "status": "completed",
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "I look it up.", "annotations": [], "logprobs": []}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1741476542,
    "status": "completed",
    "error": None,
    "model": "gpt-test-2",
    "output": [REASONING, MESSAGE, CALL],
    "parallel_tool_calls": True,
    "tools": [],
    "usage": {"input_tokens": 36, "output_tokens": 87, "output_tokens_details": {"reasoning_tokens": 64}},
}
ANSWER = {"type": "function_call_output", "call_id": "call_1", "output": "Rain, 11 degrees"}
ITEMS = [{"role": "user", "content": "How is the weather in Delft?"}, REASONING, MESSAGE, CALL, ANSWER]


def test_a_whole_response_is_one_message() -> None:
    (draft,) = formats.read(RESPONSE)
    assert (draft.role, draft.model, draft.input_tokens, draft.output_tokens) == ("assistant", "gpt-test-2", 36, 87)
    assert [type(part) for part in draft.parts] == [ReasoningPart, TextPart, ToolCallPart]
    (message,) = to_messages([RESPONSE], NAME)
    assert message.reasoning == "**Find the town**\n\nThen its weather."
    assert formats.response(message) == RESPONSE
    assert formats.write([message], NAME) == RESPONSE["output"]


def test_a_response_without_output_has_no_items() -> None:
    empty = {**RESPONSE, "output": []}
    messages = to_messages([empty], NAME)
    assert formats.write(messages, NAME) == []
    assert formats.response(messages[0]) == empty


def test_the_items_of_an_answer_in_one_list_are_one_message() -> None:
    drafts = formats.read(ITEMS, NAME)
    assert [draft.role for draft in drafts] == ["user", "assistant", "tool"]
    assert formats.write(to_messages(ITEMS, NAME), NAME) == ITEMS
    one_by_one = [message for item in ITEMS for message in to_messages([item], NAME)]
    assert len(one_by_one) == len(ITEMS)
    assert formats.write(one_by_one, NAME) == ITEMS
    for target in ("anthropic", "openai", "ai-sdk"):
        assert formats.write(one_by_one, target) == formats.write(to_messages(ITEMS, NAME), target)


@pytest.mark.parametrize("content", ["", "Hello."])
@pytest.mark.parametrize("extra", [{"id": None}, {"id": "msg_1"}])
def test_an_assistant_message_without_a_type_after_a_call_round_trips(content: str, extra: dict[str, Any]) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [call, {"role": "assistant", "content": content, **extra}]
    assert len(formats.read(items, NAME)) == 1
    assert formats.write(to_messages(items, NAME), NAME) == items


def test_items_before_and_after_a_user_message_are_not_joined() -> None:
    items = [MESSAGE, {"role": "user", "content": "And?"}, CALL, ANSWER, {**MESSAGE, "id": "msg_2"}]
    assert [draft.role for draft in formats.read(items, NAME)] == [
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert formats.write(to_messages(items, NAME), NAME) == items


def test_short_assistant_messages_are_not_joined() -> None:
    items = [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}, CALL]
    assert len(formats.read(items, NAME)) == 3
    assert formats.write(to_messages(items, NAME), NAME) == items


def test_drafts_of_this_format_are_never_joined() -> None:
    draft = Draft(role="assistant", parts=(ToolCallPart(call_id="c", tool="f"),), format=NAME, metadata={"a": 1})
    assert formats.read([draft, draft]) == [draft, draft]
    plain = formats.write(to_messages([CALL], NAME) * 2, "recollect")
    assert len(formats.read(plain)) == len(formats.read(plain, "recollect")) == 2


def test_items_are_translated_for_other_providers() -> None:
    messages = to_messages(ITEMS, NAME)
    assert formats.write(messages, "anthropic") == [
        ITEMS[0],
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look it up."},
                {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"town": "Delft"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "Rain, 11 degrees"}],
        },
    ]
    function = {"name": "get_weather", "arguments": '{"town": "Delft"}'}
    assert formats.write(messages, "openai") == [
        ITEMS[0],
        {
            "role": "assistant",
            "content": "I look it up.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Rain, 11 degrees"},
    ]


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "print(1)"},
            ToolCallPart(call_id="c", tool="run", arguments="print(1)", native={"type": "custom_tool_call"}),
        ),
        (
            {"type": "computer_call", "id": "cu", "call_id": "c", "action": {"type": "wait"}, "status": "completed"},
            ToolCallPart(
                call_id="c",
                tool="computer",
                arguments={"type": "wait"},
                native={"type": "computer_call", "id": "cu", "status": "completed"},
            ),
        ),
        (
            {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
            ToolResultPart(
                call_id="c",
                status="error",
                text="no such file",
                native={"type": "apply_patch_call_output", "status": "failed"},
            ),
        ),
        (
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": ""}]},
            ToolResultPart(call_id="c", data=[{"stdout": "a", "stderr": ""}], native={"type": "shell_call_output"}),
        ),
        (
            {"type": "local_shell_call_output", "id": "c", "output": "{}"},
            ToolResultPart(call_id="c", text="{}", native={"type": "local_shell_call_output"}),
        ),
    ],
)
def test_calls_and_outputs_round_trip(item: dict[str, Any], part: Any) -> None:
    assert formats.read(item)[0].parts == (part,)
    assert formats.write(to_messages([item], NAME), NAME) == [item]


def test_screenshots_and_generated_images_are_attachments() -> None:
    screenshot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}
    output = {"type": "computer_call_output", "call_id": "c", "output": screenshot}
    (draft,) = formats.read(output)
    result = draft.parts[0]
    assert isinstance(result, ToolResultPart)
    assert result.content is not None
    assert isinstance(result.content[0], AttachmentPart)
    assert result.content[0].mime_type == "image/png"
    generation = {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "AA=="}
    (part,) = formats.read(generation)[0].parts
    assert isinstance(part, AttachmentPart)
    assert (part.mime_type, part.data) == ("image/png", "AA==")
    assert formats.write(to_messages([output, generation], NAME), NAME) == [output, generation]


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}}, "assistant"),
        (
            {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "server_label": "s", "output": "x"},
            "assistant",
        ),
        ({"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}, "user"),
        ({"type": "item_reference", "id": "msg_1"}, "assistant"),
        ({"type": "compaction", "encrypted_content": "gA"}, "assistant"),
        ({"type": "tool_search_output", "tools": []}, "tool"),
        ({"type": "of_next_year_output", "x": 1}, "tool"),
    ],
)
def test_items_that_openai_executes_round_trip(item: dict[str, Any], role: str) -> None:
    (draft,) = formats.read(item, NAME)
    assert (draft.role, draft.parts) == (role, (DataPart(native=item),))
    assert formats.write(to_messages([item], NAME), NAME) == [item]
    assert formats.write(to_messages([item], NAME), "anthropic") == []


def test_removed_or_added_parts_do_not_move_the_others() -> None:
    (message,) = to_messages([RESPONSE], NAME)
    reasoning, text, call = message.parts
    for parts, expected in [
        ((text, call), [MESSAGE, CALL]),
        ((reasoning, text), [REASONING, MESSAGE]),
        ((reasoning, ToolResultPart(call_id="x", text="y"), text, ReasoningPart(text="ours"), call), [
            REASONING, {"type": "function_call_output", "call_id": "x", "output": "y"}, MESSAGE, CALL,
        ]),
    ]:  # fmt: skip
        changed = Message(
            branch=1, position=1, role="assistant", parts=parts, format=NAME, native=message.native, created_at_ms=0
        )
        assert formats.write([changed], NAME) == expected


@pytest.mark.parametrize("item", [{}, {"content": "hi"}, {"role": "robot", "content": "hi"}, {"object": "response"}])
def test_an_invalid_item_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        formats.read(item, NAME)


def test_other_formats_become_items() -> None:
    messages = [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I"},
                {"type": "text", "text": " look."},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True},
                {"type": "text", "text": "continue"},
            ],
        },
    ]
    assert formats.write(to_messages(messages, "anthropic"), NAME) == [
        {
            "role": "user",
            "content": [{"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"}],
        },
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "t", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "t", "output": "x"},
        {"role": "user", "content": "continue"},
    ]


def test_fields_that_the_sdk_adds_to_its_objects_are_not_written() -> None:
    parsed: Any = pytest.importorskip("openai.types.responses.parsed_response")
    message_item = {**MESSAGE, "content": [{**MESSAGE["content"][0], "parsed": {"town": "Delft"}}]}
    response = {**RESPONSE, "output": [REASONING, message_item, {**CALL, "parsed_arguments": {"town": "Delft"}}]}
    sdk_response = parsed.ParsedResponse.model_construct(
        **{**response, "output": [parsed.ParsedResponseFunctionToolCall.model_construct(**response["output"][2])]}
    )
    (message,) = [Message(branch=1, position=1, role=d.role, parts=d.parts, format=d.format, native=d.native, created_at_ms=0)
                  for d in formats.read(sdk_response)]  # fmt: skip
    assert formats.write([message], NAME) == [CALL]
    assert formats.response(message) == {**RESPONSE, "output": [CALL]}
    assert formats.write(to_messages([response], NAME), NAME) == response["output"]  # a dict is written unchanged
    chat: Any = pytest.importorskip("openai.types.chat")
    function = {"name": "f", "arguments": "{}", "parsed_arguments": {}}
    call = {"id": "c", "type": "function", "function": function}
    sdk_message = chat.ParsedChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "hi", "parsed": {"a": 1}, "tool_calls": [call]}
    )
    (draft,) = formats.read(sdk_message)
    assert draft.native is None
    assert draft.parts[1] == ToolCallPart(call_id="c", tool="f", arguments_text="{}")


NEW_ITEM = {"type": "quantum_call", "id": "q", "qubits": [1, 0]}


@pytest.mark.parametrize(
    "items",
    [
        [{"type": "message", "role": "user", "content": "hi"}, NEW_ITEM],
        [NEW_ITEM, {"role": "user", "content": "hi"}, REASONING],
        [{"role": "user", "content": "hi"}, CALL, NEW_ITEM, NEW_ITEM],
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, NEW_ITEM),
    ],
)
def test_an_item_of_a_new_type_is_read_if_another_item_determines_the_format(items: Any) -> None:
    messages = [Message(branch=1, position=n, role=d.role, parts=d.parts, format=d.format, native=d.native, created_at_ms=0)
             for n, d in enumerate(formats.read(items))]  # fmt: skip
    assert formats.write(messages, NAME) == list(items)


@pytest.mark.parametrize(
    "items", [NEW_ITEM, [NEW_ITEM], [{"role": "user", "content": "hi"}, NEW_ITEM], iter([REASONING, NEW_ITEM])]
)
def test_an_item_of_a_new_type_alone_is_ambiguous(items: Any) -> None:
    with pytest.raises(AmbiguousFormat, match=r"'quantum_call'.*format=\"openai-responses\""):
        formats.read(items)


@pytest.mark.parametrize("item", [{}, {"foo": 1}, {"type": 5}, {"type": "message"}, {"role": None, "type": "x"}])
def test_a_dict_without_an_item_type_needs_a_role(item: Any) -> None:
    with pytest.raises(InvalidValue, match="role"):
        formats.read([item, REASONING])
