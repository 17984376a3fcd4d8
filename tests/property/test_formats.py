"""Messages with any content round-trip in their own format, and are valid in every other one."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from formats_examples import assert_valid, canonical_json
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import formats
from recollect.model.json import encode
from recollect.model.message import Draft
from stored_drafts import to_messages

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "unit"))

from formats_table import EXAMPLES, encode_bytes

many_examples = settings(max_examples=150, deadline=None)
few_examples = settings(max_examples=60, deadline=None)

any_text = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(["", "\0", "\ud800", "é", "🤖"])
valid_text = st.text(max_size=8)  # without lone surrogates, which pydantic rejects
names = (
    st.sampled_from(["id", "type", "text", "whole", "native", "cache_control", "citations", "name", "x"]) | valid_text
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.integers(-(2**90), 2**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e300])
    | any_text
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)
objects = st.dictionaries(names, values, max_size=3)


def block(kind: str, fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Build blocks of a type in which each field is valid, of any type or missing, with or without other fields."""
    valid = st.fixed_dictionaries({"type": st.just(kind), **fields})
    malformed = st.fixed_dictionaries({}, optional={"type": st.just(kind), **dict.fromkeys(fields, values)})
    return st.one_of(valid, valid, st.builds(lambda more, block: {**more, **block}, objects, valid | malformed))


