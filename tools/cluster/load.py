"""Writers that record each acknowledged turn in a ledger, and the comparison of the ledgers with the stored turns."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from dataclasses import dataclass, field

from nodes import ClusterError

import recollect

_FILLER = "This text fills the answer up to the length of an ordinary answer of a model. " * 8


@dataclass
class Ledger:
    """The record of one writer: the numbers of its acknowledged turns, and of turns with an unknown outcome."""

    name: str
    numbers: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)

    def question(self, number: int) -> str:
        """Return the question of a turn."""
        return f"{self.name} asks {number}"

    def answer(self, number: int) -> str:
        """Return the answer of a turn."""
        return f"{self.name} answers {number}. {_FILLER}"


class Clock:
    """Measures the time of the last acknowledgement, and the longest time between two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self.longest = 0.0

    def restart(self) -> None:
        """Restart the measurement of the longest time, at the last acknowledgement."""
        with self._lock:
            self.longest = 0.0

    def tick(self) -> None:
        """Record an acknowledgement."""
        with self._lock:
            now = time.monotonic()
            self.longest = max(self.longest, now - self._last)
            self._last = now

    @property
    def last(self) -> float:
        """Return the monotonic time of the last acknowledgement, in seconds."""
        with self._lock:
            return self._last


class Load:
    """Runs writers of every kind until stop().

    Tasks save complete turns without a key: after an error, the outcome of that turn is unknown. Keyed writers repeat
    an append with the same key until it is acknowledged. Threads write through the sync store.
    """

    def __init__(self, url: str, *, writers: int, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._stopping = threading.Event()
        self.clock = Clock()
        self.turn_ledgers = [Ledger(f"turns-{number}") for number in range(writers)]
        self.keyed_ledgers = [Ledger(f"keyed-{number}") for number in range(max(writers // 2, 1))]
        self.thread_ledgers = [Ledger(f"thread-{number}") for number in range(max(writers // 4, 1))]
        self._running = [threading.Thread(target=self._loop)]
        self._running += [threading.Thread(target=self._write, args=(ledger,)) for ledger in self.thread_ledgers]

    @property
    def ledgers(self) -> list[Ledger]:
        """Return the ledgers of all writers."""
        return [*self.turn_ledgers, *self.keyed_ledgers, *self.thread_ledgers]

    @property
    def acknowledged_count(self) -> int:
        """Return the number of turns that are acknowledged so far."""
        return sum(len(ledger.numbers) for ledger in self.ledgers)

    def start(self) -> None:
        """Start every writer."""
        for thread in self._running:
            thread.start()

    def stop(self) -> None:
        """Stop every writer after its current write."""
        self._stopping.set()
        for thread in self._running:
            thread.join()

    def _loop(self) -> None:
        asyncio.run(self._write_all())

    async def _write_all(self) -> None:
        async with recollect.open_async(self._url, timeout=self._timeout) as store:
            turn_tasks = [self._save(store, ledger) for ledger in self.turn_ledgers]
            keyed_tasks = [self._append(store, ledger) for ledger in self.keyed_ledgers]
            await asyncio.gather(*turn_tasks, *keyed_tasks)

    async def _save(self, store: recollect.AsyncStore, ledger: Ledger) -> None:
        session = await store.session(ledger.name)
        number = 0
        while not self._stopping.is_set():
            try:
                await session.save_turn(ledger.question(number), _messages(ledger, number)[1])
            except recollect.StoreError as error:
                self._record_error(ledger, number, error)
            else:
                self._record_success(ledger, number)
            number += 1
            await asyncio.sleep(0.02)

    async def _append(self, store: recollect.AsyncStore, ledger: Ledger) -> None:
        session = await store.session(ledger.name)
        number = 0
        while not self._stopping.is_set():
            try:
                await session.append(_messages(ledger, number), key=str(number))
            except recollect.StoreError as error:
                self._record_error(ledger, number, error)
                continue
            self._record_success(ledger, number)
            number += 1
            await asyncio.sleep(0.02)

    def _write(self, ledger: Ledger) -> None:
        with recollect.open(self._url, timeout=self._timeout) as store:
            session = store.session(ledger.name)
            number = 0
            while not self._stopping.wait(0.02):
                try:
                    session.append(_messages(ledger, number))
                except recollect.StoreError as error:
                    self._record_error(ledger, number, error)
                else:
                    self._record_success(ledger, number)
                number += 1

    def _record_success(self, ledger: Ledger, number: int) -> None:
        ledger.numbers.append(number)
        ledger.unknown.discard(number)
        self.clock.tick()

    def _record_error(self, ledger: Ledger, number: int, error: Exception) -> None:
        ledger.unknown.add(number)
        ledger.errors[f"{type(error).__name__}: {error}"] += 1


@dataclass
class Outcome:
    """The counts of a comparison of ledgers with a store."""

    acknowledged_count: int = 0
    lost_count: int = 0
    duplicate_count: int = 0
    disorder_count: int = 0
    damaged: int = 0
    unknown: int = 0
    stored_count: int = 0

    @property
    def good(self) -> bool:
        """Return whether each acknowledged turn is stored once, in order and complete, and no other turn."""
        return not (self.lost_count or self.duplicate_count or self.disorder_count or self.damaged)


def compare(url: str, ledgers: list[Ledger]) -> Outcome:
    """Read every session and compare it with its ledger. A turn with an unknown outcome may be stored or missing."""
    outcome = Outcome()
    with recollect.open(url) as store:
        for ledger in ledgers:
            texts = [message.text for message in _session(store, ledger.name).messages()]
            _compare(ledger, texts, outcome)
    return outcome


def _session(store: recollect.Store, name: str) -> recollect.Session:
    session = store.get_session(name)  # session() records activity, and a replica refuses writes
    if session is None:
        raise ClusterError(f"session {name!r} is missing")
    return session


def _compare(ledger: Ledger, texts: list[str], outcome: Outcome) -> None:
    numbers: list[int] = []
    for question, answer in zip(texts[::2], texts[1::2], strict=False):
        number = int(question.rpartition(" ")[2])
        numbers.append(number)
        outcome.damaged += (question, answer) != (ledger.question(number), ledger.answer(number))
    counts = collections.Counter(numbers)
    expected = set(ledger.numbers)
    outcome.damaged += len(texts) % 2 + len(set(counts) - expected - ledger.unknown)
    outcome.acknowledged_count += len(expected)
    outcome.lost_count += len(expected - set(counts))
    outcome.duplicate_count += sum(count - 1 for count in counts.values())
    outcome.disorder_count += numbers != sorted(numbers)
    outcome.unknown += len(ledger.unknown)
    outcome.stored_count += len(ledger.unknown & set(counts))


def _messages(ledger: Ledger, number: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": ledger.question(number)},
        {"role": "assistant", "content": ledger.answer(number)},
    ]
