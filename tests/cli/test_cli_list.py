"""`sessions list`: what it lists, as lines and as JSON."""

from __future__ import annotations

import json
import os

import pytest
from cli_words import said


def lines(shown):
    return [line.split("\t") for line in shown.stdout.splitlines()]


def listed(shown):
    return [line[0] for line in lines(shown)]


def test_nothing_yet(call, path):
    shown = call("sessions", "list")
    assert shown.stdout == ""
    assert shown.stderr == f"No conversations yet in {path}\n"
    assert json.loads(call("sessions", "list", "--json").stdout) == {"sessions": [], "next": None}


@pytest.mark.parametrize(
    "words", [["sessions", "list"], ["sessions", "search", "x"], ["sessions", "show", "x"], ["db", "check"]]
)
def test_what_can_not_be_looked_for_is_not_said_to_be_empty(call, path, words):
    """The folder may be closed to us, or a disk may not be there; the conversations are not gone for that."""
    os.symlink(path, path)
    shown = call(*words, code=1)
    assert path in shown.stderr
    assert "can not be opened" in shown.stderr
    os.unlink(path)
    with open(path, "w") as file:
        file.write("x")
    assert "Not a directory" in call("--db", f"{path}/talks.db", *words, code=1).stderr


@pytest.mark.parametrize(
    "words",
    [["sessions", "list"], ["sessions", "list", "--json"], ["db", "path"], ["config"], ["sessions", "list", "--all"]],
)
def test_looking_makes_no_database(call, path, words):
    call(*words)
    assert os.listdir(os.path.dirname(path)) == []


def test_a_line_for_each_the_newest_first(call, store):
    for number in range(3):
        session = store.session(f"cli:{number}", title=f"Title {number}", model="m")
        session.append([said("x")] * (number + 1))
    session.update(pinned=True, archived=False)
    shown = call("sessions", "list")
    assert listed(shown) == ["cli:2", "cli:1", "cli:0"]
    id, title, messages, tokens, delegates, channel, model, active, marks = lines(shown)[0]
    assert (id, title, messages, delegates, channel, model, marks) == (
        "cli:2",
        "Title 2",
        "3",
        "",
        "cli",
        "m",
        "pinned",
    )
    assert int(tokens) > 0
    assert active == session.refresh().to_dict()["active_at"]
    assert shown.stderr == ""


@pytest.mark.parametrize("option", ["-n", "--limit"])
def test_a_limit(call, store, option):
    for number in range(5):
        store.session(f"cli:{number}")
    assert listed(call("sessions", "list", option, "2")) == ["cli:4", "cli:3"]


def test_all_of_them_over_pages(call, store, monkeypatch):
    monkeypatch.setattr("recollect.cli.sessions.listing._PAGE", 2)
    for number in range(5):
        store.session(f"cli:{number}")
    assert len(listed(call("sessions", "list", "--all", "-n", "1"))) == 5
    shown = json.loads(call("sessions", "list", "--all", "--json").stdout)
    assert len(shown["sessions"]) == 5
    assert shown["next"] is None


def test_json_pages(call, store):
    for number in range(5):
        store.session(f"cli:{number}")
    seen, after = [], []
    while True:
        page = json.loads(call("sessions", "list", "-n", "2", "--json", *after).stdout)
        seen += [session["id"] for session in page["sessions"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert seen == ["cli:4", "cli:3", "cli:2", "cli:1", "cli:0"]


def test_a_place_in_a_list_that_is_none(call, store):
    assert "no place" in call("sessions", "list", "--after", "x", code=1).stderr


def test_json_has_every_field(call, store):
    session = store.session("cli:a", title="日本語 \U0001f600 \u202e \x7f", model="m", metadata={"k": "ä"})
    session.append(said("x"))
    shown = call("sessions", "list", "--json").stdout
    assert shown.isascii()
    assert "\x7f" not in shown
    (found,) = json.loads(shown)["sessions"]
    assert found == session.refresh().to_dict()
    assert found["created_at"].endswith("Z")


def test_what_is_left_out_unless_it_is_asked_for(call, store):
    for name in ("cli:a", "cli:b", "cli:c"):
        store.session(name)
    store.session("cli:c:delegate:x", parent="cli:c")
    store.delete_session("cli:a")
    store.session("cli:b").update(archived=True)
    assert listed(call("sessions", "list")) == ["cli:c"]
    assert listed(call("sessions", "list", "--archived")) == ["cli:b"]
    assert listed(call("sessions", "list", "--trash")) == ["cli:a"]
    assert set(listed(call("sessions", "list", "--delegates"))) == {"cli:c", "cli:c:delegate:x"}


def test_the_trash_shows_archived_ones_too(call, store):
    store.session("cli:a").update(archived=True)
    store.session("cli:b")
    store.delete_session("cli:a")
    store.delete_session("cli:b")
    assert listed(call("sessions", "list", "--trash")) == ["cli:b", "cli:a"]
    assert listed(call("sessions", "list", "--trash", "--archived")) == ["cli:a"]


def test_filters(call, store):
    store.session("cli:a", model="m").update(pinned=True)
    store.session("discord:b", status="failed")
    assert listed(call("sessions", "list", "--channel", "discord")) == ["discord:b"]
    assert listed(call("sessions", "list", "--model", "m")) == ["cli:a"]
    assert listed(call("sessions", "list", "--status", "failed")) == ["discord:b"]
    assert listed(call("sessions", "list", "--pinned")) == ["cli:a"]
    assert listed(call("sessions", "list", "--unpinned")) == ["discord:b"]
    assert call("sessions", "list", "--channel", "none").stderr == "No conversation fits.\n"


def test_sorted_by_creation(call, store):
    store.session("cli:a")
    store.session("cli:b")
    store.session("cli:a").append(said("x"))
    assert listed(call("sessions", "list")) == ["cli:a", "cli:b"]
    assert listed(call("sessions", "list", "--sort", "created")) == ["cli:b", "cli:a"]


def test_titles_can_not_break_lines_or_columns(call, store):
    store.session("cli:a", title="red \x1b[31m bell \x07 over\rwritten \x9b31m")
    store.session("cli:b", title="two\nlines\tand a tab \u2028 \u202e")
    shown = call("sessions", "list")
    assert all(len(line) == 9 for line in lines(shown))
    assert len(lines(shown)) == 2
    assert not [char for char in shown.stdout if char not in "\n\t" and not char.isprintable()]


@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_the_database_may_be_named_anywhere(call, tmp_path, place):
    import recollect

    other = str(tmp_path / "other.db")
    with recollect.open(other) as store:
        store.session("cli:other")
    option = ["--db", other]
    words = {"before": [*option, "sessions", "list"], "between": ["sessions", *option, "list"]}.get(place)
    assert listed(call(*(words or ["sessions", "list", *option]))) == ["cli:other"]
    assert listed(call("--db", "nowhere.db", "sessions", "list", "--db", f"sqlite:///{other}")) == ["cli:other"]
