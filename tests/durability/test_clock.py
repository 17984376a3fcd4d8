"""A clock that jumps, back by years or ahead: order is a position and never a time, and nobody is locked out."""

from __future__ import annotations

import time

import pytest

import recollect

DAY = 86_400 * 1_000_000_000


@pytest.fixture
def clock(monkeypatch):
    """Give what sets the clock off by so many days."""
    real = time.time_ns
    off = [0.0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(off[0] * DAY))
    monkeypatch.setattr(time, "time", lambda: (real() + int(off[0] * DAY)) / 1e9)

    def jump(days: float) -> None:
        off[0] = days

    return jump


def said(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


JUMPS = [0, -1, -400, 30, -9_000, 0.01, -0.01, 3_000, -1]


def test_messages_keep_their_order(path, clock, sound):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        for number, days in enumerate(JUMPS):
            clock(days)
            session.append([said(number), said(f"{number}+")])
        expected = [text for number in range(len(JUMPS)) for text in (f"{number}", f"{number}+")]
        assert [message.text for message in session.messages()] == expected
        assert [message["content"] for message in session.history("openai")] == expected
        assert [message.position for message in session.messages(last=5)] == list(range(14, 19))
        assert store.check().problems == ()
        assert len(store.search("8")) == 2
    sound(path)


def test_pages_of_a_list_skip_and_repeat_nothing(path, clock):
    with recollect.open(path) as store:
        for number in range(30):
            clock(JUMPS[number % len(JUMPS)])
            store.create_session(id=f"s{number}").append(said(number))
        seen, page = [], store.list_sessions(7)
        while True:
            seen += [session.id for session in page]
            if page.next is None:
                break
            clock(JUMPS[len(seen) % len(JUMPS)])
            page = store.list_sessions(7, after=page.next)
        assert sorted(seen) == sorted(f"s{number}" for number in range(30))


def test_a_turn_goes_on_and_ends(path, clock):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        for days in JUMPS:
            clock(0)
            with session.turn("question") as turn:
                clock(days)
                turn.add({"role": "assistant", "content": "step"})
                with turn.stream() as stream:
                    clock(-days)
                    stream.write("answer")
        turns = session.turns()
        assert [turn.status for turn in turns] == ["completed"] * len(JUMPS)
        assert all(turn.latency_ms is None or turn.latency_ms >= 0 for turn in turns)


@pytest.mark.parametrize("days", [-400, -1, 400])
def test_the_turn_of_a_process_that_was_killed_locks_nobody_out(path, clock, spawn, days):
    child = spawn("hold", path, "cli:a")
    assert child.stdout.readline() == b"open\n"
    child.kill()
    child.wait()
    clock(days)
    with recollect.open(path) as store:
        session = store.session("cli:a")
        with session.turn("next", wait=0) as turn:
            turn.add({"role": "assistant", "content": "yes"})
        assert [turn.status for turn in session.turns()] == ["interrupted", "completed"]


def test_nothing_expires_because_the_clock_was_wrong_for_a_moment(path, clock):
    with recollect.open(path) as store:
        clock(-3_000)
        store.session("cli:old").append(said("written with a wrong clock"))
        clock(0)
        store.session("cli:new").append(said("now"))
        assert {session.id for session in store.list_sessions()} == {"cli:old", "cli:new"}
        store.delete_session("cli:new")
        clock(-30)
        store.restore_session("cli:new")
        assert [message.text for message in store.session("cli:new").messages()] == ["now"]
        assert store.prune(older_than="1d", dry_run=True).dry_run
