"""Messages: append one or many, read, count, page."""

from __future__ import annotations

from typing import Any, cast

import pytest

from recollect.errors import (
    AmbiguousFormat,
    BranchNotFound,
    InvalidValue,
    KeyReused,
    MessageNotFound,
    SessionNotFound,
    StaleRevision,
    UnknownFormat,
)
from recollect.model.message import DataPart, Draft, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import NAN, assistant, check_counts, numbered_messages, texts, user

_WRONG_TYPES = [
    Draft(role="robot", parts=(TextPart(text="x"),)),  # type: ignore[arg-type]
    Draft(role="user", parts=(TextPart(text=5),)),  # type: ignore[arg-type]
    Draft(role="user", parts=(ToolCallPart(call_id=5, tool="t", arguments={}),)),  # type: ignore[arg-type]
    Draft(role="tool", parts=(ToolResultPart(call_id="c", text="x", error_code=5),)),  # type: ignore[arg-type]
    Draft(role="user", parts=(DataPart(data=object()),)),
    Draft(role="user", parts=(DataPart(data=NAN),)),
    Draft(role="user", metadata={"x": NAN}),
    Draft(role="user", metadata={"x": object()}),
    Draft(role="user", error=object()),
    Draft(role="user", tokens="many"),  # type: ignore[arg-type]
    Draft(role="user", tokens=-1),
    Draft(role="user", tokens=2**70),
    Draft(role="user", state="odd"),  # type: ignore[arg-type]
    Draft(role="user", model=5),  # type: ignore[arg-type]
]
_INVALID_MESSAGES: list[Any] = [
    [], "text alone", 5, None, b"x", {}, {"content": "x"}, {"role": "robot", "content": "x"},
    {"role": "user", "content": "x", "who": "ann"}, {"role": 5, "content": "x"}, object(), [user("x"), "y"],
]  # fmt: skip
_INVALID_KEYS: list[Any] = ["", 5, b"k", "\ud800"]


