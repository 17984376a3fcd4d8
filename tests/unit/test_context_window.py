"""Fitting to a budget: what stays, what goes, and that calls and results are never parted."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.context.compaction import CompactionPolicy, replaced
from recollect.context.counting import counter
from recollect.context.pairs import pair
from recollect.context.window import Window, turns
from recollect.errors import InvalidValue
from recollect.model.compaction import Compaction, Summary, standing_for
from recollect.model.message import Message
from recollect.model.part import AttachmentPart, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Session
from recollect.store_async import AsyncSession

COMPACTION = Compaction(
    id=1, branch=1, from_position=1, to_position=1, round=1, tokens_before=9, tokens_after=3, summary="s", created_at=1
)


def message(position, kind, tokens=10, pinned=False):
    """Make a message: q (asked), r (answered), s (system), calls as +ab and results as -ab."""
    role = {"q": "user", "r": "assistant", "s": "system", "+": "assistant", "-": "tool"}[kind[0]]
    parts = (TextPart(text=kind),)
    if kind[0] == "+":
        parts = tuple(ToolCallPart(call_id=id, tool="f", arguments={}) for id in kind[1:])
    if kind[0] == "-":
        parts = tuple(ToolResultPart(call_id=id, text="r") for id in kind[1:])
    return Message(1, position, role, parts, 0, tokens=tokens, metadata={"pinned": True} if pinned else None)


def talk(*kinds):
    return [message(position, kind) for position, kind in enumerate(kinds, 1)]


def kept(messages, **bounds):
    return [m.position for m in Window(**bounds).fit(messages)]


def test_whole_turns_go_from_the_oldest_on():
    messages = talk("s", "q", "r", "q", "+a", "-a", "r", "q", "r")
    assert kept(messages, budget=90) == list(range(1, 10))
    assert kept(messages, budget=89) == [1, 4, 5, 6, 7, 8, 9]
    assert kept(messages, budget=69) == [1, 8, 9]
    assert kept(messages, limit=7) == [1, 4, 5, 6, 7, 8, 9]
    assert kept(messages, limit=6) == [1, 8, 9]
    assert kept(messages, budget=70, limit=6) == [1, 8, 9]


def test_of_a_newest_turn_that_is_too_large_the_oldest_steps_go():
    messages = talk("q", "r", "q", "+a", "-a", "+bc", "-b", "-c", "r")
    assert kept(messages, budget=70) == [3, 4, 5, 6, 7, 8, 9]
    assert kept(messages, budget=69) == [3, 6, 7, 8, 9]
    assert kept(messages, budget=49) == [3, 9]
    assert kept(messages, budget=0) == [3, 9]
    assert kept(messages[:-1], budget=39) == [3]
    assert kept(messages[:-1], budget=40) == [3, 6, 7, 8]


def test_the_newest_question_is_in_though_it_alone_is_too_large():
    messages = [*talk("q", "r"), message(3, "q", tokens=1_000)]
    assert kept(messages, budget=5) == [3]
    assert kept(messages, limit=0) == [3]


def test_pinned_messages_stay_with_what_belongs_to_them():
    messages = talk("q", "+a", "-a", "r", "q", "r")
    messages[2] = message(3, "-a", pinned=True)
    assert kept(messages, budget=40) == [2, 3, 5, 6]
    assert kept(messages, budget=0) == [2, 3, 5, 6]


def test_a_late_result_keeps_its_turns_together():
    messages = talk("q", "r", "q", "+a", "q", "-a", "r")
    assert kept(messages, budget=50) == [3, 4, 5, 6, 7]
    assert kept(messages, budget=49) == [4, 5, 6, 7]
    assert kept(messages, budget=30) == [5, 7]


def test_a_result_whose_call_was_not_read_is_left_out():
    assert kept(talk("-a", "-a", "r", "q", "r"), budget=45) == [3, 4, 5]
    assert kept(talk("-a", "-b", "r"), budget=25) == [3]


def test_a_summary_stays():
    messages = [standing_for(COMPACTION, 1), *talk("q", "r", "q", "r")]
    assert [type(m) is Summary for m in Window(budget=23).fit(messages)] == [True, False, False]


@pytest.mark.parametrize("bounds", [{"budget": -1}, {"budget": 1.5}, {"limit": -1}, {"limit": "3"}, {"budget": True}])
def test_bounds_are_numbers(bounds):
    with pytest.raises(InvalidValue):
        Window(**bounds)


kinds = st.sampled_from(["q", "r", "s", "+a", "-a", "+b", "-b", "+ab", "-ab", "q", "r"])
messages_of = st.lists(st.tuples(kinds, st.integers(0, 30), st.sampled_from([False] * 9 + [True])), max_size=25)


@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(told=messages_of, budget=st.none() | st.integers(0, 200), limit=st.none() | st.integers(0, 20))
def test_bounds_hold_and_pairs_are_not_parted(told, budget, limit):
    messages = [message(position, *rest) for position, rest in enumerate(told, 1)]
    view = Window(budget, limit).fit(messages)
    positions = [m.position for m in view]
    assert positions == sorted(set(positions))
    asked = [m.position for m in messages if m.role == "user"]
    assert not asked or asked[-1] in positions
    assert {m.position for m in messages if m.role == "system" or m.pinned} <= set(positions)
    for (call, _), (result, _) in pair(messages).answers.items():
        assert (messages[call].position in positions) == (messages[result].position in positions)
    if (budget is None or sum(m.tokens for m in messages) <= budget) and (limit is None or len(messages) <= limit):
        assert view == messages
    least = least_of(messages)
    if budget is not None:
        assert sum(m.tokens for m in view) <= max(budget, sum(m.tokens for m in least))
    if limit is not None:
        assert len(view) <= max(limit, len(least))


def least_of(messages):
    """Give what stays in any case: instructions, pins, the newest question, the last words; with their partners."""
    stays = {index for index, m in enumerate(messages) if m.role == "system" or m.pinned}
    asked = [index for index, m in enumerate(messages) if m.role == "user"]
    stays |= set(asked[-1:])
    if messages:
        stays.add(max(index for index, m in enumerate(messages)))
        stays |= {index for index, m in enumerate(messages) if m.role == "assistant" and not m.tool_calls}
    for _ in messages:
        for (call, _), (result, _) in pair(messages).answers.items():
            if {call, result} & stays:
                stays |= {call, result}
    return [messages[index] for index in stays]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(told=messages_of, before=st.none() | st.integers(1, 30), keep=st.integers(0, 4))
def test_what_is_compacted_parts_no_call_from_its_result(told, before, keep):
    messages = [message(position, *rest) for position, rest in enumerate(told, 1)]
    try:
        span = replaced(messages, [], before, keep)
    except InvalidValue:
        return
    inside = {m.position for m in span.messages}
    left = {m.position for m in messages if span.low <= m.position <= span.high} - inside
    assert not inside & {m.position for m in messages if m.role == "system" or m.pinned}
    assert before is None or span.high < before
    for (call, _), (result, _) in pair(messages).answers.items():
        ends = {messages[call].position, messages[result].position}
        assert len(ends & inside) in (0, 2)
        left -= ends
    assert left <= {m.position for m in messages if m.role == "system" or m.pinned}


def test_how_many_turns_are_kept():
    messages = talk("s", "q", "r", "q", "r", "q", "r")
    assert turns(messages[1:]) == [[0, 1], [2, 3], [4, 5]]
    assert [replaced(messages, [], None, keep).high for keep in (0, 1, 2, 3, 9)] == [7, 5, 3, 3, 3]
    assert replaced(messages, [], 6, 0)[:2] == (2, 5)
    for alone in (talk("q", "r"), talk("s"), []):
        with pytest.raises(InvalidValue, match="nothing to compact"):
            replaced(alone, [], None, 1)


def test_an_earlier_summary_is_replaced_and_not_alone():
    summary = standing_for(COMPACTION, 1)
    assert replaced([summary, *talk("s", "q", "r", "q")[1:]], [COMPACTION], None, 1)[:2] == (1, 3)
    with pytest.raises(InvalidValue):
        replaced([summary, *talk("s", "q")[1:]], [COMPACTION], None, 1)


def test_a_policy_says_when():
    policy = CompactionPolicy()
    kept = inspect.signature(Session.compact).parameters["keep_turns"].default
    assert policy.keep_turns == kept == inspect.signature(AsyncSession.compact).parameters["keep_turns"].default
    assert (policy.due(79, 100), policy.due(80, 100)) == (False, True)
    assert CompactionPolicy(share=0.5, keep_turns=1).due(50, 100)
    for wrong in ({"share": 0}, {"share": 1.1}, {"keep_turns": -1}):
        with pytest.raises(InvalidValue):
            CompactionPolicy(**wrong)


def test_real_tokenizers():
    pytest.importorskip("splintr")
    hello = Message(1, 1, "user", (TextPart(text="hello world"),), 0, tokens=99)
    for name in ("o200k", "cl100k"):
        count = counter(name)
        assert count(hello) == 4 + 2
        assert count(Message(1, 1, "user", (TextPart(text="\ud800<|endoftext|>"),), 0)) > 4 + 2
        assert count(Message(1, 1, "user", (AttachmentPart(url="x"),), 0)) == 4 + 1_000
        rich = message(1, "+ab")
        assert count(rich) > 4
    with pytest.raises(InvalidValue, match="o200k"):
        counter("gpt")


def test_a_tokenizer_that_is_not_installed(monkeypatch):
    import sys

    from recollect.context import counting

    counting._encoder.cache_clear()
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(InvalidValue, match=r"recollect\[tokens\]"):
        counter("o200k")


def test_a_counter_counts_each_message_once():
    counted = []

    def count(message):
        counted.append(message.position)
        return 10

    messages = [message(position, "q", tokens=1) for position in range(1, 6)]
    window = Window(budget=25, counter=count)
    assert window.enough(messages)
    assert [m.position for m in window.fit(messages)] == [4, 5]
    assert sorted(counted) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidValue):
        Window(budget=1, counter=lambda _: "many").fit(messages)
