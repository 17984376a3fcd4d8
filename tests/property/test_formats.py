"""Whatever a message holds, it comes back equal in its own format, and valid in every other one."""

from __future__ import annotations

import json
from typing import Any

from formats_examples import assert_valid, exactly
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import formats
from recollect.model.json import encode
from recollect.model.message import Draft
from stored_drafts import stored

quick = settings(max_examples=150, deadline=None)
broad = settings(max_examples=60, deadline=None)

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
sources = st.one_of(
    block("base64", {"data": anything, "media_type": st.sampled_from(["image/png", "application/pdf", "x"])}),
    block("url", {"url": anything | st.just("https://example.org/a.pdf")}),
    block("text", {"data": anything, "media_type": st.just("text/plain")}),
    block("content", {"content": contents(texts | objects)}),
    block("file", {"file_id": anything}),
    values,
)
anthropic_results = block(
    "tool_result",
    {"tool_use_id": anything, "content": contents(texts | objects) | values, "is_error": st.booleans() | values},
)
anthropic_blocks = st.one_of(
    texts,
    anthropic_results,
    block("tool_use", {"id": anything, "name": anything, "input": objects | values}),
    block("thinking", {"thinking": anything, "signature": anything}),
    block("image", {"source": sources}),
    block("document", {"source": sources, "title": anything}),
    block("search_result", {"source": anything, "title": anything, "content": st.lists(texts, max_size=3)}),
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
openai_blocks = st.one_of(
    texts,
    block("image_url", {"image_url": block("", {"url": anything | st.just("data:image/png;base64,AA==")})}),
    block("input_audio", {"input_audio": st.fixed_dictionaries({"data": anything, "format": st.just("wav")})}),
    block("file", {"file": st.fixed_dictionaries({}, optional={"file_data": anything, "filename": anything})}),
    block("refusal", {"refusal": anything}),
    objects,
)
openai_messages = st.one_of(
    message(["user", "system", "developer", "function"], contents(openai_blocks)),
    message(
        ["assistant"],
        contents(openai_blocks),
        {"tool_calls": st.lists(calls, max_size=3) | values, "refusal": anything, "audio": objects},
    ),
    message(["tool"], contents(openai_blocks), {"tool_call_id": anything | values}),
)


data_urls = anything.map(lambda text: f"data:image/png;base64,{text}")
links = st.sampled_from(["https://example.org/a.png", "data:text/plain;base64,aGk=", "data:,hi", "data:"]) | data_urls
payloads = links | st.sampled_from(["aGk=", "AAAA" * 9]) | anything

item_texts = st.one_of(*[block(kind, {"text": anything}) for kind in ("input_text", "output_text", "text")])
item_blocks = st.one_of(
    item_texts,
    block("refusal", {"refusal": anything}),
    block("input_image", {"detail": st.just("auto"), "image_url": payloads}),
    block("input_file", {"file_data": payloads, "filename": anything}),
    block("input_file", {"file_url": payloads}),
    objects,
)
item_messages = message(["user", "assistant", "system", "developer"], st.lists(item_blocks, max_size=3) | anything)
item_messages = item_messages.filter(lambda item: isinstance(item.get("content"), str | list) and "output" not in item)
summaries = st.lists(block("summary_text", {"text": anything}), max_size=3)
outputs = contents(item_blocks) | values
item_kinds = [
    block("function_call", {"call_id": anything, "name": anything, "arguments": anything | objects.map(json.dumps)}),
    block("custom_tool_call", {"call_id": anything, "name": anything, "input": anything}),
    block("computer_call", {"call_id": anything, "action": objects}),
    block("computer_call", {"call_id": anything, "actions": st.lists(objects, max_size=2)}),
    block("shell_call", {"call_id": anything, "action": objects}),
    block("apply_patch_call", {"call_id": anything, "operation": objects}),
    block("function_call_output", {"call_id": anything, "output": outputs}),
    block("custom_tool_call_output", {"call_id": anything, "output": outputs}),
    block(
        "computer_call_output", {"call_id": anything, "output": block("computer_screenshot", {"image_url": payloads})}
    ),
    block("local_shell_call_output", {"id": anything, "output": outputs}),
    block("shell_call_output", {"call_id": anything, "output": st.lists(objects, max_size=2) | values}),
    block("apply_patch_call_output", {"call_id": anything, "status": st.sampled_from(["failed", "completed"])}),
    block("reasoning", {"id": anything, "summary": summaries, "encrypted_content": anything}),
    block("reasoning", {"summary": st.just([]), "content": st.lists(block("reasoning_text", {"text": anything}))}),
    block("image_generation_call", {"id": anything, "result": payloads | st.none()}),
    block("web_search_call", {"id": anything, "action": objects}),
    block("mcp_call", {"id": anything, "name": anything, "arguments": anything, "output": anything}),
]
some_items = st.one_of(*item_kinds).filter(lambda item: "type" in item and item["type"] != "message")
full_messages = st.builds(
    lambda content, fields: {"type": "message", "role": "assistant", "id": "m", "content": content, **fields},
    st.lists(item_blocks, max_size=3),
    st.fixed_dictionaries({}, optional={"status": anything, "x": values}),
)
items = some_items | full_messages | item_messages

tool_outputs = st.one_of(
    block("text", {"value": anything}),
    block("json", {"value": values}),
    block("error-text", {"value": anything}),
    block("error-json", {"value": values}),
    block("execution-denied", {"reason": anything}),
    block(
        "content",
        {
            "value": st.lists(
                texts
                | block("image-data", {"data": payloads, "mediaType": anything})
                | block("file-url", {"url": links})
                | objects,
                max_size=3,
            )
        },
    ),
    values,
)
model_calls = block("tool-call", {"toolCallId": anything, "toolName": anything, "input": objects | values})
model_results = block("tool-result", {"toolCallId": anything, "toolName": anything, "output": tool_outputs})
model_parts = st.one_of(
    texts,
    block("reasoning", {"text": anything}),
    block("image", {"image": payloads}),
    block("file", {"data": payloads, "mediaType": st.sampled_from(["application/pdf", "text/plain", "image/png", ""])}),
    model_calls,
    block("tool-call", {"toolCallId": anything, "toolName": anything, "args": objects}),
    block("tool-result", {"toolCallId": anything, "toolName": anything, "result": values}),
    model_results,
    objects,
)
model_messages = message(["user", "assistant", "system", "tool"], contents(model_parts) | st.lists(model_results))

states = [
    "input-streaming",
    "input-available",
    "approval-requested",
    "output-available",
    "output-error",
    "output-denied",
]
tool_parts = {"toolCallId": anything, "state": st.sampled_from(states), "input": objects | values}
ui_parts = st.one_of(
    texts,
    block("reasoning", {"text": anything}),
    block("step-start", {}),
    block("file", {"url": payloads, "mediaType": st.sampled_from(["application/pdf", "image/png", "text/plain"])}),
    block("tool-f", {**tool_parts, "output": values, "errorText": anything}),
    block("tool-f", {**tool_parts, "approval": objects}),
    block("tool-", {**tool_parts, "output": anything}),
    block("dynamic-tool", {**tool_parts, "toolName": anything, "output": values}),
    block(
        "tool-invocation",
        {
            "toolInvocation": st.fixed_dictionaries(
                {"state": st.sampled_from(["call", "result", "partial-call"]), "toolCallId": anything},
                optional={"toolName": anything, "args": values, "result": values},
            )
        },
    ),
    objects,
)
ui_messages = st.builds(
    lambda more, role, parts: {**more, "role": role, "parts": parts},
    objects,
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(ui_parts, max_size=4),
) | st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": anything},
    optional={"toolInvocations": values | st.lists(objects), "id": anything},
)

