"""Pydantic AI's messages: how requests and responses are stored, typed and written back."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue
from recollect.formats.display import is_truncated, visible_remainder
from recollect.model.message import AttachmentPart, DataPart, TextPart, ToolResultPart

FORMAT = "pydantic-ai"
BYTES = bytes(range(256)) * 16  # large enough for a blob
STANDARD, URL_SAFE = base64.b64encode(BYTES).decode(), base64.urlsafe_b64encode(BYTES).decode()
CONVERSATION: list[dict[str, Any]] = [
    {
        "kind": "request",
        "instructions": "Answer in English.",
        "run_id": "r1",
        "timestamp": "2026-11-19T10:00:01.123456Z",
        "parts": [
            {"part_kind": "system-prompt", "content": "Be brief.", "dynamic_ref": None},
            {
                "part_kind": "user-prompt",
                "timestamp": "2026-11-19T10:00:00Z",
                "content": [
                    "What is in the picture?",
                    {"kind": "binary", "data": URL_SAFE, "media_type": "image/png", "identifier": "p1"},
                    {"kind": "cache-point", "ttl": "5m"},
                    {"kind": "text-content", "content": "And why?", "metadata": {"a": 1}},
                ],
            },
        ],
    },
    {
        "kind": "response",
        "model_name": "some-model",
        "timestamp": "2026-11-19T10:00:02Z",
        "finish_reason": "tool_call",
        "usage": {"input_tokens": 12, "output_tokens": 5, "details": {}},
        "parts": [
            {"part_kind": "thinking", "content": "Look closer.", "signature": "c2ln", "provider_name": "anthropic"},
            {
                "part_kind": "builtin-tool-call",
                "tool_name": "web_search",
                "tool_call_id": "w",
                "args": {"query": "tea"},
            },
            {"part_kind": "tool-call", "tool_name": "zoom", "tool_call_id": "c1", "args": '{"x": 1}'},
            {"part_kind": "tool-call", "tool_name": "crop", "tool_call_id": "c2", "args": None},
            {"part_kind": "tool-call", "tool_name": "crop", "tool_call_id": "c3", "args": {"a": 1}},
        ],
    },
    {
        "kind": "request",
        "parts": [
            {
                "part_kind": "tool-return",
                "tool_name": "zoom",
                "tool_call_id": "c1",
                "content": [{"size": 3}, {"kind": "binary", "data": URL_SAFE, "media_type": "image/png"}],
            },
            {
                "part_kind": "tool-return",
                "tool_name": "crop",
                "tool_call_id": "c2",
                "content": "No.",
                "outcome": "denied",
            },
            {"part_kind": "retry-prompt", "tool_name": "crop", "tool_call_id": "c3", "content": [{"msg": "wrong"}]},
            {"part_kind": "user-prompt", "content": "Continue."},
        ],
    },
    {"kind": "response", "parts": [{"part_kind": "text", "content": "A cup of tea."}], "finish_reason": "length"},
]


@pytest.fixture
def session() -> Any:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append(CONVERSATION)
        yield session


def test_a_conversation_comes_back_equal_without_repairs(session: Any) -> None:
    history = session.history(FORMAT)
    assert (list(history), history.repairs) == (CONVERSATION, [])
    for last in range(6):
        assert session.history(FORMAT, last=last) == CONVERSATION[max(4 - last, 0) :]


def test_messages_are_typed(session: Any) -> None:
    system, question, response, results, answer = session.messages()
    assert [message.role for message in session.messages()] == ["system", "user", "assistant", "user", "assistant"]
    assert (system.text, question.text) == ("Be brief.", "What is in the picture?And why?")
    assert question.created_at.isoformat() == "2026-11-19T10:00:01.123000+00:00"
    assert (response.model, response.input_tokens, response.output_tokens) == ("some-model", 12, 5)
    assert (response.reasoning, [call.input for call in response.tool_calls]) == (
        "Look closer.",
        [{"x": 1}, None, {"a": 1}],
    )
    assert [call.status for call in session.tools.list()] == ["success", "cancelled", "error"]
    assert (results.text, answer.text) == ("Continue.", "A cup of tea.")
    assert [is_truncated(message) for message in (response, answer)] == [False, True]


def test_bytes_are_one_blob_in_every_format(session: Any) -> None:
    image = session.messages()[1].parts[1]
    assert isinstance(image, AttachmentPart)
    assert (image.data, image.mime_type) == (STANDARD, "image/png")
    (piece,) = [piece for piece in session.messages()[3].parts[0].content if isinstance(piece, AttachmentPart)]
    assert piece.data == STANDARD
    assert str(session.history("openai")).count(STANDARD) == 2


def test_a_request_with_a_system_prompt_is_two_messages_and_one_request() -> None:
    drafts = formats.parse(CONVERSATION[0], FORMAT)
    assert [draft.role for draft in drafts] == ["system", "user"]
    assert formats.render(drafts, FORMAT) == CONVERSATION[:1]
    alone = formats.render(drafts[1], FORMAT)
    assert alone == [{"kind": "request", "parts": CONVERSATION[0]["parts"][1:]}]
    (other,) = formats.parse(CONVERSATION[3], FORMAT)
    assert formats.render([drafts[0], other, drafts[1]], FORMAT)[2] == alone[0]  # not joined with another message


def test_the_parts_of_two_prompts_stay_apart() -> None:
    prompts = [{"part_kind": "user-prompt", "content": content} for content in (["a", "b"], "c", ["d"], [], ["e"])]
    message = {"kind": "request", "parts": prompts}
    (draft,) = formats.parse(message, FORMAT)
    assert [part.text for part in draft.parts if isinstance(part, TextPart)] == ["a", "b", "c", "d", "e"]
    assert formats.render(draft, FORMAT) == [message]


@pytest.mark.parametrize(
    "content", [[{"kind": "binary", "data": "AA==", "media_type": "image/png"}], "x", None, {"a": 1}]
)
def test_the_content_of_a_tool_return_keeps_its_form(content: Any) -> None:
    for form in (content, content[0] if isinstance(content, list) else content):
        part = {"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c", "content": form}
        (draft,) = formats.parse({"kind": "request", "parts": [part]}, FORMAT)
        assert draft.role == "tool"
        assert formats.render(draft, FORMAT) == [{"kind": "request", "parts": [part]}]


def test_the_transcript_of_a_recording_is_text() -> None:
    audio = {"kind": "binary", "data": "_-_-", "media_type": "audio/wav"}
    speech = {"part_kind": "speech", "speaker": "user", "transcript": "Hello", "audio": audio, "id": None}
    (draft,) = formats.parse({"kind": "request", "parts": [speech]}, FORMAT)
    text, recording = draft.parts
    assert isinstance(text, TextPart)
    assert isinstance(recording, AttachmentPart)
    assert (text.text, recording.data, recording.mime_type) == ("Hello", "/+/+", "audio/wav")
    assert formats.render(draft, FORMAT)[0]["parts"] == [speech]


def test_instructions_are_visible_and_metadata_is_hidden() -> None:
    system, question = formats.parse(CONVERSATION[0], FORMAT)
    assert visible_remainder(system) == {"instructions": "Answer in English."}
    assert not visible_remainder(question)
    (response,) = formats.parse(CONVERSATION[1], FORMAT)
    assert not visible_remainder(response)


def test_messages_of_other_formats() -> None:
    other = [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "failed", "is_error": True},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ]},
    ]  # fmt: skip
    assert formats.render(formats.parse(other, "anthropic"), FORMAT) == [
        {"kind": "response", "parts": [
            {"part_kind": "thinking", "content": "Hm", "signature": "c2ln", "provider_name": "anthropic"},
            {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c", "args": {"a": 1}},
        ]},
        {"kind": "request", "parts": [
            {"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c", "content": "failed", "outcome": "failed"},
        ]},
        {"kind": "request", "parts": [
            {"part_kind": "user-prompt", "content": [
                {"kind": "image-url", "url": "https://example.org/a.png", "media_type": None},
            ]},
        ]},
    ]  # fmt: skip


def test_files_that_pydantic_ai_cannot_load_are_omitted() -> None:
    parts = (AttachmentPart(mime_type="image/png", data="not base64"), TextPart(text="See above."))
    draft = recollect.Draft(role="user", parts=parts)
    assert formats.render(draft, FORMAT)[0]["parts"] == [{"part_kind": "user-prompt", "content": "See above."}]


def test_a_result_that_the_program_recorded(session: Any) -> None:
    call = {
        "kind": "response",
        "parts": [{"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c9", "args": {}}],
    }
    session.append([{"role": "user", "content": "Next"}, call])
    session.tools.record_result("c9", {"found": True})
    part = {"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c9", "content": {"found": True}}
    assert session.history(FORMAT)[-1] == {"kind": "request", "parts": [part]}


def test_what_is_not_a_message_is_refused() -> None:
    for message in ({"kind": "request"}, {"kind": "other", "parts": []}, {"kind": "response", "parts": ["x"]}):
        with pytest.raises(InvalidValue, match="must have the kind"):
            formats.parse(message, FORMAT)
    with pytest.raises(AmbiguousFormat):
        formats.parse({"type": "other", "parts": []})


def test_objects_are_read_without_their_null_fields() -> None:
    messages: Any = pytest.importorskip("pydantic_ai.messages")
    response = messages.ModelResponse(parts=[messages.TextPart("Yes")], model_name="m")
    (draft,) = formats.parse(response)
    assert (draft.format, draft.model, draft.parts) == (FORMAT, "m", (TextPart(text="Yes"),))
    assert draft.native is not None
    assert draft.native["fields"].keys() == {"model_name", "timestamp", "state", "usage"}
    with pytest.raises(InvalidValue, match="must be a ModelRequest"):
        formats.parse(messages.TextPart("Yes"))
    question = messages.ModelRequest(parts=[messages.UserPromptPart(["Look", messages.CachePoint()])])
    (draft,) = formats.parse(question)
    assert [type(part) for part in draft.parts] == [TextPart, DataPart]
    assert messages.ModelMessagesTypeAdapter.validate_python(formats.render(draft, FORMAT)) == [question]


def test_unanswered_calls_are_repaired() -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append(CONVERSATION[:2])
        history = session.history(FORMAT)
    assert [repair.kind for repair in history.repairs] == ["interrupted_call"] * 3
    assert [message["parts"][0]["outcome"] for message in history[2:]] == ["failed"] * 3
    result = formats.parse(history[2], FORMAT)[0].parts[0]
    assert isinstance(result, ToolResultPart)
    assert (result.call_id, result.status) == ("c1", "error")
