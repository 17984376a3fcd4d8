"""Export and import of one session: memory and time at 1,000 and 10,000 messages; and the copy of a whole file.

Each measurement runs in a separate process; another process creates the session. Memory is the peak that Python
allocates (tracemalloc) and the growth of the process (ru_maxrss).

The copied file has many short sessions and a long one. The baseline does the same work with sqlite3: it copies every
table in transactions of 512 rows, then reads both files again and compares the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import tracemalloc
from typing import Any

import recollect
from data import turns
from recollect import export

WORK = ("jsonl", "json", "md", "html", "redacted", "import", "import again")
SHORT_SESSIONS, SHORT, LONG = 1_500, 16, 20_000  # sessions, and messages in a short and in the long one
COPIES = 5  # of which the fastest counts


def fill(path: str, count: int) -> None:
    with recollect.open(path) as store:
        session = store.session("cli:long", title="A long conversation")
        count_written = 0
        for turn in turns(count):
            session.append(turn[: count - count_written], "openai")
            count_written += len(turn)
            if count_written >= count:
                return


def work(name: str, folder: str) -> int:
    """Run one export or import and return the bytes that it wrote or read."""
    source = os.path.join(folder, "session.db")
    if name.startswith("import"):
        with recollect.open(os.path.join(folder, "copy.db")) as store:
            export.read(store, os.path.join(folder, "session.jsonl"))
        return os.path.getsize(os.path.join(folder, "session.jsonl"))
    format = "jsonl" if name == "redacted" else name
    with recollect.open(source) as store:
        target = os.devnull if name == "redacted" else os.path.join(folder, f"session.{format}")
        with open(target, "wb") as file:
            return export.write(store, ["cli:long"], format, file, redact=name == "redacted")


def measure(name: str, folder: str) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    size = work(name, folder)
    seconds = time.perf_counter() - started
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if name == "import":
        os.unlink(os.path.join(folder, "copy.db"))
    tracemalloc.start()
    work(name, folder)
    return {"size": size, "seconds": seconds, "growth": growth * 1024, "peak": tracemalloc.get_traced_memory()[1]}


def fill_sessions(path: str) -> None:
    """Write the sessions of the file to copy."""
    messages = [message for turn in turns(LONG) for message in turn]
    with recollect.open(path) as store:
        for number in range(SHORT_SESSIONS):
            start = number * SHORT % (LONG - SHORT)
            store.session(f"cli:{number}", title=f"Title {number}").append(messages[start : start + SHORT], "openai")
        session = store.session("cli:long")
        for start in range(0, LONG, 1_000):
            session.append(messages[start : start + 1_000], "openai")


def copy_raw(source: str, target: str) -> None:
    """Copy every table with sqlite3, and compare the rows."""
    with (
        contextlib.closing(sqlite3.connect(source)) as origin,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        copy.execute("PRAGMA journal_mode = WAL")
        copy.execute("PRAGMA synchronous = FULL")
        schema = origin.execute(
            "SELECT type, name, sql FROM sqlite_master"
            " WHERE type IN ('table', 'index') AND sql IS NOT NULL"
            " AND name NOT GLOB 'search*' AND name NOT GLOB 'sqlite*'"
        ).fetchall()
        for _, _, statement in schema:
            copy.execute(statement)
        tables = [name for type, name, _ in schema if type == "table"]
        for table in tables:
            rows = origin.execute(f"SELECT * FROM {table}")
            insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows.description))})"
            while batch := rows.fetchmany(512):
                copy.execute("BEGIN")
                copy.executemany(insert, batch)
                copy.execute("COMMIT")
        for table in tables:
            query = f"SELECT * FROM {table}"
            assert all(row == other for row, other in zip(origin.execute(query), copy.execute(query), strict=True))


def measure_copy(name: str, folder: str) -> dict[str, float]:
    """Return the seconds, and the seconds of CPU time, of the copy of a file."""
    source, target = os.path.join(folder, "sessions.db"), os.path.join(folder, f"{name}.db")
    action = recollect.copy if name == "copy" else copy_raw
    results: list[tuple[float, float]] = []
    for _ in range(COPIES):
        started, cpu_started = time.perf_counter(), time.process_time()
        action(source, target)
        results.append((time.process_time() - cpu_started, time.perf_counter() - started))
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{target}{end}")
    return {"cpu": min(cpu for cpu, _ in results), "seconds": min(seconds for _, seconds in results)}


def print_copy(folder: str) -> None:
    run_child("--fill", os.path.join(folder, "sessions.db"), "sessions")
    copy, raw = (run_child("--child", name, folder) for name in ("copy", "raw copy"))
    messages = SHORT_SESSIONS * SHORT + LONG
    print(f"\ncopy of {messages:,} messages in {SHORT_SESSIONS + 1:,} sessions: Recollect, sqlite3, ratio")
    for key, name in (("cpu", "CPU seconds"), ("seconds", "seconds")):
        print(f"{name:14}{copy[key]:>10.2f}{raw[key]:>8.2f}{copy[key] / raw[key]:>9.2f}")


def run_child(*arguments: str) -> Any:
    process = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(process.stdout or "null")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2)
    parser.add_argument("--fill", nargs=2)
    options = parser.parse_args()
    if options.fill:
        path, count = options.fill
        if count == "sessions":
            fill_sessions(path)
        else:
            fill(path, int(count))
        return
    if options.child:
        print(json.dumps((measure_copy if options.child[0].endswith("copy") else measure)(*options.child)))
        return
    print(f"{'':14}{'messages':>10}{'MB':>8}{'seconds':>9}{'peak MB':>9}{'growth MB':>10}")
    for count in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            run_child("--fill", os.path.join(folder, "session.db"), str(count))
            for name in WORK:
                result = run_child("--child", name, folder)
                print(
                    f"{name:14}{count:>10,}{result['size'] / 1e6:>8.1f}{result['seconds']:>9.2f}"
                    f"{result['peak'] / 1e6:>9.1f}{result['growth'] / 1e6:>10.1f}"
                )
    with tempfile.TemporaryDirectory() as folder:
        print_copy(folder)


if __name__ == "__main__":
    main()
