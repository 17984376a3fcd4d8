"""Anthropic's format: equal on the way back, readable in between, translated from the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.json import encode
from recollect.model.message import Draft
from recollect.model.part import DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from stored_drafts import stored

CALL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "README.md"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello"}
RESPONSE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "I look.", "citations": None}, CALL],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": None,
        "output_tokens": 7,
        "service_tier": "standard",
    },
}


def back(message: Any, format: str | None = "anthropic") -> list[dict[str, Any]]:
    return formats.write(stored(formats.read(message, format)), "anthropic")


def translated(*messages: Any, format: str | None = "openai") -> list[dict[str, Any]]:
    return back(list(messages), format)


def same(left: Any, right: Any) -> bool:
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": None}, {"type": "text"}, {"type": ["text"]}, {}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "whole": {"type": "text"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
        {"role": "assistant", "content": [{**CALL, "caller": {"type": "direct"}}]},
        {"role": "assistant", "content": [{**CALL, "input": None}, {**CALL, "input": 1.0}, {**CALL, "input": True}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": 7, "name": "n", "input": {}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "xyz"}]},
        {"role": "user", "content": [RESULT]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "and now?"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "without an id"}]},
        {"role": "user", "content": [{**RESULT, "is_error": True}]},
        {"role": "user", "content": [{**RESULT, "is_error": False}]},
        {"role": "user", "content": [{**RESULT, "is_error": 1}]},
        {"role": "user", "content": [{**RESULT, "content": None}]},
        {"role": "user", "content": [{**RESULT, "content": []}]},
        {"role": "user", "content": [{**RESULT, "content": 5}, {**RESULT, "content": ["text"]}]},
        {
            "role": "user",
            "content": [
                {
                    **RESULT,
                    "content": [
                        {"type": "text", "text": "a", "citations": []},
                        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
                        {"type": "text", "text": 3},
                    ],
                    "cache_control": {"type": "ephemeral", "ttl": "1h"},
                }
            ],
        },
        {"role": "user", "content": "hello", "name": None, "extra": {"a": [1, 1.0, True, -0.0]}},
        {"role": "assistant", "content": [{"type": "a_block_of_next_year", "data": {"x": 2**70}}]},
    ],
)
def test_what_came_in_comes_back_equal(message: dict[str, Any]) -> None:
    assert same(back(message), [message])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
        {"role": "user", "content": [RESULT]},
    ],
)
def test_common_messages_need_nothing_beside_our_fields(message: dict[str, Any]) -> None:
    (draft,) = formats.read(message, "anthropic")
    assert draft.native is None
    assert all(part.native is None for part in draft.parts)


def test_our_fields_are_filled_and_only_the_rest_is_native() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
        CALL,
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ]
    (draft,) = formats.read({"role": "assistant", "content": blocks})
    assert draft.format == "anthropic"
    assert draft.parts == (
        ReasoningPart(text="hm", native={"signature": "s"}),
        TextPart(text="hi", native={"cache_control": {"type": "ephemeral"}}),
        ToolCallPart(call_id="toolu_1", tool="read", arguments={"path": "README.md"}),
        DataPart(native=blocks[3]),
    )


def test_a_message_of_only_results_has_the_role_tool() -> None:
    failed = {**RESULT, "is_error": True, "content": [{"type": "text", "text": "no such file"}]}
    (only, mixed) = formats.read(
        [{"role": "user", "content": [failed]}, {"role": "user", "content": [failed, {"type": "text", "text": "hm"}]}]
    )
    part = ToolResultPart(call_id="toolu_1", status="error", content=(TextPart(text="no such file"),))
    assert (only.role, only.parts) == ("tool", (part,))
    assert (mixed.role, mixed.parts[0]) == ("user", part)


def test_a_whole_response_gives_model_and_tokens_and_is_rebuilt() -> None:
    (draft,) = formats.read(RESPONSE)
    assert (draft.role, draft.format, draft.model) == ("assistant", "anthropic", "claude-x")
    assert (draft.input_tokens, draft.output_tokens, draft.tokens) == (15, 7, 7)
    (message,) = stored([draft])
    assert formats.response(draft) == formats.response(message) == RESPONSE
    assert formats.write([message], "anthropic") == [{"role": "assistant", "content": RESPONSE["content"]}]
    assert "I look." not in encode(draft.native)


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "Hi"}]])
def test_a_response_is_written_as_blocks(content: list[Any]) -> None:
    messages = stored(formats.read({**RESPONSE, "content": content}))
    assert formats.write(messages, "anthropic") == [{"role": "assistant", "content": content}]
    assert formats.response(messages[0]) == {**RESPONSE, "content": content}


def test_a_message_that_came_alone_has_no_response() -> None:
    assert formats.response(formats.read({"role": "user", "content": "hi"})[0]) is None
    assert formats.response(formats.read({"role": "user", "content": "hi"}, "anthropic")[0]) is None


def test_objects_of_the_sdk() -> None:
    types = pytest.importorskip("anthropic.types")
    reply = types.Message.model_validate(RESPONSE)
    plain = reply.model_dump(mode="json", exclude_unset=True)
    (draft,) = formats.read(reply)
    assert formats.response(draft) == plain
    nested = {"role": "assistant", "content": reply.content}
    assert back([nested], None) == [{"role": "assistant", "content": plain["content"]}]
    (bare,) = formats.read({"role": "assistant", "content": [reply.content[1]]})
    assert bare.parts == (ToolCallPart(call_id="toolu_1", tool="read", arguments={"path": "README.md"}),)


def test_neutral_messages_come_back_equal_and_have_no_format() -> None:
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " "}]},
        {"role": "user", "content": [{"type": "text", "text": "alone"}]},
        {"role": "assistant", "content": []},
    ]
    drafts = formats.read(messages)
    assert {draft.format for draft in drafts} == {None}
    assert formats.write(stored(drafts), "anthropic") == messages


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": "hi"}, "no role"),
        ({"role": "tool", "content": "hi"}, "no role 'tool'"),
        ({"role": None, "content": "hi"}, "no role None"),
        ({"role": ["user"], "content": "hi"}, "no role"),
        ({"role": "user", "content": 5}, "The content is of type int"),
        ({"role": "user", "content": {"type": "text"}}, "The content is of type dict"),
        ({"role": "user", "content": ["hi"]}, r"content\[0\] is of type str"),
        (["not", "a", "message"], "A text alone"),
        (7, "not of type int"),
    ],
)
def test_other_shapes_are_refused_with_a_sentence(message: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        formats.read(message, "anthropic")


# Translation


def test_tool_calls_and_results_of_openai() -> None:
    function = {"name": "read", "arguments": '{"path": "a"}'}
    calls = [{"id": name, "type": "function", "function": function} for name in ("c1", "c2")]
    assert translated(
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "go", "name": "ann"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "done"},
    ) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]},
            ],
        },
        {"role": "assistant", "content": "done"},
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", {"arguments": [1]}),
        ("null", {"arguments": None}),
        ('{"a": ', {"arguments": '{"a": '}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ("[" * 5000, {"arguments": "[" * 5000}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    ],
)
def test_arguments_become_an_object(text: str, value: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    (message,) = translated({"role": "assistant", "content": None, "tool_calls": [call]})
    assert message["content"][0]["input"] == value


def test_results_recorded_by_recollect_are_put_together() -> None:
    drafts = [
        *formats.read({"role": "assistant", "content": [CALL, {**CALL, "id": "t2"}, {**CALL, "id": "t3"}]}),
        Draft(role="tool", parts=(ToolResultPart(call_id="toolu_1", data={"n": 1}),)),
        Draft(role="system", parts=(TextPart(text="a note"),)),
        Draft(role="tool", parts=(ToolResultPart(call_id="t2", status="error", error_message="gone"),)),
        *formats.read({"role": "user", "content": [{**RESULT, "tool_use_id": "t3"}]}),
        Draft(role="tool", parts=(ToolResultPart(call_id="t4", data={"text": "\ud800", "big": 2**70}),)),
    ]
    _, merged, own, last = formats.write(stored(drafts), "anthropic")
    assert merged == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"n":1}'},
            {"type": "tool_result", "tool_use_id": "t2", "content": "gone", "is_error": True},
        ],
    }
    assert own == {"role": "user", "content": [{**RESULT, "tool_use_id": "t3"}]}
    assert last["content"][0]["content"] == '{"text":"\\ud800","big":1180591620717411303424}'


def test_results_stand_before_the_text_of_their_message() -> None:
    drafts = [
        Draft(role="tool", parts=(TextPart(text="a note"), ToolResultPart(call_id="a", text="1"))),
        Draft(role="tool", parts=(ToolResultPart(call_id="b", text="2", status="canceled"),)),
    ]
    assert formats.write(stored(drafts), "anthropic") == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "text", "text": "a note"},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True}],
        },
    ]


def test_mixed_messages_and_what_has_no_words() -> None:
    image = {"type": "file", "file": {"file_id": "file-1"}}
    drafts = [
        *formats.read({"role": "user", "content": [image, {"type": "text", "text": "look"}]}),
        *formats.read({"role": "user", "content": [image]}),
        *formats.read({"role": "assistant", "content": " ", "refusal": None}),
        Draft(role="assistant", parts=(ReasoningPart(text="hm"),)),
        Draft(role="user", parts=(TextPart(text="so?"), ToolResultPart(call_id="c", text=""))),
        Draft(role="assistant", parts=(ToolCallPart(call_id="d", tool="f"), ToolResultPart(call_id="d", text="x"))),
    ]
    assert formats.write(stored(drafts), "anthropic") == [
        {"role": "user", "content": "look"},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": ""},
                {"type": "text", "text": "so?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "d", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d", "content": "x"}]},
    ]


def test_the_blocks_given_out_can_be_marked_without_touching_the_message() -> None:
    (message,) = stored(formats.read({"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}))
    formats.write([message], "anthropic")[0]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert message.parts == (DataPart(native={"type": "image", "source": {"type": "url"}}),)


def test_translations_are_what_the_sdk_accepts() -> None:
    pydantic = pytest.importorskip("pydantic")
    types = pytest.importorskip("anthropic.types")
    adapter = pydantic.TypeAdapter(types.MessageParam)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[]"}}
    written = translated(
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "y"}]},
    )
    for message in written:
        checked = adapter.validate_python(message)
        assert isinstance(message["content"], str) or list(checked["content"])
    assert len(written) == 3
