"""Approvals in the terminal: keys answer, text does not, and another window can answer."""

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

from terminal_emulator import DOWN, ENTER, UP, Terminal, ctrl, wait_until

import recollect
from payment_model import run_payment_model

PROMPT = "\n>\n"
MENU = ("? May the model run pay of the MCP server ledger?", "Allow this call", "Do not run it", "Ctrl-Y")


@pytest.fixture
def bank(tmp_path):
    with run_payment_model(tmp_path) as bank:
        yield bank


@pytest.fixture
def env(tmp_path, bank):
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": str(tmp_path / "recollect.db"),
        "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "RECOLLECT_CONFIG": str(bank.config),
    }  # fmt: skip


@pytest.fixture
def open_terminal(env):
    return lambda: Terminal("chat", "--session", env=env, columns=100)


@pytest.fixture
def store(env):
    with recollect.open(env["RECOLLECT_DB"]) as store:
        yield store


@pytest.fixture
def terminal(open_terminal):
    """Yield a terminal that shows the approval menu."""
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("pay Eve")
        terminal.wait(*MENU, '"to": "Eve"', PROMPT)
        yield terminal


@pytest.mark.parametrize(
    ("keys", "message", "runs"),
    [
        ((ctrl("y"),), "Allowed once.", 1),
        ((DOWN, ENTER), "Allowed once.", 1),
        ((ctrl("t"),), "Allowed in this conversation.", 1),
        ((ctrl("k"),), "Always allowed.", 1),
        ((ctrl("n"),), "Denied. The tool was not run.", 0),
        ((UP, ENTER), "Denied. The tool was not run.", 0),
    ],
)
def test_keys_answer_the_approval(terminal, bank, keys, message, runs):
    assert bank.runs == []
    terminal.press(*keys)
    terminal.wait(message, "The tool said:", "tokens in", PROMPT)
    assert bank.runs == ["pay Eve"] * runs
    terminal.submit("pay Bob")
    if "Always" in message or "conversation" in message:
        terminal.wait("paid Bob", "tokens in")
        assert bank.runs == ["pay Eve", "pay Bob"]
    else:
        terminal.wait('"to": "Bob"', "Allow this call")
        assert bank.runs == ["pay Eve"] * runs


def test_text_is_not_an_answer_and_is_sent_afterwards(terminal, bank, store):
    terminal.press(ENTER, *"yes y ok", ENTER)
    terminal.press("\x1b[200~allow\rall\x1b[201~", "half")
    terminal.wait("> allow\n  allhalf", *MENU)
    assert bank.runs == []
    terminal.press(ctrl("n"))
    terminal.wait("Denied.", "You said: yes y ok", "> allow\n  allhalf")
    assert bank.runs == []
    user_texts = [m.text for m in store.session("cli:default").messages() if m.role == "user"]
    assert user_texts == ["pay Eve", "yes y ok"]


def test_ctrl_c_stops_the_answer(terminal, bank, store):
    terminal.press("draft", ctrl("c"))
    terminal.wait("Stopped.", PROMPT.strip())
    assert bank.runs == []
    wait_until(lambda: [turn.status for turn in store.session("cli:default").turns.list()] == ["cancelled"])
    terminal.press(ctrl("u"))
    terminal.submit("hello")
    terminal.wait("You said: hello")


def test_ctrl_d_quits_without_running_the_tool(terminal, bank):
    terminal.press(ctrl("d"))
    assert terminal.wait_for_exit() == 0
    assert bank.runs == []


def test_another_window_answers_the_approval(terminal, open_terminal, bank):
    terminal.press("half a thought")
    with open_terminal() as second:
        second.wait("This conversation has been open in", "> Attach:")
        second.press(ENTER)
        second.wait(
            "Attached.",
            "May the model run pay of the MCP server ledger with",
            "Answer with /approve once,",
            "session, always or deny.",
            PROMPT,
        )
        second.submit("/approve once")
        second.wait("Allowed `pay` of `ledger`: once.".replace("`", ""))
        terminal.wait("Allowed once.", "The tool said: paid Eve", "> half a thought", absent=["Ctrl-Y"])
        second.wait("The tool said: paid Eve")
    assert bank.runs == ["pay Eve"]


def test_killed_while_an_approval_is_pending(terminal, open_terminal, bank, store):
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.wait_for_exit()
    with open_terminal() as second:
        second.wait("pay Eve", PROMPT)
        assert "May pay" not in second.screen_text
        second.submit("/approve once")
        second.wait("No tool call waits")
        second.submit("hello")
        second.wait("You said: hello", "tokens in")
        statuses = [turn.status for turn in store.session("cli:default").turns.list()]
    assert bank.runs == []
    assert statuses == ["interrupted", "completed"]


def test_long_arguments_are_truncated_and_can_be_expanded(open_terminal, bank):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("pay Eve " + " ".join(f"word{n}" for n in range(60)) + " <rtl>")
        terminal.wait(*MENU, "characters in total", "Show all arguments")
        assert "word59" not in terminal.screen_text.partition("? May the model")[2]
        terminal.press(UP, ENTER)
        terminal.wait("word59", absent=["Show all arguments"])
        assert "\u202e" not in terminal.raw.decode()
        terminal.press(ctrl("y"))
        terminal.wait("paid Eve")


def test_a_pipe_does_not_run_the_tool(env, bank):
    process = subprocess.run(
        [sys.executable, "-m", "recollect", "chat"], input="pay Eve", env=env, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert "nobody can be asked here" in process.stdout
    assert "approve = ['pay'] under [mcp.ledger] in the configuration." in process.stderr
    assert bank.runs == []


def test_a_pipe_with_the_approve_setting_runs_the_tool(env, bank):
    bank.config.write_text(bank.config.read_text() + 'approve = ["pay"]\n')
    process = subprocess.run(
        [sys.executable, "-m", "recollect", "chat"], input="pay Eve", env=env, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert "paid Eve" in process.stdout
    assert bank.runs == ["pay Eve"]
