"""The command as tests call it: in this process, as a process of its own, and on a terminal."""

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

PASSED = ("PATH", "PYTHONPATH", "COVERAGE_PROCESS_START", "SYSTEMROOT")


class Shown(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def environment(path, tmp_path):
    known = {name: os.environ[name] for name in PASSED if name in os.environ}
    return {**known, "HOME": str(tmp_path / "home"), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


@pytest.fixture
def call(environment, monkeypatch):
    """Run the command in this process, which is quick; it must behave as the process does."""

    def call(*args: str, code: int = 0, given: str | None = None, **more: str) -> Shown:
        from recollect.cli import recollect as command
        from recollect.cli.ending import run

        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with monkeypatch.context() as patch:
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in {**environment, **more}.items():
                patch.setenv(name, value)
            patch.setattr("sys.stdin", io.StringIO(given or ""))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = run(command, list(args))
        shown = Shown(status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())
        assert shown.code == code, shown
        assert "Traceback" not in shown.stderr
        return shown

    return call


@pytest.fixture
def run(environment):
    """Run the command as a process, without a terminal."""

    def run(*args: str, code: int = 0, **more: str) -> Shown:
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *args],
            capture_output=True, env={**environment, **more}, timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        shown = Shown(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert shown.code == code, shown
        assert "Traceback" not in shown.stderr
        return shown

    return run


@pytest.fixture
def terminal(environment):
    """Run the command on a terminal of a width, type something, and give all that the terminal got."""

    def terminal(*args: str, columns: int = 80, typed: str = "", code: int = 0, **more: str) -> str:
        parent, child = pty.openpty()
        termios.tcsetwinsize(child, (40, columns))
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *args],
            stdin=child, stdout=child, stderr=child, env={**environment, "TERM": "xterm-256color", **more},
        )  # fmt: skip
        os.close(child)
        if typed:
            os.write(parent, typed.encode())
        shown = _all_of(parent)
        os.close(parent)
        assert process.wait(60) == code, shown
        assert "Traceback" not in shown
        return shown.replace("\r\n", "\n")

    return terminal


def _all_of(parent: int) -> str:
    shown = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([parent], [], [], 1)[0]:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # Linux: nobody has the other end any more
                break
            if not piece:
                break
            shown += piece
    return shown.decode()


@pytest.fixture
def talk(store):
    """A conversation with a tool call, its result, and an answer."""
    session = store.create_session(title="About the README", model="some-model")
    with session.turn("What is in README.md?") as turn:
        block = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "README.md"}}
        thought = {"type": "thinking", "thinking": "I must look.", "signature": "s"}
        turn.add({"role": "assistant", "content": [thought, {"type": "text", "text": "Let me see."}, block]})
        turn.add(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "# Title\ntext"}]}
        )
        turn.add({"role": "assistant", "content": "It has a title."})
    return session
