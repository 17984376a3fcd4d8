"""Every content block, item and message that the official SDKs define goes round, and is valid wherever it goes.

The examples are made by walking the SDKs' type definitions, so a type that a new version adds is tested when it is
installed.
"""

from __future__ import annotations

import importlib
import typing
from typing import Any

import pytest
from formats_examples import adapter, assert_valid, bare, exactly, examples, fields

from recollect import formats
from recollect.formats import guess
from stored_drafts import stored

TARGETS = ("anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui")


def alternatives(module: str, name: str) -> list[Any]:
    """Give the types that a union has."""
    return alternatives_of(bare(getattr(pytest.importorskip(module), name)))


def alternatives_of(kind: Any) -> list[Any]:
    return [one for part in typing.get_args(kind) for one in alternatives_of(bare(part))] or [kind]


def blocks(module: str, name: str) -> list[Any]:
    return [pytest.param(kind, id=kind.__name__) for kind in alternatives(module, name)]


def goes_round(messages: list[dict[str, Any]], name: str) -> None:
    before = exactly(messages)
    kept = stored(formats.read(messages, name))
    assert exactly(formats.write(kept, name)) == before
    for target in TARGETS:
        if target != name:
            written = formats.write(kept, target)
            assert_valid(written, target)
            again = stored(formats.read(written, target))
            assert exactly(formats.write(again, target)) == exactly(written)


@pytest.mark.parametrize("kind", blocks("anthropic.types", "ContentBlockParam"))
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_anthropics_blocks(kind: Any, role: str) -> None:
    found = list(examples(kind))
    assert found
    for block in found:
        message = {"role": role, "content": [block, {"type": "text", "text": "after"}]}
        goes_round([message], "anthropic")
        adapter("anthropic.types", "MessageParam").validate_python(message)


@pytest.mark.parametrize("kind", blocks("anthropic.types.beta", "BetaContentBlockParam"))
def test_anthropics_beta_blocks(kind: Any) -> None:
    for block in examples(kind, 5):
        goes_round([{"role": "assistant", "content": [block]}], "anthropic")


@pytest.mark.parametrize("kind", blocks("anthropic.types", "ContentBlock"))
def test_anthropics_responses(kind: Any) -> None:
    types: Any = pytest.importorskip("anthropic.types")
    told = {
        "type": "message",
        "role": "assistant",
        "id": "msg",
        "model": "m",
        "stop_reason": None,
        "stop_sequence": None,
    }
    for block in examples(kind, 5):
        response = {**told, "content": [block], "usage": {"input_tokens": 1, "output_tokens": 2}}
        found = types.Message.model_validate(response)
        (message,) = stored(formats.read(found))
        assert exactly(formats.response(message)) == exactly(response)
        assert exactly(formats.write([message], "anthropic")) == exactly([{"role": "assistant", "content": [block]}])
        of_objects = stored(formats.read({"role": "assistant", "content": found.content}, "anthropic"))
        assert of_objects[0].parts == message.parts
        for target in TARGETS[1:]:
            assert_valid(formats.write([message], target), target)


@pytest.mark.parametrize("kind", blocks("openai.types.chat", "ChatCompletionMessageParam"))
def test_openais_chat_messages(kind: Any) -> None:
    found = list(examples(kind))
    assert found
    for message in found:
        goes_round([message], "openai")


def test_chat_completions() -> None:
    chat: Any = pytest.importorskip("openai.types.chat")
    for completion in examples(chat.ChatCompletion, 7):
        if completion["choices"]:
            found = chat.ChatCompletion.model_validate(completion)
            (message,) = stored(formats.read(found))
            assert exactly(formats.response(message)) == exactly(completion)
            for target in TARGETS:
                assert_valid(formats.write([message], target), target)


@pytest.mark.parametrize("kind", blocks("openai.types.responses", "ResponseInputItemParam"))
def test_items(kind: Any) -> None:
    found = list(examples(kind, 6))
    assert found
    for item in found:
        goes_round([item], "openai-responses")
        goes_round([item, item], "openai-responses")
        if item.get("type") in guess._ITEMS:
            assert formats.read(item) == formats.read(item, "openai-responses")


@pytest.mark.parametrize("kind", blocks("openai.types.responses", "ResponseOutputItem"))
def test_output_items_of_a_response(kind: Any) -> None:
    responses: Any = pytest.importorskip("openai.types.responses")
    told = next(value for value in examples(responses.Response, 2) if value.get("object") == "response") | {
        "output": [],
        "tools": [],
    }
    for item in examples(kind, 5):
        response = {**told, "output": [item, item]}
        found = responses.Response.model_validate(response)
        (message,) = stored(formats.read(found))
        assert exactly(formats.response(message)) == exactly(response)
        assert exactly(formats.write([message], "openai-responses")) == exactly([item, item])
        listed = stored(formats.read(found.output, "openai-responses"))
        assert exactly(formats.write(listed, "openai-responses")) == exactly([item, item])
        for target in TARGETS:
            if target != "openai-responses":
                assert_valid(formats.write([message], target), target)
                assert formats.write(listed, target) == formats.write([message], target)


def test_the_walk_finds_what_is_known() -> None:
    """The walk itself: it would find nothing in silence if the SDKs were built differently."""
    kinds = {kind.values[0].__name__ for kind in blocks("anthropic.types", "ContentBlockParam")}
    assert {"TextBlockParam", "ThinkingBlockParam", "ToolUseBlockParam", "DocumentBlockParam"} <= kinds
    module = importlib.import_module("anthropic.types")
    assert fields(module.ThinkingBlockParam).keys() == {"type", "thinking", "signature"}
    sources = [block["source"]["type"] for block in examples(module.DocumentBlockParam)]
    assert {"base64", "text", "content", "url", "file"} <= set(sources)
    items = {kind.values[0].__name__ for kind in blocks("openai.types.responses", "ResponseInputItemParam")}
    assert {"FunctionCallOutput", "ComputerCallOutput", "ItemReference", "McpCall"} <= items
