"""Branches and idempotency keys of appends that replace messages survive a copy, an export and a backup."""

from __future__ import annotations

import io

import pytest

import recollect
from recollect import export


def user_message(text):
    return {"role": "user", "content": text}


def replace_messages(store):
    """Replace messages in several ways, and return the arguments of each append by its key."""
    session = store.session("a")
    session.append([user_message(text) for text in ("one", "two", "three")])
    appends = {
        "tail": ([user_message("x")], {"after": 1, "update": {"title": "T", "pinned": True}}),
        "all": ([user_message("y"), user_message("z")], {"after": 0}),
        "clear": ([], {"after": 0, "update": {"metadata": {"n": 1}}}),
        "fields": ([], {"update": {"color": "red"}}),
        "back": ([user_message("w")], {"after": "1.2"}),
    }
    for key, (messages, options) in appends.items():
        session.append(messages, key=key, **options)
    return appends


def contents(store):
    session = store.session("a", create=False)
    return [
        (branch.id, branch.parent, branch.fork_at, branch.current,
         [message.text for message in session.messages(branch=branch.id)])
        for branch in session.branches.list()
    ], session.title, session.metadata, session.color  # fmt: skip


def check_keys(store, appends, revision):
    session = store.session("a", create=False)
    for key, (messages, options) in appends.items():
        assert session.append(messages, key=key, **options).repeated
    assert session.revision == revision


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_copy_has_the_branches_and_the_keys(request, tmp_path, engine):
    source, target = str(tmp_path / "source.db"), str(tmp_path / "target.db")
    if engine == "postgres":
        target = request.getfixturevalue("postgres")
    with recollect.open(source) as store:
        appends, before = replace_messages(store), contents(store)
        revision = store.session("a", create=False).revision
    assert recollect.copy(source, target).complete
    with recollect.open(target) as store:
        assert contents(store) == before
        check_keys(store, appends, revision)
        assert store.maintenance.check().problems == ()
    if engine == "postgres":  # and back
        again = str(tmp_path / "again.db")
        assert recollect.copy(target, again).complete
        with recollect.open(again) as store:
            assert contents(store) == before
            check_keys(store, appends, revision)


def test_a_backup_has_the_branches_and_the_keys(tmp_path):
    with recollect.open(str(tmp_path / "source.db")) as store:
        appends, before = replace_messages(store), contents(store)
        revision = store.session("a", create=False).revision
        store.maintenance.backup(str(tmp_path / "backup.db"))
    with recollect.open(str(tmp_path / "backup.db")) as store:
        assert contents(store) == before
        check_keys(store, appends, revision)


def test_an_import_has_the_branches(tmp_path):
    with recollect.open(":memory:") as store:
        replace_messages(store)
        before = contents(store)
        file = b"".join(export.chunks(store, None, "jsonl"))
    with recollect.open(":memory:") as store:
        assert export.read(store, io.BytesIO(file)).created == ["a"]
        assert contents(store) == before
        assert store.maintenance.check().problems == ()


def test_an_erased_session_leaves_no_branch_and_no_key(tmp_path):
    path = str(tmp_path / "sessions.db")
    with recollect.open(path) as store:
        session = store.session("a")
        secret = "zebra " * 50
        session.append([user_message(secret), user_message(secret)], key="first")
        session.append([user_message("y")], after=0, update={"title": secret}, key="second")
        session.append([], after=0, update={"title": None}, key="third")
        assert store.erase_session("a", expected=session.revision) == ["a"]
        assert store.maintenance.check().problems == ()
        session = store.session("a")
        assert session.append([user_message("y")], after=0, key="second").repeated is False
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"zebra" not in content
