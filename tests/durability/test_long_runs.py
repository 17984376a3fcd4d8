"""What takes minutes: a thousand kills, a hundred thousand turns, sixteen processes. Each says what it counted."""

from __future__ import annotations

import random
import time

import pytest
import test_processes

import recollect

pytestmark = pytest.mark.long
KILLS, TURNS, TASKS = 1_000, 100_000, 16


def test_a_thousand_kills(path, spawn, sound):
    """Kill a process that writes turns in group commits, a thousand times, until 100,000 turns were acknowledged."""
    dice = random.Random(1)
    acknowledged: dict[str, int] = {}
    kills = total = 0
    while kills < KILLS or total < TURNS:
        child = spawn("numbered", path, TASKS, dice.randrange(1 << 30))
        time.sleep(dice.uniform(0.15, 0.6))
        child.kill()
        told, trouble = child.communicate(timeout=60)
        assert trouble == b""
        kills += 1
        for line in told.decode().splitlines():
            name, number = line.split()
            total += 1
            acknowledged[name] = max(acknowledged.get(name, -1), int(number))
        if kills % 100 == 0:
            check(path, acknowledged)
    check(path, acknowledged)
    sound(path)
    with recollect.open(path) as store:
        assert not store.check().problems
    print(f"{kills} kills, {total} turns acknowledged, none lost, none twice")


def check(path: str, acknowledged: dict[str, int]) -> None:
    with recollect.open(path) as store:
        for name, number in acknowledged.items():
            said = [message.text for message in store.session(name).messages() if message.role == "user"]
            assert said == [str(n) for n in range(len(said))]
            assert len(said) > number


def test_sixteen_processes_with_four_threads(path, spawn, sound, monkeypatch):
    monkeypatch.setattr(test_processes, "PROCESSES", 16)
    monkeypatch.setattr(test_processes, "THREADS", 4)
    monkeypatch.setattr(test_processes, "COUNT", 100)
    test_processes.test_a_crowd_on_one_file(path, spawn, sound)
    print("16 processes with 4 threads each: 12,800 messages in order, none lost or twice, none refused")
