"""The commands that change conversations: their effects, output and errors."""

from __future__ import annotations

import json

import pytest
from cli_messages import user_message


def test_rename(call, store, session):
    result = call("sessions", "rename", session.id[:13], " The new title ")
    assert "The new title" in result.stderr
    assert session.refresh().title == "The new title"
    document = json.loads(call("sessions", "rename", "The new title", "", "--json").stdout)
    assert document["sessions"] == [session.refresh().to_dict()]
    assert session.title is None


@pytest.mark.parametrize(
    ("command", "field", "expected"),
    [
        ("pin", "pinned_at", True),
        ("unpin", "pinned_at", False),
        ("archive", "archived_at", True),
        ("unarchive", "archived_at", False),
    ],
)
def test_pin_and_archive_several_sessions(call, store, command, field, expected):
    for name in ("cli:a", "cli:b", "cli:c"):
        store.session(name).update(pinned=not expected, archived=not expected)
    document = json.loads(call("sessions", command, "cli:a", "cli:b", "--json").stdout)
    assert [session["id"] for session in document["sessions"]] == ["cli:a", "cli:b"]
    marks = {name: getattr(store.get_session(name), field) is not None for name in ("cli:a", "cli:b", "cli:c")}
    assert marks == {"cli:a": expected, "cli:b": expected, "cli:c": not expected}
    assert call("sessions", command, "cli:a").stderr.startswith("cli:a is ")


def test_label_and_unlabel(call, store, session):
    result = call("sessions", "label", session.id, "b", "a")
    assert result.stderr.endswith(" has the labels a, b.\n")
    document = json.loads(call("sessions", "label", session.id, "b", "c", "--json").stdout)
    assert document["sessions"] == [session.refresh().to_dict()]
    assert document["sessions"][0]["labels"] == ["a", "b", "c"]
    assert call("sessions", "unlabel", session.id, "a", "b", "missing").stderr.endswith(" has the labels c.\n")
    assert call("sessions", "unlabel", session.id, "c").stderr.endswith(" has no labels.\n")
    assert session.refresh().labels == ()
    assert call("sessions", "label", session.id, "--", "-x").stderr.endswith(" has the labels -x.\n")
    assert "1 to 200 characters" in call("sessions", "label", session.id, "", code=1).stderr
    call("sessions", "label", "nobody", "x", code=3)
    assert "labels: -x" in call("sessions", "show", session.id).stdout


@pytest.mark.parametrize("command", ["pin", "archive", "delete", "erase"])
def test_one_unknown_name_among_several_changes_nothing(call, store, command):
    store.session("cli:a")
    options = ["-y"] if command in ("delete", "erase") else []
    result = call("sessions", command, "cli:a", "nobody", *options, code=3)
    assert "'nobody'" in result.stderr
    session = store.get_session("cli:a")
    assert session is not None
    assert (session.pinned_at, session.archived_at) == (None, None)


def test_a_session_named_twice_is_deleted_once(call, store):
    store.session("cli:a", title="T")
    assert json.loads(call("sessions", "delete", "cli:a", "T", "--json").stdout) == {
        "deleted": ["cli:a"],
        "dry_run": False,
    }


class TestTrash:
    def test_delete_and_restore(self, call, store, session):
        result = call("sessions", "delete", session.id)
        assert f"recollect sessions restore {session.id}" in result.stderr
        assert store.get_session(session.id) is None
        assert "Restored " in call("sessions", "restore", "about the readme").stderr
        assert store.get_session(session.id).message_count == 4

    def test_a_dry_run_of_delete_changes_nothing(self, call, store, session):
        assert "Would move " in call("sessions", "delete", session.id, "--dry-run").stderr
        assert json.loads(call("sessions", "delete", session.id, "--dry-run", "--json").stdout)["dry_run"] is True
        assert store.get_session(session.id) is not None

    def test_the_undo_command_is_quoted_for_the_shell(self, call, store):
        store.session("cli:it's a; name")
        assert r"""restore 'cli:it'\''s a; name'""" in call("sessions", "delete", "cli:it's a; name").stderr

    def test_restore_selects_the_newest_session_with_an_id(self, call, store):
        for title in ("old", "new"):
            store.session("cli:same", title=title)
            store.delete_session("cli:same")
        document = json.loads(call("sessions", "restore", "cli:same", "--json").stdout)
        assert [session["title"] for session in document["sessions"]] == ["new"]
        store.delete_session("cli:same")
        store.session("cli:same")
        assert "newer session" in call("sessions", "restore", "new", code=4).stderr

    def test_an_older_session_is_not_mistaken_for_a_newer_one_with_its_id(self, call, store):
        for title in ("old", "new"):
            store.session("cli:same", title=title)
            store.delete_session("cli:same")
        for arguments in (["restore", "old"], ["erase", "old", "-y"]):
            assert "is not the latest." in call("sessions", *arguments, code=4).stderr
        assert len(store.list_sessions(deleted=True)) == 2
        store.session("cli:same", title="living")
        assert "a conversation in the list has its id" in call("sessions", "erase", "new", "-y", code=4).stderr
        assert store.get_session("cli:same").title == "living"
        assert len(store.list_sessions(deleted=True)) == 2

    def test_restore_refuses_an_ambiguous_prefix(self, call, store):
        for name in ("cli:x1", "cli:x2"):
            store.session(name)
            store.delete_session(name)
        assert "cli:x1" in call("sessions", "restore", "cli:x", code=4).stderr

    def test_restore_refuses_a_session_outside_the_trash(self, call, store):
        store.session("cli:alive")
        result = call("sessions", "restore", "cli:alive", code=3)
        assert "--trash" in result.stderr


