"""What takes minutes: a thousand kills, a hundred thousand turns, sixteen processes. Each says what it counted."""

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
EARLY = 0.2
LIMIT = 120.0


class Ledger:
    """What was acknowledged: the newest turn of each session, how many there were, and what was found of them."""

    def __init__(self) -> None:
        self.newest: dict[str, int] = {}
        self.turns = self.interrupted = 0

    def take(self, told: bytes) -> None:
        for line in told.decode().splitlines():
            name, number = line.split()
            assert int(number) > self.newest.get(name, -1), f"{line} was acknowledged twice"
            self.turns += 1
            self.newest[name] = int(number)

    def check(self, path: str) -> None:
        """Every acknowledged turn is there once and in order, and none is open that nobody holds."""
        self.interrupted = 0
        with recollect.open(path) as store:
            for name, number in self.newest.items():
                session = store.session(name)
                messages = session.messages()
                asked = [message.text for message in messages if message.role == "user"]
                assert asked == [str(n) for n in range(len(asked))]
                assert len(asked) > number
                statuses = [turn.status for turn in session.turns()]
                assert len(statuses) == len(asked)
                assert set(statuses) <= {"completed", "interrupted"}
                self.interrupted += statuses.count("interrupted")
                answers = [message.text for message in messages if message.role == "assistant"]
                assert len(answers) == len(set(answers)) >= statuses.count("completed")


def killed(child, dice: random.Random) -> bytes:
    """Kill a child as it starts, or once it has acknowledged some turns; give what it told."""
    told, until = b"", time.monotonic() + LIMIT
    if dice.random() < EARLY:
        time.sleep(dice.uniform(0.0, 0.6))
    else:
        enough = dice.randrange(1, 2 * TURNS // KILLS)
        while told.count(b"\n") < enough:
            assert select.select([child.stdout], [], [], max(until - time.monotonic(), 0))[0], "the child hangs"
            some = child.stdout.read(65_536)
            assert some, child.stderr.read().decode()
            told += some
        time.sleep(dice.uniform(0.0, 0.02))
    child.kill()
    rest, trouble = child.communicate(timeout=LIMIT)
    assert trouble == b""
    return told + rest


def test_a_thousand_kills(path, spawn, sound):
    """Kill a process that writes turns in group commits, a thousand times, until 100,000 turns were acknowledged."""
    dice, ledger, kills = random.Random(1), Ledger(), 0
    while kills < KILLS or ledger.turns < TURNS:
        ledger.take(killed(spawn("numbered", path, TASKS, dice.randrange(1 << 30)), dice))
        kills += 1
        if kills % 50 == 0:
            ledger.check(path)
            sound(path)
    ledger.check(path)
    sound(path)
    with recollect.open(path) as store:
        assert not store.check().problems
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "db", "check", "--db", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ledger.interrupted > 0
    print(
        f"{kills} kills, {ledger.turns} turns acknowledged, none lost, none twice; "
        f"{ledger.interrupted} open turns were found and marked; db check: {(done.stdout + done.stderr).strip()}"
    )


def test_sixteen_processes_with_four_threads(path, spawn, sound, monkeypatch):
    monkeypatch.setattr(test_processes, "PROCESSES", 16)
    monkeypatch.setattr(test_processes, "THREADS", 4)
    monkeypatch.setattr(test_processes, "COUNT", 100)
    test_processes.test_a_crowd_on_one_file(path, spawn, sound)
    print("16 processes with 4 threads each: 12,800 messages in order, none lost or twice, none refused")
