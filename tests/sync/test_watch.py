"""The watcher: files that grow, appear and disappear are imported at once, and only they are read."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import pytest

import recollect
from recollect.errors import StoreUnavailable
from recollect.sources import registry
from recollect.sync import watcher as watcher_module
from recollect.sync.importer import FileImport, ImportOptions, import_files
from recollect.sync.places import Place, find_places
from recollect.sync.watcher import FileWatcher

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from toy_source import ToySource, chain, lines

LIMIT = 30.0  # seconds. A wait that takes longer is a failure.


class CountingSource(ToySource):
    """The toy source, which remembers the files at whose contents it looked."""

    copies_past = False

    def __init__(self):
        self.heads = []

    def detect(self, tree, names):
        return super().detect(_Counter(tree, self.heads), names)


class _Counter:
    def __init__(self, tree, heads):
        self._tree, self._heads = tree, heads
        self.path, self.stamp, self.local_path = tree.path, tree.stamp, tree.local_path

    def head(self, name):
        data = self._tree.head(name)
        if data:
            self._heads.append(name)
        return data


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    source = CountingSource()
    monkeypatch.setattr(registry, "get_source", lambda name: source)
    return source


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path):
    with recollect.open(tmp_path / "r.db") as store:
        yield store


class Watching:
    """A watcher in a thread, until the end of the test."""

    def __init__(self, store, *paths):
        self.reports, self.errors, self.failure = [], [], None
        places = [Place(path, ("toy",), follows_links=True) for path in paths]
        self.watcher = FileWatcher(store, places, ImportOptions(), self.reports.append, self.errors.append)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.watcher.run()
        except Exception as error:  # noqa: BLE001
            self.failure = error

    def close(self):
        self.watcher.stop()
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()
        assert self.failure is None, self.failure


@pytest.fixture
def watch(store):
    with contextlib.ExitStack() as stack:

        def start(*paths):
            watching = Watching(store, *paths)
            stack.callback(watching.close)
            return watching

        yield start


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not (result := condition()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
    return result


def texts(store, session="toy:a"):
    session = store.get_session(session)
    return None if session is None else [message.text for message in session.messages()]


def start_file(path, name, *more):
    path.write_bytes(lines({"start": name}, *chain(*more)))


def append(path, *items):
    with path.open("ab") as file:
        file.write(lines(*items))


def test_a_line_is_stored_within_a_second(store, watch, folder):
    file = folder / "a.jsonl"
    start_file(file, "a", "one")
    watch(folder)
    wait_for(lambda: texts(store) == ["one"])
    time.sleep(0.5)  # it watches now
    seconds = []
    for number in range(1, 4):
        append(file, *chain(f"line {number}", first=number, after=f"m{number - 1}"))
        start = time.monotonic()
        wait_for(lambda number=number: len(texts(store)) == number + 1)
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 1.0  # another program may delay one of them


def test_only_changed_files_are_looked_at(store, watch, folder, toy):
    for name in "abc":
        start_file(folder / f"{name}.jsonl", name, "one")
    (folder / "other.txt").write_text("not a transcript")
    watching = watch(folder)
    wait_for(lambda: len(store.list_sessions()) == 3)
    toy.heads.clear()
    append(folder / "b.jsonl", *chain("two", first=1, after="m0"))
    wait_for(lambda: texts(store, "toy:b") == ["one", "two"])
    assert toy.heads == []  # it is known
    start_file(folder / "d.jsonl", "d", "new")
    wait_for(lambda: texts(store, "toy:d") == ["new"])
    assert set(toy.heads) == {"d.jsonl"}
    wait_for(
        lambda: [item.session for report in watching.reports[1:] for item in report.conversations] == ["toy:b", "toy:d"]
    )


def test_changes_that_come_together_are_one_import(store, watch, folder):
    watching = watch(folder)
    time.sleep(1.0)
    for name in "abcdefgh":
        start_file(folder / f"{name}.jsonl", name, "one")
    wait_for(lambda: len(store.list_sessions()) == 8)
    time.sleep(0.3)
    assert len(watching.reports) <= 3


def test_new_folders_and_their_files(store, watch, folder):
    watch(folder)
    time.sleep(0.5)
    inner = folder / "project" / "deep"
    inner.mkdir(parents=True)
    start_file(inner / "a.jsonl", "a", "one")  # perhaps before the new folder is watched
    wait_for(lambda: texts(store) == ["one"])
    append(inner / "a.jsonl", *chain("two", first=1, after="m0"))
    wait_for(lambda: texts(store) == ["one", "two"])


def test_a_file_that_becomes_a_transcript_later(store, watch, folder):
    watch(folder)
    file = folder / "a.jsonl"
    file.touch()
    time.sleep(0.6)
    append(file, {"start": "a"}, *chain("one"))
    wait_for(lambda: texts(store) == ["one"])


def test_a_folder_that_appears_disappears_and_comes_back(store, watch, folder):
    late = folder / "late"
    other = folder / "other"
    other.mkdir()
    watching = watch(late, other)
    time.sleep(0.5)
    for name in "ab":
        late.mkdir()
        start_file(late / "x.jsonl", name, "one")
        wait_for(lambda name=name: texts(store, f"toy:{name}") == ["one"])
        append(late / "x.jsonl", *chain("two", first=1, after="m0"))
        wait_for(lambda name=name: texts(store, f"toy:{name}") == ["one", "two"])
        shutil.rmtree(late)
        time.sleep(0.3)
    start_file(other / "c.jsonl", "c", "one")
    wait_for(lambda: texts(store, "toy:c") == ["one"])
    assert watching.errors == []
    assert texts(store, "toy:a") == ["one", "two"]


def test_a_single_file_and_its_wal(store, watch, folder):
    """A database changes through its WAL; a file may be replaced by a rename."""
    file, other = folder / "data.json", folder / "other.json"
    file.write_text('[{"id": "a", "items": [{"id": "1", "text": "one"}]}]')
    watch(file)
    wait_for(lambda: texts(store) == ["one"])
    time.sleep(0.5)
    other.write_text('[{"id": "a", "items": [{"id": "1", "text": "ONE"}]}, {"id": "b", "items": []}]')
    os.replace(other, file)
    wait_for(lambda: texts(store) == ["ONE"])
    file.write_text('[{"id": "a", "items": [{"id": "1", "text": "two"}]}, {"id": "b", "items": []}]')
    os.utime(file, ns=(5, 5))
    wait_for(lambda: texts(store) == ["two"])
    stamp = file.stat()
    with file.open("r+b") as stream:  # the same size and time: only the WAL tells
        stream.write(file.read_bytes().replace(b"two", b"TWO"))
    os.utime(file, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    (folder / "data.json-wal").write_bytes(b"frames")
    wait_for(lambda: texts(store) == ["TWO"])


def test_a_document_with_other_files(store, watch, folder, toy, monkeypatch):
    """A new file that belongs to a known transcript leads to the transcript."""
    from recollect.sources.source import Transcript

    def detect(tree, names):
        names = list(names)
        for name in names:
            if name.endswith("main.json") and tree.head(name):
                prefix = name.removesuffix("main.json")
                parts = tuple(each for each in names if each.startswith(f"{prefix}parts/"))
                yield Transcript("toy", name, "document", parts)

    def read(tree, transcript, select):
        from recollect.model.message import Draft, TextPart
        from recollect.sources.source import MessageFound, Original, SessionFound

        yield SessionFound("toy:a")
        after = None
        for name in transcript.files:
            data = tree.read(name)
            yield MessageFound("toy:a", Draft(role="user", parts=(TextPart(text=data.decode()),), key=name), after)
            yield Original("toy:a", name, data)
            after = name

    monkeypatch.setattr(toy, "detect", detect)
    monkeypatch.setattr(toy, "read", read)
    (folder / "parts").mkdir()
    (folder / "main.json").write_text("{}")
    (folder / "parts" / "1").write_text("one")
    watch(folder)
    wait_for(lambda: texts(store) == ["one"])
    time.sleep(0.5)
    (folder / "parts" / "2").write_text("two")
    wait_for(lambda: texts(store) == ["one", "two"])
    (folder / "parts" / "2").write_text("TWO")
    wait_for(lambda: texts(store) == ["one", "TWO"])
    (folder / "parts" / "2").unlink()
    time.sleep(0.5)
    (folder / "parts" / "1").write_text("ONE")
    wait_for(lambda: texts(store) == ["ONE", "TWO"])


def test_a_shared_file_is_read_later(store, watch, folder, toy, monkeypatch):
    from recollect.sources.source import Transcript

    def detect(tree, names):
        for name in names:
            if tree.head(name).startswith(b'{"start"'):
                yield Transcript("toy", name, "lines", ("index",))

    monkeypatch.setattr(toy, "detect", detect)
    monkeypatch.setattr(watcher_module, "_SHARED_DELAY", 1.5)
    (folder / "index").write_text("1")
    for name in "ab":
        start_file(folder / f"{name}.jsonl", name, "one")
    reads = []
    monkeypatch.setattr(
        FileImport,
        "read",
        lambda self, file, read=FileImport.read: reads.append(file.transcript.name) or read(self, file),
    )
    watch(folder)
    wait_for(lambda: len(reads) == 2)
    time.sleep(0.5)
    (folder / "index").write_text("12")
    append(folder / "a.jsonl", *chain("two", first=1, after="m0"))
    wait_for(lambda: texts(store) == ["one", "two"])
    assert reads[2:] == ["a.jsonl"]
    wait_for(lambda: "b.jsonl" in reads[2:])


def test_a_store_that_fails_is_tried_again(store, watch, folder, monkeypatch):
    monkeypatch.setattr(watcher_module, "_RETRY", 0.05)
    failures = [StoreUnavailable(path="r.db", reason="down")] * 3
    read = FileImport.read

    def fail(self, file):
        if failures:
            raise failures.pop()
        read(self, file)

    monkeypatch.setattr(FileImport, "read", fail)
    for name in "ab":
        start_file(folder / f"{name}.jsonl", name, "one")
    watching = watch(folder)
    wait_for(lambda: len(store.list_sessions()) == 2)
    assert len(watching.errors) == 3


def test_a_limit_of_the_system_is_reported(store, folder, monkeypatch):
    import watchfiles

    def refuse(*paths, **options):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(watchfiles, "watch", refuse)
    watching = Watching(store, folder)
    watching.thread.join(LIMIT)
    assert isinstance(watching.failure, StoreUnavailable)
    assert "fs.inotify.max_user_watches" in str(watching.failure)


def test_a_writer_process_that_writes_without_pause(store, watch, folder):
    """Lines are stored while the file grows, and at the end the store has all of them."""
    script = (
        "import json, sys, time\n"
        "file = open(sys.argv[1], 'a', buffering=1)\n"
        "file.write(json.dumps({'start': 'a'}) + '\\n')\n"
        "for number in range(150):\n"
        "    after = f'm{number - 1}' if number else None\n"
        "    line = json.dumps({'id': f'm{number}', 'after': after, 'text': str(number)}) + '\\n'\n"
        "    file.write(line[:20]); file.flush(); time.sleep(0.01); file.write(line[20:])\n"
    )
    watch(folder)
    with subprocess.Popen([sys.executable, "-c", script, str(folder / "a.jsonl")]) as process:
        wait_for(lambda: texts(store))
        assert process.poll() is None, "the first lines are stored before the last ones are written"
    wait_for(lambda: len(texts(store)) == 150)
    assert texts(store) == [str(number) for number in range(150)]
    assert len(store.get_session("toy:a").branches.list()) == 1


def test_stopping_does_not_wait_for_the_other_files(store, folder, monkeypatch):
    for number in range(20):
        start_file(folder / f"{number}.jsonl", str(number), "one")
    first = threading.Event()
    read = FileImport.read

    def slow(self, file):
        first.set()
        time.sleep(0.1)
        read(self, file)

    monkeypatch.setattr(FileImport, "read", slow)
    watching = Watching(store, folder)
    assert first.wait(LIMIT)
    watching.close()
    assert len(store.list_sessions()) < 20
    monkeypatch.undo()
    monkeypatch.setattr(registry, "get_source", lambda name: CountingSource())
    import_files(store, [folder], ImportOptions(sources=["toy"]))
    assert len(store.list_sessions(limit=50)) == 20


def test_places_of_several_tools(tmp_path, toy):
    from recollect.sources.source import Environment

    environment = Environment(tmp_path, {}, "linux")
    places = find_places(environment, ["toy", "other"], [tmp_path / "more"])
    assert places == [
        Place(tmp_path / ".toy", ("toy", "other"), follows_links=True),
        Place(tmp_path / "more", ("toy", "other")),
    ]


def test_folders_behind_links_are_watched(store, folder, watch, tmp_path):
    disks = [tmp_path / "disk0", tmp_path / "disk1"]
    for number, disk in enumerate(disks):
        disk.mkdir()
        (disk / "a.jsonl").write_bytes(lines({"start": f"linked{number}"}, *chain("one")))
    (folder / "first").symlink_to(disks[0])
    (folder / "loop").symlink_to(folder)
    (folder / "parent").symlink_to(tmp_path)
    watch(folder)
    wait_for(lambda: store.get_session("toy:linked0"))
    with (disks[0] / "a.jsonl").open("ab") as file:
        file.write(lines(*chain("two", first=1, after="m0")))
    wait_for(lambda: len(store.get_session("toy:linked0").messages()) == 2)
    assert store.get_session("toy:linked1") is None
    (folder / "second").symlink_to(disks[1])  # while it runs
    wait_for(lambda: store.get_session("toy:linked1"))
    (disks[1] / "b.jsonl").write_bytes(lines({"start": "new"}, *chain("one")))
    wait_for(lambda: store.get_session("toy:new"))
