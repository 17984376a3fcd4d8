"""Where an export goes and where an import comes from: paths, open files, async stores, large sessions."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import subprocess
import sys
import tracemalloc

import pytest
from worlds import build, everything, exported

import recollect
from recollect import export
from recollect.testing import talk

STEPS = [("talk", 0, "anthropic"), ("picture", 0, ""), ("fork", 0, 1), ("said", 1, "x")]


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        yield build(store, STEPS)


def test_a_named_file_has_the_format_of_its_name_and_is_private(store, tmp_path):
    for name, format in (
        ("a.jsonl", "jsonl"),
        ("a.JSON", "json"),
        ("a.md", "md"),
        ("a.markdown", "md"),
        ("a.html", "html"),
    ):
        path = tmp_path / name
        assert export.write(store, None, None, path) == path.stat().st_size
        assert path.read_bytes() == exported(store, None, format)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert export.format_of("x.txt") is None
    with pytest.raises(recollect.InvalidValue, match="md, json, jsonl, html"):
        export.write(store, None, None, tmp_path / "a.txt")
    with pytest.raises(recollect.InvalidValue, match="md, json, jsonl, html"):
        export.write(store, None, "docx", tmp_path / "a.txt")
    with pytest.raises(recollect.InvalidValue, match="list"):
        export.write(store, "cli:first", "json", tmp_path / "a.txt")


def test_an_export_that_fails_leaves_the_file_that_was_there(store, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("before")
    with pytest.raises(recollect.SessionNotFound):
        export.write(store, ["cli:first", "nobody"], None, path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.jsonl"]


_STALLED = """
import sys, time, recollect
from recollect import export
store = recollect.open(":memory:")
def stall(*_):
    print("begun", flush=True)
    time.sleep(600)
