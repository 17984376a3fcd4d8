"""The AI SDK, run with Node, validates the messages that we write. Skipped if Node or the package is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from formats_examples import canonical_json, examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from recollect import formats
from stored_drafts import to_messages

FOLDER = Path(__file__).parents[2] / ".node"
NODE = shutil.which("node")
SCRIPT = """
import { convertToModelMessages, modelMessageSchema, safeValidateUIMessages } from "ai";
let text = "";
for await (const chunk of process.stdin) text += chunk;
const request = JSON.parse(text);
const converted = [];
for (const messages of request.conversations) converted.push(await convertToModelMessages(messages));
const errors = [];
for (const message of request.modelMessages) {
    const result = modelMessageSchema.safeParse(message);
    if (!result.success) errors.push([message, String(result.error)]);
}
for (const message of request.uiMessages) {
    const result = await safeValidateUIMessages({ messages: [message] });
    if (!result.success) errors.push([message, String(result.error)]);
}
process.stdout.write(JSON.stringify({ converted, errors }));
"""

pytestmark = pytest.mark.skipif(
    NODE is None or not (FOLDER / "node_modules" / "ai").is_dir(), reason="Node or the npm package ai is missing"
)


def run_ai_sdk(
    convert: Sequence[Any] = (), model_messages: Sequence[Any] = (), ui_messages: Sequence[Any] = ()
) -> dict[str, Any]:
    """Run the AI SDK: convert conversations of UI messages, and validate model messages and UI messages."""
    process = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", SCRIPT],
        input=json.dumps(
            {"conversations": list(convert), "modelMessages": list(model_messages), "uiMessages": list(ui_messages)}
        ),
        capture_output=True,
        text=True,
        cwd=FOLDER,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


texts = st.text(max_size=6)
some_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
metadata = st.dictionaries(
    st.sampled_from(["openai", "anthropic"]), st.dictionaries(texts, texts, max_size=1), max_size=1
)
approval_responses = st.fixed_dictionaries(
    {"id": texts, "approved": st.booleans()}, optional={"reason": texts, "signature": texts}
)
approval_requests = st.fixed_dictionaries({"id": texts}, optional={"signature": texts, "inputSchemaInput": some_json})


def tool(
    state: str, required: dict[str, Any], optional: dict[str, Any] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    common = {"toolCallId": texts, "state": st.just(state), **required}
    more = {"callProviderMetadata": metadata, "providerExecuted": st.booleans(), "title": texts, **(optional or {})}
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("tool-look_up"), **common}, optional=more),
        st.fixed_dictionaries(
            {"type": st.just("dynamic-tool"), "toolName": texts, **common}, optional={**more, "dynamic": st.just(False)}
        ),
    )


parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"providerMetadata": metadata}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "text": texts}, optional={"providerMetadata": metadata}),
    st.fixed_dictionaries(
        {"type": st.just("file"), "mediaType": st.just("image/png"), "url": st.just("https://example.org/a.png")},
        optional={"filename": texts, "providerMetadata": metadata},
    ),
    st.just({"type": "step-start"}),
    st.fixed_dictionaries({"type": st.just("source-url"), "sourceId": texts, "url": texts}),
    st.fixed_dictionaries({"type": st.just("data-mood"), "data": some_json}, optional={"id": texts}),
    tool("input-streaming", {}, {"input": some_json}),
    tool("input-available", {"input": some_json}),
    tool("approval-requested", {"input": some_json, "approval": approval_requests}),
    tool("approval-responded", {"input": some_json, "approval": approval_responses}),
    tool("output-available", {"input": some_json, "output": some_json}, {"resultProviderMetadata": metadata}),
    tool(
        "output-error",
        {"errorText": texts},
        {"input": some_json, "rawInput": some_json, "approval": approval_responses},
    ),
    tool("output-denied", {"input": some_json, "approval": approval_responses}),
)
conversations = st.lists(
    st.fixed_dictionaries(
        {"id": texts, "role": st.sampled_from(["user", "assistant", "assistant", "system"]), "parts": st.lists(parts)}
    ),
    max_size=3,
)


def test_ui_messages_convert_as_in_the_ai_sdk() -> None:
    samples: list[list[dict[str, Any]]] = []

    @settings(max_examples=300, deadline=None, phases=[Phase.generate])
    @given(conversations)
    def collect(messages: list[dict[str, Any]]) -> None:  # one start of Node for all examples
        samples.append(messages)

    collect()
    theirs = run_ai_sdk(convert=samples)["converted"]
    for messages, expected in zip(samples, theirs, strict=True):
        stored_messages = to_messages(formats.read(messages, "ai-sdk-ui"))
        assert canonical_json(formats.write(stored_messages, "ai-sdk-ui")) == canonical_json(messages)
        assert canonical_json(formats.write(stored_messages, "ai-sdk")) == canonical_json(expected)


def test_converted_messages_are_valid_for_the_ai_sdk() -> None:
    """Every example of the other SDKs' types, converted."""
    model_messages: list[Any] = []
    ui_messages: list[Any] = []
    for name, messages in sdk_examples():
        stored_messages = to_messages(formats.read(messages, name))
        model_messages += formats.write(stored_messages, "ai-sdk")
        ui_messages += formats.write(stored_messages, "ai-sdk-ui")
    assert len(model_messages) > 100
    assert len(ui_messages) > 100
    assert run_ai_sdk(model_messages=model_messages, ui_messages=ui_messages)["errors"] == []


def sdk_examples() -> list[tuple[str, list[dict[str, Any]]]]:
    anthropic: Any = pytest.importorskip("anthropic.types")
    chat: Any = pytest.importorskip("openai.types.chat")
    responses: Any = pytest.importorskip("openai.types.responses")
    pairs = [("anthropic", [message]) for message in examples(anthropic.MessageParam, 6)]
    pairs += [("openai", [message]) for message in examples(chat.ChatCompletionMessageParam, 6)]
    return [*pairs, *[("openai-responses", [item]) for item in examples(responses.ResponseInputItemParam, 5)]]


def test_an_agent_run_round_trips_as_a_ui_message() -> None:
    """A run of calls and results becomes one UI message, which the AI SDK turns into the same run."""
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
    run = [
        {"role": "user", "content": "What is tea?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "A drink."},
        {"role": "assistant", "content": "Tea is a drink."},
    ]
    stored_messages = to_messages(formats.read(run))
    ui = formats.write(stored_messages, "ai-sdk-ui")
    assert [message["role"] for message in ui] == ["user", "assistant"]
    result = run_ai_sdk(convert=[ui], ui_messages=ui)
    assert result["errors"] == []
    (model,) = result["converted"]
    assert [message["role"] for message in model] == ["user", "assistant", "tool", "assistant"]
    assert model == formats.write(to_messages(formats.read(ui, "ai-sdk-ui")), "ai-sdk")
    assert formats.write(to_messages(formats.read(ui, "ai-sdk-ui")), "openai")[1:] == [
        {**run[1], "tool_calls": [{**call, "function": {"name": "look_up", "arguments": '{"word":"tea"}'}}]},
        *run[2:],
    ]
