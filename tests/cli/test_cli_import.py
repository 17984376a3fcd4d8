"""`recollect import`, `sync` and `sessions export --format native`, with transcripts of a toy tool."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import zipfile

import pytest

import recollect
from recollect.sources import registry

FOLDER = pathlib.Path(__file__).parents[1] / "sync"
sys.path.insert(0, str(FOLDER))

from toy_source import ToySource, chain, lines  # noqa: E402  # pyright: ignore[reportMissingImports]

PATCH = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from recollect.sources import registry
from toy_source import ToySource
ToySource.name, ToySource.copies_past = "codex", False
registry.NAMES = ("codex",)
registry.get_source = lambda name: ToySource()
"""


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """Replace the sources by the toy, under the name of a real one, which --source accepts."""
    monkeypatch.setattr(ToySource, "name", "codex")
    monkeypatch.setattr(ToySource, "copies_past", False)
    monkeypatch.setattr(registry, "NAMES", ("codex",))
    monkeypatch.setattr(registry, "get_source", lambda name: ToySource())


@pytest.fixture
def toy_path(tmp_path):
    """Return a folder for PYTHONPATH that does the same in a new process."""
    folder = tmp_path / "patch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PATCH)
    return str(folder)


@pytest.fixture
def place(tmp_path):
    """Return the folder where the toy keeps its conversations, with two transcripts."""
    folder = tmp_path / "home" / ".toy"
    folder.mkdir(parents=True)
    write(folder / "a.jsonl", "a", {"title": "Plans"}, *chain("one", "two"), cwd="/projects/alpha")
    write(folder / "b.jsonl", "b", *chain("three"), cwd="/projects/beta")
    (folder / "notes.txt").write_text("of the tool itself")
    return folder


def write(path, name, *items, cwd=None):
    path.write_bytes(lines({"start": name, "cwd": cwd}, *items))


def append(path, *items):
    with path.open("ab") as file:
        file.write(lines(*items))


def ids(store):
    return sorted(session.id for session in store.list_sessions())


