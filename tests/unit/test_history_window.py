"""Windows fit a history to a budget: which messages stay, and that calls stay with their results."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.errors import InvalidValue
from recollect.history.compaction import CompactionPolicy, choose_range
from recollect.history.tool_pairs import pair_calls
from recollect.history.window import Window, split_turns, token_counter
from recollect.model.compaction import Compaction, SummaryMessage, summary_message
from recollect.model.message import AttachmentPart, Message, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Session
from recollect.store_async import AsyncSession

COMPACTION = Compaction(
    id=1,
    branch=1,
    from_position=1,
    to_position=1,
    round=1,
    tokens_before=9,
    tokens_after=3,
    summary="s",
    created_at_ms=1,
)


def message(position, kind, tokens=10, pinned=False):
    """Make a message: q (question), r (reply), s (system), calls as +ab and results as -ab."""
    role = {"q": "user", "r": "assistant", "s": "system", "+": "assistant", "-": "tool"}[kind[0]]
    parts = (TextPart(text=kind),)
    if kind[0] == "+":
        parts = tuple(ToolCallPart(call_id=id, tool="f", arguments={}) for id in kind[1:])
    if kind[0] == "-":
        parts = tuple(ToolResultPart(call_id=id, text="r") for id in kind[1:])
    return Message(1, position, role, parts, 0, tokens=tokens, metadata={"pinned": True} if pinned else None)


def conversation(*kinds):
    return [message(position, kind) for position, kind in enumerate(kinds, 1)]


def fit_positions(messages, **bounds):
    return [m.position for m in Window(**bounds).fit(messages)]


def test_the_oldest_turns_are_dropped_whole():
    messages = conversation("s", "q", "r", "q", "+a", "-a", "r", "q", "r")
    assert fit_positions(messages, budget=90) == list(range(1, 10))
    assert fit_positions(messages, budget=89) == [1, 4, 5, 6, 7, 8, 9]
    assert fit_positions(messages, budget=69) == [1, 8, 9]
    assert fit_positions(messages, limit=7) == [1, 4, 5, 6, 7, 8, 9]
    assert fit_positions(messages, limit=6) == [1, 8, 9]
    assert fit_positions(messages, budget=70, limit=6) == [1, 8, 9]


def test_the_oldest_steps_of_an_oversized_newest_turn_are_dropped():
    messages = conversation("q", "r", "q", "+a", "-a", "+bc", "-b", "-c", "r")
    assert fit_positions(messages, budget=70) == [3, 4, 5, 6, 7, 8, 9]
    assert fit_positions(messages, budget=69) == [3, 6, 7, 8, 9]
    assert fit_positions(messages, budget=49) == [3, 9]
    assert fit_positions(messages, budget=0) == [3, 9]
    assert fit_positions(messages[:-1], budget=39) == [3]
    assert fit_positions(messages[:-1], budget=40) == [3, 6, 7, 8]


def test_the_newest_question_stays_even_if_it_exceeds_the_budget():
    messages = [*conversation("q", "r"), message(3, "q", tokens=1_000)]
    assert fit_positions(messages, budget=5) == [3]
    assert fit_positions(messages, limit=0) == [3]


def test_pinned_messages_stay_with_their_calls_and_results():
    messages = conversation("q", "+a", "-a", "r", "q", "r")
    messages[2] = message(3, "-a", pinned=True)
    assert fit_positions(messages, budget=40) == [2, 3, 5, 6]
    assert fit_positions(messages, budget=0) == [2, 3, 5, 6]


def test_a_late_result_keeps_its_turns_together():
    messages = conversation("q", "r", "q", "+a", "q", "-a", "r")
    assert fit_positions(messages, budget=50) == [3, 4, 5, 6, 7]
    assert fit_positions(messages, budget=49) == [4, 5, 6, 7]
    assert fit_positions(messages, budget=30) == [5, 7]


def test_a_result_without_its_call_is_dropped():
    assert fit_positions(conversation("-a", "-a", "r", "q", "r"), budget=45) == [3, 4, 5]
    assert fit_positions(conversation("-a", "-b", "r"), budget=25) == [3]


def test_a_summary_stays():
    messages = [summary_message(COMPACTION, 1), *conversation("q", "r", "q", "r")]
    assert [type(m) is SummaryMessage for m in Window(budget=23).fit(messages)] == [True, False, False]


@pytest.mark.parametrize("bounds", [{"budget": -1}, {"budget": 1.5}, {"limit": -1}, {"limit": "3"}, {"budget": True}])
def test_invalid_bounds_are_refused(bounds):
    with pytest.raises(InvalidValue):
        Window(**bounds)


kinds = st.sampled_from(["q", "r", "s", "+a", "-a", "+b", "-b", "+ab", "-ab", "q", "r"])
message_specs = st.lists(st.tuples(kinds, st.integers(0, 30), st.sampled_from([False] * 9 + [True])), max_size=25)


@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs=message_specs, budget=st.none() | st.integers(0, 200), limit=st.none() | st.integers(0, 20))
def test_bounds_hold_and_calls_stay_with_their_results(specs, budget, limit):
    messages = [message(position, *rest) for position, rest in enumerate(specs, 1)]
    view = Window(budget, limit).fit(messages)
    positions = [m.position for m in view]
    assert positions == sorted(set(positions))
    questions = [m.position for m in messages if m.role == "user"]
    assert not questions or questions[-1] in positions
    assert {m.position for m in messages if m.role == "system" or m.pinned} <= set(positions)
    for (call, _), (result, _) in pair_calls(messages).answers.items():
        assert (messages[call].position in positions) == (messages[result].position in positions)
    if (budget is None or sum(m.tokens for m in messages) <= budget) and (limit is None or len(messages) <= limit):
        assert view == messages
    minimum = minimum_messages(messages)
    if budget is not None:
        assert sum(m.tokens for m in view) <= max(budget, sum(m.tokens for m in minimum))
    if limit is not None:
        assert len(view) <= max(limit, len(minimum))


def minimum_messages(messages):
    """Return the messages that always stay: instructions, pins, the newest question, the replies; and their tool pairs."""
    indexes = {index for index, m in enumerate(messages) if m.role == "system" or m.pinned}
    questions = [index for index, m in enumerate(messages) if m.role == "user"]
    indexes |= set(questions[-1:])
    if messages:
        indexes.add(max(index for index, m in enumerate(messages)))
        indexes |= {index for index, m in enumerate(messages) if m.role == "assistant" and not m.tool_calls}
    for _ in messages:
        for (call, _), (result, _) in pair_calls(messages).answers.items():
            if {call, result} & indexes:
                indexes |= {call, result}
    return [messages[index] for index in indexes]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs=message_specs, before=st.none() | st.integers(1, 30), keep=st.integers(0, 4))
def test_a_compacted_range_separates_no_call_from_its_result(specs, before, keep):
    messages = [message(position, *rest) for position, rest in enumerate(specs, 1)]
    try:
        span = choose_range(messages, [], before, keep)
    except InvalidValue:
        return
    inside = {m.position for m in span.messages}
    remaining = {m.position for m in messages if span.low <= m.position <= span.high} - inside
    assert not inside & {m.position for m in messages if m.role == "system" or m.pinned}
    assert before is None or span.high < before
    for (call, _), (result, _) in pair_calls(messages).answers.items():
        pair = {messages[call].position, messages[result].position}
        assert len(pair & inside) in (0, 2)
        remaining -= pair
    assert remaining <= {m.position for m in messages if m.role == "system" or m.pinned}


def test_compaction_keeps_the_last_turns():
    messages = conversation("s", "q", "r", "q", "r", "q", "r")
    assert split_turns(messages[1:]) == [[0, 1], [2, 3], [4, 5]]
    assert [choose_range(messages, [], None, keep).high for keep in (0, 1, 2, 3, 9)] == [7, 5, 3, 3, 3]
    assert choose_range(messages, [], 6, 0)[:2] == (2, 5)
    for too_short in (conversation("q", "r"), conversation("s"), []):
        with pytest.raises(InvalidValue, match="nothing to compact"):
            choose_range(too_short, [], None, 1)


def test_an_earlier_summary_is_compacted_only_with_other_messages():
    summary = summary_message(COMPACTION, 1)
    assert choose_range([summary, *conversation("s", "q", "r", "q")[1:]], [COMPACTION], None, 1)[:2] == (1, 3)
    with pytest.raises(InvalidValue):
        choose_range([summary, *conversation("s", "q")[1:]], [COMPACTION], None, 1)


def test_a_policy_decides_when_to_compact():
    policy = CompactionPolicy()
    default_keep_turns = inspect.signature(Session.compact).parameters["keep_turns"].default
    assert (
        policy.keep_turns
        == default_keep_turns
        == inspect.signature(AsyncSession.compact).parameters["keep_turns"].default
    )
    assert (policy.due(79, 100), policy.due(80, 100)) == (False, True)
    assert CompactionPolicy(share=0.5, keep_turns=1).due(50, 100)
    for invalid in ({"share": 0}, {"share": 1.1}, {"keep_turns": -1}):
        with pytest.raises(InvalidValue):
            CompactionPolicy(**invalid)


def test_real_tokenizers():
    pytest.importorskip("splintr")
    hello = Message(1, 1, "user", (TextPart(text="hello world"),), 0, tokens=99)
    for name in ("o200k", "cl100k"):
        count = token_counter(name)
        assert count is not None
        assert count(hello) == 4 + 2
        assert count(Message(1, 1, "user", (TextPart(text="\ud800<|endoftext|>"),), 0)) > 4 + 2
        assert count(Message(1, 1, "user", (AttachmentPart(url="x"),), 0)) == 4 + 1_000
        rich = message(1, "+ab")
        assert count(rich) > 4
    with pytest.raises(InvalidValue, match="o200k"):
        token_counter("gpt")


def test_a_tokenizer_that_is_not_installed(monkeypatch):
    import sys

    from recollect.history import window

    window._encoder.cache_clear()
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(InvalidValue, match=r"recollect\[tokens\]"):
        token_counter("o200k")


def test_a_counter_counts_each_message_once():
    positions = []

    def count(message):
        positions.append(message.position)
        return 10

    messages = [message(position, "q", tokens=1) for position in range(1, 6)]
    window = Window(budget=25, counter=count)
    assert window.enough(messages)
    assert [m.position for m in window.fit(messages)] == [4, 5]
    assert sorted(positions) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidValue):
        Window(budget=1, counter=lambda _: "many").fit(messages)
