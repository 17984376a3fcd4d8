"""The command line on PostgreSQL: same commands, no password in the output, and errors for commands that need a file."""

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
def run_command(databases, database, tmp_path):
    # The URL has a password even if the server does not ask for one, so that the output could show it.
    url = databases.url_of(database, "plain").replace("plain@", f"plain:{PASSWORD.replace('$', '%24')}@", 1)
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    settings = {**environment, "HOME": str(tmp_path), "RECOLLECT_DB": url, "LC_ALL": "C.UTF-8"}

    def run_cli(*arguments: str, code: int = 0) -> str:
        process = subprocess.run(
            [sys.executable, "-m", "recollect", *arguments],
            env=settings,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert process.returncode == code, process.stderr
        for secret in (PASSWORD, PASSWORD.replace("$", "%24")):
            assert secret not in process.stdout + process.stderr
        return process.stdout + process.stderr

    return run_cli


@pytest.fixture
def session(postgres):
    with recollect.open(postgres) as store:
        session = store.session("cli:a", title="Numbers")
        session.save_turn("how many", {"role": "assistant", "content": "seven"})
        yield session


def test_db_path_prints_the_url(run_command):
    report = json.loads(run_command("db", "path", "--json"))
    assert report["path"].startswith("postgresql://plain@127.0.0.1:")
    assert report["exists"]


def test_db_migrate_prints_the_schema_version(run_command):
    assert json.loads(run_command("db", "migrate", "--json"))["schema"] == sql.migrations("postgres")[-1][0]


def test_sessions_are_listed_shown_and_searched(run_command, session):
    assert "Numbers" in run_command("sessions", "list")
    assert "seven" in run_command("sessions", "show", "cli:a")
    assert "cli:a" in run_command("sessions", "search", "seven")
    assert json.loads(run_command("sessions", "stats", "--json"))["messages"] == 2


def test_db_check_finds_no_problem(run_command, session):
    report = json.loads(run_command("db", "check", "--json"))
    assert report["ok"]
    assert "counters" in report["checks"]


def test_an_export_can_be_imported(run_command, session, tmp_path):
    file = str(tmp_path / "out.jsonl")
    run_command("sessions", "export", "cli:a", "-o", file)
    session.store.erase_session("cli:a")
    run_command("import", file)
    assert [message.text for message in session.store.session("cli:a").messages()] == ["how many", "seven"]


@pytest.mark.parametrize("arguments", [("backup", "copy.db"), ("stats",), ("optimize",)])
def test_commands_for_files_are_not_supported(run_command, session, arguments, tmp_path):
    arguments = tuple(str(tmp_path / argument) if argument.endswith(".db") else argument for argument in arguments)
    assert "is not supported on this kind of database" in run_command("db", *arguments, code=1)


def test_db_restore_is_not_supported(run_command, tmp_path):
    (tmp_path / "copy.db").write_bytes(b"x")
    for flag in ("--yes", "--dry-run", "--json"):  # refused before the confirmation prompt
        assert "is not supported on this kind of database" in run_command(
            "db", "restore", str(tmp_path / "copy.db"), flag, code=1
        )


def test_owner_selects_the_sessions_of_an_owner(run_command, database, databases):
    with recollect.open(databases.url_of(database, "plain"), owner="ann") as store:
        store.session("cli:a", title="Of Ann").append({"role": "user", "content": "hello"})
    assert "Of Ann" not in run_command("sessions", "list")
    assert "Of Ann" in run_command("sessions", "list", "--owner", "ann")
    assert "hello" in run_command("--owner", "ann", "sessions", "show", "cli:a")
    run_command("sessions", "show", "cli:a", "--owner", "bob", code=3)
