"""Export and import: what goes out of a store comes into another equal, and what is there is not changed."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest

from recollect import export
from recollect.errors import SessionExists, SessionInTrash, SessionNotFound
from recollect.store import Store
from recollect.testing.talk import (
    ANTHROPIC_RESPONSE,
    ANTHROPIC_TALK,
    OPENAI_TALK,
    answers,
    asks,
    assistant,
    counted,
    ids,
    numbered,
    texts,
    user,
)

PICTURE = base64.b64encode(bytes(range(256)) * 20).decode()


def exported(store: Store, ids: list[str] | None = None, format: str = "jsonl", **options: Any) -> bytes:
    """Export into memory."""
    out = io.BytesIO()
    export.write(store, ids, format, out, **options)
    return out.getvalue()


def full(store: Store) -> None:
    """Fill a store with something of everything."""
    session = store.session("cli:first", title="First", metadata={"a": [1, None]})
    session.append(ANTHROPIC_TALK)
    session.append(asks("c1"))
    session.append({"role": "user", "parts": [{"kind": "attachment", "mime_type": "image/png", "data": PICTURE}]})
    with session.turn("a turn") as turn:
        turn.add(ANTHROPIC_RESPONSE)
    fork = session.fork(at=5, id="cli:fork")
    fork.append(answers("c1"))
    session.rewind(2)
    session.append(user("another way \ud800\0"))
    session.delete_message(session.messages()[0].id)
    store.session("cli:first:delegate:search", parent="cli:first").append(OPENAI_TALK)


def emptied(store: Store) -> None:
    """Erase every session of a store."""
    while found := store.list_sessions(archived=None, delegates=True):
        store.erase_session(found[0].id, forks="erase")


class TestTransfer:
    """A store that is emptied, or another owner's, takes what was exported."""

    @pytest.mark.parametrize("format", ["jsonl", "json"])
    def test_what_went_out_comes_back_equal(self, store: Store, format: str) -> None:
        full(store)
        text = exported(store, format=format)
        before = {session.id: (session.info, session.messages(deleted=True), session.branches(), session.tool_calls())
                  for session in store.list_sessions(archived=None, delegates=True)}  # fmt: skip
        emptied(store)
        report = export.read(store, io.BytesIO(text))
        assert (report.bad, report.conflicts) == ([], [])
        assert sorted(report.created) == sorted(before)
        for id, (info, messages, branches, calls) in before.items():
            session = store.get_session(id)
            assert session is not None
            assert session.info == info
            assert session.messages(deleted=True) == messages
            assert session.branches() == branches
            assert session.tool_calls() == calls
            counted(session)
        assert exported(store, format=format) == text

    def test_importing_twice_is_importing_once(self, store: Store) -> None:
        full(store)
        text = exported(store)
        report = export.read(store, io.BytesIO(text))
        assert (report.created, report.updated, report.messages) == ([], [], 0)
        assert exported(store) == text

    def test_an_imported_session_goes_on(self, store: Store) -> None:
        full(store)
        text = exported(store)
        emptied(store)
        export.read(store, io.BytesIO(text))
        session = store.session("cli:first")
        before = session.messages()
        session.append(user("and on"))
        assert session.messages()[:-1] == before
        session.rewind(before[0].id)
        session.append(user("a new branch"))
        counted(session)
        fork = store.session("cli:fork")
        with fork.turn("in the fork") as turn:
            turn.add(assistant("yes"))
        counted(fork)
        assert fork.fork().message_count == fork.message_count

    def test_a_longer_export_adds_what_is_new(self, store: Store) -> None:
        session = store.session("a")
        session.append(numbered(3))
        short = exported(store)
        session.append(numbered(600, first=4))
        session.update(title="Longer")
        long = exported(store)
        emptied(store)
        export.read(store, io.BytesIO(short))
        report = export.read(store, io.BytesIO(long))
        assert (report.updated, report.messages) == (["a"], 600)
        assert exported(store) == long

    def test_a_conflict_is_refused_or_comes_under_a_new_id(self, store: Store) -> None:
        session = store.session("a")
        session.append(numbered(2))
        session.append(user("theirs"))
        theirs = exported(store)
        emptied(store)
        mine = store.session("a")
        mine.append(numbered(2))
        assert export.read(store, io.BytesIO(theirs)).conflicts[0].new_id is None
        with pytest.raises(SessionExists):
            export.read(store, io.BytesIO(theirs), on_conflict="error")
        (refused,) = export.read(store, io.BytesIO(theirs), on_conflict="new").conflicts
        assert refused.new_id is not None
        assert texts(store.session(refused.new_id)) == ["m1", "m2", "theirs"]
        assert texts(store.session("a")) == ["m1", "m2"]

    def test_a_fork_comes_with_the_past_that_it_shares(self, store: Store) -> None:
        session = store.session("a")
        session.append(numbered(4))
        fork = session.fork(at=2, id="f")
        fork.append(user("fork"))
        wanted = ids(fork)
        text = exported(store, ["f"])
        assert b"m3" not in text
        emptied(store)
        export.read(store, io.BytesIO(text))
        assert ids(store.session("f")) == wanted
        assert texts(store.session("f")) == ["m1", "m2", "fork"]

    def test_what_is_not_there_is_said(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            exported(store, ["nobody"])
        store.session("gone")
        store.delete_session("gone")
        with pytest.raises(SessionInTrash):
            exported(store, ["gone"])
        assert exported(store).count(b"\n") == 1

    @pytest.mark.parametrize("format", ["md", "html", "json", "jsonl"])
    def test_every_format_can_be_written(self, store: Store, format: str) -> None:
        full(store)
        text = exported(store, None, format, redact=True, deleted=True)
        assert b"another way" in text
        assert b"Let me look." in text
