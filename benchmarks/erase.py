"""The time to erase a session as the file grows: `python benchmarks/erase.py [MEGABYTES ...]`.

The baseline, in the same run, is a plain copy of the file with one sync. An erasure deletes rows, has SQLite rewrite
the file (VACUUM) and truncates the log, so it writes the file about three times: to a temporary file, to the log, and
back.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import tempfile
import time

import recollect

SIZES = (10, 100)
ERASURES = 5  # erasures, and copies of the file, per size; the median is printed
MESSAGE = 4_000  # characters of a message on average, so that a session has several pages


def fill(path: str, megabytes: int) -> None:
    """Write sessions of 20 messages until the file has about this size, and index them."""
    generator = random.Random(1)
    words = [
        "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 10))) for _ in range(20_000)
    ]
    with recollect.open(path) as store:
        number = 0
        while os.path.getsize(path) < megabytes * 500_000:  # the search index doubles it
            texts = [" ".join(generator.choices(words, k=generator.randint(1, 2 * MESSAGE // 7))) for _ in range(20)]
            store.session(f"s{number}").append([{"role": "user", "content": text} for text in texts])
            number += 1
        list(store.search("zz"))


def copy_seconds(path: str) -> float:
    """Return the seconds of a plain copy with one sync."""
    started = time.perf_counter()
    shutil.copyfile(path, f"{path}.copy")
    with open(f"{path}.copy", "rb") as copy:
        os.fsync(copy.fileno())
    seconds = time.perf_counter() - started
    os.unlink(f"{path}.copy")
    return seconds


def main() -> None:
    """Print a line for each size."""
    print("file     erase_session   copy of the file   ratio   seconds per GB")
    for megabytes in map(int, sys.argv[1:] or SIZES):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recollect.db")
            fill(path, megabytes)
            size = os.path.getsize(path) / 1e6
            # Before the store is opened: plain I/O on a live database drops SQLite's locks.
            copy = statistics.median(copy_seconds(path) for _ in range(ERASURES))
            erasures: list[float] = []
            with recollect.open(path) as store:
                for number in range(ERASURES):
                    started = time.perf_counter()
                    store.erase_session(f"s{number}")
                    erasures.append(time.perf_counter() - started)
            erase = statistics.median(erasures)
            row = f"{size:5.0f} MB {erase * 1e3:11.0f} ms {copy * 1e3:15.0f} ms {erase / copy:8.1f}"
            print(f"{row} {erase / size * 1e3:12.1f}")


if __name__ == "__main__":
    main()
