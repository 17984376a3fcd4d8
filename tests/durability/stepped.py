"""Two processes on one database file whose file operations a test schedules one by one.

`python stepped.py` is one process. Its VFS stops before every file operation until the test grants some, and it runs the
actions that the test requests: maintenance in one process (erase, optimize, prune, reindex, backup, restore), and the
interference of another program in the other one (write, checkpoint, vacuum). `Pair` is the test's side: it grants operations
to one process or the other by a seed, so that a schedule that found a defect can be repeated.

The locks of the WAL are in shared memory, which no VFS of Python sees: SQLite takes them between two file operations, so
a stopped process keeps its locks. A process that waits for a lock reports nothing; then the other one continues.
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
LOCK_WAIT = 0.02  # seconds without a report after which a process is assumed to wait for a lock
# Share of schedules in which one process stops once, at any operation, while the other one runs. Schedules of short
# alternating steps hardly find a page that is written without SQLite.
INTERRUPTION_SHARE = 0.7
# Share of these in which the other process stops too, and the first one runs to its end in between: a page that was read
# during a checkpoint is written after it. Without these, 300 schedules did not find that.
SECOND_INTERRUPTION_SHARE = 0.7
MAX_SECOND_OPERATIONS = 300  # the defect to find takes 100 to 200
NO_LIMIT = 1_000_000  # file operations: more than any action needs
PAGE = 4096  # bytes
DEADLINE = 120.0  # seconds for one schedule
MAINTENANCE = ("erase", "optimize", "prune", "empty_trash", "reindex", "backup", "restore")
INTERFERENCE = ("write", "checkpoint", "vacuum")


# The child process


class OperationGate:
    """Blocks a process after the granted number of file operations, until the test grants more."""

    def __init__(self) -> None:
        self.credit = 0
        self.is_open = True

    def step(self) -> None:
        if self.is_open:
            return
        if self.credit == 0:
            _send_line("stopped")
            self.credit = int(_read_line())
        self.credit -= 1


GATE = OperationGate()


def _send_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _read_line() -> str:
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
    """The actions of a process by name. Each returns the texts whose append was acknowledged."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.rng = random.Random(seed)

    def erase(self) -> list[str]:
        with self._store() as store:
            for session_id in ("v0", "v1"):
                store.erase_session(session_id)
        return []

    def optimize(self) -> list[str]:
        with self._store() as store:
            store.maintenance.optimize()
        return []

    def prune(self) -> list[str]:
        with self._store() as store:
            store.delete_session("v0")
            store.maintenance.prune(keep=3, erase=True)
        return []

    def empty_trash(self) -> list[str]:
        with self._store() as store:
            store.delete_session("v0")
            store.maintenance.empty_trash()
        return []

    def reindex(self) -> list[str]:
        with self._store() as store:
            store.maintenance.reindex()
        return []

    def backup(self) -> list[str]:
        with self._store() as store:
            store.maintenance.backup(f"{self.path}.copy")
        return []

    def restore(self) -> list[str]:
        import recollect

        recollect.restore(f"{self.path}.before", self.path)
        return []

    def write(self) -> list[str]:
        texts = []
        with self._store() as store:
            session = store.session("kept")
            for number in range(self.rng.randint(1, 6)):
                text = f"{number}" + "." * self.rng.choice((1, 200, 5_000))
                session.append({"role": "user", "content": text})
                texts.append(text)
        return texts

    def checkpoint(self) -> list[str]:
        # The automatic checkpoints of other programs are passive, and only those run next to a writer.
        modes = ("PASSIVE", "PASSIVE", "PASSIVE", "FULL", "RESTART", "TRUNCATE")
        self._run_statements(
            [f"PRAGMA wal_checkpoint({self.rng.choice(modes)})" for _ in range(self.rng.randint(1, 4))]
        )
        return []

    def vacuum(self) -> list[str]:
        self._run_statements(["VACUUM", f"PRAGMA wal_checkpoint({self.rng.choice(('PASSIVE', 'TRUNCATE'))})"])
        return []

    def write_pages_directly(self) -> list[str]:
        """Write pages of the file without SQLite, and ignore that a checkpoint reported busy: the defect to find."""
        writer, checkpointer = (apsw.Connection(self.path, vfs="cksmvfs") for _ in range(2))
        writer.set_busy_timeout(30_000)
        writer.execute("BEGIN IMMEDIATE")
        checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB
        file = apsw.VFSFile("cksmvfs", self.path, [flags, 0])
        pages = [(offset, file.xRead(PAGE, offset)) for offset in range(0, file.xFileSize(), PAGE)]
        for offset, page in pages:
            file.xWrite(page, offset)
        file.xClose()
        writer.execute("COMMIT")
        writer.close()
        checkpointer.close()
        return []

    def _store(self):
        import recollect

        store = recollect.open(self.path)
        # A short WAL, so that checkpoints of the store itself are part of the schedule.
        from recollect.engine.sqlite.checkpoint import checkpoint_at

        checkpoint_at(store._engine._file.writer, self.rng.choice((10, 50, 1_000)), 30.0)  # pyright: ignore[reportAttributeAccessIssue]
        return store

    def _run_statements(self, statements: list[str]) -> None:
        connection = apsw.Connection(self.path, vfs="cksmvfs")
        connection.set_busy_timeout(30_000)
        try:
            for statement in statements:
                connection.execute(statement).fetchall()
        finally:
            connection.close()


