"""Two processes on one database file whose file operations a test schedules one by one.

`python stepped.py` is one process. It sits on a VFS that stops before every file operation until the test grants it some,
and runs the actions that the test names: maintenance on one side (erase, optimize, prune, reindex, backup, restore), what
another program may do meanwhile on the other (write, checkpoint, vacuum). `Pair` is the test's side: it grants operations
to one process or the other by a seed, so that a schedule that found a defect can be run again.

The locks of the write-ahead log are in shared memory, which no VFS of Python sees: SQLite takes them between two file
operations, so a process that is stopped keeps what it holds. One that waits for a lock reports nothing; then the other
one continues.
"""

from __future__ import annotations

import glob
import json
import math
import os
import random
import select
import subprocess
import sys
import time
from typing import Any

import apsw

SECRET = "SEKRET"
WAITS = 0.02
"""Seconds without a report after which a process is taken for one that waits for a lock."""

SUDDEN = 0.7
"""The share of schedules in which one process stops once, at any operation, and the other one runs to its end. A page
that is written around SQLite is found by these; by short turns of both it hardly is."""

EVERYTHING = 1_000_000
PAGE = 4096
DEADLINE = 120.0
SIDES = ("erase", "optimize", "prune", "empty_trash", "reindex", "backup", "restore")
OTHERS = ("write", "checkpoint", "vacuum")


# The process


class Gate:
    """Lets a process do as many file operations as it was granted, then asks for more."""

    def __init__(self) -> None:
        self.credit = 0
        self.open = True

    def step(self) -> None:
        if self.open:
            return
        if self.credit == 0:
            _tell("stopped")
            self.credit = int(_hear())
        self.credit -= 1


GATE = Gate()


def _tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _hear() -> str:
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return line


class SteppedFile(apsw.VFSFile):
    """A file that stops before each operation."""

    def xRead(self, amount, offset):  # noqa: N802
        GATE.step()
        return super().xRead(amount, offset)

    def xWrite(self, data, offset):  # noqa: N802
        GATE.step()
        super().xWrite(data, offset)

    def xTruncate(self, size):  # noqa: N802
        GATE.step()
        super().xTruncate(size)

    def xSync(self, flags):  # noqa: N802
        GATE.step()
        super().xSync(flags)

    def xLock(self, level):  # noqa: N802
        GATE.step()
        try:
            super().xLock(level)
        except apsw.IOError as error:
            # Closing, a read-only connection asks for a lock that it cannot have, and SQLite ignores the refusal. apsw
            # would raise it, but swallows BusyError.
            raise apsw.BusyError("refused") from error

    def xUnlock(self, level):  # noqa: N802
        GATE.step()
        super().xUnlock(level)


class SteppedVFS(apsw.VFS):
    """The VFS below everything, checksums included."""

    def __init__(self) -> None:
        super().__init__("stepped", "unix", makedefault=True)

    def xOpen(self, name, flags):  # noqa: N802
        GATE.step()
        return SteppedFile("unix", name, flags)

    def xDelete(self, filename, syncdir):  # noqa: N802
        GATE.step()
        super().xDelete(filename, syncdir)


