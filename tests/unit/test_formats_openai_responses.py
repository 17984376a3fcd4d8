"""Items of the Responses API in the shape of its documentation, in and out."""

from __future__ import annotations

from typing import Any

import pytest
from formats_table import stored

from recollect import formats
from recollect.errors import FormatUnclear, InvalidValue
from recollect.model.message import Draft, Message
from recollect.model.part import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

NAME = "openai-responses"
THOUGHT = {
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
SAID = {
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
    "output": [THOUGHT, SAID, CALL],
    "parallel_tool_calls": True,
    "tools": [],
    "usage": {"input_tokens": 36, "output_tokens": 87, "output_tokens_details": {"reasoning_tokens": 64}},
}
ANSWER = {"type": "function_call_output", "call_id": "call_1", "output": "Rain, 11 degrees"}
TALK = [{"role": "user", "content": "How is the weather in Delft?"}, THOUGHT, SAID, CALL, ANSWER]


def test_a_whole_response_is_one_message() -> None:
    (draft,) = formats.read(RESPONSE)
    assert (draft.role, draft.model, draft.input_tokens, draft.output_tokens) == ("assistant", "gpt-test-2", 36, 87)
    assert [type(part) for part in draft.parts] == [ReasoningPart, TextPart, ToolCallPart]
    (message,) = stored([RESPONSE], NAME)
    assert message.reasoning == "**Find the town**\n\nThen its weather."
    assert formats.response(message) == RESPONSE
    assert formats.write([message], NAME) == RESPONSE["output"]


def test_a_response_without_output_gives_no_item() -> None:
    empty = {**RESPONSE, "output": []}
    kept = stored([empty], NAME)
    assert formats.write(kept, NAME) == []
    assert formats.response(kept[0]) == empty


def test_the_items_of_an_answer_in_one_list_are_one_message() -> None:
    drafts = formats.read(TALK, NAME)
    assert [draft.role for draft in drafts] == ["user", "assistant", "tool"]
    assert formats.write(stored(TALK, NAME), NAME) == TALK
    one_by_one = [message for item in TALK for message in stored([item], NAME)]
    assert len(one_by_one) == len(TALK)
    assert formats.write(one_by_one, NAME) == TALK
    for target in ("anthropic", "openai", "ai-sdk"):
        assert formats.write(one_by_one, target) == formats.write(stored(TALK, NAME), target)


def test_items_of_two_answers_stay_apart_where_a_person_spoke() -> None:
    talk = [SAID, {"role": "user", "content": "And?"}, CALL, ANSWER, {**SAID, "id": "msg_2"}]
    assert [draft.role for draft in formats.read(talk, NAME)] == ["assistant", "user", "assistant", "tool", "assistant"]
    assert formats.write(stored(talk, NAME), NAME) == talk


def test_short_messages_of_the_agent_are_not_joined() -> None:
    talk = [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}, CALL]
    assert len(formats.read(talk, NAME)) == 3
    assert formats.write(stored(talk, NAME), NAME) == talk


def test_own_values_of_this_format_are_never_joined() -> None:
    draft = Draft(role="assistant", parts=(ToolCallPart(call_id="c", tool="f"),), format=NAME, metadata={"a": 1})
    assert formats.read([draft, draft]) == [draft, draft]
    plain = formats.write(stored([CALL], NAME) * 2, "recollect")
    assert len(formats.read(plain)) == len(formats.read(plain, "recollect")) == 2


