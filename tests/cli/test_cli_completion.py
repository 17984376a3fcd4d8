"""Shell completion: the scripts, and the words that they offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

BASH = shutil.which("bash")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(call, shell):
    result = call("completion", shell)
    assert "_RECOLLECT_COMPLETE" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_words_are_completed(call, store, shell):
    store.session("cli:default", title="A title")
    word = {"zsh": "3", "fish": "cli:"}[shell]
    result = call(_RECOLLECT_COMPLETE=f"{shell}_complete", COMP_WORDS="recollect sessions show cli:", COMP_CWORD=word)
    assert "cli\\:default" in result.stdout or "cli:default" in result.stdout
    assert "A title" in result.stdout


def complete(call, line, **variables):
    answer = call(_RECOLLECT_COMPLETE="bash_complete", COMP_LINE=line, **variables).stdout
    return [item.partition(",")[2] for item in answer.splitlines()]


def test_commands_and_options(call):
    assert complete(call, "recollect s") == ["serve", "sync", "sessions"]
    assert "rename" in complete(call, "recollect sessions ")
    assert complete(call, "recollect sessions list --so") == ["--sort"]
    assert complete(call, "recollect sessions list --sort ") == ["activity", "created", "title"]


def test_complete_ids_and_titles_of_suitable_sessions(call, store):
    store.session("cli:a", title="Alpha \x1b[31m")
    store.session("cli:deleted", title="Beta")
    store.delete_session("cli:deleted")
    assert complete(call, "recollect sessions show cli:") == ["cli:a"]
    assert complete(call, "recollect sessions show al") == ["Alpha ␛[31m"]
    assert complete(call, "recollect sessions restore ") == ["cli:deleted"]
    assert complete(call, "recollect sessions delete cli:a cl") == ["cli:a"]


def test_complete_from_the_selected_database(call, store, path, tmp_path):
    store.session("cli:a")
    elsewhere = {"RECOLLECT_DB": str(tmp_path / "none.db")}
    assert complete(call, "recollect sessions show ", **elsewhere) == []
    assert complete(call, f"recollect --db {path} sessions show ", **elsewhere) == ["cli:a"]
    assert not os.path.exists(tmp_path / "none.db")


def test_a_damaged_database_completes_nothing_silently(call, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("no database " * 100)
    result = call(_RECOLLECT_COMPLETE="bash_complete", COMP_LINE="recollect sessions show ")
    assert (result.stdout.strip(), result.stderr) == ("", "")


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "breaks", "answers"),
    [
        ("recollect sessions show cli:de", ":", ["default", "deploy"]),  # bash itself keeps what is before the colon
        ("recollect sessions show cli:de", "", ["cli:default", "cli:deploy"]),
        ("recollect sessions show Two", ":", ["Two\\ words"]),
        ("recollect sess", ":", ["sessions"]),
    ],
)
def test_bash_itself(store, environment, tmp_path, line, breaks, answers):
    store.session("cli:deploy")
    store.session("cli:default", title="Two words")
    command = tmp_path / "recollect"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m recollect "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    script = (
        'eval "$(recollect completion bash)"\n'
        f"COMP_WORDBREAKS=' {breaks}' COMP_LINE='{line}' COMP_POINT={len(line)}\n"
        '_recollect_completion recollect\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [str(BASH), "--norc", "-c", script],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == answers
