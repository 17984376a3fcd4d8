"""Fields: every way to read a session or a message returns every field with its written value.

The values differ from each other and from the defaults, so that two columns cannot be confused. The names are those of
the model: a new field without a value here fails a test.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, fields, replace

from recollect.model.message import AttachmentPart, Draft, Message, Part, TextPart
from recollect.model.session import (
    DATA_SCHEMA_VERSION,
    FLAG_FIELDS,
    SETTABLE,
    TEXT_FIELDS,
    SessionInfo,
    SessionStatus,
)
from recollect.model.value import json_fields
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import user

_NOT_INHERITED = frozenset({"external_id", "status", "channel", "channel_id", *FLAG_FIELDS})
"""The fields of a session that a fork does not take from its origin."""
_EVERY_SESSION: dict[str, Any] = {"archived": None, "delegates": None}
_NO_FIELDS: dict[str, Any] = {
    **dict.fromkeys(TEXT_FIELDS), "status": "active", "metadata": None, "labels": (),
    **dict.fromkeys(FLAG_FIELDS, False),
}  # fmt: skip


def session_values(mark: str, status: SessionStatus = "completed") -> dict[str, Any]:
    """Return a distinct value for each field that a caller sets on a session."""
    values: dict[str, Any] = {name: f"{mark} {name}" for name in TEXT_FIELDS}
    values |= {"status": status, "metadata": {"mark": mark}, **dict.fromkeys(FLAG_FIELDS, True)}
    values["labels"] = (f"{mark} label",)
    assert values.keys() == set(SETTABLE), "add a value for the new field"
    return values


def settable_fields(info: SessionInfo) -> dict[str, Any]:
    """Return the fields of a session that a caller sets, as update() takes them."""
    flags = {name: getattr(info, column) is not None for name, column in FLAG_FIELDS.items()}
    return {name: getattr(info, name) for name in (*TEXT_FIELDS, "metadata", "labels")} | flags


def check_reads(store: Store, *expected: SessionInfo) -> None:
    """Check that every way to read sessions returns these fields."""
    for info in expected:
        session = store.get_session(info.id)
        assert session is not None
        assert session.info == info
        assert session.refresh().info == info
        assert store.find_session(info.id).info == info
    pages = [{}, {"pinned_first": True}]
    pages += [{"channel": info.channel} for info in expected[-1:] if info.channel is not None]
    pages += [{"parent": info.parent} for info in expected[-1:] if info.parent is not None]
    for order, filters in itertools.product(("activity", "created", "title"), pages):
        _check_list(infos(store, order=order, **filters, **_EVERY_SESSION), expected, filters)
    in_default_list = [info for info in expected if info.archived_at is None and info.relation != "delegate"]
    for options in ({}, {"pinned_first": True}):
        _check_list(infos(store, **options), in_default_list, {})


def _check_list(page: list[SessionInfo], expected: Sequence[SessionInfo], filters: dict[str, Any]) -> None:
    """Check that a list has the expected sessions to which its filters apply."""
    by_id = {info.id: info for info in page}
    for info in expected:
        if all(getattr(info, name, value) == value for name, value in filters.items()):
            assert by_id[info.id] == info


def infos(store: Store, **options: Any) -> list[SessionInfo]:
    """Return the fields of the sessions of a list."""
    return [session.info for session in list_all_sessions(store, **options)]


def wait_for_the_clock() -> None:
    """Wait until the clock shows another millisecond."""
    start = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= start:
        time.sleep(0.001)


_PAYLOAD = "QUJD" * 2_000  # long enough for an engine that stores attachments apart from their message
_PARTS: dict[str, tuple[Part, ...]] = {
    "text": (TextPart(text="the text"),),
    "attachment": (TextPart(text="the text"), AttachmentPart(mime_type="image/png", data=_PAYLOAD)),
}


def message_values(parts: str) -> Draft:
    """Return a draft in which each field has a value of its own."""
    draft = Draft(
        role="assistant", parts=_PARTS[parts], format="anthropic", native={"mark": "native"}, model="the model",
        tokens=3, input_tokens=50, output_tokens=700, state="interrupted", error={"mark": "error"},
        metadata={"mark": "metadata"}, created_at=1_600_000_000_000, key="the key",
    )  # fmt: skip
    assert [field.name for field in fields(Draft) if getattr(draft, field.name) == field.default] == []
    return draft


def expected_message(draft: Draft, **columns: Any) -> Message:
    """Return the message that a draft becomes, with the fields that the store adds."""
    values: dict[str, Any] = {**asdict(draft), "created_at": draft.created_at_ms, "edited_at": None, **columns}
    names = dict(zip(Message.__struct_encode_fields__, Message.__struct_fields__, strict=True))
    assert values.keys() == names.keys(), "add a value for the new field"
    return Message(**{names[name]: value for name, value in values.items()})


def check_message_reads(session: Session, message: Message) -> None:
    """Check that every way to read a message returns these fields."""
    assert session.message(message.id) == message
    lists = [session.messages(deleted=True), session.messages(last=20, deleted=True)]
    lists.append(session.messages(branch=session.branch, deleted=True))
    if message.deleted_at is None:
        end = session.messages()[-1].position + 1
        lists += [
            session.messages(),
            session.messages(last=20),
            session.messages(before=end),
            session.messages(active=True),
        ]
    for messages in lists:
        assert message in messages


class TestFields:
    """Every field is read with its written value."""

    @pytest.mark.parametrize("exist_ok", [False, True])
    @pytest.mark.parametrize("parent", ["origin", None])
    def test_a_new_session(self, store: Store, database: DatabaseUnderTest, exist_ok: bool, parent: str | None):
        store.session("origin", exist_ok=False)
        values = session_values("new")
        session = store.session("a", exist_ok=exist_ok, parent=parent, **values)
        assert settable_fields(session.info) == values
        assert (session.parent, session.relation) == (parent, None if parent is None else "delegate")
        check_reads(store, session.info)
        session = store.session("a", title="not used")
        assert settable_fields(session.info) == values
        check_reads(database.reopen(), session.info)

    def test_a_changed_session(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", exist_ok=False, **session_values("new"))
        values = session_values("changed", "failed")
        assert settable_fields(session.update(**values).info) == values
        check_reads(store, session.info)
        session.update(archived=False)  # in the default list
        assert settable_fields(session.info) == {**values, "archived": False}
        check_reads(store, session.info)
        session.append(user("hi"))
        assert settable_fields(session.refresh().info) == {**values, "archived": False}
        check_reads(database.reopen(), session.info)

    def test_a_single_field(self, store: Store, database: DatabaseUnderTest):
        """Check sessions that have one field only: a field must not depend on another one."""
        sessions: list[Session] = []
        for name, value in session_values("only").items():
            field: dict[str, Any] = {name: value}
            sessions += [
                store.session(f"created with {name}", exist_ok=False, **field),
                store.session(f"opened with {name}", **field),
                store.session(f"updated {name}").update(**field),
            ]
            for session in sessions[-3:]:
                assert settable_fields(session.info) == {**_NO_FIELDS, **field}
        check_reads(store, *(session.info for session in sessions))
        store = database.reopen()
        check_reads(store, *(session.info for session in sessions))
        for name in SETTABLE:
            session = store.session(f"updated {name}").update(**{name: _NO_FIELDS[name]})
            assert settable_fields(session.info) == _NO_FIELDS

    def test_a_fork(self, store: Store, database: DatabaseUnderTest):
        values = session_values("origin")
        origin = store.session("origin", exist_ok=False, **values)
        fork = origin.fork(id="fork")
        assert settable_fields(fork.info) == {
            name: _NO_FIELDS[name] if name in _NOT_INHERITED else value for name, value in values.items()
        }
        other_values = session_values("fork of it", "failed")
        other_fork = fork.fork(id="other fork", **other_values)
        assert settable_fields(other_fork.info) == other_values
        assert (other_fork.parent, other_fork.relation) == ("fork", "fork")
        check_reads(store, fork.info, other_fork.info)
        check_reads(database.reopen(), fork.info, other_fork.info)

    def test_a_session_in_the_trash(self, store: Store, database: DatabaseUnderTest):
        values = session_values("new")
        before = store.session("a", exist_ok=False, **values).info
        wait_for_the_clock()
        store.delete_session("a")
        (info,) = infos(store, deleted=True, **_EVERY_SESSION)
        assert info.deleted_at is not None
        assert info.deleted_at > before.updated_at
        times = {"deleted_at_ms": info.deleted_at_ms, "updated_at_ms": info.updated_at_ms}
        assert info == replace(before, revision=before.revision + 1, **times)
        store = database.reopen()
        assert infos(store, deleted=True, **_EVERY_SESSION) == [info]
        session = store.restore_session("a")
        assert settable_fields(session.info) == values
        assert session.deleted_at is None
        check_reads(store, session.info)

    def test_the_computed_fields(self, store: Store, database: DatabaseUnderTest):
        session = store.session("cli:a")
        for number in range(3):
            store.session(f"delegate {number}", parent="cli:a")
            wait_for_the_clock()  # sessions of the same millisecond get times of activity in its future
        session.append([user("one"), Draft(role="user", tokens=7)])
        session.rewind(0)
        wait_for_the_clock()
        drafts = [Draft(role="assistant", tokens=20, input_tokens=300, output_tokens=4_000) for _ in range(5)]
        session.append(drafts)
        wait_for_the_clock()
        session.update(title="t")
        wait_for_the_clock()
        info = store.session("cli:a").info
        settable_columns = {FLAG_FIELDS.get(name, name) for name in SETTABLE}
        values = {name: value for name, value in json_fields(info).items() if name not in settable_columns}
        times = [values.pop(name) for name in ("created_at", "last_message_at", "updated_at")]
        assert times == sorted(set(times))
        assert times[0] < values.pop("active_at") < times[2]
        assert values == {
            "id": "cli:a", "branch": 2, "revision": 4, "message_count": 5, "token_count": 100, "input_tokens": 1_500,
            "output_tokens": 20_000, "delegate_count": 3, "data_schema_version": DATA_SCHEMA_VERSION, "parent": None,
            "relation": None, "deleted_at": None,
        }  # fmt: skip
        assert (info.channel, info.channel_id) == ("cli", "a")
        check_reads(store, info)
        check_reads(database.reopen(), info)

    @pytest.mark.parametrize("parts", _PARTS)
    @pytest.mark.parametrize("method", ["append", "save_turn", "turn"])
    def test_a_message(self, store: Store, database: DatabaseUnderTest, method: str, parts: str):
        session, draft = store.session("a"), message_values(parts)
        position, turn = 2, 1
        if method == "save_turn":
            session.save_turn("q", draft)
        elif method == "turn":
            session.turn("q").add(draft)
        else:
            session.append([user("q"), draft])
            turn = None
        message = expected_message(draft, branch=1, position=position, turn=turn, completed_at=None, deleted_at=None)
        check_message_reads(session, message)
        check_message_reads(session.fork(id="fork"), message)
        wait_for_the_clock()
        assert session.delete_messages([position])
        deleted_message = session.message(position)
        assert deleted_message == replace(message, deleted_at_ms=deleted_message.deleted_at_ms)
        assert deleted_message.deleted_at is not None
        check_message_reads(session, deleted_message)
        session = database.reopen().session("a")
        check_message_reads(session, deleted_message)
        assert session.restore_messages([position]) == [message.id]
        check_message_reads(session, message)

    @pytest.mark.parametrize("parts", _PARTS)
    def test_a_message_that_arrived_as_a_stream(self, store: Store, database: DatabaseUnderTest, parts: str):
        """Check a message in which every field has a value: it also has the time when the stream was closed."""
        session, draft = store.session("a"), message_values(parts)
        turn = session.turn("q")
        stream = turn.stream()
        stream.write("the")
        stream.flush()
        wait_for_the_clock()
        stream.close(draft)
        message = session.message(stream.id)
        assert message.completed_at is not None
        assert message.completed_at > message.created_at >= session.message(1).created_at
        times = {"created_at": message.created_at_ms, "completed_at": message.completed_at_ms}
        assert message == expected_message(draft, branch=1, position=2, turn=1, deleted_at=None, **times)
        wait_for_the_clock()
        assert session.delete_messages([2])
        deleted_message = session.message(2)
        assert deleted_message == replace(message, deleted_at_ms=deleted_message.deleted_at_ms)
        assert deleted_message.deleted_at is not None
        assert deleted_message.deleted_at > message.completed_at
        check_message_reads(session, deleted_message)
        check_message_reads(session.fork(id="fork"), deleted_message)
        check_message_reads(database.reopen().session("a"), deleted_message)

    def test_a_message_with_a_single_field(self, store: Store, database: DatabaseUnderTest):
        session, messages = store.session("a"), list[Message]()
        for field in fields(Draft):
            if field.default is not msgspec.NODEFAULT:
                draft = replace(
                    Draft(role="user", tokens=0), **{field.name: getattr(message_values("text"), field.name)}
                )
                id = session.append(draft).ids[-1]
                created_at = session.message(id).created_at_ms
                assert created_at == (draft.created_at_ms or created_at)
                completed_at = created_at if draft.state == "completed" else None
                position, times = len(messages) + 1, {"created_at": created_at, "completed_at": completed_at}
                messages.append(
                    expected_message(draft, branch=1, position=position, turn=None, deleted_at=None, **times)
                )
        for message in messages:
            check_message_reads(session, message)
        session = database.reopen().session("a")
        for message in messages:
            check_message_reads(session, message)
