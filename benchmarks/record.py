"""The cost of storing and loading conversations, relative to raw sqlite3 in the same run.

    python benchmarks/record.py [--quick]

Every value is a ratio of medians. Both sides store the same generated turns with a durable commit per turn. If each
turn is timed, the sides alternate in blocks, so that a slow phase of the machine affects both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import recollect
from data import Turn, turns
from raw_sqlite import RawSqlite
from timing import time_action, turns_per_second

ID = "0196f0f0-7e6b-7000-8000-000000000000"
BLOCK = 50  # turns per side before the other side continues, so that a slow phase of the machine affects both


def ratio_of_best(ours: Callable[[], Any], theirs: Callable[[], Any], times: int) -> float:
    """Run two actions alternately and return the ratio of their best times."""
    best = [float("inf"), float("inf")]
    for _ in range(times):
        for index, action in enumerate((ours, theirs)):
            gc.collect()  # so that neither pays for the garbage of the other
            best[index] = min(best[index], time_action(action))
    return best[0] / best[1]


def in_new_process(measure: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Measure in a new process, because earlier measurements fragment the memory, which slows large reads."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def append_each(folder: str, count: int, method: str) -> tuple[float, float, float]:
    """Append turns in alternating blocks.

    Return the ratio of the medians, and our medians of the first and the last 10% in microseconds.
    """
    data = list(turns(count))
    raw, store = RawSqlite(f"{folder}/raw-{method}.db"), recollect.open(f"{folder}/ours-{method}.db")
    session = store.session(ID)
    theirs: list[float] = []
    ours: list[float] = []
    position = 0
    for start in range(0, count, BLOCK):
        block = data[start : start + BLOCK]
        for turn in block:
            started = time.perf_counter()
            position = raw.append(ID, position, turn)
            theirs.append(time.perf_counter() - started)
        for turn in block:
            started = time.perf_counter()
            _append(session, turn, method)
            ours.append(time.perf_counter() - started)
    store.close()
    raw.close()
    tenth = max(count // 10, 1)
    early, late = statistics.median(ours[:tenth]), statistics.median(ours[-tenth:])
    return statistics.median(ours) / statistics.median(theirs), early * 1e6, late * 1e6


def _append(session: Any, turn: Turn, method: str) -> None:
    if method == "append":
        session.append(turn)
    else:
        session.save_turn(turn[0], turn[1:])


def load(folder: str, messages: int) -> dict[str, float]:
    """Read a complete long session as messages and as a history, and its end; return the ratios."""
    raw, store = RawSqlite(f"{folder}/raw-load.db"), recollect.open(f"{folder}/ours-load.db")
    session = store.session(ID)
    position = json_bytes = 0
    for turn in turns(messages):
        if position >= messages:
            break
        raw.append(ID, position, turn)
        session.append(turn)
        position += len(turn)
        json_bytes += sum(len(json.dumps(message)) + 1 for message in turn)
    ratios = {
        f"load of {position:,} messages, typed": ratio_of_best(session.messages, lambda: raw.load(ID), 15),
        f"history of {position:,} messages, as dicts": ratio_of_best(
            lambda: session.history("openai"), lambda: raw.load(ID), 15
        ),
        "last 50 messages": ratio_of_best(lambda: session.messages(last=50), lambda: raw.last(ID, 50), 199),
    }
    store.close()
    raw.close()
    size = os.path.getsize(f"{folder}/ours-load.db")
    ratios["disk, one session"] = size / os.path.getsize(f"{folder}/raw-load.db")
    ratios["  relative to the same messages as JSON lines"] = size / json_bytes
    return ratios


def same_at_length(folder: str, length: int) -> float:
    """Append to a long session and to a new one; return the ratio of the medians."""
    store = recollect.open(f"{folder}/long.db")
    session = store.session(ID)
    data = list(turns(400, seed=2))
    at_start = statistics.median(time_action(lambda turn=turn: session.append(turn)) for turn in data)
    filler = [message for turn in turns(3_000, seed=3) for message in turn]
    while session.message_count < length:
        session.append(filler[:5_000])
    at_end = statistics.median(time_action(lambda turn=turn: session.append(turn)) for turn in data)
    store.close()
    return at_end / at_start


def tasks(folder: str, count: int, each: int) -> float:
    """Compare concurrent tasks, each in its own session, with raw commits; return the ratio of turns per second."""
    data = list(turns(count * each))
    ratios: list[float] = []
    for run in range(7):
        raw = RawSqlite(f"{folder}/raw-tasks-{run}.db")
        started, position = time.perf_counter(), 0
        for turn in data[: len(data) // 2]:
            position = raw.append(ID, position, turn)
        theirs = len(data) // 2 / (time.perf_counter() - started)
        raw.close()
        ratios.append(asyncio.run(turns_per_second(f"{folder}/ours-tasks-{run}.db", data, count)) / theirs)
    return statistics.median(ratios)


def processes(folder: str, count: int, each: int) -> float:
    """Compare processes that write to one file, each to its own session; return the ratio of turns per second."""
    ratios = []
    for run in range(3):
        theirs = _processes(_raw_process, f"{folder}/raw-processes-{run}.db", count, each)
        ours = _processes(_our_process, f"{folder}/ours-processes-{run}.db", count, each)
        ratios.append(theirs / ours)
    return statistics.median(ratios)


def _processes(work: Callable[..., None], path: str, count: int, each: int) -> float:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count + 1)
    running = [context.Process(target=work, args=(path, number, each, barrier)) for number in range(count)]
    for process in running:
        process.start()
    barrier.wait()
    seconds = time_action(lambda: [process.join() for process in running])
    assert all(process.exitcode == 0 for process in running), "a process failed"
    return seconds


def _raw_process(path: str, number: int, each: int, barrier: Any) -> None:
    raw, data, position = RawSqlite(path), list(turns(each, seed=number)), 0
    barrier.wait()
    for turn in data:
        position = raw.append(f"{ID}-{number}", position, turn)


def _our_process(path: str, number: int, each: int, barrier: Any) -> None:
    store, data = recollect.open(path), list(turns(each, seed=number))
    session = store.session(f"{ID}-{number}")
    barrier.wait()
    for turn in data:
        session.append(turn)
    store.close()


def many_sessions(folder: str, count: int, rounds: int) -> dict[str, float]:
    """Write sessions interleaved; return the ratios for the first page of the list, the disk and a cold resume."""
    data = list(turns(2_000))
    raw = RawSqlite(f"{folder}/raw-many.db")
    raw.connection.execute("PRAGMA synchronous = OFF")
    positions = [0] * count
    for turn_number in range(rounds):
        raw.connection.execute("BEGIN")
        for number in range(count):
            for message in data[(number * 7 + turn_number) % len(data)]:
                _raw_insert(raw, f"{ID}-{number}", positions[number], message)
                positions[number] += 1
        raw.connection.execute("COMMIT")
    raw.connection.executemany(
        "INSERT INTO sessions VALUES (?, ?, ?)",
        [(f"{ID}-{number}", f"Test {number}", number) for number in range(count)],
    )
    asyncio.run(_many(f"{folder}/ours-many.db", data, count, rounds))
    store = recollect.open(f"{folder}/ours-many.db")
    ratios = {
        f"first 50 of {count:,} sessions": ratio_of_best(lambda: store.list_sessions(50), lambda: raw.list(50), 199)
    }
    store.close()
    raw.close()
    ratios[f"disk, {count:,} sessions interleaved"] = os.path.getsize(f"{folder}/ours-many.db") / os.path.getsize(
        f"{folder}/raw-many.db"
    )
    ratios["resume from a cold cache"] = _cold(folder, count)
    return ratios


def _raw_insert(raw: RawSqlite, session: str, position: int, message: dict[str, Any]) -> None:
    import json  # noqa: PLC0415

    raw.connection.execute(
        "INSERT INTO messages VALUES (?, ?, ?, ?)", (session, position, message["role"], json.dumps(message))
    )


async def _many(path: str, data: list[Turn], count: int, rounds: int) -> None:
    async with recollect.open_async(path) as store:
        sessions = []
        for start in range(0, count, 250):
            names = [f"{ID}-{number}" for number in range(start, min(start + 250, count))]
            sessions += await asyncio.gather(*(store.session(name, title=name[-12:]) for name in names))
        for turn_number in range(rounds):
            for start in range(0, count, 250):
                batch = enumerate(sessions[start : start + 250], start)
                await asyncio.gather(
                    *(session.append(data[(number * 7 + turn_number) % len(data)]) for number, session in batch)
                )


def _cold(folder: str, count: int) -> float:
    """Read sessions whose pages are not in memory, alternating; return 0 if the cache cannot be dropped."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(5, count, count // 15):
        for times, work in ((theirs, _cold_raw), (ours, _cold_ours)):
            if not _drop_cache():
                return 0.0
            times.append(work(folder, f"{ID}-{number}"))
    return statistics.median(ours) / statistics.median(theirs)


