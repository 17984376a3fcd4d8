"""What starting the command costs, against a bare interpreter started in the same run.

    python benchmarks/start.py [--times 20]

Each figure is the median of many starts: how long it took, also as a ratio to `python -c pass`, and how long a
processor was busy with it, which says more where the machine does other work. They take turns, so that the machine's
moods meet all alike.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

WANTED = 150
COMMANDS = {
    "recollect --version": ["--version"],
    "recollect --help": ["--help"],
    "recollect db path": ["db", "path"],
    "recollect config": ["config"],
    "recollect sessions list, of none": ["sessions", "list"],
    "recollect sessions list, of 20": ["--db", "full.db", "sessions", "list"],
    "recollect sessions show": ["--db", "full.db", "sessions", "show", "cli:1"],
}


def started(arguments: list[str], folder: str) -> tuple[float, float]:
    """Start a program and give the milliseconds that it took, and those that a processor was busy with it."""
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8"}
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, check=True)
    took, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def fill(folder: str) -> None:
    code = (
        "import recollect\n"
        "store = recollect.open('full.db')\n"
        "for n in range(20): store.session(f'cli:{n}', title='A title').append([{'role': 'user', 'content': 'x'}] * 20)"
    )
    started([sys.executable, "-c", code], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        fill(folder)
        programs = {"python -c pass": ["-c", "pass"]}
        programs |= {name: ["-m", "recollect", *words] for name, words in COMMANDS.items()}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        for _ in range(times):
            for name, words in programs.items():
                found[name].append(started([sys.executable, *words], folder))
    base = statistics.median(took for took, _ in found["python -c pass"])
    print(f"{'':<36}{'ms':>7}{'ratio':>8}{'busy ms':>9}   (wanted: below {WANTED} ms)")
    for name, costs in found.items():
        took = statistics.median(cost for cost, _ in costs)
        busy = statistics.median(cost for _, cost in costs)
        print(f"{name:<36}{took:7.0f}{took / base:8.1f}{busy:9.0f}")


if __name__ == "__main__":
    main()
