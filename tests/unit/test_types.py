"""What type checkers say about programs that use the library: correct ones pass, and each mistake is found."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
from typing import get_args

import pytest

from recollect.formats import FORMATS
from recollect.model.message import Format
from recollect.model.session import SETTABLE, NewSessionFields, SessionChanges

HERE = pathlib.Path(__file__).parent.parent / "types"
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"


def marked() -> set[tuple[str, int]]:
    lines = WRONG.read_text().splitlines()
    return {(WRONG.name, number) for number, line in enumerate(lines, 1) if line.endswith("# error")}


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=HERE, timeout=900
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


LONG = pytest.mark.long  # a run of a checker takes half a minute; the strict ones find the same


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=LONG)], ids=["default", "strict"])
@pytest.mark.all
def test_mypy(strict, tmp_path):
    options = ["--strict"] if strict else ["--check-untyped-defs"]
    told = run("mypy", *options, "--config-file=", f"--cache-dir={tmp_path}", "--output=json", RIGHT.name, WRONG.name)
    found = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert {(each["file"], each["line"]) for each in found if each["severity"] == "error"} == marked(), told


@pytest.mark.parametrize("mode", ["basic", pytest.param("strict", marks=LONG)])
@pytest.mark.all
def test_pyright(mode, tmp_path):
    for program in (RIGHT, WRONG):
        shutil.copy(program, tmp_path)
    quiet = {"reportUnusedExpression": "none", "reportUnusedImport": "none", "reportUnusedCoroutine": "none"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode, **quiet}))
    told = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)))
    found = {(pathlib.Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["rule"])
             for each in told["generalDiagnostics"] if each["severity"] == "error"}  # fmt: skip
    unknown = {place for place in found if place[2].startswith("reportUnknown")}  # what follows from a mistake
    assert {place[:2] for place in found - unknown} == marked(), found
    assert {place for place in unknown if place[0] == RIGHT.name} == set()


def test_what_is_stated_for_checkers_is_what_there_is():
    assert get_args(Format) == FORMATS
    assert set(SessionChanges.__annotations__) == set(SETTABLE)
    assert set(NewSessionFields.__annotations__) == {*SETTABLE, "parent"}
