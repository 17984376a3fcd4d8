"""Errors: one tree, each with a sentence; after each of them the store still works."""

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
from recollect.testing.place import Place
from recollect.testing.talk import asks, counted, numbered, texts, user

_ODD: Any = 5


def mistakes(store: Store) -> list[tuple[type[RecollectError], Callable[[], Any]]]:
    """Give one mistake of each kind, on a session a with four messages, an open turn and a fork."""
    session = store.session("a")
    session.append([*numbered(3), asks("t")])
    session.record_tool_result("t", "x")
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
        (NotFound, lambda: session.switch(99)),
        (NotFound, lambda: session.record_tool_result("nothing", "x")),
        (Conflict, lambda: store.create_session("a")),
        (Conflict, lambda: session.turn("busy")),
        (Conflict, lambda: store.erase_session("a")),
        (Conflict, lambda: session.append(user("x"), expected=999)),
        (Conflict, lambda: (store.session("x1"), store.session("x2"), store.find_session("x"))),
        (Conflict, lambda: session.append(user("other"), key="k")),
        (Conflict, lambda: ended.add(user("x"))),
        (Conflict, lambda: session.record_tool_result("t", "other")),
        (InvalidValue, lambda: session.update(status="odd")),  # pyright: ignore[reportArgumentType]
        (InvalidValue, lambda: session.append(user("x"), format="odd")),  # pyright: ignore[reportArgumentType]
        (InvalidValue, lambda: turn.add({"role": "user", "content": [{"type": "odd"}]})),
        *((InvalidValue, mistake) for mistake in wrong_values(store, session, turn)),
    ]


def wrong_values(store: Store, session: Session, turn: Turn) -> list[Callable[[], Any]]:
    """Give values of another type than they should be, or beyond what can be stored."""
    odd: Any
    mistakes: list[Callable[[], Any]] = [
        lambda: store.find_session(_ODD),
        lambda: store.set_setting(_ODD, 1),
        lambda: session.start_tool_call(_ODD),
        lambda: session.arrive(_ODD),
        lambda: session.compact(summarize=_ODD),
        lambda: session.record_tool_result("t", "x", metadata=_ODD),
        lambda: turn.complete(model=_ODD),
    ]
    for odd in ("1", -1, 1 << 70, float("nan"), float("inf"), [1]):
        mistakes += [
            lambda odd=odd: session.append(user("x"), expected=odd),
            lambda odd=odd: session.update(title="x", expected=odd),
            lambda odd=odd: session.save_turn("x", expected=odd),
            lambda odd=odd: session.save_turn("x", latency_ms=odd),
            lambda odd=odd: turn.complete(output_tokens=odd),
            lambda odd=odd: session.turn("x", lease=odd),
            lambda odd=odd: session.record_tool_result("t", "x", latency_ms=odd),
            lambda odd=odd: session.snapshot("memory", 1, tokens=odd),
            lambda odd=odd: session.turns(until=odd),
        ]
    for odd in ("1", -1, float("nan"), [1]):
        mistakes.append(lambda odd=odd: session.turn("x", wait=odd))
    return mistakes


class TestErrors:
    """What goes wrong, and what stands after it."""

    def test_a_clock_gives_fractions(self, store: Store):
        session = store.session("a")
        session.save_turn("q", latency_ms=12.7)
        session.save_turn("q", latency_ms=12.0)
        session.append(asks("t"))
        session.record_tool_result("t", "x", latency_ms=0.4)
        assert (session.turns()[0].latency_ms, session.tool_calls()[0].latency_ms) == (13, 0)

    def test_each_has_a_sentence_and_leaves_the_store_working(self, store: Store):
        acts = mistakes(store)
        before = store.session("a").info
        for kind, act in acts:
            with pytest.raises(kind) as caught:
                act()
            sentence = str(caught.value)
            assert len(sentence) > 30
            assert "{" not in sentence.replace('{"', "")
            assert sentence.rstrip()[-1] in ".)`"
            assert store.session("a").message_count == before.message_count
        counted(store.session("a"))
        store.session("a").append(user("still works"))

    def test_each_crosses_a_process_with_its_fields(self, store: Store):
        for kind, act in mistakes(store):
            with pytest.raises(kind) as caught:
                act()
            copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  our own
            assert type(copied) is type(caught.value)
            assert (str(copied), copied.fields) == (str(caught.value), caught.value.fields)

    def test_a_missing_session_refuses_everything(self, store: Store):
        session = store.session("a")
        session.append([user("q"), asks("t")])
        turn = session.turn("x")
        store.erase_session("a")
        acts: list[Callable[[], Any]] = [
            session.refresh,
            lambda: session.append(user("x")),
            lambda: session.append(user("x"), key="k"),
            session.messages,
            lambda: session.messages(last=2),
            lambda: list(session.iter_messages()),
            lambda: session.message(1),
            lambda: session.history("openai"),
            lambda: session.delete_message(1),
            lambda: session.restore_message(1),
            lambda: session.update(title="x"),
            session.update,
            lambda: session.turn("x"),
            lambda: session.save_turn("x"),
            session.turns,
            session.tool_calls,
            lambda: session.start_tool_call("t"),
            lambda: session.record_tool_result("t", "x"),
            session.branches,
            lambda: session.rewind(0),
            lambda: session.switch(1),
            session.fork,
            lambda: store.delete_session("a"),
            lambda: store.restore_session("a"),
            lambda: store.erase_session("a"),
            lambda: store.set_last_session("a"),
            lambda: store.find_session("a"),
        ]
        for act in acts:
            with pytest.raises(SessionNotFound):
                act()
        for act in (lambda: turn.add(user("x")), turn.complete, turn.stream):
            with pytest.raises(NotFound):
                act()
        assert store.list_sessions() == []

    def test_a_closed_store_says_so_and_has_lost_nothing(self, store: Store, place: Place):
        session = store.session("a")
        turn = session.turn("q")
        stream = turn.stream()
        stream.write("kept")
        stream.flush()
        other = place.open()
        other.close()
        other.close()
        assert texts(session) == ["q", "kept"]
        store.close()
        acts: list[Callable[[], Any]] = [
            lambda: store.session("a"),
            store.list_sessions,
            lambda: store.setting("k"),
            session.messages,
            lambda: session.append(user("x")),
            lambda: turn.add(user("x")),
            stream.flush,
            turn.complete,
        ]
        for act in acts:
            with pytest.raises(StoreClosed):
                act()
        assert issubclass(StoreClosed, StoreError)
        assert texts(place.reopen().session("a")) == ["q", "kept"]

    def test_a_store_is_a_context_manager(self, place: Place):
        with place.open() as store:
            store.session("a").append(user("x"))
        with pytest.raises(StoreClosed):
            store.session("a")
        with pytest.raises(ZeroDivisionError), place.open() as store:  # noqa: PT012  the block is the test
            store.session("a").append(user("y"))
            raise ZeroDivisionError
        assert texts(place.reopen().session("a")) == ["x", "y"]

    def test_an_error_in_a_turn_of_a_closed_store_is_the_callers(self, store: Store, place: Place):
        turn = store.session("a").turn("q")
        with pytest.raises(ZeroDivisionError) as caught, turn, turn.stream() as answer:  # noqa: PT012  the same
            answer.write("x")
            store.close()
            raise ZeroDivisionError
        assert caught.value.__notes__
        assert texts(place.reopen().session("a")) == ["q", ""]
