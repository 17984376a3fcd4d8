"""Pages: messages after and before a message or a time, and the last messages of a history."""

from __future__ import annotations

import datetime
import itertools
import threading
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from recollect.errors import InvalidValue, MessageNotFound, SessionNotFound
from recollect.model.message import BuiltInFormat, Message
from recollect.store import Session, Store
from recollect_conformance.examples import (
    RESPONSES_ITEMS,
    assistant,
    numbered_messages,
    tool_call_message,
    tool_result_message,
    user,
)

FORMATS: tuple[BuiltInFormat, ...] = get_args(BuiltInFormat)
SIZES = (1, 2, 3, 7, 100)


def session_with_branches(store: Store) -> Session:
    """Return a fork whose path has three branches, deleted messages, and times that do not rise."""
    session = store.session("a")
    session.append([{**message, "created_at": time(n)} for n, message in enumerate(numbered_messages(6), 10)])
    session.rewind(4)
    session.append([{**message, "created_at": time(n)} for n, message in enumerate(numbered_messages(4, first=15), 3)])
    session.rewind("2.7")
    fork = session.fork(id="b")
    fork.append([{**message, "created_at": time(12)} for message in numbered_messages(3, first=28)])
    fork.delete_messages([2])
    fork.delete_messages(["2.6"])
    return fork


def time(minute: int) -> str:
    """Return a time as ISO 8601."""
    return f"2025-11-16T10:{minute:02d}:00.000Z"


def page_of(messages: Sequence[Message], last: int | None, limit: int | None, *, backward: bool) -> list[Message]:
    """Return the page of a list of messages."""
    size = last if last is not None else 500 if limit is None else limit
    if last is not None or backward:
        return list(messages[len(messages) - min(size, len(messages)) :])
    return list(messages[:size])


