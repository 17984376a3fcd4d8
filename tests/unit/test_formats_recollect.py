"""Recollect's own format, the detection of a format, and the rules that all formats share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue, UnknownFormat
from recollect.formats import registry
from recollect.formats.detection import detect_format
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

PARTS: tuple[Part, ...] = (
    TextPart(text="hi", native={"cache_control": {}}, metadata={"a": 1}),
    ReasoningPart(text=""),
    ToolCallPart(call_id="c", tool="f", arguments=None),
    ToolCallPart(call_id="d", tool="f", arguments_text="{"),
    ToolResultPart(call_id="c", status="error", content=(TextPart(text="x"), DataPart(data=2**70)), error_code="E"),
    AttachmentPart(mime_type="image/png", size=1, data="AA=="),
    DataPart(native={"type": "odd"}),
)


def to_message(draft: Draft, position: int = 1) -> Message:
    fields = {name: getattr(draft, name) for name in draft.__struct_fields__}
    del fields["created_at"]
    return Message(**{**fields, "branch": 1, "position": position, "tokens": draft.tokens or 0, "created_at_ms": 0})


def test_written_messages_round_trip() -> None:
    message = Message(
        branch=2,
        position=7,
        role="assistant",
        parts=PARTS,
        state="interrupted",
        turn=3,
        format="anthropic",
        native={"fields": {"x": 1}},
        model="m",
        tokens=5,
        output_tokens=5,
        error={"code": "E"},
        metadata={"k": [1]},
        created_at_ms=1763287200123,
        completed_at_ms=1763287200124,
    )
    (output,) = formats.write([message], "recollect")
    assert (output["id"], output["created_at"]) == ("2.7", "2025-11-16T10:00:00.123Z")
    assert None not in output.values()
    (draft,) = formats.read(output, "recollect")
    assert draft == formats.read(message)[0]
    assert formats.read(output) == [draft]


def test_messages_of_a_caller_are_read() -> None:
    (draft,) = formats.read({"role": "user", "content": "hi", "metadata": {"a": 1}, "tokens": 3})
    assert draft == Draft(role="user", parts=(TextPart(text="hi"),), metadata={"a": 1}, tokens=3)
    (empty,) = formats.read({"role": "user", "parts": []}, "recollect")
    assert empty == Draft(role="user")
    (with_time,) = formats.read(
        {"role": "tool", "parts": [{"kind": "tool_result", "call_id": "c", "text": "x"}], "created_at": "1970-01-01"}
    )
    assert (with_time.parts, with_time.created_at) == (
        (ToolResultPart(call_id="c", text="x"),),
        datetime(1970, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ({"role": "user", "parts": [{"kind": "text"}]}, r"`text` - at `parts\[0\]`"),
        ({"role": "user", "parts": [{"kind": "text", "text": 5}]}, r"at `parts\[0\].text`"),
        ({"role": "user", "parts": [{"kind": "poem", "text": "x"}]}, r"at `parts\[0\].kind`"),
        (
            {"role": "user", "parts": [{"kind": "text", "text": "x", "txet": 1}]},
            r"parts\[0\] must not have the fields txet",
        ),
        (
            {
                "role": "tool",
                "parts": [
                    {"kind": "tool_result", "call_id": "c", "content": [{"kind": "text", "text": "x", "more": 1}]}
                ],
            },
            r"parts\[0\].content\[0\] must not have the fields more",
        ),
        ({"role": "robot", "content": "x"}, "at `role`"),
        ({"parts": []}, "`role`"),
        ({"role": "user"}, "either"),
        ({"role": "user", "content": "x", "parts": []}, "either"),
        ({"role": "user", "content": "x", "metdata": {}}, "unknown field `metdata`"),
        ({"role": "user", "content": "x", "created_at": "yesterday"}, "ISO 8601"),
        ({"role": "user", "content": "x", "tokens": "5"}, "at `tokens`"),
    ],
)
def test_invalid_messages_are_refused(message: dict[str, Any], pattern: str) -> None:
    with pytest.raises(InvalidValue, match=pattern):
        formats.read(message, "recollect")


def text(**more: Any) -> dict[str, Any]:
    return {"type": "text", "text": "hi", **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("message", "format"),
    [
        ({"role": "user", "content": "hi"}, None),
        (user(), None),
        (user(text(), text()), None),
        ({}, None),
        ({"role": ["user"], "content": "hi"}, None),
        ({"role": "user", "content": 5}, None),
        ({"role": "developer", "content": "hi"}, "openai"),
        ({"role": "tool", "content": "hi", "tool_call_id": "c"}, "openai"),
        ({"role": "function", "content": "hi", "name": "f"}, "openai"),
        ({"role": "assistant", "content": None}, "openai"),
        ({"role": "assistant", "tool_calls": []}, "openai"),
        ({"role": "assistant", "content": "hi", "refusal": None}, "openai"),
        (user(text(), {"type": "image_url", "image_url": {}}), "openai"),
        (user({"type": "input_audio", "input_audio": {}}), "openai"),
        (user({"type": "file", "file": {}}), "openai"),
        ({"object": "chat.completion", "choices": []}, "openai"),
        ({"choices": [{}]}, "openai"),
        (user({"type": "tool_result", "tool_use_id": "c"}), "anthropic"),
        (user({"type": "image", "source": {}}), "anthropic"),
        (user({"type": "document", "source": {}}), "anthropic"),
        (user(text(cache_control={})), "anthropic"),
        (user({"type": "web_search_tool_result"}, {"type": "of_next_year"}), "anthropic"),
        ({**user({"type": "tool_use"}), "unknown": 1}, "anthropic"),
        ({"type": "message", "role": "assistant", "content": [], "usage": {}}, "anthropic"),
        ({"role": "user", "parts": [{"kind": "text"}]}, "recollect"),
        ({"role": "user", "parts": [], "branch": 1, "position": 2}, "recollect"),
        ({"role": "user", "content": "hi", "metadata": {}}, "recollect"),
        ({"role": "assistant", "content": "hi", "reasoning_content": "hm"}, "openai"),
        ({"type": "function_call", "call_id": "c"}, "openai-responses"),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "openai-responses"),
        ({"object": "response", "output": []}, "openai-responses"),
        ({"type": "message", "role": "user", "content": "hi"}, "openai-responses"),
        ({"type": "message", "role": "assistant", "status": "completed", "content": []}, "openai-responses"),
        ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}, "openai-responses"),
        (user({"type": "output_text", "text": "hi"}, {"type": "refusal", "refusal": "no"}), "openai-responses"),
        ({"role": "developer", "content": [{"type": "input_text", "text": "hi"}]}, "openai-responses"),
        (user({"type": "image", "image": "AA=="}), "ai-sdk"),
        (user({"type": "file", "data": "AA==", "mediaType": "text/plain"}), "ai-sdk"),
        (user(text(providerOptions={})), "ai-sdk"),
        ({"role": "user", "content": "hi", "providerOptions": {}}, "ai-sdk"),
        ({"role": "tool", "content": [{"type": "tool-result"}]}, "ai-sdk"),
        ({"role": "assistant", "content": [{"type": "reasoning", "text": "hm"}, text()]}, "ai-sdk"),
        ({"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "ai-sdk-ui"),
        ({"id": "m", "role": "assistant", "parts": [{"type": "step-start"}], "metadata": {}}, "ai-sdk-ui"),
        ({"id": "m", "role": "assistant", "content": "hi", "toolInvocations": []}, "ai-sdk-ui"),
    ],
)
def test_the_format_is_detected(message: dict[str, Any], format: str | None) -> None:
    assert detect_format(message) == format


@pytest.mark.parametrize(
    "message",
    [
        user({"type": "of_next_year"}),
        user({"type": 5}),
        user({"type": "image", "url": "AA=="}),
        user({"type": "image", "image": "AA=="}, {"type": "thinking"}),
        user(text(unknown=1)),
        user({"type": "image_url", "image_url": {}}, {"type": "thinking"}),
        {"role": "assistant", "content": [{"type": "tool_use"}], "tool_calls": []},
        {"role": "user", "content": "hi", "unknown": 1},
        {"role": "user", "parts": []},
        {"role": "user", "parts": [{"text": "hi"}, {"kind": "text", "text": "hi"}]},
        {"role": "user", "parts": [{"type": "text", "text": "hi"}, {"kind": "text", "text": "hi"}]},
        {"role": "user", "parts": [5]},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "tool-call"}]},
        {"role": "user", "content": "hi", "providerOptions": {}, "toolInvocations": []},
    ],
)
def test_an_ambiguous_format_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(AmbiguousFormat, match=r"format=\.\.\., one of: anthropic, openai, openai-responses, ai-sdk"):
        detect_format(message)
    with pytest.raises(AmbiguousFormat, match=r"messages\[1\]: ") as excinfo:
        formats.read([{"role": "user", "content": "hi"}, message])
    assert excinfo.value.fields == {"known": formats.FORMATS}


def test_one_message_or_any_iterable_is_read() -> None:
    hi = {"role": "user", "content": "hi"}
    for messages in ([hi, hi], (hi, hi), (message for message in [hi, hi]), iter([hi, hi])):
        assert [draft.parts for draft in formats.read(messages)] == [(TextPart(text="hi"),)] * 2
    assert len(formats.read(hi)) == 1
    assert formats.read([]) == []


def test_drafts_and_messages_are_read_unchanged() -> None:
    draft = Draft(role="user", parts=PARTS, format="openai", native={"x": 1}, tokens=2, created_at=0)
    assert formats.read(draft, "anthropic") == [draft]
    assert formats.read([to_message(draft), draft]) == [draft, draft]


def test_a_string_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r'Write {"role": "user", "content": \.\.\.}'):
        formats.read("hi")


@pytest.mark.parametrize("message", [None, 5, 1.5, b"hi", object()])
def test_a_value_that_is_not_a_message_is_refused(message: Any) -> None:
    with pytest.raises(InvalidValue):
        formats.read(message)
    with pytest.raises(InvalidValue, match=r"messages\[0\]"):
        formats.read([message])


def test_a_value_that_json_cannot_represent_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"messages\[1\]: message\['.*'\] must be JSON data, got nan"):
        formats.read([{"role": "user", "content": "hi"}, user(text(score=float("nan")))], "anthropic")


def test_an_unknown_format_is_refused() -> None:
    for name in ("geminy", "", None, 5, "plain", "ai_sdk"):
        with pytest.raises(
            UnknownFormat, match=r"Unknown message format .*\. Use one of: anthropic, openai, openai-re"
        ):
            formats.write([], name)  # pyright: ignore[reportArgumentType]


def test_the_error_for_a_missing_role_names_the_message() -> None:
    with pytest.raises(InvalidValue, match=r"messages\[1\]: The message has no role"):
        formats.read([{"role": "user", "content": "hi"}, {"content": "hi"}])


def test_every_format_has_a_module() -> None:
    for name in formats.FORMATS:
        assert name == registry.load_module(name).NAME
        assert formats.write([], name) == []
    assert [formats.load_rules(name).format for name in formats.PROVIDERS] == list(formats.PROVIDERS)


def test_an_invalid_remainder_is_ignored() -> None:
    message = to_message(Draft(role="user", parts=(TextPart(text="hi", native=5),), format="anthropic"))
    assert formats.write([message], "anthropic") == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert formats.write([message], "openai") == [{"role": "user", "content": "hi"}]


FULL = Message(
    branch=2, position=7, role="assistant", parts=(TextPart(text="a", native={"x": [1]}), ToolCallPart(call_id="c", tool="t")),
    created_at_ms=1763287200123, turn=3, tokens=4, format="anthropic", model="m", input_tokens=0, output_tokens=2,
    native={"id": "msg"}, state="error", completed_at_ms=1763287200999, deleted_at_ms=-1, error={"name": "x"}, metadata={"pinned": True},
)  # fmt: skip


@pytest.mark.parametrize(
    "empty_fields",
    [
        (),
        *[(name,) for name in Message.__struct_fields__[5:] if name not in ("tokens", "state")],
        Message.__struct_fields__[5:],
    ],
)
def test_empty_fields_are_not_written(empty_fields):
    defaults = {name: None for name in empty_fields if name not in ("tokens", "state")}
    message = msgspec.structs.replace(FULL, **defaults)
    expected = {name: value for name, value in message.to_dict().items() if value is not None}
    (output,) = formats.write([message], "recollect")
    assert output == expected
    assert list(output) == list(expected)


def test_the_former_spelling_of_cancelled_is_read() -> None:
    result = {"kind": "tool_result", "call_id": "c", "status": "canceled", "data": {"status": "canceled"}}
    (draft,) = formats.read({"role": "tool", "parts": [result]}, "recollect")
    assert draft.parts == (ToolResultPart(call_id="c", status="cancelled", data={"status": "canceled"}),)
    assert result["status"] == "canceled"  # the dict of the caller is unchanged
    with pytest.raises(InvalidValue, match="status"):
        formats.read({"role": "tool", "parts": [{**result, "status": "cancel"}]}, "recollect")
