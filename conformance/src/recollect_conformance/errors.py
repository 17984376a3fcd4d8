"""Errors: each has a message, and the store still works after each of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from recollect.errors import (
    Conflict,
    InvalidValue,
    NotFound,
    RecollectError,
    SessionNotFound,
    StoreClosed,
    StoreError,
)
from recollect.store import Session, Store, Turn
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import check_counts, numbered_messages, texts, tool_call_message, user

_INVALID: Any = 5  # no unit: a value that none of the arguments below accepts


def calls_that_fail(store: Store) -> list[tuple[type[RecollectError], Callable[[], Any]]]:
    """Return calls that fail, each with its error class, on a session with messages, an open turn and a fork."""
    session = store.session("a")
    session.append([*numbered_messages(3), tool_call_message("t")])
    session.tools.record_result("t", "x")
    session.append(user("keyed"), key="k")
    turn = session.turn("q")
    ended = store.session("b").turn("q")
    ended.complete()
    session.fork(2, id="f")
    store.session("gone")
    store.delete_session("gone")
    return [
        (NotFound, lambda: store.session("nobody", create=False)),
        (NotFound, lambda: store.session("gone", create=False)),
        (NotFound, lambda: session.message(99)),
        (NotFound, lambda: session.branches.switch(99)),
        (NotFound, lambda: session.tools.record_result("nothing", "x")),
        (Conflict, lambda: store.session("a", exist_ok=False)),
        (Conflict, lambda: session.turn("busy")),
        (Conflict, lambda: store.erase_session("a")),
        (Conflict, lambda: session.append(user("x"), expected=999)),
        (Conflict, lambda: (store.session("x1"), store.session("x2"), store.find_session("x"))),
        (Conflict, lambda: session.append(user("other"), key="k")),
        (Conflict, lambda: ended.add(user("x"))),
        (Conflict, lambda: session.tools.record_result("t", "other")),
        (InvalidValue, lambda: session.update(status="odd")),  # pyright: ignore[reportArgumentType]
        (InvalidValue, lambda: session.append(user("x"), format="odd")),  # pyright: ignore[reportArgumentType]
        (InvalidValue, lambda: turn.add({"role": "user", "content": [{"type": "odd"}]})),
        *((InvalidValue, call) for call in calls_with_invalid_values(store, session, turn)),
    ]


def calls_with_invalid_values(store: Store, session: Session, turn: Turn) -> list[Callable[[], Any]]:
    """Return calls with values of the wrong type or outside the range that can be stored."""
    invalid: Any
    calls: list[Callable[[], Any]] = [
        lambda: store.find_session(_INVALID),
        lambda: store.records.put("k", _INVALID, 1),
        lambda: session.tools.start(_INVALID),
        lambda: session.presence.arrive(_INVALID),
        lambda: session.compact(summarize=_INVALID),
        lambda: session.tools.record_result("t", "x", metadata=_INVALID),
        lambda: turn.complete(model=_INVALID),
    ]
    for invalid in ("1", -1, 1 << 70, float("nan"), float("inf"), [1]):
        calls += [
            lambda value=invalid: session.append(user("x"), expected=value),
            lambda value=invalid: session.update(title="x", expected=value),
            lambda value=invalid: session.save_turn("x", expected=value),
            lambda value=invalid: session.save_turn("x", latency_ms=value),
            lambda value=invalid: turn.complete(output_tokens=value),
            lambda value=invalid: session.turn("x", lease=value),
            lambda value=invalid: session.tools.record_result("t", "x", latency_ms=value),
            lambda value=invalid: session.snapshots.add("memory", 1, tokens=value),
            lambda value=invalid: session.turns.list(until=value),
        ]
    for invalid in ("1", -1, float("nan"), [1]):
        calls.append(lambda value=invalid: session.turn("x", wait=value))
    return calls


class TestErrors:
    """Errors, and the state of the store after them."""

    def test_fractional_latencies_are_rounded(self, store: Store):
        session = store.session("a")
        session.save_turn("q", latency_ms=12.7)
        session.save_turn("q", latency_ms=12.0)
        session.append(tool_call_message("t"))
        session.tools.record_result("t", "x", latency_ms=0.4)
        assert (session.turns.list()[0].latency_ms, session.tools.list()[0].latency_ms) == (13, 0)

    def test_each_error_has_a_message_and_leaves_the_store_usable(self, store: Store):
        calls = calls_that_fail(store)
        before = store.session("a").info
        for error_class, call in calls:
            with pytest.raises(error_class) as excinfo:
                call()
            text = str(excinfo.value)
            assert len(text) > 30
            assert "{" not in text.replace('{"', "")
            assert text.rstrip()[-1] in ".)`"
            assert store.session("a").message_count == before.message_count
        check_counts(store.session("a"))
        store.session("a").append(user("still works"))

    def test_each_error_can_be_pickled_with_its_fields(self, store: Store):
        for error_class, call in calls_that_fail(store):
            with pytest.raises(error_class) as excinfo:
                call()
            error_copy = pickle.loads(pickle.dumps(excinfo.value))  # noqa: S301  trusted data, from the same line
            assert type(error_copy) is type(excinfo.value)
            assert (str(error_copy), error_copy.fields) == (str(excinfo.value), excinfo.value.fields)

    def test_every_call_on_a_missing_session_is_refused(self, store: Store):
        session = store.session("a")
        session.append([user("q"), tool_call_message("t")])
        turn = session.turn("x")
        store.erase_session("a")
        calls: list[Callable[[], Any]] = [
            session.refresh,
            lambda: session.append(user("x")),
            lambda: session.append(user("x"), key="k"),
            session.messages,
            lambda: session.messages(last=2),
            lambda: session.messages(branch=1),
            lambda: session.find_append("k"),
            lambda: session.shown_counts([(0, None)]),
            lambda: session.message(1),
            lambda: session.history("openai"),
            lambda: session.delete_messages([1]),
            lambda: session.restore_messages([1]),
            lambda: session.update(title="x"),
            session.update,
            lambda: session.turn("x"),
            lambda: session.save_turn("x"),
            session.turns.list,
            session.tools.list,
            lambda: session.tools.start("t"),
            lambda: session.tools.record_result("t", "x"),
            session.branches.list,
            session.branches.shown_counts,
            lambda: session.rewind(0),
            lambda: session.branches.switch(1),
            session.fork,
            lambda: store.delete_session("a"),
            lambda: store.restore_session("a"),
            lambda: store.erase_session("a"),
            lambda: store.find_session("a"),
        ]
        for call in calls:
            with pytest.raises(SessionNotFound):
                call()
        for call in (lambda: turn.add(user("x")), turn.complete, turn.stream):
            with pytest.raises(NotFound):
                call()
        assert store.list_sessions() == []

    def test_a_closed_store_raises_and_keeps_all_data(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        turn = session.turn("q")
        stream = turn.stream()
        stream.write("kept")
        stream.flush()
        other = database.open()
        other.close()
        other.close()
        assert texts(session) == ["q", "kept"]
        store.close()
        calls: list[Callable[[], Any]] = [
            lambda: store.session("a"),
            store.list_sessions,
            lambda: store.records.get("k", "x"),
            session.messages,
            lambda: session.append(user("x")),
            lambda: turn.add(user("x")),
            stream.flush,
            turn.complete,
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                call()
        assert issubclass(StoreClosed, StoreError)
        assert texts(database.reopen().session("a")) == ["q", "kept"]

    def test_a_store_is_a_context_manager(self, database: DatabaseUnderTest):
        with database.open() as store:
            store.session("a").append(user("x"))
        with pytest.raises(StoreClosed):
            store.session("a")
        with pytest.raises(ZeroDivisionError), database.open() as store:  # noqa: PT012  the block is the test
            store.session("a").append(user("y"))
            raise ZeroDivisionError
        assert texts(database.reopen().session("a")) == ["x", "y"]

    def test_an_exception_in_a_turn_propagates_after_the_store_is_closed(
        self, store: Store, database: DatabaseUnderTest
    ):
        turn = store.session("a").turn("q")
        with pytest.raises(ZeroDivisionError) as excinfo, turn, turn.stream() as answer:  # noqa: PT012  the block is the test
            answer.write("x")
            store.close()
            raise ZeroDivisionError
        assert excinfo.value.__notes__
        assert texts(database.reopen().session("a")) == ["q", ""]
