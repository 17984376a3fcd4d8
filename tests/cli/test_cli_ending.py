"""How the command ends: exit statuses, errors as sentences, closed pipes, interruptions, odd locales."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from cli_words import said


class TestNotFound:
    @pytest.mark.parametrize("name", ["nobody", "", "x\x1b[31m", "a\nb", "%", "☃" * 600], ids=repr)
    def test_a_name_that_is_nobodys_is_a_sentence_on_stderr(self, call, talk, name):
        shown = call("sessions", "show", name, code=3)
        assert shown.stdout == ""
        assert shown.stderr.startswith("recollect: There is no conversation ")
        assert shown.stderr.count("\n") == 1
        assert "\x1b" not in shown.stderr

    def test_one_in_the_trash_and_how_to_get_it_back(self, call, store, talk):
        store.delete_session(talk.id)
        shown = call("sessions", "show", talk.id, code=3)
        assert f"`recollect sessions restore {talk.id}`" in shown.stderr

    def test_a_name_that_fits_several(self, call, store):
        for number in range(3):
            store.session(f"cli:same{number}")
        shown = call("sessions", "show", "cli:same", code=4)
        assert "cli:same0" in shown.stderr
        assert "3 sessions" in shown.stderr


class TestTrouble:
    def test_a_file_that_is_no_database(self, call, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("just text, long enough to be looked at " * 50)
        shown = call("sessions", "list", code=1)
        assert shown.stdout == ""
        assert shown.stderr.startswith("recollect: ")
        assert path in shown.stderr

    def test_a_folder(self, call, tmp_path):
        assert "folder" in call("sessions", "list", code=1, RECOLLECT_DB=str(tmp_path)).stderr

    def test_an_unknown_url_does_not_tell_its_password(self, call):
        shown = call("db", "path", code=1, RECOLLECT_DB="mysql://me:hunter2@x/y")
        assert shown.stderr.startswith("recollect: ")
        assert "hunter2" not in shown.stderr

    def test_what_nobody_thought_of_is_a_sentence_too(self, call, monkeypatch):
        def broken(*_):
            raise ZeroDivisionError("seven \x1b[31m")

        monkeypatch.setattr("recollect.cli.place.where", broken)
        shown = call("db", "path", code=1)
        assert "ZeroDivisionError: seven ␛" in shown.stderr
        assert "RECOLLECT_DEBUG=1" in shown.stderr
        assert shown.stderr.count("\n") == 1

    def test_the_traceback_for_who_asks(self, environment):
        command = [sys.executable, "-m", "recollect", "sessions", "show", "nobody"]
        shown = subprocess.run(
            command, env={**environment, "RECOLLECT_DEBUG": "1"}, capture_output=True, text=True, check=False
        )
        assert shown.returncode == 3
        assert "Traceback" in shown.stderr
        assert "There is no conversation 'nobody'" in shown.stderr


class TestPipes:
    @pytest.mark.parametrize(
        "words", ["sessions list --all", "sessions list --all --json", "sessions show cli:a --json"]
    )
    def test_a_reader_that_goes_away_is_silence(self, store, environment, words):
        store.session("cli:a").append([said("x" * 500)] * 600)
        for number in range(600):
            store.session(f"cli:{number}", title="t" * 500)
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *words.split()], stdout=writer, stderr=subprocess.PIPE, env=environment
        )
        os.close(writer)
        assert os.read(reader, 10)
        os.close(reader)
        _, complaint = process.communicate(timeout=60)
        assert complaint == b""
        assert process.returncode == 141

    def test_a_full_disk_under_the_output_is_a_sentence(self, store, environment):
        if not os.path.exists("/dev/full"):
            pytest.skip("this system has no /dev/full")
        store.session("cli:a")
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "recollect", "sessions", "list"]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(b"recollect: ")
        assert done.stderr.count(b"\n") == 1

    @pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
    def test_streams_that_are_closed(self, store, environment, closed):
        store.session("cli:a")
        command = f"'{sys.executable}' -m recollect sessions pin cli:a {closed}"
        done = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, check=False)
        assert done.returncode == 0
        assert b"Traceback" not in done.stderr
        assert store.get_session("cli:a").pinned_at is not None


def test_interrupted(store, environment, tmp_path):
    """Ctrl-C while it waits for an answer."""
    import pty

    store.session("cli:a")
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "sessions", "erase", "cli:a"],
        stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  who runs the tests may ignore it
    )  # fmt: skip
    os.close(child)
    seen = b""
    until = time.monotonic() + 60
    while b"[y/N]" not in seen and time.monotonic() < until:
        seen += os.read(parent, 1000)
    try:
        for _ in range(12):  # one that comes just before it waits is seen with the next
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)  # a second one would meet the end of the first
                break
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    assert store.get_session("cli:a") is not None


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_locale_that_lacks_letters(store, run, environment, encoding):
    store.session("cli:a", title="日本語").append([said("für"), {"role": "assistant", "content": "├ 語"}])
    more = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding, "PYTHONCOERCECLOCALE": "0"}
    for words in (["list"], ["show", "cli:a"], ["list", "--json"], ["show", "日本語"], ["delete", "cli:a"]):
        done = subprocess.run(
            [sys.executable, "-m", "recollect", "sessions", *words],
            env={**environment, **more}, capture_output=True, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 3), done.stderr
