"""The commands that change conversations: what they do, what they say, and what they refuse."""

from __future__ import annotations

import json

import pytest
from cli_words import said


def test_rename(call, store, talk):
    shown = call("sessions", "rename", talk.id[:13], " The new title ")
    assert "The new title" in shown.stderr
    assert talk.refresh().title == "The new title"
    changed = json.loads(call("sessions", "rename", "The new title", "", "--json").stdout)
    assert changed["sessions"] == [talk.refresh().to_dict()]
    assert talk.title is None


@pytest.mark.parametrize(
    ("command", "field", "there"),
    [
        ("pin", "pinned_at", True),
        ("unpin", "pinned_at", False),
        ("archive", "archived_at", True),
        ("unarchive", "archived_at", False),
    ],
)
def test_marks_on_several_at_once(call, store, command, field, there):
    for name in ("cli:a", "cli:b", "cli:c"):
        store.session(name).update(pinned=not there, archived=not there)
    shown = json.loads(call("sessions", command, "cli:a", "cli:b", "--json").stdout)
    assert [session["id"] for session in shown["sessions"]] == ["cli:a", "cli:b"]
    marked = {name: getattr(store.get_session(name), field) is not None for name in ("cli:a", "cli:b", "cli:c")}
    assert marked == {"cli:a": there, "cli:b": there, "cli:c": not there}
    assert call("sessions", command, "cli:a").stderr.startswith("cli:a is ")


@pytest.mark.parametrize("command", ["pin", "archive", "delete", "erase"])
def test_a_name_that_fits_none_among_several_changes_nothing(call, store, command):
    store.session("cli:a")
    more = ["-y"] if command in ("delete", "erase") else []
    shown = call("sessions", command, "cli:a", "nobody", *more, code=3)
    assert "'nobody'" in shown.stderr
    session = store.get_session("cli:a")
    assert session is not None
    assert (session.pinned_at, session.archived_at) == (None, None)


def test_the_same_one_twice_is_one(call, store):
    store.session("cli:a", title="T")
    assert json.loads(call("sessions", "delete", "cli:a", "T", "--json").stdout) == {
        "deleted": ["cli:a"],
        "dry_run": False,
    }


class TestTrash:
    def test_there_and_back(self, call, store, talk):
        shown = call("sessions", "delete", talk.id)
        assert f"recollect sessions restore {talk.id}" in shown.stderr
        assert store.get_session(talk.id) is None
        assert "is back" in call("sessions", "restore", "about the readme").stderr
        assert store.get_session(talk.id).message_count == 4

    def test_trying_it_does_nothing(self, call, store, talk):
        assert "would go" in call("sessions", "delete", talk.id, "--dry-run").stderr
        assert json.loads(call("sessions", "delete", talk.id, "--dry-run", "--json").stdout)["dry_run"] is True
        assert store.get_session(talk.id) is not None

    def test_how_to_undo_can_be_pasted(self, call, store):
        store.session("cli:it's a; name")
        assert """restore 'cli:it'"'"'s a; name'""" in call("sessions", "delete", "cli:it's a; name").stderr

    def test_by_prefix_by_title_and_the_newest_of_several(self, call, store):
        for title in ("old", "new"):
            store.session("cli:same", title=title)
            store.delete_session("cli:same")
        shown = json.loads(call("sessions", "restore", "cli:same", "--json").stdout)
        assert [session["title"] for session in shown["sessions"]] == ["new"]
        store.delete_session("cli:same")
        store.session("cli:same")
        assert "newer session" in call("sessions", "restore", "new", code=4).stderr

    def test_an_older_one_is_not_taken_for_the_newer_one_with_its_id(self, call, store):
        for title in ("old", "new"):
            store.session("cli:same", title=title)
            store.delete_session("cli:same")
        for words in (["restore", "old"], ["erase", "old", "-y"]):
            assert "put there last" in call("sessions", *words, code=4).stderr
        assert len(store.list_sessions(deleted=True)) == 2
        store.session("cli:same", title="living")
        assert "a living conversation has its id" in call("sessions", "erase", "new", "-y", code=4).stderr
        assert store.get_session("cli:same").title == "living"
        assert len(store.list_sessions(deleted=True)) == 2

    def test_several_that_fit(self, call, store):
        for name in ("cli:x1", "cli:x2"):
            store.session(name)
            store.delete_session(name)
        assert "cli:x1" in call("sessions", "restore", "cli:x", code=4).stderr

    def test_what_is_not_there(self, call, store):
        store.session("cli:alive")
        shown = call("sessions", "restore", "cli:alive", code=3)
        assert "--trash" in shown.stderr