def contents(blocks: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return st.lists(blocks, max_size=3) | any_text | st.none()


def message(
    roles: list[str], content: st.SearchStrategy[Any], optional: dict[str, Any] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    message = st.fixed_dictionaries({"role": st.sampled_from(roles)}, optional={"content": content, **(optional or {})})
    fields = st.dictionaries(names.filter(lambda name: name != "type"), values, max_size=2)
    return message | st.builds(lambda more, rest: {**more, **rest}, fields, message)


texts = block("text", {"text": any_text})
sources = st.one_of(
    block("base64", {"data": any_text, "media_type": st.sampled_from(["image/png", "application/pdf", "x"])}),
    block("url", {"url": any_text | st.just("https://example.org/a.pdf")}),
    block("text", {"data": any_text, "media_type": st.just("text/plain")}),
    block("content", {"content": contents(texts | objects)}),
    block("file", {"file_id": any_text}),
    values,
)
anthropic_results = block(
    "tool_result",
    {"tool_use_id": any_text, "content": contents(texts | objects) | values, "is_error": st.booleans() | values},
)
anthropic_blocks = st.one_of(
    texts,
    anthropic_results,
    block("tool_use", {"id": any_text, "name": any_text, "input": objects | values}),
    block("thinking", {"thinking": any_text, "signature": any_text}),
    block("image", {"source": sources}),
    block("document", {"source": sources, "title": any_text}),
    block("search_result", {"source": any_text, "title": any_text, "content": st.lists(texts, max_size=3)}),
    objects,
)
anthropic_messages = message(
    ["user", "assistant", "system"], contents(anthropic_blocks) | st.lists(anthropic_results, max_size=3)
)

functions = block("", {"name": any_text, "arguments": any_text | objects.map(json.dumps)})
functions = functions.map(lambda function: {name: value for name, value in function.items() if name != "type"})
customs = functions.map(lambda function: {{"arguments": "input"}.get(key, key): function[key] for key in function})
calls = st.one_of(
    block("function", {"id": any_text, "function": functions | values}),
    block("custom", {"id": any_text, "custom": customs | values}),
)
openai_blocks = st.one_of(
    texts,
    block("image_url", {"image_url": block("", {"url": any_text | st.just("data:image/png;base64,AA==")})}),
    block("input_audio", {"input_audio": st.fixed_dictionaries({"data": any_text, "format": st.just("wav")})}),
    block("file", {"file": st.fixed_dictionaries({}, optional={"file_data": any_text, "filename": any_text})}),
    block("refusal", {"refusal": any_text}),
    objects,
)
openai_messages = st.one_of(
    message(["user", "system", "developer", "function"], contents(openai_blocks)),
    message(
        ["assistant"],
        contents(openai_blocks),
        {"tool_calls": st.lists(calls, max_size=3) | values, "refusal": any_text, "audio": objects},
    ),
    message(["tool"], contents(openai_blocks), {"tool_call_id": any_text | values}),
)


data_urls = any_text.map(lambda text: f"data:image/png;base64,{text}")
links = st.sampled_from(["https://example.org/a.png", "data:text/plain;base64,aGk=", "data:,hi", "data:"]) | data_urls
payloads = links | st.sampled_from(["aGk=", "AAAA" * 9]) | any_text

item_texts = st.one_of(*[block(kind, {"text": any_text}) for kind in ("input_text", "output_text", "text")])
item_blocks = st.one_of(
    item_texts,
    block("refusal", {"refusal": any_text}),
    block("input_image", {"detail": st.just("auto"), "image_url": payloads}),
    block("input_file", {"file_data": payloads, "filename": any_text}),
    block("input_file", {"file_url": payloads}),
    objects,
)
item_messages = message(["user", "assistant", "system", "developer"], st.lists(item_blocks, max_size=3) | any_text)
item_messages = item_messages.filter(lambda item: isinstance(item.get("content"), str | list) and "output" not in item)
summaries = st.lists(block("summary_text", {"text": any_text}), max_size=3)
outputs = contents(item_blocks) | values
item_kinds = [
    block("function_call", {"call_id": any_text, "name": any_text, "arguments": any_text | objects.map(json.dumps)}),
    block("custom_tool_call", {"call_id": any_text, "name": any_text, "input": any_text}),
    block("computer_call", {"call_id": any_text, "action": objects}),
    block("computer_call", {"call_id": any_text, "actions": st.lists(objects, max_size=2)}),
    block("shell_call", {"call_id": any_text, "action": objects}),
    block("apply_patch_call", {"call_id": any_text, "operation": objects}),
    block("function_call_output", {"call_id": any_text, "output": outputs}),
    block("custom_tool_call_output", {"call_id": any_text, "output": outputs}),
    block(
        "computer_call_output", {"call_id": any_text, "output": block("computer_screenshot", {"image_url": payloads})}
    ),
    block("local_shell_call_output", {"id": any_text, "output": outputs}),
    block("shell_call_output", {"call_id": any_text, "output": st.lists(objects, max_size=2) | values}),
    block("apply_patch_call_output", {"call_id": any_text, "status": st.sampled_from(["failed", "completed"])}),
    block("reasoning", {"id": any_text, "summary": summaries, "encrypted_content": any_text}),
    block("reasoning", {"summary": st.just([]), "content": st.lists(block("reasoning_text", {"text": any_text}))}),
    block("image_generation_call", {"id": any_text, "result": payloads | st.none()}),
    block("web_search_call", {"id": any_text, "action": objects}),
    block("mcp_call", {"id": any_text, "name": any_text, "arguments": any_text, "output": any_text}),
]
typed_items = st.one_of(*item_kinds).filter(lambda item: "type" in item and item["type"] != "message")
full_messages = st.builds(
    lambda content, fields: {"type": "message", "role": "assistant", "id": "m", "content": content, **fields},
    st.lists(item_blocks, max_size=3),
    st.fixed_dictionaries({}, optional={"status": any_text, "x": values}),
)
items = typed_items | full_messages | item_messages

tool_outputs = st.one_of(
    block("text", {"value": any_text}),
    block("json", {"value": values}),
    block("error-text", {"value": any_text}),
    block("error-json", {"value": values}),
    block("execution-denied", {"reason": any_text}),
    block(
        "content",
        {
            "value": st.lists(
                texts
                | block("image-data", {"data": payloads, "mediaType": any_text})
                | block("file-url", {"url": links})
                | objects,
                max_size=3,
            )
        },
    ),
    values,
)
model_calls = block("tool-call", {"toolCallId": any_text, "toolName": any_text, "input": objects | values})
model_results = block("tool-result", {"toolCallId": any_text, "toolName": any_text, "output": tool_outputs})
model_parts = st.one_of(
    texts,
    block("reasoning", {"text": any_text}),
    block("image", {"image": payloads}),
    block("file", {"data": payloads, "mediaType": st.sampled_from(["application/pdf", "text/plain", "image/png", ""])}),
    model_calls,
    block("tool-call", {"toolCallId": any_text, "toolName": any_text, "args": objects}),
    block("tool-result", {"toolCallId": any_text, "toolName": any_text, "result": values}),
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
tool_parts = {"toolCallId": any_text, "state": st.sampled_from(states), "input": objects | values}
ui_parts = st.one_of(
    texts,
    block("reasoning", {"text": any_text}),
    block("step-start", {}),
    block("file", {"url": payloads, "mediaType": st.sampled_from(["application/pdf", "image/png", "text/plain"])}),
    block("tool-f", {**tool_parts, "output": values, "errorText": any_text}),
    block("tool-f", {**tool_parts, "approval": objects}),
    block("tool-", {**tool_parts, "output": any_text}),
    block("dynamic-tool", {**tool_parts, "toolName": any_text, "output": values}),
    block(
        "tool-invocation",
        {
            "toolInvocation": st.fixed_dictionaries(
                {"state": st.sampled_from(["call", "result", "partial-call"]), "toolCallId": any_text},
                optional={"toolName": any_text, "args": values, "result": values},
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
    {"role": st.sampled_from(["user", "assistant"]), "content": any_text},
    optional={"toolInvocations": values | st.lists(objects), "id": any_text},
)


def part(kind: str, fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Build parts of Pydantic AI, as block() builds blocks."""
    parts = block(kind, fields).map(
        lambda fields: {{"type": "part_kind"}.get(name, name): value for name, value in fields.items()}
    )
    return parts | block(kind, fields)


def content_item(kind: str, fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return block(kind, fields).map(
        lambda fields: {{"type": "kind"}.get(name, name): value for name, value in fields.items()}
    )


base64_texts = st.sampled_from(["aGk=", "_-_-", "//79", "_/+-", "AAAA" * 9]) | any_text
binaries = content_item("binary", {"data": base64_texts, "media_type": st.sampled_from(["image/png", "text/plain"])})
prompt_items = st.one_of(
    any_text,
    binaries,
    content_item("image-url", {"url": links, "media_type": st.none() | st.just("image/png")}),
    content_item("document-url", {"url": links}),
    content_item("uploaded-file", {"file_id": any_text, "provider_name": st.just("openai")}),
    content_item("text-content", {"content": any_text}),
    content_item("structured-content", {"content": any_text, "value": values}),
    content_item("cache-point", {"ttl": any_text}),
)
prompt_contents = any_text | st.lists(prompt_items, max_size=4) | st.lists(prompt_items | values, max_size=3) | values
speech = {"speaker": st.just("user"), "transcript": any_text | st.none(), "audio": binaries | st.none()}
tool_ids = {"tool_name": any_text, "tool_call_id": any_text}
outcomes = st.sampled_from(["success", "failed", "denied", "interrupted", "retried"])
request_parts = st.one_of(
    part("system-prompt", {"content": any_text, "timestamp": any_text}),
    part("user-prompt", {"content": prompt_contents, "timestamp": st.just("2026-11-19T10:00:00.123456Z")}),
    part("tool-return", {**tool_ids, "content": prompt_contents, "outcome": outcomes}),
    part("tool-return", {**tool_ids, "content": values | prompt_items}),
    part("retry-prompt", {**tool_ids, "content": any_text | st.lists(objects, max_size=2)}),
    part("retry-prompt", {"content": any_text | st.lists(objects, max_size=2)}),
    part("retry-feedback", {"content": any_text | st.lists(objects, max_size=2), "retry": objects}),
    part("compaction", {"content": any_text | st.none()}),
    part("speech", speech),
    part("instruction-baseline", {"instructions": st.lists(objects, max_size=2)}),
    objects,
)
response_parts = st.one_of(
    part("text", {"content": any_text, "id": any_text}),
    part("thinking", {"content": any_text, "signature": any_text}),
    part("tool-call", {**tool_ids, "args": any_text | objects | st.none()}),
    part("builtin-tool-call", {**tool_ids, "args": objects}),
    part("builtin-tool-return", {**tool_ids, "content": prompt_contents}),
    part("compaction", {"content": any_text | st.none()}),
    part("file", {"content": binaries | values}),
    part("speech", speech),
    objects,
)
pydantic_messages = st.one_of(
    st.builds(
        lambda more, parts: {**more, "kind": "request", "parts": parts}, objects, st.lists(request_parts, max_size=5)
    ),
    st.builds(
        lambda more, parts: {**more, "kind": "response", "parts": parts}, objects, st.lists(response_parts, max_size=5)
    ),
)


def with_content(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the blocks of its calls in its content, as some providers repeat them."""
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in message["tool_calls"]
    ]
    return {**message, "content": [*message["content"], *calls]}


lc_blocks = st.one_of(
    any_text,
    texts,
    block("reasoning", {"reasoning": any_text}),
    block("thinking", {"thinking": any_text, "signature": any_text}),
    block("refusal", {"refusal": any_text}),
    *[block(kind, {"base64": base64_texts, "mime_type": any_text}) for kind in ("image", "audio", "file")],
    *[block(kind, {"url": links, "mime_type": any_text}) for kind in ("image", "video", "file")],
    block("image", {"source_type": st.just("base64"), "data": base64_texts, "mime_type": st.just("image/png")}),
    block("image", {"source": sources}),
    block("image_url", {"image_url": block("", {"url": links}) | links}),
    block("input_audio", {"input_audio": st.fixed_dictionaries({"data": any_text, "format": st.just("wav")})}),
    block("text-plain", {"text": any_text, "title": any_text, "mime_type": st.just("text/plain")}),
    block("tool_use", {"id": any_text, "name": any_text, "input": objects}),
    block("non_standard", {"value": objects}),
    objects,
)
lc_contents = any_text | st.lists(lc_blocks, max_size=3)
lc_calls = st.lists(
    st.fixed_dictionaries({"id": any_text, "name": any_text, "args": objects}, optional={"type": st.just("tool_call")}),
    max_size=3,
)
lc_invalid_calls = st.fixed_dictionaries({"id": any_text, "name": any_text, "args": any_text | st.none()})
lc_common = {"additional_kwargs": objects, "response_metadata": objects, "id": any_text | st.none(), "name": any_text}
lc_flat = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["human", "system", "HumanMessageChunk"]), "content": lc_contents}, optional=lc_common
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["ai", "AIMessageChunk"]), "content": lc_contents},
        optional={
            **lc_common,
            "tool_calls": lc_calls | values,
            "invalid_tool_calls": st.lists(lc_invalid_calls, max_size=2) | values,
            "usage_metadata": objects,
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("ai"), "content": st.lists(lc_blocks, max_size=2), "tool_calls": lc_calls}
    ).map(with_content),
    st.fixed_dictionaries(
        {"type": st.just("tool"), "content": lc_contents, "tool_call_id": any_text},
        optional={**lc_common, "artifact": values, "status": st.sampled_from(["success", "error"]) | values},
    ),
    st.fixed_dictionaries({"type": st.just("function"), "content": any_text, "name": any_text}),
    st.fixed_dictionaries(
        {"type": st.just("chat"), "content": any_text, "role": st.sampled_from(["user", "system"]) | any_text}
    ),
)
lc_classes = {"human": "HumanMessage", "ai": "AIMessage", "system": "SystemMessage", "tool": "ToolMessage"}
lc_classes |= {"function": "FunctionMessage", "chat": "ChatMessage"}
langchain_messages = st.one_of(
    lc_flat,
    lc_flat.map(lambda fields: {"type": fields["type"], "data": fields}),
    lc_flat.map(
        lambda fields: {"type": fields["type"], "data": {name: fields[name] for name in fields if name != "type"}}
    ),
    lc_flat.map(
        lambda fields: {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", lc_classes.get(fields["type"], fields["type"])],
            "kwargs": fields,
        }
    ),
)

