"""The clock jumps back or ahead, by minutes or years: messages are ordered by position, and no session stays locked."""

from __future__ import annotations

import time

import pytest

import recollect

DAY = 86_400 * 1_000_000_000  # nanoseconds


@pytest.fixture
def set_clock(monkeypatch):
    """Return a function that sets the clock ahead (or back) by a number of days."""
    real = time.time_ns
    offset_days = [0.0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(offset_days[0] * DAY))
    monkeypatch.setattr(time, "time", lambda: (real() + int(offset_days[0] * DAY)) / 1e9)

    def set_offset(days: float) -> None:
        offset_days[0] = days

    return set_offset


def user_message(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


JUMPS = [0, -1, -400, 30, -9_000, 0.01, -0.01, 3_000, -1]


def test_messages_keep_their_order_when_the_clock_jumps(path, set_clock, check_database):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        for number, days in enumerate(JUMPS):
            set_clock(days)
            session.append([user_message(number), user_message(f"{number}+")])
        expected = [text for number in range(len(JUMPS)) for text in (f"{number}", f"{number}+")]
        assert [message.text for message in session.messages()] == expected
        assert [message["content"] for message in session.history("openai")] == expected
        assert [message.position for message in session.messages(last=5)] == list(range(14, 19))
        assert store.maintenance.check().problems == ()
        assert len(store.search("8")) == 2
    check_database(path)


def test_pages_of_a_list_have_each_session_once_when_the_clock_jumps(path, set_clock):
    with recollect.open(path) as store:
        for number in range(30):
            set_clock(JUMPS[number % len(JUMPS)])
            store.session(id=f"s{number}").append(user_message(number))
        ids, page = [], store.list_sessions(7)
        while True:
            ids += [session.id for session in page]
            if page.next is None:
                break
            set_clock(JUMPS[len(ids) % len(JUMPS)])
            page = store.list_sessions(7, after=page.next)
        assert sorted(ids) == sorted(f"s{number}" for number in range(30))


def test_a_turn_completes_when_the_clock_jumps(path, set_clock):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        for days in JUMPS:
            set_clock(0)
            with session.turn("question") as turn:
                set_clock(days)
                turn.add({"role": "assistant", "content": "step"})
                with turn.stream() as stream:
                    set_clock(-days)
                    stream.write("answer")
        turns = session.turns.list()
        assert [turn.status for turn in turns] == ["completed"] * len(JUMPS)
        assert all(turn.latency_ms is None or turn.latency_ms >= 0 for turn in turns)


@pytest.mark.parametrize("days", [-400, -1, 400])
def test_a_killed_turn_is_interrupted_when_the_clock_jumps(path, set_clock, spawn, days):
    child = spawn("hold_turn", path, "cli:a")
    assert child.stdout.readline() == b"open\n"
    child.kill()
    child.wait()
    set_clock(days)
    with recollect.open(path) as store:
        session = store.session("cli:a")
        with session.turn("next", wait=0) as turn:
            turn.add({"role": "assistant", "content": "yes"})
        assert [turn.status for turn in session.turns.list()] == ["interrupted", "completed"]


def test_a_wrong_clock_deletes_nothing(path, set_clock):
    with recollect.open(path) as store:
        set_clock(-3_000)
        store.session("cli:old").append(user_message("written with a wrong clock"))
        set_clock(0)
        store.session("cli:new").append(user_message("now"))
        assert {session.id for session in store.list_sessions()} == {"cli:old", "cli:new"}
        store.delete_session("cli:new")
        set_clock(-30)
        store.restore_session("cli:new")
        assert [message.text for message in store.session("cli:new").messages()] == ["now"]
        assert store.maintenance.prune(older_than="1d", dry_run=True).dry_run
