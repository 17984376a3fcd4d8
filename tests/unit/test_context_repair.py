"""Whatever a conversation looks like, the view of it is what the provider takes; what is sound is not touched.

The validators here are written from what the providers ask for, and know nothing of how a view is mended.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import formats
from recollect.context.answering import INTERRUPTED
from recollect.context.joining import BEGINNING
from recollect.context.repair import is_sound, mend, mended, problems
from recollect.context.rules import RULES
from recollect.context.sheet import Sheet
from recollect.model.compaction import LABEL, Compaction, standing_for
from recollect.model.line import line
from recollect.model.message import Draft, Message
from recollect.model.part import DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

PROVIDERS = sorted(RULES)
WRITTEN = ["anthropic", "openai"]


# What a provider takes.


def blank(text):
    return not text or text.isspace()


def refused_by_anthropic(view):  # noqa: C901, PLR0912  one refusal after another
    """Say why the Messages API would refuse this; None where it would not."""
    talk = [message for message in view if message["role"] != "system"]
    seen = set()
    for index, message in enumerate(talk):
        role, content = message["role"], message["content"]
        if role != ("user" if index % 2 == 0 else "assistant"):
            return f"{index}: roles do not alternate, beginning with user"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            return f"{index}: empty"
        if any(block["type"] == "text" and blank(block["text"]) for block in blocks):
            return f"{index}: blank text"
        uses = [block for block in blocks if block["type"] == "tool_use"]
        if role == "user" and any(block["type"] in ("thinking", "redacted_thinking") for block in blocks):
            return f"{index}: thinking of a user"
        if role == "user" and uses:
            return f"{index}: tool_use of a user"
        if any(not isinstance(use.get("input"), dict) for use in uses):
            return f"{index}: input"
        ids = [use["id"] for use in uses]
        if any(not re.fullmatch("[a-zA-Z0-9_-]+", id) or id in seen for id in ids) or len(set(ids)) < len(ids):
            return f"{index}: ids {ids}"
        seen |= set(ids)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        before = [] if index == 0 or isinstance(talk[index - 1]["content"], str) else talk[index - 1]["content"]
        asked = [block["id"] for block in before if block["type"] == "tool_use"]
        if sorted(results) != sorted(asked) or any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            return f"{index}: results {results} of {asked}"
        if ids and index == len(talk) - 1:
            return f"{index}: calls at the end"
        if role == "assistant" and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            return f"{index}: ends with thinking"
    last = talk[-1] if talk else None
    if last is not None and last["role"] == "assistant":
        content = last["content"]
        text = content if isinstance(content, str) else content[-1].get("text", "x")
        if text[-1].isspace():
            return "white space at the end"
    return None


def refused_by_openai(view):
    """Say why chat completions would refuse this; None where they would not."""
    waiting = []
    for index, message in enumerate(view):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"{index}: a result of {message.get('tool_call_id')!r}, waiting for {waiting}"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"{index}: no result of {waiting}"
        content = message.get("content")
        said = not blank(content) if isinstance(content, str) else bool(content)
        if isinstance(content, list) and all(b["type"] == "text" and blank(b["text"]) for b in content):
            said = False
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        if not said and not calls and not message.get("refusal"):
            return f"{index}: empty"
        if calls is not None and not calls:
            return f"{index}: an empty list of calls"
        waiting = [call["id"] for call in calls or ()]
        if any(not isinstance(id, str) or not 0 < len(id) <= 40 for id in waiting) or len(set(waiting)) < len(waiting):
            return f"{index}: ids {waiting}"
    return f"no result of {waiting}" if waiting else None


def refused_by_responses(view):
    """Say why the Responses API would refuse these items; None where it would not."""
    waiting, seen = set(), set()
    for index, item in enumerate(view):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            if not item["call_id"] or item["call_id"] in seen:
                return f"{index}: call {item['call_id']!r}"
            seen.add(item["call_id"])
            waiting.add(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if item["call_id"] not in waiting:
                return f"{index}: a result of {item['call_id']!r}"
            waiting.remove(item["call_id"])
        elif kind == "message" and not item["content"]:
            return f"{index}: empty"
        elif kind == "reasoning" and (
            index == len(view) - 1 or view[index + 1].get("role", "assistant") != "assistant"
        ):
            return f"{index}: reasoning that nothing follows"
    return f"no result of {waiting}" if waiting else None


def refused_by_ai_sdk(view):
    """Say why the AI SDK would refuse these model messages; None where it would not."""
    waiting = set()
    for index, message in enumerate(view):
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


REFUSED = {
    "anthropic": refused_by_anthropic, "openai": refused_by_openai, "openai-responses": refused_by_responses,
    "ai-sdk": refused_by_ai_sdk,
}  # fmt: skip


def refused_values(messages, unique):
    """Say why calls and results do not come out even, whatever the form; None where they do."""
    made, answered = [], []
    for message in messages:
        if not message.parts:
            return f"{message.id}: empty"
        if all(isinstance(part, TextPart) and blank(part.text) for part in message.parts):
            return f"{message.id}: blank"
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                if message.role != "assistant" or not part.call_id or (unique and part.call_id in made):
                    return f"{message.id}: call {part.call_id}"
                made.append(part.call_id)
            if isinstance(part, ToolResultPart):
                answered.append(part.call_id)
                if part.call_id not in made:
                    return f"{message.id}: result {part.call_id} before its call"
    return None if sorted(made) == sorted(answered) else f"{made} {answered}"


# What people, models and crashes write.

texts = st.sampled_from(["hello", "and then?", "", " ", "\n", "ends with space ", "ok"])
ids = st.sampled_from(["a", "b", "c", "", "weird.id:0", "x" * 50])
states = st.sampled_from(["completed"] * 6 + ["streaming", "interrupted", "error", "pending"])
anthropic_blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda call, given: {"type": "tool_use", "id": call, "name": "f", "input": given}, ids, st.sampled_from([{}, {"a": 1}, "no", None])),
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
    lambda call, given: {"id": call, "type": "function", "function": {"name": "f", "arguments": given}},
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
talks = st.lists(st.tuples(drafts, states), max_size=10)


def placed(drafts):
    """Give drafts their places."""
    return [
        Message(
            1, position, draft.role, draft.parts, 0, format=draft.format, native=draft.native, state=state, tokens=7,
        )
        for position, (draft, state) in enumerate(drafts, 1)
    ]  # fmt: skip


def said(*messages, format=None):
    return placed([(draft, "completed") for message in messages for draft in formats.read(message, format)])


many = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("format", WRITTEN)
@many
@given(talk=talks)
def test_the_view_is_what_the_provider_takes(format, talk):
    messages = placed(talk)
    view, repairs = mended(messages, format)
    written = formats.write(view, format)
    assert REFUSED[format](written) is None
    assert mended(view, format)[1] == []
    before = formats.write(messages, format)
    if REFUSED[format](before) is None and not any(has_odd(message) for message in messages):
        assert written == before
        if all(message.format in (None, format) for message in messages):
            assert repairs == []
    if written != before:
        assert repairs or format == "anthropic"


@pytest.mark.parametrize("format", ["openai-responses", "ai-sdk"])
@many
@given(talk=talks)
def test_the_view_is_what_others_take(format, talk):
    view, _ = mended(placed(talk), format)
    assert REFUSED[format](formats.write(view, format)) is None
    assert mended(view, format)[1] == []


def has_odd(message):
    """Whether a message was cut off, or has no format and more than text: what is not written of it may be wrong."""
    if message.role == "tool" and not message.tool_results:
        return True
    return message.state != "completed" or (
        message.format is None and any(not isinstance(part, TextPart) for part in message.parts)
    )


@pytest.mark.parametrize("format", PROVIDERS)
@many
@given(talk=talks)
def test_calls_and_results_come_out_even_for_everyone(format, talk):
    messages = placed(talk)
    view, repairs = mend(messages, RULES[format])
    view = [message for message in view if message.role != "system"]
    view = [message for message in view if any(not isinstance(part, ReasoningPart) for part in message.parts)]
    assert refused_values(view, RULES[format].unique == "history") is None
    for repair in repairs:
        assert repair.sentence.endswith(".")
        assert repair.message in {message.id for message in messages}


@pytest.mark.parametrize("format", WRITTEN)
@many
@given(talk=talks)
def test_the_quick_look_agrees_with_the_long_way(format, talk):
    messages = placed(talk)
    if is_sound(messages, RULES[format]):
        view, repairs = mend(messages, RULES[format])
        assert repairs == []
        assert formats.write(view, format) == formats.write(messages, format)


@pytest.mark.parametrize("format", PROVIDERS)
@many
@given(talk=talks)
def test_what_is_written_while_it_is_read_is_what_the_long_way_gives(format, talk):
    messages = placed(talk)
    sheet = Sheet(format)
    if sheet.take([line(message) for message in messages]) and sheet.end():
        view, repairs = mend(messages, RULES[format])
        assert repairs == []
        assert sheet.history == formats.write(view, format)


@pytest.mark.parametrize("format", WRITTEN)
@many
@given(talk=talks)
def test_no_words_are_lost(format, talk):
    messages = placed(talk)
    before, after = words(formats.write(messages, format)), words(formats.write(mended(messages, format)[0], format))
    rest = iter([word.rstrip() for word in after])
    assert all(word.rstrip() in rest for word in before)
    assert len(after) <= len(before) + 1 + sum(len(m.parts) for m in messages if m.role == "tool")


def words(view):
    """Give what was said, without tool results and blanks."""
    found = []
    for message in view:
        if message["role"] == "tool":
            continue
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [block["text"] for block in blocks if block["type"] == "text" and not blank(block["text"])]
    return found


# Each kind by itself.

ASK = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
TWO = {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in "ab"]}
HI = {"role": "user", "content": "hi"}
SO = {"role": "assistant", "content": "so"}


def result(*ids, text="r"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text} for id in ids]}


def sent(*messages, format="anthropic"):
    view, repairs = mended(said(*messages, format="anthropic"), format)
    return formats.write(view, format), [repair.kind for repair in repairs]


def test_a_sound_talk_is_the_same_object():
    messages = said(HI, TWO, result("a", "b"), SO, format="anthropic")
    for format in WRITTEN:
        view, repairs = mended(messages, format)
        assert view is messages
        assert repairs == []


def test_a_call_without_a_result_says_that_it_was_interrupted():
    view, kinds = sent(HI, ASK, HI)
    assert kinds == ["interrupted_call"]
    made = {"type": "tool_result", "tool_use_id": "a", "content": INTERRUPTED, "is_error": True}
    assert view == [HI, ASK, {"role": "user", "content": [made, {"type": "text", "text": "hi"}]}]
    view, kinds = sent(HI, ASK, HI, format="openai")
    assert kinds == ["interrupted_call"]
    assert view[2] == {"role": "tool", "tool_call_id": "a", "content": INTERRUPTED}
    assert view[3] == HI


def test_one_of_two_calls_without_a_result():
    view, kinds = sent(HI, TWO, result("b"), SO)
    assert kinds == ["interrupted_call"]
    assert sorted(block["tool_use_id"] for block in view[2]["content"]) == ["a", "b"]
    assert len(view) == 4


def test_a_result_that_answers_nothing():
    assert sent(HI, SO, result("z"), SO) == (
        [HI, {"role": "assistant", "content": [{"type": "text", "text": "so"}] * 2}],
        ["orphan_result", "same_role"],
    )
    assert sent(HI, SO, result("z"), SO, format="openai") == ([HI, SO, SO], ["orphan_result"])


def test_a_result_that_came_late_or_early():
    for talk in ([HI, ASK, SO, HI, result("a"), SO], [HI, result("a"), HI, ASK, SO]):
        for format in WRITTEN:
            view, kinds = sent(*talk, format=format)
            assert "moved_result" in kinds
            assert "interrupted_call" not in kinds
            assert REFUSED[format](view) is None


def test_a_second_result():
    view, kinds = sent(HI, ASK, result("a", text="first"), SO, result("a", text="second"), SO)
    assert kinds == ["duplicate_result", "same_role"]
    assert view[2] == result("a", text="first")


def test_results_split_over_messages_are_joined():
    view, kinds = sent(HI, TWO, result("a"), result("b"), SO)
    assert view == [HI, TWO, result("a", "b"), SO]
    assert kinds == ["same_role"]


def test_results_come_first_in_their_message():
    talk = {"role": "user", "content": [{"type": "text", "text": "here"}, *result("a")["content"]]}
    view, kinds = sent(HI, ASK, talk)
    assert view[2]["content"] == talk["content"][::-1]
    assert kinds == ["moved_result"]


def test_results_in_the_message_of_their_call():
    whole = {"role": "assistant", "content": [*ASK["content"], *result("a")["content"]]}
    assert sent(HI, whole, SO) == ([HI, ASK, result("a"), SO], ["moved_result"])


def test_empty_messages_and_reasoning_alone():
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    assert sent(HI, {"role": "assistant", "content": []}, SO) == ([HI, SO], ["empty_message"])
    assert sent(HI, {"role": "assistant", "content": " "}, SO) == ([HI, SO], ["empty_message"])
    assert sent(HI, thinking, SO) == ([HI, SO], ["only_reasoning"])
    assert sent(HI, {"role": "assistant", "content": [*ASK["content"], *thinking["content"]]}, result("a")) == (
        [HI, ASK, result("a")], ["last_reasoning"],
    )  # fmt: skip


def test_two_of_one_role_become_one_with_all_that_was_in_them():
    first = {
        "role": "user",
        "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "odd": 1,
    }
    view, kinds = sent(first, {"role": "user", "content": "y", "more": 2}, SO)
    assert view == [
        {"role": "user", "content": [*first["content"], {"type": "text", "text": "y"}], "odd": 1, "more": 2}, SO,
    ]  # fmt: skip
    assert kinds == ["same_role"]


def test_an_agent_that_speaks_first():
    assert sent(SO, HI) == ([{"role": "user", "content": BEGINNING}, SO, HI], ["first_role"])
    assert sent(SO, HI, format="openai") == ([SO, HI], [])


def test_ids_that_are_missing_taken_or_odd():
    nameless = {"role": "assistant", "content": [{"type": "tool_use", "id": "", "name": "f", "input": {}}] * 2}
    view, kinds = sent(HI, nameless, result("", ""), SO)
    assert kinds == ["call_id", "call_id"]
    assert refused_by_anthropic(view) is None
    view, kinds = sent(HI, ASK, result("a", text="1"), ASK, result("a", text="2"), SO)
    assert kinds == ["call_id"]
    assert [view[n]["content"][0]["content"] for n in (2, 4)] == ["1", "2"]
    assert sent(HI, ASK, result("a"), ASK, result("a"), SO, format="openai")[1] == []
    odd = {"role": "assistant", "content": [{"type": "tool_use", "id": "functions.f:0", "name": "f", "input": {}}]}
    view, kinds = sent(HI, odd, result("functions.f:0"), SO)
    assert kinds == ["call_id"]
    assert refused_by_anthropic(view) is None


def test_a_call_that_was_cut_off():
    call = ToolCallPart(call_id="a", tool="f", arguments_text='{"path": "REA')
    for state, kind in (("interrupted", "partial_call"), ("completed", "interrupted_call")):
        messages = placed([
            (Draft(role="user", parts=(TextPart(text="q"),)), "completed"),
            (Draft(role="assistant", parts=(TextPart(text="I look"), call)), state),
        ])  # fmt: skip
        for format in WRITTEN:
            view, repairs = mended(messages, format)
            assert [repair.kind for repair in repairs] == [kind]
            assert repairs[0].call_id == "a"
            assert repairs[0].message == "1.2"
            assert REFUSED[format](formats.write(view, format)) is None


def test_words_that_are_said_to_be_a_tools():
    messages = placed([(Draft(role="tool", parts=(TextPart(text="x"),)), "completed")])
    for format in WRITTEN:
        view, repairs = mended(messages, format)
        assert [repair.kind for repair in repairs] == ["wrong_role"]
        assert formats.write(view, format) == [{"role": "user", "content": "x"}]


def test_white_space_at_the_very_end():
    assert sent(HI, {"role": "assistant", "content": "so \n"}) == ([HI, SO], ["last_space"])
    assert sent(HI, {"role": "assistant", "content": "so "}, HI)[1] == []


def test_a_summary_before_a_question_is_joined_without_a_word():
    compaction = Compaction(
        id=1,
        branch=1,
        from_position=1,
        to_position=4,
        round=1,
        tokens_before=9,
        tokens_after=1,
        summary="before",
        created_at=1,
    )
    messages = [standing_for(compaction, 1), *said(HI, SO)]
    view, repairs = mended(messages, "anthropic")
    assert repairs == []
    assert formats.write(view, "anthropic")[0]["content"] == [
        {"type": "text", "text": f"{LABEL}\nbefore"}, {"type": "text", "text": "hi"},
    ]  # fmt: skip
    assert [message["content"] for message in formats.write(mended(messages, "openai")[0], "openai")] == [
        f"{LABEL}\nbefore",
        "hi",
        "so",
    ]


def test_recollects_own_form_is_not_mended():
    messages = said(SO, SO, result("z"), format="anthropic")
    assert mended(messages, "recollect") == (messages, [])


def test_reasoning_items_stand_alone_where_something_follows():
    def item(*parts, role="assistant"):
        return Draft(role=role, parts=parts, format="openai-responses")

    thought, call = ReasoningPart(text="hm"), ToolCallPart(call_id="a", tool="f", arguments_text="{}")
    answer = ToolResultPart(call_id="a", text="r")
    talk = placed([(item(thought), "completed"), (item(call), "completed"), (item(answer, role="tool"), "completed")])
    assert mend(talk, RULES["openai-responses"]) == (talk, [])
    view, repairs = mend([*talk, *placed([(item(thought), "completed")])], RULES["openai-responses"])
    assert view == talk
    assert [repair.kind for repair in repairs] == ["only_reasoning"]


def test_parallel_calls_as_items_are_sound_for_responses():
    def item(part, role="assistant"):
        return (Draft(role=role, parts=(part,), format="openai-responses"), "completed")

    calls = [item(ToolCallPart(call_id=id, tool="f", arguments_text="{}")) for id in "ab"]
    results = [item(ToolResultPart(call_id=id, text="r"), role="tool") for id in "ab"]
    talk = placed([*calls, *results])
    assert mend(talk, RULES["openai-responses"]) == (talk, [])
    view, _ = mend(talk, RULES["openai"])
    assert REFUSED["openai"](formats.write(view, "openai")) is None


def test_what_a_provider_runs_itself_is_left_alone():
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    said = {"role": "assistant", "content": [call, {"type": "text", "text": "found"}]}
    talk = placed([
        (Draft(role="user", parts=(TextPart(text="q"),)), "completed"),
        (formats.read(said, "anthropic")[0], "completed"),
    ])  # fmt: skip
    assert mended(talk, "anthropic")[1] == []


def test_problems_are_listed_for_anyone_or_for_one():
    messages = said(SO, ASK, result("z"), {"role": "user", "content": []}, format="anthropic")
    assert sorted(problem.kind for problem in problems(messages)) == [
        "empty_message",
        "interrupted_call",
        "orphan_result",
    ]
    assert "first_role" in [problem.kind for problem in problems(messages, "anthropic")]
    assert problems(said(HI, ASK, result("a"), SO, format="anthropic")) == []


CALLS = {
    "function_call": {"name": "f", "arguments": "{}"},
    "custom_tool_call": {"name": "f", "input": "x"},
    "shell_call": {"action": {"commands": ["ls"]}},
    "apply_patch_call": {"operation": {"type": "delete_file", "path": "a"}},
}


@pytest.mark.parametrize("answer", ["function_call_output", "custom_tool_call_output"])
@pytest.mark.parametrize("asked", list(CALLS))
def test_an_output_is_one_of_its_calls_type(asked, answer):
    items = [
        {"role": "user", "content": "q"},
        {"type": asked, "call_id": "c", **CALLS[asked]},
        {"type": answer, "call_id": "c", "output": "r"},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "d", "output": "s"},
    ]
    talk = placed([(draft, "completed") for draft in formats.read(items, "openai-responses")])
    view, repairs = mended(talk, "openai-responses")
    written = formats.write(view, "openai-responses")
    assert [item.get("type") for item in written[1:3]] == [asked, f"{asked}_output"]
    assert [*written[:2], *written[3:]] == [*items[:2], *items[3:]]
    assert [repair.kind for repair in repairs] == ([] if answer == f"{asked}_output" else ["output_type"])


def test_a_picture_that_answers_a_computer_call_as_a_function_does_is_a_screenshot():
    image = {"type": "input_image", "image_url": "https://example.com/a.png"}
    items = [
        {"role": "user", "content": "q"},
        {"type": "computer_call", "call_id": "c", "id": "i", "action": {"type": "wait"}, "pending_safety_checks": []},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]
    talk = placed([(draft, "completed") for draft in formats.read(items, "openai-responses")])
    view, repairs = mended(talk, "openai-responses")
    (shown,) = formats.write(view, "openai-responses")[2:]
    assert shown["type"] == "computer_call_output"
    assert shown["output"] == {"type": "computer_screenshot", "image_url": image["image_url"]}
    assert [repair.kind for repair in repairs] == ["output_type"]


def ui_tool(call_id, **more):
    return {"type": "tool-f", "toolCallId": call_id, "state": "input-available", "input": {}, **more}


def test_a_call_in_an_earlier_step_of_an_answer_is_answered_in_that_step():
    answered = ui_tool("b", state="output-available", output=1)
    parts = [{"type": "step-start"}, ui_tool("a"), answered, {"type": "step-start"}, {"type": "text", "text": "done"}]
    talk = [*said(HI), *said({"id": "m", "role": "assistant", "parts": parts}, format="ai-sdk-ui")]
    for format, refused in REFUSED.items():
        view, repairs = mended(talk, format)
        assert refused(formats.write(view, format)) is None, format
        assert [repair.kind for repair in repairs] == ["interrupted_call"]
    roles = [message["role"] for message in formats.write(mended(talk, "openai")[0], "openai")]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


def test_steps_without_results_are_one_message():
    parts = [{"type": "text", "text": "one"}, {"type": "step-start"}, {"type": "text", "text": "two"}]
    talk = [*said(HI), *said({"id": "m", "role": "assistant", "parts": parts}, format="ai-sdk-ui")]
    view, _ = mended(talk, "anthropic")
    assert [message["role"] for message in formats.write(view, "anthropic")] == ["user", "assistant"]


def test_a_result_beside_its_call_is_of_that_call():
    parts = [ui_tool("a"), ui_tool("a", state="output-available", output=1)]
    talk = said({"id": "m", "role": "assistant", "parts": parts}, format="ai-sdk-ui")
    view, _ = mended(talk, "ai-sdk-ui")
    states = [part["state"] for part in formats.write(view, "ai-sdk-ui")[0]["parts"]]
    assert states == ["output-error", "output-available"]


def test_pictures_of_tools_do_not_part_the_results():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    asked = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "ab"]
    first, second = [{"type": "tool_result", "tool_use_id": name, "content": [image]} for name in "ab"]
    answers = [[first], [second, {"type": "text", "text": "and now?"}]]
    told = [{"role": "user", "content": content} for content in answers]
    talk = said(HI, {"role": "assistant", "content": asked}, *told, format="anthropic")
    roles = [message["role"] for message in formats.write(mended(talk, "openai")[0], "openai")]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


def test_reasoning_that_only_reasoning_follows_is_left_out():
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    talk = [*said(thought, format="openai-responses"), *said(thought, format="openai-responses")]
    view, repairs = mended(talk, "openai-responses")
    assert (list(view), {repair.kind for repair in repairs}) == ([], {"only_reasoning"})