class TestImport:
    def test_the_places_of_the_tools(self, call, store, place):
        result = call("import")
        assert result.stdout == f"codex\t2\t{sum(f.stat().st_size for f in place.glob('*.jsonl'))}\t2\t{place}\n"
        assert result.stderr == "Imported 2 new conversations, 0 updated, 0 unchanged: 3 new messages.\n"
        assert ids(store) == ["toy:a", "toy:b"]
        result = call("import")
        assert result.stdout.split("\t")[3] == "0"
        assert result.stderr == "Unchanged since the last import, not read: 2 transcripts.\n"
        append(place / "a.jsonl", *chain("three", first=2, after="m1"))
        assert "0 new conversations, 1 updated, 0 unchanged: 1 new message." in call("import").stderr

    @pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
    @pytest.mark.parametrize("command", ["import", "sync"])
    def test_folders_behind_links_in_a_place(self, call, store, place, tmp_path, command):
        disk = tmp_path / "disk"
        (disk / "sub").mkdir(parents=True)
        write(disk / "c.jsonl", "c", *chain("four"))
        write(disk / "sub" / "d.jsonl", "d", *chain("five"))
        write(tmp_path / "home" / "private.jsonl", "private", *chain("six"))
        for name, target in {
            "linked": disk, "again": disk, "inner": disk / "sub", "loop": place, "up": place.parent, "gone": tmp_path / "x",
            "e.jsonl": tmp_path / "home" / "private.jsonl",
        }.items():  # fmt: skip
            (place / name).symlink_to(target)
        (disk / "back").symlink_to(place)
        report = json.loads(call(command, "--json").stdout)
        assert ids(store) == ["toy:a", "toy:b", "toy:c", "toy:d"]
        [note] = [note for note in report["notes"] if "symbolic link" in note["text"]]
        assert note["count"] == 3  # up, gone and the file
        assert json.loads(call(command, "--json").stdout)["unchanged_files"] == 4
        call("import", str(place), "--again", "--json")
        archive = tmp_path / "received"
        archive.mkdir()
        write(tmp_path / "home" / "other.jsonl", "other", *chain("seven"))
        (archive / "home").symlink_to(tmp_path / "home")
        assert json.loads(call("import", str(archive), "--json").stdout)["conversations"] == []

    def test_nothing_to_import(self, call, tmp_path):
        result = call("import")
        assert result.stdout == ""
        assert result.stderr.startswith("No conversations of other tools were found. Looked in ~/.toy.")
        assert json.loads(call("import", "--json").stdout)["conversations"] == []

    def test_a_dry_run_creates_nothing(self, call, path, place):
        result = call("import", "--dry-run")
        assert "Would import 2 new conversations" in result.stderr
        assert not os.path.exists(path)
        report = json.loads(call("import", "--dry-run", "--json").stdout)
        assert (report["dry_run"], [item["outcome"] for item in report["conversations"]]) == (True, ["new", "new"])
        assert not os.path.exists(path)

    def test_json(self, call, store, place):
        append(place / "a.jsonl", {"odd": 1})
        report = json.loads(call("import", "--json").stdout)
        [place_counts] = report["sources"]
        assert (place_counts["source"], place_counts["transcripts"], place_counts["changed"], place_counts["path"]) == (
            "codex",
            2,
            2,
            str(place),
        )
        assert [(item["session"], item["new_messages"]) for item in report["conversations"]] == [
            ("toy:a", 2),
            ("toy:b", 1),
        ]
        [note] = report["notes"]
        assert (note["kind"], note["count"], note["first"]) == ("unknown", 1, "a.jsonl:5")
        assert report["exports"] == []

    def test_notes_are_grouped(self, call, store, place):
        for path in place.glob("*.jsonl"):
            append(path, {"odd": 1}, {"odd": 2})
            with path.open("ab") as file:
                file.write(b"no json\n")
        notes = call("import").stderr.splitlines()[1:]
        assert notes == [
            "Kept, but not understood:",
            "      4  Toy: A line of an unknown kind  a.jsonl:5",
            "Kept, but malformed:",
            "      2  Toy: A line is not JSON. It is kept  a.jsonl:7",
        ]

    def test_notes_of_one_kind_are_one_line(self, call, store, place, monkeypatch):
        from toy_source import ToyReader

        from recollect.sources.source import Note

        def read_line(self, number, line, read=ToyReader.read_line):
            return [Note("unknown", f"a:{number}", f"{line['odd']}.")] if "odd" in line else read(self, number, line)

        monkeypatch.setattr(ToyReader, "read_line", read_line)
        append(place / "a.jsonl", *[{"odd": f"kind {number}"} for number in range(20)], {"odd": "kind 1"})
        assert call("import").stderr.splitlines()[1:] == [
            "Kept, but not understood:",
            "     21  Toy: kind 1; kind 0; kind 2; 10 more  a:6",
            "--json lists all of them, with the place of each.",
        ]

    def test_since_and_project(self, call, store, place):
        os.utime(place / "b.jsonl", (0, 0))
        assert "Left out by --since or --project: 1 transcript." in call("import", "--since", "1d").stderr
        assert ids(store) == ["toy:a"]
        result = call("import", "--project", "/projects/beta")
        assert "Left out by --since or --project" not in result.stderr
        assert ids(store) == ["toy:a", "toy:b"]

    def test_a_project_leaves_the_others_for_later(self, call, store, place, tmp_path):
        write(place / "c.jsonl", "c", *chain("x"))  # without a working directory
        documents = [{"id": "d", "items": []}, {"id": "e", "items": [{"id": "1", "text": "e"}]}]
        (place / "d.json").write_text(json.dumps(documents))
        result = call("import", "--project", "/projects/alph")
        assert (ids(store), "Left out by --since or --project: 3 transcripts." in result.stderr) == ([], True)
        call("import", "--project", "/projects/")
        assert ids(store) == ["toy:a", "toy:b"]
        call("import")
        assert ids(store) == ["toy:a", "toy:b", "toy:c", "toy:d", "toy:e"]

    def test_deleted_conversations_and_again(self, call, store, place):
        call("import")
        store.delete_session("toy:a")
        append(place / "a.jsonl", *chain("new", first=2, after="m1"))
        assert "because you deleted them in Recollect: 1 conversation." in call("import").stderr
        assert ids(store) == ["toy:b"]
        call("import", "--again")
        assert ids(store) == ["toy:a", "toy:b"]

    def test_named_files_folders_and_archives(self, call, store, place, tmp_path):
        with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
            archive.writestr("data/z.jsonl", lines({"start": "z"}, *chain("zip")))
            archive.writestr("../evil.jsonl", lines({"start": "evil"}, *chain("zip")))
        result = call("import", str(place / "b.jsonl"), str(tmp_path / "export.zip"))
        assert ids(store) == ["toy:b", "toy:z"]
        assert [line.split("\t")[4] for line in result.stdout.splitlines()] == [
            str(place / "b.jsonl"), str(tmp_path / "export.zip")
        ]  # fmt: skip
        assert "leaves the archive" in result.stderr
        assert "Not transcripts, not read: 1 file." in call("import", str(place)).stderr

    def test_a_file_that_cannot_be_read(self, call, store, place, tmp_path):
        (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 broken")
        result = call("import", str(tmp_path / "broken.zip"), str(place), code=5)
        assert "broken.zip cannot be read" in result.stderr
        assert ids(store) == ["toy:a", "toy:b"]

    def test_a_file_that_is_something_else(self, call, store, tmp_path):
        (tmp_path / "page.html").write_text("<html></html>")
        result = call("import", str(tmp_path / "page.html"), code=5)
        assert "page.html has no conversation that can be imported. `recollect import --help`" in result.stderr
        call("import", str(tmp_path / "missing"), code=2)
        call("import", "--source", "nothing", code=2)

    def test_exports_of_recollect(self, call, store, session, place, tmp_path):
        folder = tmp_path / "mixed"
        folder.mkdir()
        for name in ("a.jsonl", "b.json"):
            call("sessions", "export", session.id, "-o", str(folder / name))
        write(folder / "toy.jsonl", "t", *chain("toy"))
        (folder / "chat.json").write_text('{"messages": [{"role": "user", "content": "not named"}]}')
        other = str(tmp_path / "other.db")
        result = call("--db", other, "import", str(folder), "--json")
        report = json.loads(result.stdout)
        assert [(item["file"], item["created"], item["unchanged"]) for item in report["exports"]] == [
            (str(folder / "a.jsonl"), [session.id], []),
            (str(folder / "b.json"), [], [session.id]),
        ]
        with recollect.open(other) as copy:
            assert ids(copy) == sorted([session.id, "toy:t"])
        assert "Not transcripts, not read: 1 file." in call("--db", other, "import", str(folder)).stderr
        call("--db", other, "import", str(folder / "chat.json"))
        with recollect.open(other) as copy:
            assert len(copy.list_sessions()) == 3
        report = json.loads(call("import", str(folder), "--source", "codex", "--json").stdout)
        assert (report["exports"], len(report["conversations"])) == ([], 1)
        report = json.loads(call("import", str(folder), "--source", "recollect", "--json").stdout)
        assert (len(report["exports"]), report["conversations"]) == (2, [])
        assert "--project does not apply" in call("import", str(folder), "--project", "/projects", code=5).stderr

    def test_standard_input(self, call, store):
        result = call("import", "-", stdin='{"role": "user", "content": "hello"}\n')
        assert "1 new conversation" in result.stderr
        assert len(store.list_sessions()) == 1

    def test_a_transcript_on_standard_input(self, call, store, place):
        call("import", "-", stdin=(place / "a.jsonl").read_text())
        assert ids(store) == ["toy:a"]
        assert "1 unchanged" in call("import", "-", stdin=(place / "a.jsonl").read_text()).stderr
        result = call("import", "-", stdin="no json\n" * 20, code=5)
        assert result.stderr == (
            "recollect: - has no conversation that can be imported. `recollect import --help` lists the sources.\n"
        )
        result = call("import", "-", stdin='{"a": 1}\n' * 20, code=5)
        assert len(result.stderr.splitlines()) == 3

    def test_a_folder_without_conversations(self, call, tmp_path):
        (tmp_path / "empty").mkdir()
        assert "No conversations were found." in call("import", str(tmp_path / "empty")).stderr
        (tmp_path / "empty" / "page.html").touch()
        assert call("import", str(tmp_path / "empty")).stderr == (
            "Not transcripts, not read: 1 file.\n"
            "No conversations were found. `recollect import --help` lists the sources.\n"
        )

    def test_files_and_folders_without_permission_are_reported(self, call, store, place, monkeypatch):
        """Root may read everything, so the refusals of the system are simulated."""
        from recollect.sources.files import FolderTree

        (place / "locked").mkdir()
        (place / "private.jsonl").touch()
        scan = os.scandir

        def scandir(path):
            if str(path).rstrip("/").endswith("locked"):
                raise PermissionError(13, "Permission denied", str(path))
            return scan(path)

        monkeypatch.setattr(os, "scandir", scandir)
        monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("private.jsonl"))
        monkeypatch.setattr(FolderTree, "head", lambda self, name, head=FolderTree.head: (
            b"" if name == "private.jsonl" else head(self, name)
        ))  # fmt: skip
        result = call("import", str(place), code=5)
        for name in ("locked", "private.jsonl"):
            assert f"{place / name} cannot be read: Permission denied." in result.stderr
        assert ids(store) == ["toy:a", "toy:b"]
        monkeypatch.undo()

    def test_an_interrupted_import(self, call, store, place, monkeypatch):
        from recollect.sync.importer import FileImport

        read = FileImport.read

        def interrupt(self, file, **options):
            if file.transcript.name == "b.jsonl":
                raise KeyboardInterrupt
            read(self, file, **options)

        monkeypatch.setattr(FileImport, "read", interrupt)
        result = call("import", code=130)
        assert "The same command continues the import." in result.stderr
        assert ids(store) == ["toy:a"]
        monkeypatch.undo()

    def test_a_question_on_a_terminal(self, terminal, store, place, toy_path):
        screen = terminal("import", typed="n\n", code=4, PYTHONPATH=toy_path)
        assert "Import 2 transcripts (" in screen
        assert "Cancelled. Nothing was imported." in screen
        assert ids(store) == []
        assert "~/.toy" in screen
        terminal("import", typed="\n", PYTHONPATH=toy_path)
        assert ids(store) == ["toy:a", "toy:b"]
        assert "Import " not in terminal("import", PYTHONPATH=toy_path)  # nothing to read, so no question
        append(place / "a.jsonl", *chain("x", first=2, after="m1"))
        assert "1 updated" in terminal("import", "-y", PYTHONPATH=toy_path)

    def test_stored_text_cannot_control_the_terminal(self, terminal, store, place, toy_path):
        write(place / "evil\x1b[2J.jsonl", "evil", {"title": "evil \x1b]0;x\x07"}, {"odd": 1}, *chain("one"))
        append(place / "evil\x1b[2J.jsonl", *[{"odd": 1}] * 3)
        for arguments in (["import", "-y"], ["sync"]):
            screen = terminal(*arguments, PYTHONPATH=toy_path)
            assert "\x1b[2J" not in screen
            assert "\x07" not in screen
            append(place / "evil\x1b[2J.jsonl", *chain("two", first=1, after="m0"))

    def test_the_command_imports_no_decompressor_and_no_watcher_before_it_needs_them(self):
        program = "import sys, recollect.cli.imports, recollect.cli.sync, recollect.sync; print(*sys.modules)"
        modules = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        assert not {"zstandard", "watchfiles"} & set(modules)


