"""The command line as a person meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import recollect


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def run(path, tmp_path):
    """Run the command with a store of its own; the output is bytes as the terminal would get them."""

    def run(*args: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8",
            **environment,
        }  # fmt: skip
        command = [sys.executable, "-m", "recollect", *args]
        done = subprocess.run(command, capture_output=True, env=env, timeout=30, check=False, stdin=subprocess.DEVNULL)
        text = subprocess.CompletedProcess(args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert text.returncode == code, text
        assert "Traceback" not in text.stderr
        return text

    return run


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


class TestHelp:
    @pytest.mark.parametrize("option", ["--help", "-h"])
    @pytest.mark.parametrize(
        "words", [[], ["sessions"], ["sessions", "list"], ["sessions", "show"], ["db"], ["db", "path"]], ids=" ".join
    )
    def test_help_is_there_for_every_command(self, run, words, option):
        shown = run(*words, option)
        assert shown.stdout.startswith("Usage: recollect")
        assert shown.stderr == ""

    def test_help_names_the_groups(self, run):
        shown = run("--help").stdout
        assert "sessions" in shown
        assert "db" in shown
        assert "RECOLLECT_DB" in shown

    def test_the_version(self, run):
        assert recollect.__version__ in run("--version").stdout

    def test_help_makes_no_database(self, run, path):
        run("--help")
        run("sessions", "--help")
        assert not os.path.exists(path)

    @pytest.mark.parametrize(
        "words", [["nonsense"], ["sessions", "nonsense"], ["sessions", "list", "--nonsense"], ["sessions", "show"]]
    )
    def test_a_mistake_is_a_sentence_and_exit_code_2(self, run, words):
        assert "Error" in run(*words, code=2).stderr

    def test_the_installed_command_is_the_same(self, path):
        command = os.path.join(os.path.dirname(sys.executable), "recollect")
        if not os.path.exists(command):
            pytest.skip("the command is not installed beside this Python")
        shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
        assert recollect.__version__ in shown.stdout


class TestPath:
    def test_the_environment(self, run, path):
        assert run("db", "path").stdout == path + "\n"
        assert not os.path.exists(path)

    def test_the_default(self, run, tmp_path):
        shown = run("db", "path", RECOLLECT_DB="", XDG_DATA_HOME=str(tmp_path / "data")).stdout.strip()
        assert shown.endswith(os.path.join("recollect", "recollect.db"))
        assert shown.startswith(str(tmp_path))

    def test_an_unknown_url_is_a_sentence(self, run):
        shown = run("db", "path", code=1, RECOLLECT_DB="mysql://x/y")
        assert shown.stdout == ""
        assert shown.stderr.startswith("recollect: ")


class TestList:
    def test_nothing_yet(self, run, path):
        assert run("sessions", "list").stdout == f"No conversations yet in {path}\n"
        assert run("sessions", "list", "--json").stdout == "[]\n"

    def test_sessions_the_newest_first(self, run, store):
        for number in range(3):
            store.session(f"cli:{number}", title=f"Title {number}").append([said("x")] * (number + 1))
        lines = run("sessions", "list").stdout.splitlines()
        assert [line.split()[3] for line in lines] == ["cli:2", "cli:1", "cli:0"]
        assert [line.split()[2] for line in lines] == ["3", "2", "1"]
        assert lines[0].endswith("Title 2")

    @pytest.mark.parametrize("option", ["-n", "--limit"])
    def test_a_limit(self, run, store, option):
        for number in range(5):
            store.session(f"cli:{number}")
        assert len(run("sessions", "list", option, "2").stdout.splitlines()) == 2

    @pytest.mark.parametrize(("limit", "code"), [("0", 1), ("-1", 1), ("x", 2)])
    def test_a_limit_that_is_none(self, run, limit, code):
        assert "limit" in run("sessions", "list", "-n", limit, code=code).stderr

    def test_json(self, run, store):
        session = store.session("cli:a", title="T", model="m", metadata={"k": "ä"})
        session.append(said("x"))
        (shown,) = json.loads(run("sessions", "list", "--json").stdout)
        assert shown == session.refresh().to_dict()
        assert shown["created_at"].endswith("Z")

    def test_json_of_a_title_from_the_whole_world(self, run, store):
        store.session("cli:a", title="日本語 \U0001f600 \u202e")
        (shown,) = json.loads(run("sessions", "list", "--json").stdout)
        assert shown["title"] == "日本語 \U0001f600 \u202e"

    def test_deleted_and_archived_ones_are_left_out(self, run, store):
        for name in ("cli:a", "cli:b", "cli:c"):
            store.session(name)
        store.delete_session("cli:a")
        store.session("cli:b").update(archived=True)
        assert [line.split()[3] for line in run("sessions", "list").stdout.splitlines()] == ["cli:c"]

    def test_control_characters_in_a_title_are_not_passed_on(self, run, store):
        store.session("cli:a", title="red \x1b[31m bell \x07 over\rwritten \x9b31m")
        store.session("cli:b", title="two\nlines")
        shown = run("sessions", "list").stdout
        assert not [char for char in shown if char != "\n" and not char.isprintable()]
        assert len(shown.splitlines()) == 2

    def test_a_terminal_that_has_only_ascii(self, run, store):
        store.session("cli:a", title="日本語")
        store.session("cli:a").append(said("für"))
        for words in (["list"], ["show", "cli:a"]):
            run("sessions", *words, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii", PYTHONCOERCECLOCALE="0")


class TestShow:
    @pytest.fixture
    def talk(self, store):
        session = store.create_session(title="About the README")
        with session.turn("What is in README.md?") as turn:
            block = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "README.md"}}
            turn.add({"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, block]})
            turn.add(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "# Title\ntext"}]}
            )
            turn.add({"role": "assistant", "content": "It has a title."})
        return session

    def test_by_id_by_title_and_by_prefix(self, run, talk):
        shown = run("sessions", "show", talk.id).stdout
        assert run("sessions", "show", "About the README").stdout == shown
        assert run("sessions", "show", talk.id[:9]).stdout == shown
        for text in (
            "What is in README.md?",
            "Let me see.",
            "> read",
            '{"path": "README.md"}',
            "< # Title",
            "< text",
            "It has a title.",
        ):
            assert text in shown
        assert shown.index("What is") < shown.index("Let me") < shown.index("< # Title") < shown.index("It has")

    def test_json_has_the_messages(self, run, talk):
        shown = json.loads(run("sessions", "show", talk.id, "--json").stdout)
        assert shown["title"] == "About the README"
        assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert shown["messages"] == json.loads(json.dumps([message.to_dict() for message in talk.messages()]))

    def test_an_unknown_name_is_a_sentence_on_stderr(self, run, talk):
        shown = run("sessions", "show", "nobody", code=1)
        assert shown.stdout == ""
        assert shown.stderr.startswith("recollect: ")
        assert "nobody" in shown.stderr
        assert shown.stderr.count("\n") == 1

    def test_a_name_that_fits_several(self, run, store):
        for number in range(3):
            store.session(f"cli:same{number}")
        shown = run("sessions", "show", "cli:same", code=1)
        assert "cli:same0" in shown.stderr
        assert "3 sessions" in shown.stderr

    def test_an_empty_name(self, run, talk):
        assert run("sessions", "show", "", code=1).stderr.startswith("recollect: ")

    def test_one_in_the_trash(self, run, store, talk):
        store.delete_session(talk.id)
        assert "trash" in run("sessions", "show", talk.id, code=1).stderr

    @pytest.mark.parametrize(
        "bad", ["\x1b[2J", "\x07", "\x9b31m", "\x00", "\x7f", "\u202e", "\x1b]0;owned\x07", "\u2028", "\x85"], ids=repr
    )
    def test_control_characters_are_not_passed_to_the_terminal(self, run, store, bad):
        session = store.session("cli:a")
        session.append(said(f"before {bad} after"))
        call = {"id": "c1", "type": "function", "function": {"name": f"t{bad}", "arguments": json.dumps({"a": bad})}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]}, "openai")
        session.append({"role": "tool", "tool_call_id": "c1", "content": f"out {bad} put"}, "openai")
        shown = run("sessions", "show", "cli:a").stdout
        assert not [char for char in shown if char != "\n" and not char.isprintable()]
        assert "before" in shown
        assert "put" in shown

    def test_a_carriage_return_does_not_overwrite_the_line(self, run, store):
        store.session("cli:a").append(said("honest\rforged"))
        assert "\r" not in run("sessions", "show", "cli:a").stdout

    def test_half_of_a_surrogate_pair_does_not_end_it(self, run, store):
        store.session("cli:a").append([said("half \ud83d"), said("whole")])
        assert "whole" in run("sessions", "show", "cli:a").stdout
        shown = json.loads(run("sessions", "show", "cli:a", "--json").stdout)
        assert shown["messages"][0]["parts"][0]["text"] == "half \ud83d"

    def test_errors_do_not_pass_control_characters_either(self, run):
        shown = run("sessions", "show", "x\x1b[31m", code=1)
        assert "\x1b" not in shown.stderr

    def test_reading_changes_nothing_that_others_see(self, run, store, talk):
        before = talk.refresh().to_dict()
        run("sessions", "show", talk.id)
        run("sessions", "list")
        assert talk.refresh().to_dict() == before

    def test_a_reader_that_goes_away_is_no_traceback(self, run, store, path):
        store.session("cli:a").append([said("x" * 500)] * 500)
        command = f"{sys.executable} -m recollect sessions show cli:a | head -n 1"
        env = {**os.environ, "RECOLLECT_DB": path}
        shown = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, env=env, timeout=30, check=False
        )
        assert "Traceback" not in shown.stderr


class TestTrouble:
    def test_a_file_that_is_no_database(self, run, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("just text, long enough to be looked at " * 50)
        shown = run("sessions", "list", code=1)
        assert shown.stdout == ""
        assert shown.stderr.startswith("recollect: ")
        assert path in shown.stderr

    def test_a_folder(self, run, tmp_path):
        assert "folder" in run("sessions", "list", code=1, RECOLLECT_DB=str(tmp_path)).stderr

    def test_starting_is_quick_and_loads_no_asyncio(self, path):
        code = (
            "import sys; import recollect.cli; assert 'asyncio' not in sys.modules; assert 'sqlite3' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
