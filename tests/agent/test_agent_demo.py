"""The demo model: what it knows, that it says what it is, and that nothing one says breaks it."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Draft, TextPart
from recollect.agent import TextDelta, demo_answers
from recollect.agent.arithmetic import calculate
from recollect.agent.demo import DemoModel
from recollect.agent.titles import from_text, shortened


def user(text):
    return Draft(role="user", parts=(TextPart(text=text),))


def assistant(text):
    return Draft(role="assistant", parts=(TextPart(text=text),))


TOOLS = ["current_time", "calculate", "search_conversations"]


def reply(*said):
    return demo_answers.reply([user(text) for text in said], TOOLS)


@pytest.mark.parametrize(
    ("said", "tool", "arguments"),
    [
        ("What time is it?", "current_time", {}),
        ("what's the date", "current_time", {}),
        ("What is 12 * 34?", "calculate", {"expression": "12 * 34"}),
        ("2+2=?", "calculate", {"expression": "2+2"}),
        ("what is (1 + 2) ^ 3", "calculate", {"expression": "(1 + 2) ^ 3"}),
        ("Search for red coats!", "search_conversations", {"query": "red coats"}),
        ("find coats", "search_conversations", {"query": "coats"}),
    ],
)
def test_it_calls_its_tools(said, tool, arguments):
    assert reply(said).calls == [(tool, arguments)]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (["My name is Ada", "What is my name?"], "Ada"),
        (["What is my name?"], "not told"),
        (["red", "blue", "What did I say first?"], "red"),
        (["red", "blue", "What did I say last?"], "blue"),
        (["red", "blue", "Summarize"], "1. \u201cred\u201d"),
        (["one", "How many messages are there?"], "2 messages"),
        (["say hello there"], "hello there"),
        (["Count to 5"], "1, 2, 3, 4, 5."),
        (["help"], "demo model"),
        (["hello"], "demo model"),
        (["colourless green ideas"], "demo model"),
        ([""], "demo model"),
    ],
)
def test_it_answers_about_the_conversation(said, answer):
    assert answer in reply(*said).text


def test_it_repeats_what_it_said():
    spoken = [user("hi"), assistant("Hello there"), user("Repeat that")]
    assert demo_answers.reply(spoken, TOOLS).text == "Hello there"


def test_what_was_recalled_is_not_what_was_said_here():
    recalled = Draft(role="user", parts=(TextPart(text="My name is Eve"),), metadata={"recalled": {"session": "x"}})
    assert "not told" in demo_answers.reply([recalled, user("What is my name?")], TOOLS).text


@given(st.text(max_size=300))
def test_whatever_is_said_has_an_answer(said):
    made = reply(said, said)
    assert made.text or made.calls


@given(st.from_regex(r"[-0-9+*/%(). ^]{1,40}", fullmatch=True))
def test_arithmetic_of_any_kind_ends(expression):
    with contextlib.suppress(ValueError):
        assert calculate(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"), ("(2 + 3) * 4", "20"), ("2 ** 10", "1024"), ("2^10", "1024"), ("7 / 2", "3.5"), ("6 / 2", "3"),
        ("7 // 2", "3"), ("7 % 4", "3"), ("-3 + 1", "-2"), ("sqrt(16)", "4"), ("0.1 + 0.2", "0.3"), ("max(1, 2)", "2"),
        ("1,000 * 2", "2000"), ("9 \u00d7 9", "81"),
    ],
)  # fmt: skip
def test_arithmetic(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "x", "1 +", "__import__('os').system('true')", "().__class__", "9**9**9", "(10**1000)**1000", "1 if 1 else 2",
        "[1][0]", "'a' * 3", "1/0", "1 << 9", "True + 1", "lambda: 1", "1" * 400, "(" * 200 + "1" + ")" * 200, "0 ** -1",
        "(-8) ** 0.5", "round(1, key=2)", "2j", "10 ** 10 ** 10", "1e308 * 10 ** 400",
    ],
)  # fmt: skip
def test_what_is_not_arithmetic_is_refused(expression):
    with pytest.raises(ValueError):
        calculate(expression)


async def test_it_streams_word_by_word_and_says_the_same_in_the_end():
    events = [event async for event in DemoModel(pace=0).run([user("Show me some code")], instructions="", tools=[])]
    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(words) > 50
    assert "".join(words) == events[-1].message.parts[0].text == demo_answers.CODE


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Where is my coat? I need it.", "Where is my coat?"),
        ("# Heading\n\ntext", "Heading text"),
        ("What is 3*4?", "What is 3*4?"),
        ("`code` and **bold**", "code and bold"),
        ("x" * 200, "x" * 60),
        ("\x1b[31mred\x07", "[31mred"),
        ("   ", ""),
    ],
)
def test_titles(text, title):
    assert from_text(user(text)) == title


@given(st.text())
def test_a_title_is_one_printable_line(text):
    title = shortened(text)
    assert len(title) <= 60
    assert title.isprintable()


def test_a_talk_with_the_demo_loads_no_library_of_providers():
    code = (
        "import asyncio, sys\n"
        "from recollect.agent import Agent\n"
        "async def main():\n"
        "    async with Agent(store=':memory:') as agent:\n"
        "        print((await agent.ask('say hello')).text)\n"
        "asyncio.run(main())\n"
        "assert not {'pydantic_ai', 'pydantic', 'rich', 'prompt_toolkit', 'httpx'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
