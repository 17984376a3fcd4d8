"""Commands on the whole database cover every owner with any role, and report data that they could not read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psycopg
import pytest

import recollect
from postgres_server import PASSWORD

ROLES = ["superuser", "owner of the tables", "ordinary"]
USER = {"superuser": "postgres", "owner of the tables": "plain", "ordinary": "guarded"}
GRANTS = """
GRANT USAGE ON SCHEMA recollect TO guarded;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA recollect TO guarded;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA recollect TO guarded
"""  # as docs/how-to/postgresql.md lists them
OWNERS = {"": 2, "alice": 46, "bob": 3}


@pytest.fixture
def owners_database(databases):
    """Create a database with three owners and the privileges that the documentation lists."""
    name = databases.make()
    for owner, count in OWNERS.items():
        with recollect.open(databases.url_of(name, "plain"), owner=owner) as store:
            for number in range(count):
                turn = [{"role": "assistant", "content": "yes", "model": f"of {owner}" if owner else None}]
                store.session(f"cli:{number}").save_turn("question", turn)
    with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
        for grant in GRANTS.split(";"):
            admin.execute(grant)
    yield name
    databases.drop(name)


@pytest.fixture
def admin(databases, owners_database):
    with psycopg.connect(databases.url_of(owners_database, "postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def run_command(databases, owners_database, tmp_path):
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}

    def run_as(role, *arguments, code=0):
        url = databases.url_of(owners_database, USER[role])
        settings = {
            **environment,
            "HOME": str(tmp_path),
            "RECOLLECT_DB": url,
            "PGPASSWORD": PASSWORD,
            "LC_ALL": "C.UTF-8",
        }
        arguments = [url if argument == "URL" else argument for argument in arguments]
        process = subprocess.run(
            [sys.executable, "-m", "recollect", *arguments],
            env=settings, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert process.returncode == code, process.stdout + process.stderr
        return process.stdout if "--json" in arguments else process.stdout + process.stderr

    return run_as


@pytest.mark.parametrize("role", ROLES)
def test_db_check_finds_a_damaged_row_of_any_owner(run_command, admin, role):
    output = run_command(role, "db", "check")
    assert ": no problems found" in output
    assert "Owners: (default), alice, bob." in output
    admin.execute("UPDATE recollect.sessions SET message_count = 7 WHERE owner = 'alice' AND id = 'cli:3'")
    admin.execute(
        "DELETE FROM recollect.branches WHERE owner = 'bob' AND tree = (SELECT max(tree) FROM recollect.trees)"
    )
    output = run_command(role, "db", "check", code=5)
    assert "owner alice: Session 'cli:3' has a wrong count: message_count 7 instead of 2" in output
    report = json.loads(run_command(role, "db", "check", "--quick", "--json", code=5))
    assert (report["ok"], report["owners"], report["everyone"], report["unread"]) == (
        False, ["", "alice", "bob"], True, {},
    )  # fmt: skip
    assert {(problem["owner"], problem["kind"]) for problem in report["findings"]} == {
        ("alice", "counter"), ("bob", "branch"), ("bob", "message"),
    }  # fmt: skip
    run_command(role, "db", "check", "--repair", code=5)  # a missing branch cannot be repaired
    report = json.loads(run_command(role, "db", "check", "--json", code=5))
    assert {problem["owner"] for problem in report["findings"]} == {"bob"}


@pytest.mark.parametrize("role", ["owner of the tables", "ordinary"])
def test_the_owner_option_limits_commands_to_one_owner(run_command, admin, role):
    admin.execute("UPDATE recollect.sessions SET message_count = 7 WHERE owner = 'alice' AND id = 'cli:3'")
    output = run_command(role, "--owner", "bob", "db", "check")
    assert ": no problems found" in output
    assert "Only owner bob." in output
    assert "Only owner (default)." in run_command(role, "--owner", "", "db", "check")
    assert "owner alice: Session 'cli:3'" in run_command(role, "--owner", "alice", "db", "check", code=5)
    assert json.loads(run_command(role, "--owner", "bob", "sessions", "stats", "--json"))["sessions"] == 3
    assert "Only owner bob." in run_command(role, "--owner", "bob", "sessions", "stats")


@pytest.mark.parametrize("role", ROLES)
def test_db_copy_copies_every_owner(run_command, role, tmp_path, databases, owners_database):
    file = str(tmp_path / "copy.db")
    output = run_command(role, "db", "copy", "URL", file)
    assert "51 conversations" in output
    assert "Owners: (default), alice, bob." in output
    for owner, count in OWNERS.items():
        with recollect.open(file, owner=owner) as store:
            assert store.stats().sessions == count
    report = json.loads(run_command(role, "db", "copy", "URL", file, "--json"))
    assert (report["complete"], report["everyone"], report["counts"]["sessions"]) == (True, True, 51)
    alice_file = str(tmp_path / "only.db")
    assert "46 conversations" in run_command(role, "db", "copy", "URL", alice_file, "--owner", "alice")


@pytest.mark.parametrize("role", ROLES)
def test_stats_count_every_owner(run_command, role):
    report = json.loads(run_command(role, "sessions", "stats", "--json"))
    assert (report["sessions"], report["messages"], report["turns"]) == (51, 102, 51)
    assert report["owners"] == ["", "alice", "bob"]
    assert [(model["name"], model["messages"]) for model in report["by_model"]][:2] == [("of alice", 46), (None, 53)][
        ::-1
    ]
    assert [(channel["name"], channel["sessions"]) for channel in report["by_channel"]] == [("cli", 51)]
    assert len(report["by_day"]) in (1, 2)  # the day may change during the test
    output = run_command(role, "sessions", "stats")
    assert "Owners: (default), alice, bob." in output
    assert json.loads(run_command(role, "db", "reindex", "--json"))["messages"] == 102


def test_commands_report_that_a_policy_may_hide_owners(run_command, admin, tmp_path):
    admin.execute("CREATE POLICY mine ON recollect.trees AS RESTRICTIVE TO guarded USING (owner <> 'alice')")
    for arguments in (["db", "check"], ["sessions", "stats"], ["db", "copy", "URL", str(tmp_path / "copy.db")]):
        output = run_command("ordinary", *arguments, code=5)
        assert "may hide owners from this role" in output
        assert "Owners: (default), bob." in output
    assert "in the data that could be read" in run_command("ordinary", "db", "check", code=5)
    assert not json.loads(run_command("ordinary", "db", "check", "--json", code=5))["ok"]
    assert not json.loads(run_command("ordinary", "db", "copy", "URL", str(tmp_path / "copy.db"), "--json", code=5))[
        "complete"
    ]


def test_db_check_names_an_owner_that_cannot_be_read(run_command, admin):
    admin.execute("UPDATE recollect.sessions SET metadata = '{' WHERE owner = 'alice' AND id = 'cli:3'")
    output = run_command("ordinary", "db", "check", code=5)
    assert "Owner alice could not be read" in output
    assert "Owners: (default), bob." in output
    report = json.loads(run_command("ordinary", "db", "check", "--json", code=5))
    assert (report["ok"], report["owners"], list(report["unread"])) == (False, ["", "bob"], ["alice"])
