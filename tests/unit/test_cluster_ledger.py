"""The comparison in scripts/cluster reports lost, duplicate, reordered and damaged turns."""

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


def compare(load, numbers, acknowledgements=(0, 1, 2), unknown=()):
    ledger = load.Ledger("w", list(acknowledgements), set(unknown))
    texts = [text for number in numbers for text in (ledger.question(number), ledger.answer(number))]
    outcome = load.Outcome()
    load._compare(ledger, texts, outcome)
    return outcome


def test_a_complete_ledger_is_good(load):
    outcome = compare(load, [0, 1, 2])
    assert outcome.good
    assert outcome.acknowledged_count == 3


def test_lost_duplicate_and_reordered_turns_are_reported(load):
    assert (compare(load, [0, 2]).lost_count, compare(load, [0, 2]).good) == (1, False)
    assert (compare(load, [0, 1, 1, 2]).duplicate_count, compare(load, [0, 1, 1, 2]).good) == (1, False)
    assert (compare(load, [1, 0, 2]).disorder_count, compare(load, [1, 0, 2]).good) == (1, False)


def test_a_turn_with_an_unknown_outcome_may_be_stored_once(load):
    for numbers in ([0, 1, 2, 3], [0, 1, 2]):
        outcome = compare(load, numbers, unknown=[3])
        assert outcome.good
        assert (outcome.unknown, outcome.stored_count) == (1, len(numbers) - 3)
    assert not compare(load, [0, 1, 2, 3, 3], unknown=[3]).good
    assert not compare(load, [0, 1, 2, 3]).good  # no writer has turn 3


def test_a_turn_with_a_missing_or_wrong_answer_is_reported(load):
    ledger = load.Ledger("w", [0])
    for texts in ([ledger.question(0)], [ledger.question(0), ledger.answer(1)]):
        outcome = load.Outcome()
        load._compare(ledger, texts, outcome)
        assert not outcome.good


def test_the_clock_measures_the_longest_pause(load, monkeypatch):
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
