"""kill -9 at any time: every acknowledged write is stored once, and no session stays locked."""

from __future__ import annotations

import random
import time

import pytest

import recollect
from recollect.errors import SessionBusy

KILLS = 8  # per test; test_long_runs.py has a thousand


def kill_after_delay(child, seed: int) -> list[str]:
    """Kill a child after up to 0.12 seconds of work, and return the lines that it printed."""
    first = child.stdout.readline()
    assert first, child.stderr.read().decode()
    time.sleep(random.Random(seed).uniform(0.0, 0.12))
    child.kill()
    rest, stderr = child.communicate(timeout=30)
    assert stderr == b""
    lines = (first + rest).decode().splitlines()
    assert lines
    return lines


def texts(store, session: str) -> list[str]:
    return [message.text for message in store.session(session).messages()]


def test_acknowledged_appends_survive_kill(path, spawn, check_database):
    expected: list[str] = []
    for seed in range(KILLS):
        acknowledged_texts = kill_after_delay(spawn("append", path, "cli:a", len(expected)), seed)
        expected += acknowledged_texts
        with recollect.open(path) as store:
            stored_texts = texts(store, "cli:a")
        assert stored_texts[: len(expected)] == expected
        assert len(stored_texts) - len(expected) in (0, 1)  # one append may have been committed and not acknowledged
        expected = stored_texts
        assert expected == [str(number) for number in range(len(expected))]
    check_database(path)


def test_acknowledged_group_commits_survive_kill(path, spawn, check_database):
    tasks, first = 8, 0
    for seed in range(KILLS):
        last_numbers: dict[str, int] = {}
        for line in kill_after_delay(spawn("append_concurrently", path, tasks, first), 100 + seed):
            name, number = line.split()
            last_numbers[name] = int(number)
        first += 10_000
        with recollect.open(path) as store:
            for name, number in last_numbers.items():
                stored_numbers = [int(text) for text in texts(store, name) if int(text) >= first - 10_000]
                assert stored_numbers == list(range(first - 10_000, first - 10_000 + len(stored_numbers)))
                assert len(stored_numbers) - 1 - (number - first + 10_000) in (0, 1)
    check_database(path)


@pytest.mark.parametrize("interface", ["sync", "async"])
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_kill_leaves_the_old_messages_and_fields_or_the_new_ones(request, tmp_path, spawn, interface, engine):
    url = str(tmp_path / "recollect.db") if engine == "sqlite" else request.getfixturevalue("postgres")
    with recollect.open(url) as store:
        store.session("cli:a", title="0", metadata={"step": 0}).append([{"role": "user", "content": "0"}] * 4)
    for seed in range(KILLS):
        with recollect.open(url) as store:
            step = store.session("cli:a").metadata["step"]
        lines = kill_after_delay(spawn("replace_messages", url, "cli:a", step + 1, interface), 300 + seed)
        acknowledged_numbers = list(map(int, lines))
        assert acknowledged_numbers == list(range(step + 1, step + 1 + len(acknowledged_numbers)))
        with recollect.open(url) as store:
            session = store.session("cli:a")
            step = session.metadata["step"]
            assert step - acknowledged_numbers[-1] in (0, 1)  # one may have been committed and not acknowledged
            assert session.title == str(step)
            assert texts(store, "cli:a")[-3:] == [str(step)] * 3
            assert session.message_count == len(session.messages()) == 3 + step % 2
            assert store.maintenance.check(deep=False).problems == ()


@pytest.mark.parametrize("command", ["hold_turns", "stream_answers"])
def test_open_turns_are_interrupted_after_kill(path, spawn, check_database, command):
    first = 0
    for seed in range(KILLS):
        lines = kill_after_delay(spawn(command, path, "cli:a", first), 200 + seed)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            messages = [message for message in session.messages() if message.text.partition(" ")[0] != "next"]
            questions = [message.text for message in messages if message.text.endswith(" ask")]
            acknowledged_questions = [line for line in lines if line.endswith(" ask")]
            assert len(questions) == len(set(questions))
            assert set(acknowledged_questions) <= set(questions)
            assert "open" not in {turn.status for turn in session.turns.list()}
            assert not [message.id for message in messages if message.state in ("streaming", "pending")]
            steps = {message.text for message in messages if message.text.endswith(" step")}
            assert {line for line in lines if line.endswith(" step")} <= steps
            if command == "stream_answers":
                check_chunks(session, messages, lines)
            with session.turn("next one", wait=0) as turn:  # immediately, without waiting for a lease
                turn.add({"role": "assistant", "content": "next answer"})
            assert session.turns.list()[-1].status == "completed"
        first = max(int(text.split()[0]) for text in questions) + 1
    check_database(path)


