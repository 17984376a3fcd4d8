"""Export and import: imported data equals exported data, and existing data is not changed."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest

from recollect import export
from recollect.errors import SessionExists, SessionInTrash, SessionNotFound
from recollect.store import Store
from recollect_conformance.examples import (
    ANTHROPIC_MESSAGES,
    ANTHROPIC_RESPONSE,
    OPENAI_MESSAGES,
    assistant,
    check_counts,
    ids,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)

PICTURE = base64.b64encode(bytes(range(256)) * 20).decode()


def export_bytes(store: Store, ids: list[str] | None = None, format: str = "jsonl", **options: Any) -> bytes:
    """Export to memory and return the bytes."""
    buffer = io.BytesIO()
    export.write(store, ids, format, buffer, **options)
    return buffer.getvalue()


def fill_store(store: Store) -> None:
    """Fill a store with every kind of data."""
    session = store.session("cli:first", title="First", metadata={"a": [1, None]}, labels=["b", "a"])
    session.append(ANTHROPIC_MESSAGES)
    session.append(tool_call_message("c1"))
    session.append({"role": "user", "parts": [{"kind": "attachment", "mime_type": "image/png", "data": PICTURE}]})
    with session.turn("a turn") as turn:
        turn.add(ANTHROPIC_RESPONSE)
    fork = session.fork(at=5, id="cli:fork")
    fork.append(tool_result_message("c1"))
    session.rewind(2)
    session.append(user("another way \ud800\0"))
    session.delete_messages([session.messages()[0].id])
    store.session("cli:first:delegate:search", parent="cli:first").append(OPENAI_MESSAGES)


def erase_all(store: Store) -> None:
    """Erase every session of a store."""
    while page := store.list_sessions(archived=None, delegates=True):
        store.erase_session(page[0].id, forks="erase")


class TestTransfer:
    """Import into an empty store and into one with data."""

    @pytest.mark.parametrize("format", ["jsonl", "json"])
    def test_imported_data_equals_exported_data(self, store: Store, format: str) -> None:
        fill_store(store)
        data = export_bytes(store, format=format)
        before = {
            session.id: (session.info, session.messages(deleted=True), session.branches.list(), session.tools.list())
            for session in store.list_sessions(archived=None, delegates=True)
        }
        erase_all(store)
        report = export.read(store, io.BytesIO(data))
        assert (report.bad, report.conflicts) == ([], [])
        assert sorted(report.created) == sorted(before)
        for id, (info, messages, branches, calls) in before.items():
            session = store.get_session(id)
            assert session is not None
            assert session.info == info
            assert session.messages(deleted=True) == messages
            assert session.branches.list() == branches
            assert session.tools.list() == calls
            check_counts(session)
        assert export_bytes(store, format=format) == data

    def test_a_second_import_changes_nothing(self, store: Store) -> None:
        fill_store(store)
        data = export_bytes(store)
        report = export.read(store, io.BytesIO(data))
        assert (report.created, report.updated, report.messages) == ([], [], 0)
        assert export_bytes(store) == data

    def test_an_imported_session_can_be_continued(self, store: Store) -> None:
        fill_store(store)
        data = export_bytes(store)
        erase_all(store)
        export.read(store, io.BytesIO(data))
        session = store.session("cli:first")
        before = session.messages()
        session.append(user("next"))
        assert session.messages()[:-1] == before
        session.rewind(before[0].id)
        session.append(user("a new branch"))
        check_counts(session)
        fork = store.session("cli:fork")
        with fork.turn("in the fork") as turn:
            turn.add(assistant("yes"))
        check_counts(fork)
        assert fork.fork().message_count == fork.message_count

    def test_a_longer_export_adds_the_new_messages(self, store: Store) -> None:
        session = store.session("a")
        session.append(numbered_messages(3))
        first_export = export_bytes(store)
        session.append(numbered_messages(600, first=4))
        session.update(title="Longer")
        second_export = export_bytes(store)
        erase_all(store)
        export.read(store, io.BytesIO(first_export))
        report = export.read(store, io.BytesIO(second_export))
        assert (report.updated, report.messages) == (["a"], 600)
        assert export_bytes(store) == second_export

    def test_a_conflict_is_refused_or_imported_under_a_new_id(self, store: Store) -> None:
        session = store.session("a")
        session.append(numbered_messages(2))
        session.append(user("theirs"))
        data = export_bytes(store)
        erase_all(store)
        mine = store.session("a")
        mine.append(numbered_messages(2))
        assert export.read(store, io.BytesIO(data)).conflicts[0].new_id is None
        with pytest.raises(SessionExists):
            export.read(store, io.BytesIO(data), on_conflict="error")
        (conflict,) = export.read(store, io.BytesIO(data), on_conflict="new").conflicts
        assert conflict.new_id is not None
        assert texts(store.session(conflict.new_id)) == ["m1", "m2", "theirs"]
        assert texts(store.session("a")) == ["m1", "m2"]

    def test_a_fork_is_exported_with_the_messages_that_it_shares(self, store: Store) -> None:
        session = store.session("a")
        session.append(numbered_messages(4))
        fork = session.fork(at=2, id="f")
        fork.append(user("fork"))
        expected = ids(fork)
        data = export_bytes(store, ["f"])
        assert b"m3" not in data
        erase_all(store)
        export.read(store, io.BytesIO(data))
        assert ids(store.session("f")) == expected
        assert texts(store.session("f")) == ["m1", "m2", "fork"]

    def test_a_delegate_stays_one_without_its_parent(self, store: Store) -> None:
        store.session("a")
        store.session("b", parent="a")
        store.erase_session("a")
        data = export_bytes(store, ["b"])
        for _ in range(2):
            session = store.session("b")
            assert (session.parent, session.relation) == (None, "delegate")
            assert list(store.list_sessions()) == []
            erase_all(store)
            export.read(store, io.BytesIO(data))

    def test_an_unknown_session_is_an_error(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            export_bytes(store, ["nobody"])
        store.session("gone")
        store.delete_session("gone")
        with pytest.raises(SessionInTrash):
            export_bytes(store, ["gone"])
        assert export_bytes(store).count(b"\n") == 1

    @pytest.mark.parametrize("format", ["md", "html", "json", "jsonl"])
    def test_every_format_can_be_written(self, store: Store, format: str) -> None:
        fill_store(store)
        data = export_bytes(store, None, format, redact=True, deleted=True)
        assert b"another way" in data
        assert b"Let me look." in data