class TestAppend:
    """Appending to a session."""

    def test_append_one_and_many(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        first = session.append(user("m1"))
        more = session.append(numbered_messages(3, first=2))
        assert (first.ids, first.count, first.repeated) == (["1.1"], 1, False)
        assert more.ids == ["1.2", "1.3", "1.4"]
        assert more.revision == session.revision > first.revision
        check_counts(session)
        new_session = database.reopen().session("a")
        assert texts(new_session) == ["m1", "m2", "m3", "m4"]
        assert [message.position for message in new_session.messages()] == [1, 2, 3, 4]
        assert [message.role for message in new_session.messages()] == ["user", "assistant", "user", "assistant"]

    def test_any_iterable_of_messages(self, store: Store):
        session = store.session("a")
        session.append(tuple(numbered_messages(2)))
        session.append(iter(numbered_messages(2, first=3)))
        assert texts(session) == ["m1", "m2", "m3", "m4"]

    def test_fields_of_a_message(self, store: Store):
        session = store.session("a")
        session.append({"role": "user", "content": "hi", "metadata": {"x": 1}, "tokens": 9, "model": "m"})
        message = session.messages()[0]
        assert (message.id, message.branch, message.position, message.role) == ("1.1", 1, 1, "user")
        assert (message.text, message.state, message.turn, message.metadata) == ("hi", "completed", None, {"x": 1})
        assert (message.tokens, message.model, message.deleted_at) == (9, "m", None)
        assert message.completed_at == message.created_at
        assert message["role"] == "user"
        assert message.get("nothing", 5) == 5
        assert dict(message)["id"] == "1.1"
        assert Message.from_json(message.to_json()) == message
        assert session.token_count == 9

    def test_a_message_may_be_older_than_its_store(self, store: Store):
        session = store.session("a")
        session.append({"role": "user", "content": "hi", "created_at": "2020-01-02T03:04:05.678Z"})
        assert session.messages()[0].to_dict()["created_at"] == "2020-01-02T03:04:05.678Z"

    def test_drafts_and_parts(self, store: Store, database: DatabaseUnderTest):
        parts = (
            ReasoningPart(text="hm"),
            TextPart(text="hello", metadata={"n": 1}),
            ToolCallPart(call_id="c", tool="t", arguments={"x": None}),
            DataPart(data={"k": [1]}),
        )
        session = store.session("a")
        session.append(Draft(role="assistant", parts=parts, metadata={"y": 2}, tokens=3, model="m"))
        session.append(Draft(role="tool", parts=(ToolResultPart(call_id="c", data=[1, 2], status="error"),)))
        new_session = database.reopen().session("a")
        assert new_session.messages()[0].parts == parts
        assert new_session.messages()[0].reasoning == "hm"
        assert new_session.messages()[0].tool_calls == parts[2:3]
        assert new_session.messages()[1].tool_results[0].data == [1, 2]
        other = new_session.store.session("b")
        other.append(new_session.messages())
        assert [m.parts for m in other.messages()] == [m.parts for m in new_session.messages()]

    def test_a_key_is_written_once(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        first = session.append(numbered_messages(2), key="k")
        second = session.append(numbered_messages(2), key="k")
        assert (second.ids, second.repeated) == (first.ids, True)
        session.append(user("m3"))
        later = database.reopen().session("a")
        third = later.append(numbered_messages(2), key="k")
        assert (third.ids, third.repeated) == (first.ids, True)
        assert texts(later) == ["m1", "m2", "m3"]
        check_counts(later)

    @pytest.mark.parametrize(
        "other", [user("other"), [user("m1"), assistant("m2")], assistant("m1"), {**user("m1"), "metadata": {"a": 1}}]
    )
    def test_a_key_with_other_content_is_refused(self, store: Store, other: Any):
        session = store.session("a")
        session.append(user("m1"), key="k")
        with pytest.raises(KeyReused) as excinfo:
            session.append(other, key="k")
        assert "'k'" in str(excinfo.value)
        assert texts(session) == ["m1"]
        check_counts(session)

    def test_a_key_belongs_to_its_session(self, store: Store):
        first, second = store.session("a"), store.session("b")
        first.append(user("one"), key="k")
        second.append(user("two"), key="k")
        fork = first.fork(id="c")
        fork.append(user("three"), key="k")
        assert [texts(s) for s in (first, second, fork)] == [["one"], ["two"], ["one", "three"]]

    def test_a_key_applies_to_every_branch(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
        session.append(user("once"), key="k")
        session.rewind(1)
        assert session.append(user("once"), key="k").ids == ["1.3"]
        assert texts(session) == ["m1"]

    def test_a_repeated_key_ignores_the_expected_revision(self, store: Store):
        session = store.session("a")
        before = session.revision
        session.append(user("m1"), key="k", expected=before)
        assert session.append(user("m1"), key="k", expected=before).repeated

    def test_invalid_keys(self, store: Store):
        session = store.session("a")
        for key in _INVALID_KEYS:
            with pytest.raises(InvalidValue):
                session.append(user("x"), key=key)
            assert texts(session) == [], key

    def test_a_stale_revision_writes_nothing(self, store: Store):
        mine, theirs = store.session("a"), store.session("a")
        theirs.append(user("theirs"))
        with pytest.raises(StaleRevision) as excinfo:
            mine.append(numbered_messages(2), expected=mine.revision, key="k")
        assert excinfo.value.fields["expected"] == mine.revision
        assert texts(mine) == ["theirs"]
        mine.refresh()
        mine.append(user("mine"), expected=mine.revision, key="k")
        assert texts(theirs) == ["theirs", "mine"]

    def test_a_missing_session(self, store: Store):
        session = store.session("a")
        store.erase_session("a")
        with pytest.raises(SessionNotFound):
            session.append(user("x"))
        with pytest.raises(SessionNotFound):
            session.append(user("x"), key="k", expected=3)
        assert store.get_session("a") is None

    def test_invalid_messages_are_refused_and_nothing_is_written(self, store: Store):
        session = store.session("a")
        for invalid in _INVALID_MESSAGES:
            with pytest.raises(InvalidValue):
                session.append(invalid)
            assert session.refresh().message_count == 0, invalid
            assert texts(session) == [], invalid

    def test_unknown_and_ambiguous_formats(self, store: Store):
        session = store.session("a")
        with pytest.raises(UnknownFormat, match="anthropic"):
            session.append(user("x"), format="nobody")  # pyright: ignore[reportArgumentType]
        with pytest.raises(UnknownFormat):
            session.history("nobody")  # pyright: ignore[reportArgumentType]
        with pytest.raises(AmbiguousFormat):
            session.append({"role": "user", "content": [{"type": "mystery"}]})
        assert texts(session) == []

    def test_a_value_of_the_wrong_type_is_refused_before_it_is_stored(self, store: Store):
        session = store.session("a")
        session.append(user("before"))
        for draft in _WRONG_TYPES:
            with pytest.raises(InvalidValue):
                session.append(draft)
            assert texts(session) == ["before"], draft

    def test_counts_and_tokens_equal_the_sums_over_the_messages(self, store: Store):
        session = store.session("a")
        session.append([{**user("x"), "tokens": 5, "input_tokens": 2}, {**assistant("y"), "output_tokens": 7}])
        session.append(user("some longer text with é and 🤖"))
        check_counts(session)
        assert session.input_tokens == 2
        assert session.output_tokens == 7
        session.delete_messages([1])
        check_counts(session)
        session.restore_messages([1])
        check_counts(session)
        session.rewind(1)
        check_counts(session)
        check_counts(session.fork())

    def test_large_and_unusual_texts(self, store: Store, database: DatabaseUnderTest):
        unusual_texts = [
            "",
            " ",
            "\0",
            "a\0b",
            "\ud800",
            "\udfff x",
            "é🤖\u2028",
            "x" * 300_000,
            "\\u0000",
            '{"$blob": 1}',
        ]
        store.session("a").append([user(text) for text in unusual_texts])
        assert texts(database.reopen().session("a")) == unusual_texts


class TestRead:
    """Reading all messages, the last ones, a page, one."""

    def test_the_last_messages(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(5))
        for n in range(8):
            assert [m.text for m in session.messages(last=n)] == [f"m{k}" for k in range(1, 6)][-n:] * (n > 0)
        with pytest.raises(InvalidValue):
            session.messages(last=-1)

    def test_a_page_before_a_message(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(6))
        assert [m.text for m in session.messages(last=2, before=5)] == ["m3", "m4"]
        assert [m.text for m in session.messages(last=2, before="1.5")] == ["m3", "m4"]
        assert [m.text for m in session.messages(last=9, before="1.3")] == ["m1", "m2"]
        assert [m.text for m in session.messages(before=4)] == ["m1", "m2", "m3"]
        assert session.messages(last=2, before=1) == []
        with pytest.raises(InvalidValue):
            session.messages(last=2, before="nothing")

    def test_pages_go_back_through_branches_to_the_beginning(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(5))
        session.rewind(3)
        session.append(numbered_messages(4, first=14))
        session.rewind("2.5")
        session.append(numbered_messages(3, first=26))
        fork = session.fork()
        fork.append(numbered_messages(2, first=39))
        expected = texts(fork)
        assert expected == ["m1", "m2", "m3", "m14", "m15", "m26", "m27", "m28", "m39", "m40"]
        for size in (1, 2, 3, 4, 7, 10, 11):
            texts_read: list[str] = []
            page = fork.messages(last=size)
            while page:
                texts_read = [m.text for m in page] + texts_read
                page = fork.messages(last=size, before=page[0].id)
            assert texts_read == expected

    def test_deleted_messages_are_omitted_unless_requested(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(5))
        session.delete_messages([2])
        session.delete_messages(["1.4"])
        assert texts(session) == ["m1", "m3", "m5"]
        assert [m.text for m in session.messages(last=2)] == ["m3", "m5"]
        assert [m.text for m in session.messages(last=2, deleted=True)] == ["m4", "m5"]
        assert [m.text for m in session.messages(deleted=True)] == ["m1", "m2", "m3", "m4", "m5"]

    def test_one_message_by_its_id(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        session.rewind(1)
        session.append(user("other"))
        assert session.message(1).text == "m1"
        assert session.message(2).text == "other"
        assert session.message("2.2").text == "other"
        assert session.message("1.3").text == "m3"
        session.delete_messages(["1.3"])
        assert session.message("1.3").deleted_at is not None
        missing = (3, 0, 99, "1.4", "1.0", "2.1", "3.1", "2.3", f"{10**30}.1", f"1.{10**30}", 10**30)
        for id in missing:
            with pytest.raises(MessageNotFound):
                session.message(id)
        for invalid in ("x", "", "1", "1.", ".1", "1.2.3", "-1.1", -1, True, 1.5, None):
            with pytest.raises(InvalidValue):
                session.message(invalid)  # type: ignore[arg-type]

    def test_more_messages_than_a_page_with_deleted_messages(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2_001))
        for position in (1, 1_000, 1_001, 2_000, 2_001):
            session.delete_messages([position])
        expected = [f"m{n}" for n in range(1, 2_002) if n not in (1, 1_000, 1_001, 2_000, 2_001)]
        assert texts(session) == expected

    def test_a_branch_is_read_in_pages(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(1_203))
        session.delete_messages([5])
        session.rewind(2)
        session.append([user("other"), user("last")])
        first, second = session.branches.list()
        assert texts(session) == ["m1", "m2", "other", "last"]
        assert session.messages(branch=second) == session.messages()
        assert [m.text for m in session.messages(branch=1)] == [f"m{n}" for n in range(1, 1_204) if n != 5]
        assert len(session.messages(branch=first, deleted=True)) == 1_203
        assert [m.text for m in session.messages(2, branch=1)] == ["m1202", "m1203"]
        assert [m.text for m in session.messages(branch=1, after=3, limit=2)] == ["m4", "m6"]
        assert [m.text for m in session.messages(branch=1, before="1.3", limit=1)] == ["m2"]
        assert [m.text for m in session.messages(branch=2, after="1.2")] == ["other", "last"]
        with pytest.raises(MessageNotFound):
            session.messages(branch=2, after="1.9")
        for missing in (3, 0, -1, 10**30, True):
            with pytest.raises(BranchNotFound):
                session.messages(branch=missing)
        with pytest.raises(InvalidValue, match="branch must not be combined with active"):
            session.messages(branch=1, active=True)

    def test_a_budget_of_the_model_visible_messages(self, store: Store):
        session = store.session("a")
        session.append({"role": "system", "content": "sys", "tokens": 1})
        for n in range(1, 4):
            session.append([{**user(f"q{n}"), "tokens": 10}, {**assistant(f"r{n}"), "tokens": 10}])
        for budget in (61, 41, 40, 0):
            visible = session.messages(active=True, budget=budget)
            assert [m.text for m in visible] == [m["content"] for m in session.history("openai", budget=budget)]
        session.compact(before=4, summary="short", tokens=1)
        system, summary, *_ = session.messages(active=True, budget=10**6)
        assert (system.text, summary.text.endswith("short"), summary.metadata) == ("sys", True, {"compaction": 1})
        for arguments in ({}, {"active": True, "last": 1}, {"active": True, "branch": 1}, {"active": True, "after": 0}):
            with pytest.raises(InvalidValue, match="budget must be passed with active=True"):
                session.messages(budget=5, **cast("Any", arguments))
        with pytest.raises(InvalidValue, match="budget must be"):
            session.messages(active=True, budget=-1)

    def test_an_append_is_found_by_its_key(self, store: Store):
        session = store.session("a")
        assert session.find_append("k") is None
        appended = session.append([user("1"), user("2")], key="k")
        revision = session.revision
        for messages in (None, [user("1"), user("2")]):
            result = session.find_append("k", messages)
            assert result is not None
            assert (result.ids, result.repeated) == (appended.ids, True)
        with pytest.raises(KeyReused):
            session.find_append("k", user("1"))
        turn = session.turn("q", key="t")
        result = session.find_append("t", user("q"))
        assert result is not None
        assert result.ids == [turn.id]
        turn.complete()
        assert (session.fork().find_append("k"), session.refresh().revision > revision) == (None, True)

    def test_a_budget_omits_the_oldest_turns(self, store: Store):
        session = store.session("a")
        session.append({"role": "system", "content": "sys", "tokens": 1})
        for n in range(1, 4):
            session.append([{**user(f"q{n}"), "tokens": 10}, {**assistant(f"r{n}"), "tokens": 10}])
        assert [m["content"] for m in session.history("openai", budget=41)] == ["sys", "q2", "r2", "q3", "r3"]
        assert [m["content"] for m in session.history("openai", budget=40)] == ["sys", "q3", "r3"]
        assert [m["content"] for m in session.history("openai", budget=0)] == ["sys", "q3", "r3"]
        assert len(session.history("openai", budget=61)) == 7
        assert session.history("openai").repairs == []