def _cold_raw(folder: str, session: str) -> float:
    raw = RawSqlite(f"{folder}/raw-many.db")
    seconds = time_action(lambda: raw.load(session))
    raw.connection.close()
    return seconds


def _cold_ours(folder: str, session: str) -> float:
    with recollect.open(f"{folder}/ours-many.db") as store:
        handle = store.get_session(session)
        assert handle is not None
        return time_action(handle.messages)


def _drop_cache() -> bool:
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
    except OSError:
        return False
    return True


def start(folder: str) -> dict[str, float]:
    """Start a process that opens a store and lists 20 sessions; return the milliseconds over a bare interpreter.

    msgspec imports typing_extensions if it is installed. A base install does not have it; the test environment does.
    """
    path = f"{folder}/start.db"
    with recollect.open(path) as store:
        for number in range(20):
            store.session(f"cli:{number}")
    code = f"import recollect; recollect.open({path!r}).list_sessions(20)"
    base = f"import sys; sys.modules['typing_extensions'] = None; {code}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times_by_code: dict[str, list[float]] = {"pass": [], code: [], base: []}
    for _ in range(25):
        for run, times in times_by_code.items():
            times.append(
                time_action(lambda run=run: subprocess.run([sys.executable, "-c", run], check=True, env=environment))
            )
    bare_ms, with_extensions_ms, without_extensions_ms = (
        statistics.median(times) * 1_000 for times in times_by_code.values()
    )
    name = "import, open, list 20, milliseconds over bare"
    return {
        name: without_extensions_ms - bare_ms,
        "  the same with typing_extensions installed": with_extensions_ms - bare_ms,
    }


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10% of the work, for a first look")
    parser.add_argument("--folder", help="folder for the databases (default: the system's temporary folder)")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    folder = tempfile.mkdtemp(prefix="recollect-bench-", dir=options.folder)
    try:
        for name, value, target in _measurements(folder, scale):
            print(f"{name:<46} {value:>8.2f}   {target}", flush=True)
    finally:
        shutil.rmtree(folder)


