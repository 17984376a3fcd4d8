"""Tests that take minutes: a thousand kills, 100,000 turns, sixteen processes. Each prints its counts."""

from __future__ import annotations

import random
import select
import subprocess
import sys
import time

import pytest
import test_processes

import recollect

pytestmark = pytest.mark.long
KILLS, TURNS, TASKS = 1_000, 100_000, 16
EARLY_KILL_SHARE = 0.2  # of the children are killed while they start, the others while they write
TIMEOUT = 120.0  # seconds; only a failure reaches it


class Ledger:
    """Acknowledged turns: the newest number of each session, their count, and the count of interrupted turns."""

    def __init__(self) -> None:
        self.newest: dict[str, int] = {}
        self.turns = self.interrupted = 0

    def read_lines(self, output: bytes) -> None:
        for line in output.decode().splitlines():
            name, number = line.split()
            assert int(number) > self.newest.get(name, -1), f"{line} was acknowledged twice"
            self.turns += 1
            self.newest[name] = int(number)

    def check(self, path: str) -> None:
        """Check that every acknowledged turn is stored once and in order, and that no turn is open."""
        self.interrupted = 0
        with recollect.open(path) as store:
            for name, number in self.newest.items():
                session = store.session(name)
                messages = session.messages()
                questions = [message.text for message in messages if message.role == "user"]
                assert questions == [str(n) for n in range(len(questions))]
                assert len(questions) > number
                statuses = [turn.status for turn in session.turns.list()]
                assert len(statuses) == len(questions)
                assert set(statuses) <= {"completed", "interrupted"}
                self.interrupted += statuses.count("interrupted")
                answers = [message.text for message in messages if message.role == "assistant"]
                assert len(answers) == len(set(answers)) >= statuses.count("completed")


def kill_at_random(child, rng: random.Random) -> bytes:
    """Kill a child as it starts, or after it has acknowledged some turns. Return its output."""
    output, deadline = b"", time.monotonic() + TIMEOUT
    if rng.random() < EARLY_KILL_SHARE:
        time.sleep(rng.uniform(0.0, 0.6))
    else:
        line_count = rng.randrange(1, 2 * TURNS // KILLS)
        while output.count(b"\n") < line_count:
            assert select.select([child.stdout], [], [], max(deadline - time.monotonic(), 0))[0], "the child hangs"
            data = child.stdout.read(65_536)
            assert data, child.stderr.read().decode()
            output += data
        time.sleep(rng.uniform(0.0, 0.02))
    child.kill()
    rest, stderr = child.communicate(timeout=TIMEOUT)
    assert stderr == b""
    return output + rest


def test_acknowledged_turns_survive_a_thousand_kills(path, spawn, check_database):
    """Kill a process that writes turns in group commits, a thousand times, until 100,000 turns were acknowledged."""
    rng, ledger, kills = random.Random(1), Ledger(), 0
    while kills < KILLS or ledger.turns < TURNS:
        ledger.read_lines(kill_at_random(spawn("write_turns", path, TASKS, rng.randrange(1 << 30)), rng))
        kills += 1
        if kills % 50 == 0:
            ledger.check(path)
            check_database(path)
    ledger.check(path)
    check_database(path)
    with recollect.open(path) as store:
        assert not store.maintenance.check().problems
    process = subprocess.run(
        [sys.executable, "-m", "recollect", "db", "check", "--db", path], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert ledger.interrupted > 0
    print(
        f"{kills} kills, {ledger.turns} turns acknowledged, none lost, none twice; "
        f"{ledger.interrupted} open turns were found and marked; db check: {(process.stdout + process.stderr).strip()}"
    )


def test_sixteen_processes_with_four_threads_append_to_one_file(path, spawn, check_database, monkeypatch):
    monkeypatch.setattr(test_processes, "PROCESSES", 16)
    monkeypatch.setattr(test_processes, "THREADS", 4)
    monkeypatch.setattr(test_processes, "COUNT", 100)
    test_processes.test_processes_with_threads_append_to_one_file(path, spawn, check_database)
    print("16 processes with 4 threads each: 12,800 messages in order, none lost or twice, none refused")
