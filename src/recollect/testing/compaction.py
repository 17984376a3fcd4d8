"""Compaction: a summary in the place of what it replaced, undone at will, alone on its branch; and snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from recollect.errors import CompactedMeanwhile, CompactionNotFound, InvalidValue, MessageNotFound, SessionInTrash
from recollect.model.compaction import LABEL
from recollect.model.message import Format, Message
from recollect.store import Session, Store
from recollect.testing.place import Place
from recollect.testing.talk import answers, asks, assistant, counted, numbered, texts, user

LABEL_TOKENS = 13
FORMATS = get_args(Format)


def talk(store: Store, id: str = "a", count: int = 10) -> Session:
    """Open a session with messages m1, m2 and so on, of ten tokens each."""
    session = store.session(id)
    session.append([{**message, "tokens": 10} for message in numbered(count)])
    return session


def sent(session: Session) -> list[str]:
    """Give what is sent on."""
    view = session.messages(active=True)
    assert [message["parts"][0]["text"] for message in session.history()] == [message.text for message in view]
    return [unlabelled(message) for message in view]


def _strings(value: Any) -> Iterator[str]:
    """Yield every string in a value, at any depth."""
    if isinstance(value, str):
        yield value
        return
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():  # pyright: ignore[reportUnknownVariableType]
        yield from _strings(item)


def labelled(summary: str) -> str:
    """Return a summary as a model reads it."""
    return f"{LABEL}\n{summary}"


def unlabelled(message: Message) -> str:
    """Return the text of a message; a summary must have its label, which is taken off."""
    if "compaction" not in (message.metadata or {}):
        return message.text
    assert message.text.startswith(labelled(""))
    return message.text.removeprefix(labelled(""))


class TestCompaction:
    """Compacting, several rounds, undoing."""

    def test_a_summary_stands_in_the_place_of_what_it_replaced(self, store: Store, place: Place):
        session = talk(store)
        before = session.revision
        made = session.compact(before=7, summary="so far")
        assert (made.round, made.from_position, made.to_position, made.branch) == (1, 1, 6, 1)
        assert (made.tokens_before, made.summary, made.undone_at) == (60, "so far", None)
        assert made.tokens_after == 6
        assert session.revision == before + 1
        session = place.reopen().session("a")
        assert sent(session) == ["so far", "m7", "m8", "m9", "m10"]
        assert texts(session) == [f"m{n}" for n in range(1, 11)]
        assert [m.text for m in session.iter_messages()] == texts(session)
        assert session.message(3).text == "m3"
        assert session.history("openai")[0] == user(labelled("so far"))
        assert session.history("openai").repairs == []
        assert session.active_tokens() == 46 + LABEL_TOKENS
        assert session.compaction() == made
        assert session.compactions() == [made]
        counted(session)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_summary_is_labelled_in_every_format(self, store: Store, format: Format):
        session = talk(store)
        session.compact(before=7, summary="so far")
        first = list(_strings(session.history(format)[0]))
        assert first.count(labelled("so far")) == 1  # a text of its own, whatever stands beside it
        assert not any("so far" in text and text != labelled("so far") for text in first)

    def test_the_newest_turns_are_left_as_they_are(self, store: Store):
        session = talk(store)
        assert session.compact(summary="s", tokens=3).to_position == 6
        assert session.active_tokens() == 43 + LABEL_TOKENS
        assert session.compact(summary="all", keep_turns=0).to_position == 10
        assert sent(session) == ["all"]
        session.append(user("on"))
        assert sent(session) == ["all", "on"]

    @pytest.mark.parametrize("before", [5, "1.5"])
    def test_a_message_may_be_named_in_every_way(self, store: Store, before: Any):
        session = talk(store)
        assert session.compact(before=before, summary="s").to_position == 4
        with pytest.raises(InvalidValue, match="nothing to compact"):
            session.compact(before=session.message(5), summary="s")
        for unknown in (11, "2.1", "1.99"):
            with pytest.raises(MessageNotFound):
                session.compact(before=unknown, summary="s")
        assert len(session.compactions()) == 1

    def test_rounds_and_their_undoing(self, store: Store, place: Place):
        session = talk(store)
        first = session.compact(before=5, summary="one")
        second = session.compact(before=9, summary="two")
        assert (second.round, second.from_position, second.to_position) == (2, 1, 8)
        assert second.tokens_before == 40 + first.tokens_after + LABEL_TOKENS
        assert sent(session) == ["two", "m9", "m10"]
        undone = session.undo_compaction()
        assert (undone.round, undone.undone_at is not None) == (2, True)
        assert sent(session) == ["one", "m5", "m6", "m7", "m8", "m9", "m10"]
        assert session.compaction() == first
        assert session.undo_compaction(round=2) == undone
        assert session.compact(before=7, summary="three").round == 3
        session.undo_compaction(1)
        assert sent(session) == ["three", "m7", "m8", "m9", "m10"]
        session.undo_compaction()
        session = place.reopen().session("a")
        assert sent(session) == texts(session)
        assert session.compaction() is None
        assert [item.round for item in session.compactions()] == [1, 2, 3]
        with pytest.raises(CompactionNotFound):
            session.undo_compaction()
        with pytest.raises(CompactionNotFound):
            session.undo_compaction(round=4)

    def test_a_function_makes_the_summary(self, store: Store):
        session = talk(store)
        session.compact(before=3, summary="first")
        given: list[Any] = []

        def summarize(messages: list[Any]) -> str:
            given.extend(unlabelled(message) for message in messages)
            session.append(user("meanwhile"))
            return "made"

        assert session.compact(before=7, summarize=summarize).summary == "made"
        assert given == ["first", "m3", "m4", "m5", "m6"]
        assert sent(session) == ["made", "m7", "m8", "m9", "m10", "meanwhile"]

    def test_nothing_is_written_if_the_function_fails(self, store: Store):
        session = talk(store)

        def summarize(_: list[Any]) -> str:
            raise RuntimeError("no model")

        with pytest.raises(RuntimeError):
            session.compact(summarize=summarize)
        for wrong in ("", " ", None, 7, "half \ud800", "nul \0"):
            with pytest.raises(InvalidValue):
                session.compact(summarize=lambda _, given=wrong: given)
        for arguments in ({}, {"summary": "s", "summarize": summarize}, {"summary": ""}):
            with pytest.raises(InvalidValue):
                session.compact(**arguments)  # type: ignore[arg-type]
        for arguments in ({"tokens": -1}, {"keep_turns": -1}, {"tokens": "3"}):
            with pytest.raises(InvalidValue):
                session.compact(summary="s", **arguments)  # type: ignore[arg-type]
        assert session.compactions() == []
        assert sent(session) == texts(session)

    def test_two_at_once(self, store: Store):
        session = talk(store)

        def summarize(_: list[Any]) -> str:
            session.compact(before=3, summary="faster")
            return "slower"

        with pytest.raises(CompactedMeanwhile):
            session.compact(before=7, summarize=summarize)
        assert [item.summary for item in session.compactions()] == ["faster"]

    def test_a_session_that_moves_on_is_compacted_where_it_stood(self, store: Store):
        session = talk(store)

        def summarize(_: list[Any]) -> str:
            session.rewind(4).append(user("elsewhere"))
            return "s"

        session.compact(before=7, summarize=summarize)
        assert sent(session) == ["m1", "m2", "m3", "m4", "elsewhere"]
        assert sent(session.switch(1)) == ["s", "m7", "m8", "m9", "m10"]

    def test_a_session_in_the_trash_is_not_compacted(self, store: Store):
        session = talk(store)

        def summarize(_: list[Any]) -> str:
            store.delete_session("a")
            return "s"

        with pytest.raises(SessionInTrash):
            session.compact(summarize=summarize)
        assert store.restore_session("a").compactions() == []

    def test_appends_during_it_are_neither_lost_nor_swallowed(self, store: Store):
        session = talk(store, count=40)
        stop = threading.Event()

        def write(writer: int) -> None:
            own = store.session("a")
            for n in range(15):
                own.append(user(f"w{writer}.{n}"))

        writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
        for writer in writers:
            writer.start()
        for n in range(5):
            session.compact(summary=f"s{n}", keep_turns=2)
            session.append(user(f"after {n}"))
        stop.set()
        for writer in writers:
            writer.join()
        said = texts(session)
        assert len(said) == 40 + 45 + 5
        last = session.compaction()
        assert last is not None
        assert sent(session) == ["s4", *said[last.to_position :]]
        session.refresh()
        counted(session)

    def test_calls_keep_their_results(self, store: Store):
        session = store.session("a")
        session.append([user("q"), asks("t", "u"), answers("t"), answers("u"), assistant("r"), user("q2")])
        assert session.compact(before=4, summary="s").to_position == 1
        assert session.history("anthropic")[1] == asks("t", "u")
        assert session.compact(before=5, summary="s").to_position == 4
        assert session.history("openai") == [user(labelled("s")), assistant("r"), user("q2")]
        assert session.history("openai").repairs == []

    def test_instructions_and_pinned_messages_are_not_replaced(self, store: Store, place: Place):
        session = store.session("a")
        session.append([{"role": "system", "content": "rules"}, *numbered(6)])
        session.pin_message(4)
        made = session.compact(before=6, summary="s")
        assert (made.from_position, made.to_position) == (2, 5)
        assert sent(session) == ["rules", "s", "m3", "m5", "m6"]
        session.unpin_message(4)
        assert sent(place.reopen().session("a")) == ["rules", "s", "m5", "m6"]

    def test_deleted_messages(self, store: Store):
        session = talk(store)
        session.delete_message(2)
        assert session.compact(before=5, summary="s").tokens_before == 30
        session.restore_message(2)
        assert sent(session) == ["s", *(f"m{n}" for n in range(5, 11))]
        session.undo_compaction()
        assert sent(session)[:3] == ["m1", "m2", "m3"]

    def test_the_last_of_what_is_sent_on(self, store: Store):
        session = talk(store)
        session.compact(before=7, summary="s")
        assert [m.text for m in session.messages(3, active=True)] == ["m8", "m9", "m10"]
        assert [unlabelled(m) for m in session.messages(99, active=True)] == ["s", "m7", "m8", "m9", "m10"]
        assert [unlabelled(m) for m in session.messages(before=9, active=True)] == ["s", "m7", "m8"]
        assert session.messages(0, active=True) == []


class TestCompactionOnBranches:
    """A branch and a fork have their own."""

    def test_a_fork_has_what_was_compacted_before_it_and_goes_its_own_way(self, store: Store, place: Place):
        session = talk(store)
        session.compact(before=5, summary="shared")
        fork = session.fork(8, id="f")
        assert sent(fork) == ["shared", "m5", "m6", "m7", "m8"]
        fork.compact(before=7, summary="fork's")
        assert sent(session) == ["shared", *(f"m{n}" for n in range(5, 11))]
        session.compact(before=9, summary="origin's")
        session.undo_compaction(1)
        fork.undo_compaction()
        store = place.reopen()
        assert sent(store.session("f")) == ["shared", "m5", "m6", "m7", "m8"]
        assert sent(store.session("a")) == ["origin's", "m9", "m10"]
        assert store.session("f").compact(before=8, summary="x").round == 3

    def test_a_fork_inside_of_a_span_has_the_messages(self, store: Store):
        session = talk(store)
        session.compact(before=3, summary="one")
        session.compact(before=9, summary="two")
        assert sent(session.fork(4)) == ["one", "m3", "m4"]
        assert sent(session.rewind(2)) == ["one"]
        assert sent(session.rewind("1.10")) == ["two", "m9", "m10"]

    def test_a_span_over_several_branches(self, store: Store, place: Place):
        session = talk(store, count=4)
        session.rewind(2).append(numbered(3, first=13))
        made = session.compact(before="2.5", summary="s")
        assert (made.branch, made.from_position, made.to_position) == (2, 1, 4)
        session = place.reopen().session("a")
        assert sent(session) == ["s", "m15"]
        assert sent(session.switch(1)) == ["m1", "m2", "m3", "m4"]
        assert session.compactions() == []

    def test_it_outlives_the_erasing_of_its_origin(self, store: Store, place: Place):
        session = talk(store)
        session.compact(before=5, summary="shared")
        session.fork(8, id="f")
        store.erase_session("a", forks="keep")
        fork = place.reopen().session("f")
        assert sent(fork) == ["shared", "m5", "m6", "m7", "m8"]
        fork.undo_compaction()
        assert len(sent(fork)) == 8


class TestSnapshots:
    """Titles, summaries and memories, and how far they reach."""

    def test_they_are_kept_with_the_message_they_reach(self, store: Store, place: Place):
        session = talk(store)
        before = session.revision
        title = session.snapshot("title", "Numbers")
        assert (title.kind, title.content, title.message) == ("title", "Numbers", "1.10")
        assert session.revision > before
        memory = session.snapshot("memory", {"facts": [1, None, "\ud800"]}, at=3, tokens=7)
        assert (memory.message, memory.tokens) == ("1.3", 7)
        session = place.reopen().session("a")
        assert session.snapshots() == [title, memory]
        assert session.snapshots("memory") == [memory]
        assert session.snapshots(kind="summary") == []

    def test_one_of_a_kind_for_a_message(self, store: Store):
        session = talk(store)
        first = session.snapshot("summary", "one")
        again = session.snapshot("summary", "two")
        assert (again.id, again.content, again.created_at) == (first.id, "two", first.created_at)
        session.append(user("more"))
        assert session.snapshot("summary", "three").id != first.id
        assert [item.content for item in session.snapshots()] == ["two", "three"]

    def test_of_nothing_and_of_other_branches(self, store: Store):
        session = store.session("a")
        assert session.snapshot("title", "New").message is None
        session.append(numbered(4))
        session.snapshot("title", "Four")
        session.rewind(2)
        session.snapshot("title", "Two")
        assert [item.message for item in session.snapshots()] == [None, "1.4", "1.2"]
        assert session.fork().snapshots() == []

    def test_what_is_no_snapshot(self, store: Store):
        session = talk(store)
        for kind, content, more in (("name", "x", {}), ("title", b"x", {}), ("title", "x", {"tokens": -1})):
            with pytest.raises(InvalidValue):
                session.snapshot(kind, content, **more)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            session.snapshots("name")  # type: ignore[arg-type]
        with pytest.raises(MessageNotFound):
            session.snapshot("title", "x", at=99)
        assert session.snapshots() == []
