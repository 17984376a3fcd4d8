"""`sessions list`: its contents, as lines and as JSON."""

from __future__ import annotations

import json
import os

import pytest
from cli_messages import user_message


def lines(result):
    return [line.split("\t") for line in result.stdout.splitlines()]


def list_ids(result):
    return [line[0] for line in lines(result)]


def test_an_empty_store(call, path):
    result = call("sessions", "list")
    assert result.stdout == ""
    assert result.stderr == f"No conversations yet in {path}.\n"
    assert json.loads(call("sessions", "list", "--json").stdout) == {"sessions": [], "next": None}


@pytest.mark.parametrize(
    "arguments", [["sessions", "list"], ["sessions", "search", "x"], ["sessions", "show", "x"], ["db", "check"]]
)
def test_an_inaccessible_database_is_an_error_and_not_empty(call, path, arguments):
    """A missing permission or disk must not look like deleted conversations."""
    os.symlink(path, path)
    result = call(*arguments, code=1)
    assert path in result.stderr
    assert "cannot be opened" in result.stderr
    os.unlink(path)
    with open(path, "w") as file:
        file.write("x")
    assert "Not a directory" in call("--db", f"{path}/other.db", *arguments, code=1).stderr


@pytest.mark.parametrize(
    "arguments",
    [["sessions", "list"], ["sessions", "list", "--json"], ["db", "path"], ["config"], ["sessions", "list", "--all"]],
)
def test_reading_creates_no_database(call, path, arguments):
    call(*arguments)
    assert os.listdir(os.path.dirname(path)) == []


def test_one_line_per_session_newest_first(call, store):
    for number in range(3):
        session = store.session(f"cli:{number}", title=f"Title {number}", model="m")
        session.append([user_message("x")] * (number + 1))
    session.update(pinned=True, archived=False)
    result = call("sessions", "list")
    assert list_ids(result) == ["cli:2", "cli:1", "cli:0"]
    id, title, messages, tokens, delegates, channel, model, active, marks = lines(result)[0]
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
    assert result.stderr == ""


@pytest.mark.parametrize("option", ["-n", "--limit"])
def test_a_limit(call, store, option):
    for number in range(5):
        store.session(f"cli:{number}")
    assert list_ids(call("sessions", "list", option, "2")) == ["cli:4", "cli:3"]


def test_the_all_option_reads_every_page(call, store, monkeypatch):
    monkeypatch.setattr("recollect.cli.sessions.listing._PAGE", 2)
    for number in range(5):
        store.session(f"cli:{number}")
    assert len(list_ids(call("sessions", "list", "--all", "-n", "1"))) == 5
    document = json.loads(call("sessions", "list", "--all", "--json").stdout)
    assert len(document["sessions"]) == 5
    assert document["next"] is None