ag_sources = st.one_of(
    block("data", {"value": base64_texts, "mimeType": st.sampled_from(["image/png", "application/pdf"])}),
    block("url", {"value": links, "mimeType": any_text}),
    block("file", {"value": any_text}),
    values,
)
ag_blocks = st.one_of(
    texts,
    *[block(kind, {"source": ag_sources}) for kind in ("image", "audio", "video", "document")],
    block("binary", {"mimeType": st.just("image/png"), "data": base64_texts}),
    block("binary", {"mimeType": st.just("image/png"), "url": links}),
    objects,
)
ag_calls = st.lists(block("function", {"id": any_text, "function": functions | values}), max_size=3)
ag_messages = st.one_of(
    message(["user", "system", "developer"], contents(ag_blocks), {"id": any_text}),
    message(["assistant"], any_text | st.none(), {"id": any_text, "toolCalls": ag_calls | values}),
    message(
        ["tool"], contents(ag_blocks), {"id": any_text, "toolCallId": any_text | values, "error": any_text | values}
    ),
    st.fixed_dictionaries({"role": st.just("reasoning"), "content": any_text}, optional={"id": any_text, "x": values}),
    st.fixed_dictionaries({"role": st.just("activity"), "content": objects}, optional={"activityType": any_text}),
)


