"""Images, documents, sound and refusals: kept as they came, and said in each format's own words."""

from __future__ import annotations

from typing import Any

import pytest
from formats_table import stored

from recollect import formats
from recollect.model.message import Message
from recollect.model.part import AttachmentPart, TextPart, ToolCallPart, ToolResultPart


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("block", "wanted"),
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
def test_anthropics_files(block: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    kept = stored([user(block)], "anthropic")
    assert isinstance(kept[0].parts[0], AttachmentPart)
    assert formats.write(kept, "anthropic") == [user(block)]
    written = formats.write(kept, "openai")
    if wanted is None:
        assert written == []
    elif wanted["type"] == "text":
        assert written == [{"role": "user", "content": wanted["text"]}]
    else:
        assert written == [user(wanted)]
        assert formats.write(stored(written, "openai"), "openai") == written


def test_a_file_there_and_back() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    pdf = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        "title": "a.pdf",
    }
    talk = [user(image, pdf, {"type": "text", "text": "look"})]
    for target in ("openai", "openai-responses", "ai-sdk", "ai-sdk-ui"):
        there = formats.write(stored(talk, "anthropic"), target)
        assert formats.write(stored(there, target), "anthropic") == talk


def test_images_of_tools_follow_the_results_for_chat_completions() -> None:
    shown = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    calls = [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ("a", "b")]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [shown, {"type": "text", "text": "one"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "two"},
    ]
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    asked = {"role": "assistant", "content": calls}
    for said, wanted in [
        ([user(*results)], [picture]),
        ([user(*results), {"role": "assistant", "content": "done"}], [picture]),
        ([user(*results, {"type": "text", "text": "and?"})], [picture, {"type": "text", "text": "and?"}]),
    ]:
        written = formats.write(stored([asked, *said], "anthropic"), "openai")
        assert [message["role"] for message in written[:4]] == ["assistant", "tool", "tool", "user"]
        assert written[3]["content"] == wanted


def test_refusals_and_spoken_answers_are_said() -> None:
    talk = [
        {"role": "assistant", "content": None, "refusal": "I can not."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Nor that."}]},
        {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Hello.", "expires_at": 1}},
    ]
    kept = stored(talk, "openai")
    assert [message.text for message in kept] == ["I can not.", "Nor that.", "Hello."]
    assert formats.write(kept, "openai") == talk
    assert [message["content"] for message in formats.write(kept, "anthropic")] == ["I can not.", "Nor that.", "Hello."]


def test_ids_get_the_letters_that_anthropic_takes() -> None:
    parts = (ToolCallPart(call_id="functions.f:0", tool="f"), ToolResultPart(call_id="functions.f:0", text="x"))
    messages = [Message(branch=1, position=1, role="assistant", parts=parts, created_at=0)]
    asked, answered = formats.write(messages, "anthropic")
    assert asked["content"][0]["id"] == answered["content"][0]["tool_use_id"] == "functions_f_0"


def test_texts_of_a_tool_that_answers_nobody_are_a_persons() -> None:
    odd = [Message(branch=1, position=1, role="tool", parts=(TextPart(text="hi"),), created_at=0)]
    for name in ("anthropic", "openai", "openai-responses", "ai-sdk"):
        assert formats.write(odd, name) == [{"role": "user", "content": "hi"}]