class Actions:
    """What a process does, by name. Each returns the texts whose write was acknowledged."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.dice = random.Random(seed)

    def erase(self) -> list[str]:
        with self._store() as store:
            for victim in ("v0", "v1"):
                store.erase_session(victim)
        return []

    def optimize(self) -> list[str]:
        with self._store() as store:
            store.optimize()
        return []

    def prune(self) -> list[str]:
        with self._store() as store:
            store.delete_session("v0")
            store.prune(keep=3, erase=True)
        return []

    def empty_trash(self) -> list[str]:
        with self._store() as store:
            store.delete_session("v0")
            store.empty_trash()
        return []

    def reindex(self) -> list[str]:
        with self._store() as store:
            store.reindex()
        return []

    def backup(self) -> list[str]:
        with self._store() as store:
            store.backup(f"{self.path}.copy")
        return []

    def restore(self) -> list[str]:
        import recollect

        recollect.restore(f"{self.path}.before", self.path)
        return []

    def write(self) -> list[str]:
        texts = []
        with self._store() as store:
            session = store.session("kept")
            for number in range(self.dice.randint(1, 6)):
                text = f"{number}" + "." * self.dice.choice((1, 200, 5_000))
                session.append({"role": "user", "content": text})
                texts.append(text)
        return texts

    def checkpoint(self) -> list[str]:
        modes = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")
        self._plain([f"PRAGMA wal_checkpoint({self.dice.choice(modes)})" for _ in range(self.dice.randint(1, 4))])
        return []

    def vacuum(self) -> list[str]:
        self._plain(["VACUUM", f"PRAGMA wal_checkpoint({self.dice.choice(('PASSIVE', 'TRUNCATE'))})"])
        return []

    def careless(self) -> list[str]:
        """Write pages of the file back around SQLite, and take the answer of a busy checkpoint for done."""
        keeper, other = (apsw.Connection(self.path, vfs="cksmvfs") for _ in range(2))
        keeper.set_busy_timeout(30_000)
        keeper.execute("BEGIN IMMEDIATE")
        other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB
        file = apsw.VFSFile("cksmvfs", self.path, [flags, 0])
        pages = [(offset, file.xRead(PAGE, offset)) for offset in range(0, file.xFileSize(), PAGE)]
        for offset, page in pages:
            file.xWrite(page, offset)
        file.xClose()
        keeper.execute("COMMIT")
        keeper.close()
        other.close()
        return []

    def _store(self):
        import recollect

        store = recollect.open(self.path)
        # A short log: the checkpoints of the store itself fall into the schedule too.
        from recollect.engine.sqlite.log import fold_at

        fold_at(store._engine._file.writer, self.dice.choice((10, 50, 1_000)), 30.0)
        return store

    def _plain(self, statements: list[str]) -> None:
        connection = apsw.Connection(self.path, vfs="cksmvfs")
        connection.set_busy_timeout(30_000)
        try:
            for statement in statements:
                connection.execute(statement).fetchall()
        finally:
            connection.close()


def main() -> None:
    """Run the actions that are read from the input, one line each."""
    vfs = SteppedVFS()
    from recollect.engine.sqlite.connection import checksum_vfs

    assert checksum_vfs() is not None
    _tell("ready")
    while True:
        order = json.loads(_hear())
        GATE.credit, GATE.open = 0, False
        try:
            texts = getattr(Actions(order["path"], order["seed"]), order["action"])()
            reply: dict[str, Any] = {"texts": texts}
        except Exception as error:  # noqa: BLE001  the test says what was raised
            cause = getattr(error.__cause__, "extendedresult", None)
            reply = {"error": f"{type(error).__name__}: {error} ({error.__cause__!r}, {cause})"}
        GATE.open = True
        _tell("done " + json.dumps(reply))
        del reply
        assert vfs is not None


# The test's side


class Worker:
    """One process, and what it reported last."""

    def __init__(self) -> None:
        command = [sys.executable, os.path.abspath(__file__)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.reply: dict[str, Any] | None = None
        self.stopped = False
        self.waits = False
        self._buffer = b""
        assert self.hear(DEADLINE) == "ready"

    def begin(self, action: str, path: str, seed: int) -> None:
        self.reply, self.stopped, self.waits = None, False, False
        self.send(json.dumps({"action": action, "path": path, "seed": seed}))

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def hear(self, seconds: float) -> str | None:
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 65_536)
            if not piece:
                raise AssertionError(f"the process ended with {self.process.wait()}")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def look(self) -> None:
        """Take in a report: the process stopped, or is done."""
        line = self.hear(0.0)
        self.waits = False
        if line == "stopped":
            self.stopped = True
        elif line is not None:
            self.reply = json.loads(line.removeprefix("done "))

    def grant(self, operations: int) -> None:
        self.stopped, self.waits = False, False
        self.send(str(operations))

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pair:
    """Two processes, and a schedule of their file operations."""

    def __init__(self) -> None:
        self.workers = (Worker(), Worker())

    def run(self, path: str, actions: tuple[str, str], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run two actions at once; which process goes on, and how far, is decided by the seed."""
        dice = random.Random(seed)
        for worker, action in zip(self.workers, actions, strict=True):
            worker.begin(action, path, seed)
        until = time.monotonic() + DEADLINE
        burst = dice.choice((2, 8, 30, 120))
        if dice.random() < SUDDEN:
            self._interrupt(*dice.sample(self.workers, 2), operations=int(math.exp(dice.uniform(0, 6.5))))
        while any(worker.reply is None for worker in self.workers):
            assert time.monotonic() < until, f"seed {seed}: {actions} did not end"
            self._settle()
            ready = [worker for worker in self.workers if worker.stopped]
            if ready:
                dice.choice(ready).grant(1 + int(dice.expovariate(1 / burst)))
        first, second = (worker.reply for worker in self.workers)
        assert first is not None
        assert second is not None
        return first, second

    def _interrupt(self, first: Worker, second: Worker, *, operations: int) -> None:
        """Stop one process after so many operations, and have the other one do as much as it can meanwhile."""
        self._settle()
        for worker, granted in ((first, operations), (second, EVERYTHING)):
            if worker.stopped:
                worker.grant(granted)
            self._settle()

    def _settle(self) -> None:
        """Take in reports until each process has stopped, is done, or waits for a lock."""
        while running := [worker for worker in self.workers if worker.reply is None and not worker.stopped]:
            pipes = {worker.process.stdout: worker for worker in running}
            active = any(not worker.waits for worker in running)
            reports = select.select(list(pipes), [], [], WAITS if active or len(running) == len(self.workers) else 0.0)[
                0
            ]
            for pipe in reports:
                pipes[pipe].look()
            if not reports:
                for worker in running:
                    worker.waits = True
                return

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def secrets_in(path: str) -> dict[str, int]:
    """Count the secret in the file and in its log. A copy of another process: plain I/O here would drop locks."""
    counts = {}
    for name in (path, *glob.glob(glob.escape(path) + "-*")):
        content = subprocess.run(["cat", name], capture_output=True, check=True).stdout
        counts[name.removeprefix(path)] = content.count(SECRET.encode())
    return {name: count for name, count in counts.items() if count}


if __name__ == "__main__":
    main()
