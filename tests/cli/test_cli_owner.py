"""Whose conversations a command works on: --owner, RECOLLECT_OWNER and db.owner."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import urllib.request

import pytest

import recollect


@pytest.fixture
def shared(path):
    """A database of three: two with names, and one that is named by nothing."""
    for owner in ("", "ann", "bob"):
        with recollect.open(path, owner=owner) as store:
            store.session("cli:a", title=f"of {owner or 'nobody'}").append({"role": "user", "content": f"{owner} says"})
    return path


def titles(call, *words, **more):
    return [item["title"] for item in json.loads(call(*words, "--json", **more).stdout)["sessions"]]


def test_the_option_stands_before_the_command_or_after_it(call, shared):
    assert titles(call, "sessions", "list") == ["of nobody"]
    assert titles(call, "--owner", "ann", "sessions", "list") == ["of ann"]
    assert titles(call, "sessions", "list", "--owner", "bob") == ["of bob"]
    assert titles(call, "--owner", "ann", "sessions", "list", "--owner", "bob") == ["of bob"]
    assert titles(call, "sessions", "list", "--owner", "carol") == []


def test_the_option_counts_more_than_the_variable_and_that_more_than_the_file(call, shared, tmp_path):
    file = tmp_path / "home/.config/recollect/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[db]\npath = "{shared}"\nowner = "ann"\n', encoding="utf-8")
    own = {"RECOLLECT_DB": ""}
    assert titles(call, "sessions", "list", **own) == ["of ann"]
    assert titles(call, "sessions", "list", RECOLLECT_OWNER="bob", **own) == ["of bob"]
    assert titles(call, "sessions", "list", "--owner", "ann", RECOLLECT_OWNER="bob", **own) == ["of ann"]
    assert titles(call, "sessions", "list", "--owner", "", RECOLLECT_OWNER="bob", **own) == ["of nobody"]
    assert titles(call, "sessions", "list", RECOLLECT_OWNER="", **own) == ["of ann"]
    # an owner in the file goes with the database of the file
    assert titles(call, "sessions", "list") == ["of nobody"]
    assert titles(call, "--db", shared, "sessions", "list", **own) == ["of nobody"]
    assert titles(call, "--db", shared, "sessions", "list", RECOLLECT_OWNER="bob", **own) == ["of bob"]
    for more, value in (({}, None), (own, "ann")):
        settings = json.loads(call("config", "--json", **more).stdout)["settings"]
        assert [item["value"] for item in settings if item["name"] == "db.owner"] == [value]


@pytest.mark.parametrize(
    ("options", "more", "found"),
    [
        ((), {}, (None, "default")),
        ((), {"RECOLLECT_OWNER": "bob"}, ("bob", "environment")),
        (("--owner", "ann"), {"RECOLLECT_OWNER": "bob"}, ("ann", "option")),
        (("--owner", ""), {"RECOLLECT_OWNER": "bob"}, (None, "option")),
    ],
)
def test_it_is_said_where_it_is_from(call, options, more, found):
    settings = json.loads(call(*options, "config", "--json", **more).stdout)["settings"]
    (owner,) = [item for item in settings if item["name"] == "db.owner"]
    assert (owner["value"], owner["source"]) == found


def test_what_is_changed_is_the_owners(call, shared):
    call("sessions", "rename", "cli:a", "mine", "--owner", "ann")
    call("--owner", "bob", "sessions", "delete", "cli:a", "-y")
    assert [titles(call, "sessions", "list", "--owner", owner) for owner in ("ann", "bob", "")] == [
        ["mine"], [], ["of nobody"],
    ]  # fmt: skip


def test_a_talk_is_the_owners(environment, shared):
    command = [sys.executable, "-m", "recollect", "chat", "-m", "demo", "--session", "talk", "--owner", "ann"]
    subprocess.run(command, input=b"What is 6 * 7?", env=environment, timeout=60, check=True, capture_output=True)
    for owner, there in (("ann", True), ("", False)):
        with recollect.open(shared, owner=owner) as store:
            assert (store.get_session("cli:talk") is not None) is there


def test_words_are_completed_with_the_owners_own(call, shared, path):
    with recollect.open(path, owner="ann") as store:
        store.session("cli:anns")
    line = "recollect --owner ann sessions show cli:"
    shown = call(_RECOLLECT_COMPLETE="bash_complete", COMP_LINE=line).stdout
    assert {item.partition(",")[2] for item in shown.splitlines()} == {"cli:a", "cli:anns"}


def test_a_copy_is_of_the_owner_that_is_named_before_it(call, shared, tmp_path):
    target = str(tmp_path / "copy.db")
    found = json.loads(call("--owner", "ann", "db", "copy", shared, target, "--json").stdout)
    assert found["owners"] == ["ann"]
    assert found["counts"]["sessions"] == 1


def test_the_server_is_the_owners(environment, shared):
    command = [sys.executable, "-m", "recollect", "serve", "--port", "0", "--owner", "ann"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            link = re.search(r"http://[^/]+/#token=([^ \n]+)", process.stdout.readline().decode())
            assert link is not None
            assert "The conversations of ann are in" in process.stdout.readline().decode()
            address = link.group().partition("/#")[0]
            request = urllib.request.Request(
                f"{address}/api/v1/sessions", headers={"Authorization": f"Bearer {link.group(1)}"}
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert [item["title"] for item in json.load(answer)["sessions"]] == ["of ann"]
        finally:
            process.terminate()
            process.wait(60)


def test_a_check_of_a_file_covers_every_owner(call, shared):
    told = call("db", "check")
    assert "is sound" in told.stderr
    assert "Owners: (unnamed), ann, bob." in told.stderr
    connection = sqlite3.connect(shared)
    with connection:
        connection.execute("UPDATE sessions SET message_count = 7 WHERE owner = 'bob'")
    connection.close()
    assert "owner bob: Session 'cli:a' has a wrong count" in call("db", "check", code=5).stdout
    found = json.loads(call("db", "check", "--json", code=5).stdout)
    assert (found["owners"], found["everyone"], found["sound"]) == (["", "ann", "bob"], True, False)
    owners = [each["owner"] for each in found["found"] if each["kind"] == "counter"]  # another program left checksums
    assert owners == ["bob"]
    told = call("db", "check", "--owner", "ann", code=5)
    assert "Owner ann only." in told.stderr
    assert "bob" not in told.stdout
    assert "Owner ann only." in call("db", "check", code=5, RECOLLECT_OWNER="ann").stderr
    call("db", "check", "--repair", code=5)  # the page that the other program wrote has no checksum until then
    assert "is sound" in call("db", "check").stderr


def test_the_file_itself_is_checked_once(call, shared, monkeypatch):
    from recollect.engine.sqlite import check

    calls = []
    real = check.check
    monkeypatch.setattr(check, "check", lambda file, deep: calls.append(deep) or real(file, deep=deep))
    told = call("db", "check")
    assert calls == [True]
    assert "Looked at: structure" in told.stderr or "checksums" in told.stderr


def test_everyone_in_a_file_is_counted(call, shared):
    found = json.loads(call("sessions", "stats", "--json").stdout)
    assert (found["sessions"], found["messages"], found["owners"]) == (3, 3, ["", "ann", "bob"])
    told = call("sessions", "stats")
    assert told.stdout.startswith("all\t\t3\t3\t")
    assert "Owners: (unnamed), ann, bob." in told.stderr
    assert json.loads(call("sessions", "stats", "--owner", "ann", "--json").stdout)["sessions"] == 1
    assert json.loads(call("db", "reindex", "--json").stdout)["messages"] == 3


def test_a_file_without_owners_names_none(call, store):
    store.session("cli:a").append({"role": "user", "content": "hello"})
    for words in (("db", "check"), ("sessions", "stats"), ("db", "reindex")):
        told = call(*words)
        assert "Owner" not in told.stdout + told.stderr
