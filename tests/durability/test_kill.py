"""kill -9 at any moment: what was acknowledged is there, once, and nobody is locked out."""

from __future__ import annotations

import random
import time

import pytest

import recollect
from recollect.errors import SessionBusy

KILLS = 8


def killed(child, seed: int) -> list[str]:
    """Let a child work for a moment, kill it, and give what it had acknowledged."""
    first = child.stdout.readline()
    assert first, child.stderr.read().decode()
    time.sleep(random.Random(seed).uniform(0.0, 0.12))
    child.kill()
    rest, trouble = child.communicate(timeout=30)
    assert trouble == b""
    lines = (first + rest).decode().splitlines()
    assert lines
    return lines


def texts(store, session: str) -> list[str]:
    return [message.text for message in store.session(session).messages()]


def test_single_appends(path, spawn, sound):
    expected: list[str] = []
    for seed in range(KILLS):
        acknowledged = killed(spawn("append", path, "cli:a", len(expected)), seed)
        expected += acknowledged
        with recollect.open(path) as store:
            found = texts(store, "cli:a")
        assert found[: len(expected)] == expected
        assert len(found) - len(expected) in (0, 1)  # the one that was on its way
        expected = found
        assert expected == [str(number) for number in range(len(expected))]
    sound(path)


def test_group_commit(path, spawn, sound):
    tasks, first = 8, 0
    for seed in range(KILLS):
        acknowledged: dict[str, int] = {}
        for line in killed(spawn("group", path, tasks, first), 100 + seed):
            name, number = line.split()
            acknowledged[name] = int(number)
        first += 10_000
        with recollect.open(path) as store:
            for name, number in acknowledged.items():
                found = [int(text) for text in texts(store, name) if int(text) >= first - 10_000]
                assert found == list(range(first - 10_000, first - 10_000 + len(found)))
                assert len(found) - 1 - (number - first + 10_000) in (0, 1)
    sound(path)


@pytest.mark.parametrize("what", ["turns", "stream"])
def test_open_turns(path, spawn, sound, what):
    first = 0
    for seed in range(KILLS):
        acknowledged = killed(spawn(what, path, "cli:a", first), 200 + seed)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            messages = [message for message in session.messages() if message.text.partition(" ")[0] != "next"]
            questions = [message.text for message in messages if message.text.endswith(" ask")]
            asked = [line for line in acknowledged if line.endswith(" ask")]
            assert len(questions) == len(set(questions))
            assert set(asked) <= set(questions)
            assert "open" not in {turn.status for turn in session.turns()}
            assert not [message.id for message in messages if message.state in ("streaming", "pending")]
            steps = {message.text for message in messages if message.text.endswith(" step")}
            assert {line for line in acknowledged if line.endswith(" step")} <= steps
            if what == "stream":
                chunks_are_there(session, messages, acknowledged)
            with session.turn("next one", wait=0) as turn:  # at once, without waiting for a lease
                turn.add({"role": "assistant", "content": "next answer"})
            assert session.turns()[-1].status == "completed"
        first = max(int(text.split()[0]) for text in questions) + 1
    sound(path)


def chunks_are_there(session, messages, acknowledged) -> None:
    """Every chunk that was stored is in the answer; an answer that was cut off says so."""
    stored = {}
    for line in acknowledged:
        number, what, *chunk = line.split()
        if what == "chunk":
            stored[number] = int(chunk[0])
    closed = {line.split()[0] for line in acknowledged if line.endswith(" closed")}
    for position, message in enumerate(messages):
        number = message.text.split()[0] if message.text.endswith(" ask") else None
        if number not in stored:
            continue
        answer = messages[position + 1]
        least = "".join(f"{chunk}," for chunk in range(stored[number] + 1))
        assert answer.text.startswith(least)
        assert answer.state == "completed" if number in closed else answer.state in ("interrupted", "completed")


@pytest.mark.parametrize("streaming", ["", "streaming"])
def test_a_killed_turn_is_interrupted_when_the_session_is_next_opened(path, spawn, streaming):
    child = spawn("hold", path, "cli:a", streaming)
    assert child.stdout.readline() == b"open\n"
    with recollect.open(path) as store:
        assert [turn.status for turn in store.session("cli:a").turns()] == ["open"]
        child.kill()
        child.wait()
        session = store.session("cli:a")
        (turn,) = session.turns()
        assert turn.status == "interrupted"
        assert turn.ended_at is not None
        assert [message.text for message in session.messages()] == ["mine", *(["half an"] if streaming else [])]
        assert session.messages()[-1].state == ("interrupted" if streaming else "completed")


def test_a_killed_turn_does_not_stand_in_the_way_of_an_open_handle(path, spawn):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        child = spawn("hold", path, "cli:a")
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(SessionBusy):
            session.turn("too early")
        child.kill()
        child.wait()
        with session.turn("now") as turn:
            turn.add({"role": "assistant", "content": "yes"})
        assert [turn.status for turn in session.turns()] == ["interrupted", "completed"]


def test_a_live_turn_of_a_live_process_is_never_touched(path, spawn):
    child = spawn("hold", path, "cli:a", "streaming")
    assert child.stdout.readline() == b"open\n"
    with recollect.open(path) as store:
        for _ in range(3):
            session = store.session("cli:a")
            with pytest.raises(SessionBusy) as caught:
                session.turn("mine too")
            assert str(child.pid) in caught.value.holder
        assert [turn.status for turn in session.turns()] == ["open"]
        assert session.messages()[-1].state == "streaming"
        assert session.message_count == 2  # what was refused is not half there
        fork = session.fork()
        with fork.turn("beside it") as turn:
            turn.add({"role": "assistant", "content": "yes"})
        child.stdin.write(b"end\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"done\n"
        session = store.session("cli:a")
        assert [turn.status for turn in session.turns()] == ["completed"]
        assert [message.text for message in session.messages()] == ["mine", "half an", "still mine"]
        with session.turn("after"):
            pass


def test_a_turn_waits_for_a_live_one(path, spawn):
    child = spawn("hold", path, "cli:a")
    assert child.stdout.readline() == b"open\n"
    with recollect.open(path) as store:
        session = store.session("cli:a")
        began = time.monotonic()
        with pytest.raises(SessionBusy):
            session.turn("x", wait=0.2)
        assert time.monotonic() - began >= 0.2
        child.stdin.write(b"end\n")
        child.stdin.flush()
        with session.turn("x", wait=20):
            pass
        assert [turn.status for turn in session.turns()] == ["completed", "completed"]
