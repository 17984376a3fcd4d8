"""A remainder of a stranger never changes what is sent: texts, names, arguments and results are the ones shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import formats
from recollect.context.history import history
from recollect.context.repair import problems
from recollect.model.message import Message
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

FORMATS = [name for name in formats.FORMATS if name != "recollect"]
HIDDEN = "HIDDEN"
wide = settings(max_examples=400, deadline=None)

keys = st.sampled_from(
    [
        "type", "role", "content", "text", "thinking", "input", "name", "id", "arguments", "function", "custom",
        "tool_calls", "function_call", "tool_call_id", "tool_use_id", "call_id", "output", "value", "result", "args",
        "state", "toolName", "toolCallId", "toolInvocation", "toolInvocations", "parts", "fields", "whole", "block",
        "at", "cut", "items", "count", "field", "response", "joined", "shadow", "refusal", "audio", "url", "data",
        "source", "image_url", "file", "summary", "is_error", "kind", "action", "cache_control", "signature",
    ]
)  # fmt: skip
words = st.sampled_from(
    [
        HIDDEN, "text", "user", "system", "assistant", "tool", "developer", "function", "message", "tool_use",
        "tool_result", "thinking", "function_call", "custom_tool_call", "computer_call", "function_call_output",
        "custom", "reasoning", "tool-call", "tool-result", "dynamic-tool", "tool-x", "output-available", "blocks",
        "string", "missing", "input_text", "output_text", "image", "base64", "content", "c1", "look",
    ]
)  # fmt: skip
leaves = words | st.none() | st.booleans() | st.integers(-2, 9)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
natives = st.none() | values | st.dictionaries(keys, values, max_size=5)
objects = st.none() | st.dictionaries(keys, values, max_size=5)

contents = st.one_of(
    st.builds(TextPart, text=st.just("shown text"), native=natives),
    st.builds(AttachmentPart, mime_type=st.just("text/plain"), text=st.just("shown file"), native=natives),
)
parts: st.SearchStrategy[Part] = st.one_of(
    contents,
    st.builds(ReasoningPart, text=st.just("shown thought"), native=natives),
    st.builds(ToolCallPart, call_id=st.just("c1"), tool=st.just("look"), arguments=st.just({"q": 1}), native=natives),
    st.builds(ToolCallPart, call_id=st.just("c2"), tool=st.just("look"), arguments_text=st.just("{}"), native=natives),
    st.builds(ToolResultPart, call_id=st.just("c1"), text=st.just("shown result"), native=natives),
    st.builds(ToolResultPart, call_id=st.just("c2"), content=st.tuples(contents), native=natives),
)
messages = st.builds(
    Message,
    branch=st.just(1),
    position=st.integers(1, 9),
    role=st.sampled_from(["user", "assistant", "tool", "system"]),
    parts=st.lists(parts, max_size=4).map(tuple),
    created_at=st.just(0),
    format=st.sampled_from(FORMATS),
    native=objects,
)


def sent(written: list[dict[str, Any]], format: str) -> set[str]:
    """Return what a provider takes as conversation from a request, read as that provider's format is."""
    found: set[str] = set()
    for draft in formats.read(written, format) if written else ():
        for part in draft.parts:
            found |= _said(part)
    return found


def _said(part: Part) -> set[str]:
    match part:
        case TextPart() | ReasoningPart():
            return {part.text}
        case ToolCallPart():
            return {part.tool, json.dumps(part.input)}
        case ToolResultPart():
            inside = set().union(*(_said(piece) for piece in part.content or ()))
            return inside | ({part.text} if part.text is not None else set())
        case AttachmentPart():
            return {text for text in (part.text, part.data, part.url) if text}
        case DataPart():
            return {json.dumps(part.native)}