class TestErase:
    def test_erase_without_a_terminal_needs_the_yes_option(self, call, store, session):
        assert "-y" in call("sessions", "erase", session.id, code=4).stderr
        assert store.get_session(session.id) is not None

    def test_a_dry_run_of_erase_changes_nothing(self, call, store, session):
        result = call("sessions", "erase", session.id, "--dry-run")
        assert "Would erase 1 conversation." in result.stderr
        assert ", 2 messages" in result.stderr
        assert store.get_session(session.id) is not None

    def test_erase_a_listed_session_and_one_from_the_trash(self, call, store, session):
        store.session("cli:deleted")
        store.delete_session("cli:deleted")
        document = json.loads(call("sessions", "erase", session.id, "cli:deleted", "--yes", "--json").stdout)
        assert (set(document["erased"]), document["dry_run"]) == ({session.id, "cli:deleted"}, False)
        assert not store.list_sessions(deleted=True)
        assert not store.list_sessions()

    def test_erase_refuses_a_session_with_forks_or_keeps_them(self, call, store, session):
        fork = session.fork(id="cli:fork")
        result = call("sessions", "erase", session.id, "-y", code=4)
        assert "cli:fork" in result.stderr
        assert "--forks keep" in result.stderr
        call("sessions", "erase", session.id, "-y", "--forks", "keep")
        assert fork.refresh().message_count == 4
        call("sessions", "erase", "cli:fork", "-y")

    def test_erase_a_session_and_its_fork_together(self, call, store, session):
        import time

        time.sleep(0.002)
        session.fork(id="cli:fork")
        document = json.loads(call("sessions", "erase", session.id, "cli:fork", "-y", "--json").stdout)
        assert set(document["erased"]) == {session.id, "cli:fork"}

    def test_erase_a_session_with_its_forks(self, call, store, session):
        session.fork(id="cli:fork")
        document = json.loads(call("sessions", "erase", session.id, "-y", "--forks", "erase", "--json").stdout)
        assert document["erased"] == [session.id, "cli:fork"]


class TestFork:
    def test_fork_a_whole_session(self, call, store, session):
        fork_id = call("sessions", "fork", session.id).stdout.strip()
        assert store.get_session(fork_id).message_count == 4
        assert store.get_session(fork_id).parent == session.id

    @pytest.mark.parametrize("at", ["1.2", "2"])
    def test_fork_at_a_message(self, call, store, session, at):
        document = json.loads(
            call("sessions", "fork", session.id, "--at", at, "--title", "F", "--as", "cli:f", "--json").stdout
        )
        (fork,) = document["sessions"]
        assert (fork["id"], fork["title"], fork["message_count"]) == ("cli:f", "F", 2)

    @pytest.mark.parametrize(("at", "code"), [("1.9", 3), ("9.1", 3), ("x", 1), ("-1", 1)])
    def test_fork_at_an_unknown_message(self, call, store, session, at, code):
        assert call("sessions", "fork", session.id, "--at", at, code=code).stderr.startswith("recollect: ")

    def test_fork_with_an_existing_id(self, call, store, session):
        store.session("cli:f")
        assert "already" in call("sessions", "fork", session.id, "--as", "cli:f", code=4).stderr


def test_a_writing_command_creates_the_database(call, path):
    import os

    call("sessions", "pin", "nobody", code=3)
    assert os.path.exists(path)


def test_delete_many_sessions(call, store):
    names = [f"cli:{number}" for number in range(50)]
    for name in names:
        store.session(name).append(user_message("x"))
    assert len(json.loads(call("sessions", "delete", *names, "--json").stdout)["deleted"]) == 50
    assert len(store.list_sessions(deleted=True)) == 50