class TestSync:
    def test_only_what_is_new_and_nothing_else(self, call, store, place):
        assert call("sync").stdout == "new\ttoy:a\t2\tPlans\nnew\ttoy:b\t1\t\n"
        result = call("sync")
        assert (result.stdout, result.stderr) == ("", "")
        append(place / "b.jsonl", *chain("four", first=1, after="m0"))
        assert call("sync").stdout == "updated\ttoy:b\t1\t\n"
        assert json.loads(call("sync", "--json").stdout)["conversations"] == []

    def test_a_terminal_shows_a_part_of_many_conversations(self, terminal, store, place, toy_path):
        for number in range(30):
            write(place / f"{number}.jsonl", f"x{number}", {"title": "long " * 100}, *chain("one"))
        lines_ = terminal("sync", PYTHONPATH=toy_path).splitlines()
        lines_ = [line for line in lines_ if "new message" in line]
        assert len(lines_) == 21
        assert "and 12 more conversations, 13 new messages" in lines_[-1]
        assert "Nothing is new." in terminal("sync", PYTHONPATH=toy_path)

    def test_without_places(self, call):
        result = call("sync")
        assert (result.stdout, result.stderr) == ("", "")

    def test_paths_of_the_configuration(self, call, store, tmp_path):
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        write(folder / "x.jsonl", "x", *chain("one"))
        call("sync", RECOLLECT_SYNC_PATHS=str(folder))
        assert ids(store) == ["toy:x"]
        result = call("sync", RECOLLECT_SYNC_PATHS="relative", code=1)
        assert result.stderr == "recollect: sync.paths must contain absolute paths, got 'relative'.\n"
        result = call("sync", RECOLLECT_SYNC_SOURCES="nothing", code=1)
        assert result.stderr == "recollect: A source must be one of codex, got 'nothing'.\n"

    def test_a_failure_has_an_exit_status(self, call, store, place, monkeypatch):
        from recollect.sources.files import UnreadableFile

        def read(self, tree, transcript, select):
            raise UnreadableFile(f"{transcript.name} cannot be read: it is damaged.")

        (place / "broken.json").write_text("[")
        monkeypatch.setattr(ToySource, "read", read)
        result = call("sync", code=5)
        assert result.stderr == "recollect: broken.json cannot be read: it is damaged.\n"
        assert ids(store) == ["toy:a", "toy:b"]
        assert "cannot be read" in call("import", code=5).stderr

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_watch_until_a_signal(self, store, place, environment, toy_path, number):
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "sync", "--watch", "--json"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**environment, "PYTHONPATH": toy_path},
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            stack.enter_context(process)
            stack.callback(process.kill)  # a failed assertion would wait for the process
            assert process.stdout is not None
            assert process.stderr is not None
            first = json.loads(process.stdout.readline())
            assert [item["session"] for item in first["conversations"]] == ["toy:a", "toy:b"]
            time.sleep(0.5)
            append(place / "b.jsonl", *chain("four", first=1, after="m0"))
            second = json.loads(process.stdout.readline())
            assert [(item["session"], item["new_messages"]) for item in second["conversations"]] == [("toy:b", 1)]
            process.send_signal(number)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""


