"""`recollect chat` without a terminal: its output, stored messages and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import recollect
from recollect.model.value import format_iso, parse_iso


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def chat(path, tmp_path):
    def run(message, *options, code=0):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-m", "recollect", "chat", *options]
        process = subprocess.run(command, input=message.encode(), capture_output=True, env=env, timeout=60, check=False)
        assert process.returncode == code, process
        assert b"Traceback" not in process.stderr
        return process.stdout.decode(), process.stderr.decode()

    return run


@pytest.fixture
def sessions(path):
    def read():
        with recollect.open(path) as store:
            return [(s.id, s.title, [m.text for m in s.messages()]) for s in store.list_sessions(order="created")][::-1]

    return read


def test_the_answer_is_printed_and_the_turn_is_stored(chat, sessions):
    assert chat("say hello\n") == ("hello\n", "")
    ((_, title, texts),) = sessions()
    assert title == "say hello"
    assert texts == ["say hello", "hello"]


def test_each_run_is_a_new_session_and_continue_resumes_the_last(chat, sessions):
    chat("say one")
    chat("say two")
    assert chat("What did I say first?", "-c")[0] == "First you said: \u201csay two\u201d\n"
    assert [len(texts) for *_, texts in sessions()] == [2, 4]


def test_continue_without_a_session_starts_one(chat, sessions):
    chat("say one", "--continue")
    assert len(sessions()) == 1


def test_resume_by_id_prefix_and_title(chat, sessions):
    chat("say one", "-n", "My title")
    id = sessions()[0][0]
    for name in (id, id[:13], "My title"):
        chat("say more", "-r", name)
    assert len(sessions()[0][2]) == 8
    assert "nowhere" in chat("x", "-r", "nowhere", code=3)[1]
    assert "terminal" in chat("x", "-r", code=1)[1]


def test_named_sessions(chat, sessions):
    chat("say one", "--session")
    chat("say two", "--session")
    chat("say three", "--session", "work")
    chat("say four", "--session", "discord:dm:42")
    assert [(id, len(texts)) for id, _, texts in sessions()] == [
        ("cli:default", 4),
        ("cli:work", 2),
        ("discord:dm:42", 2),
    ]


def test_fork_leaves_the_original_unchanged(chat, sessions):
    chat("say one", "--session")
    chat("say two", "-c", "--fork")
    assert [texts for *_, texts in sessions()] == [["say one", "one"], ["say one", "one", "say two", "two"]]


def test_ephemeral_stores_nothing(chat, path):
    assert chat("say one", "--ephemeral")[0] == "one\n"
    assert not os.path.exists(path)


def test_context(chat, sessions):
    chat("say red coat", "-n", "Coats")
    chat("say two", "--context", "Coats")
    texts = sessions()[1][2]
    assert "red coat" in texts[0]
    assert texts[1:] == ["say two", "two"]


def test_another_database(chat, sessions, tmp_path):
    chat("say one", "--db", str(tmp_path / "other.db"))
    assert sessions() == []


def test_json_lines(chat, sessions):
    out, err = chat("What is 6 * 7?", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    names = [event["event"] for event in events]
    assert names[0] == "turn_started"
    assert names[-1] == "turn_ended"
    assert {"tool_started", "tool_finished", "text", "response", "titled"} <= set(names)
    assert events[-1]["text"] == "6 * 7 = **42**"
    assert events[-1]["session"] == sessions()[0][0]
    times = [event["message"]["created_at"] for event in events if event["event"] == "response"]
    assert all(format_iso(parse_iso(time)) == time for time in times)
    assert times


def test_tool_calls_are_printed_to_standard_error(chat):
    out, err = chat("What is 6 * 7?")
    assert out == "6 * 7 = **42**\n"
    assert err == '> calculate {"expression": "6 * 7"}\n< 42\n'


def test_slash_commands(chat):
    chat("say one", "--session")
    assert "cli:default" in chat("/status", "-c")[0]
    assert "Unknown command" in chat("/nonsense", "-c", code=1)[1]
    assert json.loads(chat("/pin", "-c", "--json")[0])["text"] == "This conversation is pinned."


def test_empty_input_stores_nothing(chat, sessions):
    assert chat("") == ("", "")
    assert chat("  \n ") == ("", "")
    assert sessions() == []


def test_control_characters_are_removed(chat):
    out, _ = chat("say \x1b[31mred\x07")
    assert "\x1b" not in out
    assert "\x07" not in out


@pytest.mark.parametrize(
    "options", [["-c", "--session"], ["-c", "-r", "x"], ["--fork"], ["--ephemeral", "-c"], ["--nonsense"]], ids=" ".join
)
def test_invalid_combinations_of_options(chat, options):
    assert "Error" in chat("x", *options, code=2)[1]


def test_an_unknown_model_is_reported(chat):
    assert chat("x", "-m", "nobody:nothing", code=1)[1].startswith("recollect: ")


def test_a_store_that_cannot_be_opened_is_reported(chat, tmp_path):
    assert chat("x", "--db", str(tmp_path), code=1)[1].startswith("recollect: ")


def test_help_imports_no_large_libraries(path):
    code = (
        "import sys; sys.argv = ['recollect', 'chat', '--help']\n"
        "from recollect.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'asyncio', 'pydantic_ai', 'rich', 'prompt_toolkit'} & set(sys.modules)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    for option in (
        "--continue",
        "--resume",
        "--session",
        "--fork",
        "--name",
        "--model",
        "--ephemeral",
        "--context",
        "--json",
        "--db",
    ):
        assert option in process.stdout
