"""scripts/cluster finds what is lost, doubled, out of order or damaged: its comparison is only worth something if it can fail."""

from __future__ import annotations

import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "tools" / "cluster"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("load", "nodes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import load

    yield load
    for name in ("load", "nodes"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def compared(load, stored, acknowledged=(0, 1, 2), unknown=()):
    ledger = load.Ledger("w", list(acknowledged), set(unknown))
    texts = [text for number in stored for text in (ledger.question(number), ledger.answer(number))]
    outcome = load.Outcome()
    load._compare(ledger, texts, outcome)
    return outcome


def test_everything_is_there_once(load):
    outcome = compared(load, [0, 1, 2])
    assert outcome.good
    assert outcome.acknowledged == 3


def test_what_is_missing_or_twice_or_out_of_place(load):
    assert (compared(load, [0, 2]).lost, compared(load, [0, 2]).good) == (1, False)
    assert (compared(load, [0, 1, 1, 2]).doubled, compared(load, [0, 1, 1, 2]).good) == (1, False)
    assert (compared(load, [1, 0, 2]).disordered, compared(load, [1, 0, 2]).good) == (1, False)


def test_a_turn_that_nobody_was_told_of_may_be_there_once(load):
    for stored in ([0, 1, 2, 3], [0, 1, 2]):
        outcome = compared(load, stored, unknown=[3])
        assert outcome.good
        assert (outcome.unknown, outcome.stored) == (1, len(stored) - 3)
    assert not compared(load, [0, 1, 2, 3, 3], unknown=[3]).good
    assert not compared(load, [0, 1, 2, 3]).good  # nobody wrote it


def test_a_turn_that_is_not_whole(load):
    ledger = load.Ledger("w", [0])
    for texts in ([ledger.question(0)], [ledger.question(0), ledger.answer(1)]):
        outcome = load.Outcome()
        load._compare(ledger, texts, outcome)
        assert not outcome.good


def test_the_longest_pause(load, monkeypatch):
    now = 0.0
    monkeypatch.setattr(load.time, "monotonic", lambda: now)
    clock = load.Clock()
    for at in (1.0, 1.5, 9.0, 10.0):
        now = at
        clock.tick()
    assert (clock.longest, clock.last) == (7.5, 10.0)
    clock.restart()
    now = 12.0
    clock.tick()
    assert clock.longest == 2.0