def test_it_goes_on_with_another_provider() -> None:
    kept = stored(TALK, NAME)
    assert formats.write(kept, "anthropic") == [
        TALK[0],
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
    assert formats.write(kept, "openai") == [
        TALK[0],
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
def test_calls_and_outputs(item: dict[str, Any], part: Any) -> None:
    assert formats.read(item)[0].parts == (part,)
    assert formats.write(stored([item], NAME), NAME) == [item]


def test_screenshots_and_drawings_are_images() -> None:
    shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}
    output = {"type": "computer_call_output", "call_id": "c", "output": shot}
    (draft,) = formats.read(output)
    result = draft.parts[0]
    assert isinstance(result, ToolResultPart)
    assert result.content is not None
    assert isinstance(result.content[0], AttachmentPart)
    assert result.content[0].mime_type == "image/png"
    drawn = {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "AA=="}
    (part,) = formats.read(drawn)[0].parts
    assert isinstance(part, AttachmentPart)
    assert (part.mime_type, part.data) == ("image/png", "AA==")
    assert formats.write(stored([output, drawn], NAME), NAME) == [output, drawn]


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
def test_what_openai_ran_is_kept_as_it_is(item: dict[str, Any], role: str) -> None:
    (draft,) = formats.read(item, NAME)
    assert (draft.role, draft.parts) == (role, (DataPart(native=item),))
    assert formats.write(stored([item], NAME), NAME) == [item]
    assert formats.write(stored([item], NAME), "anthropic") == []


def test_parts_that_were_taken_out_or_put_in_do_not_move_the_others() -> None:
    (message,) = stored([RESPONSE], NAME)
    thought, said, call = message.parts
    for parts, wanted in [
        ((said, call), [SAID, CALL]),
        ((thought, said), [THOUGHT, SAID]),
        ((thought, ToolResultPart(call_id="x", text="y"), said, ReasoningPart(text="ours"), call), [
            THOUGHT, {"type": "function_call_output", "call_id": "x", "output": "y"}, SAID, CALL,
        ]),
    ]:  # fmt: skip
        changed = Message(
            branch=1, position=1, role="assistant", parts=parts, format=NAME, native=message.native, created_at=0
        )
        assert formats.write([changed], NAME) == wanted


@pytest.mark.parametrize("item", [{}, {"content": "hi"}, {"role": "robot", "content": "hi"}, {"object": "response"}])
def test_what_is_no_item_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        formats.read(item, NAME)


def test_other_formats_become_items() -> None:
    talk = [
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
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    assert formats.write(stored(talk, "anthropic"), NAME) == [
        {
            "role": "user",
            "content": [{"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"}],
        },
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "t", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "t", "output": "x"},
        {"role": "user", "content": "go on"},
    ]


def test_what_the_sdk_adds_to_its_objects_is_not_sent_back() -> None:
    parsed: Any = pytest.importorskip("openai.types.responses.parsed_response")
    said = {**SAID, "content": [{**SAID["content"][0], "parsed": {"town": "Delft"}}]}
    response = {**RESPONSE, "output": [THOUGHT, said, {**CALL, "parsed_arguments": {"town": "Delft"}}]}
    found = parsed.ParsedResponse.model_construct(
        **{**response, "output": [parsed.ParsedResponseFunctionToolCall.model_construct(**response["output"][2])]}
    )
    (message,) = [Message(branch=1, position=1, role=d.role, parts=d.parts, format=d.format, native=d.native, created_at=0)
                  for d in formats.read(found)]  # fmt: skip
    assert formats.write([message], NAME) == [CALL]
    assert formats.response(message) == {**RESPONSE, "output": [CALL]}
    assert formats.write(stored([response], NAME), NAME) == response["output"]  # a dict is what its owner says
    chat: Any = pytest.importorskip("openai.types.chat")
    function = {"name": "f", "arguments": "{}", "parsed_arguments": {}}
    call = {"id": "c", "type": "function", "function": function}
    object = chat.ParsedChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "hi", "parsed": {"a": 1}, "tool_calls": [call]}
    )
    (draft,) = formats.read(object)
    assert draft.native is None
    assert draft.parts[1] == ToolCallPart(call_id="c", tool="f", arguments_text="{}")


NEW = {"type": "quantum_call", "id": "q", "qubits": [1, 0]}


@pytest.mark.parametrize(
    "talk",
    [
        [{"type": "message", "role": "user", "content": "hi"}, NEW],
        [NEW, {"role": "user", "content": "hi"}, THOUGHT],
        [{"role": "user", "content": "hi"}, CALL, NEW, NEW],
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, NEW),
    ],
)
def test_an_item_of_a_new_type_is_read_where_another_makes_the_format_clear(talk: Any) -> None:
    found = [Message(branch=1, position=n, role=d.role, parts=d.parts, format=d.format, native=d.native, created_at=0)
             for n, d in enumerate(formats.read(talk))]  # fmt: skip
    assert formats.write(found, NAME) == list(talk)


@pytest.mark.parametrize("talk", [NEW, [NEW], [{"role": "user", "content": "hi"}, NEW], iter([THOUGHT, NEW])])
def test_an_item_of_a_new_type_alone_is_asked_about(talk: Any) -> None:
    with pytest.raises(FormatUnclear, match=r"'quantum_call'.*format=\"openai-responses\""):
        formats.read(talk)


@pytest.mark.parametrize("odd", [{}, {"foo": 1}, {"type": 5}, {"type": "message"}, {"role": None, "type": "x"}])
def test_what_is_no_item_needs_a_role(odd: Any) -> None:
    with pytest.raises(InvalidValue, match="role"):
        formats.read([odd, THOUGHT])
