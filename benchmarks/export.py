"""Export and import of one session: memory and time at 1,000 and 10,000 messages.

Each measurement runs in a separate process; another process creates the session. Memory is the peak that Python
allocates (tracemalloc) and the growth of the process (ru_maxrss).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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


def run_child(*arguments: str) -> Any:
    process = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(process.stdout or "null")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2)
    parser.add_argument("--fill", nargs=2)
    options = parser.parse_args()
    if options.fill:
        fill(options.fill[0], int(options.fill[1]))
        return
    if options.child:
        print(json.dumps(measure(*options.child)))
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


if __name__ == "__main__":
    main()
