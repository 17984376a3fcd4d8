"""Every content block, item and message of the official SDKs round-trips, and is valid in every other format.

The examples are generated from the SDKs' type definitions, so a type that a new version adds is tested when it is
installed.
"""

from __future__ import annotations

import importlib
import typing
from typing import Any

import pytest
from formats_examples import assert_valid, canonical_json, examples, fields, strip_qualifiers, type_adapter

from recollect import formats
from recollect.formats import detection
from stored_drafts import to_messages

TARGETS = formats.PROVIDERS


def alternatives(module: str, name: str) -> list[Any]:
    """Return the types of a union."""
    return alternatives_of(strip_qualifiers(getattr(pytest.importorskip(module), name)))


def alternatives_of(kind: Any) -> list[Any]:
    return [
        alternative for part in typing.get_args(kind) for alternative in alternatives_of(strip_qualifiers(part))
    ] or [kind]


def blocks(module: str, name: str) -> list[Any]:
    return [pytest.param(kind, id=kind.__name__) for kind in alternatives(module, name)]


def assert_round_trip(messages: list[dict[str, Any]], name: str) -> None:
    """Check that messages are equal in their own format, and valid and stable in every other one."""
    before = canonical_json(messages)
    stored_messages = to_messages(formats.read(messages, name))
    assert canonical_json(formats.write(stored_messages, name)) == before
    for target in TARGETS:
        if target != name:
            output = formats.write(stored_messages, target)
            assert_valid(output, target)
            again = to_messages(formats.read(output, target))
            assert canonical_json(formats.write(again, target)) == canonical_json(output)


@pytest.mark.parametrize("kind", blocks("anthropic.types", "ContentBlockParam"))
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_anthropic_blocks(kind: Any, role: str) -> None:
    content_blocks = list(examples(kind))
    assert content_blocks
    for block in content_blocks:
        message = {"role": role, "content": [block, {"type": "text", "text": "after"}]}
        assert_round_trip([message], "anthropic")
        type_adapter("anthropic.types", "MessageParam").validate_python(message)


@pytest.mark.parametrize("kind", blocks("anthropic.types.beta", "BetaContentBlockParam"))
def test_anthropic_beta_blocks(kind: Any) -> None:
    for block in examples(kind, 5):
        assert_round_trip([{"role": "assistant", "content": [block]}], "anthropic")


@pytest.mark.parametrize("kind", blocks("anthropic.types", "ContentBlock"))
def test_anthropic_responses(kind: Any) -> None:
    types: Any = pytest.importorskip("anthropic.types")
    envelope = {
        "type": "message",
        "role": "assistant",
        "id": "msg",
        "model": "m",
        "stop_reason": None,
        "stop_sequence": None,
    }
    for block in examples(kind, 5):
        response = {**envelope, "content": [block], "usage": {"input_tokens": 1, "output_tokens": 2}}
        model = types.Message.model_validate(response)
        (message,) = to_messages(formats.read(model))
        assert canonical_json(formats.response(message)) == canonical_json(response)
        assert canonical_json(formats.write([message], "anthropic")) == canonical_json(
            [{"role": "assistant", "content": [block]}]
        )
        from_objects = to_messages(formats.read({"role": "assistant", "content": model.content}, "anthropic"))
        assert from_objects[0].parts == message.parts
        for target in TARGETS[1:]:
            assert_valid(formats.write([message], target), target)


@pytest.mark.parametrize("kind", blocks("openai.types.chat", "ChatCompletionMessageParam"))
def test_openai_chat_messages(kind: Any) -> None:
    messages = list(examples(kind))
    assert messages
    for message in messages:
        assert_round_trip([message], "openai")


def test_chat_completions() -> None:
    chat: Any = pytest.importorskip("openai.types.chat")
    for completion in examples(chat.ChatCompletion, 7):
        if completion["choices"]:
            model = chat.ChatCompletion.model_validate(completion)
            (message,) = to_messages(formats.read(model))
            assert canonical_json(formats.response(message)) == canonical_json(completion)
            for target in TARGETS:
                assert_valid(formats.write([message], target), target)


@pytest.mark.parametrize("kind", blocks("openai.types.responses", "ResponseInputItemParam"))
def test_openai_response_items(kind: Any) -> None:
    items = list(examples(kind, 6))
    assert items
    for item in items:
        assert_round_trip([item], "openai-responses")
        assert_round_trip([item, item], "openai-responses")
        if item.get("type") in detection._ITEM_TYPES:
            assert formats.read(item) == formats.read(item, "openai-responses")


@pytest.mark.parametrize("kind", blocks("openai.types.responses", "ResponseOutputItem"))
def test_output_items_of_a_response(kind: Any) -> None:
    responses: Any = pytest.importorskip("openai.types.responses")
    envelope = next(value for value in examples(responses.Response, 2) if value.get("object") == "response") | {
        "output": [],
        "tools": [],
    }
    for item in examples(kind, 5):
        response = {**envelope, "output": [item, item]}
        model = responses.Response.model_validate(response)
        (message,) = to_messages(formats.read(model))
        assert canonical_json(formats.response(message)) == canonical_json(response)
        assert canonical_json(formats.write([message], "openai-responses")) == canonical_json([item, item])
        items = to_messages(formats.read(model.output, "openai-responses"))
        assert canonical_json(formats.write(items, "openai-responses")) == canonical_json([item, item])
        for target in TARGETS:
            if target != "openai-responses":
                assert_valid(formats.write([message], target), target)
                assert formats.write(items, target) == formats.write([message], target)


def test_the_generator_finds_known_types() -> None:
    """Without this test, a new structure of the SDKs could leave the other tests without examples."""
    kinds = {kind.values[0].__name__ for kind in blocks("anthropic.types", "ContentBlockParam")}
    assert {"TextBlockParam", "ThinkingBlockParam", "ToolUseBlockParam", "DocumentBlockParam"} <= kinds
    module = importlib.import_module("anthropic.types")
    assert fields(module.ThinkingBlockParam).keys() == {"type", "thinking", "signature"}
    sources = [block["source"]["type"] for block in examples(module.DocumentBlockParam)]
    assert {"base64", "text", "content", "url", "file"} <= set(sources)
    items = {kind.values[0].__name__ for kind in blocks("openai.types.responses", "ResponseInputItemParam")}
    assert {"FunctionCallOutput", "ComputerCallOutput", "ItemReference", "McpCall"} <= items