def check_chunks(session, messages, lines) -> None:
    """Check that every acknowledged chunk is in its answer, and that an incomplete answer is marked."""
    last_chunks = {}
    for line in lines:
        number, kind, *chunk = line.split()
        if kind == "chunk":
            last_chunks[number] = int(chunk[0])
    closed = {line.split()[0] for line in lines if line.endswith(" closed")}
    for position, message in enumerate(messages):
        number = message.text.split()[0] if message.text.endswith(" ask") else None
        if number not in last_chunks:
            continue
        answer = messages[position + 1]
        expected_start = "".join(f"{chunk}," for chunk in range(last_chunks[number] + 1))
        assert answer.text.startswith(expected_start)
        assert answer.state == "completed" if number in closed else answer.state in ("interrupted", "completed")


@pytest.mark.parametrize("streaming", ["", "streaming"])
def test_a_killed_turn_is_interrupted_when_the_session_is_next_opened(path, spawn, streaming):
    child = spawn("hold_turn", path, "cli:a", streaming)
    assert child.stdout.readline() == b"open\n"
    with recollect.open(path) as store:
        assert [turn.status for turn in store.session("cli:a").turns.list()] == ["open"]
        child.kill()
        child.wait()
        session = store.session("cli:a")
        (turn,) = session.turns.list()
        assert turn.status == "interrupted"
        assert turn.ended_at is not None
        assert [message.text for message in session.messages()] == ["mine", *(["half an"] if streaming else [])]
        assert session.messages()[-1].state == ("interrupted" if streaming else "completed")


def test_a_killed_turn_does_not_block_an_open_handle(path, spawn):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        child = spawn("hold_turn", path, "cli:a")
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(SessionBusy):
            session.turn("too early")
        child.kill()
        child.wait()
        with session.turn("now") as turn:
            turn.add({"role": "assistant", "content": "yes"})
        assert [turn.status for turn in session.turns.list()] == ["interrupted", "completed"]


def test_a_turn_of_a_running_process_is_not_interrupted(path, spawn):
    child = spawn("hold_turn", path, "cli:a", "streaming")
    assert child.stdout.readline() == b"open\n"
    with recollect.open(path) as store:
        for _ in range(3):
            session = store.session("cli:a")
            with pytest.raises(SessionBusy) as exc_info:
                session.turn("mine too")
            assert str(child.pid) in exc_info.value.holder  # pyright: ignore[reportAttributeAccessIssue]
        assert [turn.status for turn in session.turns.list()] == ["open"]
        assert session.messages()[-1].state == "streaming"
        assert session.message_count == 2  # the refused turn wrote nothing
        fork = session.fork()
        with fork.turn("in the fork") as turn:
            turn.add({"role": "assistant", "content": "yes"})
        child.stdin.write(b"end\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"done\n"
        session = store.session("cli:a")
        assert [turn.status for turn in session.turns.list()] == ["completed"]
        assert [message.text for message in session.messages()] == ["mine", "half an", "still mine"]
        with session.turn("after"):
            pass


def test_a_turn_waits_for_a_turn_of_another_process(path, spawn):
    child = spawn("hold_turn", path, "cli:a")
    assert child.stdout.readline() == b"open\n"
    with recollect.open(path) as store:
        session = store.session("cli:a")
        start = time.monotonic()
        with pytest.raises(SessionBusy):
            session.turn("x", wait=0.2)
        assert time.monotonic() - start >= 0.2
        child.stdin.write(b"end\n")
        child.stdin.flush()
        with session.turn("x", wait=20):
            pass
        assert [turn.status for turn in session.turns.list()] == ["completed", "completed"]