def case(name: str) -> st.SearchStrategy[str]:
    """Return a field name of Google in either spelling."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return st.sampled_from([name, name, snake])


def google(kind: str, fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Build parts of a kind, in which each field is valid, of any type or missing, with or without other fields."""
    valid = st.fixed_dictionaries({}, optional=fields)
    malformed = st.dictionaries(st.sampled_from([*fields, "x"]), values, max_size=3) | values
    part = st.builds(lambda key, value: {key: value}, case(kind), valid | valid | malformed)
    extras = st.dictionaries(st.sampled_from(["thought", "thoughtSignature", "partMetadata", "x"]), values, max_size=2)
    return part | st.builds(lambda more, block: {**more, **block}, extras, part)


payload_bytes = payloads | st.binary(max_size=9)
google_files = google("inlineData", {"data": payload_bytes, "mimeType": any_text, "mime_type": any_text}) | google(
    "fileData", {"fileUri": links, "file_uri": links, "mimeType": any_text}
)
tool_names = st.sampled_from(["f", "g"]) | any_text
google_results = google(
    "functionResponse",
    {
        "id": any_text,
        "name": tool_names,
        "response": st.dictionaries(st.sampled_from(["output", "error", "result", "x"]), any_text | values) | values,
        "parts": st.lists(google_files, max_size=2),
    },
)
google_parts = st.one_of(
    st.fixed_dictionaries({"text": any_text}, optional={"thought": st.booleans(), "thoughtSignature": payload_bytes}),
    google_files,
    google_results,
    google("functionCall", {"id": any_text, "name": tool_names, "args": objects}),
    google("executableCode", {"code": any_text}),
    objects,
)
google_contents = st.builds(
    lambda role, parts, more: {**more, **role, "parts": parts},
    st.fixed_dictionaries({}, optional={"role": st.sampled_from(["user", "model", "system", "function", None])}),
    st.lists(google_parts, max_size=4) | st.lists(google_results, max_size=3) | st.none(),
    objects,
).filter(lambda content: content.get("role") in ("user", "model", "system", "function", None))


