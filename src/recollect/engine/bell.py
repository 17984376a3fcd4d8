"""What wakes someone who watches: an engine rings it when something was committed, or may have been."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from recollect.op import Row

SLICE = 1.0
"""Seconds that are waited at a time: a watch that is closed by another thread ends within this."""

REST = 10
"""How many times as long as a look at everything took no other look is made."""


class Rung(NamedTuple):
    """Why a bell was rung: sessions that changed (key, id, revision), or that everything is to be looked at.

    `anew` where it is another database that is looked at: what was known of the one before says nothing of it.
    """

    rows: list[Row]
    everything: bool = False
    anew: bool = False


class Bell(Protocol):
    """Waits for changes. One thread waits; any thread may ring it or silence it."""

    def wait(self, seconds: float) -> Rung | None:
        """Wait for a change; None where there was none in time, or the bell was silenced."""
        ...

    def ring(self) -> None:
        """Wake who waits."""
        ...

    def close(self) -> None:
        """Hear no more."""
        ...


class Signal:
    """A bell that this process rings by itself: for a store that nobody else can reach."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def wait(self, seconds: float) -> Rung | None:
        """Wait for this process to commit something."""
        if not self._rung.wait(seconds):
            return None
        self._rung.clear()
        return Rung([], everything=True)

    def ring(self) -> None:
        """Say that something was committed."""
        self._rung.set()

    def close(self) -> None:
        """Nothing is held."""
