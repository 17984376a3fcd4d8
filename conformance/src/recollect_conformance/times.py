"""Times: every time that a program reads is an aware datetime in UTC, and every kind of time can be passed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from recollect.errors import InvalidValue
from recollect.model.message import Draft
from recollect.model.times import TimeLike
from recollect.model.value import Value, to_datetime
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import assistant, texts, tool_call_message, user

_CREATED = datetime(2025, 11, 16, 10, 0, 0, 123_000, tzinfo=UTC)
_CREATED_MS = 1_763_287_200_123  # milliseconds since 1970
_EQUAL_TIMES: tuple[TimeLike, ...] = (
    _CREATED_MS,
    _CREATED,
    _CREATED.replace(microsecond=123_999),
    _CREATED.replace(tzinfo=None),
    _CREATED.astimezone(timezone(timedelta(hours=5, minutes=30))),
    "2025-11-16T10:00:00.123Z",
    "2025-11-16T11:00:00.123+01:00",
)


def _read_values(store: Store) -> Iterator[Value]:
    """Read a value of every kind that has times. Each time is set in at least one of them."""
    session = store.session("a", pinned=True, archived=True, title="heron")
    session.append([user("one"), tool_call_message("c")])
    session.tools.start("c")
    session.tools.record_result("c", "result")
    session.save_turn("question", assistant("answer"))
    session.replace_message("1.1", user("two"))
    session.delete_messages([1])
    session.compact(summary="so far")
    session.compactions.undo()
    session.snapshots.add("memory", "so far")
    session.presence.arrive("terminal")
    turn = session.turn("open")
    yield from (session.refresh().info, *session.messages(deleted=True), *session.tools.list(), *session.turns.list())
    yield from (
        *session.branches.list(),
        *session.compactions.list(),
        *session.snapshots.list(),
        *session.presence.list(),
    )
    yield session.records.put("kind", "key", 1)
    yield from store.search("heron", archived=True)
    turn.complete()
    store.delete_session("a")
    yield from (item.info for item in store.list_sessions(deleted=True, archived=None))
    store.session("b", title="heron").append(user("x"))
    yield from store.search("heron", deleted=True, archived=None)
    yield store.maintenance.prune(keep=0, dry_run=True)


def _time_names(value: Value) -> list[str]:
    """Return the names of the properties that are times."""
    return [name.removesuffix("_ms") for name in dir(type(value)) if name.endswith("_at_ms")]


class TestTimes:
    """Times are aware datetimes in UTC; JSON has ISO 8601."""

    def test_every_time_is_an_aware_datetime(self, store: Store):
        read_times: dict[tuple[str, str], bool] = {}
        for value in _read_values(store):
            plain = value.to_dict()
            for name in _time_names(value):
                time, milliseconds = getattr(value, name), getattr(value, f"{name}_ms")
                assert (time is None) == (milliseconds is None) == (plain[name] is None)
                key = type(value).__name__, name
                read_times[key] = read_times.get(key, False) or time is not None
                if time is not None:
                    assert type(time) is datetime
                    assert time.utcoffset() == timedelta(0)
                    assert time == to_datetime(milliseconds) == datetime.fromisoformat(plain[name])
            assert type(value).from_dict(plain) == value == pickle.loads(pickle.dumps(value))  # noqa: S301
        assert [key for key, is_set in read_times.items() if not is_set] == []
        kinds = {kind for kind, _ in read_times}
        assert kinds == {
            "SessionInfo", "Message", "ToolCall", "TurnInfo", "Branch", "Compaction", "Snapshot", "Presence", "Record",
            "Hit", "PruneReport",
        }  # fmt: skip

    def test_a_handle_has_the_times_of_its_session(self, store: Store):
        session = store.session("a", pinned=True)
        session.append(user("x"))
        for name in _time_names(session.info):
            assert getattr(session, name) == getattr(session.info, name)
        assert session.created_at <= session.active_at <= datetime.now(UTC)
        assert session.last_message_at is not None
        assert session.deleted_at is None

    def test_a_pruned_session(self, store: Store):
        store.session("a").append(user("x"))
        report = store.maintenance.prune(keep=0)
        assert report.oldest_at == report.newest_at == report.sessions[0].active_at
        assert report.sessions[0].active_at == to_datetime(report.sessions[0].active_at_ms)

    @pytest.mark.parametrize("time", _EQUAL_TIMES, ids=repr)
    def test_a_draft_accepts_every_kind_of_time(self, store: Store, database: DatabaseUnderTest, time: TimeLike):
        draft = Draft(role="user", created_at=time)
        assert (draft.created_at, draft.created_at_ms) == (_CREATED, _CREATED_MS)
        assert draft == Draft(role="user").replace(created_at=time) == draft.replace(created_at=draft.created_at)
        session = store.session("a")
        session.append(draft)
        for message in (session.messages()[0], database.reopen().session("a").messages()[0]):
            assert message.created_at == draft.created_at
            assert message.created_at is not None
            assert Draft(role="user", created_at=message.created_at) == draft

    def test_a_date_is_its_first_moment_in_utc(self, store: Store):
        session = store.session("a")
        session.append(Draft(role="user", created_at=date(2025, 11, 16)))
        assert session.messages()[0].created_at == datetime(2025, 11, 16, tzinfo=UTC)

    @pytest.mark.parametrize(
        "time", [-1, 1.5, True, "yesterday", "1969-12-31T23:59Z", 253_402_300_800_000, 1 << 53, object(), [], b"2025"]
    )
    def test_a_draft_with_an_invalid_time(self, store: Store, time: Any):
        with pytest.raises(InvalidValue, match=r"^created_at must be "):
            Draft(role="user", created_at=time)
        with pytest.raises(InvalidValue, match=r"^created_at must be "):
            Draft(role="user").replace(created_at=time)
        assert store.list_sessions() == []

    def test_the_last_time_of_the_calendar(self, store: Store):
        session = store.session("a")
        session.append(Draft(role="user", created_at="9999-12-31T23:59:59.999Z"))
        message = session.messages()[0]
        assert message.created_at == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
        assert message.to_dict()["created_at"] == "9999-12-31T23:59:59.999Z"

    def test_a_time_that_was_read_is_a_filter(self, store: Store):
        session: Session = store.session("a")
        session.append([Draft(role="user", created_at=number * 1000) for number in range(5)])
        times = [message.created_at for message in session.messages()]
        assert times == [to_datetime(number * 1000) for number in range(5)]
        assert [message.created_at for message in session.messages(after=times[0], before=times[3])] == times[1:3]
        assert texts(session) == [""] * 5
