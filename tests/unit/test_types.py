"""Type checkers accept correct programs that use the library, and report each mistake of wrong ones."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
from typing import get_args

import pytest

from recollect.formats import FORMATS
from recollect.model.message import BuiltInFormat, Format, RegisteredFormat
from recollect.model.session import SETTABLE, NewSessionFields, SessionChanges, SessionEdits, SessionUpdates

PROGRAMS = pathlib.Path(__file__).parent.parent / "types"
RIGHT, WRONG = PROGRAMS / "right.py", PROGRAMS / "wrong.py"


def expected_errors() -> set[tuple[str, int]]:
    lines = WRONG.read_text().splitlines()
    return {(WRONG.name, number) for number, line in enumerate(lines, 1) if line.endswith("# error")}


def run(*command: str) -> str:
    process = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=PROGRAMS, timeout=900
    )
    assert process.returncode in (0, 1), process.stdout + process.stderr
    return process.stdout


LONG = pytest.mark.long  # a run of a checker takes 30 seconds; the strict mode reports the same errors


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=LONG)], ids=["default", "strict"])
@pytest.mark.all
def test_mypy(strict, tmp_path):
    options = ["--strict"] if strict else ["--check-untyped-defs"]
    output = run("mypy", *options, "--config-file=", f"--cache-dir={tmp_path}", "--output=json", RIGHT.name, WRONG.name)
    diagnostics = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert {
        (diagnostic["file"], diagnostic["line"]) for diagnostic in diagnostics if diagnostic["severity"] == "error"
    } == expected_errors(), output


@pytest.mark.parametrize("mode", ["basic", pytest.param("strict", marks=LONG)])
@pytest.mark.all
def test_pyright(mode, tmp_path):
    for program in (RIGHT, WRONG):
        shutil.copy(program, tmp_path)
    quiet = {"reportUnusedExpression": "none", "reportUnusedImport": "none", "reportUnusedCoroutine": "none"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode, **quiet}))
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)))
    errors = {(pathlib.Path(diagnostic["file"]).name, diagnostic["range"]["start"]["line"] + 1, diagnostic["rule"])
             for diagnostic in report["generalDiagnostics"] if diagnostic["severity"] == "error"}  # fmt: skip
    unknown = {error for error in errors if error[2].startswith("reportUnknown")}  # consequences of a mistake
    assert {error[:2] for error in errors - unknown} == expected_errors(), errors
    assert {error for error in unknown if error[0] == RIGHT.name} == set()


TESTS = pathlib.Path(__file__).parents[1]
TEST_WITH_ERRORS = """import scripted
import recollect
from recollect import testing  # error

def test_with_errors():
    scripted.Scripted()
    recollect.open(":memory:").sesion("a")  # error
    recollect.open(":memory:").get_session()  # error
"""


@pytest.mark.all
def test_pyright_finds_an_error_in_a_test(tmp_path):
    (tmp_path / "test_with_errors.py").write_text(TEST_WITH_ERRORS)
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps({"extends": str(TESTS / "pyrightconfig.json"), "include": ["."]}))
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(project)))
    lines = {
        diagnostic["range"]["start"]["line"]
        for diagnostic in report["generalDiagnostics"]
        if diagnostic["severity"] == "error"
    }
    assert lines == {number for number, line in enumerate(TEST_WITH_ERRORS.splitlines()) if line.endswith("# error")}, (
        report
    )


def test_pyright_checks_every_folder_of_tests():
    config = (TESTS / "pyrightconfig.json").read_text()
    for folder in TESTS.iterdir():
        if any(folder.glob("*.py")):
            assert f'"{folder.name}"' in config


def test_the_types_match_the_formats_and_the_session_fields():
    assert get_args(BuiltInFormat) == FORMATS
    assert get_args(Format) == (BuiltInFormat, RegisteredFormat)
    assert set(SessionChanges.__annotations__) == set(SETTABLE)
    assert set(NewSessionFields.__annotations__) == {*SETTABLE, "parent", "relation"}
    assert set(SessionEdits.__annotations__) == {*SETTABLE, "add_labels", "remove_labels"}
    assert set(SessionUpdates.__annotations__) == set(NewSessionFields.__annotations__ | SessionEdits.__annotations__)