def converse(kind: str, fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Build blocks with one field for their kind, valid or malformed."""
    malformed = st.dictionaries(st.sampled_from([*fields, "x"]), values, max_size=3) | values
    valid = st.fixed_dictionaries({}, optional=fields).map(lambda value: {kind: value})
    return valid | valid | st.builds(lambda value, more: {**more, kind: value}, malformed, objects)


def union(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(*[value.map(lambda item, name=name: {name: item}) for name, value in members.items()])


plain_texts = st.fixed_dictionaries({"text": any_text})
bedrock_sources = union(
    bytes=st.binary(max_size=9) | payloads,
    s3Location=st.fixed_dictionaries({"uri": any_text}),
    text=any_text,
    content=st.lists(plain_texts | objects, max_size=3),
    x=values,
)
bedrock_files = st.one_of(
    converse("image", {"format": st.just("png") | any_text, "source": bedrock_sources}),
    converse("document", {"format": st.sampled_from(["pdf", "txt"]), "name": any_text, "source": bedrock_sources}),
    converse("audio", {"format": st.just("wav"), "source": bedrock_sources}),
    converse("searchResult", {"title": any_text, "content": st.lists(plain_texts, max_size=2)}),
)
bedrock_results = converse(
    "toolResult",
    {
        "toolUseId": any_text,
        "content": st.lists(plain_texts | bedrock_files | converse("json", {"a": values}), max_size=3) | values,
        "status": st.sampled_from(["success", "error"]),
    },
)
bedrock_blocks = st.one_of(
    plain_texts,
    bedrock_files,
    bedrock_results,
    converse("toolUse", {"toolUseId": any_text, "name": any_text, "input": objects | values}),
    converse(
        "reasoningContent",
        {
            "reasoningText": st.fixed_dictionaries({"text": any_text}, optional={"signature": any_text}),
            "redactedContent": st.binary(max_size=9),
        },
    ),
    converse(
        "citationsContent", {"content": st.lists(plain_texts, max_size=2), "citations": st.lists(objects, max_size=1)}
    ),
    converse("guardContent", {"text": plain_texts, "image": st.fixed_dictionaries({"source": bedrock_sources})}),
    objects,
)
bedrock_contents = st.lists(bedrock_blocks, max_size=4) | st.lists(bedrock_results, max_size=3)
bedrock_messages = message(["user", "assistant", "system"], bedrock_contents | st.none())

ollama_calls = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {"name": tool_names}, optional={"arguments": objects | values, "index": values}
        )
    },
    optional={"id": any_text, "x": values},
)
ollama_messages = st.one_of(
    message(
        ["user", "assistant", "system"],
        any_text | st.none(),
        {
            "thinking": any_text | values,
            "images": st.lists(payload_bytes, max_size=2) | values,
            "tool_calls": st.lists(ollama_calls, max_size=3) | values,
        },
    ),
    message(
        ["tool"], any_text | st.none(), {"tool_name": tool_names | values, "tool_call_id": any_text, "name": any_text}
    ),
)

mistral_blocks = st.one_of(
    texts,
    block("thinking", {"thinking": st.lists(texts | objects, max_size=3), "signature": any_text}),
    block("document_url", {"document_url": payloads, "document_name": any_text}),
    block("image_url", {"image_url": payloads}),
    block("input_audio", {"input_audio": payloads}),
    block("reference", {"reference_ids": st.lists(st.integers(0, 9), max_size=2)}),
    openai_blocks,
)
mistral_messages = st.one_of(
    message(["user", "system"], contents(mistral_blocks)),
    message(
        ["assistant"], contents(mistral_blocks), {"tool_calls": st.lists(calls, max_size=3), "prefix": st.booleans()}
    ),
    message(["tool"], contents(mistral_blocks), {"tool_call_id": any_text | values, "name": any_text}),
)

ANY_CONTENT = {
    "mistral": mistral_messages,
    "ollama": ollama_messages,
    "bedrock": bedrock_messages,
    "gemini": google_contents,
    "anthropic": anthropic_messages,
    "openai": openai_messages,
    "openai-responses": items,
    "ai-sdk": model_messages,
    "ai-sdk-ui": ui_messages,
    "pydantic-ai": pydantic_messages,
    "langchain": langchain_messages,
    "ag-ui": ag_messages,
}


def histories(name: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return lists of messages of a format: one example of a feature, or messages with any content."""
    features = st.sampled_from(list(EXAMPLES[name].values()))
    return features | st.lists(ANY_CONTENT[name], max_size=2) if name in ANY_CONTENT else features


def assert_round_trip(messages: list[dict[str, Any]], name: str) -> None:
    """Check that messages are equal after a round trip in their own format, and that reading does not change them."""
    before = canonical_json(messages)
    assert canonical_json(formats.write(to_messages(formats.read(messages, name)), name)) == before
    assert canonical_json(messages) == before


@many_examples
@given(
    st.sampled_from(["user", "assistant"]), any_text | st.lists(texts.filter(lambda block: len(block) == 2), max_size=3)
)
def test_text_messages_round_trip_in_anthropic_and_openai(role: str, content: Any) -> None:
    text_only = isinstance(content, str) or all(
        block.keys() == {"type", "text"} and type(block["text"]) is str for block in content
    )
    if text_only:
        messages = to_messages(formats.read({"role": role, "content": content}))
        assert messages[0].format is None
        for name in ("anthropic", "openai"):
            assert formats.write(messages, name) == [{"role": role, "content": content}]


@many_examples
@given(objects, st.lists(anthropic_blocks, max_size=3), objects | st.none())
def test_anthropic_responses_are_rebuilt(more: dict[str, Any], content: list[Any], usage: Any) -> None:
    response = {**more, "type": "message", "role": "assistant", "content": content, "usage": usage}
    (message,) = to_messages(formats.read(response))
    assert canonical_json(formats.response(message)) == canonical_json(response)
    assert canonical_json(formats.write([message], "anthropic")) == canonical_json(
        [{"role": "assistant", "content": content}]
    )


@many_examples
@given(
    objects,
    openai_messages.filter(lambda message: message["role"] == "assistant"),
    objects,
    st.lists(objects, max_size=2),
)
def test_chat_completions_are_rebuilt(
    more: dict[str, Any], answer: dict[str, Any], choice: dict[str, Any], others: list[Any]
) -> None:
    response = {**more, "object": "chat.completion", "choices": [{**choice, "message": answer}, *others]}
    (message,) = to_messages(formats.read(response))
    assert canonical_json(formats.response(message)) == canonical_json(response)


@many_examples
@given(st.lists(anthropic_messages, max_size=4), st.lists(openai_messages, max_size=4))
def test_the_recollect_format_round_trips(anthropic: list[dict[str, Any]], openai: list[dict[str, Any]]) -> None:
    drafts = formats.read(anthropic, "anthropic") + formats.read(openai, "openai")
    again = formats.read(formats.write(to_messages(drafts), "recollect"), "recollect")
    for draft, copy in zip(drafts, again, strict=True):
        assert (copy.role, copy.format) == (draft.role, draft.format)
        assert encode(copy.parts) == encode(draft.parts)
        assert encode(copy.native) == encode(draft.native)


FORMATS = formats.PROVIDERS


def assert_converts(messages: list[dict[str, Any]], name: str) -> None:
    """Check a history: equal in its own format; valid, not empty and stable after another round trip in every other one."""
    assert_round_trip(messages, name)
    stored_messages = to_messages(formats.read(messages, name))
    calls = {call.call_id for message in stored_messages if message.role == "assistant" for call in message.tool_calls}
    for target in FORMATS:
        if target == name:
            continue
        output = formats.write(stored_messages, target)
        assert_valid(output, target)
        for message in output:
            assert (
                "type" in message
                or message.get("content")
                or message.get("tool_calls")
                or message.get("toolCalls")
                or message.get("parts")
                or message.get("images")
                or (message["role"] == "tool" or (name, target) == ("ai-sdk-ui", "ai-sdk"))
            )
        again = to_messages(formats.read(output, target))
        assert canonical_json(formats.write(again, target)) == canonical_json(output)
        ids = {call.call_id for message in again for call in message.tool_calls}
        pattern = formats.load_rules(target).call_id
        valid_ids = {id for id in calls if pattern is None or pattern.fullmatch(id)}
        assert valid_ids <= ids
        if valid_ids == calls and target != "ai-sdk":  # ai-sdk adds the calls that providers run
            assert ids == calls


@few_examples
@given(st.lists(anthropic_messages, max_size=4))
def test_anthropic_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "anthropic")


