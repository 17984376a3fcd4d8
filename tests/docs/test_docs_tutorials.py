"""Every command of the first tutorial and the guides succeeds and prints the output shown; their Python programs run."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import urllib.request

import pytest
from docs_pages import ARROW, find_blocks, read_page, run_example

FIRST = "docs/tutorials/first-conversation.md"
PYTHON = "docs/tutorials/python.md"
GUIDES = [
    "docs/how-to/continue-after-a-crash.md",
    "docs/how-to/many-users.md",
    "docs/how-to/replace-a-messages-table.md",
]
PROGRAMS = ["docs/how-to/fastapi.md", "docs/how-to/queue-worker.md"]  # run as processes, by tests of their own
PROMPT = "$ "


def read_commands(page: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a page's console blocks, each with the lines of output shown below it."""
    steps: list[tuple[str, list[str]]] = []
    for block in find_blocks(page, "console"):
        for line in block.text.splitlines():
            if line.startswith(PROMPT):
                steps.append((line.removeprefix(PROMPT), []))
            else:
                steps[-1][1].append(line)
    return steps


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Set the environment of a new installation of Recollect and return its folder."""
    for name in [name for name in os.environ if name.startswith("RECOLLECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_first_tutorial_print_the_shown_output(environment, monkeypatch):
    steps = read_commands(FIRST)
    assert len(steps) > 10
    for command, expected in steps:
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("="))
            continue
        process = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"
        for line in expected:
            assert line in process.stdout.splitlines(), f"{command}\n{process.stdout}"
    assert (environment / "tutorial.db").is_file()
    assert (environment / "backup.db").is_file()
    assert "Ada" in (environment / "conversation.html").read_text(encoding="utf-8")


def test_the_server_of_the_first_tutorial_starts_and_prints_its_link(environment):
    assert "    recollect serve --open\n" in read_page(FIRST)
    with subprocess.Popen(
        ["recollect", "--db", "tutorial.db", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            address = next(word for line in server.stdout or () for word in line.split() if word.startswith("http://"))
            with urllib.request.urlopen(address.split("#")[0] + "api/v1/health", timeout=60) as answer:
                assert answer.status == 200
        finally:
            server.terminate()


def test_the_program_of_the_python_tutorial_runs(environment, capsys):
    namespace = {"__name__": "example"}
    count = sum(run_example(PYTHON, block, namespace) for block in find_blocks(PYTHON))
    assert count == read_page(PYTHON).count(ARROW)
    assert count > 10
    assert capsys.readouterr().out


def test_every_guide_with_python_code_is_run():
    folder = pathlib.Path(__file__).parents[2] / "docs/how-to"
    pages = [f"docs/how-to/{path.name}" for path in sorted(folder.glob("*.md"))]
    assert [page for page in pages if find_blocks(page)] == sorted([*GUIDES, *PROGRAMS])


@pytest.mark.parametrize("page", GUIDES)
def test_the_program_of_a_guide(page, environment):
    namespace = {"__name__": "example"}
    count = sum(run_example(page, block, namespace) for block in find_blocks(page))
    assert count == read_page(page).count(ARROW)
    assert count > 3


def test_the_commands_of_the_backup_guide_succeed(environment, monkeypatch):
    monkeypatch.setenv("RECOLLECT_DB", "recollect.db")
    subprocess.run("echo hello | recollect chat", shell=True, capture_output=True, timeout=120, check=True)
    steps = read_commands("docs/how-to/back-up.md")
    assert len(steps) == 5
    for command, _ in steps:
        process = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"
    assert [path.name for path in environment.glob("*.kept")]


def test_the_commands_of_the_troubleshooting_guide(environment, monkeypatch):
    monkeypatch.setenv("RECOLLECT_DB", "recollect.db")
    subprocess.run("echo hello | recollect chat", shell=True, capture_output=True, timeout=120, check=True)
    steps = read_commands("docs/how-to/troubleshooting.md")
    assert len(steps) == 4
    for command, _ in steps:
        process = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"


def test_the_commands_of_the_import_guide(environment, monkeypatch):
    """The toy source of the tests takes the place of the tools: it has a conversation in its folder."""
    folder = pathlib.Path(__file__).parents[1] / "sync"
    (environment / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(folder)!r})\nfrom recollect.sources import registry\n"
        f'from toy_source import ToySource\nregistry.NAMES = ("toy",)\nregistry.get_source = lambda name: ToySource()\n'
    )
    (environment / ".toy").mkdir()
    (environment / ".toy" / "a.jsonl").write_text('{"start": "a"}\n{"id": "1", "text": "hello"}\n')
    monkeypatch.setenv("PYTHONPATH", str(environment))
    steps = read_commands("docs/how-to/import.md")
    results = [
        subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=True)
        for command, _ in steps
    ]
    assert [command for command, _ in steps] == ["recollect import --dry-run", "recollect import -y", "recollect sync"]
    assert "Would import 1 new conversation" in results[0].stderr
    assert "Imported 1 new conversation" in results[1].stderr
    assert (results[2].stdout, results[2].stderr) == ("", "")
