"""What the record costs, against raw sqlite3 measured in the same run.

    python benchmarks/record.py [--quick]

Every figure is a ratio of medians. Both sides take the same generated turns and commit each turn durably; where both
are timed turn by turn, they take turns in blocks, so that the machine's moods meet both alike.
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
from clock import timed, turns_per_second
from data import Turn, turns
from raw import Raw

ID = "0196f0f0-7e6b-7000-8000-000000000000"
BLOCK = 50


def against(ours: Callable[[], Any], theirs: Callable[[], Any], times: int) -> float:
    """Time two actions in turn, so that the machine's moods meet both: the ratio of their best times."""
    best = [float("inf"), float("inf")]
    for _ in range(times):
        for index, action in enumerate((ours, theirs)):
            gc.collect()  # neither pays for what the other has left behind
            best[index] = min(best[index], timed(action))
    return best[0] / best[1]


def apart(measure: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Measure in a new process: what was measured before leaves memory in pieces, which slows what reads much."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def append_each(folder: str, count: int, way: str) -> tuple[float, float, float]:
    """Append turn by turn, in alternating blocks: the ratio at p50, and ours early and late in microseconds."""
    data = list(turns(count))
    raw, store = Raw(f"{folder}/raw-{way}.db"), recollect.open(f"{folder}/ours-{way}.db")
    session = store.session(ID)
    theirs: list[float] = []
    ours: list[float] = []
    position = 0
    for start in range(0, count, BLOCK):
        block = data[start : start + BLOCK]
        for turn in block:
            begun = time.perf_counter()
            position = raw.append(ID, position, turn)
            theirs.append(time.perf_counter() - begun)
        for turn in block:
            begun = time.perf_counter()
            _append(session, turn, way)
            ours.append(time.perf_counter() - begun)
    store.close()
    raw.close()
    tenth = max(count // 10, 1)
    early, late = statistics.median(ours[:tenth]), statistics.median(ours[-tenth:])
    return statistics.median(ours) / statistics.median(theirs), early * 1e6, late * 1e6


def _append(session: Any, turn: Turn, way: str) -> None:
    if way == "append":
        session.append(turn)
    else:
        session.save_turn(turn[0], turn[1:])


def load(folder: str, messages: int) -> dict[str, float]:
    """Read a long session whole, as history and its end."""
    raw, store = Raw(f"{folder}/raw-load.db"), recollect.open(f"{folder}/ours-load.db")
    session = store.session(ID)
    position = lines = 0
    for turn in turns(messages):
        if position >= messages:
            break
        raw.append(ID, position, turn)
        session.append(turn)
        position += len(turn)
        lines += sum(len(json.dumps(message)) + 1 for message in turn)
    figures = {
        f"load of {position:,} messages, typed": against(session.messages, lambda: raw.load(ID), 15),
        f"history of {position:,} messages, as dicts": against(
            lambda: session.history("openai"), lambda: raw.load(ID), 15
        ),
        "last 50 messages": against(lambda: session.messages(last=50), lambda: raw.last(ID, 50), 199),
    }
    store.close()
    raw.close()
    size = os.path.getsize(f"{folder}/ours-load.db")
    figures["disk, one session"] = size / os.path.getsize(f"{folder}/raw-load.db")
    figures["  against the same as lines of JSON"] = size / lines
    return figures


def same_at_length(folder: str, length: int) -> float:
    """Append to a session that is long already, against its beginning: the ratio of the two."""
    store = recollect.open(f"{folder}/long.db")
    session = store.session(ID)
    data = list(turns(400, seed=2))
    beginning = statistics.median(timed(lambda turn=turn: session.append(turn)) for turn in data)
    filler = [message for turn in turns(3_000, seed=3) for message in turn]
    while session.message_count < length:
        session.append(filler[:5_000])
    end = statistics.median(timed(lambda turn=turn: session.append(turn)) for turn in data)
    store.close()
    return end / beginning


def tasks(folder: str, count: int, each: int) -> float:
    """Many tasks at once, each its own session, against raw one commit each: the ratio of turns per second."""
    data = list(turns(count * each))
    ratios: list[float] = []
    for run in range(7):
        raw = Raw(f"{folder}/raw-tasks-{run}.db")
        begun, position = time.perf_counter(), 0
        for turn in data[: len(data) // 2]:
            position = raw.append(ID, position, turn)
        theirs = len(data) // 2 / (time.perf_counter() - begun)
        raw.close()
        ratios.append(asyncio.run(turns_per_second(f"{folder}/ours-tasks-{run}.db", data, count)) / theirs)
    return statistics.median(ratios)


def processes(folder: str, count: int, each: int) -> float:
    """Several processes on one file, each its own session: the ratio of turns per second."""
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
    taken = timed(lambda: [process.join() for process in running])
    assert all(process.exitcode == 0 for process in running), "a process failed"
    return taken


def _raw_process(path: str, number: int, each: int, barrier: Any) -> None:
    raw, data, position = Raw(path), list(turns(each, seed=number)), 0
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
    """Sessions written interleaved: the first page of the list, the disk, and a resume from a cold cache."""
    data = list(turns(2_000))
    raw = Raw(f"{folder}/raw-many.db")
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
        [(f"{ID}-{number}", f"Talk {number}", number) for number in range(count)],
    )
    asyncio.run(_many(f"{folder}/ours-many.db", data, count, rounds))
    store = recollect.open(f"{folder}/ours-many.db")
    figures = {f"first 50 of {count:,} sessions": against(lambda: store.list_sessions(50), lambda: raw.list(50), 199)}
    store.close()
    raw.close()
    figures[f"disk, {count:,} sessions interleaved"] = os.path.getsize(f"{folder}/ours-many.db") / os.path.getsize(
        f"{folder}/raw-many.db"
    )
    figures["resume from a cold cache"] = _cold(folder, count)
    return figures


def _raw_insert(raw: Raw, session: str, position: int, message: dict[str, Any]) -> None:
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
                some = enumerate(sessions[start : start + 250], start)
                await asyncio.gather(
                    *(session.append(data[(number * 7 + turn_number) % len(data)]) for number, session in some)
                )


def _cold(folder: str, count: int) -> float:
    """Read sessions whose pages are not in memory, both sides in turn; 0 where the cache can not be dropped."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(5, count, count // 15):
        for times, work in ((theirs, _cold_raw), (ours, _cold_ours)):
            if not _drop_cache():
                return 0.0
            times.append(work(folder, f"{ID}-{number}"))
    return statistics.median(ours) / statistics.median(theirs)


def _cold_raw(folder: str, session: str) -> float:
    raw = Raw(f"{folder}/raw-many.db")
    taken = timed(lambda: raw.load(session))
    raw.connection.close()
    return taken


def _cold_ours(folder: str, session: str) -> float:
    with recollect.open(f"{folder}/ours-many.db") as store:
        handle = store.get_session(session)
        assert handle is not None
        return timed(handle.messages)


def _drop_cache() -> bool:
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as knob:
            knob.write("3")
    except OSError:
        return False
    return True


def start(folder: str) -> dict[str, float]:
    """Start a process that opens a store and lists 20 sessions: milliseconds over a bare interpreter.

    msgspec loads typing_extensions where it finds it, which a base install does not have and the tests' one has.
    """
    path = f"{folder}/start.db"
    with recollect.open(path) as store:
        for number in range(20):
            store.session(f"cli:{number}")
    code = f"import recollect; recollect.open({path!r}).list_sessions(20)"
    base = f"import sys; sys.modules['typing_extensions'] = None; {code}"
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    taken: dict[str, list[float]] = {"pass": [], code: [], base: []}
    for _ in range(25):
        for run, times in taken.items():
            times.append(timed(lambda run=run: subprocess.run([sys.executable, "-c", run], check=True, env=compiled)))
    bare, here, alone = (statistics.median(times) * 1_000 for times in taken.values())
    name = "import, open, list 20, milliseconds over bare"
    return {name: alone - bare, "  the same with typing_extensions installed": here - bare}


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a first look")
    parser.add_argument("--folder", help="where the databases go (a new folder in the system's temporary one)")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    folder = tempfile.mkdtemp(prefix="recollect-bench-", dir=options.folder)
    try:
        for name, figure, target in _figures(folder, scale):
            print(f"{name:<44} {figure:>8.2f}   {target}", flush=True)
    finally:
        shutil.rmtree(folder)


def _figures(folder: str, scale: int) -> Any:
    for way, label in (("append", "append()"), ("save_turn", "save_turn()")):
        ratio, early, late = append_each(folder, 4_000 // scale, way)
        yield f"append of a turn, p50, {label}", ratio, "at most 1.20 x raw"
        yield "  first tenth, microseconds", early, ""
        yield "  last tenth, microseconds", late, ""
    yield "append at message 100,000 / at the start", same_at_length(folder, 100_000 // scale), "1.0"
    yield "64 tasks, turns per second", tasks(folder, 64, 80 // scale or 4), "at least 2.50 x raw"
    yield "4 processes, turns per second", processes(folder, 4, 1_000 // scale), "at least 0.80 x raw"
    wanted = {"load": "at most 0.60 x raw", "last": "at most 1.00 x raw", "disk": "at most 0.78 x raw"}
    for name, figure in apart(load, folder, 10_000 // scale).items():
        yield name, figure, wanted.get(name.split(maxsplit=1)[0].rstrip(","), "")
    for name, figure in apart(many_sessions, folder, 10_000 // scale, 5).items():
        yield name, figure, "at most 3.00 x raw" if name.startswith("first") else wanted.get(name.split(",")[0], "")
    for name, figure in start(folder).items():
        yield name, figure, "at most 60"


if __name__ == "__main__":
    main()
