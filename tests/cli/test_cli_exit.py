"""The end of a command: exit statuses, error messages, closed pipes, interrupts and limited encodings."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from cli_messages import user_message


class TestNotFound:
    @pytest.mark.parametrize("name", ["nobody", "", "x\x1b[31m", "a\nb", "%", "☃" * 600], ids=repr)
    def test_an_unknown_name_is_one_line_on_stderr(self, call, session, name):
        result = call("sessions", "show", name, code=3)
        assert result.stdout == ""
        assert result.stderr.startswith("recollect: No conversation matches ")
        assert result.stderr.count("\n") == 1
        assert "\x1b" not in result.stderr

    def test_a_session_in_the_trash_suggests_restore(self, call, store, session):
        store.delete_session(session.id)
        result = call("sessions", "show", session.id, code=3)
        assert f"`recollect sessions restore {session.id}`" in result.stderr

    def test_an_ambiguous_name_lists_the_matches(self, call, store):
        for number in range(3):
            store.session(f"cli:same{number}")
        result = call("sessions", "show", "cli:same", code=4)
        assert "cli:same0" in result.stderr
        assert "3 conversations" in result.stderr


class TestErrors:
    def test_a_file_that_is_not_a_database(self, call, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("just text, long enough to be looked at " * 50)
        result = call("sessions", "list", code=1)
        assert result.stdout == ""
        assert result.stderr.startswith("recollect: ")
        assert path in result.stderr

    def test_a_folder_as_database(self, call, tmp_path):
        assert "folder" in call("sessions", "list", code=1, RECOLLECT_DB=str(tmp_path)).stderr

    def test_the_error_for_an_unknown_url_hides_the_password(self, call):
        result = call("db", "path", code=1, RECOLLECT_DB="mysql://me:hunter2@x/y")
        assert result.stderr.startswith("recollect: ")
        assert "hunter2" not in result.stderr

    def test_an_unexpected_exception_is_one_line_on_stderr(self, call, monkeypatch):
        def fail(*_):
            raise ZeroDivisionError("seven \x1b[31m")

        monkeypatch.setattr("recollect.cli.store_access.database_location", fail)
        result = call("db", "path", code=1)
        assert "ZeroDivisionError: seven ␛" in result.stderr
        assert "RECOLLECT_DEBUG=1" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_the_debug_variable_prints_the_traceback(self, environment):
        command = [sys.executable, "-m", "recollect", "sessions", "show", "nobody"]
        result = subprocess.run(
            command, env={**environment, "RECOLLECT_DEBUG": "1"}, capture_output=True, text=True, check=False
        )
        assert result.returncode == 3
        assert "Traceback" in result.stderr
        assert "No conversation matches 'nobody'" in result.stderr


class TestPipes:
    @pytest.mark.parametrize(
        "command_line", ["sessions list --all", "sessions list --all --json", "sessions show cli:a --json"]
    )
    def test_a_closed_pipe_ends_the_command_silently(self, store, environment, command_line):
        store.session("cli:a").append([user_message("x" * 500)] * 600)
        for number in range(600):
            store.session(f"cli:{number}", title="t" * 500)
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *command_line.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment,
        )
        os.close(writer)
        assert os.read(reader, 10)
        os.close(reader)
        _, stderr = process.communicate(timeout=60)
        assert stderr == b""
        assert process.returncode == 141

    def test_a_full_disk_under_the_output_is_one_line_on_stderr(self, store, environment):
        if not os.path.exists("/dev/full"):
            pytest.skip("this system has no /dev/full")
        store.session("cli:a")
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "recollect", "sessions", "list"]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith(b"recollect: ")
        assert result.stderr.count(b"\n") == 1

    @pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
    def test_closed_standard_streams(self, store, environment, redirections):
        store.session("cli:a")
        command = f"'{sys.executable}' -m recollect sessions pin cli:a {redirections}"
        result = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, check=False)
        assert result.returncode == 0
        assert b"Traceback" not in result.stderr
        assert store.get_session("cli:a").pinned_at is not None


def test_ctrl_c_during_a_question(store, environment, tmp_path):
    """Ctrl-C while the command waits for an answer."""
    import pty

    store.session("cli:a")
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "sessions", "erase", "cli:a"],
        stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  the parent may ignore the signal
    )  # fmt: skip
    os.close(child)
    screen = b""
    deadline = time.monotonic() + 60
    while b"[y/N]" not in screen and time.monotonic() < deadline:
        screen += os.read(parent, 1000)
    try:
        for _ in range(12):  # a signal just before the read is only noticed at the next one
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)  # a second signal could arrive during the exit that the first caused
                break
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    assert store.get_session("cli:a") is not None


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_output_in_a_limited_encoding(store, run, environment, encoding):
    store.session("cli:a", title="日本語").append([user_message("für"), {"role": "assistant", "content": "├ 語"}])
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding, "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["list"], ["show", "cli:a"], ["list", "--json"], ["show", "日本語"], ["delete", "cli:a"]):
        result = subprocess.run(
            [sys.executable, "-m", "recollect", "sessions", *arguments],
            env={**environment, **variables}, capture_output=True, check=False,
        )  # fmt: skip
        assert b"Traceback" not in result.stderr, result.stderr
        assert result.returncode in (0, 3), result.stderr
