"""An import on a failing disk: `python faulty_import.py <path> <percent> <seed> <folder> <calls>`, under `fiu-run -x`.

Some calls of read, write, sync, open and truncate fail: all of them, or only those by which the database writes, so that
the transcripts can be read. After each import, what is stored must be the beginning of each conversation and of its original. It prints the errors by class as JSON.
"""

from __future__ import annotations

import collections
import ctypes
import json
import pathlib
import sys

import faulty

import recollect
from recollect.errors import StoreError
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

OPTIONS = ImportOptions(sources=["claude-code"])
CALLS = {"all": faulty.CALLS, "writes": (b"posix/io/rw/pwrite*", b"posix/io/rw/ftruncate*", b"posix/io/sync/*")}
IMPORTS = 12  # with faults; at 5%, one of them does not read all files


def check_beginnings(path: str, folder: pathlib.Path) -> int:
    """Check that everything stored is the beginning of a file; return the number of messages."""
    count = 0
    with recollect.open(path) as store:
        assert store.maintenance.check().problems == ()
        for session in store.list_sessions():
            file = folder / f"{session.id.partition(':')[2]}.jsonl"
            texts = [json.loads(line)["message"]["content"] for line in file.read_bytes().splitlines()]
            stored_texts = [message.text for message in session.messages()]
            assert stored_texts == texts[: len(stored_texts)]
            [(_, data)] = read_originals(store, session.id)
            assert file.read_bytes().startswith(data)
            assert data.count(b"\n") == len(stored_texts)
            count += len(stored_texts)
    return count


def main() -> None:
    """Import with faults, check after each import, and import what remains without faults."""
    path, percent, seed, folder = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4])
    ctypes.CDLL(None).srandom(seed)
    faulty.CALLS = CALLS[sys.argv[5]]
    with recollect.open(f"{path}.warm") as store:  # loads the modules before the faults begin
        import_files(store, [folder], OPTIONS)
    error_counts: collections.Counter = collections.Counter()
    count, faults = 0, faulty.Faults(percent)
    for _ in range(IMPORTS):
        with recollect.open(path, timeout=5) as store:
            try:
                with faults:
                    report = import_files(store, [folder], OPTIONS)
                error_counts["failed files"] += sum(note.count for note in report.notes if note.kind == "failed")
            except StoreError as error:
                error_counts[type(error).__name__] += 1
        before, count = count, check_beginnings(path, folder)
        assert count >= before, "messages were lost"
    with recollect.open(path) as store:
        assert not import_files(store, [folder], OPTIONS).has_failures
        assert len(store.list_sessions()) == len(list(folder.glob("*.jsonl")))
    total = sum(file.read_bytes().count(b"\n") for file in folder.glob("*.jsonl"))
    assert check_beginnings(path, folder) == total
    print(json.dumps({"written": total, "errors": dict(error_counts)}))


if __name__ == "__main__":
    main()
