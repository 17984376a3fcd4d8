"""The start time of the command, compared with a bare interpreter in the same run.

    python benchmarks/start.py [--times 20]

Each value is the median of many starts: the wall clock time, its ratio to `python -c pass`, and the CPU time, which is
more meaningful on a busy machine. The commands alternate, so that a slow phase of the machine affects all of them.
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

TARGET = 150  # milliseconds. A slower command feels delayed.
COMMANDS = {
    "recollect --version": ["--version"],
    "recollect --help": ["--help"],
    "recollect db path": ["db", "path"],
    "recollect config": ["config"],
    "recollect sessions list, 0 sessions": ["sessions", "list"],
    "recollect sessions list, 20 sessions": ["--db", "full.db", "sessions", "list"],
    "recollect sessions show": ["--db", "full.db", "sessions", "show", "cli:1"],
}


def run_program(arguments: list[str], folder: str) -> tuple[float, float]:
    """Run a program and return its wall clock time and its CPU time in milliseconds."""
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8"}
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, check=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def fill(folder: str) -> None:
    code = (
        "import recollect\n"
        "store = recollect.open('full.db')\n"
        "for n in range(20): store.session(f'cli:{n}', title='A title').append([{'role': 'user', 'content': 'x'}] * 20)"
    )
    run_program([sys.executable, "-c", code], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    runs = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        fill(folder)
        programs = {"python -c pass": ["-c", "pass"]}
        programs |= {name: ["-m", "recollect", *arguments] for name, arguments in COMMANDS.items()}
        times_by_program: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        for _ in range(runs):
            for name, arguments in programs.items():
                times_by_program[name].append(run_program([sys.executable, *arguments], folder))
    base = statistics.median(wall_time for wall_time, _ in times_by_program["python -c pass"])
    print(f"{'':<36}{'ms':>7}{'ratio':>8}{'CPU ms':>9}   (target: below {TARGET} ms)")
    for name, times in times_by_program.items():
        wall_time = statistics.median(time for time, _ in times)
        cpu_time = statistics.median(time for _, time in times)
        print(f"{name:<36}{wall_time:7.0f}{wall_time / base:8.1f}{cpu_time:9.0f}")


if __name__ == "__main__":
    main()
