"""Fixtures that run the command: in this process, in a new process, and on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
import termios
import time
from typing import NamedTuple

import pytest

import recollect

INHERITED_VARIABLES = ("PATH", "PYTHONPATH", "COVERAGE_PROCESS_START", "SYSTEMROOT")


class CommandResult(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def environment(path, tmp_path):
    inherited_variables = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return {
        **inherited_variables,
        "HOME": str(tmp_path / "home"),
        "RECOLLECT_DB": path,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


@pytest.fixture
def call(environment, monkeypatch):
    """Return a function that runs the command in this process, which is faster than a new one."""

    def call(*args: str, code: int = 0, stdin: str | None = None, **variables: str) -> CommandResult:
        from recollect.cli import recollect as command
        from recollect.cli.exit_codes import run_command

        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with monkeypatch.context() as patch:
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in {**environment, **variables}.items():
                patch.setenv(name, value)
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO((stdin or "").encode()))))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = run_command(command, list(args))
        result = CommandResult(status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())
        assert result.code == code, result
        assert "Traceback" not in result.stderr
        return result

    return call


@pytest.fixture
def run(environment):
    """Return a function that runs the command in a new process without a terminal."""

    def run(*args: str, code: int = 0, **variables: str) -> CommandResult:
        process = subprocess.run(
            [sys.executable, "-m", "recollect", *args],
            capture_output=True, env={**environment, **variables}, timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        result = CommandResult(process.returncode, process.stdout.decode(), process.stderr.decode())
        assert result.code == code, result
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def terminal(environment):
    """Return a function that runs the command on a terminal, types a text and returns the complete output."""

    def terminal(*args: str, columns: int = 80, typed: str = "", code: int = 0, **variables: str) -> str:
        parent, child = pty.openpty()
        termios.tcsetwinsize(child, (40, columns))
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *args],
            stdin=child, stdout=child, stderr=child, env={**environment, "TERM": "xterm-256color", **variables},
        )  # fmt: skip
        os.close(child)
        if typed:
            os.write(parent, typed.encode())
        screen = _read_all(parent)
        os.close(parent)
        assert process.wait(60) == code, screen
        assert "Traceback" not in screen
        return screen.replace("\r\n", "\n")

    return terminal


def _read_all(parent: int) -> str:
    data = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([parent], [], [], 1)[0]:
            try:
                chunk = os.read(parent, 65536)
            except OSError:  # on Linux, when the command has closed its end
                break
            if not chunk:
                break
            data += chunk
    return data.decode()


@pytest.fixture
def session(store):
    """Create a session with a tool call, its result and an answer."""
    session = store.session(title="About the README", model="some-model")
    with session.turn("What is in README.md?") as turn:
        block = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "README.md"}}
        reasoning = {"type": "thinking", "thinking": "I must look.", "signature": "s"}
        turn.add({"role": "assistant", "content": [reasoning, {"type": "text", "text": "Let me see."}, block]})
        turn.add(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "# Title\ntext"}]}
        )
        turn.add({"role": "assistant", "content": "It has a title."})
    return session