def test_json_pages(call, store):
    for number in range(5):
        store.session(f"cli:{number}")
    ids, after = [], []
    while True:
        page = json.loads(call("sessions", "list", "-n", "2", "--json", *after).stdout)
        ids += [session["id"] for session in page["sessions"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert ids == ["cli:4", "cli:3", "cli:2", "cli:1", "cli:0"]


def test_an_invalid_cursor(call, store):
    assert "is not a cursor of this list" in call("sessions", "list", "--after", "x", code=1).stderr


def test_json_has_every_field(call, store):
    session = store.session("cli:a", title="日本語 \U0001f600 \u202e \x7f", model="m", metadata={"k": "ä"})
    session.append(user_message("x"))
    output = call("sessions", "list", "--json").stdout
    assert output.isascii()
    assert "\x7f" not in output
    (document,) = json.loads(output)["sessions"]
    assert document == session.refresh().to_dict()
    assert document["created_at"].endswith("Z")


def test_the_trash_the_archive_and_delegates_are_hidden_by_default(call, store):
    for name in ("cli:a", "cli:b", "cli:c"):
        store.session(name)
    store.session("cli:c:delegate:x", parent="cli:c")
    store.delete_session("cli:a")
    store.session("cli:b").update(archived=True)
    assert list_ids(call("sessions", "list")) == ["cli:c"]
    assert list_ids(call("sessions", "list", "--archived")) == ["cli:b"]
    assert list_ids(call("sessions", "list", "--trash")) == ["cli:a"]
    assert set(list_ids(call("sessions", "list", "--delegates"))) == {"cli:c", "cli:c:delegate:x"}


def test_the_trash_shows_archived_ones_too(call, store):
    store.session("cli:a").update(archived=True)
    store.session("cli:b")
    store.delete_session("cli:a")
    store.delete_session("cli:b")
    assert list_ids(call("sessions", "list", "--trash")) == ["cli:b", "cli:a"]
    assert list_ids(call("sessions", "list", "--trash", "--archived")) == ["cli:a"]


def test_filters(call, store):
    store.session("cli:a", model="m").update(pinned=True)
    store.session("discord:b", status="failed")
    assert list_ids(call("sessions", "list", "--channel", "discord")) == ["discord:b"]
    assert list_ids(call("sessions", "list", "--model", "m")) == ["cli:a"]
    assert list_ids(call("sessions", "list", "--status", "failed")) == ["discord:b"]
    assert list_ids(call("sessions", "list", "--pinned")) == ["cli:a"]
    assert list_ids(call("sessions", "list", "--unpinned")) == ["discord:b"]
    assert call("sessions", "list", "--channel", "none").stderr == "No matching conversations.\n"


def test_sorted_by_creation(call, store):
    store.session("cli:a")
    store.session("cli:b")
    store.session("cli:a").append(user_message("x"))
    assert list_ids(call("sessions", "list")) == ["cli:a", "cli:b"]
    assert list_ids(call("sessions", "list", "--sort", "created")) == ["cli:b", "cli:a"]


def test_titles_cannot_break_lines_or_columns(call, store):
    store.session("cli:a", title="red \x1b[31m beep \x07 over\rwritten \x9b31m")
    store.session("cli:b", title="two\nlines\tand a tab \u2028 \u202e")
    result = call("sessions", "list")
    assert all(len(line) == 9 for line in lines(result))
    assert len(lines(result)) == 2
    assert not [char for char in result.stdout if char not in "\n\t" and not char.isprintable()]


@pytest.mark.parametrize("position", ["before", "between", "after"])
def test_the_db_option_is_valid_at_every_position(call, tmp_path, position):
    import recollect

    other = str(tmp_path / "other.db")
    with recollect.open(other) as store:
        store.session("cli:other")
    option = ["--db", other]
    arguments = {"before": [*option, "sessions", "list"], "between": ["sessions", *option, "list"]}.get(position)
    assert list_ids(call(*(arguments or ["sessions", "list", *option]))) == ["cli:other"]
    assert list_ids(call("--db", "nowhere.db", "sessions", "list", "--db", f"sqlite:///{other}")) == ["cli:other"]


def test_filters_by_label_external_id_prefix_and_metadata(call, store):
    store.session("cli:a", labels=["x"], external_id="e", metadata={"project": "alpha", "n": 1})
    store.session("cli:b", labels=["x", "y"], metadata={"project": "alpha", "n": "1", "list": "[1]"})
    store.session("web:c", labels=["two words"], metadata={"n": None, "a=b": "c=d"})
    for session in store.list_sessions():
        session.append(user_message("hello"))
    cases = [
        (["--label", "x"], ["cli:a", "cli:b"]),
        (["--label", "x", "--label", "y"], ["cli:b"]),
        (["--label", "two words"], ["web:c"]),
        (["--external-id", "e"], ["cli:a"]),
        (["--id-prefix", "cli:"], ["cli:a", "cli:b"]),
        (["--metadata", "project=alpha"], ["cli:a", "cli:b"]),
        (["--metadata", "project=alpha", "--metadata", "n=1"], ["cli:a"]),
        (["--metadata", 'n="1"'], ["cli:b"]),
        (["--metadata", "n=null"], ["web:c"]),
        (["--metadata", "list=[1]"], ["cli:b"]),
        (["--metadata", "n=NaN"], []),
        (["--metadata", "n="], []),
    ]
    for options, expected in cases:
        assert sorted(list_ids(call("sessions", "list", *options))) == expected, options
        hit_ids = {line[0] for line in lines(call("sessions", "search", "hello", *options))}
        assert sorted(hit_ids) == expected, options
    ids = list_ids(call("sessions", "list"))
    assert list_ids(call("sessions", "list", "--oldest-first")) == ids[::-1]
    assert list_ids(call("sessions", "list", "--oldest-first", "-n", "1")) == ids[-1:]
    assert "KEY=VALUE" in call("sessions", "list", "--metadata", "project", code=2).stderr
    assert {line[0] for line in lines(call("sessions", "search", "hello label:y"))} == {"cli:b"}
