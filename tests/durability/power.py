"""A disk that loses its power: `python power.py <work> <cuts> <seed> [full|normal]`.

A VFS of our own stands below SQLite (and below its checksums) and knows, for each file, what was synced and what was only
written. At a random moment of the work it makes the disk that would be left if the power went away then: what was synced
is there, and of what was only written anything may be: nothing, all, the beginning, some of the writes, or some sectors
of them. That disk is then opened, and everything that was acknowledged before the cut must be in it, once and in order.

It prints what it found as JSON. It is a program of its own because it makes its VFS the default of the process.
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

SECTOR = 512
MOST_WRONG = 20
CUTS_OF_A_LIFE = 250
SMALL_LOG = 40
"""Pages after which the log is folded into the file: so few that a cut often falls into that."""


class Kept:
    """One file: what is surely on the disk, and what was written since."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, *change)
        self.pending.clear()


def apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """Do one write, or with no data cut the file off there."""
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """A folder as it is after a loss of power, at any moment."""

    def __init__(self, folder: str, dice: random.Random) -> None:
        self.folder = folder
        self.dice = dice
        self.files: dict[str, Kept]
        self.ghosts: dict[str, Kept]
        self.renames: list[tuple[str, str, Kept]]
        self.forget()
        self.lock = threading.RLock()
        self.cut = None
        self.until_cut = 0

    def forget(self) -> None:
        """Begin with an empty folder."""
        self.files, self.ghosts, self.renames = {}, {}, []

    def has(self, path: str | None) -> bool:
        return path is not None and os.path.dirname(path) == self.folder

    def opened(self, path: str) -> None:
        with self.lock:
            if path not in self.files:
                with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                    self.files[path] = Kept(file.read())
                self.files.setdefault(path, Kept())

    def change(self, path: str, offset: int, data: bytes | None) -> None:
        with self.lock:
            self.files[path].pending.append((offset, data))
            self.tick()

    def sync(self, path: str, *, folder: bool = False) -> None:
        with self.lock:
            self.tick()  # what was not synced yet when the power went
            self.files[path].sync()
            if folder:
                self.ghosts.clear()

    def delete(self, path: str, *, synced: bool) -> None:
        with self.lock:
            kept = self.files.pop(path, None)
            if kept is not None and not synced:
                self.ghosts[path] = kept  # it may come back

    def rename(self, old: str, new: str) -> None:
        with self.lock:
            kept = self.files.pop(old, None)
            if kept is not None:
                self.renames.append((old, new, kept))
                self.tick()

    def sync_folder(self) -> None:
        with self.lock:
            for _, new, kept in self.renames:
                self.files[new] = kept
            self.renames.clear()
            self.ghosts.clear()

    def tick(self) -> None:
        """Count a step of the disk; at some of them its power goes."""
        if self.cut is None:
            return
        self.until_cut -= 1
        if self.until_cut <= 0:
            self.until_cut = self.dice.randrange(1, 12)
            self.cut()

    def image(self, target: str) -> None:
        """Write what could be left."""
        os.makedirs(target)
        left = dict(self.files)
        left |= {path: kept for path, kept in self.ghosts.items() if self.dice.random() < 0.5}
        for old, new, kept in self.renames:
            left[new if self.dice.random() < 0.5 else old] = kept
        way = self.dice.choice(("none", "all", "beginning", "some", "torn"))
        for path, kept in left.items():
            content = bytearray(kept.durable)
            for change in self.survivors(kept.pending, way):
                apply(content, *change)
            with open(os.path.join(target, os.path.basename(path)), "wb") as file:
                file.write(content)

    def survivors(self, pending, way):
        if way == "all":
            return pending
        if way == "beginning":
            return pending[: self.dice.randint(0, len(pending))]
        if way == "some":
            return [change for change in pending if self.dice.random() < 0.5]
        if way == "torn":
            return [piece for change in pending for piece in self.torn(*change)]
        return []

    def torn(self, offset, data):
        """Give some sectors of a write. A sector is whole or not there, which is what disks promise."""
        if data is None:
            return [(offset, None)] if self.dice.random() < 0.5 else []
        pieces, at = [], 0
        while at < len(data):
            size = min(SECTOR - (offset + at) % SECTOR, len(data) - at)
            if self.dice.random() < 0.6:
                pieces.append((offset + at, data[at : at + size]))
            at += size
        return pieces


def name_of(name) -> str | None:
    return name.filename() if isinstance(name, apsw.URIFilename) else name


