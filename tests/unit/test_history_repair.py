"""The repaired history of any conversation is valid for its provider; a valid history is unchanged.

The validators here follow the rules of the providers, and share no code with the repair.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import formats
from recollect.history.repair import (
    ASSISTANT_FIRST_TEXT,
    INTERRUPTED,
    find_problems,
    is_valid,
    repair_history,
    repair_messages,
)
from recollect.history.streaming_renderer import StreamingRenderer
from recollect.model.compaction import SUMMARY_LABEL, Compaction, summary_message
from recollect.model.message import (
    DataPart,
    Draft,
    Message,
    MessageColumns,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

RULES = {format: formats.load_rules(format) for format in formats.PROVIDERS}
PROVIDERS = sorted(RULES)
CHAT_FORMATS = ["anthropic", "openai"]


# Validators: each returns the reason for which a provider would refuse a history.


def is_blank(text):
    return not text or text.isspace()


def anthropic_error(history):  # noqa: C901, PLR0912  one check after another
    """Return why the Messages API would refuse a history, or None if it would not."""
    messages = [message for message in history if message["role"] != "system"]
    used_ids = set()
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role != ("user" if index % 2 == 0 else "assistant"):
            return f"{index}: roles do not alternate, beginning with user"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            return f"{index}: empty"
        if any(block["type"] == "text" and is_blank(block["text"]) for block in blocks):
            return f"{index}: blank text"
        uses = [block for block in blocks if block["type"] == "tool_use"]
        if role == "user" and any(block["type"] in ("thinking", "redacted_thinking") for block in blocks):
            return f"{index}: thinking of a user"
        if role == "user" and uses:
            return f"{index}: tool_use of a user"
        if any(not isinstance(use.get("input"), dict) for use in uses):
            return f"{index}: input"
        ids = [use["id"] for use in uses]
        if any(not re.fullmatch("[a-zA-Z0-9_-]+", id) or id in used_ids for id in ids) or len(set(ids)) < len(ids):
            return f"{index}: ids {ids}"
        used_ids |= set(ids)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        before = [] if index == 0 or isinstance(messages[index - 1]["content"], str) else messages[index - 1]["content"]
        call_ids = [block["id"] for block in before if block["type"] == "tool_use"]
        if sorted(results) != sorted(call_ids) or any(
            block["type"] != "tool_result" for block in blocks[: len(results)]
        ):
            return f"{index}: results {results} of {call_ids}"
        if ids and index == len(messages) - 1:
            return f"{index}: calls at the end"
        if role == "assistant" and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            return f"{index}: ends with thinking"
    last = messages[-1] if messages else None
    if last is not None and last["role"] == "assistant":
        content = last["content"]
        text = content if isinstance(content, str) else content[-1].get("text", "x")
        if text[-1].isspace():
            return "white space at the end"
    return None


def openai_error(history):
    """Return why the chat completions API would refuse a history, or None if it would not."""
    waiting = []
    for index, message in enumerate(history):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"{index}: a result of {message.get('tool_call_id')!r}, waiting for {waiting}"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"{index}: no result of {waiting}"
        content = message.get("content")
        has_content = not is_blank(content) if isinstance(content, str) else bool(content)
        if isinstance(content, list) and all(b["type"] == "text" and is_blank(b["text"]) for b in content):
            has_content = False
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        if not has_content and not calls and not message.get("refusal"):
            return f"{index}: empty"
        if calls is not None and not calls:
            return f"{index}: an empty list of calls"
        waiting = [call["id"] for call in calls or ()]
        if any(not isinstance(id, str) or not 0 < len(id) <= 40 for id in waiting) or len(set(waiting)) < len(waiting):
            return f"{index}: ids {waiting}"
    return f"no result of {waiting}" if waiting else None


def responses_error(history):
    """Return why the Responses API would refuse these items, or None if it would not."""
    waiting, used_ids = set(), set()
    for index, item in enumerate(history):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            if not item["call_id"] or item["call_id"] in used_ids:
                return f"{index}: call {item['call_id']!r}"
            used_ids.add(item["call_id"])
            waiting.add(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if item["call_id"] not in waiting:
                return f"{index}: a result of {item['call_id']!r}"
            waiting.remove(item["call_id"])
        elif kind == "message" and not item["content"]:
            return f"{index}: empty"
        elif kind == "reasoning" and (
            index == len(history) - 1 or history[index + 1].get("role", "assistant") != "assistant"
        ):
            return f"{index}: reasoning that nothing follows"
    return f"no result of {waiting}" if waiting else None


def ai_sdk_error(history):
    """Return why the AI SDK would refuse these model messages, or None if it would not."""
    waiting = set()
    for index, message in enumerate(history):
        content = message["content"]
        blocks = content if isinstance(content, list) else []
        if not content:
            return f"{index}: empty"
        results = [block["toolCallId"] for block in blocks if block["type"] == "tool-result"]
        if message["role"] == "tool":
            if not set(results) <= waiting or len(set(results)) < len(results):
                return f"{index}: results {results} of {waiting}"
            waiting -= set(results)
            continue
        if waiting:
            return f"{index}: no result of {waiting}"
        calls = [block["toolCallId"] for block in blocks if block["type"] == "tool-call"]
        if len(set(calls)) < len(calls) or "" in calls:
            return f"{index}: ids {calls}"
        waiting = set(calls)
    return f"no result of {waiting}" if waiting else None


VALIDATORS = {
    "anthropic": anthropic_error, "openai": openai_error, "openai-responses": responses_error,
    "ai-sdk": ai_sdk_error,
}  # fmt: skip


def pairing_error(messages, unique):
    """Return why calls and results do not match, in any format, or None if they do."""
    call_ids, result_ids = [], []
    for message in messages:
        if not message.parts:
            return f"{message.id}: empty"
        if all(isinstance(part, TextPart) and is_blank(part.text) for part in message.parts):
            return f"{message.id}: blank"
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                if message.role != "assistant" or not part.call_id or (unique and part.call_id in call_ids):
                    return f"{message.id}: call {part.call_id}"
                call_ids.append(part.call_id)
            if isinstance(part, ToolResultPart):
                result_ids.append(part.call_id)
                if part.call_id not in call_ids:
                    return f"{message.id}: result {part.call_id} before its call"
    return None if sorted(call_ids) == sorted(result_ids) else f"{call_ids} {result_ids}"


# Messages as people, models and crashes leave them.

texts = st.sampled_from(["hello", "and then?", "", " ", "\n", "ends with space ", "ok"])
ids = st.sampled_from(["a", "b", "c", "", "weird.id:0", "x" * 50])
states = st.sampled_from(["completed"] * 6 + ["streaming", "interrupted", "error", "pending"])
anthropic_blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda call, arguments: {"type": "tool_use", "id": call, "name": "f", "input": arguments}, ids, st.sampled_from([{}, {"a": 1}, "no", None])),
    st.builds(lambda call, text: {"type": "tool_result", "tool_use_id": call, "content": text}, ids, texts),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, texts),
    st.just({"type": "redacted_thinking", "data": "x"}),
    st.just({"type": "tool_use", "id": 5}),
    st.just({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
)  # fmt: skip
anthropic = st.builds(
    lambda role, content, extra: formats.read({"role": role, "content": content, **extra}, "anthropic")[0],
    st.sampled_from(["user", "assistant"]),
    st.one_of(texts, st.lists(anthropic_blocks, max_size=4)),
    st.sampled_from([{}, {}, {"extra": 1}]),
)
openai_calls = st.builds(
    lambda call, arguments: {"id": call, "type": "function", "function": {"name": "f", "arguments": arguments}},
    ids, st.sampled_from(["{}", '{"a": 1', ""]),
)  # fmt: skip
openai = st.one_of(
    st.builds(lambda role, text: {"role": role, "content": text, "name": "n"}, st.sampled_from(["user", "system"]), texts),
    st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, texts | st.none(), st.lists(openai_calls, max_size=3)),
    st.just({"role": "assistant", "content": None, "refusal": "no"}),
    st.just({"role": "assistant", "content": None, "tool_calls": [{"id": None}]}),
    st.builds(lambda call, text: {"role": "tool", "tool_call_id": call, "content": text}, ids, texts),
).map(lambda message: formats.read(message, "openai")[0])  # fmt: skip
plain = st.builds(
    lambda role, text: Draft(role=role, parts=(TextPart(text=text),)),
    st.sampled_from(["user", "assistant", "system"]),
    texts,
)
by_hand = st.builds(
    lambda role, parts: Draft(role=role, parts=tuple(parts)),
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(
        st.one_of(
            st.builds(lambda text: TextPart(text=text), texts),
            st.builds(lambda text: ReasoningPart(text=text), texts),
            st.builds(lambda call: ToolCallPart(call_id=call, tool="f", arguments_text='{"cut": "o'), ids),
            st.builds(lambda call: ToolResultPart(call_id=call, data={"rows": [1]}), ids),
            st.just(DataPart(data={"odd": 1})),
        ),
        max_size=4,
    ),
)
ui_parts = st.one_of(
    st.just({"type": "step-start"}),
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.just({"type": "reasoning", "text": "hm"}),
    st.builds(lambda call: {"type": "tool-f", "toolCallId": call, "state": "output-available", "input": {}, "output": 1}, ids),
    st.builds(lambda call: {"type": "tool-f", "toolCallId": call, "state": "output-error", "input": {}, "errorText": "no"}, ids),
    st.builds(lambda call: {"type": "dynamic-tool", "toolName": "g", "toolCallId": call, "state": "input-available", "input": {}}, ids),
    st.just({"type": "tool-f", "toolCallId": "a", "state": "input-streaming", "input": {}}),
    st.just({"type": "data-odd", "data": 1}),
)  # fmt: skip
ui = st.builds(
    lambda parts: formats.read({"id": "m", "role": "assistant", "parts": parts}, "ai-sdk-ui")[0],
    st.lists(ui_parts, max_size=6),
)
ai_sdk = st.one_of(
    st.builds(lambda call, text: {"role": "assistant", "content": [{"type": "text", "text": text}, {"type": "tool-call", "toolCallId": call, "toolName": "f", "input": {}}]}, ids, texts),
    st.builds(lambda call: {"role": "tool", "content": [{"type": "tool-result", "toolCallId": call, "toolName": "f", "output": {"type": "json", "value": 1}}]}, ids),
).map(lambda message: formats.read(message, "ai-sdk")[0])  # fmt: skip
items = st.one_of(
    st.just({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}),
    st.just({"type": "web_search_call", "id": "ws", "status": "completed"}),
    st.builds(lambda call: {"type": "function_call", "call_id": call, "name": "f", "arguments": "{}"}, ids),
    st.builds(lambda call: {"type": "function_call_output", "call_id": call, "output": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}, ids),
    st.builds(lambda text: {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}, texts),
).map(lambda item: formats.read(item, "openai-responses")[0])  # fmt: skip
drafts = st.one_of(plain, anthropic, openai, by_hand, ui, ai_sdk, items)
conversations = st.lists(st.tuples(drafts, states), max_size=10)


def to_messages(drafts):
    """Return the drafts as messages of one branch."""
    return [
        Message(
            1, position, draft.role, draft.parts, 0, format=draft.format, native=draft.native, state=state, tokens=7,
        )
        for position, (draft, state) in enumerate(drafts, 1)
    ]  # fmt: skip


def read_messages(*messages, format=None):
    return to_messages([(draft, "completed") for message in messages for draft in formats.read(message, format)])


many_examples = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("format", CHAT_FORMATS)
@many_examples
@given(conversation=conversations)
def test_a_repaired_history_is_valid_for_its_provider(format, conversation):
    messages = to_messages(conversation)
    history, repairs = repair_history(messages, format)
    output = formats.write(history, format)
    assert VALIDATORS[format](output) is None
    assert repair_history(history, format)[1] == []
    before = formats.write(messages, format)
    if VALIDATORS[format](before) is None and not any(is_irregular(message) for message in messages):
        assert output == before
        if all(message.format in (None, format) for message in messages):
            assert repairs == []
    if output != before:
        assert repairs or format == "anthropic"


@pytest.mark.parametrize("format", ["openai-responses", "ai-sdk"])
@many_examples
@given(conversation=conversations)
def test_a_repaired_history_is_valid_for_responses_and_the_ai_sdk(format, conversation):
    history, _ = repair_history(to_messages(conversation), format)
    assert VALIDATORS[format](formats.write(history, format)) is None
    assert repair_history(history, format)[1] == []


def is_irregular(message):
    """Return whether a message was cut off, or has no format and more than text: the parts that are not written may be wrong."""
    if message.role == "tool" and not message.tool_results:
        return True
    return message.state != "completed" or (
        message.format is None and any(not isinstance(part, TextPart) for part in message.parts)
    )


@pytest.mark.parametrize("format", PROVIDERS)
@many_examples
@given(conversation=conversations)
def test_every_call_has_one_result_for_every_provider(format, conversation):
    messages = to_messages(conversation)
    history, repairs = repair_messages(messages, RULES[format])
    history = [message for message in history if message.role != "system"]
    history = [message for message in history if any(not isinstance(part, ReasoningPart) for part in message.parts)]
    assert pairing_error(history, RULES[format].unique == "history") is None
    for repair in repairs:
        assert repair.sentence.endswith(".")
        assert repair.message in {message.id for message in messages}


@pytest.mark.parametrize("format", PROVIDERS)
@many_examples
@given(conversation=conversations)
def test_a_history_that_is_valid_needs_no_repair(format, conversation):
    messages = to_messages(conversation)
    if is_valid(messages, RULES[format]):
        history, repairs = repair_messages(messages, RULES[format])
        assert repairs == []
        assert formats.write(history, format) == formats.write(messages, format)


@pytest.mark.parametrize("format", PROVIDERS)
@many_examples
@given(conversation=conversations)
def test_the_streaming_renderer_writes_what_the_repair_returns(format, conversation):
    messages = to_messages(conversation)
    renderer = StreamingRenderer(format)
    for message in messages:
        columns = (
            [message.position],
            [message.role],
            [message.format],
            [message.parts],
            [message.native],
            [message.state],
        )
        renderer.take(message.branch, MessageColumns(*columns))
    renderer.end()
    history, repairs = repair_messages(messages, RULES[format])
    assert renderer.history == formats.write(history, format)
    assert renderer.history.repairs == repairs


@pytest.mark.parametrize("format", CHAT_FORMATS)
@many_examples
@given(conversation=conversations)
def test_a_repair_loses_no_text(format, conversation):
    messages = to_messages(conversation)
    before, after = (
        visible_texts(formats.write(messages, format)),
        visible_texts(formats.write(repair_history(messages, format)[0], format)),
    )
    rest = iter([text.rstrip() for text in after])
    assert all(text.rstrip() in rest for text in before)
    assert len(after) <= len(before) + 1 + sum(len(m.parts) for m in messages if m.role == "tool")


def visible_texts(history):
    """Return the texts of a history, without tool results and blank texts."""
    lines = []
    for message in history:
        if message["role"] == "tool":
            continue
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        lines += [block["text"] for block in blocks if block["type"] == "text" and not is_blank(block["text"])]
    return lines


# Each kind of repair alone.

ONE_CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
TWO_CALLS = {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in "ab"]}
HI = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "so"}


def tool_results(*ids, text="r"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text} for id in ids]}


def repair_and_write(*messages, format="anthropic"):
    history, repairs = repair_history(read_messages(*messages, format="anthropic"), format)
    return formats.write(history, format), [repair.kind for repair in repairs]


@pytest.mark.parametrize("kind", [{"text": "tool_use"}, ["thinking"], 7, None])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_block_whose_type_is_no_text_does_not_fail(role, kind):
    answer = {"role": role, "content": [{"type": kind}, {"type": "text", "text": "so"}]}
    for format in PROVIDERS:
        history, _ = repair_and_write(HI, answer, HI, format=format)
        assert "so" in str(history)


def test_a_valid_history_is_the_same_object():
    messages = read_messages(HI, TWO_CALLS, tool_results("a", "b"), ANSWER, format="anthropic")
    for format in CHAT_FORMATS:
        history, repairs = repair_history(messages, format)
        assert history is messages
        assert repairs == []


def test_a_call_without_a_result_gets_an_interrupted_result():
    history, kinds = repair_and_write(HI, ONE_CALL, HI)
    assert kinds == ["interrupted_call"]
    interrupted_result = {"type": "tool_result", "tool_use_id": "a", "content": INTERRUPTED, "is_error": True}
    assert history == [HI, ONE_CALL, {"role": "user", "content": [interrupted_result, {"type": "text", "text": "hi"}]}]
    history, kinds = repair_and_write(HI, ONE_CALL, HI, format="openai")
    assert kinds == ["interrupted_call"]
    assert history[2] == {"role": "tool", "tool_call_id": "a", "content": INTERRUPTED}
    assert history[3] == HI


def test_one_of_two_calls_without_a_result_gets_one():
    history, kinds = repair_and_write(HI, TWO_CALLS, tool_results("b"), ANSWER)
    assert kinds == ["interrupted_call"]
    assert sorted(block["tool_use_id"] for block in history[2]["content"]) == ["a", "b"]
    assert len(history) == 4


def test_a_result_without_a_call_is_dropped():
    assert repair_and_write(HI, ANSWER, tool_results("z"), ANSWER) == (
        [HI, {"role": "assistant", "content": [{"type": "text", "text": "so"}] * 2}],
        ["orphan_result", "same_role"],
    )
    assert repair_and_write(HI, ANSWER, tool_results("z"), ANSWER, format="openai") == (
        [HI, ANSWER, ANSWER],
        ["orphan_result"],
    )


def test_a_late_or_early_result_moves_to_its_call():
    for conversation in (
        [HI, ONE_CALL, ANSWER, HI, tool_results("a"), ANSWER],
        [HI, tool_results("a"), HI, ONE_CALL, ANSWER],
    ):
        for format in CHAT_FORMATS:
            history, kinds = repair_and_write(*conversation, format=format)
            assert "moved_result" in kinds
            assert "interrupted_call" not in kinds
            assert VALIDATORS[format](history) is None


def test_a_second_result_is_dropped():
    history, kinds = repair_and_write(
        HI, ONE_CALL, tool_results("a", text="first"), ANSWER, tool_results("a", text="second"), ANSWER
    )
    assert kinds == ["duplicate_result", "same_role"]
    assert history[2] == tool_results("a", text="first")


def test_results_split_over_messages_are_joined():
    history, kinds = repair_and_write(HI, TWO_CALLS, tool_results("a"), tool_results("b"), ANSWER)
    assert history == [HI, TWO_CALLS, tool_results("a", "b"), ANSWER]
    assert kinds == ["same_role"]


def test_results_move_before_the_text_of_their_message():
    message = {"role": "user", "content": [{"type": "text", "text": "here"}, *tool_results("a")["content"]]}
    history, kinds = repair_and_write(HI, ONE_CALL, message)
    assert history[2]["content"] == message["content"][::-1]
    assert kinds == ["moved_result"]


def test_results_in_the_message_of_their_call_move_to_the_next():
    message = {"role": "assistant", "content": [*ONE_CALL["content"], *tool_results("a")["content"]]}
    assert repair_and_write(HI, message, ANSWER) == ([HI, ONE_CALL, tool_results("a"), ANSWER], ["moved_result"])


def test_empty_messages_and_reasoning_without_text_are_dropped():
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    assert repair_and_write(HI, {"role": "assistant", "content": []}, ANSWER) == ([HI, ANSWER], ["empty_message"])
    assert repair_and_write(HI, {"role": "assistant", "content": " "}, ANSWER) == ([HI, ANSWER], ["empty_message"])
    assert repair_and_write(HI, thinking, ANSWER) == ([HI, ANSWER], ["only_reasoning"])
    assert repair_and_write(HI, {"role": "assistant", "content": [*ONE_CALL["content"], *thinking["content"]]}, tool_results("a")) == (
        [HI, ONE_CALL, tool_results("a")], ["last_reasoning"],
    )  # fmt: skip


def test_consecutive_messages_of_one_role_are_merged_with_all_fields():
    first = {
        "role": "user",
        "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "odd": 1,
    }
    history, kinds = repair_and_write(first, {"role": "user", "content": "y", "more": 2}, ANSWER)
    assert history == [
        {"role": "user", "content": [*first["content"], {"type": "text", "text": "y"}], "odd": 1, "more": 2}, ANSWER,
    ]  # fmt: skip
    assert kinds == ["same_role"]


def test_a_history_that_begins_with_the_assistant():
    assert repair_and_write(ANSWER, HI) == (
        [{"role": "user", "content": ASSISTANT_FIRST_TEXT}, ANSWER, HI],
        ["first_role"],
    )
    assert repair_and_write(ANSWER, HI, format="openai") == ([ANSWER, HI], [])


def test_missing_duplicate_and_invalid_call_ids_are_replaced():
    without_ids = {"role": "assistant", "content": [{"type": "tool_use", "id": "", "name": "f", "input": {}}] * 2}
    history, kinds = repair_and_write(HI, without_ids, tool_results("", ""), ANSWER)
    assert kinds == ["call_id", "call_id"]
    assert anthropic_error(history) is None
    history, kinds = repair_and_write(
        HI, ONE_CALL, tool_results("a", text="1"), ONE_CALL, tool_results("a", text="2"), ANSWER
    )
    assert kinds == ["call_id"]
    assert [history[n]["content"][0]["content"] for n in (2, 4)] == ["1", "2"]
    assert (
        repair_and_write(HI, ONE_CALL, tool_results("a"), ONE_CALL, tool_results("a"), ANSWER, format="openai")[1] == []
    )
    invalid = {"role": "assistant", "content": [{"type": "tool_use", "id": "functions.f:0", "name": "f", "input": {}}]}
    history, kinds = repair_and_write(HI, invalid, tool_results("functions.f:0"), ANSWER)
    assert kinds == ["call_id"]
    assert anthropic_error(history) is None


def test_a_call_with_truncated_arguments():
    call = ToolCallPart(call_id="a", tool="f", arguments_text='{"path": "REA')
    for state, kind in (("interrupted", "partial_call"), ("completed", "interrupted_call")):
        messages = to_messages([
            (Draft(role="user", parts=(TextPart(text="q"),)), "completed"),
            (Draft(role="assistant", parts=(TextPart(text="I look"), call)), state),
        ])  # fmt: skip
        for format in CHAT_FORMATS:
            history, repairs = repair_history(messages, format)
            assert [repair.kind for repair in repairs] == [kind]
            assert repairs[0].call_id == "a"
            assert repairs[0].message == "1.2"
            assert VALIDATORS[format](formats.write(history, format)) is None


def test_text_with_the_role_tool_becomes_a_user_message():
    messages = to_messages([(Draft(role="tool", parts=(TextPart(text="x"),)), "completed")])
    for format in CHAT_FORMATS:
        history, repairs = repair_history(messages, format)
        assert [repair.kind for repair in repairs] == ["wrong_role"]
        assert formats.write(history, format) == [{"role": "user", "content": "x"}]


def test_white_space_is_removed_only_at_the_end_of_the_history():
    assert repair_and_write(HI, {"role": "assistant", "content": "so \n"}) == ([HI, ANSWER], ["last_space"])
    assert repair_and_write(HI, {"role": "assistant", "content": "so "}, HI)[1] == []


def test_a_summary_is_merged_with_the_next_question_without_a_repair():
    compaction = Compaction(
        id=1,
        branch=1,
        from_position=1,
        to_position=4,
        round=1,
        tokens_before=9,
        tokens_after=1,
        summary="before",
        created_at_ms=1,
    )
    messages = [summary_message(compaction, 1), *read_messages(HI, ANSWER)]
    history, repairs = repair_history(messages, "anthropic")
    assert repairs == []
    assert formats.write(history, "anthropic")[0]["content"] == [
        {"type": "text", "text": f"{SUMMARY_LABEL}\nbefore"}, {"type": "text", "text": "hi"},
    ]  # fmt: skip
    assert [message["content"] for message in formats.write(repair_history(messages, "openai")[0], "openai")] == [
        f"{SUMMARY_LABEL}\nbefore",
        "hi",
        "so",
    ]


def test_recollects_own_format_is_not_repaired():
    messages = read_messages(ANSWER, ANSWER, tool_results("z"), format="anthropic")
    assert repair_history(messages, "recollect") == (messages, [])


def test_a_reasoning_item_stays_only_if_an_item_follows():
    def item(*parts, role="assistant"):
        return Draft(role=role, parts=parts, format="openai-responses")

    reasoning, call = ReasoningPart(text="hm"), ToolCallPart(call_id="a", tool="f", arguments_text="{}")
    answer = ToolResultPart(call_id="a", text="r")
    messages = to_messages(
        [(item(reasoning), "completed"), (item(call), "completed"), (item(answer, role="tool"), "completed")]
    )
    assert repair_messages(messages, RULES["openai-responses"]) == (messages, [])
    history, repairs = repair_messages(
        [*messages, *to_messages([(item(reasoning), "completed")])], RULES["openai-responses"]
    )
    assert history == messages
    assert [repair.kind for repair in repairs] == ["only_reasoning"]


def test_an_item_without_a_type_is_not_sent_unless_it_is_a_reference():
    def item(native):
        part = DataPart(native=native)
        return (
            Draft(role="assistant", parts=(part,), format="openai-responses", native={"items": [None]}),
            "completed",
        )

    envelope, reference, unknown = {"__enc__": 1, "payload": "x"}, {"id": "msg_1"}, {"type": "of the future"}
    messages = to_messages([item(envelope), item(reference), item(unknown)])
    assert formats.write(messages, "openai-responses") == [envelope, reference, unknown]
    history, repairs = repair_messages(messages, RULES["openai-responses"])
    assert formats.write(history, "openai-responses") == [reference, unknown]
    assert [repair.kind for repair in repairs] == ["unreadable_block", "empty_message"]


def test_parallel_calls_as_items_are_valid_for_responses():
    def item(part, role="assistant"):
        return (Draft(role=role, parts=(part,), format="openai-responses"), "completed")

    calls = [item(ToolCallPart(call_id=id, tool="f", arguments_text="{}")) for id in "ab"]
    results = [item(ToolResultPart(call_id=id, text="r"), role="tool") for id in "ab"]
    messages = to_messages([*calls, *results])
    assert repair_messages(messages, RULES["openai-responses"]) == (messages, [])
    history, _ = repair_messages(messages, RULES["openai"])
    assert VALIDATORS["openai"](formats.write(history, "openai")) is None


def test_calls_that_the_provider_executes_are_not_repaired():
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    message = {"role": "assistant", "content": [call, {"type": "text", "text": "found"}]}
    messages = to_messages([
        (Draft(role="user", parts=(TextPart(text="q"),)), "completed"),
        (formats.read(message, "anthropic")[0], "completed"),
    ])  # fmt: skip
    assert repair_history(messages, "anthropic")[1] == []


def test_problems_are_listed_for_all_providers_or_for_one():
    messages = read_messages(ANSWER, ONE_CALL, tool_results("z"), {"role": "user", "content": []}, format="anthropic")
    assert sorted(problem.kind for problem in find_problems(messages)) == [
        "empty_message",
        "interrupted_call",
        "orphan_result",
    ]
    assert "first_role" in [problem.kind for problem in find_problems(messages, "anthropic")]
    assert find_problems(read_messages(HI, ONE_CALL, tool_results("a"), ANSWER, format="anthropic")) == []


CALLS = {
    "function_call": {"name": "f", "arguments": "{}"},
    "custom_tool_call": {"name": "f", "input": "x"},
    "shell_call": {"action": {"commands": ["ls"]}},
    "apply_patch_call": {"operation": {"type": "delete_file", "path": "a"}},
}


@pytest.mark.parametrize("output_type", ["function_call_output", "custom_tool_call_output"])
@pytest.mark.parametrize("call_type", list(CALLS))
def test_an_output_gets_the_type_of_its_call(call_type, output_type):
    items = [
        {"role": "user", "content": "q"},
        {"type": call_type, "call_id": "c", **CALLS[call_type]},
        {"type": output_type, "call_id": "c", "output": "r"},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "d", "output": "s"},
    ]
    messages = to_messages([(draft, "completed") for draft in formats.read(items, "openai-responses")])
    history, repairs = repair_history(messages, "openai-responses")
    output_items = formats.write(history, "openai-responses")
    assert [item.get("type") for item in output_items[1:3]] == [call_type, f"{call_type}_output"]
    assert [*output_items[:2], *output_items[3:]] == [*items[:2], *items[3:]]
    assert [repair.kind for repair in repairs] == ([] if output_type == f"{call_type}_output" else ["output_type"])


def test_an_image_result_of_a_computer_call_becomes_a_screenshot():
    image = {"type": "input_image", "image_url": "https://example.com/a.png"}
    items = [
        {"role": "user", "content": "q"},
        {"type": "computer_call", "call_id": "c", "id": "i", "action": {"type": "wait"}, "pending_safety_checks": []},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]
    messages = to_messages([(draft, "completed") for draft in formats.read(items, "openai-responses")])
    history, repairs = repair_history(messages, "openai-responses")
    (output,) = formats.write(history, "openai-responses")[2:]
    assert output["type"] == "computer_call_output"
    assert output["output"] == {"type": "computer_screenshot", "image_url": image["image_url"]}
    assert [repair.kind for repair in repairs] == ["output_type"]


def ui_tool(call_id, **more):
    return {"type": "tool-f", "toolCallId": call_id, "state": "input-available", "input": {}, **more}


def test_a_call_in_an_earlier_step_gets_its_result_in_that_step():
    completed_call = ui_tool("b", state="output-available", output=1)
    parts = [
        {"type": "step-start"},
        ui_tool("a"),
        completed_call,
        {"type": "step-start"},
        {"type": "text", "text": "done"},
    ]
    messages = [
        *read_messages(HI),
        *read_messages({"id": "m", "role": "assistant", "parts": parts}, format="ai-sdk-ui"),
    ]
    for format, find_error in VALIDATORS.items():
        history, repairs = repair_history(messages, format)
        assert find_error(formats.write(history, format)) is None, format
        assert [repair.kind for repair in repairs] == ["interrupted_call"]
    roles = [message["role"] for message in formats.write(repair_history(messages, "openai")[0], "openai")]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


def test_steps_without_results_are_one_message():
    parts = [{"type": "text", "text": "one"}, {"type": "step-start"}, {"type": "text", "text": "two"}]
    messages = [
        *read_messages(HI),
        *read_messages({"id": "m", "role": "assistant", "parts": parts}, format="ai-sdk-ui"),
    ]
    history, _ = repair_history(messages, "anthropic")
    assert [message["role"] for message in formats.write(history, "anthropic")] == ["user", "assistant"]


def test_a_result_next_to_its_call_belongs_to_that_call():
    parts = [ui_tool("a"), ui_tool("a", state="output-available", output=1)]
    messages = read_messages({"id": "m", "role": "assistant", "parts": parts}, format="ai-sdk-ui")
    history, _ = repair_history(messages, "ai-sdk-ui")
    states = [part["state"] for part in formats.write(history, "ai-sdk-ui")[0]["parts"]]
    assert states == ["output-error", "output-available"]


def test_images_in_tool_results_do_not_separate_the_results():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "ab"]
    first, second = [{"type": "tool_result", "tool_use_id": name, "content": [image]} for name in "ab"]
    answers = [[first], [second, {"type": "text", "text": "and now?"}]]
    result_messages = [{"role": "user", "content": content} for content in answers]
    messages = read_messages(HI, {"role": "assistant", "content": calls}, *result_messages, format="anthropic")
    roles = [message["role"] for message in formats.write(repair_history(messages, "openai")[0], "openai")]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


def test_reasoning_followed_only_by_reasoning_is_dropped():
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    messages = [
        *read_messages(reasoning, format="openai-responses"),
        *read_messages(reasoning, format="openai-responses"),
    ]
    history, repairs = repair_history(messages, "openai-responses")
    assert (list(history), {repair.kind for repair in repairs}) == ([], {"only_reasoning"})
