"""Targets of an export and sources of an import: paths, open files, async stores, large sessions."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import subprocess
import sys
import tracemalloc

import pytest
from random_stores import build_store, export_bytes, read_everything

import recollect
from recollect import export
from recollect_conformance import examples

STEPS = [("conversation", 0, "anthropic"), ("attachment", 0, ""), ("fork", 0, 1), ("message", 1, "x")]


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        yield build_store(store, STEPS)


def test_the_format_follows_the_file_name_and_the_file_is_private(store, tmp_path):
    for name, format in (
        ("a.jsonl", "jsonl"),
        ("a.JSON", "json"),
        ("a.md", "md"),
        ("a.markdown", "md"),
        ("a.html", "html"),
    ):
        path = tmp_path / name
        assert export.write(store, None, None, path) == path.stat().st_size
        assert path.read_bytes() == export_bytes(store, None, format)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert export.format_of("x.txt") is None
    with pytest.raises(recollect.InvalidValue, match="md, json, jsonl, html"):
        export.write(store, None, None, tmp_path / "a.txt")
    with pytest.raises(recollect.InvalidValue, match="md, json, jsonl, html"):
        export.write(store, None, "docx", tmp_path / "a.txt")
    with pytest.raises(recollect.InvalidValue, match="list"):
        export.write(store, "cli:first", "json", tmp_path / "a.txt")


def test_a_failed_export_keeps_the_existing_file(store, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("before")
    with pytest.raises(recollect.SessionNotFound):
        export.write(store, ["cli:first", "nobody"], None, path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.jsonl"]


STALLED_EXPORT = """
import sys, time, recollect
from recollect import export
store = recollect.open(":memory:")
def stall(*_):
    print("started", flush=True)
    time.sleep(600)
