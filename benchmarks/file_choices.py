"""Settings that only a new file can get: page size, checksums, auto_vacuum; each relative to a file without them.

    python benchmarks/file_choices.py

The benchmark writes and reads every variant several times, alternating, and compares the medians.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from typing import NamedTuple

import apsw

import recollect
from data import turns
from recollect.engine.sqlite import connection, migrations

ROUNDS = 5  # rounds over all variants; the median is printed
TURNS = 1_500  # turns per file, so that it has some MB


class Choice(NamedTuple):
    """The settings of a file."""

    page: int
    checksums: bool
    vacuum: bool

    @property
    def name(self) -> str:
        """Return the settings as a short text."""
        extras = [word for word, enabled in (("checksums", self.checksums), ("auto_vacuum", self.vacuum)) if enabled]
        return ", ".join([f"{self.page} bytes", *extras])


CHOICES = [
    Choice(4096, checksums=False, vacuum=False),
    Choice(2048, checksums=True, vacuum=True),
    Choice(4096, checksums=True, vacuum=False),
    Choice(4096, checksums=False, vacuum=True),
    Choice(4096, checksums=True, vacuum=True),
    Choice(8192, checksums=True, vacuum=True),
    Choice(16384, checksums=True, vacuum=True),
]


class RoundValues(NamedTuple):
    """The values of one round: seconds of an append and a load, the checksum ratio, and bytes."""

    append: float
    load: float
    checksum_ratio: float
    size: float


def choose(choice: Choice) -> None:
    """Patch the engine so that new files get these settings."""
    initialize, vfs = _initialize_file, _checksum_vfs if choice.checksums else (lambda: None)
    connection.PAGE_SIZE = choice.page
    connection.checksum_vfs = vfs

    def initialize_file(connection_: object, path: str) -> None:
        initialize(connection_ if choice.vacuum else _WithoutVacuum(connection_), path)

    migrations.initialize_file = initialize_file


class _WithoutVacuum:
    """A connection that ignores statements about auto_vacuum."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    def execute(self, query: str) -> object:
        """Run a statement, or a no-op instead of one that enables auto_vacuum."""
        return self._target.execute("SELECT 1" if "auto_vacuum" in query else query)


_initialize_file, _checksum_vfs = connection.initialize_file, connection.checksum_vfs


def measure(folder: str, number: int) -> RoundValues:
    """Write a session turn by turn, read it, and measure the file size."""
    path = f"{folder}/{number}.db"
    store = recollect.open(path)
    session = store.session("bench")
    times = []
    for turn in turns(TURNS):
        started = time.perf_counter()
        session.append(turn)
        times.append(time.perf_counter() - started)
    store.close()
    with recollect.open(path) as store:
        handle = store.session("bench")
        started = time.perf_counter()
        handle.messages()
        load_seconds = time.perf_counter() - started
    query = "SELECT parts FROM messages"
    plain_reader, verifying_reader = connection.connect_reader(path, 1.0), connection.connect_verified(path, 1.0)
    checksum_ratio = _minimum_time(verifying_reader, query) / _minimum_time(plain_reader, query)
    plain_reader.close()
    verifying_reader.close()
    return RoundValues(statistics.median(times), load_seconds, checksum_ratio, os.path.getsize(path))


def _minimum_time(reader: apsw.Connection, query: str) -> float:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        reader.execute(query).fetchall()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    """Measure every choice and print one table."""
    folder = tempfile.mkdtemp(prefix="recollect-bench-")
    rounds_by_choice: dict[Choice, list[RoundValues]] = {choice: [] for choice in CHOICES}
    try:
        measure(folder, -1)  # warm-up: the first run is always the slowest
        for number in range(ROUNDS):
            for index, choice in enumerate(CHOICES):
                choose(choice)
                rounds_by_choice[choice].append(measure(folder, number * len(CHOICES) + index))
    finally:
        shutil.rmtree(folder)
    baseline = RoundValues(*(statistics.median(each) for each in zip(*rounds_by_choice[CHOICES[0]], strict=True)))
    print("| file | append p50 | load | all texts, checksums enforced | size |\n|---|---|---|---|---|")
    for choice, rounds in rounds_by_choice.items():
        medians = RoundValues(*(statistics.median(each) for each in zip(*rounds, strict=True)))
        ratios = [
            medians.append / baseline.append,
            medians.load / baseline.load,
            medians.checksum_ratio,
            medians.size / baseline.size,
        ]
        print(f"| {choice.name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")


if __name__ == "__main__":
    main()