class TestNative:
    def test_one_file_to_standard_output_and_to_a_file(self, call, run, store, place, tmp_path, toy_path):
        call("import")
        original = (place / "a.jsonl").read_bytes()
        assert run("sessions", "export", "toy:a", "--format", "native").stdout.encode() == original
        target = tmp_path / "copy.jsonl"
        result = call("sessions", "export", "toy:a", "--format", "native", "-o", str(target))
        assert target.read_bytes() == original
        assert result.stderr.startswith("Wrote ")
        assert target.stat().st_mode & 0o777 == 0o600
        call("sessions", "export", "toy:b", "--format", "native", "-o", str(target), code=4)
        assert target.read_bytes() == original

    def test_several_files_to_a_folder_and_to_an_archive(self, call, store, place, tmp_path):
        call("import")
        ids = ("toy:a", "toy:b")
        result = call("sessions", "export", *ids, "--format", "native", code=2)
        assert "The originals are 2 files, but standard output holds one." in result.stderr
        call("sessions", "export", *ids, "--format", "native", "-o", str(tmp_path / "out"))
        call("sessions", "export", *ids, "--format", "native", "-o", str(tmp_path / "out.zip"))
        with zipfile.ZipFile(tmp_path / "out.zip") as archive:
            for name in "ab":
                original = (place / f"{name}.jsonl").read_bytes()
                assert (tmp_path / "out" / f"toy-{name}" / f"{name}.jsonl").read_bytes() == original
                assert archive.read(f"toy-{name}/{name}.jsonl") == original
        call("sessions", "export", *ids, "--format", "native", "-o", str(tmp_path / "out"), code=4)
        call("sessions", "export", *ids, "--format", "native", "-o", str(tmp_path / "out"), "-y")

    def test_errors(self, call, store, session, place, tmp_path):
        call("import")
        result = call("sessions", "export", session.id, "--format", "native", code=3)
        assert "was not imported, so it has no original" in result.stderr
        store.get_session("toy:a").replace_message(2, {"role": "user", "content": "x"}, erase=True)
        target = tmp_path / "a.jsonl"
        result = call("sessions", "export", "toy:a", "--format", "native", "-o", str(target), code=3)
        assert "was erased" in result.stderr
        assert not target.exists()
        result = call("sessions", "export", "toy:b", "--format", "native", "--redact", code=2)
        assert "--redact cannot be used with --format native" in result.stderr
        call("sessions", "export", "--all", "--format", "native", code=2)
        assert "got the folder" in call("sessions", "export", "toy:b", "-o", str(tmp_path), code=2).stderr

    def test_a_name_cannot_leave_the_folder(self, call, store, place, tmp_path, monkeypatch):
        call("import")
        monkeypatch.setattr("recollect.sync.native._base_name", lambda path: "../../evil.jsonl")
        folder = tmp_path / "out"
        folder.mkdir()
        result = call("sessions", "export", "toy:a", "--format", "native", "-o", str(folder), code=1)
        assert "would be written outside of the folder" in result.stderr
        assert not list(tmp_path.rglob("evil.jsonl"))
