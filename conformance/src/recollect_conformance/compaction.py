"""Compaction: a summary replaces messages, can be undone, and affects one branch only; and snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from recollect.errors import CompactionConflict, CompactionNotFound, InvalidValue, MessageNotFound, SessionInTrash
from recollect.model.compaction import SUMMARY_LABEL
from recollect.model.message import BuiltInFormat, Format, Message
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    assistant,
    check_counts,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)

LABEL_TOKENS = 13  # tokens. The estimate for SUMMARY_LABEL and the line break after it.
FORMATS = get_args(BuiltInFormat)


def new_session(store: Store, id: str = "a", count: int = 10) -> Session:
    """Open a session with messages m1, m2 and so on, of ten tokens each."""
    session = store.session(id)
    session.append([{**message, "tokens": 10} for message in numbered_messages(count)])
    return session


def active_texts(session: Session) -> list[str]:
    """Return the texts of the active messages."""
    view = session.messages(active=True)
    assert [message["parts"][0]["text"] for message in session.history()] == [message.text for message in view]
    return [without_label(message) for message in view]


def _strings(value: Any) -> Iterator[str]:
    """Yield every string in a value, at any depth."""
    if isinstance(value, str):
        yield value
        return
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():  # pyright: ignore[reportUnknownVariableType]
        yield from _strings(item)


def with_label(summary: str) -> str:
    """Return a summary as a model reads it."""
    return f"{SUMMARY_LABEL}\n{summary}"


def without_label(message: Message) -> str:
    """Return the text of a message; a summary must have its label, which is removed."""
    if "compaction" not in (message.metadata or {}):
        return message.text
    assert message.text.startswith(with_label(""))
    return message.text.removeprefix(with_label(""))


class TestCompaction:
    """Compacting, several rounds, undoing."""

    def test_a_summary_replaces_messages(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        before = session.revision
        compaction = session.compact(before=7, summary="so far")
        assert (compaction.round, compaction.from_position, compaction.to_position, compaction.branch) == (1, 1, 6, 1)
        assert (compaction.tokens_before, compaction.summary, compaction.undone_at) == (60, "so far", None)
        assert compaction.tokens_after == 6
        assert session.revision == before + 1
        session = database.reopen().session("a")
        assert active_texts(session) == ["so far", "m7", "m8", "m9", "m10"]
        assert texts(session) == [f"m{n}" for n in range(1, 11)]
        assert session.message(3).text == "m3"
        assert session.history("openai")[0] == user(with_label("so far"))
        assert session.history("openai").repairs == []
        assert session.active_tokens() == 46 + LABEL_TOKENS
        assert session.compactions.latest() == compaction
        assert session.compactions.list() == [compaction]
        check_counts(session)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_summary_is_labeled_in_every_format(self, store: Store, format: Format):
        session = new_session(store)
        session.compact(before=7, summary="so far")
        first = list(_strings(session.history(format)[0]))
        assert first.count(with_label("so far")) == 1  # a text of its own, not joined with its neighbors
        assert not any("so far" in text and text != with_label("so far") for text in first)

    def test_the_newest_turns_are_not_compacted(self, store: Store):
        session = new_session(store)
        assert session.compact(summary="s", tokens=3).to_position == 6
        assert session.active_tokens() == 43 + LABEL_TOKENS
        assert session.compact(summary="all", keep_turns=0).to_position == 10
        assert active_texts(session) == ["all"]
        session.append(user("on"))
        assert active_texts(session) == ["all", "on"]

    @pytest.mark.parametrize("before", [5, "1.5"])
    def test_before_accepts_a_position_an_id_and_a_message(self, store: Store, before: Any):
        session = new_session(store)
        assert session.compact(before=before, summary="s").to_position == 4
        with pytest.raises(InvalidValue, match="nothing to compact"):
            session.compact(before=session.message(5), summary="s")
        for unknown in (11, "2.1", "1.99"):
            with pytest.raises(MessageNotFound):
                session.compact(before=unknown, summary="s")
        assert len(session.compactions.list()) == 1

    def test_rounds_and_undo(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        first = session.compact(before=5, summary="one")
        second = session.compact(before=9, summary="two")
        assert (second.round, second.from_position, second.to_position) == (2, 1, 8)
        assert second.tokens_before == 40 + first.tokens_after + LABEL_TOKENS
        assert active_texts(session) == ["two", "m9", "m10"]
        undone = session.compactions.undo()
        assert (undone.round, undone.undone_at is not None) == (2, True)
        assert active_texts(session) == ["one", "m5", "m6", "m7", "m8", "m9", "m10"]
        assert session.compactions.latest() == first
        assert session.compactions.undo(round=2) == undone
        assert session.compact(before=7, summary="three").round == 3
        session.compactions.undo(1)
        assert active_texts(session) == ["three", "m7", "m8", "m9", "m10"]
        session.compactions.undo()
        session = database.reopen().session("a")
        assert active_texts(session) == texts(session)
        assert session.compactions.latest() is None
        assert [item.round for item in session.compactions.list()] == [1, 2, 3]
        with pytest.raises(CompactionNotFound):
            session.compactions.undo()
        with pytest.raises(CompactionNotFound):
            session.compactions.undo(round=4)

    def test_a_function_returns_the_summary(self, store: Store):
        session = new_session(store)
        session.compact(before=3, summary="first")
        received: list[Any] = []

        def summarize(messages: list[Any]) -> str:
            received.extend(without_label(message) for message in messages)
            session.append(user("meanwhile"))
            return "computed"

        assert session.compact(before=7, summarize=summarize).summary == "computed"
        assert received == ["first", "m3", "m4", "m5", "m6"]
        assert active_texts(session) == ["computed", "m7", "m8", "m9", "m10", "meanwhile"]

    def test_nothing_is_written_if_the_function_fails(self, store: Store):
        session = new_session(store)

        def summarize(_: list[Any]) -> str:
            raise RuntimeError("no model")

        with pytest.raises(RuntimeError):
            session.compact(summarize=summarize)
        for wrong in ("", " ", None, 7, "half \ud800", "nul \0"):
            with pytest.raises(InvalidValue):
                session.compact(summarize=lambda _, result=wrong: result)
        for arguments in ({}, {"summary": "s", "summarize": summarize}, {"summary": ""}):
            with pytest.raises(InvalidValue):
                session.compact(**arguments)  # type: ignore[arg-type]
        for arguments in ({"tokens": -1}, {"keep_turns": -1}, {"tokens": "3"}):
            with pytest.raises(InvalidValue):
                session.compact(summary="s", **arguments)  # type: ignore[arg-type]
        assert session.compactions.list() == []
        assert active_texts(session) == texts(session)

    def test_concurrent_compactions_conflict(self, store: Store):
        session = new_session(store)

        def summarize(_: list[Any]) -> str:
            session.compact(before=3, summary="faster")
            return "slower"

        with pytest.raises(CompactionConflict):
            session.compact(before=7, summarize=summarize)
        assert [item.summary for item in session.compactions.list()] == ["faster"]

    def test_compaction_applies_to_the_branch_on_which_it_started(self, store: Store):
        session = new_session(store)

        def summarize(_: list[Any]) -> str:
            session.rewind(4).append(user("elsewhere"))
            return "s"

        session.compact(before=7, summarize=summarize)
        assert active_texts(session) == ["m1", "m2", "m3", "m4", "elsewhere"]
        assert active_texts(session.branches.switch(1)) == ["s", "m7", "m8", "m9", "m10"]

    def test_a_session_in_the_trash_is_not_compacted(self, store: Store):
        session = new_session(store)

        def summarize(_: list[Any]) -> str:
            store.delete_session("a")
            return "s"

        with pytest.raises(SessionInTrash):
            session.compact(summarize=summarize)
        assert store.restore_session("a").compactions.list() == []

    def test_appends_during_compaction_are_kept_and_not_replaced(self, store: Store):
        session = new_session(store, count=40)
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
        all_texts = texts(session)
        assert len(all_texts) == 40 + 45 + 5
        last = session.compactions.latest()
        assert last is not None
        assert active_texts(session) == ["s4", *all_texts[last.to_position :]]
        session.refresh()
        check_counts(session)

    def test_calls_keep_their_results(self, store: Store):
        session = store.session("a")
        session.append(
            [
                user("q"),
                tool_call_message("t", "u"),
                tool_result_message("t"),
                tool_result_message("u"),
                assistant("r"),
                user("q2"),
            ]
        )
        assert session.compact(before=4, summary="s").to_position == 1
        assert session.history("anthropic")[1] == tool_call_message("t", "u")
        assert session.compact(before=5, summary="s").to_position == 4
        assert session.history("openai") == [user(with_label("s")), assistant("r"), user("q2")]
        assert session.history("openai").repairs == []

    def test_instructions_and_pinned_messages_are_not_replaced(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([{"role": "system", "content": "rules"}, *numbered_messages(6)])
        session.mark_message(4, {"pinned": True})
        compaction = session.compact(before=6, summary="s")
        assert (compaction.from_position, compaction.to_position) == (2, 5)
        assert active_texts(session) == ["rules", "s", "m3", "m5", "m6"]
        session.mark_message(4, {"pinned": None})
        assert active_texts(database.reopen().session("a")) == ["rules", "s", "m5", "m6"]

    def test_deleted_messages(self, store: Store):
        session = new_session(store)
        session.delete_messages([2])
        assert session.compact(before=5, summary="s").tokens_before == 30
        session.restore_messages([2])
        assert active_texts(session) == ["s", *(f"m{n}" for n in range(5, 11))]
        session.compactions.undo()
        assert active_texts(session)[:3] == ["m1", "m2", "m3"]

    def test_the_last_active_messages(self, store: Store):
        session = new_session(store)
        session.compact(before=7, summary="s")
        assert [m.text for m in session.messages(3, active=True)] == ["m8", "m9", "m10"]
        assert [without_label(m) for m in session.messages(99, active=True)] == ["s", "m7", "m8", "m9", "m10"]
        assert [without_label(m) for m in session.messages(before=9, active=True)] == ["s", "m7", "m8"]
        assert session.messages(0, active=True) == []


class TestCompactionOnBranches:
    """Branches and forks have their own compactions."""

    def test_a_fork_inherits_compactions_and_is_independent_afterwards(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        session.compact(before=5, summary="shared")
        fork = session.fork(8, id="f")
        assert active_texts(fork) == ["shared", "m5", "m6", "m7", "m8"]
        fork.compact(before=7, summary="fork's")
        assert active_texts(session) == ["shared", *(f"m{n}" for n in range(5, 11))]
        session.compact(before=9, summary="origin's")
        session.compactions.undo(1)
        fork.compactions.undo()
        store = database.reopen()
        assert active_texts(store.session("f")) == ["shared", "m5", "m6", "m7", "m8"]
        assert active_texts(store.session("a")) == ["origin's", "m9", "m10"]
        assert store.session("f").compact(before=8, summary="x").round == 3

    def test_a_fork_inside_a_compacted_range_has_the_messages(self, store: Store):
        session = new_session(store)
        session.compact(before=3, summary="one")
        session.compact(before=9, summary="two")
        assert active_texts(session.fork(4)) == ["one", "m3", "m4"]
        assert active_texts(session.rewind(2)) == ["one"]
        assert active_texts(session.rewind("1.10")) == ["two", "m9", "m10"]

    def test_a_compacted_range_over_several_branches(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store, count=4)
        session.rewind(2).append(numbered_messages(3, first=13))
        compaction = session.compact(before="2.5", summary="s")
        assert (compaction.branch, compaction.from_position, compaction.to_position) == (2, 1, 4)
        session = database.reopen().session("a")
        assert active_texts(session) == ["s", "m15"]
        assert active_texts(session.branches.switch(1)) == ["m1", "m2", "m3", "m4"]
        assert session.compactions.list() == []

    def test_compactions_remain_after_the_origin_is_erased(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        session.compact(before=5, summary="shared")
        session.fork(8, id="f")
        store.erase_session("a", forks="keep")
        fork = database.reopen().session("f")
        assert active_texts(fork) == ["shared", "m5", "m6", "m7", "m8"]
        fork.compactions.undo()
        assert len(active_texts(fork)) == 8


class TestSnapshots:
    """Titles, summaries and memories, each with the last message that it covers."""

    def test_a_snapshot_is_stored_with_the_last_message_that_it_covers(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        before = session.revision
        title = session.snapshots.add("title", "Numbers")
        assert (title.kind, title.content, title.message) == ("title", "Numbers", "1.10")
        assert session.revision > before
        memory = session.snapshots.add("memory", {"facts": [1, None, "\ud800"]}, at=3, tokens=7)
        assert (memory.message, memory.tokens) == ("1.3", 7)
        session = database.reopen().session("a")
        assert session.snapshots.list() == [title, memory]
        assert session.snapshots.list("memory") == [memory]
        assert session.snapshots.list(kind="summary") == []

    def test_a_message_has_one_snapshot_of_each_kind(self, store: Store):
        session = new_session(store)
        first = session.snapshots.add("summary", "one")
        snapshot = session.snapshots.add("summary", "two")
        assert (snapshot.id, snapshot.content, snapshot.created_at) == (first.id, "two", first.created_at)
        session.append(user("more"))
        assert session.snapshots.add("summary", "three").id != first.id
        assert [item.content for item in session.snapshots.list()] == ["two", "three"]

    def test_snapshots_of_an_empty_session_and_of_other_branches(self, store: Store):
        session = store.session("a")
        assert session.snapshots.add("title", "New").message is None
        session.append(numbered_messages(4))
        session.snapshots.add("title", "Four")
        session.rewind(2)
        session.snapshots.add("title", "Two")
        assert [item.message for item in session.snapshots.list()] == [None, "1.4", "1.2"]
        assert session.fork().snapshots.list() == []

    def test_invalid_snapshots(self, store: Store):
        session = new_session(store)
        for kind, content, more in (("name", "x", {}), ("title", b"x", {}), ("title", "x", {"tokens": -1})):
            with pytest.raises(InvalidValue):
                session.snapshots.add(kind, content, **more)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            session.snapshots.list("name")  # type: ignore[arg-type]
        with pytest.raises(MessageNotFound):
            session.snapshots.add("title", "x", at=99)
        assert session.snapshots.list() == []