MESSAGES = {
    "anthropic": anthropic_messages,
    "openai": openai_messages,
    "openai-responses": items,
    "ai-sdk": model_messages,
    "ai-sdk-ui": ui_messages,
}


def comes_back(messages: list[dict[str, Any]], name: str) -> None:
    before = exactly(messages)
    assert exactly(formats.write(stored(formats.read(messages, name)), name)) == before
    assert exactly(messages) == before


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


FORMATS = ("anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui")


def holds(messages: list[dict[str, Any]], name: str) -> None:
    """Check a history: equal in its own format; in every other one valid, never blank, and stable from there on."""
    comes_back(messages, name)
    kept = stored(formats.read(messages, name))
    calls = {call.call_id for message in kept if message.role == "assistant" for call in message.tool_calls}
    for target in FORMATS:
        if target == name:
            continue
        written = formats.write(kept, target)
        assert_valid(written, target)
        for message in written:
            assert (
                "type" in message
                or message.get("content")
                or message.get("tool_calls")
                or message.get("parts")
                or (message["role"] == "tool" or (name, target) == ("ai-sdk-ui", "ai-sdk"))
            )
        again = stored(formats.read(written, target))
        assert exactly(formats.write(again, target)) == exactly(written)
        if target not in ("anthropic", "ai-sdk"):  # other letters for ids; more calls, those of providers
            assert {call.call_id for message in again for call in message.tool_calls} == calls


@broad
@given(st.lists(anthropic_messages, max_size=4))
def test_anthropic_messages_go_everywhere(messages: list[dict[str, Any]]) -> None:
    holds(messages, "anthropic")


@broad
@given(st.lists(openai_messages, max_size=4))
def test_openai_messages_go_everywhere(messages: list[dict[str, Any]]) -> None:
    holds(messages, "openai")


@broad
@given(st.lists(items, max_size=4))
def test_items_go_everywhere(messages: list[dict[str, Any]]) -> None:
    holds(messages, "openai-responses")


@broad
@given(st.lists(model_messages, max_size=4))
def test_model_messages_go_everywhere(messages: list[dict[str, Any]]) -> None:
    holds(messages, "ai-sdk")


@broad
@given(st.lists(ui_messages, max_size=4))
def test_ui_messages_go_everywhere(messages: list[dict[str, Any]]) -> None:
    holds(messages, "ai-sdk-ui")


@broad
@given(objects, st.lists(items, max_size=4), objects | st.none())
def test_responses_are_rebuilt(more: dict[str, Any], output: list[Any], usage: Any) -> None:
    response = {**more, "object": "response", "output": output, "usage": usage}
    (message,) = stored(formats.read(response, "openai-responses"))
    assert exactly(formats.response(message)) == exactly(response)
    assert exactly(formats.write([message], "openai-responses")) == exactly(output)


@broad
@given(st.data())
def test_a_session_of_all_formats_is_valid_in_each(data: st.DataObject) -> None:
    drafts: list[Draft] = []
    for name, kind in MESSAGES.items():
        drafts += formats.read(data.draw(st.lists(kind, max_size=2), label=name), name)
    kept = stored(data.draw(st.permutations(drafts), label="order"))
    for target in FORMATS:
        foreign = [message for message in kept if message.format != target]
        assert_valid(formats.write(foreign, target), target)
        formats.write(kept, target)