@few_examples
@given(st.lists(openai_messages, max_size=4))
def test_openai_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "openai")


@few_examples
@given(st.lists(items, max_size=4))
def test_response_items_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "openai-responses")


@few_examples
@given(st.lists(model_messages, max_size=4))
def test_ai_sdk_model_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "ai-sdk")


@few_examples
@given(st.lists(ui_messages, max_size=4))
def test_ai_sdk_ui_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "ai-sdk-ui")


@few_examples
@given(st.lists(pydantic_messages, max_size=4))
def test_pydantic_ai_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "pydantic-ai")


@few_examples
@given(st.lists(langchain_messages, max_size=4))
def test_langchain_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "langchain")


@few_examples
@given(st.lists(ag_messages, max_size=4))
def test_ag_ui_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "ag-ui")


@few_examples
@given(st.lists(google_contents, max_size=4))
def test_gemini_contents_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "gemini")


@few_examples
@given(st.lists(ollama_messages, max_size=4))
def test_ollama_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "ollama")


@few_examples
@given(objects, ollama_messages.filter(lambda message: message["role"] == "assistant"))
def test_ollama_responses_are_rebuilt(more: Any, answer: Any) -> None:
    response = {**more, "message": answer, "done": True, "eval_count": 3}
    response.pop("role", None)
    (draft,) = to_messages(formats.read(response, "ollama"))
    assert canonical_json(formats.response(draft)) == canonical_json(response)
    assert canonical_json(formats.write([draft], "ollama")) == canonical_json([answer])