recollect.Store.run = stall
export.write(store, None, None, sys.argv[1])
"""


def test_what_a_killed_one_left_is_removed_by_the_next(store, tmp_path):
    """Nobody can have made it before: the name is not to be guessed, and a file of that name is not written to."""
    path = tmp_path / "a.jsonl"
    child = subprocess.Popen([sys.executable, "-c", _STALLED, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"begun\n"
    child.kill()
    child.communicate()
    (left,) = os.listdir(tmp_path)
    assert left.startswith("a.jsonl.")
    assert left.endswith(".part")
    export.write(store, None, None, path)
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_files_of_text_and_of_bytes(store, tmp_path):
    text = io.StringIO()
    export.write(store, None, "jsonl", text)
    assert text.getvalue().encode() == exported(store)
    for file in (io.StringIO(text.getvalue()), io.BytesIO(exported(store))):
        with recollect.open(":memory:") as copy:
            export.read(copy, file)
            assert exported(copy) == exported(store)
    path = tmp_path / "a.jsonl"
    path.write_bytes(exported(store))
    with recollect.open(":memory:") as copy:
        assert export.read(copy, path).bad == []
        assert export.read(copy, os.fspath(path)).messages == 0


def test_a_source_that_gives_a_byte_at_a_time(store):
    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 7))

    for format in ("json", "jsonl"):
        with recollect.open(":memory:") as copy:
            assert export.read(copy, Slow(exported(store, format=format))).bad == []
            assert exported(copy) == exported(store)


def test_an_async_store_gives_and_takes_the_same(store, tmp_path):
    async def story():
        async with recollect.open_async(tmp_path / "talks.db") as copy:
            report = await export.read_async(copy, io.BytesIO(exported(store)))
            found = {}
            for format in export.FORMATS:
                found[format] = b"".join([piece async for piece in export.chunks_async(copy, None, format)])
            changed = exported(store).replace(b"What is in README.md?", b"What was in README.md?")
            with pytest.raises(recollect.SessionExists):
                await export.read_async(copy, io.BytesIO(changed), on_conflict="error")
            return report, found

    report, found = asyncio.run(story())
    assert report.bad == []
    assert found == {format: exported(store, None, format) for format in export.FORMATS}


def test_many_pages_and_large_messages(tmp_path):
    with recollect.open(tmp_path / "a.db") as store:
        session = store.session("long")
        session.append(talk.numbered(1500))
        session.append([talk.user("x" * 400_000)] * 8)
        for number in range(40):
            session.append(talk.asks(f"c{number}"))
            session.append(talk.answers(f"c{number}", text="y" * 60_000))
        told = []
        text = exported(store, progress=told.append)
        assert told == sorted(told)
        assert told[-1] >= 1280
        pieces = list(export.chunks(store, None, "jsonl"))
        assert max(map(len, pieces)) < 2_000_000
        with recollect.open(tmp_path / "b.db") as copy:
            export.read(copy, io.BytesIO(text))
            assert exported(copy) == text
            everything(copy)
        assert exported(store, None, "html").count(b"y" * 60_000) == 40


def test_what_was_said_after_the_export_began_is_not_in_it(store):
    pieces = export.chunks(store, None, "jsonl")
    first = next(pieces)
    second = next(pieces)
    store.session("cli:first").append(talk.user("too late"))
    assert b"too late" not in first + second + b"".join(pieces)


def test_a_session_that_is_erased_meanwhile_is_said(tmp_path):
    with recollect.open(tmp_path / "a.db") as store:
        store.session("a").append(talk.numbered(600))
        pieces = export.chunks(store, ["a"], "jsonl")
        begun = [next(pieces) for _ in range(5)]
        store.erase_session("a")
        with pytest.raises(recollect.SessionNotFound):
            begun.extend(pieces)


def test_a_pipe_is_written_to_and_a_link_is_followed(store, tmp_path):
    target = tmp_path / "real.jsonl"
    target.write_text("before")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    export.write(store, None, None, link)
    assert link.is_symlink()
    assert target.read_bytes() == exported(store)
    export.write(store, None, "html", os.devnull)
    assert not os.path.isfile(os.devnull)
    with pytest.raises(recollect.StoreUnavailable, match="can not be written: Is a directory"):
        export.write(store, None, "html", tmp_path)


def test_what_can_not_be_written_or_read_is_an_error_of_ours(store, tmp_path):
    for path in (tmp_path / "none" / "a.md", tmp_path / "a.db" / "a.md"):
        (tmp_path / "a.db").touch()
        with pytest.raises(recollect.StoreUnavailable) as caught:
            export.write(store, None, "md", path)
        assert str(caught.value).startswith(f"{path} can not be written: ")
    with pytest.raises(recollect.DiskFull, match="The disk under /dev/full is full"):
        export.write(store, None, "md", "/dev/full")
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(recollect.StoreUnavailable, match="can not be read: "):
            export.read(store, path)


@pytest.mark.parametrize("odd", [None, 5, b"a.md", "a\0b.md", "", object(), []])
def test_what_is_no_file_is_an_error_of_ours(store, odd):
    for call in (
        lambda: export.write(store, None, "md", odd), lambda: export.read(store, odd), lambda: export.format_of(odd)
    ):  # fmt: skip
        with pytest.raises(recollect.InvalidValue, match="A file is named by a path"):
            call()


def test_arguments_that_are_none(store, tmp_path):
    for odd in (5, [], "pdf", {}):
        with pytest.raises(recollect.InvalidValue, match="An export is one of"):
            export.write(store, None, odd, tmp_path / "a")
    for call in (export.chunks, export.chunks_async):
        with pytest.raises(recollect.InvalidValue, match="progress is a function"):
            call(store, None, "md", progress=5)
    with pytest.raises(recollect.InvalidValue, match="progress is a function"):
        export.read(store, io.BytesIO(), progress=5)


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"owners": "ann"}, "owners is a list"), ({"owners": b"ann"}, "owners is a list"),
        ({"owners": 5}, "owners is a list"), ({"owners": ["ann", 5]}, "An owner is a text"),
        ({"progress": 5}, "progress is a function"), ({"timeout": "x"}, "timeout is a number"),
    ],
)  # fmt: skip
def test_what_names_no_owner_of_a_copy(tmp_path, odd, told):
    with recollect.open(tmp_path / "a.db", owner="ann") as store:
        store.session("a")
    with pytest.raises(recollect.InvalidValue, match=told):
        recollect.copy(tmp_path / "a.db", tmp_path / "b.db", **odd)
    assert not os.path.exists(tmp_path / "b.db")
    assert recollect.copy(tmp_path / "a.db", tmp_path / "b.db", owners=iter(["ann"])).counts["sessions"] == 1


def test_a_name_that_is_not_utf_8(store, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")
    assert export.write(store, None, None, path) == os.path.getsize(path)
    assert export.read(store, path).bad == []


@pytest.mark.parametrize("format", ["md", "json", "jsonl", "html"])
def test_nothing_is_a_whole_file_too(store, format):
    found = exported(store, [], format)
    assert format == "md" or found
    if format == "html":
        assert found.startswith(b"<!doctype html>")
        assert found.count(b"</html>") == 1
    if format in ("json", "jsonl"):
        with recollect.open(":memory:") as copy:
            report = export.read(copy, io.BytesIO(found))
            assert (report.bad, report.created) == ([], [])


def test_a_document_without_its_header(store):
    text = exported(store, format="json")
    with recollect.open(":memory:") as copy:
        report = export.read(copy, io.BytesIO(b"{" + text[text.index(b'"sessions"') :]))
        assert report.bad == []
        assert exported(copy) == exported(store)


@pytest.mark.parametrize("format", ["jsonl", "json", "md", "html"])
def test_memory_does_not_grow_with_the_session(tmp_path, format):
    with recollect.open(tmp_path / "a.db") as store:
        store.session("a").append([talk.user("word " * 2_000)] * 500)  # 5 MB
        exported(store, [], format)  # what is loaded once
        tracemalloc.start()
        try:
            size = sum(map(len, export.chunks(store, None, format)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert size > 5_000_000
    assert peak < 3_000_000


def test_documents_may_go_without_what_tools_answered():
    with recollect.open(":memory:") as store:
        session = store.session("s")
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
        session.append({"role": "assistant", "content": "Looking.", "tool_calls": [call]}, format="openai")
        session.record_tool_result("c", "the whole file")
        for format in ("md", "html"):
            text = b"".join(export.chunks(store, ["s"], format, output=False)).decode()
            assert "the whole file" not in text
            assert "left out" in text
            assert "a.txt" in text
            assert "the whole file" in b"".join(export.chunks(store, ["s"], format)).decode()
        for format in ("json", "jsonl"):
            with pytest.raises(recollect.InvalidValue, match="whole"):
                list(export.chunks(store, ["s"], format, output=False))
