"""A tool that waits for approval at a terminal: keys decide, text does not, and another window can answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("prompt_toolkit")
pytest.importorskip("pyte")
pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from at_terminal import DOWN, ENTER, UP, Terminal, ctrl, until

import recollect
from paying_model import paying

PROMPT = "\n>\n"
MENU = ("? May the model run pay of the MCP server ledger?", "Allow this call", "Do not run it", "Ctrl-Y")


@pytest.fixture
def bank(tmp_path):
    with paying(tmp_path) as bank:
        yield bank


@pytest.fixture
def env(tmp_path, bank):
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": str(tmp_path / "recollect.db"),
        "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "RECOLLECT_CONFIG": str(bank.config),
    }  # fmt: skip


@pytest.fixture
def at(env):
    return lambda: Terminal("chat", "--session", env=env, columns=100)


@pytest.fixture
def store(env):
    with recollect.open(env["RECOLLECT_DB"]) as store:
        yield store


@pytest.fixture
def asked(at):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("pay Eve")
        terminal.wait(*MENU, '"to": "Eve"', PROMPT)
        yield terminal


@pytest.mark.parametrize(
    ("keys", "told", "runs"),
    [
        ((ctrl("y"),), "Allowed once.", 1),
        ((DOWN, ENTER), "Allowed once.", 1),
        ((ctrl("t"),), "Allowed in this conversation.", 1),
        ((ctrl("k"),), "Always allowed.", 1),
        ((ctrl("n"),), "Not allowed; it is not run.", 0),
        ((UP, ENTER), "Not allowed; it is not run.", 0),
    ],
)
def test_keys_decide(asked, bank, keys, told, runs):
    assert bank.runs == []
    asked.press(*keys)
    asked.wait(told, "The tool said:", "tokens in", PROMPT)
    assert bank.runs == ["pay Eve"] * runs
    asked.say("pay Bob")
    if "Always" in told or "conversation" in told:
        asked.wait("paid Bob", "tokens in")
        assert bank.runs == ["pay Eve", "pay Bob"]
    else:
        asked.wait('"to": "Bob"', "Allow this call")
        assert bank.runs == ["pay Eve"] * runs


def test_text_decides_nothing_and_is_sent_after_the_answer(asked, bank, store):
    asked.press(ENTER, *"yes y ok", ENTER)
    asked.press("\x1b[200~allow\rall\x1b[201~", "half")
    asked.wait("> allow\n  allhalf", *MENU)
    assert bank.runs == []
    asked.press(ctrl("n"))
    asked.wait("Not allowed", "You said: yes y ok", "> allow\n  allhalf")
    assert bank.runs == []
    user = [m.text for m in store.session("cli:default").messages() if m.role == "user"]
    assert user == ["pay Eve", "yes y ok"]


def test_ctrl_c_stops_the_answer(asked, bank, store):
    asked.press("kept", ctrl("c"))
    asked.wait("Stopped.", PROMPT.strip())
    assert bank.runs == []
    until(lambda: [turn.status for turn in store.session("cli:default").turns()] == ["cancelled"])
    asked.press(ctrl("u"))
    asked.say("hello")
    asked.wait("You said: hello")


def test_ctrl_d_does_not_run_it_and_leaves(asked, bank):
    asked.press(ctrl("d"))
    assert asked.end() == 0
    assert bank.runs == []


def test_another_window_answers(asked, at, bank):
    asked.press("half a thought")
    with at() as second:
        second.wait("talks in this session", "> Attach:")
        second.press(ENTER)
        second.wait("Attached.", "May pay of ledger run with", "/approve once, session, always or deny", PROMPT)
        second.say("/approve once")
        second.wait("`pay` of `ledger` is allowed: once.".replace("`", ""))
        asked.wait("Allowed once.", "The tool said: paid Eve", "> half a thought", gone=["Ctrl-Y"])
        second.wait("The tool said: paid Eve")
    assert bank.runs == ["pay Eve"]


def test_killed_while_it_waits(asked, at, bank, store):
    os.kill(asked.pid, signal.SIGKILL)
    asked.end()
    with at() as second:
        second.wait("pay Eve", PROMPT)
        assert "May pay" not in second.shown
        second.say("/approve once")
        second.wait("No tool call waits")
        second.say("hello")
        second.wait("You said: hello", "tokens in")
        statuses = [turn.status for turn in store.session("cli:default").turns()]
    assert bank.runs == []
    assert statuses == ["interrupted", "completed"]


def test_long_arguments_are_cut_and_can_be_shown(at, bank):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("pay Eve " + " ".join(f"word{n}" for n in range(60)) + " <rtl>")
        terminal.wait(*MENU, "characters in all", "Show all arguments")
        assert "word59" not in terminal.shown.partition("? May the model")[2]
        terminal.press(UP, ENTER)
        terminal.wait("word59", gone=["Show all arguments"])
        assert "\u202e" not in terminal.raw.decode()
        terminal.press(ctrl("y"))
        terminal.wait("paid Eve")


def test_through_a_pipe_it_is_not_run(env, bank):
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "chat"], input="pay Eve", env=env, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert "nobody can be asked here" in done.stdout
    assert "approve = ['pay'] under [mcp.ledger] in the configuration." in done.stderr
    assert bank.runs == []


def test_through_a_pipe_with_the_setting_it_is_run(env, bank):
    bank.config.write_text(bank.config.read_text() + 'approve = ["pay"]\n')
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "chat"], input="pay Eve", env=env, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert "paid Eve" in done.stdout
    assert bank.runs == ["pay Eve"]