@wide
@given(st.lists(messages, max_size=4), st.sampled_from(FORMATS), st.booleans())
def test_nothing_is_sent_that_is_not_shown(said: list[Message], format: str, repair: bool) -> None:
    shown = {"shown text", "shown file", "shown thought", "look", '{"q": 1}', "{}", "shown result"}
    for text in sent(history(said, format, repair=repair), format):
        assert HIDDEN not in text or text in shown, text
    problems(said, format)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("part", "role"),
    [
        (TextPart(text="shown", native={"text": HIDDEN, "content": HIDDEN}), "user"),
        (TextPart(text="shown", native={"type": "tool_use", "id": "x", "name": HIDDEN, "input": {}}), "assistant"),
        (TextPart(text="shown", native={"block": {"type": "text", "text": HIDDEN}}), "user"),
        (TextPart(text="shown", native={"block": {"type": "refusal", "refusal": HIDDEN, "x": None}, "at": [["x"]]}), "assistant"),
        (TextPart(text="shown", native={"field": ["content"]}), "assistant"),
        (ReasoningPart(text="shown", native={"block": {"type": "reasoning", "text": HIDDEN}}), "assistant"),
        (ReasoningPart(text="shown", native={"block": {"type": "reasoning", "summary": [{"type": "summary_text", "text": HIDDEN}]}}), "assistant"),
        (ToolCallPart(call_id="c", tool="shown", arguments={}, native={"whole": {"id": "c", "type": "function", "function": {"name": HIDDEN, "arguments": "{}"}}}), "assistant"),
        (ToolCallPart(call_id="c", tool="shown", arguments={}, native={"whole": {"type": "tool-call", "toolCallId": "c", "toolName": HIDDEN, "input": {}}}), "assistant"),
        (ToolCallPart(call_id="c", tool="shown", native={"input": HIDDEN, "arguments": HIDDEN, "name": HIDDEN}), "assistant"),
        (ToolCallPart(call_id="c", tool="shown", native={"type": "custom_tool_call", "input": HIDDEN}), "assistant"),
        (ToolCallPart(call_id="c", tool="shown", native={"type": "custom", "custom": {"input": HIDDEN}}), "assistant"),
        (ToolCallPart(call_id="c", tool="shown", arguments={}, native={"state": "output-available", "output": HIDDEN}), "assistant"),
        (AttachmentPart(mime_type="image/png", data="AA==", native={"block": {"type": "text", "text": HIDDEN}, "at": []}), "user"),
        (AttachmentPart(mime_type="image/png", url="https://example.org/a.png", native={"block": {"type": "input_image", "image_url": "https://example.org/HIDDEN"}}), "user"),
        (DataPart(data="shown", native={"type": "text", "text": HIDDEN}), "user"),
    ],
)  # fmt: skip
def test_a_forged_remainder_is_left_out(part: Part, role: Any, format: str) -> None:
    message = Message(1, 1, role, (part, TextPart(text="too")), 0, format=format)
    for target in FORMATS:
        assert HIDDEN not in json.dumps(sorted(sent(history([message], target), target)))
    assert history([message], "recollect")[0]["parts"][0].get("native") == part.native  # stored as it came


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "native",
    [
        {"role": "system"},
        {"role": "user"},
        {"role": "developer"},
        {"fields": {"role": "system", "content": HIDDEN, "parts": [{"type": "text", "text": HIDDEN}]}},
        {"items": [{"count": 1, "fields": {"type": "message", "role": "system"}}]},
        {"items": [{"count": 0, "fields": {}}]},
        {"items": [{"count": -1, "fields": {}}], "response": {}},
        {"items": 5},
        {"fields": 5, "content": []},
        {"content": "string", "fields": {"toolInvocations": [{"toolCallId": "c", "toolName": HIDDEN, "state": "call"}]}},
    ],
)  # fmt: skip
def test_an_agents_words_stay_the_agents(native: dict[str, Any], format: str) -> None:
    message = Message(1, 1, "assistant", (TextPart(text="shown"),), 0, format=format, native=native)
    question = Message(1, 2, "user", (TextPart(text="question"),), 0)
    for target in FORMATS:
        for written in (history([message, question], target), history([message, question], target, repair=False)):
            drafts = formats.read(written, target)
            roles = {draft.role for draft in drafts for part in draft.parts if _said(part) == {"shown"}}
            assert roles == {"assistant"}
            assert not any(HIDDEN in said for draft in drafts for part in draft.parts for said in _said(part))
