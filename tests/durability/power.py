"""A simulated power failure: `python power.py <work> <cuts> <seed> [full|normal]`.

A VFS below SQLite (and below its checksum VFS) records for each file which writes were synced. At random points of the
work it writes a disk image as a power failure would leave it: synced data is present; of unsynced writes, none, all, a
prefix, a random subset, or random sectors survive. The image is then opened: every write that was acknowledged before
the failure must be in it, once and in order.

It prints its counts as JSON. It is a separate program because its VFS becomes the default of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time

import apsw

SECTOR = 512  # bytes that a disk writes atomically
MAX_PROBLEMS = 20  # problems after which the run ends: more of them tell nothing new
CUTS_PER_DISK = 250  # then a new disk begins, so that images stay small
WAL_PAGES = 40  # pages of the WAL that trigger a checkpoint: so few that a power failure often falls into one


class FileState:
    """One file: its synced content, and the writes since the last sync."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, *change)
        self.pending.clear()


def apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """Apply one write, or truncate the file at `offset` if `data` is None."""
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """The state of a folder on disk, from which images after a power failure are made."""

    def __init__(self, folder: str, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.files: dict[str, FileState]
        self.unsynced_deletions: dict[str, FileState]
        self.renames: list[tuple[str, str, FileState]]
        self.reset()
        self.lock = threading.RLock()
        self.cut = None
        self.until_cut = 0

    def reset(self) -> None:
        """Start with an empty folder."""
        self.files, self.unsynced_deletions, self.renames = {}, {}, []

    def has(self, path: str | None) -> bool:
        return path is not None and os.path.dirname(path) == self.folder

    def open(self, path: str) -> None:
        with self.lock:
            if path not in self.files:
                with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                    self.files[path] = FileState(file.read())
                self.files.setdefault(path, FileState())

    def change(self, path: str, offset: int, data: bytes | None) -> None:
        with self.lock:
            self.files[path].pending.append((offset, data))
            self.tick()

    def sync(self, path: str, *, folder: bool = False) -> None:
        with self.lock:
            self.tick()  # a power failure just before the sync
            self.files[path].sync()
            if folder:
                self.unsynced_deletions.clear()

    def delete(self, path: str, *, syncs_folder: bool) -> None:
        with self.lock:
            state = self.files.pop(path, None)
            if state is not None and not syncs_folder:
                self.unsynced_deletions[path] = state  # without a sync of the folder, the name may reappear

    def rename(self, old: str, new: str) -> None:
        with self.lock:
            state = self.files.pop(old, None)
            if state is not None:
                self.renames.append((old, new, state))
                self.tick()

    def sync_folder(self) -> None:
        with self.lock:
            for _, new, state in self.renames:
                self.files[new] = state
            self.renames.clear()
            self.unsynced_deletions.clear()

    def tick(self) -> None:
        """Count an operation of the disk; at random ones, simulate a power failure."""
        if self.cut is None:
            return
        self.until_cut -= 1
        if self.until_cut <= 0:
            self.until_cut = self.rng.randrange(1, 12)
            self.cut()

    def image(self, target: str) -> None:
        """Write a disk image as a power failure could leave it."""
        os.makedirs(target)
        files = dict(self.files)
        files |= {path: state for path, state in self.unsynced_deletions.items() if self.rng.random() < 0.5}
        for old, new, state in self.renames:
            files[new if self.rng.random() < 0.5 else old] = state
        outcome = self.rng.choice(("none", "all", "beginning", "some", "torn"))
        for path, state in files.items():
            content = bytearray(state.durable)
            for change in self.surviving_writes(state.pending, outcome):
                apply(content, *change)
            with open(os.path.join(target, os.path.basename(path)), "wb") as file:
                file.write(content)

    def surviving_writes(self, pending, outcome):
        if outcome == "all":
            return pending
        if outcome == "beginning":
            return pending[: self.rng.randint(0, len(pending))]
        if outcome == "some":
            return [change for change in pending if self.rng.random() < 0.5]
        if outcome == "torn":
            return [sector for change in pending for sector in self.surviving_sectors(*change)]
        return []

    def surviving_sectors(self, offset, data):
        """Return random sectors of a write. Disks write a sector completely or not at all."""
        if data is None:
            return [(offset, None)] if self.rng.random() < 0.5 else []
        sectors, position = [], 0
        while position < len(data):
            size = min(SECTOR - (offset + position) % SECTOR, len(data) - position)
            if self.rng.random() < 0.6:
                sectors.append((offset + position, data[position : position + size]))
            position += size
        return sectors


def name_of(name) -> str | None:
    return name.filename() if isinstance(name, apsw.URIFilename) else name


class RecordedFile(apsw.VFSFile):
    """A file that reports its writes and syncs to the disk."""

    def __init__(self, disk, path, name, flags):
        self.disk, self.path, self.new = disk, path, True
        disk.open(path)
        super().__init__("unix", name, flags)

    def xWrite(self, data, offset):  # noqa: N802
        super().xWrite(data, offset)
        self.disk.change(self.path, offset, bytes(data))

    def xTruncate(self, size):  # noqa: N802
        super().xTruncate(size)
        self.disk.change(self.path, size, None)

    def xSync(self, flags):  # noqa: N802
        super().xSync(flags)
        # SQLite syncs the folder with the first sync of a journal or WAL that it opened.
        self.disk.sync(self.path, folder=self.new and self.path.endswith(("-wal", "-journal")))
        self.new = False


class PowerCutVFS(apsw.VFS):
    """The VFS below SQLite; files outside the folder are passed through."""

    def __init__(self, disk):
        self.disk = disk
        super().__init__("cutting", "unix", makedefault=True)

    def xOpen(self, name, flags):  # noqa: N802
        path = name_of(name)
        if self.disk.has(path) and not path.endswith("-shm"):
            return RecordedFile(self.disk, path, name, flags)
        return apsw.VFSFile("unix", name, flags)

    def xDelete(self, filename, syncdir):  # noqa: N802
        super().xDelete(filename, syncdir)
        if self.disk.has(filename):
            self.disk.delete(filename, syncs_folder=bool(syncdir))


def record_os_calls(disk: Disk) -> None:
    """Report renames and syncs that Recollect makes without SQLite to the disk."""
    replace, fsync = os.replace, os.fsync

    def recorded_replace(old, new, **options):
        replace(old, new, **options)
        if disk.has(os.fspath(new)):
            disk.rename(os.fspath(old), os.fspath(new))

    def recorded_fsync(handle):
        fsync(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path == disk.folder:
            disk.sync_folder()
        elif path in disk.files:
            disk.sync(path)

    os.replace, os.fsync = recorded_replace, recorded_fsync


class Workload:
    """The requested texts and the number of acknowledged ones, by session; and further checks of an image."""

    def __init__(self) -> None:
        self.requested_texts: dict[str, list[str]] = {}
        self.acknowledged_counts: dict[str, int] = {}
        self.extra_checks: list = []
        self.deep_check_interval = 10  # every n-th image is opened with Recollect and checked, checksums included

    def request(self, session_id: str, *texts: str) -> None:
        self.requested_texts.setdefault(session_id, []).extend(texts)

    def acknowledge(self, session_id: str) -> None:
        self.acknowledged_counts[session_id] = len(self.requested_texts[session_id])


class Verifier:
    """Opens disk images and counts their problems."""

    def __init__(self, disk: Disk, workload: Workload, limit: int) -> None:
        self.disk, self.workload, self.limit = disk, workload, limit
        self.cuts = self.losses = self.duplicates = self.corrupt = self.deep = 0
        self.problems: list[str] = []

    def cut(self) -> None:
        if self.cuts >= self.limit:
            return
        self.cuts += 1
        acknowledged_counts = dict(self.workload.acknowledged_counts)
        folder = tempfile.mkdtemp(dir=os.path.dirname(self.disk.folder))
        try:
            self.disk.image(os.path.join(folder, "disk"))
            self.verify(os.path.join(folder, "disk", "recollect.db"), acknowledged_counts)
        finally:
            shutil.rmtree(folder)

    def verify(self, path: str, acknowledged_counts: dict[str, int]) -> None:
        try:
            if self.cuts % self.workload.deep_check_interval == 0:
                self.deep += 1
                check_with_recollect(path, acknowledged_counts)
            stored_texts = read_texts(path)
        except Exception as error:  # noqa: BLE001  any error means that the image cannot be read
            self.corrupt += 1
            self.problems.append(f"cut {self.cuts}: {type(error).__name__}: {error}")
            return
        for session_id, requested_texts in list(self.workload.requested_texts.items()):
            texts = stored_texts.get(session_id, [])
            self.losses += max(acknowledged_counts.get(session_id, 0) - len(texts), 0)
            if texts != requested_texts[: len(texts)]:
                self.duplicates += 1
                self.problems.append(
                    f"cut {self.cuts}: {session_id} has {texts[-3:]}, requested were {requested_texts[-3:]}"
                )
        for check in list(self.workload.extra_checks):
            problem = check(path)
            if problem:
                self.losses += 1
                self.problems.append(f"cut {self.cuts}: {problem}")


def read_texts(path: str) -> dict[str, list[str]]:
    """Return the texts of every session, read with plain SQLite after an integrity check."""
    if not os.path.exists(path) or (os.path.getsize(path) == 0 and not os.path.exists(path + "-wal")):
        return {}
    connection = apsw.Connection(path, vfs="unix")
    try:
        lines = connection.execute("PRAGMA integrity_check").fetchall()
        if lines != [("ok",)]:
            raise AssertionError(lines[0][0])
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'messages'").fetchall():
            return {}
        stored_texts: dict[str, list[str]] = {}
        query = (
            "SELECT s.id, m.parts ->> '$[0].text' FROM messages AS m JOIN sessions AS s ON s.head = m.key >> 32 "
            "ORDER BY m.key"
        )
        for session_id, text in connection.execute(query):
            stored_texts.setdefault(session_id, []).append(text)
        return stored_texts
    finally:
        connection.close()


def check_with_recollect(disk: str, acknowledged_counts: dict[str, int]) -> None:
    """Open a copy with Recollect: its check finds no problem, and it accepts writes."""
    import recollect

    folder = os.path.dirname(disk) + "-copy"
    shutil.copytree(os.path.dirname(disk), folder)
    with recollect.open(os.path.join(folder, os.path.basename(disk))) as store:
        problems = [
            finding for finding in store.maintenance.check().findings if finding.kind not in ("history", "turn")
        ]
        assert not problems, problems[0]
        for session_id in acknowledged_counts:
            store.session(session_id).append({"role": "user", "content": "after the power failure"})


def use_short_wal(store) -> None:
    from recollect.engine.sqlite.checkpoint import checkpoint_at

    checkpoint_at(store._engine._file.writer, WAL_PAGES, 5.0)


def settings(store, level: str) -> None:
    use_short_wal(store)
    if level == "normal":
        store._engine._file.writer.execute("PRAGMA synchronous = NORMAL")


def append(path: str, workload: Workload, level: str, is_over) -> None:
    """Append messages and complete turns, one after the other, in three sessions."""
    import recollect

    with recollect.open(path) as store:
        settings(store, level)
        for number in range(100_000):
            if is_over():
                return
            name = f"cli:{number % 3}"
            session = store.session(name)
            if number % 4:
                workload.request(name, f"message {number}")
                session.append({"role": "user", "content": f"message {number}"})
            else:
                workload.request(name, f"question {number}", f"answer {number}" + " and more" * (number % 300))
                session.save_turn(
                    f"question {number}", {"role": "assistant", "content": workload.requested_texts[name][-1]}
                )
            workload.acknowledge(name)


def group(path: str, workload: Workload, level: str, is_over) -> None:
    """Append from many tasks, in group commits."""
    import recollect

    async def write_session(store, name: str) -> None:
        session = await store.session(name)
        for number in range(100_000):
            if is_over():
                return
            workload.request(name, f"message {number}")
            await session.append({"role": "user", "content": f"message {number}"})
            workload.acknowledge(name)

    async def main() -> None:
        async with recollect.open_async(path) as store:
            settings(store, level)
            await asyncio.gather(*(write_session(store, f"cli:{task}") for task in range(12)))

    asyncio.run(main())


def compaction(path: str, workload: Workload, level: str, is_over) -> None:
    """Append, compact, rename, delete and restore."""
    import recollect

    compacted_names: list[str] = []

    def find_missing_compaction(image: str) -> str | None:
        if not compacted_names:
            return None
        connection = apsw.Connection(image, vfs="unix")
        try:
            query = "SELECT s.id FROM compactions AS c JOIN sessions AS s ON s.head = c.branch"
            stored_names = {name for (name,) in connection.execute(query)}
        finally:
            connection.close()
        return next(
            (f"the compaction of {name} is missing" for name in list(compacted_names) if name not in stored_names), None
        )

    workload.extra_checks.append(find_missing_compaction)
    with recollect.open(path) as store:
        settings(store, level)
        for number in range(10_000):
            if is_over():
                return
            name = f"cli:{number}"
            session = store.session(name)
            for step in range(8):
                workload.request(name, f"message {step}")
                session.append({"role": "user" if step % 2 == 0 else "assistant", "content": f"message {step}"})
                workload.acknowledge(name)
            session.compact(before=session.messages()[4].id, summary=f"summary of {number}")
            compacted_names.append(name)
            session.update(title=f"Session {number}")
            if number % 3 == 0:
                store.delete_session(name)
                store.restore_session(name)


def erasure(path: str, workload: Workload, level: str, is_over) -> None:
    """Erase sessions next to one that stays: every page matches its checksum after any power failure."""
    import recollect

    workload.deep_check_interval = 1
    with recollect.open(path) as store:
        settings(store, level)
        for number in range(10_000):
            if is_over():
                return
            for step in range(4):
                store.session(f"old:{step}", title=f"Old {number}").append({"role": "user", "content": "old " * 300})
                workload.request("cli:kept", f"message {number}.{step}")
                store.session("cli:kept").append({"role": "user", "content": f"message {number}.{step}"})
                workload.acknowledge("cli:kept")
            store.erase_session(f"old:{number % 4}")


def backup(path: str, workload: Workload, level: str, is_over) -> None:
    """Back up while messages are written: each completed backup exists and is complete."""
    import recollect

    backups: list[tuple[str, int]] = []

    def find_missing_backup(image: str) -> str | None:
        for name, count in backups:
            copy = os.path.join(os.path.dirname(image), name)
            if not os.path.exists(copy) or os.path.getsize(copy) == 0:
                return f"the backup {name} is missing"
            stored_count = sum(len(texts) for texts in read_texts(copy).values())
            if stored_count < count:
                return f"the backup {name} has {stored_count} messages, not {count}"
        return None

    workload.extra_checks.append(find_missing_backup)
    with recollect.open(path) as store:
        settings(store, level)
        session = store.session("cli:0")
        for number in range(10_000):
            if is_over():
                return
            for step in range(5):
                workload.request("cli:0", f"message {number}.{step}")
                session.append({"role": "user", "content": f"message {number}.{step}"})
                workload.acknowledge("cli:0")
            name = f"copy{number % 3}.db"
            backups[:] = [entry for entry in backups if entry[0] != name]
            store.maintenance.backup(os.path.join(os.path.dirname(path), name), overwrite=True)
            backups.append((name, len(workload.requested_texts["cli:0"])))


def migration(path: str, workload: Workload, level: str, is_over) -> None:
    """Migrate a file of the first schema to the newest one, repeatedly."""
    import recollect

    for number in range(10_000):
        if is_over():
            return
        cut, live_disk.cut = live_disk.cut, None  # no power failure while the old file is created
        create_old_database(path, workload)
        live_disk.cut = cut
        with recollect.open(path) as store:
            settings(store, level)
            session = store.session("cli:old")
            workload.request("cli:old", f"new {number}")
            session.append({"role": "user", "content": f"new {number}"})
            workload.acknowledge("cli:old")


def create_old_database(path: str, workload: Workload) -> None:
    """Create a file of the first schema in an empty folder, completely synced."""
    from recollect import sql
    from recollect.engine.sqlite import migrations as migration_steps
    from recollect.engine.sqlite.connection import connect
    from recollect.engine.sqlite.filesystem import prepare_file

    for name in os.listdir(os.path.dirname(path)):
        os.unlink(os.path.join(os.path.dirname(path), name))
    live_disk.reset()
    workload.requested_texts.clear()
    workload.acknowledged_counts.clear()
    prepare_file(path)
    connection = connect(path, 5.0)
    migration_steps.prepare_schema(connection, path, 5.0, sql.migrations("sqlite")[:1])
    workload.request("cli:old", *(f"message {number}" for number in range(20)))
    insert_messages(connection, workload.requested_texts["cli:old"])
    connection.close()
    for state in live_disk.files.values():
        state.sync()
    live_disk.sync_folder()
    workload.acknowledge("cli:old")


def insert_messages(connection, texts) -> None:
    """Insert messages into a file of the first schema."""
    now, count = 1_700_000_000_000, len(texts)
    connection.execute("BEGIN IMMEDIATE")
    tree = insert(connection, "trees", owner="", branches=1)
    branch = insert(connection, "branches", tree=tree, number=1, created_at=now)
    session_key = insert(
        connection, "sessions", owner="", id="cli:old", tree=tree, head=branch, last=count, message_count=count,
        token_count=count, created_at=now, updated_at=now, active_at=now,
    )  # fmt: skip
    connection.execute("UPDATE branches SET session = ?", (session_key,))
    for position, text in enumerate(texts, 1):
        parts = json.dumps([{"kind": "text", "text": text}])
        insert(connection, "messages", key=branch << 32 | position, role="user", parts=parts, created_at=now, tokens=1)
    connection.execute("COMMIT")


def insert(connection, table: str, **values) -> int:
    """Insert a row and return its key."""
    placeholders = ", ".join("?" for _ in values)
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({placeholders})", tuple(values.values()))
    return connection.last_insert_rowid()


WORK = {
    "append": append, "group": group, "compaction": compaction, "erasure": erasure, "backup": backup,
    "migration": migration,
}  # fmt: skip
live_disk: Disk


def run_on_new_disk(disk: Disk, work: str, level: str, cuts: int) -> tuple[Verifier, Workload]:
    """Run the work on a new disk until `cuts` power failures were simulated."""
    shutil.rmtree(disk.folder, ignore_errors=True)
    os.makedirs(disk.folder, mode=0o700)
    disk.reset()
    workload = Workload()
    verifier = Verifier(disk, workload, cuts)
    disk.cut, disk.until_cut = verifier.cut, disk.rng.randrange(1, 30)  # pyright: ignore[reportAttributeAccessIssue]
    is_over = lambda: verifier.cuts >= verifier.limit or len(verifier.problems) > MAX_PROBLEMS  # noqa: E731
    WORK[work](os.path.join(disk.folder, "recollect.db"), workload, level, is_over)
    disk.cut = None
    return verifier, workload


def main() -> None:
    global live_disk  # noqa: PLW0603  migration() suspends the power failures
    work, cuts, seed, *level = sys.argv[1:]
    root = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    start = time.monotonic()
    total = dict.fromkeys(("cuts", "losses", "duplicates", "corrupt", "deep", "acknowledged"), 0)
    problems: list[str] = []
    live_disk = disk = Disk(os.path.join(root, "live"), random.Random(int(seed)))
    PowerCutVFS.instance = PowerCutVFS(disk)  # pyright: ignore[reportAttributeAccessIssue]
    record_os_calls(disk)
    try:
        while total["cuts"] < int(cuts) and len(problems) <= MAX_PROBLEMS:
            cuts_on_disk = min(int(cuts) - total["cuts"], CUTS_PER_DISK)
            verifier, workload = run_on_new_disk(disk, work, level[0] if level else "full", cuts_on_disk)
            for name in ("cuts", "losses", "duplicates", "corrupt", "deep"):
                total[name] += getattr(verifier, name)
            total["acknowledged"] += sum(workload.acknowledged_counts.values())
            problems += verifier.problems
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps({**total, "seconds": round(time.monotonic() - start, 1), "problems": problems[:5]}))


if __name__ == "__main__":
    main()
