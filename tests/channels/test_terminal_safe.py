"""Text that is printed to a terminal contains no control sequences."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rich")

from rich.console import Console

from recollect import Draft, TextPart
from recollect.agent.commands import CommandOutcome
from recollect.agent.events import (
    Notice,
    ReasoningDelta,
    Responded,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from recollect.channels.terminal.sanitize import clean, clean_line, truncate_line
from recollect.channels.terminal.screen import Screen

BAD = ["\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\r", "\x00", "\x7f", "\u202e", "\x85", "\u2028", "\x08\x08"]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_control_sequences_are_replaced(bad):
    assert not [c for c in clean(f"before{bad}after\n") if c != "\n" and not c.isprintable()]


@pytest.mark.parametrize(
    "good", ["plain", "two\nlines", "\u00fcml\u00e4ut", "\u65e5\u672c\u8a9e", "\U0001f469\u200d\U0001f680", "a\u200cb"]
)
def test_harmless_text_is_unchanged(good):
    assert clean(good) == good


def test_tabs_and_line_endings():
    assert clean("a\tb\r\nc") == "a    b\nc"
    assert clean_line("a\n b\t c ") == "a b c"
    assert truncate_line("abcdef", 4) == "abc\u2026"


@given(st.text())
def test_no_text_controls_the_terminal(text):
    assert not [c for c in clean(text) if c not in "\n\u200c\u200d" and not c.isprintable()]
    assert len(truncate_line(text, 10)) <= 10


def events(bad):
    text = f"before{bad}after [red]markup[/red] **bold**"
    result = Draft(role="tool", parts=())
    return [
        TurnStarted(session="s"), ReasoningDelta(text=text), TextDelta(text=text + "\n\n"), TextDelta(text=text),
        Responded(message=Draft(role="assistant", parts=(TextPart(text=text),))),
        ToolStarted(call_id="c", tool=f"t{bad}", arguments={f"a{bad}": text}),
        ToolFinished(call_id="c", tool=f"t{bad}", status="success", output=f"{text}\n" * 9, latency_ms=5, message=result),
        Notice(text=text), TurnEnded(session="s", status="failed", error=text, model=f"m{bad}"),
    ]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("color_system", [None, "standard"])
def test_a_whole_turn_on_the_screen(bad, color_system):
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=color_system, force_terminal=False, highlight=False)
    screen = Screen(console)
    for event in events(bad):
        screen.event(event)
    screen.outcome(CommandOutcome(text=f"done{bad} **well**"))
    screen.welcome(f"title{bad}", f"facts{bad}")
    output = out.getvalue()
    import re

    plain = re.sub(r"\x1b\[[0-9;]*m", "", output) if color_system else output
    assert not [c for c in plain if c != "\n" and not c.isprintable()]
    assert "before" in plain
    assert "[red]markup[/red]" in plain
    assert "6 more lines" in plain


def test_without_colors_there_is_no_escape_sequence():
    out = io.StringIO()
    screen = Screen(Console(file=out, width=80, no_color=True, force_terminal=False))
    for event in events(""):
        screen.event(event)
    assert "\x1b" not in out.getvalue()


def test_a_sub_agent_is_shown_below_its_tool_while_it_works():
    from recollect.agent.events import Delegated

    console = Console(file=io.StringIO(), width=80)
    screen = Screen(console)
    screen.event(ToolStarted(call_id="c", tool="ask_finder", arguments={"task": "x"}))
    screen.event(Delegated(agent="finder", session="s", line="looks \x1b[2J around"))

    def render_live():
        with console.capture() as capture:
            console.print(screen._render_live())
        return capture.get()

    assert "finder: looks" in render_live()
    assert "\x1b[2J" not in render_live()
    screen.event(Delegated(agent="finder", session="s", tool="look", line="looks"))
    assert "finder: running look" in render_live()
    screen.event(Delegated(agent="finder", session="s", ended=True))
    assert "finder:" not in render_live()