class TestErase:
    def test_it_refuses_where_nobody_can_be_asked(self, call, store, talk):
        assert "-y" in call("sessions", "erase", talk.id, code=4).stderr
        assert store.get_session(talk.id) is not None

    def test_trying_it_does_nothing(self, call, store, talk):
        shown = call("sessions", "erase", talk.id, "--dry-run")
        assert "1 conversation would be erased." in shown.stderr
        assert ", 2 messages" in shown.stderr
        assert store.get_session(talk.id) is not None

    def test_a_living_one_and_one_from_the_trash(self, call, store, talk):
        store.session("cli:gone")
        store.delete_session("cli:gone")
        shown = json.loads(call("sessions", "erase", talk.id, "cli:gone", "--yes", "--json").stdout)
        assert (set(shown["erased"]), shown["dry_run"]) == ({talk.id, "cli:gone"}, False)
        assert not store.list_sessions(deleted=True)
        assert not store.list_sessions()

    def test_with_forks(self, call, store, talk):
        fork = talk.fork(id="cli:fork")
        shown = call("sessions", "erase", talk.id, "-y", code=4)
        assert "cli:fork" in shown.stderr
        assert "--forks keep" in shown.stderr
        call("sessions", "erase", talk.id, "-y", "--forks", "keep")
        assert fork.refresh().message_count == 4
        call("sessions", "erase", "cli:fork", "-y")

    def test_an_origin_and_its_fork_together(self, call, store, talk):
        import time

        time.sleep(0.002)
        talk.fork(id="cli:fork")
        shown = json.loads(call("sessions", "erase", talk.id, "cli:fork", "-y", "--json").stdout)
        assert set(shown["erased"]) == {talk.id, "cli:fork"}

    def test_with_forks_erased_too(self, call, store, talk):
        talk.fork(id="cli:fork")
        shown = json.loads(call("sessions", "erase", talk.id, "-y", "--forks", "erase", "--json").stdout)
        assert shown["erased"] == [talk.id, "cli:fork"]


class TestFork:
    def test_all_of_it(self, call, store, talk):
        made = call("sessions", "fork", talk.id).stdout.strip()
        assert store.get_session(made).message_count == 4
        assert store.get_session(made).parent == talk.id

    @pytest.mark.parametrize("at", ["1.2", "2"])
    def test_up_to_a_message(self, call, store, talk, at):
        shown = json.loads(
            call("sessions", "fork", talk.id, "--at", at, "--title", "F", "--as", "cli:f", "--json").stdout
        )
        (made,) = shown["sessions"]
        assert (made["id"], made["title"], made["message_count"]) == ("cli:f", "F", 2)

    @pytest.mark.parametrize(("at", "code"), [("1.9", 3), ("9.1", 3), ("x", 1), ("-1", 1)])
    def test_at_no_message(self, call, store, talk, at, code):
        assert call("sessions", "fork", talk.id, "--at", at, code=code).stderr.startswith("recollect: ")

    def test_an_id_that_is_taken(self, call, store, talk):
        store.session("cli:f")
        assert "already" in call("sessions", "fork", talk.id, "--as", "cli:f", code=4).stderr


def test_writing_makes_the_database(call, path):
    import os

    call("sessions", "pin", "nobody", code=3)
    assert os.path.exists(path)


def test_a_conversation_of_many(call, store):
    names = [f"cli:{number}" for number in range(50)]
    for name in names:
        store.session(name).append(said("x"))
    assert len(json.loads(call("sessions", "delete", *names, "--json").stdout)["deleted"]) == 50
    assert len(store.list_sessions(deleted=True)) == 50
