"""The scripts set themselves up once: a second start asks nobody, and needs no network."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UV = """#!/bin/sh
echo "$@" >>uv.log
[ "$1" = venv ] && mkdir -p "$3/bin" && cp /bin/sh "$3/bin/python"
[ ! -e fails ]
"""


@pytest.fixture
def clone(tmp_path):
    """Give a folder with the script that makes the environment, and a uv that only writes down what it is told."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    uv = tmp_path / "bin" / "uv"
    uv.write_text(UV, encoding="utf-8")
    uv.chmod(0o700)
    return tmp_path


def start(clone, extras="all", code=0):
    """Set the environment up as the scripts do, and give what uv was told since the last time."""
    log = clone / "uv.log"
    log.unlink(missing_ok=True)
    known = {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}", "HOME": str(clone)}
    command = ["bash", "-c", f"set -euo pipefail; . scripts/environment {extras}; echo $venv"]
    found = subprocess.run(command, cwd=clone, env=known, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == code, found.stderr
    assert found.stdout == (".venv\n" if code == 0 else "")
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_a_second_start_installs_nothing(clone):
    assert start(clone) == ["venv --quiet .venv", "pip install --quiet --python .venv/bin/python --editable .[all]"]
    assert start(clone) == []


def test_what_is_needed_besides_or_has_changed_is_installed(clone):
    start(clone)
    assert len(start(clone, "all,dev")) == 1
    assert start(clone, "all,dev") == start(clone) == []
    with open(clone / "pyproject.toml", "a", encoding="utf-8") as file:
        file.write("# another dependency\n")
    assert len(start(clone)) == 1


def test_an_installation_that_failed_is_tried_again(clone):
    start(clone)
    (clone / ".venv" / ".installed-all").unlink()
    (clone / "fails").touch()
    assert len(start(clone, code=1)) == 1
    (clone / "fails").unlink()
    assert len(start(clone)) == 1
    assert start(clone) == []


def test_the_command_runs_in_the_folder_of_who_calls_it(clone, tmp_path_factory):
    start(clone)
    command = clone / ".venv" / "bin" / "recollect"
    command.write_text('#!/bin/sh\npwd\necho "$@"\n', encoding="utf-8")
    command.chmod(0o700)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    known = {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}", "HOME": str(clone)}
    for words, told in ((["db", "backup", "b.db"], "db backup b.db"), ([], "serve")):
        found = subprocess.run(
            [str(clone / "scripts" / "run"), *words], cwd=elsewhere, env=known, capture_output=True, text=True, timeout=120,
            check=True,
        )  # fmt: skip
        assert found.stdout.splitlines() == [str(elsewhere), told]
