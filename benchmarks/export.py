"""Export and import of one session: how much memory they take at 1,000 and at 10,000 messages, and how long.

Each measurement runs in a process of its own, after the session was made by another. Memory is the peak that Python
allocated while it ran (tracemalloc), and how much the process grew (ru_maxrss).
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
        session = store.session("cli:long", title="A long talk")
        made = 0
        for turn in turns(count):
            session.append(turn[: count - made], "openai")
            made += len(turn)
            if made >= count:
                return


def work(name: str, folder: str) -> int:
    """Do one piece of work, and give how many bytes went out or came in."""
    source = os.path.join(folder, "talk.db")
    if name.startswith("import"):
        with recollect.open(os.path.join(folder, "copy.db")) as store:
            export.read(store, os.path.join(folder, "talk.jsonl"))
        return os.path.getsize(os.path.join(folder, "talk.jsonl"))
    format = "jsonl" if name == "redacted" else name
    with recollect.open(source) as store:
        target = os.devnull if name == "redacted" else os.path.join(folder, f"talk.{format}")
        with open(target, "wb") as file:
            return export.write(store, ["cli:long"], format, file, redact=name == "redacted")


def measured(name: str, folder: str) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    size = work(name, folder)
    seconds = time.perf_counter() - begun
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if name == "import":
        os.unlink(os.path.join(folder, "copy.db"))
    tracemalloc.start()
    work(name, folder)
    return {"size": size, "seconds": seconds, "grown": grown * 1024, "peak": tracemalloc.get_traced_memory()[1]}


def in_a_child(*arguments: str) -> Any:
    told = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(told.stdout or "null")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2)
    parser.add_argument("--fill", nargs=2)
    given = parser.parse_args()
    if given.fill:
        fill(given.fill[0], int(given.fill[1]))
        return
    if given.child:
        print(json.dumps(measured(*given.child)))
        return
    print(f"{'':14}{'messages':>10}{'MB':>8}{'seconds':>9}{'peak MB':>9}{'grown MB':>10}")
    for count in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            in_a_child("--fill", os.path.join(folder, "talk.db"), str(count))
            for name in WORK:
                found = in_a_child("--child", name, folder)
                print(
                    f"{name:14}{count:>10,}{found['size'] / 1e6:>8.1f}{found['seconds']:>9.2f}"
                    f"{found['peak'] / 1e6:>9.1f}{found['grown'] / 1e6:>10.1f}"
                )


if __name__ == "__main__":
    main()