class Watched(apsw.VFSFile):
    """A file whose writes and syncs the disk knows of."""

    def __init__(self, disk, path, name, flags):
        self.disk, self.path, self.new = disk, path, True
        disk.opened(path)
        super().__init__("unix", name, flags)

    def xWrite(self, data, offset):  # noqa: N802
        super().xWrite(data, offset)
        self.disk.change(self.path, offset, bytes(data))

    def xTruncate(self, size):  # noqa: N802
        super().xTruncate(size)
        self.disk.change(self.path, size, None)

    def xSync(self, flags):  # noqa: N802
        super().xSync(flags)
        # SQLite syncs the folder with the first sync of a journal or log that it opened.
        self.disk.sync(self.path, folder=self.new and self.path.endswith(("-wal", "-journal")))
        self.new = False


class Cutting(apsw.VFS):
    """The VFS below everything; files elsewhere are left alone."""

    def __init__(self, disk):
        self.disk = disk
        super().__init__("cutting", "unix", makedefault=True)

    def xOpen(self, name, flags):  # noqa: N802
        path = name_of(name)
        if self.disk.has(path) and not path.endswith("-shm"):
            return Watched(self.disk, path, name, flags)
        return apsw.VFSFile("unix", name, flags)

    def xDelete(self, filename, syncdir):  # noqa: N802
        super().xDelete(filename, syncdir)
        if self.disk.has(filename):
            self.disk.delete(filename, synced=bool(syncdir))


