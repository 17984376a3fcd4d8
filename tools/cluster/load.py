"""Writers that keep a ledger of what was acknowledged to them, and the comparison of the ledger with what is stored."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from dataclasses import dataclass, field

from nodes import ClusterError

import recollect

_FILLER = "All of this stands for what a model would say in a turn of ordinary length. " * 8


@dataclass
class Ledger:
    """What one writer knows: the numbers that were acknowledged, and those whose end it was not told."""

    name: str
    acknowledged: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)

    def question(self, number: int) -> str:
        """Give what is asked in a turn."""
        return f"{self.name} asks {number}"

    def answer(self, number: int) -> str:
        """Give what is answered in a turn."""
        return f"{self.name} answers {number}. {_FILLER}"


class Clock:
    """Knows when something was last acknowledged to anyone, and the longest time without."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self.longest = 0.0

    def restart(self) -> None:
        """Measure the longest time anew, from the last acknowledgement on."""
        with self._lock:
            self.longest = 0.0

    def tick(self) -> None:
        """Note an acknowledgement."""
        with self._lock:
            now = time.monotonic()
            self.longest = max(self.longest, now - self._last)
            self._last = now

    @property
    def last(self) -> float:
        """When the last acknowledgement came."""
        with self._lock:
            return self._last


class Load:
    """Writers of every kind, until they are told to stop.

    Turns are saved whole and without a key: an error leaves open what became of that turn. Keyed writers try the same
    append again with the same key until it is acknowledged. Threads write through the synchronous store.
    """

    def __init__(self, url: str, *, writers: int, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._stopping = threading.Event()
        self.clock = Clock()
        self.turns = [Ledger(f"turns-{number}") for number in range(writers)]
        self.keyed = [Ledger(f"keyed-{number}") for number in range(max(writers // 2, 1))]
        self.threads = [Ledger(f"thread-{number}") for number in range(max(writers // 4, 1))]
        self._running = [threading.Thread(target=self._loop)]
        self._running += [threading.Thread(target=self._write, args=(ledger,)) for ledger in self.threads]

    @property
    def ledgers(self) -> list[Ledger]:
        """Every ledger."""
        return [*self.turns, *self.keyed, *self.threads]

    @property
    def acknowledged(self) -> int:
        """How many turns were acknowledged so far."""
        return sum(len(ledger.acknowledged) for ledger in self.ledgers)

    def start(self) -> None:
        """Start every writer."""
        for thread in self._running:
            thread.start()

    def stop(self) -> None:
        """Let every writer finish what it is at."""
        self._stopping.set()
        for thread in self._running:
            thread.join()

    def _loop(self) -> None:
        asyncio.run(self._write_all())

    async def _write_all(self) -> None:
        async with recollect.open_async(self._url, timeout=self._timeout) as store:
            saved = [self._save(store, ledger) for ledger in self.turns]
            appended = [self._append(store, ledger) for ledger in self.keyed]
            await asyncio.gather(*saved, *appended)

    async def _save(self, store: recollect.AsyncStore, ledger: Ledger) -> None:
        session = await store.session(ledger.name)
        number = 0
        while not self._stopping.is_set():
            try:
                await session.save_turn(ledger.question(number), _said(ledger, number)[1])
            except recollect.StoreError as error:
                self._missed(ledger, number, error)
            else:
                self._noted(ledger, number)
            number += 1
            await asyncio.sleep(0.02)

    async def _append(self, store: recollect.AsyncStore, ledger: Ledger) -> None:
        session = await store.session(ledger.name)
        number = 0
        while not self._stopping.is_set():
            try:
                await session.append(_said(ledger, number), key=str(number))
            except recollect.StoreError as error:
                self._missed(ledger, number, error)
                continue
            self._noted(ledger, number)
            number += 1
            await asyncio.sleep(0.02)

    def _write(self, ledger: Ledger) -> None:
        with recollect.open(self._url, timeout=self._timeout) as store:
            session = store.session(ledger.name)
            number = 0
            while not self._stopping.wait(0.02):
                try:
                    session.append(_said(ledger, number))
                except recollect.StoreError as error:
                    self._missed(ledger, number, error)
                else:
                    self._noted(ledger, number)
                number += 1

    def _noted(self, ledger: Ledger, number: int) -> None:
        ledger.acknowledged.append(number)
        ledger.unknown.discard(number)
        self.clock.tick()

    def _missed(self, ledger: Ledger, number: int, error: Exception) -> None:
        ledger.unknown.add(number)
        ledger.errors[f"{type(error).__name__}: {error}"] += 1


@dataclass
class Outcome:
    """What a comparison of ledgers with a store found."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    damaged: int = 0
    unknown: int = 0
    stored: int = 0

    @property
    def good(self) -> bool:
        """Say if everything acknowledged is there once, in order and whole, and nothing else."""
        return not (self.lost or self.doubled or self.disordered or self.damaged)


def compare(url: str, ledgers: list[Ledger]) -> Outcome:
    """Read every session and compare it with its ledger. A turn whose end was not told may be there or not."""
    outcome = Outcome()
    with recollect.open(url) as store:
        for ledger in ledgers:
            texts = [message.text for message in _session(store, ledger.name).messages()]
            _compare(ledger, texts, outcome)
    return outcome


def _session(store: recollect.Store, name: str) -> recollect.Session:
    found = store.get_session(name)  # session() would count it as active, which a replica does not take
    if found is None:
        raise ClusterError(f"the session {name} is gone")
    return found


def _compare(ledger: Ledger, texts: list[str], outcome: Outcome) -> None:
    numbers: list[int] = []
    for asked, answered in zip(texts[::2], texts[1::2], strict=False):
        number = int(asked.rpartition(" ")[2])
        numbers.append(number)
        outcome.damaged += (asked, answered) != (ledger.question(number), ledger.answer(number))
    found = collections.Counter(numbers)
    wanted = set(ledger.acknowledged)
    outcome.damaged += len(texts) % 2 + len(set(found) - wanted - ledger.unknown)
    outcome.acknowledged += len(wanted)
    outcome.lost += len(wanted - set(found))
    outcome.doubled += sum(count - 1 for count in found.values())
    outcome.disordered += numbers != sorted(numbers)
    outcome.unknown += len(ledger.unknown)
    outcome.stored += len(ledger.unknown & set(found))


def _said(ledger: Ledger, number: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": ledger.question(number)},
        {"role": "assistant", "content": ledger.answer(number)},
    ]
