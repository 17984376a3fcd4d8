"""Completion in a shell: the scripts, and what they are answered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

BASH = shutil.which("bash")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(call, shell):
    shown = call("completion", shell)
    assert "_RECOLLECT_COMPLETE" in shown.stdout
    assert shown.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_words_are_completed(call, store, shell):
    store.session("cli:default", title="A title")
    word = {"zsh": "3", "fish": "cli:"}[shell]
    shown = call(_RECOLLECT_COMPLETE=f"{shell}_complete", COMP_WORDS="recollect sessions show cli:", COMP_CWORD=word)
    assert "cli\\:default" in shown.stdout or "cli:default" in shown.stdout
    assert "A title" in shown.stdout


def completed(call, line, **more):
    answer = call(_RECOLLECT_COMPLETE="bash_complete", COMP_LINE=line, **more).stdout
    return [item.partition(",")[2] for item in answer.splitlines()]


def test_commands_and_options(call):
    assert completed(call, "recollect s") == ["serve", "sessions"]
    assert "rename" in completed(call, "recollect sessions ")
    assert completed(call, "recollect sessions list --so") == ["--sort"]
    assert completed(call, "recollect sessions list --sort ") == ["activity", "created", "title"]


def test_ids_and_titles_from_the_right_place(call, store):
    store.session("cli:a", title="Alpha \x1b[31m")
    store.session("cli:gone", title="Beta")
    store.delete_session("cli:gone")
    assert completed(call, "recollect sessions show cli:") == ["cli:a"]
    assert completed(call, "recollect sessions show al") == ["Alpha ␛[31m"]
    assert completed(call, "recollect sessions restore ") == ["cli:gone"]
    assert completed(call, "recollect sessions delete cli:a cl") == ["cli:a"]


def test_the_database_that_is_named(call, store, path, tmp_path):
    store.session("cli:a")
    elsewhere = {"RECOLLECT_DB": str(tmp_path / "none.db")}
    assert completed(call, "recollect sessions show ", **elsewhere) == []
    assert completed(call, f"recollect --db {path} sessions show ", **elsewhere) == ["cli:a"]
    assert not os.path.exists(tmp_path / "none.db")


def test_trouble_is_silence(call, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("no database " * 100)
    shown = call(_RECOLLECT_COMPLETE="bash_complete", COMP_LINE="recollect sessions show ")
    assert (shown.stdout.strip(), shown.stderr) == ("", "")


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
        [BASH, "--norc", "-c", script], env={**environment, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == answers
