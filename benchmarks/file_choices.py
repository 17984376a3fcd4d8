"""What only a new file can take: page size, checksum bytes, auto_vacuum. Each against the plain 4096-byte file.

    python benchmarks/file_choices.py

Every variant is written and read several times, in turns, and the medians are compared.
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
from recollect.engine.sqlite import connection, migration

ROUNDS = 5
TURNS = 1_500


class Choice(NamedTuple):
    """A way to make a file."""

    page: int
    checksums: bool
    vacuum: bool

    @property
    def name(self) -> str:
        """Describe it in a few words."""
        extras = [word for word, chosen in (("checksums", self.checksums), ("auto_vacuum", self.vacuum)) if chosen]
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


class Figures(NamedTuple):
    """What one round gave."""

    append: float
    load: float
    enforced: float
    size: float


def choose(choice: Choice) -> None:
    """Make new files this way from now on."""
    shape, vfs = _shape, _vfs if choice.checksums else (lambda: None)
    connection.PAGE_SIZE = choice.page
    connection.checksum_vfs = vfs

    def made(opened: object, path: str) -> None:
        shape(opened if choice.vacuum else _WithoutVacuum(opened), path)

    migration.shape = made


class _WithoutVacuum:
    """A connection that does not hear the word auto_vacuum."""

    def __init__(self, opened: object) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> object:
        return getattr(self._opened, name)

    def execute(self, query: str) -> object:
        """Run a statement, unless it turns auto_vacuum on."""
        return self._opened.execute("SELECT 1" if "auto_vacuum" in query else query)


_shape, _vfs = connection.shape, connection.checksum_vfs


def measure(folder: str, number: int) -> Figures:
    """Write a session turn by turn, read it, and weigh the file."""
    path = f"{folder}/{number}.db"
    store = recollect.open(path)
    session = store.session("bench")
    times = []
    for turn in turns(TURNS):
        begun = time.perf_counter()
        session.append(turn)
        times.append(time.perf_counter() - begun)
    store.close()
    with recollect.open(path) as store:
        handle = store.session("bench")
        begun = time.perf_counter()
        handle.messages()
        loaded = time.perf_counter() - begun
    read = "SELECT parts FROM messages"
    plain, checked = connection.connect_reader(path, 1.0), connection.connect_verified(path, 1.0)
    ratio = _quickest(checked, read) / _quickest(plain, read)
    plain.close()
    checked.close()
    return Figures(statistics.median(times), loaded, ratio, os.path.getsize(path))


def _quickest(opened: apsw.Connection, query: str) -> float:
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        opened.execute(query).fetchall()
        times.append(time.perf_counter() - begun)
    return min(times)


def main() -> None:
    """Measure every choice and print one table."""
    folder = tempfile.mkdtemp(prefix="recollect-bench-")
    found: dict[Choice, list[Figures]] = {choice: [] for choice in CHOICES}
    try:
        measure(folder, -1)  # the first run of all is always the slowest
        for number in range(ROUNDS):
            for index, choice in enumerate(CHOICES):
                choose(choice)
                found[choice].append(measure(folder, number * len(CHOICES) + index))
    finally:
        shutil.rmtree(folder)
    plain = Figures(*(statistics.median(each) for each in zip(*found[CHOICES[0]], strict=True)))
    print("| file | append p50 | load | all texts, checksums enforced | size |\n|---|---|---|---|---|")
    for choice, rounds in found.items():
        mine = Figures(*(statistics.median(each) for each in zip(*rounds, strict=True)))
        ratios = [mine.append / plain.append, mine.load / plain.load, mine.enforced, mine.size / plain.size]
        print(f"| {choice.name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")


if __name__ == "__main__":
    main()