class TestPages:
    """Pages between cursors."""

    def test_pages_between_messages_equal_slices_of_the_list(self, store: Store):
        session = session_with_branches(store)
        for deleted in (False, True):
            everything = session.messages(deleted=deleted)
            path = session.messages(deleted=True)
            for after, before in itertools.product([None, *path], repeat=2):
                low = 0 if after is None else after.position
                high = 99 if before is None else before.position
                expected = [message for message in everything if low < message.position < high]
                for last, limit in ((None, None), (2, None), (None, 2), (0, None), (None, 0)):
                    if (last, limit, after, before) == (None, None, None, None):
                        continue
                    page = session.messages(last, after=after, before=before, limit=limit, deleted=deleted)
                    backward = after is None and before is not None
                    assert page == page_of(expected, last, limit, backward=backward), (after, before, last, limit)

    @pytest.mark.parametrize("active", [False, True])
    @pytest.mark.parametrize("size", SIZES)
    def test_walking_forward_and_backward_reads_every_message_once(self, store: Store, size: int, active: bool):
        session = session_with_branches(store)
        session.append([{**user("pinned"), "metadata": {"pinned": True}}, *numbered_messages(9, first=40)])
        session.compact(before=16, summary="s")
        assert len(session.messages(active=True)) < len(session.messages())
        everything = session.messages(active=active)
        forward: list[Message] = []
        page = session.messages(limit=size, active=active)
        while page:
            assert len(page) <= size
            forward += page
            page = session.messages(after=page[-1].id, limit=size, active=active)
        backward: list[Message] = []
        page = session.messages(size, active=active)
        while page:
            backward = page + backward
            page = session.messages(before=page[0], limit=size, active=active)
        assert forward == backward == everything

    def test_a_cursor_is_a_message_its_id_or_its_position(self, store: Store):
        session = session_with_branches(store)
        third = session.messages()[2]
        assert session.messages(after=third) == session.messages(after=third.id) == session.messages()[3:]
        assert session.messages(after=third.position) == session.messages()[3:]
        assert session.messages(before=third) == session.messages(before=third.id) == session.messages()[:2]
        assert session.messages(before=third.position) == session.messages()[:2]
        assert session.messages(after=0) == session.messages(limit=100) == session.messages(after=-0, before=99)
        assert session.messages(after=99) == session.messages(before=0) == session.messages(after=2**70) == []
        assert session.messages(before=2**70) == session.messages()

    def test_a_message_that_is_not_on_the_path_is_missing(self, store: Store):
        session = session_with_branches(store)
        for missing in (
            "1.5",
            "2.8",
            "3.7",
            "9.1",
            "1.0",
            "3.99",
            f"1.{2**40}",
            f"{2**40}.1",
            store.session("a").messages()[-1].id.replace("2.", "7."),
        ):
            for cursors in ({"after": missing}, {"before": missing}, {"after": 1, "before": missing}):
                for active in (False, True):
                    with pytest.raises(MessageNotFound):
                        session.messages(**cursors, active=active)  # pyright: ignore[reportArgumentType]
        deleted = session.message("2.6")
        assert [message.position for message in session.messages(after=deleted)][:1] == [7]

    def test_a_page_has_at_most_500_messages_unless_its_size_is_set(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(1_203))
        assert [message.text for message in session.messages(after=3)] == [f"m{n}" for n in range(4, 504)]
        assert [message.text for message in session.messages(before=1_200)] == [f"m{n}" for n in range(700, 1_200)]
        assert len(session.messages(after=3, active=True)) == len(session.messages(before=1_200, active=True)) == 500
        assert len(session.messages(after=0, limit=1_100)) == len(session.messages(1_100, before=1_203)) == 1_100
        assert session.messages(after=0, limit=10**9)[-1].text == "m1203"

    def test_invalid_arguments(self, store: Store):
        session = session_with_branches(store)
        for invalid in (
            "x",
            "",
            "1",
            "1.",
            ".1",
            "1.2.3",
            "-1.1",
            -1,
            True,
            1.5,
            b"1.1",
            [],
            {},
            "2025-13-01",
            object(),
        ):
            for name in ("after", "before"):
                with pytest.raises(
                    InvalidValue, match=f"^{name} must be a message, its id such as '1.17', a position, "
                ):
                    session.messages(**{name: invalid})  # pyright: ignore[reportArgumentType]
        for invalid in (-1, True, "5", 1.5):
            with pytest.raises(InvalidValue, match=r"^limit must be a non-negative integer"):
                session.messages(limit=invalid)  # pyright: ignore[reportArgumentType]
            with pytest.raises(InvalidValue, match=r"^last must be a non-negative integer"):
                session.messages(invalid)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidValue, match="last and limit must not be combined"):
            session.messages(1, limit=1)
        with pytest.raises(InvalidValue, match="must not be times with active=True"):
            session.messages(after=time(1), active=True)
        store.erase_session("b")
        with pytest.raises(SessionNotFound):
            session.messages(after=0)

    def test_messages_after_and_before_a_time(self, store: Store):
        session = session_with_branches(store)
        for deleted in (False, True):
            everything = session.messages(deleted=deleted)
            stamps = sorted({message.to_dict()["created_at"] for message in everything})
            for since, until in itertools.product([None, *stamps], repeat=2):
                if since is None and until is None:
                    continue
                expected = [
                    message
                    for message in everything
                    if (since is None or message.to_dict()["created_at"] > since)
                    and (until is None or message.to_dict()["created_at"] < until)
                ]
                for last, limit in ((None, None), (2, None), (None, 2)):
                    page = session.messages(last, after=since, before=until, limit=limit, deleted=deleted)
                    backward = since is None
                    assert page == page_of(expected, last, limit, backward=backward), (since, until, last, limit)

    def test_a_time_and_a_message_limit_the_same_page(self, store: Store):
        session = session_with_branches(store)
        everything = session.messages()
        later = [message for message in everything if message.to_dict()["created_at"] > time(10)]
        for cursor in everything:
            assert session.messages(after=time(10), before=cursor) == [m for m in later if m.position < cursor.position]
        assert later

    def test_forms_of_a_time(self, store: Store):
        session = store.session("a")
        for text, created in (("a", "10:00:00.001"), ("b", "10:00:00.002"), ("c", "10:00:00.003")):
            session.append({**user(text), "created_at": f"2025-11-16T{created}Z"})
        utc, day = datetime.UTC, datetime.datetime(2025, 11, 16, 10, 0)  # noqa: DTZ001  without a zone, it is UTC
        forms: list[tuple[Any, str, str]] = [
            ("2025-11-16T10:00:00.002Z", "c", "a"),
            ("2025-11-16T10:00:00.002", "c", "a"),
            ("2025-11-16T11:00:00.002+01:00", "c", "a"),
            ("20251116T100000.002Z", "c", "a"),
            (day.replace(microsecond=2_000), "c", "a"),
            (day.replace(microsecond=2_000, tzinfo=utc), "c", "a"),
            (day.replace(microsecond=2_001), "c", "ab"),
            (day.replace(microsecond=1_999), "bc", "a"),
            ("2025-11-16T10:00:00.001999Z", "bc", "a"),
            (datetime.date(2025, 11, 16), "abc", ""),
            (datetime.date(2025, 11, 17), "", "abc"),
            ("2025-11-16", "abc", ""),
        ]
        for form, after, before in forms:
            assert "".join(message.text for message in session.messages(after=form)) == after, form
            assert "".join(message.text for message in session.messages(before=form)) == before, form

    def test_new_messages_are_read_after_the_last_one(self, store: Store):
        session = store.session("a")
        session.append(user("m1"))
        cursor = session.messages()[-1]
        assert session.messages(after=cursor) == []
        session.append([assistant("m2"), user("m3")])
        assert [message.text for message in session.messages(after=cursor)] == ["m2", "m3"]
        session.rewind(1)
        session.append(assistant("other"))
        assert [message.text for message in session.messages(after=cursor)] == ["other"]
        with pytest.raises(MessageNotFound):
            session.messages(after="1.3")


