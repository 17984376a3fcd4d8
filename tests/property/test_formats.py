"""Whatever a message holds, it comes back equal in its own format, and valid in the other one."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import formats
from recollect.model.json import decode, decode_as, encode
from recollect.model.message import Draft, Message
from recollect.model.part import Part

quick = settings(max_examples=150, deadline=None)

anything = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(["", "\0", "\ud800", "é", "🤖"])
clean = st.text(max_size=8)  # without lone surrogates, which pydantic refuses
names = st.sampled_from(["id", "type", "text", "whole", "native", "cache_control", "citations", "name", "x"]) | clean
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.integers(-(2**90), 2**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e300])
    | anything
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)
objects = st.dictionaries(names, values, max_size=3)


def block(kind: str, fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Build blocks of a type in which each field is as it should be, odd or missing, and further fields may stand."""
    usual = st.fixed_dictionaries({"type": st.just(kind), **fields})
    spoiled = st.fixed_dictionaries({}, optional={"type": st.just(kind), **dict.fromkeys(fields, values)})
    return st.one_of(usual, usual, st.builds(lambda more, known: {**more, **known}, objects, usual | spoiled))


def contents(blocks: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return st.lists(blocks, max_size=3) | anything | st.none()


def message(
    roles: list[str], content: st.SearchStrategy[Any], optional: dict[str, Any] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    known = st.fixed_dictionaries({"role": st.sampled_from(roles)}, optional={"content": content, **(optional or {})})
    fields = st.dictionaries(names.filter(lambda name: name != "type"), values, max_size=2)
    return known | st.builds(lambda more, rest: {**more, **rest}, fields, known)


texts = block("text", {"text": anything})
anthropic_results = block(
    "tool_result",
    {"tool_use_id": anything, "content": contents(texts | objects) | values, "is_error": st.booleans() | values},
)
anthropic_blocks = st.one_of(
    texts,
    anthropic_results,
    block("tool_use", {"id": anything, "name": anything, "input": objects | values}),
    block("thinking", {"thinking": anything, "signature": anything}),
    objects,
)
anthropic_messages = message(
    ["user", "assistant", "system"], contents(anthropic_blocks) | st.lists(anthropic_results, max_size=3)
)

functions = block("", {"name": anything, "arguments": anything | objects.map(json.dumps)})
functions = functions.map(lambda function: {name: value for name, value in function.items() if name != "type"})
customs = functions.map(lambda function: {{"arguments": "input"}.get(key, key): function[key] for key in function})
calls = st.one_of(
    block("function", {"id": anything, "function": functions | values}),
    block("custom", {"id": anything, "custom": customs | values}),
)
openai_blocks = texts | block("image_url", {"image_url": objects}) | block("refusal", {"refusal": anything}) | objects
openai_messages = st.one_of(
    message(["user", "system", "developer", "function"], contents(openai_blocks)),
    message(["assistant"], contents(openai_blocks), {"tool_calls": st.lists(calls, max_size=3) | values}),
    message(["tool"], contents(openai_blocks), {"tool_call_id": anything | values}),
)


def stored(drafts: list[Draft]) -> list[Message]:
    """Take drafts through the JSON that the store writes."""
    return [
        Message(
            branch=1,
            position=place,
            role=draft.role,
            parts=decode_as(tuple[Part, ...], encode(draft.parts)),
            format=draft.format,
            native=decode(encode(draft.native)),
            created_at=0,
        )
        for place, draft in enumerate(drafts, 1)
    ]


def exactly(value: Any) -> str:
    """Write a value so that True, 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True)


def comes_back(messages: list[dict[str, Any]], name: str) -> None:
    before = exactly(messages)
    assert exactly(formats.write(stored(formats.read(messages, name)), name)) == before
    assert exactly(messages) == before


@quick
@given(st.lists(anthropic_messages, max_size=3))
def test_anthropic_messages_come_back_equal(messages: list[dict[str, Any]]) -> None:
    comes_back(messages, "anthropic")


@quick
@given(st.lists(openai_messages, max_size=3))
def test_openai_messages_come_back_equal(messages: list[dict[str, Any]]) -> None:
    comes_back(messages, "openai")


@quick
@given(st.sampled_from(["user", "assistant"]), anything | st.lists(texts.filter(lambda b: len(b) == 2), max_size=3))
def test_neutral_messages_come_back_equal_in_both(role: str, content: Any) -> None:
    text_only = isinstance(content, str) or all(
        b.keys() == {"type", "text"} and type(b["text"]) is str for b in content
    )
    if text_only:
        messages = stored(formats.read({"role": role, "content": content}))
        assert messages[0].format is None
        for name in ("anthropic", "openai"):
            assert formats.write(messages, name) == [{"role": role, "content": content}]


@quick
@given(objects, st.lists(anthropic_blocks, max_size=3), objects | st.none())
def test_anthropic_responses_are_rebuilt(more: dict[str, Any], content: list[Any], usage: Any) -> None:
    response = {**more, "type": "message", "role": "assistant", "content": content, "usage": usage}
    (message,) = stored(formats.read(response))
    assert exactly(formats.response(message)) == exactly(response)
    assert exactly(formats.write([message], "anthropic")) == exactly([{"role": "assistant", "content": content}])


@quick
@given(objects, openai_messages.filter(lambda m: m["role"] == "assistant"), objects, st.lists(objects, max_size=2))
def test_chat_completions_are_rebuilt(
    more: dict[str, Any], said: dict[str, Any], choice: dict[str, Any], others: list[Any]
) -> None:
    response = {**more, "object": "chat.completion", "choices": [{**choice, "message": said}, *others]}
    (message,) = stored(formats.read(response))
    assert exactly(formats.response(message)) == exactly(response)


@quick
@given(st.lists(anthropic_messages, max_size=4), st.lists(openai_messages, max_size=4))
def test_plain_messages_are_read_again(of_anthropic: list[dict[str, Any]], of_openai: list[dict[str, Any]]) -> None:
    drafts = formats.read(of_anthropic, "anthropic") + formats.read(of_openai, "openai")
    again = formats.read(formats.write(stored(drafts), "recollect"), "recollect")
    for draft, copy in zip(drafts, again, strict=True):
        assert (copy.role, copy.format) == (draft.role, draft.format)
        assert encode(copy.parts) == encode(draft.parts)
        assert encode(copy.native) == encode(draft.native)


def unread(value: Any) -> Any:
    """Read the iterators that pydantic leaves lazy, so that their items are checked too."""
    if isinstance(value, dict):
        return {name: unread(item) for name, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [unread(item) for item in value]


@functools.cache
def adapter(module: str, name: str) -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.TypeAdapter(getattr(pytest.importorskip(module), name))


def is_clean(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@quick
@given(st.lists(anthropic_messages, max_size=4))
def test_translations_to_openai_are_valid(messages: list[dict[str, Any]]) -> None:
    written = formats.write(stored(formats.read(messages, "anthropic")), "openai")
    valid = adapter("openai.types.chat", "ChatCompletionMessageParam")
    for message in written:
        assert message["content"] or message.get("tool_calls") or message["role"] == "tool"
        if is_clean(message):
            assert unread(valid.validate_python(message)) == message


@quick
@given(st.lists(openai_messages, max_size=4))
def test_translations_to_anthropic_are_valid(messages: list[dict[str, Any]]) -> None:
    written = formats.write(stored(formats.read(messages, "openai")), "anthropic")
    valid = adapter("anthropic.types", "MessageParam")
    for message in written:
        assert message["role"] in ("user", "assistant")
        assert message["content"]
        if is_clean(message):
            assert unread(valid.validate_python(message)) == message