def main() -> None:
    """Run the actions that arrive on stdin, one JSON line each."""
    vfs = SteppedVFS()
    from recollect.engine.sqlite.connection import checksum_vfs

    assert checksum_vfs() is not None
    _send_line("ready")
    while True:
        request = json.loads(_read_line())
        GATE.credit, GATE.is_open = 0, False
        try:
            texts = getattr(Actions(request["path"], request["seed"]), request["action"])()
            reply: dict[str, Any] = {"texts": texts}
        except Exception as error:  # noqa: BLE001  the test reports it
            cause = getattr(error.__cause__, "extendedresult", None)
            reply = {"error": f"{type(error).__name__}: {error} ({error.__cause__!r}, {cause})"}
        GATE.is_open = True
        _send_line("done " + json.dumps(reply))
        del reply
        assert vfs is not None


# The scheduler


class Worker:
    """One child process and its last report."""

    def __init__(self) -> None:
        command = [sys.executable, os.path.abspath(__file__)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.reply: dict[str, Any] | None = None
        self.stopped = False
        self.is_waiting = False
        self._buffer = b""
        assert self.read_line(DEADLINE) == "ready"

    def begin(self, action: str, path: str, seed: int) -> None:
        self.reply, self.stopped, self.is_waiting = None, False, False
        self.send(json.dumps({"action": action, "path": path, "seed": seed}))

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def read_line(self, seconds: float) -> str | None:
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            chunk = os.read(self.process.stdout.fileno(), 65_536)
            if not chunk:
                raise AssertionError(f"the process ended with {self.process.wait()}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def read_report(self) -> None:
        """Read a report: the process has stopped, or is done."""
        line = self.read_line(0.0)
        self.is_waiting = False
        if line == "stopped":
            self.stopped = True
        elif line is not None:
            self.reply = json.loads(line.removeprefix("done "))

    def grant(self, operations: int) -> None:
        self.stopped, self.is_waiting = False, False
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
        """Run two actions at once; the seed decides which process continues, and for how many operations."""
        rng = random.Random(seed)
        for worker, action in zip(self.workers, actions, strict=True):
            worker.begin(action, path, seed)
        deadline = time.monotonic() + DEADLINE
        burst = rng.choice((2, 8, 30, 120))
        if rng.random() < INTERRUPTION_SHARE:
            first, second = rng.sample(self.workers, 2)
            operations = int(math.exp(rng.uniform(0, 6.5)))
            if rng.random() < SECOND_INTERRUPTION_SHARE:
                turns = ((first, operations), (second, rng.randint(1, MAX_SECOND_OPERATIONS)), (first, NO_LIMIT))
            else:
                turns = ((first, operations), (second, NO_LIMIT))
            self._run_turns(turns)
        while any(worker.reply is None for worker in self.workers):
            assert time.monotonic() < deadline, f"seed {seed}: {actions} did not end"
            self._settle()
            ready = [worker for worker in self.workers if worker.stopped]
            if ready:
                rng.choice(ready).grant(1 + int(rng.expovariate(1 / burst)))
        first_reply, second_reply = (worker.reply for worker in self.workers)
        assert first_reply is not None
        assert second_reply is not None
        return first_reply, second_reply

    def _run_turns(self, turns: tuple[tuple[Worker, int], ...]) -> None:
        """Run one process after the other, each for a number of operations or as far as it can."""
        self._settle()
        for worker, granted_count in turns:
            if worker.stopped:
                worker.grant(granted_count)
            self._settle()

    def _settle(self) -> None:
        """Read reports until each process has stopped, is done, or waits for a lock."""
        while running := [worker for worker in self.workers if worker.reply is None and not worker.stopped]:
            pipes = {worker.process.stdout: worker for worker in running}
            active = any(not worker.is_waiting for worker in running)
            reports = select.select(
                list(pipes), [], [], LOCK_WAIT if active or len(running) == len(self.workers) else 0.0
            )[0]
            for pipe in reports:
                pipes[pipe].read_report()
            if not reports:
                for worker in running:
                    worker.is_waiting = True
                return

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def secrets_in(path: str) -> dict[str, int]:
    """Count the secret in the file and its WAL. Read by another process: plain I/O here would drop SQLite's locks."""
    counts = {}
    for name in (path, *glob.glob(glob.escape(path) + "-*")):
        content = subprocess.run(["cat", name], capture_output=True, check=True).stdout
        counts[name.removeprefix(path)] = content.count(SECRET.encode())
    return {name: count for name, count in counts.items() if count}


if __name__ == "__main__":
    main()
