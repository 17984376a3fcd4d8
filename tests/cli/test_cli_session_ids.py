"""Hostile session ids on the command line: no output contains a control character, and hints can be pasted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from recollect.model.humanize import escape_unprintable, quote_for_shell

HOSTILE_IDS = (
    "a\r\nX: y", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\0b", "../../etc/passwd", "a/b%2Fc", "\u202egnp.exe", "a\tb", " ",
    "..", "\x9b31m", "a\u2028b", "`code`", "$(reboot)", "'; reboot; '", "--help", "-", "\x7f", "x" * 1_024, "\0" * 1_024,
)  # fmt: skip


def user_message(text):
    return {"role": "user", "content": text}


def check_output(result):
    for text in (result.stdout, result.stderr):
        assert not [character for character in text if character not in "\n\t" and not character.isprintable()], text


@pytest.fixture
def sessions(store):
    for number, id in enumerate(HOSTILE_IDS):
        store.session(id, title=None if number % 2 else f"Title {number}").append(user_message(f"needle{number}needle"))
        store.session(f"agent {number}", parent=id)
    return store


def test_lists(call, sessions):
    result = call("sessions", "list", "--limit", "100")
    check_output(result)
    assert len(result.stdout.splitlines()) == len(HOSTILE_IDS)
    assert {line.count("\t") for line in result.stdout.splitlines()} == {8}
    result = call("sessions", "list", "--limit", "100", "--json")
    check_output(result)
    assert {session["id"] for session in json.loads(result.stdout)["sessions"]} == set(HOSTILE_IDS)
    for id in HOSTILE_IDS:
        sessions.delete_session(id)
    result = call("sessions", "list", "--trash", "--limit", "100")
    check_output(result)
    assert len(result.stdout.splitlines()) == len(HOSTILE_IDS)


@pytest.mark.parametrize("number", range(len(HOSTILE_IDS)))
def test_commands_on_one_session(call, sessions, number, tmp_path):
    id = HOSTILE_IDS[number]
    commands = [
        ["show"], ["show", "--json"], ["pin"], ["unpin"], ["archive"], ["unarchive"], ["fork"], ["delete"],
        ["restore"], ["delete", "--dry-run"], ["erase", "--dry-run"], ["delete"], ["erase", "--yes", "--forks", "keep"],
    ]  # fmt: skip
    for command, *options in commands:
        result = call("sessions", command, *options, "--", id)
        check_output(result)
    assert sessions.get_session(id) is None


@pytest.mark.parametrize("number", range(len(HOSTILE_IDS)))
def test_other_commands(call, sessions, number):
    id = HOSTILE_IDS[number]
    for arguments in (
        ["sessions", "rename", "--", id, "New title"], ["sessions", "rename", "--", id, ""],
        ["sessions", "search", f"needle{number}needle"], ["sessions", "search", "--in", id, "needle"],
        ["sessions", "show", "--", f"agent {number}"], ["sessions", "fork", f"--as={id}fork", "--", "agent 1"],
    ):  # fmt: skip
        if "--as" in arguments[2] and len(id) > 1_000:
            continue
        check_output(call(*arguments))


def test_errors(call, sessions):
    for id in HOSTILE_IDS:
        check_output(call("sessions", "show", "--", f"{id}missing"[-1_020:], code=3))
    for first, second in (("a\x1b1", "a\x1b2"), ("b\n1", "b\n2")):
        sessions.session(first)
        sessions.session(second, title="T\x1b[31m")
        result = call("sessions", "show", "--", first[:2], code=4)
        check_output(result)
        assert escape_unprintable(first) in result.stderr
        assert len(result.stderr.splitlines()) == 1
        for id in (first, second):
            sessions.delete_session(id)
        check_output(call("sessions", "restore", "--", first[:2], code=4))


@pytest.mark.parametrize("format", ["md", "html", "json", "jsonl"])
def test_exports_and_imports(call, sessions, format, tmp_path):
    file = tmp_path / f"out.{format}"
    check_output(call("sessions", "export", "--all", "-o", str(file)))
    text = file.read_text(encoding="utf-8")
    if format in ("md", "html"):
        assert not [character for character in text if character not in "\n\t" and not character.isprintable()]
        return
    for owner in ("ann", "ann"):
        result = call("--owner", owner, "import", str(file))
        check_output(result)
    for id in HOSTILE_IDS:
        sessions.session(id).append(user_message("differs"))
        sessions.as_owner("ann").session(id).append(user_message("differs too"))
    other_file = tmp_path / f"other.{format}"
    check_output(call("sessions", "export", "--all", "-o", str(other_file)))
    check_output(call("--owner", "ann", "import", "--on-conflict", "new", str(other_file), code=5))


def test_on_a_terminal(terminal, sessions):
    """A list and a search show ids in another way than on a pipe."""
    commands = [
        ["list", "--all", "--sort", "title"], ["list", "--id-prefix", "\x1b"], ["search", "needle*", "-n", "100"],
        ["show", "--", "\x1b]0;title\x07"], ["show", "--", "agent 5"],
    ]  # fmt: skip
    for arguments in commands:
        screen = terminal("sessions", *arguments, columns=200, NO_COLOR="1")
        assert not [character for character in screen if character != "\n" and not character.isprintable()], screen
    assert "\\x1b]0;title\\x07" in terminal("sessions", "search", "needle2needle", columns=200, NO_COLOR="1")
    assert "\\u202egnp.exe" in terminal("sessions", "list", "--id-prefix", "\u202e", columns=200, NO_COLOR="1")


def test_ids_that_differ_only_in_form_are_shown_as_they_are(call, store):
    """Recollect does not normalize ids: a program may store one form, and a person may type the other."""
    ids = ("\u00e9", "e\u0301", "\u212b", "\u00c5")
    for number, id in enumerate(ids):
        store.session(id, title=f"Title {number}").append(user_message("x"))
    for number, id in enumerate(ids):
        assert json.loads(call("sessions", "show", "--json", "--", id).stdout)["title"] == f"Title {number}"


def test_maintenance(call, sessions):
    for arguments in (["db", "check"], ["sessions", "stats"], ["sessions", "prune", "--keep", "0", "--dry-run"]):
        check_output(call(*arguments))


def test_completions_leave_out_what_cannot_be_typed(call, sessions):
    for prefix in ("", "a", "Title", "\x1b"):
        result = call(
            code=0, _RECOLLECT_COMPLETE="bash_complete", COMP_WORDS=f"recollect sessions show {prefix}", COMP_CWORD="3"
        )
        check_output(result)


class TestHints:
    def test_a_hint_restores_the_session(self, call, sessions):
        for id in HOSTILE_IDS:
            result = call("sessions", "delete", "--", id)
            hint = re.search(r"^To undo: recollect (.*)$", result.stderr, re.MULTILINE)
            assert (hint is None) == ("\0" in id)
            if hint is not None:
                assert words_of(hint[1])[:2] == ["sessions", "restore"]
                call(*words_of(hint[1]))
                assert sessions.get_session(id) is not None

    @pytest.mark.parametrize("id", [id for id in HOSTILE_IDS if "\0" not in id], ids=ascii)
    def test_an_error_names_the_command_that_restores_the_session(self, call, store, id):
        store.session(id)
        store.delete_session(id)
        result = call("sessions", "show", "--", id, code=3)
        check_output(result)
        hint = re.search(r"Run `(recollect .*)` to restore it", result.stderr)
        assert hint is not None, result
        call(*words_of(hint[1])[1:])
        assert store.get_session(id) is not None

    def test_an_error_names_forks_on_one_line(self, call, sessions):
        sessions.session("origin").append(user_message("x"))
        for id in ("fork\n1", "fork\x1b[2J"):
            sessions.session("origin").fork(id=id)
        result = call("sessions", "erase", "--yes", "--", "origin", code=4)
        check_output(result)
        assert "'fork\\n1'" in result.stderr
        assert "'fork\\x1b[2J'" in result.stderr

    @pytest.mark.parametrize(
        "word", [*(id for id in HOSTILE_IDS if "\0" not in id), "", "a'b", "a\\b", "\n0", "\x1b7", "\u202e0", "é\n", "\\"], ids=ascii
    )  # fmt: skip
    def test_a_quoted_word_is_the_word_for_the_shell(self, word):
        quoted = quote_for_shell(word)
        assert quoted is not None
        assert quoted.isprintable()
        assert words_of(quoted) == [word]

    def test_a_word_with_nul_cannot_be_quoted(self):
        assert quote_for_shell("a\0b") is None


def words_of(command):
    """Return the words of a command, as bash splits them."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is missing")
    output = subprocess.run(
        [bash, "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return output.stdout.decode().split("\0")[:-1]