class TestHistoryTail:
    """history(format, last=n) equals the end of the whole history without repair."""

    def check(self, session: Session) -> None:
        """Compare the end of the history with history(last=n), in every format and of every length."""
        for format in FORMATS:
            whole = session.history(format, repair=False)
            for last in range(len(whole) + 2):
                end = whole[max(len(whole) - last, 0) :]
                assert session.history(format, last=last) == end, (format, last)
                fast_tail = session.history(format, last=last, repair=False)
                assert (fast_tail, fast_tail.repairs) == (end, []), (format, last)

    def test_in_every_format(self, store: Store):
        session = store.session("a")
        self.check(session)
        for number in range(4):
            call = f"c{number}"
            session.append([user("q"), tool_call_message(call, f"d{number}"), tool_result_message(call)])
            session.tools.record_result(f"d{number}", {"n": number})
            session.append({"role": "assistant", "content": "a"})
        self.check(session)
        for item in RESPONSES_ITEMS:
            session.append(item, format="openai-responses")
        self.check(session)
        session.delete_messages([session.messages(last=1)[0].id])
        self.check(session)
        session.mark_message(3, {"pinned": True})
        session.compact(before=11, summary="s")
        self.check(session)
        fork = session.fork(at=14)
        fork.append([user("other"), assistant("answer")])
        fork.delete_messages([12])
        self.check(fork)
        fork.compactions.undo()
        self.check(fork)

    def test_a_pair_that_is_split_is_reported(self, store: Store):
        session = store.session("a")
        session.append([*numbered_messages(40), tool_call_message("x"), tool_result_message("x"), assistant("a")])
        (report,) = session.history("anthropic", last=2).repairs
        assert (report.kind, report.message, report.call_id) == ("split_pair", "1.42", "x")
        assert session.history("anthropic", last=3).repairs == []

    def test_a_message_with_a_large_attachment(self, store: Store):
        session = store.session("a")
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 8_000}}
        session.append([{"role": "user", "content": [image]}, *numbered_messages(3)], format="openai")
        self.check(session)
        assert session.history("openai", last=4)[0]["content"] == [image]

    def test_each_tail_is_a_state_that_the_session_had(self, store: Store):
        session = store.session("a")
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                call = f"c{number}"
                session.append([user(str(number)), tool_call_message(call), tool_result_message(call)])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(60):
                tail = session.history("anthropic", last=7)
                questions = [int(item["content"]) for item in tail if isinstance(item["content"], str)]
                assert questions == list(range(questions[0], questions[0] + len(questions))) if questions else not tail
                kinds = [item["content"][0]["type"] if isinstance(item["content"], list) else "text" for item in tail]
                assert kinds == (["text", "tool_use", "tool_result"] * 3)[-len(kinds) :] or not kinds
        finally:
            stop.set()
            writer.join()

    def test_invalid_arguments(self, store: Store):
        session = store.session("a")
        for invalid in (-1, True, "5", 1.5, 2**60):
            with pytest.raises(InvalidValue, match=r"^last must be a non-negative integer"):
                session.history("openai", last=invalid)  # pyright: ignore[reportArgumentType]
        combinations: list[dict[str, Any]] = [{"budget": 5}, {"limit": 5}, {"counter": len}]
        for others in combinations:
            with pytest.raises(InvalidValue, match="last must not be combined with"):
                session.history("openai", last=1, **others)
        store.erase_session("a")
        for last in (0, 1):
            with pytest.raises(SessionNotFound):
                session.history("openai", last=last)