@few_examples
@given(st.lists(mistral_messages, max_size=4))
def test_mistral_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(messages, "mistral")


def with_bytes(value: Any) -> Any:
    """Return a message in which base64 from JSON is bytes, as Bedrock's SDK needs it."""
    return formats.write(to_messages(formats.read(value, "bedrock")), "bedrock")


@few_examples
@given(st.lists(bedrock_messages, max_size=4))
def test_bedrock_messages_convert_to_every_format(messages: list[dict[str, Any]]) -> None:
    assert_converts(with_bytes(messages), "bedrock")
    json_before = json.dumps(messages, sort_keys=True, default=encode_bytes)
    assert json.dumps(with_bytes(messages), sort_keys=True, default=encode_bytes) == json_before


@few_examples
@given(objects, bedrock_contents, objects)
def test_bedrock_responses_are_rebuilt(more: Any, content: Any, usage: Any) -> None:
    (message,) = with_bytes([{"role": "assistant", "content": content}])
    response = {**more, "output": {"message": message}, "stopReason": "end_turn", "usage": usage}
    response.pop("role", None)
    (draft,) = to_messages(formats.read(response, "bedrock"))
    assert canonical_json(formats.response(draft)) == canonical_json(response)
    assert canonical_json(formats.write([draft], "bedrock")) == canonical_json([message])


