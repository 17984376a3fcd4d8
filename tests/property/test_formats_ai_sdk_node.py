"""The AI SDK itself, run with Node, checks what we write for it. Skipped where Node or the package is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from formats_examples import exactly, examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from recollect import formats
from stored_drafts import stored

FOLDER = Path(__file__).parents[2] / ".node"
NODE = shutil.which("node")
SCRIPT = """
import { convertToModelMessages, modelMessageSchema, safeValidateUIMessages } from "ai";
let text = "";
for await (const chunk of process.stdin) text += chunk;
const asked = JSON.parse(text);
const converted = [];
for (const messages of asked.ui) converted.push(await convertToModelMessages(messages));
const refused = [];
for (const message of asked.model) {
    const found = modelMessageSchema.safeParse(message);
    if (!found.success) refused.push([message, String(found.error)]);
}
for (const message of asked.written) {
    const found = await safeValidateUIMessages({ messages: [message] });
    if (!found.success) refused.push([message, String(found.error)]);
}
process.stdout.write(JSON.stringify({ converted, refused }));
"""

pytestmark = pytest.mark.skipif(
    NODE is None or not (FOLDER / "node_modules" / "ai").is_dir(), reason="Node or the npm package ai is missing"
)


def ask(ui: Sequence[Any] = (), model: Sequence[Any] = (), written: Sequence[Any] = ()) -> dict[str, Any]:
    """Have the AI SDK convert conversations of UI messages, and check model messages and UI messages."""
    done = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", SCRIPT],
        input=json.dumps({"ui": list(ui), "model": list(model), "written": list(written)}),
        capture_output=True,
        text=True,
        cwd=FOLDER,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


texts = st.text(max_size=6)
some_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
metadata = st.dictionaries(
    st.sampled_from(["openai", "anthropic"]), st.dictionaries(texts, texts, max_size=1), max_size=1
)
approved = st.fixed_dictionaries(
    {"id": texts, "approved": st.booleans()}, optional={"reason": texts, "signature": texts}
)
asked = st.fixed_dictionaries({"id": texts}, optional={"signature": texts, "inputSchemaInput": some_json})


def tool(
    state: str, needed: dict[str, Any], optional: dict[str, Any] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    common = {"toolCallId": texts, "state": st.just(state), **needed}
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
    tool("approval-requested", {"input": some_json, "approval": asked}),
    tool("approval-responded", {"input": some_json, "approval": approved}),
    tool("output-available", {"input": some_json, "output": some_json}, {"resultProviderMetadata": metadata}),
    tool("output-error", {"errorText": texts}, {"input": some_json, "rawInput": some_json, "approval": approved}),
    tool("output-denied", {"input": some_json, "approval": approved}),
)
conversations = st.lists(
    st.fixed_dictionaries(
        {"id": texts, "role": st.sampled_from(["user", "assistant", "assistant", "system"]), "parts": st.lists(parts)}
    ),
    max_size=3,
)


def test_our_conversion_is_theirs() -> None:
    talks: list[list[dict[str, Any]]] = []

    @settings(max_examples=300, deadline=None, phases=[Phase.generate])
    @given(conversations)
    def collect(talk: list[dict[str, Any]]) -> None:  # Node is asked once, for all of them
        talks.append(talk)

    collect()
    theirs = ask(ui=talks)["converted"]
    for talk, wanted in zip(talks, theirs, strict=True):
        kept = stored(formats.read(talk, "ai-sdk-ui"))
        assert exactly(formats.write(kept, "ai-sdk-ui")) == exactly(talk)
        assert exactly(formats.write(kept, "ai-sdk")) == exactly(wanted)


def test_what_we_write_is_valid_for_the_ai_sdk() -> None:
    """Every example of the other SDKs' types, translated."""
    model: list[Any] = []
    written: list[Any] = []
    for name, messages in translated():
        kept = stored(formats.read(messages, name))
        model += formats.write(kept, "ai-sdk")
        written += formats.write(kept, "ai-sdk-ui")
    assert len(model) > 100
    assert len(written) > 100
    assert ask(model=model, written=written)["refused"] == []


def translated() -> list[tuple[str, list[dict[str, Any]]]]:
    anthropic: Any = pytest.importorskip("anthropic.types")
    chat: Any = pytest.importorskip("openai.types.chat")
    responses: Any = pytest.importorskip("openai.types.responses")
    found = [("anthropic", [message]) for message in examples(anthropic.MessageParam, 6)]
    found += [("openai", [message]) for message in examples(chat.ChatCompletionMessageParam, 6)]
    return [*found, *[("openai-responses", [item]) for item in examples(responses.ResponseInputItemParam, 5)]]


def test_an_agents_run_and_back() -> None:
    """A run of calls and results becomes one UI message, which the AI SDK turns into the same run."""
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
    run = [
        {"role": "user", "content": "What is tea?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "A drink."},
        {"role": "assistant", "content": "Tea is a drink."},
    ]
    kept = stored(formats.read(run))
    ui = formats.write(kept, "ai-sdk-ui")
    assert [message["role"] for message in ui] == ["user", "assistant"]
    found = ask(ui=[ui], written=ui)
    assert found["refused"] == []
    (model,) = found["converted"]
    assert [message["role"] for message in model] == ["user", "assistant", "tool", "assistant"]
    assert model == formats.write(stored(formats.read(ui, "ai-sdk-ui")), "ai-sdk")
    assert formats.write(stored(formats.read(ui, "ai-sdk-ui")), "openai")[1:] == [
        {**run[1], "tool_calls": [{**call, "function": {"name": "look_up", "arguments": '{"word":"tea"}'}}]},
        *run[2:],
    ]
