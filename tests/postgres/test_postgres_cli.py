"""The command on a server: the same words, no password in what it prints, and a plain answer where there is no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import recollect
from postgres_server import PASSWORD
from recollect import sql


@pytest.fixture
def call(databases, database, tmp_path):
    # A password in the URL, whether the server asks for one or not.
    url = databases.url_of(database, "plain").replace("plain@", f"plain:{PASSWORD.replace('$', '%24')}@", 1)
    passed = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    known = {**passed, "HOME": str(tmp_path), "RECOLLECT_DB": url, "LC_ALL": "C.UTF-8"}

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *words],
            env=known,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        for secret in (PASSWORD, PASSWORD.replace("$", "%24")):
            assert secret not in done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def talk(postgres):
    with recollect.open(postgres) as store:
        session = store.session("cli:a", title="Numbers")
        session.save_turn("how many", {"role": "assistant", "content": "seven"})
        yield session


def test_where_it_is(call):
    found = json.loads(call("db", "path", "--json"))
    assert found["path"].startswith("postgresql://plain@127.0.0.1:")
    assert found["exists"]


def test_up_to_date(call):
    assert json.loads(call("db", "migrate", "--json"))["schema"] == sql.migrations("postgres")[-1][0]


def test_what_is_in_it(call, talk):
    assert "Numbers" in call("sessions", "list")
    assert "seven" in call("sessions", "show", "cli:a")
    assert "cli:a" in call("sessions", "search", "seven")
    assert json.loads(call("sessions", "stats", "--json"))["messages"] == 2


def test_a_check(call, talk):
    found = json.loads(call("db", "check", "--json"))
    assert found["sound"]
    assert "counters" in found["checked"]


def test_out_and_in_again(call, talk, tmp_path):
    file = str(tmp_path / "out.jsonl")
    call("sessions", "export", "cli:a", "-o", file)
    talk.store.erase_session("cli:a")
    call("sessions", "import", file)
    assert [message.text for message in talk.store.session("cli:a").messages()] == ["how many", "seven"]


@pytest.mark.parametrize("words", [("backup", "copy.db"), ("stats",), ("optimize",)])
def test_what_only_a_file_has(call, talk, words, tmp_path):
    words = tuple(str(tmp_path / word) if word.endswith(".db") else word for word in words)
    assert "not there for this kind of store" in call("db", *words, code=1)


def test_no_backup_comes_back(call, tmp_path):
    (tmp_path / "copy.db").write_bytes(b"x")
    for flag in ("--yes", "--dry-run", "--json"):  # and nobody is asked first
        assert "not there for this kind of store" in call("db", "restore", str(tmp_path / "copy.db"), flag, code=1)


def test_an_owner(call, database, databases):
    with recollect.open(databases.url_of(database, "plain"), owner="ann") as store:
        store.session("cli:a", title="Of Ann").append({"role": "user", "content": "hello"})
    assert "Of Ann" not in call("sessions", "list")
    assert "Of Ann" in call("sessions", "list", "--owner", "ann")
    assert "hello" in call("--owner", "ann", "sessions", "show", "cli:a")
    call("sessions", "show", "cli:a", "--owner", "bob", code=3)