def watch_os(disk: Disk) -> None:
    """Let the disk know what the program renames and syncs by itself."""
    replace, fsync = os.replace, os.fsync

    def replaced(old, new, **options):
        replace(old, new, **options)
        if disk.has(os.fspath(new)):
            disk.rename(os.fspath(old), os.fspath(new))

    def synced(handle):
        fsync(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path == disk.folder:
            disk.sync_folder()
        elif path in disk.files:
            disk.sync(path)

    os.replace, os.fsync = replaced, synced


class Story:
    """What was asked for and what was acknowledged, by session; and what else must be true of a disk."""

    def __init__(self) -> None:
        self.asked: dict[str, list[str]] = {}
        self.acknowledged: dict[str, int] = {}
        self.others: list = []
        self.thorough = 10  # one of so many disks is opened with Recollect and checked, checksums included

    def ask(self, session: str, *texts: str) -> None:
        self.asked.setdefault(session, []).extend(texts)

    def ack(self, session: str) -> None:
        self.acknowledged[session] = len(self.asked[session])


class Judge:
    """Opens what is left of a disk, and counts what is wrong with it."""

    def __init__(self, disk: Disk, story: Story, limit: int) -> None:
        self.disk, self.story, self.limit = disk, story, limit
        self.cuts = self.lost = self.doubled = self.corrupt = self.deep = 0
        self.wrong: list[str] = []

    def cut(self) -> None:
        if self.cuts >= self.limit:
            return
        self.cuts += 1
        promised = dict(self.story.acknowledged)
        left = tempfile.mkdtemp(dir=os.path.dirname(self.disk.folder))
        try:
            self.disk.image(os.path.join(left, "disk"))
            self.look(os.path.join(left, "disk", "recollect.db"), promised)
        finally:
            shutil.rmtree(left)

    def look(self, path: str, promised: dict[str, int]) -> None:
        try:
            if self.cuts % self.story.thorough == 0:
                self.deep += 1
                checked(path, promised)
            found = said(path)
        except Exception as error:  # noqa: BLE001  whatever it is, the disk can not be read
            self.corrupt += 1
            self.wrong.append(f"cut {self.cuts}: {type(error).__name__}: {error}")
            return
        for session, asked in list(self.story.asked.items()):
            have = found.get(session, [])
            self.lost += max(promised.get(session, 0) - len(have), 0)
            if have != asked[: len(have)]:
                self.doubled += 1
                self.wrong.append(f"cut {self.cuts}: {session} has {have[-3:]} of {asked[-3:]}")
        for other in list(self.story.others):
            problem = other(path)
            if problem:
                self.lost += 1
                self.wrong.append(f"cut {self.cuts}: {problem}")


def said(path: str) -> dict[str, list[str]]:
    """Read every message as any SQLite would, after a check of the whole file."""
    if not os.path.exists(path) or (os.path.getsize(path) == 0 and not os.path.exists(path + "-wal")):
        return {}
    connection = apsw.Connection(path, vfs="unix")
    try:
        lines = connection.execute("PRAGMA integrity_check").fetchall()
        if lines != [("ok",)]:
            raise AssertionError(lines[0][0])
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'messages'").fetchall():
            return {}
        found: dict[str, list[str]] = {}
        query = (
            "SELECT s.id, m.parts ->> '$[0].text' FROM messages AS m JOIN sessions AS s ON s.head = m.key >> 32 "
            "ORDER BY m.key"
        )
        for session, text in connection.execute(query):
            found.setdefault(session, []).append(text)
        return found
    finally:
        connection.close()


def checked(disk: str, promised: dict[str, int]) -> None:
    """Open a copy with Recollect, as its user would: nothing is wrong, and it can be written to."""
    import recollect

    folder = os.path.dirname(disk) + "-copy"
    shutil.copytree(os.path.dirname(disk), folder)
    with recollect.open(os.path.join(folder, os.path.basename(disk))) as store:
        wrong = [finding for finding in store.check().found if finding.kind not in ("history", "turn")]
        assert not wrong, wrong[0]
        for session in promised:
            store.session(session).append({"role": "user", "content": "after the power came back"})


def small_log(store) -> None:
    from recollect.engine.sqlite.log import fold_at

    fold_at(store._engine._file.writer, SMALL_LOG, 5.0)


def settings(store, level: str) -> None:
    small_log(store)
    if level == "normal":
        store._engine._file.writer.execute("PRAGMA synchronous = NORMAL")


def append(path: str, story: Story, level: str, over) -> None:
    """Messages and whole turns, one after the other, in a few sessions."""
    import recollect

    with recollect.open(path) as store:
        settings(store, level)
        for number in range(100_000):
            if over():
                return
            name = f"cli:{number % 3}"
            talk = store.session(name)
            if number % 4:
                story.ask(name, f"message {number}")
                talk.append({"role": "user", "content": f"message {number}"})
            else:
                story.ask(name, f"question {number}", f"answer {number}" + " and more" * (number % 300))
                talk.save_turn(f"question {number}", {"role": "assistant", "content": story.asked[name][-1]})
            story.ack(name)


def group(path: str, story: Story, level: str, over) -> None:
    """Many tasks whose writes are committed together."""
    import recollect

    async def one(store, name: str) -> None:
        talk = await store.session(name)
        for number in range(100_000):
            if over():
                return
            story.ask(name, f"message {number}")
            await talk.append({"role": "user", "content": f"message {number}"})
            story.ack(name)

    async def main() -> None:
        async with recollect.open_async(path) as store:
            settings(store, level)
            await asyncio.gather(*(one(store, f"cli:{task}") for task in range(12)))

    asyncio.run(main())


def compaction(path: str, story: Story, level: str, over) -> None:
    """Messages, compactions, deleting and restoring, renaming."""
    import recollect

    done: list[str] = []

    def compacted(image: str) -> str | None:
        if not done:
            return None
        connection = apsw.Connection(image, vfs="unix")
        try:
            query = "SELECT s.id FROM compactions AS c JOIN sessions AS s ON s.head = c.branch"
            have = {name for (name,) in connection.execute(query)}
        finally:
            connection.close()
        return next((f"the compaction of {name} is gone" for name in list(done) if name not in have), None)

    story.others.append(compacted)
    with recollect.open(path) as store:
        settings(store, level)
        for number in range(10_000):
            if over():
                return
            name = f"cli:{number}"
            talk = store.session(name)
            for step in range(8):
                story.ask(name, f"message {step}")
                talk.append({"role": "user" if step % 2 == 0 else "assistant", "content": f"message {step}"})
                story.ack(name)
            talk.compact(before=talk.messages()[4].id, summary=f"what was said in {number}")
            done.append(name)
            talk.update(title=f"Talk {number}")
            if number % 3 == 0:
                store.delete_session(name)
                store.restore_session(name)


def erasure(path: str, story: Story, level: str, over) -> None:
    """Sessions that are erased beside one that is kept: every page matches its checksum after any cut."""
    import recollect

    story.thorough = 1
    with recollect.open(path) as store:
        settings(store, level)
        for number in range(10_000):
            if over():
                return
            for step in range(4):
                store.session(f"old:{step}", title=f"Old {number}").append({"role": "user", "content": "old " * 300})
                story.ask("cli:kept", f"message {number}.{step}")
                store.session("cli:kept").append({"role": "user", "content": f"message {number}.{step}"})
                story.ack("cli:kept")
            store.erase_session(f"old:{number % 4}")


def backup(path: str, story: Story, level: str, over) -> None:
    """Backups, while messages are written: the one that was made is there, and whole."""
    import recollect

    made: list[tuple[str, int]] = []

    def copies(image: str) -> str | None:
        for name, count in made:
            copy = os.path.join(os.path.dirname(image), name)
            if not os.path.exists(copy) or os.path.getsize(copy) == 0:
                return f"the backup {name} is gone"
            have = sum(len(texts) for texts in said(copy).values())
            if have < count:
                return f"the backup {name} has {have} messages, not {count}"
        return None

    story.others.append(copies)
    with recollect.open(path) as store:
        settings(store, level)
        talk = store.session("cli:0")
        for number in range(10_000):
            if over():
                return
            for step in range(5):
                story.ask("cli:0", f"message {number}.{step}")
                talk.append({"role": "user", "content": f"message {number}.{step}"})
                story.ack("cli:0")
            name = f"copy{number % 3}.db"
            made[:] = [entry for entry in made if entry[0] != name]
            store.backup(os.path.join(os.path.dirname(path), name), overwrite=True)
            made.append((name, len(story.asked["cli:0"])))


def migration(path: str, story: Story, level: str, over) -> None:
    """A file of the first schema that is brought to the newest one, again and again."""
    import recollect

    for number in range(10_000):
        if over():
            return
        cut, story_disk.cut = story_disk.cut, None  # the old file is made in peace
        make_old(path, story)
        story_disk.cut = cut
        with recollect.open(path) as store:
            settings(store, level)
            talk = store.session("cli:old")
            story.ask("cli:old", f"new {number}")
            talk.append({"role": "user", "content": f"new {number}"})
            story.ack("cli:old")


def make_old(path: str, story: Story) -> None:
    """Make a file of the first schema in an empty folder, all of it on the disk."""
    from recollect import sql
    from recollect.engine.sqlite import migration as steps
    from recollect.engine.sqlite.connection import connect
    from recollect.engine.sqlite.filesystem import prepare

    for name in os.listdir(os.path.dirname(path)):
        os.unlink(os.path.join(os.path.dirname(path), name))
    story_disk.forget()
    story.asked.clear()
    story.acknowledged.clear()
    prepare(path)
    connection = connect(path, 5.0)
    steps.ready(connection, path, 5.0, sql.migrations("sqlite")[:1])
    story.ask("cli:old", *(f"message {number}" for number in range(20)))
    fill(connection, story.asked["cli:old"])
    connection.close()
    for kept in story_disk.files.values():
        kept.sync()
    story_disk.sync_folder()
    story.ack("cli:old")


def fill(connection, texts) -> None:
    """Put messages into a file of the first schema."""
    now, count = 1_700_000_000_000, len(texts)
    connection.execute("BEGIN IMMEDIATE")
    tree = insert(connection, "trees", owner="", branches=1)
    branch = insert(connection, "branches", tree=tree, number=1, created_at=now)
    session = insert(
        connection, "sessions", owner="", id="cli:old", tree=tree, head=branch, last=count, message_count=count,
        token_count=count, created_at=now, updated_at=now, active_at=now,
    )  # fmt: skip
    connection.execute("UPDATE branches SET session = ?", (session,))
    for position, text in enumerate(texts, 1):
        parts = json.dumps([{"kind": "text", "text": text}])
        insert(connection, "messages", key=branch << 32 | position, role="user", parts=parts, created_at=now, tokens=1)
    connection.execute("COMMIT")


def insert(connection, table: str, **values) -> int:
    """Insert a row and give its key."""
    marks = ", ".join("?" for _ in values)
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
    return connection.last_insert_rowid()


WORK = {
    "append": append, "group": group, "compaction": compaction, "erasure": erasure, "backup": backup,
    "migration": migration,
}  # fmt: skip
story_disk: Disk


def one_life(disk: Disk, work: str, level: str, cuts: int) -> tuple[Judge, Story]:
    """Do the work on a new disk until its power went so many times."""
    shutil.rmtree(disk.folder, ignore_errors=True)
    os.makedirs(disk.folder, mode=0o700)
    disk.forget()
    story = Story()
    judge = Judge(disk, story, cuts)
    disk.cut, disk.until_cut = judge.cut, disk.dice.randrange(1, 30)
    over = lambda: judge.cuts >= judge.limit or len(judge.wrong) > MOST_WRONG  # noqa: E731
    WORK[work](os.path.join(disk.folder, "recollect.db"), story, level, over)
    disk.cut = None
    return judge, story


def main() -> None:
    global story_disk  # noqa: PLW0603  the migration makes its old files in peace
    work, cuts, seed, *level = sys.argv[1:]
    root = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    begun = time.monotonic()
    total = dict.fromkeys(("cuts", "lost", "doubled", "corrupt", "deep", "acknowledged"), 0)
    wrong: list[str] = []
    story_disk = disk = Disk(os.path.join(root, "live"), random.Random(int(seed)))
    Cutting.kept = Cutting(disk)
    watch_os(disk)
    try:
        while total["cuts"] < int(cuts) and len(wrong) <= MOST_WRONG:
            left = min(int(cuts) - total["cuts"], CUTS_OF_A_LIFE)
            judge, story = one_life(disk, work, level[0] if level else "full", left)
            for name in ("cuts", "lost", "doubled", "corrupt", "deep"):
                total[name] += getattr(judge, name)
            total["acknowledged"] += sum(story.acknowledged.values())
            wrong += judge.wrong
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps({**total, "seconds": round(time.monotonic() - begun, 1), "wrong": wrong[:5]}))


if __name__ == "__main__":
    main()
