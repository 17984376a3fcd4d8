"""The owner whose conversations a command reads and writes: --owner, RECOLLECT_OWNER and db.owner."""

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
    """Create a database with three owners, one of them unnamed."""
    for owner in ("", "ann", "bob"):
        with recollect.open(path, owner=owner) as store:
            store.session("cli:a", title=f"of {owner or 'nobody'}").append({"role": "user", "content": f"{owner} asks"})
    return path


def titles(call, *arguments, **variables):
    return [item["title"] for item in json.loads(call(*arguments, "--json", **variables).stdout)["sessions"]]


def test_the_owner_option_before_or_after_the_command(call, shared):
    assert titles(call, "sessions", "list") == ["of nobody"]
    assert titles(call, "--owner", "ann", "sessions", "list") == ["of ann"]
    assert titles(call, "sessions", "list", "--owner", "bob") == ["of bob"]
    assert titles(call, "--owner", "ann", "sessions", "list", "--owner", "bob") == ["of bob"]
    assert titles(call, "sessions", "list", "--owner", "carol") == []


def test_the_option_overrides_the_variable_and_that_the_file(call, shared, tmp_path):
    file = tmp_path / "home/.config/recollect/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[db]\npath = "{shared}"\nowner = "ann"\n', encoding="utf-8")
    no_db_variable = {"RECOLLECT_DB": ""}
    assert titles(call, "sessions", "list", **no_db_variable) == ["of ann"]
    assert titles(call, "sessions", "list", RECOLLECT_OWNER="bob", **no_db_variable) == ["of bob"]
    assert titles(call, "sessions", "list", "--owner", "ann", RECOLLECT_OWNER="bob", **no_db_variable) == ["of ann"]
    assert titles(call, "sessions", "list", "--owner", "", RECOLLECT_OWNER="bob", **no_db_variable) == ["of nobody"]
    assert titles(call, "sessions", "list", RECOLLECT_OWNER="", **no_db_variable) == ["of ann"]
    # The owner in the file applies only to the database in the file.
    assert titles(call, "sessions", "list") == ["of nobody"]
    assert titles(call, "--db", shared, "sessions", "list", **no_db_variable) == ["of nobody"]
    assert titles(call, "--db", shared, "sessions", "list", RECOLLECT_OWNER="bob", **no_db_variable) == ["of bob"]
    for variables, value in (({}, None), (no_db_variable, "ann")):
        settings = json.loads(call("config", "--json", **variables).stdout)["settings"]
        assert [item["value"] for item in settings if item["name"] == "db.owner"] == [value]


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ((), {}, (None, "default")),
        ((), {"RECOLLECT_OWNER": "bob"}, ("bob", "environment")),
        (("--owner", "ann"), {"RECOLLECT_OWNER": "bob"}, ("ann", "option")),
        (("--owner", ""), {"RECOLLECT_OWNER": "bob"}, (None, "option")),
    ],
)
def test_config_shows_the_source_of_the_owner(call, options, variables, expected):
    settings = json.loads(call(*options, "config", "--json", **variables).stdout)["settings"]
    (owner,) = [item for item in settings if item["name"] == "db.owner"]
    assert (owner["value"], owner["source"]) == expected


def test_changes_affect_only_the_sessions_of_the_owner(call, shared):
    call("sessions", "rename", "cli:a", "mine", "--owner", "ann")
    call("--owner", "bob", "sessions", "delete", "cli:a", "-y")
    assert [titles(call, "sessions", "list", "--owner", owner) for owner in ("ann", "bob", "")] == [
        ["mine"], [], ["of nobody"],
    ]  # fmt: skip


def test_chat_stores_the_session_for_the_owner(environment, shared):
    command = [sys.executable, "-m", "recollect", "chat", "-m", "demo", "--session", "math", "--owner", "ann"]
    subprocess.run(command, input=b"What is 6 * 7?", env=environment, timeout=60, check=True, capture_output=True)
    for owner, expected in (("ann", True), ("", False)):
        with recollect.open(shared, owner=owner) as store:
            assert (store.get_session("cli:math") is not None) is expected


def test_completion_offers_the_sessions_of_the_owner(call, shared, path):
    with recollect.open(path, owner="ann") as store:
        store.session("cli:anns")
    line = "recollect --owner ann sessions show cli:"
    output = call(_RECOLLECT_COMPLETE="bash_complete", COMP_LINE=line).stdout
    assert {item.partition(",")[2] for item in output.splitlines()} == {"cli:a", "cli:anns"}


def test_a_copy_contains_only_the_selected_owner(call, shared, tmp_path):
    target = str(tmp_path / "copy.db")
    document = json.loads(call("--owner", "ann", "db", "copy", shared, target, "--json").stdout)
    assert document["owners"] == ["ann"]
    assert document["counts"]["sessions"] == 1


def test_the_server_shows_the_sessions_of_the_owner(environment, shared):
    command = [sys.executable, "-m", "recollect", "serve", "--port", "0", "--owner", "ann"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            link = re.search(r"http://[^/]+/#token=([^ \n]+)", process.stdout.readline().decode())
            assert link is not None
            assert "Conversations of ann are stored in" in process.stdout.readline().decode()
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
    result = call("db", "check")
    assert ": no problems found." in result.stderr
    assert "Owners: (default), ann, bob." in result.stderr
    connection = sqlite3.connect(shared)
    with connection:
        connection.execute("UPDATE sessions SET message_count = 7 WHERE owner = 'bob'")
    connection.close()
    assert "owner bob: Session 'cli:a' has a wrong count" in call("db", "check", code=5).stdout
    document = json.loads(call("db", "check", "--json", code=5).stdout)
    assert (document["owners"], document["everyone"], document["ok"]) == (["", "ann", "bob"], True, False)
    # The other program also wrote pages without checksums, which are problems of another kind.
    owners = [each["owner"] for each in document["findings"] if each["kind"] == "counter"]
    assert owners == ["bob"]
    result = call("db", "check", "--owner", "ann", code=5)
    assert "Only owner ann." in result.stderr
    assert "bob" not in result.stdout
    assert "Only owner ann." in call("db", "check", code=5, RECOLLECT_OWNER="ann").stderr
    call("db", "check", "--repair", code=5)  # adds the missing checksum of the page that the other program wrote
    assert ": no problems found." in call("db", "check").stderr


def test_the_file_itself_is_checked_once(call, shared, monkeypatch):
    from recollect.engine.sqlite import maintenance

    calls = []
    real = maintenance.check_file
    monkeypatch.setattr(maintenance, "check_file", lambda file, deep: calls.append(deep) or real(file, deep=deep))
    result = call("db", "check")
    assert calls == [True]
    assert "Checked: structure" in result.stderr or "checksums" in result.stderr


def test_stats_and_reindex_cover_every_owner(call, shared):
    document = json.loads(call("sessions", "stats", "--json").stdout)
    assert (document["sessions"], document["messages"], document["owners"]) == (3, 3, ["", "ann", "bob"])
    result = call("sessions", "stats")
    assert result.stdout.startswith("all\t\t3\t3\t")
    assert "Owners: (default), ann, bob." in result.stderr
    assert json.loads(call("sessions", "stats", "--owner", "ann", "--json").stdout)["sessions"] == 1
    assert json.loads(call("db", "reindex", "--json").stdout)["messages"] == 3


def test_a_file_without_owners_mentions_no_owner(call, store):
    store.session("cli:a").append({"role": "user", "content": "hello"})
    for arguments in (("db", "check"), ("sessions", "stats"), ("db", "reindex")):
        result = call(*arguments)
        assert "Owner" not in result.stdout + result.stderr
