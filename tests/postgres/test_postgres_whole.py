"""Commands about the whole database cover every owner, whatever the role; what they could not see, they say."""

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
"""  # what docs/postgresql.md names
OWNERS = {"": 2, "alice": 46, "bob": 3}


@pytest.fixture
def place(databases):
    """A database with a few owners, and the rights that the documentation names."""
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
def admin(databases, place):
    with psycopg.connect(databases.url_of(place, "postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def run(databases, place, tmp_path):
    passed = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}

    def run(role, *words, code=0):
        url = databases.url_of(place, USER[role])
        known = {**passed, "HOME": str(tmp_path), "RECOLLECT_DB": url, "PGPASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"}
        words = [url if word == "URL" else word for word in words]
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *words],
            env=known, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if "--json" in words else done.stdout + done.stderr

    return run


@pytest.mark.parametrize("role", ROLES)
def test_a_damaged_row_of_any_owner_is_found(run, admin, role):
    told = run(role, "db", "check")
    assert "is sound" in told
    assert "Owners: (unnamed), alice, bob." in told
    admin.execute("UPDATE recollect.sessions SET message_count = 7 WHERE owner = 'alice' AND id = 'cli:3'")
    admin.execute(
        "DELETE FROM recollect.branches WHERE owner = 'bob' AND tree = (SELECT max(tree) FROM recollect.trees)"
    )
    told = run(role, "db", "check", code=5)
    assert "owner alice: Session 'cli:3' has a wrong count: message_count 7 instead of 2" in told
    found = json.loads(run(role, "db", "check", "--quick", "--json", code=5))
    assert (found["sound"], found["owners"], found["everyone"], found["unread"]) == (
        False, ["", "alice", "bob"], True, {},
    )  # fmt: skip
    assert {(each["owner"], each["kind"]) for each in found["found"]} == {
        ("alice", "counter"), ("bob", "branch"), ("bob", "message"),
    }  # fmt: skip
    run(role, "db", "check", "--repair", code=5)  # a branch that is gone stays gone
    found = json.loads(run(role, "db", "check", "--json", code=5))
    assert {each["owner"] for each in found["found"]} == {"bob"}


@pytest.mark.parametrize("role", ["owner of the tables", "ordinary"])
def test_an_owner_that_is_named_is_the_only_one(run, admin, role):
    admin.execute("UPDATE recollect.sessions SET message_count = 7 WHERE owner = 'alice' AND id = 'cli:3'")
    told = run(role, "--owner", "bob", "db", "check")
    assert "is sound" in told
    assert "Owner bob only." in told
    assert "Owner (unnamed) only." in run(role, "--owner", "", "db", "check")
    assert "owner alice: Session 'cli:3'" in run(role, "--owner", "alice", "db", "check", code=5)
    assert json.loads(run(role, "--owner", "bob", "sessions", "stats", "--json"))["sessions"] == 3
    assert "Owner bob only." in run(role, "--owner", "bob", "sessions", "stats")


@pytest.mark.parametrize("role", ROLES)
def test_everyone_is_copied(run, role, tmp_path, databases, place):
    file = str(tmp_path / "copy.db")
    told = run(role, "db", "copy", "URL", file)
    assert "51 sessions" in told
    assert "Owners: (unnamed), alice, bob." in told
    for owner, count in OWNERS.items():
        with recollect.open(file, owner=owner) as store:
            assert store.stats().sessions == count
    found = json.loads(run(role, "db", "copy", "URL", file, "--json"))
    assert (found["whole"], found["everyone"], found["counts"]["sessions"]) == (True, True, 51)
    only = str(tmp_path / "only.db")
    assert "46 sessions" in run(role, "db", "copy", "URL", only, "--owner", "alice")


@pytest.mark.parametrize("role", ROLES)
def test_everyone_is_counted(run, role):
    found = json.loads(run(role, "sessions", "stats", "--json"))
    assert (found["sessions"], found["messages"], found["turns"]) == (51, 102, 51)
    assert found["owners"] == ["", "alice", "bob"]
    assert [(each["name"], each["messages"]) for each in found["by_model"]][:2] == [("of alice", 46), (None, 53)][::-1]
    assert [(each["name"], each["sessions"]) for each in found["by_channel"]] == [("cli", 51)]
    assert len(found["by_day"]) in (1, 2)  # a day may end meanwhile
    told = run(role, "sessions", "stats")
    assert "Owners: (unnamed), alice, bob." in told
    assert json.loads(run(role, "db", "reindex", "--json"))["messages"] == 102


def test_what_may_be_hidden_is_said(run, admin, tmp_path):
    admin.execute("CREATE POLICY mine ON recollect.trees AS RESTRICTIVE TO guarded USING (owner <> 'alice')")
    for words in (["db", "check"], ["sessions", "stats"], ["db", "copy", "URL", str(tmp_path / "copy.db")]):
        told = run("ordinary", *words, code=5)
        assert "may hide owners from this role" in told
        assert "Owners: (unnamed), bob." in told
    assert "as far as it could be read" in run("ordinary", "db", "check", code=5)
    assert not json.loads(run("ordinary", "db", "check", "--json", code=5))["sound"]
    assert not json.loads(run("ordinary", "db", "copy", "URL", str(tmp_path / "copy.db"), "--json", code=5))["whole"]


def test_an_owner_that_can_not_be_read_is_named(run, admin):
    admin.execute("UPDATE recollect.sessions SET metadata = '{' WHERE owner = 'alice' AND id = 'cli:3'")
    told = run("ordinary", "db", "check", code=5)
    assert "Owner alice could not be read" in told
    assert "Owners: (unnamed), bob." in told
    found = json.loads(run("ordinary", "db", "check", "--json", code=5))
    assert (found["sound"], found["owners"], list(found["unread"])) == (False, ["", "bob"], ["alice"])
