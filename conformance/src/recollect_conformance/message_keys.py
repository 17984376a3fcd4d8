"""The callers' keys of messages: idempotent appends of overlapping batches, lookups by key, forks and rewinds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from recollect.errors import (
    AmbiguousName,
    InvalidValue,
    KeyReused,
    MessageNotFound,
    SessionInTrash,
    SessionNotFound,
    StaleRevision,
    TurnExists,
)
from recollect.model.message import AttachmentPart, BuiltInFormat, Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Store
from recollect_conformance.concurrency import run_concurrently
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import RESPONSES_ITEMS, check_counts, ids, texts, user

ODD_KEYS = ("k", "é ü 中", "\0", "a\0b\x10c\x100", "\x10", "\x10p", "\n\r\t\x7f", '"\\u0000', " ", "'", "%", "x" * 1024)
"""Keys that an engine, JSON or SQL could change."""


def draft(text: str, key: str | None = None, **fields: Any) -> Draft:
    """Return a user message with a key."""
    defaults: dict[str, Any] = {"role": "user", "parts": (TextPart(text=text),), "key": key}
    return Draft(**{**defaults, **fields})


def key_messages(*keys: str) -> list[Draft]:
    """Return messages with these keys, whose texts are the keys."""
    return [draft(key, key) for key in keys]


class TestMessageKeys:
    """Keys in one session and its forks."""

    def test_a_repeated_batch_stores_nothing(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        first = session.append(key_messages("k1", "k2"))
        assert (first.ids, first.repeated, first.count) == (["1.1", "1.2"], False, 2)
        revision = session.revision
        again = database.reopen().session("a").append(key_messages("k1", "k2"))
        assert (again.ids, again.repeated, again.count, again.first) == (["1.1", "1.2"], True, 2, 1)
        session = database.open().session("a")
        assert (session.revision, texts(session)) == (revision, ["k1", "k2"])
        assert [message.key for message in session.messages()] == ["k1", "k2"]

    def test_overlapping_batches(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1", "k2", "k3"))
        result = session.append([*key_messages("k3", "k4"), draft("no key"), *key_messages("k2", "k5")])
        assert result.ids == ["1.3", "1.4", "1.5", "1.2", "1.6"]
        assert (result.repeated, result.count) == (False, 5)
        assert texts(session) == ["k1", "k2", "k3", "k4", "no key", "k5"]
        check_counts(session)

    def test_keys_of_messages_in_any_format(self, store: Store):
        session = store.session("a")
        format: BuiltInFormat = "openai-responses"
        items = RESPONSES_ITEMS
        keys = [None if number % 3 == 2 else f"item {number}" for number in range(len(items))]
        assert len(session.append(items, format, keys=keys).ids) == len(items)
        assert [message.key for message in session.messages()] == keys
        assert session.history(format, repair=False) == items
        assert session.append(items[:2], format, keys=keys[:2]).repeated
        assert session.append(user("one"), keys=["u"]).ids == session.append([user("one")], keys=("u",)).ids
        assert session.append([draft("x", "of the draft"), draft("y", "z")], keys=[None, "w"]).count == 2
        assert [message.key for message in session.messages(last=2)] == ["of the draft", "w"]
        with pytest.raises(KeyReused):
            session.append(user("two"), keys=["u"])
        other = store.session("b")
        other.append(items[:2], format, keys=keys[:2])
        assert [message.key for message in other.messages()] == keys[:2]
        for number in (session, other):
            check_counts(number)

    def test_keys_and_messages_that_do_not_match(self, store: Store):
        session = store.session("a")
        answer = {"type": "message", "role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
        for messages, keys in (([user("a")], []), ([user("a"), answer], ["k"]), (user("a"), ["k", "l"])):
            with pytest.raises(InvalidValue, match=r"^keys must have a key or None for each of the \d messages"):
                session.append(messages, keys=keys)
        invalid_keys: list[Any] = ["k", 5, {"k": 1}]
        for keys in invalid_keys:
            with pytest.raises(InvalidValue, match=r"^keys must be a list"):
                session.append([user("a")], keys=keys)
        for key in ("", 5, b"k", "x" * 1025):
            with pytest.raises(InvalidValue):
                session.append([user("a")], keys=[key])  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidValue, match=r"^Each message of a batch must have its own key"):
            session.append([user("a"), user("b")], keys=["k", "k"])
        assert session.messages() == []

    def test_different_content_is_refused_and_nothing_is_stored(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1"))
        different: list[Draft] = [
            draft("other", "k1"),
            draft("k1", "k1", role="assistant"),
            draft("k1", "k1", format="openai"),
            draft("k1", "k1", native={"x": 1}),
        ]
        for item in different:
            with pytest.raises(KeyReused, match=r"'k1' belongs to message 1\.1 of session 'a'"):
                session.append([draft("new"), item, *key_messages("k9")])
        assert texts(session) == ["k1"]

    def test_times_tokens_and_metadata_are_not_compared(self, store: Store):
        session = store.session("a")
        session.append(draft("x", "k", tokens=3, created_at=5, metadata={"a": 1}))
        again = session.append(draft("x", "k", tokens=4, created_at=6, metadata={"a": 2}, input_tokens=1))
        assert (again.ids, again.repeated) == (["1.1"], True)
        assert session.messages()[0].metadata == {"a": 1}

    def test_content_that_is_stored_elsewhere_is_compared(self, store: Store):
        session = store.session("a")
        picture = AttachmentPart(mime_type="image/png", data="QUJD" * 1_000)
        other = AttachmentPart(mime_type="image/png", data="QUJE" * 1_000)
        for _ in range(2):
            assert session.append(Draft(role="user", parts=(picture,), key="p")).ids == ["1.1"]
        with pytest.raises(KeyReused):
            session.append(Draft(role="user", parts=(other,), key="p"))
        assert store.maintenance.check().problems == ()

    def test_a_key_occurs_once_in_a_batch(self, store: Store):
        session = store.session("a")
        with pytest.raises(InvalidValue, match="'k' more than once"):
            session.append([draft("x", "k"), draft("y"), draft("x", "k")])
        assert texts(session) == []

    @pytest.mark.parametrize("key", ["", "x" * 1025, "é" * 513, "\ud800", 5, b"x", ["k"]])
    def test_invalid_keys(self, store: Store, key: Any):
        session = store.session("a")
        with pytest.raises(InvalidValue):
            session.append([draft("x"), draft("y", key)])
        with pytest.raises(InvalidValue):
            session.message(key=key)
        with pytest.raises(InvalidValue):
            store.message(key=key)
        assert texts(session) == []

    def test_any_text_is_a_key(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(key_messages(*ODD_KEYS))
        session = database.reopen().session("a")
        assert [message.key for message in session.messages()] == list(ODD_KEYS)
        assert session.append(key_messages(*reversed(ODD_KEYS))).repeated
        for number, key in enumerate(ODD_KEYS, 1):
            assert session.message(key=key).position == number
            assert session.store.message(key=key)[1].key == key
        with pytest.raises(MessageNotFound):
            session.message(key="a\0b\x10c\x10")

    def test_a_subclass_of_str_is_a_key(self, store: Store):
        class Name(str):
            __slots__ = ()

            def __str__(self) -> str:
                return "another text"

        session = store.session("a")
        session.append(draft("x", Name("k")))
        assert session.message(key=Name("k")).key == "k"
        assert session.append(draft("x", "k")).repeated

    def test_a_message_that_is_appended_again_keeps_its_key(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1", "k2"))
        assert session.append(session.messages()).ids == ["1.1", "1.2"]
        other = store.session("b")
        other.append(session.messages())
        assert [message.key for message in other.messages()] == ["k1", "k2"]
        assert other.append(session.history("recollect")).repeated

    def test_a_dict_in_the_format_of_recollect_has_a_key(self, store: Store):
        session = store.session("a")
        message = {"role": "user", "parts": [{"kind": "text", "text": "x"}], "key": "k"}
        assert session.append(message).ids == session.append([message]).ids == ["1.1"]
        assert session.messages()[0].to_dict()["key"] == "k"

    def test_expected_applies_only_to_new_messages(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1"), expected=0)
        assert session.append(key_messages("k1"), expected=0).repeated  # the reply to the first append was lost
        with pytest.raises(StaleRevision):
            session.append(key_messages("k1", "k2"), expected=0)
        assert texts(session) == ["k1"]
        assert session.append(key_messages("k1", "k2"), expected=1).ids == ["1.1", "1.2"]

    def test_missing_sessions(self, store: Store):
        handle = store.session("a")
        store.delete_session("a")
        with pytest.raises(SessionInTrash):
            handle.append(key_messages("k"))
        with pytest.raises(SessionInTrash):
            handle.message(key="k")
        store.erase_session("a")
        with pytest.raises(SessionNotFound):
            handle.append(key_messages("k"))

    def test_an_idempotency_key_and_message_keys(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1"))
        batch = [draft("new"), *key_messages("k1", "k2"), draft("last")]
        first = session.append(batch, key="batch")
        assert first.ids == ["1.2", "1.1", "1.3", "1.4"]
        session.append(user("later"))
        again = session.append(batch, key="batch")
        assert (again.ids, again.repeated) == (first.ids, True)
        session.delete_messages(["1.1"])
        session.append(key_messages("k1"))
        assert session.append(batch, key="batch").ids == first.ids
        with pytest.raises(KeyReused):
            session.append([draft("new"), *key_messages("k1", "k3"), draft("last")], key="batch")
        nothing = session.append(key_messages("k2"), key="nothing")
        assert (nothing.ids, nothing.repeated) == (["1.3"], True)
        assert session.append(key_messages("k2"), key="nothing").ids == ["1.3"]
        assert store.maintenance.check().problems == ()

    def test_a_deleted_message_does_not_hold_its_key(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1"))
        session.delete_messages([1])
        assert session.message(key="k1").id == "1.1"
        assert session.append(draft("again", "k1")).ids == ["1.2"]
        assert session.message(key="k1").id == "1.2"
        with pytest.raises(KeyReused, match=r"'k1' belongs to message 1\.2"):
            session.restore_messages([1])
        session.delete_messages([2])
        assert session.restore_messages([1])
        assert session.message(key="k1").id == "1.1"
        with pytest.raises(KeyReused):
            session.restore_messages([2])

    def test_a_message_that_left_the_path_does_not_hold_its_key(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1", "k2"))
        session.rewind(1)
        assert session.message(key="k2").id == "1.2"
        assert session.append(draft("other", "k2")).ids == ["2.2"]
        assert session.append(key_messages("k1")).repeated
        assert session.message(key="k2").id == "2.2"
        session.branches.switch(1)
        assert session.message(key="k2").id == "1.2"
        assert session.append(key_messages("k2")).repeated
        session.rewind(0)
        assert session.message(key="k2").id == "2.2"  # the newest of the other branches
        session.delete_messages(["1.2", "2.2"])
        assert session.message(key="k2").id == "2.2"
        session.restore_messages(["1.2"])
        assert session.message(key="k2").id == "1.2"

    def test_forks_share_keys_of_the_past(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k1", "k2"))
        fork = session.fork(1, id="f")
        assert fork.append(key_messages("k1", "k2")).ids == ["1.1", "2.2"]
        assert session.append(draft("k2", "k2")).ids == ["1.2"]
        assert (fork.message(key="k2").id, session.message(key="k2").id) == ("2.2", "1.2")
        with pytest.raises(MessageNotFound):
            session.message("2.2")
        fork.delete_messages(["1.1"])
        session.append(draft("mine", "k1"))
        fork.append(draft("theirs", "k1"))
        for handle in (fork, session):
            with pytest.raises(KeyReused):
                handle.restore_messages(["1.1"])
        session.delete_messages([session.message(key="k1").id])
        with pytest.raises(KeyReused):
            session.restore_messages(["1.1"])  # the fork has another one
        fork.delete_messages([fork.message(key="k1").id])
        assert session.restore_messages(["1.1"])
        assert store.maintenance.check().problems == ()

    def test_exactly_one_of_id_and_key(self, store: Store):
        session = store.session("a")
        session.append(key_messages("k"))
        assert session.message("1.1") == session.message(id=1) == session.message(key="k")
        for arguments in ({}, {"id": 1, "key": "k"}):
            with pytest.raises(InvalidValue, match="either an id or a key"):
                session.message(**arguments)  # pyright: ignore[reportArgumentType]

    def test_turns_take_messages_with_keys(self, store: Store):
        session = store.session("a")
        with session.turn(key_messages("q1")) as turn:
            assert turn.add(key_messages("q1", "step")).ids == ["1.1", "1.2"]
            assert turn.add(key_messages("step")).repeated
            with pytest.raises(KeyReused):
                turn.add(draft("other", "step"))
            turn.add(Draft(role="assistant", parts=(TextPart(text="r"),), output_tokens=5, key="r"))
            turn.add(Draft(role="assistant", parts=(TextPart(text="r"),), output_tokens=5, key="r"))
        with pytest.raises(TurnExists, match=r"in turn 1\.1"):
            session.turn(key_messages("q1"))
        with session.turn([*key_messages("q1"), draft("q2", "q2")]) as turn:
            assert turn.id == "1.4"
        session.append(key_messages("plain"))
        with pytest.raises(KeyReused, match="not part of a turn"):
            session.turn(key_messages("plain"))
        assert texts(session) == ["q1", "step", "r", "q2", "plain"]
        assert [turn.output_tokens for turn in session.turns.list()] == [5, None]
        check_counts(session.refresh())

    def test_a_saved_turn_with_keys(self, store: Store):
        session = store.session("a")
        answer = Draft(role="assistant", parts=(TextPart(text="r"),), input_tokens=2, key="r1")
        result = session.save_turn(key_messages("q1"), answer)
        assert result.ids == ["1.1", "1.2"]
        again = session.save_turn(key_messages("q1"), answer)
        assert (again.ids, again.repeated) == (["1.1", "1.2"], True)
        assert len(session.turns.list()) == 1
        partial = session.save_turn(key_messages("q1"), [answer, *key_messages("r2")], key="save")
        assert partial.ids == ["1.1", "1.2", "1.3"]
        assert session.save_turn(key_messages("q1"), [answer, *key_messages("r2")], key="save").ids == partial.ids
        assert [turn.id for turn in session.turns.list()] == ["1.1", "1.3"]
        assert [turn.input_tokens for turn in session.turns.list()] == [2, None]
        with pytest.raises(KeyReused):
            session.save_turn(key_messages("q1"), draft("other", "r1"))
        check_counts(session)

    def test_the_final_message_of_a_stream_has_a_key(self, store: Store):
        session = store.session("a")
        session.append(key_messages("taken"))
        with session.turn("q") as turn:
            stream = turn.stream()
            stream.write("par")
            with pytest.raises(KeyReused):
                stream.close(Draft(role="assistant", parts=(TextPart(text="part"),), key="taken"))
            stream.close(Draft(role="assistant", parts=(TextPart(text="part"),), key="r"))
        assert (session.message(key="r").text, session.message(key="r").id) == ("part", stream.id)
        assert session.append(Draft(role="assistant", parts=(TextPart(text="part"),), key="r")).repeated

    def test_tool_calls_and_pins_of_keyed_messages(self, store: Store):
        session = store.session("a")
        batch = [
            Draft(role="system", parts=(TextPart(text="Be brief."),), key="s"),
            Draft(role="assistant", parts=(ToolCallPart(call_id="c", tool="t", arguments={}),), key="c"),
            Draft(role="tool", parts=(ToolResultPart(call_id="c", text="done"),), key="r"),
        ]
        for end in (1, 2, 3, 3):
            session.append(batch[:end])
        assert [call.status for call in session.tools.list()] == ["success"]
        assert len(session.messages()) == 3
        assert store.maintenance.check().problems == ()

    def test_a_message_found_in_the_store(self, store: Store):
        first = store.session("a")
        first.append(key_messages("shared", "a only"))
        fork = first.fork(1, id="f")
        fork.append(key_messages("f only"))
        session, message = store.message(key="a only")
        assert (session.id, message.id, message.text) == ("a", "1.2", "a only")
        assert isinstance(session, type(first))
        assert store.message(key="f only")[0].id == "f"
        assert store.message(key="shared")[0].id == "a"
        store.delete_session("a")
        assert store.message(key="shared")[0].id == "f"  # the oldest session that shares it
        with pytest.raises(MessageNotFound):
            store.message(key="a only")
        store.restore_session("a")
        assert store.message(key="a only")[0].id == "a"
        store.erase_session("a", forks="keep")
        assert store.message(key="shared")[0].id == "f"
        with pytest.raises(MessageNotFound, match="'nothing'"):
            store.message(key="nothing")

    def test_a_key_of_several_sessions_is_ambiguous(self, store: Store):
        for name in ("a", "b"):
            store.session(name).append(draft(name, "k"))
        with pytest.raises(AmbiguousName, match="'a', 'b'"):
            store.message(key="k")
        assert store.session("b").message(key="k").text == "b"
        store.session("a").delete_messages([1])
        assert store.message(key="k")[0].id == "b"  # a deleted message only if there is no other
        store.session("b").rewind(0)
        assert store.message(key="k")[0].id == "b"
        store.session("b").delete_messages(["1.1"])
        assert store.message(key="k")[0].id == "a"  # deleted on the active path, in the other session on another one
        store.delete_session("a")
        assert store.message(key="k")[1].text == "b"

    def test_a_key_of_very_many_sessions(self, store: Store):
        origin = store.session("origin")
        for number in range(230):
            origin.fork(0, id=f"f{number}").append(draft(str(number), "k"))
        with pytest.raises(AmbiguousName):
            store.message(key="k")
        for number in range(229):
            store.delete_session(f"f{number}")
        assert store.message(key="k")[0].id == "f229"
        assert store.session("f229").message(key="k").text == "229"

    def test_random_appends_agree_with_a_model(self, store: Store):
        rng = random.Random(21)  # noqa: S311  not for secrets
        session = store.session("a")
        path: list[tuple[str, str]] = []
        for _ in range(60):
            action = rng.random()
            if action < 0.6:
                batch = rng.sample("abcdefgh", rng.randint(1, 4))
                new = [key for key in batch if key not in [path_key for _, path_key in path]]
                result = session.append(key_messages(*batch))
                path += zip(_new_ids(result.ids, path), new, strict=True)
                assert result.ids == [id for key in batch for id, path_key in path if path_key == key]
                assert result.repeated == (not new)
            elif action < 0.8 and path:
                id, _ = path.pop(rng.randrange(len(path)))
                assert session.delete_messages([id])
            elif path:
                end = rng.randrange(len(path))
                session.rewind(path[end][0])
                path = path[: end + 1]
            assert ids(session) == [id for id, _ in path]
        check_counts(session.refresh())
        assert store.maintenance.check().problems == ()


def _new_ids(result: list[str], path: list[tuple[str, str]]) -> list[str]:
    path_ids = {id for id, _ in path}
    return [id for id in result if id not in path_ids]


class TestMessageKeysSeveralStores:
    """Keys under concurrent writers, and keys of other owners."""

    def test_writers_with_overlapping_batches_store_each_key_once(self, store: Store, database: DatabaseUnderTest):
        store.session("a")
        keys = [f"k{number}" for number in range(40)]
        stores = [store, *(database.open() for _ in range(3))]

        def write(writer: int) -> dict[str, str]:
            session = stores[writer % 4].session("a")
            ids_by_key: dict[str, str] = {}
            for start in range(0, 36, 4):
                batch = keys[start : start + 8]
                ids_by_key |= zip(batch, session.append(key_messages(*batch)).ids, strict=True)
            return ids_by_key

        results = run_concurrently(write)
        assert all(result == results[0] for result in results)
        session = store.session("a")
        assert sorted(texts(session)) == sorted(keys)
        assert {message.key: message.id for message in session.messages()} == results[0]
        check_counts(session)
        assert store.maintenance.check().problems == ()

    def test_turns_and_appends_with_the_same_keys(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        other = database.open().session("a")
        with session.turn("q") as turn:
            run_concurrently(
                lambda n: turn.add(key_messages("x", "y")) if n % 2 else other.append(key_messages("y", "x"))
            )
        assert sorted(texts(session)) == ["q", "x", "y"]
        check_counts(session.refresh())

    def test_restoring_and_appending_the_same_key(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        fork = session.fork(id="f")
        session.append(key_messages("k"))
        fork = session.fork(id="g")
        other = database.open().session("g")

        def act(writer: int) -> None:
            try:
                if writer % 2:
                    other.append(draft(f"w{writer}", "k"))
                else:
                    session.restore_messages(["1.1"])
            except KeyReused:
                pass

        for _ in range(5):
            session.delete_messages(["1.1"])
            run_concurrently(act, 4)
            holders = [message for message in fork.messages() if message.key == "k"]
            assert len(holders) == 1
            fork.delete_messages([message.id for message in holders])

    def test_keys_of_another_owner(self, store: Store, database: DatabaseUnderTest):
        store.session("a").append(key_messages("k"))
        other = database.open("other")
        with pytest.raises(MessageNotFound):
            other.message(key="k")
        other.session("b").append(draft("theirs", "k"))
        assert (store.message(key="k")[0].id, other.message(key="k")[0].id) == ("a", "b")
        assert store.maintenance.check().problems == other.maintenance.check().problems == ()
