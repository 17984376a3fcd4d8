"""The agent loop of docs/how-to/continue-after-a-crash.md, killed at each of its steps and started again."""

from __future__ import annotations

import subprocess
import sys

import pytest
from docs_programs import start, wait_for_line, write_programs

import recollect

PAGE = "docs/how-to/continue-after-a-crash.md"
# Run the program of the page, and stop before or after one of its steps.
STOP = """
import runpy, sys, time
import agent, recollect

owner, name, when = {place!r}
owner = {{"session": recollect.Session, "turn": recollect.Turn, "agent": agent, "tools": type(recollect.open("t.db").session("x").tools)}}[owner]
original = getattr(owner, name)

def replacement(*arguments, **named):
    if when == "before":
        print("stopped", flush=True)
        time.sleep(600)
    result = original(*arguments, **named)
    print("stopped", flush=True)
    time.sleep(600)

setattr(owner, name, replacement)
with recollect.open("agent.db") as store:
    agent.answer(store.session("user:42"), "Do I need a coat?", key="question-1")
"""
PLACES = [
    ("session", "turn", "before"), ("session", "turn", "after"), ("agent", "call_model", "before"), ("turn", "add", "after"),
    ("agent", "run_tool", "before"), ("agent", "run_tool", "after"), ("tools", "record_result", "after"),
    ("turn", "complete", "before"), ("turn", "complete", "after"),
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_the_next_run_continues_at_the_step_at_which_the_process_was_killed(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write_programs(PAGE, tmp_path) == ["agent.py"]
    with start("-c", STOP.format(place=place)) as process:
        wait_for_line(process, "stopped")
        process.kill()
    for _ in range(2):  # the second run finds the question answered
        process = subprocess.run([sys.executable, "agent.py"], capture_output=True, text=True, timeout=120, check=True)
        assert process.stdout == "Take a coat.\n"
    with recollect.open("agent.db") as store:
        session = store.session("user:42")
        assert [message.role for message in session.messages()] == ["user", "assistant", "tool", "assistant"]
        assert [call.status for call in session.tools.list()] == ["success"]
        assert session.messages()[2].tool_results[0].output == "4 degrees and rain in Oslo"
        assert [turn.status for turn in session.turns.list()] == ["completed"]
