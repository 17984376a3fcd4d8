"""The import of 200 Claude Code conversations, compared with agentsview in the same run.

    python benchmarks/imports.py [--agentsview PATH] [--sessions 200] [--lines 90]

agentsview is a program in Go that reads the same files into SQLite with a search index; its wheel on PyPI runs without
a network. Without --agentsview, only Recollect is measured. The texts are pieces of the standard library of Python, so
words, lengths and repetitions are irregular. Times are CPU seconds of the process, with the index built on both sides;
the second import finds every file unchanged.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any


def texts(seed: int = 1) -> Iterator[str]:
    """Yield pieces of source files without an end, in a fixed order."""
    generator = random.Random(seed)
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    while True:
        source = generator.choice(files).read_text(errors="replace")
        start = generator.randrange(max(1, len(source) - 4000))
        yield source[start : start + int(generator.lognormvariate(6.5, 1.0)) + 20]


def conversation(number: int, pieces: Iterator[str], lines: int = 90) -> Iterator[dict[str, Any]]:
    """Yield the lines of a conversation."""
    generator = random.Random(number)
    session = str(uuid.UUID(int=generator.getrandbits(128), version=4))
    parent: str | None = None
    at = 1_750_000_000 + number * 7_000
    for index in range(lines):
        at += generator.randint(1, 60)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{generator.randrange(1000):03}Z"
        line: dict[str, Any] = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": f"/home/user/work{number % 9}",
            "sessionId": session, "version": "2.1.140", "gitBranch": "main",
            "uuid": str(uuid.UUID(int=generator.getrandbits(128), version=4)), "timestamp": stamp,
        }  # fmt: skip
        step = index % 6
        if step == 0:
            line |= {"type": "user", "message": {"role": "user", "content": next(pieces)[:600]}}
        elif step in (2, 4):
            result = {"type": "tool_result", "tool_use_id": f"toolu_{number}_{index - 1}", "content": next(pieces)}
            line |= {"type": "user", "message": {"role": "user", "content": [result]}}
        else:
            content: list[dict[str, Any]] = [{"type": "text", "text": next(pieces)[:800]}]
            if step in (1, 3):
                command = {"command": next(pieces)[:80]}
                content.append({"type": "tool_use", "id": f"toolu_{number}_{index}", "name": "Bash", "input": command})
            line |= {"type": "assistant", "requestId": f"req_{number}_{index}", "message": {
                "id": f"msg_{number}_{index}", "type": "message", "role": "assistant", "model": "claude-opus-4-6",
                "content": content, "stop_reason": "tool_use" if step in (1, 3) else "end_turn",
                "usage": {
                    "input_tokens": 20 + index, "output_tokens": generator.randint(5, 900),
                    "cache_creation_input_tokens": 300, "cache_read_input_tokens": 9_000 + index,
                },
            }}  # fmt: skip
        parent = line["uuid"]
        yield line


def write_transcripts(folder: pathlib.Path, sessions: int, lines: int) -> int:
    """Write conversations as Claude Code stores them, and return their size in bytes."""
    pieces, total = texts(), 0
    for number in range(sessions):
        items = list(conversation(number, pieces, lines))
        file = folder / f"-home-user-project{number % 9}" / f"{items[0]['sessionId']}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in items)
        total += file.write_bytes(data.encode())
    return total


def cpu_seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a program and return its CPU time and its wall clock time in seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True, timeout=600)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


def size(folder: pathlib.Path) -> float:
    """Return the size of the databases in a folder in megabytes."""
    return sum(file.stat().st_size for file in folder.rglob("*.db*") if file.is_file()) / 1e6


def compile_modules(home: pathlib.Path, environment: dict[str, str]) -> None:
    """Import one conversation elsewhere, so that Python has compiled its modules, as an installation with pip does."""
    write_transcripts(home / ".claude" / "projects", 1, 1)
    command = [sys.executable, "-m", "recollect", "--db", str(home / "r.db"), "sync"]
    subprocess.run(command, env=environment | {"HOME": str(home)}, capture_output=True, check=True)


def measure(name: str, command: list[str], environment: dict[str, str], data: pathlib.Path) -> dict[str, float]:
    """Import twice and print the figures."""
    first, seconds = cpu_seconds(command, environment)
    figures = {"first": first, "megabytes": size(data)}
    figures["second"], again = cpu_seconds(command, environment)
    print(
        f"{name:12} first import {first:6.2f} s CPU, {seconds:6.2f} s; {figures['megabytes']:6.1f} MB; "
        f"second {figures['second']:5.2f} s CPU, {again:5.2f} s"
    )
    return figures


def main() -> None:
    """Measure both programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agentsview", help="the program to compare with")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--lines", type=int, default=90, help="per conversation; 90 are about 110 KB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        total = write_transcripts(home / ".claude" / "projects", options.sessions, options.lines)
        print(f"{options.sessions} conversations, {options.sessions * options.lines:,} lines, {total / 1e6:.1f} MB")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "LC_ALL": "C.UTF-8",
            "PYTHONPYCACHEPREFIX": name + "/b",
        }
        database = home / "recollect" / "recollect.db"
        command = [sys.executable, "-m", "recollect", "--db", str(database), "sync"]
        compile_modules(home / "other", environment)
        ours = measure("recollect", command, environment, database.parent)
        if options.agentsview:
            data = home / "agentsview"
            data.mkdir()
            environment |= {"AGENTSVIEW_DATA_DIR": str(data), "AGENTSVIEW_NO_DAEMON": "1"}
            theirs = measure(
                "agentsview", [shutil.which(options.agentsview) or options.agentsview, "sync"], environment, data
            )
            for key in ours:
                print(f"{key} / agentsview: {ours[key] / theirs[key]:.2f}")


if __name__ == "__main__":
    main()