recollect.Store._run = stall
export.write(store, None, None, sys.argv[1])
"""


def test_the_temporary_file_of_a_killed_export_is_removed(store, tmp_path):
    """The name is random, and an existing file of that name is not overwritten, so no attacker can prepare it."""
    path = tmp_path / "a.jsonl"
    child = subprocess.Popen([sys.executable, "-c", STALLED_EXPORT, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"started\n"
    child.kill()
    child.communicate()
    (temporary,) = os.listdir(tmp_path)
    assert temporary.startswith("a.jsonl.")
    assert temporary.endswith(".part")
    export.write(store, None, None, path)
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_text_and_binary_files(store, tmp_path):
    text = io.StringIO()
    export.write(store, None, "jsonl", text)
    assert text.getvalue().encode() == export_bytes(store)
    for file in (io.StringIO(text.getvalue()), io.BytesIO(export_bytes(store))):
        with recollect.open(":memory:") as copy:
            export.read(copy, file)
            assert export_bytes(copy) == export_bytes(store)
    path = tmp_path / "a.jsonl"
    path.write_bytes(export_bytes(store))
    with recollect.open(":memory:") as copy:
        assert export.read(copy, path).bad == []
        assert export.read(copy, os.fspath(path)).messages == 0


def test_a_source_with_short_reads(store):
    class ShortReads(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 7))

    for format in ("json", "jsonl"):
        with recollect.open(":memory:") as copy:
            assert export.read(copy, ShortReads(export_bytes(store, format=format))).bad == []
            assert export_bytes(copy) == export_bytes(store)


def test_async_export_and_import_equal_the_sync_ones(store, tmp_path):
    async def scenario():
        async with recollect.open_async(tmp_path / "copy.db") as copy:
            report = await export.read_async(copy, io.BytesIO(export_bytes(store)))
            exports = {}
            for format in export.FORMATS:
                exports[format] = b"".join([chunk async for chunk in export.chunks_async(copy, None, format)])
            changed = export_bytes(store).replace(b"What is in README.md?", b"What was in README.md?")
            with pytest.raises(recollect.SessionExists):
                await export.read_async(copy, io.BytesIO(changed), on_conflict="error")
            return report, exports

    report, exports = asyncio.run(scenario())
    assert report.bad == []
    assert exports == {format: export_bytes(store, None, format) for format in export.FORMATS}


def test_many_pages_and_large_messages(tmp_path):
    with recollect.open(tmp_path / "a.db") as store:
        session = store.session("long")
        session.append(examples.numbered_messages(1500))
        session.append([examples.user("x" * 400_000)] * 8)
        for number in range(40):
            session.append(examples.tool_call_message(f"c{number}"))
            session.append(examples.tool_result_message(f"c{number}", text="y" * 60_000))
        counts = []
        text = export_bytes(store, progress=counts.append)
        assert counts == sorted(counts)
        assert counts[-1] >= 1280
        chunks = list(export.chunks(store, None, "jsonl"))
        assert max(map(len, chunks)) < 2_000_000
        with recollect.open(tmp_path / "b.db") as copy:
            export.read(copy, io.BytesIO(text))
            assert export_bytes(copy) == text
            read_everything(copy)
        assert export_bytes(store, None, "html").count(b"y" * 60_000) == 40


def test_messages_after_the_start_of_an_export_are_not_in_it(store):
    chunks = export.chunks(store, None, "jsonl")
    first = next(chunks)
    second = next(chunks)
    store.session("cli:first").append(examples.user("too late"))
    assert b"too late" not in first + second + b"".join(chunks)


def test_a_session_erased_during_an_export_is_an_error(tmp_path):
    with recollect.open(tmp_path / "a.db") as store:
        store.session("a").append(examples.numbered_messages(600))
        chunks = export.chunks(store, ["a"], "jsonl")
        first_chunks = [next(chunks) for _ in range(5)]
        store.erase_session("a")
        with pytest.raises(recollect.SessionNotFound):
            first_chunks.extend(chunks)


def test_devices_and_symbolic_links(store, tmp_path):
    target = tmp_path / "real.jsonl"
    target.write_text("before")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    export.write(store, None, None, link)
    assert link.is_symlink()
    assert target.read_bytes() == export_bytes(store)
    export.write(store, None, "html", os.devnull)
    assert not os.path.isfile(os.devnull)
    with pytest.raises(recollect.StoreUnavailable, match="cannot be written: Is a directory"):
        export.write(store, None, "html", tmp_path)


def test_unwritable_and_unreadable_paths_raise_store_errors(store, tmp_path):
    for path in (tmp_path / "none" / "a.md", tmp_path / "a.db" / "a.md"):
        (tmp_path / "a.db").touch()
        with pytest.raises(recollect.StoreUnavailable) as error:
            export.write(store, None, "md", path)
        assert str(error.value).startswith(f"{path} cannot be written: ")
    with pytest.raises(recollect.errors.DiskFull, match="The disk of /dev/full is full"):
        export.write(store, None, "md", "/dev/full")
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(recollect.StoreUnavailable, match="cannot be read: "):
            export.read(store, path)


@pytest.mark.parametrize("invalid", [None, 5, b"a.md", "a\0b.md", "", object(), []])
def test_an_invalid_file_argument(store, invalid):
    for call in (
        lambda: export.write(store, None, "md", invalid), lambda: export.read(store, invalid), lambda: export.format_of(invalid)
    ):  # fmt: skip
        with pytest.raises(recollect.InvalidValue, match="file must be a path"):
            call()


def test_invalid_arguments(store, tmp_path):
    for invalid in (5, [], "pdf", {}):
        with pytest.raises(recollect.InvalidValue, match="format must be one of"):
            export.write(store, None, invalid, tmp_path / "a")
    for call in (export.chunks, export.chunks_async):
        with pytest.raises(recollect.InvalidValue, match="progress must be callable or None"):
            call(store, None, "md", progress=5)
    with pytest.raises(recollect.InvalidValue, match="progress must be callable or None"):
        export.read(store, io.BytesIO(), progress=5)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"owners": "ann"}, "owners must be a list of str"), ({"owners": b"ann"}, "owners must be a list of str"),
        ({"owners": 5}, "owners must be a list of str"), ({"owners": ["ann", 5]}, "owner must be a str without NUL"),
        ({"progress": 5}, "progress must be callable or None"), ({"timeout": "x"}, "timeout must be between 0 and 315360000 seconds"),
    ],
)  # fmt: skip
def test_invalid_arguments_of_copy(tmp_path, options, error):
    with recollect.open(tmp_path / "a.db", owner="ann") as store:
        store.session("a")
    with pytest.raises(recollect.InvalidValue, match=error):
        recollect.copy(tmp_path / "a.db", tmp_path / "b.db", **options)
    assert not os.path.exists(tmp_path / "b.db")
    assert recollect.copy(tmp_path / "a.db", tmp_path / "b.db", owners=iter(["ann"])).counts["sessions"] == 1


def test_a_file_name_that_is_not_utf_8(store, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")
    assert export.write(store, None, None, path) == os.path.getsize(path)
    assert export.read(store, path).bad == []


@pytest.mark.parametrize("format", ["md", "json", "jsonl", "html"])
def test_an_export_of_no_sessions_is_a_complete_file(store, format):
    text = export_bytes(store, [], format)
    assert format == "md" or text
    if format == "html":
        assert text.startswith(b"<!doctype html>")
        assert text.count(b"</html>") == 1
    if format in ("json", "jsonl"):
        with recollect.open(":memory:") as copy:
            report = export.read(copy, io.BytesIO(text))
            assert (report.bad, report.created) == ([], [])


def test_a_document_without_its_header(store):
    text = export_bytes(store, format="json")
    with recollect.open(":memory:") as copy:
        report = export.read(copy, io.BytesIO(b"{" + text[text.index(b'"sessions"') :]))
        assert report.bad == []
        assert export_bytes(copy) == export_bytes(store)


@pytest.mark.parametrize("format", ["jsonl", "json", "md", "html"])
def test_memory_does_not_grow_with_the_session(tmp_path, format):
    with recollect.open(tmp_path / "a.db") as store:
        store.session("a").append([examples.user("word " * 2_000)] * 500)  # 5 MB
        export_bytes(store, [], format)  # imports happen now, outside the measurement
        tracemalloc.start()
        try:
            size = sum(map(len, export.chunks(store, None, format)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert size > 5_000_000
    assert peak < 3_000_000


def test_documents_without_tool_output():
    with recollect.open(":memory:") as store:
        session = store.session("s")
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
        session.append({"role": "assistant", "content": "Looking.", "tool_calls": [call]}, format="openai")
        session.tools.record_result("c", "the whole file")
        for format in ("md", "html"):
            text = b"".join(export.chunks(store, ["s"], format, output=False)).decode()
            assert "the whole file" not in text
            assert "tool output omitted" in text
            assert "a.txt" in text
            assert "the whole file" in b"".join(export.chunks(store, ["s"], format)).decode()
        for format in ("json", "jsonl"):
            with pytest.raises(recollect.InvalidValue, match="whole"):
                list(export.chunks(store, ["s"], format, output=False))
