"""Bedrock's Converse format: blocks, bytes, responses, and the rules of a request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue
from recollect.formats import RegisteredFormat
from recollect.formats.display import is_truncated
from recollect.formats.registry import read
from recollect.model.json import encode_standard
from recollect.model.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

PIXELS = b"\x89PNG\xff\xfe\x00" * 900
CALL = {"toolUse": {"toolUseId": "c", "name": "look", "input": {"at": 1}}}
RESULT = {"toolResult": {"toolUseId": "c", "content": [{"text": "a cat"}]}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.fixture
def session():
    with recollect.open(":memory:") as store:
        yield store.session("a")


def test_blocks_become_parts() -> None:
    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    citation = {"citationsContent": {"content": [{"text": "cited"}], "citations": [{"title": "t"}]}}
    (answer,) = read(assistant(reasoning, {"text": "I look"}, citation, CALL))
    assert [type(part) for part in answer.parts] == [ReasoningPart, TextPart, TextPart, ToolCallPart]
    assert (answer.format, answer.parts[2].text) == ("bedrock", "cited")  # type: ignore[union-attr]
    result = {**RESULT["toolResult"], "status": "error"}
    (reply,) = read(user({"toolResult": result}))
    (part,) = reply.parts
    assert isinstance(part, ToolResultPart)
    assert (reply.role, part.call_id, part.status, part.text) == ("tool", "c", "error", "a cat")
    (data,) = read(user({"toolResult": {"toolUseId": "c", "content": [{"json": {"cats": 2}}]}}))[0].parts
    assert data.data == {"cats": 2}  # type: ignore[union-attr]
    document = {"document": {"name": "a", "format": "pdf", "source": {"bytes": b"%PDF"}}}
    (file,) = read(user(document))[0].parts
    assert isinstance(file, AttachmentPart)
    assert (file.mime_type, file.name, file.data) == ("application/pdf", "a", "JVBERg==")


def test_bytes_come_back_as_bytes_and_as_base64_in_json(session: recollect.Session) -> None:
    image = {"image": {"format": "png", "source": {"bytes": PIXELS}}}
    messages = [
        user(image, {"guardContent": {"image": {"format": "png", "source": {"bytes": PIXELS}}}}),
        assistant({"reasoningContent": {"redactedContent": b"\x00\xff"}}, CALL),
        user({"toolResult": {"toolUseId": "c", "content": [image, {"text": "a cat"}]}}),
    ]
    session.append(messages)
    assert session.history("bedrock") == messages
    over_http = json.loads(encode_standard(list(session.history("bedrock"))))
    assert over_http[0]["content"][0]["image"]["source"]["bytes"] == base64.b64encode(PIXELS).decode()
    again = session.store.session("b")
    again.append(over_http)
    assert again.history("bedrock") == messages
    part = session.messages()[0].parts[0]
    assert isinstance(part, AttachmentPart)
    assert base64.b64decode(part.data or "") == PIXELS


def test_text_that_is_not_base64_stays_text() -> None:
    message = user({"image": {"format": "png", "source": {"bytes": "not base64"}}})
    assert formats.render(read(message, "bedrock"), "bedrock") == [message]


RESPONSE: dict[str, Any] = {
    "ResponseMetadata": {"HTTPStatusCode": 200, "RetryAttempts": 0},
    "output": {"message": assistant({"reasoningContent": {"redactedContent": b"\xff"}}, {"text": "Yes."}, CALL)},
    "stopReason": "max_tokens",
    "usage": {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12, "cacheReadInputTokens": 2},
    "metrics": {"latencyMs": 12},
    "trace": {"promptRouter": {"invokedModelId": "model-test"}},
}


def test_a_whole_response(session: recollect.Session) -> None:
    session.save_turn("q", RESPONSE)
    message = session.messages()[1]
    assert formats.response(message) == RESPONSE
    assert (message.model, message.input_tokens, message.output_tokens) == ("model-test", 9, 5)
    assert is_truncated(message)
    assert session.history("bedrock", repair=False) == [user({"text": "q"}), RESPONSE["output"]["message"]]
    session.tools.record_result("c", {"cats": 2})
    assert session.history("bedrock")[-1] == user(
        {"toolResult": {"toolUseId": "c", "content": [{"json": {"cats": 2}}]}}
    )


def test_a_response_without_a_message(session: recollect.Session) -> None:
    response = {"output": {}, "stopReason": "guardrail_intervened"}
    session.append([user({"text": "q"}), response], format="bedrock")
    assert formats.response(session.messages()[1]) == response
    assert session.history("bedrock") == [user({"text": "q"})]


def test_a_history_for_bedrock_keeps_its_rules(session: recollect.Session) -> None:
    session.append(
        [
            assistant({"text": "Welcome"}),
            user({"text": "one"}),
            user({"text": " "}, {"text": "two"}, {}),
            assistant({"text": "I look"}, {"toolUse": {**CALL["toolUse"], "toolUseId": "bad id!", "input": [1]}}),
            user({"text": "and?"}),
            user(),
            assistant({"text": "Yes. "}, {"reasoningContent": {"redactedContent": b"x"}}),
        ],
        format="bedrock",
    )
    history = session.history("bedrock")
    assert [message["role"] for message in history] == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert history[2]["content"] == [{"text": "one"}, {"text": "two"}]
    assert history[3]["content"][1]["toolUse"] == {
        "toolUseId": "bad_id__1_4_1",
        "name": "look",
        "input": {"arguments": [1]},
    }
    assert [list(block) for block in history[4]["content"]] == [["toolResult"], ["text"]]
    assert history[5]["content"] == [{"text": "Yes."}]
    assert {repair.kind for repair in history.repairs} == {
        "first_role", "same_role", "blank_text", "unreadable_block", "arguments", "call_id", "interrupted_call",
        "empty_message", "last_reasoning", "last_space",
    }  # fmt: skip
    again = session.store.session("b")
    again.append(history, format="bedrock")
    assert again.history("bedrock") == history
    assert again.history("bedrock").repairs == []


def test_what_bedrock_cannot_express_becomes_text(session: recollect.Session) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    file = {
        "type": "file",
        "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "my report.v2.pdf"},
    }
    session.append({"role": "user", "content": [image]}, format="openai")
    assert session.history("bedrock") == [user({"text": "File: https://example.org/a.png"})]
    other = session.store.session("b")
    other.append({"role": "user", "content": [file]}, format="openai")
    document = {"format": "pdf", "source": {"bytes": b"%PDF"}, "name": "my report v2 pdf"}
    assert other.history("bedrock") == [user({"document": document}, {"text": "my report v2 pdf"})]


def test_an_empty_result_of_another_format_has_a_text(session: recollect.Session) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    session.append({"role": "user", "content": "q"})
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "c", "content": ""})
    result = {"toolUseId": "c", "content": [{"text": "(no output)"}]}
    assert session.history("bedrock")[-1] == user({"toolResult": result})


def test_text_equal_in_every_format_is_written_as_blocks(session: recollect.Session) -> None:
    session.append({"role": "user", "content": "hi"}, format="bedrock")
    session.append(
        [{"role": "system", "content": "s"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]
    )
    assert session.history("bedrock") == [user({"text": "hi"}), assistant({"text": "a"})]
    assert session.history("openai")[0] == {"role": "user", "content": "hi"}


@pytest.mark.parametrize("block", [{"text": "hi"}, CALL, RESULT, {"cachePoint": {"type": "default"}}])
def test_a_message_is_detected(block: dict[str, Any]) -> None:
    assert read(user(block))[0].format == "bedrock"


@pytest.mark.parametrize("message", [user({}), user({"x": 1}), user({"text": "hi"}, {"type": "thinking"})])
def test_a_message_that_may_be_another_format_is_ambiguous(message: dict[str, Any]) -> None:
    with pytest.raises(AmbiguousFormat):
        read(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (user("hi"), r"content\[0\] must be a dict, got str"),
        ({"role": "user", "content": {"text": "hi"}}, "must be a list of blocks"),
        ({"role": "model", "content": []}, "Bedrock has no role 'model'"),
    ],
)
def test_a_malformed_message_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        read(message, "bedrock")


def test_signatures_and_calls_that_aws_executed_stay_with_bedrock(session: recollect.Session) -> None:
    server_call = {"toolUse": {**CALL["toolUse"], "type": "server_tool_use"}}
    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "secret"}}}
    messages = [user({"text": "q"}), assistant(reasoning, server_call, {"text": "a"})]
    session.append(messages)
    assert session.history("bedrock") == messages
    assert session.tools.list() == []
    assert session.history("anthropic")[-1] == {"role": "assistant", "content": "a"}
    assert "secret" not in str(
        [session.history(RegisteredFormat(name)) for name in formats.PROVIDERS if name != "bedrock"]
    )
