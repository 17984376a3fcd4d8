"""Images, documents, audio and refusals: they round trip, and are translated to each other format."""

from __future__ import annotations

from typing import Any

import pytest
from formats_table import to_messages

from recollect import formats
from recollect.model.message import AttachmentPart, Message, TextPart, ToolCallPart, ToolResultPart


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}, "title": "a"},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a"}},
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "a"},
            {"type": "text", "text": "a\n\nhi"},
        ),
        (
            {
                "type": "document",
                "source": {"type": "content", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": "x\n\ny"},
        ),
        ({"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}, None),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, None),
    ],
)  # fmt: skip
def test_anthropic_attachments_are_read_and_translated(block: dict[str, Any], expected: dict[str, Any] | None) -> None:
    messages = to_messages([user(block)], "anthropic")
    assert isinstance(messages[0].parts[0], AttachmentPart)
    assert formats.write(messages, "anthropic") == [user(block)]
    output = formats.write(messages, "openai")
    if expected is None:
        assert output == []
    elif expected["type"] == "text":
        assert output == [{"role": "user", "content": expected["text"]}]
    else:
        assert output == [user(expected)]
        assert formats.write(to_messages(output, "openai"), "openai") == output


def test_attachments_round_trip_through_other_formats() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    pdf = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        "title": "a.pdf",
    }
    messages = [user(image, pdf, {"type": "text", "text": "look"})]
    for target in ("openai", "openai-responses", "ai-sdk", "ai-sdk-ui"):
        translation = formats.write(to_messages(messages, "anthropic"), target)
        assert formats.write(to_messages(translation, target), "anthropic") == messages


def test_images_of_tools_follow_the_results_for_chat_completions() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    calls = [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ("a", "b")]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [image, {"type": "text", "text": "one"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "two"},
    ]
    openai_image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    call_message = {"role": "assistant", "content": calls}
    for replies, expected in [
        ([user(*results)], [openai_image]),
        ([user(*results), {"role": "assistant", "content": "done"}], [openai_image]),
        ([user(*results, {"type": "text", "text": "and?"})], [openai_image, {"type": "text", "text": "and?"}]),
    ]:
        output = formats.write(to_messages([call_message, *replies], "anthropic"), "openai")
        assert [message["role"] for message in output[:4]] == ["assistant", "tool", "tool", "user"]
        assert output[3]["content"] == expected


def test_refusals_and_audio_transcripts_become_text() -> None:
    openai_messages = [
        {"role": "assistant", "content": None, "refusal": "I cannot."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Nor that."}]},
        {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Hello.", "expires_at": 1}},
    ]
    messages = to_messages(openai_messages, "openai")
    assert [message.text for message in messages] == ["I cannot.", "Nor that.", "Hello."]
    assert formats.write(messages, "openai") == openai_messages
    assert [message["content"] for message in formats.write(messages, "anthropic")] == [
        "I cannot.",
        "Nor that.",
        "Hello.",
    ]


def test_call_ids_get_only_characters_that_anthropic_accepts() -> None:
    parts = (ToolCallPart(call_id="functions.f:0", tool="f"), ToolResultPart(call_id="functions.f:0", text="x"))
    messages = [Message(branch=1, position=1, role="assistant", parts=parts, created_at_ms=0)]
    call_message, result_message = formats.write(messages, "anthropic")
    assert call_message["content"][0]["id"] == result_message["content"][0]["tool_use_id"] == "functions_f_0"


def test_tool_text_without_a_call_becomes_a_user_message() -> None:
    messages = [Message(branch=1, position=1, role="tool", parts=(TextPart(text="hi"),), created_at_ms=0)]
    for name in ("anthropic", "openai", "openai-responses", "ai-sdk"):
        assert formats.write(messages, name) == [{"role": "user", "content": "hi"}]