def _measurements(folder: str, scale: int) -> Any:
    for method, label in (("append", "append()"), ("save_turn", "save_turn()")):
        ratio, early, late = append_each(folder, 4_000 // scale, method)
        yield f"append of a turn, p50, {label}", ratio, "at most 1.20 x raw"
        yield "  first 10%, microseconds", early, ""
        yield "  last 10%, microseconds", late, ""
    yield "append at message 100,000 / at the start", same_at_length(folder, 100_000 // scale), "1.0"
    yield "64 tasks, turns per second", tasks(folder, 64, 80 // scale or 4), "at least 2.50 x raw"
    yield "4 processes, turns per second", processes(folder, 4, 1_000 // scale), "at least 0.80 x raw"
    targets = {"load": "at most 0.60 x raw", "last": "at most 1.00 x raw", "disk": "at most 0.78 x raw"}
    for name, value in in_new_process(load, folder, 10_000 // scale).items():
        yield name, value, targets.get(name.split(maxsplit=1)[0].rstrip(","), "")
    for name, value in in_new_process(many_sessions, folder, 10_000 // scale, 5).items():
        yield name, value, "at most 3.00 x raw" if name.startswith("first") else targets.get(name.split(",")[0], "")
    for name, value in start(folder).items():
        yield name, value, "at most 60"


if __name__ == "__main__":
    main()
