"""The demo model: its answers, its tools and the titles. No message makes it fail."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Draft, TextPart
from recollect.agent import TextDelta, demo
from recollect.agent.demo import DemoModel
from recollect.agent.titles import shorten_title, title_of
from recollect.agent.tools import evaluate_arithmetic


def user(text):
    return Draft(role="user", parts=(TextPart(text=text),))


def assistant(text):
    return Draft(role="assistant", parts=(TextPart(text=text),))


TOOLS = ["current_time", "calculate", "search_conversations"]


def reply(*messages):
    return demo.compose_reply([user(text) for text in messages], TOOLS)


@pytest.mark.parametrize(
    ("message", "tool", "arguments"),
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
def test_the_demo_calls_its_tools(message, tool, arguments):
    assert reply(message).calls == [(tool, arguments)]


@pytest.mark.parametrize(
    ("messages", "answer"),
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
        (["colorless green ideas"], "demo model"),
        ([""], "demo model"),
    ],
)
def test_the_demo_answers_about_the_conversation(messages, answer):
    assert answer in reply(*messages).text


def test_the_demo_repeats_its_last_answer():
    messages = [user("hi"), assistant("Hello there"), user("Repeat that")]
    assert demo.compose_reply(messages, TOOLS).text == "Hello there"


def test_the_demo_ignores_recalled_messages():
    recalled_message = Draft(
        role="user", parts=(TextPart(text="My name is Eve"),), metadata={"recalled": {"session": "x"}}
    )
    assert "not told" in demo.compose_reply([recalled_message, user("What is my name?")], TOOLS).text


@given(st.text(max_size=300))
def test_every_message_gets_an_answer(message):
    answer = reply(message, message)
    assert answer.text or answer.calls


@given(st.from_regex(r"[-0-9+*/%(). ^]{1,40}", fullmatch=True))
def test_evaluation_of_any_expression_terminates(expression):
    with contextlib.suppress(ValueError):
        assert evaluate_arithmetic(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"), ("(2 + 3) * 4", "20"), ("2 ** 10", "1024"), ("2^10", "1024"), ("7 / 2", "3.5"), ("6 / 2", "3"),
        ("7 // 2", "3"), ("7 % 4", "3"), ("-3 + 1", "-2"), ("sqrt(16)", "4"), ("0.1 + 0.2", "0.3"), ("max(1, 2)", "2"),
        ("1,000 * 2", "2000"), ("9 \u00d7 9", "81"),
    ],
)  # fmt: skip
def test_arithmetic(expression, value):
    assert evaluate_arithmetic(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "x", "1 +", "__import__('os').system('true')", "().__class__", "9**9**9", "(10**1000)**1000", "1 if 1 else 2",
        "[1][0]", "'a' * 3", "1/0", "1 << 9", "True + 1", "lambda: 1", "1" * 400, "(" * 200 + "1" + ")" * 200, "0 ** -1",
        "(-8) ** 0.5", "round(1, key=2)", "2j", "10 ** 10 ** 10", "1e308 * 10 ** 400",
    ],
)  # fmt: skip
def test_other_expressions_are_rejected(expression):
    with pytest.raises(ValueError):
        evaluate_arithmetic(expression)


async def test_the_streamed_words_equal_the_final_message():
    events = [event async for event in DemoModel(pace=0).run([user("Show me some code")], instructions="", tools=[])]
    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(words) > 50
    assert "".join(words) == events[-1].message.parts[0].text == demo.CODE  # pyright: ignore[reportAttributeAccessIssue]


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
    assert title_of(user(text)) == title


@given(st.text())
def test_a_title_is_one_printable_line(text):
    title = shorten_title(text)
    assert len(title) <= 60
    assert title.isprintable()


def test_the_demo_imports_no_provider_libraries():
    code = (
        "import asyncio, sys\n"
        "from recollect.agent import Agent\n"
        "async def main():\n"
        "    async with Agent(store=':memory:') as agent:\n"
        "        print((await agent.ask('say hello')).text)\n"
        "asyncio.run(main())\n"
        "assert not {'pydantic_ai', 'pydantic', 'rich', 'prompt_toolkit', 'httpx'} & set(sys.modules)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (0, "hello\n"), process.stderr
