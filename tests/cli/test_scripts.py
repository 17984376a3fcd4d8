"""The setup of the scripts: it runs once, and a second start needs no network."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UV = """#!/bin/sh
echo "$@" >>uv.log
for folder; do :; done # the last argument
[ "$1" = venv ] && mkdir -p "$folder/bin" && cp /bin/sh "$folder/bin/python"
[ ! -e fails ]
"""


@pytest.fixture
def clone(tmp_path):
    """Create a folder with the scripts, and a fake uv that only logs its arguments."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "conformance").mkdir()
    shutil.copy(ROOT / "conformance" / "pyproject.toml", tmp_path / "conformance")
    (tmp_path / "bin").mkdir()
    uv = tmp_path / "bin" / "uv"
    uv.write_text(UV, encoding="utf-8")
    uv.chmod(0o700)
    return tmp_path


def set_up_environment(clone, extras="all", code=0):
    """Set the environment up as the scripts do, and return the calls of uv."""
    log = clone / "uv.log"
    log.unlink(missing_ok=True)
    environment = {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}", "HOME": str(clone)}
    command = ["bash", "-c", f"set -euo pipefail; . scripts/environment {extras}; echo $venv"]
    result = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == code, result.stderr
    assert result.stdout == (".venv\n" if code == 0 else "")
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_a_second_setup_installs_nothing(clone):
    assert set_up_environment(clone) == [
        "venv --quiet --seed .venv",
        "pip install --quiet --python .venv/bin/python --editable .[all]",
    ]
    assert set_up_environment(clone) == []


def test_new_extras_and_changed_dependencies_are_installed(clone):
    set_up_environment(clone)
    assert len(set_up_environment(clone, "all,dev")) == 1
    assert set_up_environment(clone, "all,dev") == set_up_environment(clone) == []
    with open(clone / "pyproject.toml", "a", encoding="utf-8") as file:
        file.write("# another dependency\n")
    assert len(set_up_environment(clone)) == 1


def test_a_failed_installation_is_retried(clone):
    set_up_environment(clone)
    (clone / ".venv" / ".installed-all").unlink()
    (clone / "fails").touch()
    assert len(set_up_environment(clone, code=1)) == 1
    (clone / "fails").unlink()
    assert len(set_up_environment(clone)) == 1
    assert set_up_environment(clone) == []


def test_the_command_runs_in_the_folder_of_the_caller(clone, tmp_path_factory):
    set_up_environment(clone)
    command = clone / ".venv" / "bin" / "recollect"
    command.write_text('#!/bin/sh\npwd\necho "$@"\n', encoding="utf-8")
    command.chmod(0o700)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    environment = {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}", "HOME": str(clone)}
    for arguments, expected in ((["db", "backup", "b.db"], "db backup b.db"), ([], "serve")):
        result = subprocess.run(
            [str(clone / "scripts" / "run"), *arguments], cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120,
            check=True,
        )  # fmt: skip
        assert result.stdout.splitlines() == [str(elsewhere), expected]