@few_examples
@given(objects, google_contents, objects, objects | st.none())
def test_gemini_responses_are_rebuilt(more: Any, content: Any, candidate: Any, usage: Any) -> None:
    response = {**more, "candidates": [{**candidate, "content": content}, {}], "usageMetadata": usage}
    response.pop("role", None)
    content.pop("role", None)
    (message,) = to_messages(formats.read(response, "gemini"))
    assert canonical_json(formats.response(message)) == canonical_json(response)
    assert canonical_json(formats.write([message], "gemini")) == canonical_json([{**content, "role": "model"}])


@few_examples
@given(objects, st.lists(items, max_size=4), objects | st.none())
def test_openai_responses_are_rebuilt(more: dict[str, Any], output: list[Any], usage: Any) -> None:
    response = {**more, "object": "response", "output": output, "usage": usage}
    (message,) = to_messages(formats.read(response, "openai-responses"))
    roles = [
        item["role"]
        for item in output
        if isinstance(item.get("role"), str) and item.get("type", "message") == "message"
    ]
    if any(role in ("user", "system", "developer") for role in roles):
        # No provider sends such a response. It is not rebuilt: an answer must not contain messages of the user or the system.
        assert formats.response(message) is None
        return
    assert canonical_json(formats.response(message)) == canonical_json(response)
    assert canonical_json(formats.write([message], "openai-responses")) == canonical_json(output)


@few_examples
@given(st.data())
def test_a_session_of_mixed_formats_is_valid_in_each(data: st.DataObject) -> None:
    drafts: list[Draft] = []
    for name in EXAMPLES:
        drafts += formats.read(data.draw(histories(name) | st.just([]), label=name), name)
    stored_messages = to_messages(data.draw(st.permutations(drafts), label="order"))
    for target in FORMATS:
        foreign = [message for message in stored_messages if message.format != target]
        assert_valid(formats.write(foreign, target), target)
        formats.write(stored_messages, target)
