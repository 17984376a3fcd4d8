"""The import of files: what is stored, and what a second import, a change of the file or of the session leads to."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import sys
import zipfile

import pytest
import zstandard

import recollect
from recollect.export.pipeline import run_operation, scope_of
from recollect.model.message import Draft, TextPart
from recollect.sources import registry
from recollect.storage import imports
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from toy_source import ToySource, chain, lines

START = {"start": "a", "cwd": "/work"}


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    source = ToySource()
    monkeypatch.setattr(registry, "get_source", lambda name: source)
    return source


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    location = tmp_path / "r.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    with recollect.open(location, owner="ann") as store:
        yield store
    with recollect.open(location, owner="ann") as store:
        assert store.maintenance.check().problems == ()


def run(store, *paths, **options):
    return import_files(store, paths, ImportOptions(sources=["toy"], **options))


def texts(session):
    return [message.text for message in session.messages()]


def original(store, session="toy:a"):
    [(_, data)] = read_originals(store, session)
    return data


def session_times(store):
    [session] = store.list_sessions()
    return session.info.created_at_ms, session.info.active_at_ms


class TestLines:
    def test_messages_fields_and_original_bytes(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        data = lines(START, {"title": "Plans"}, *chain("one", "two"), {"odd": 1}) + b'not json\n{"cut": '
        file.write_bytes(data)
        report = run(store, file)
        [conversation] = report.conversations
        assert (conversation.session, conversation.outcome, conversation.new_messages) == ("toy:a", "new", 2)
        assert [(note.kind, note.count) for note in report.notes] == [("unknown", 1), ("malformed", 1)]
        session = store.get_session("toy:a")
        assert (session.title, session.working_dir, session.channel) == ("Plans", "/work", "toy")
        assert texts(session) == ["one", "two"]
        assert session.message(key="m1").text == "two"
        assert original(store) == data
        assert store.search("two")[0].session == "toy:a"

    def test_a_second_import_changes_nothing(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two")))
        run(store, file)
        before = store.get_session("toy:a").to_dict()
        report = run(store, file)
        assert (report.conversations, report.unchanged_files) == ((), 1)
        os.utime(file, ns=(0, 0))  # a new stamp, so the file is read
        report = run(store, file)
        assert [item.outcome for item in report.conversations] == ["unchanged"]
        assert store.get_session("toy:a").to_dict() == before

    def test_a_file_that_grows_at_any_byte(self, store, tmp_path):
        data = lines(START, *chain("one", "twö"), {"title": "t"}, *chain("three", first=2, after="m1"))
        file = tmp_path / "a.jsonl"
        for end in range(1, len(data) + 1):
            file.write_bytes(data[:end])
            run(store, file, indexes=False)
            if end > 30:
                assert original(store) == data[:end]
        session = store.get_session("toy:a")
        assert texts(session) == ["one", "twö", "three"]
        assert session.title == "t"
        assert len(session.branches.list()) == 1

    def test_times_of_an_older_copy_that_is_read_later(self, store, tmp_path):
        new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"
        messages = chain("one", "two", "three", "four")
        new.write_bytes(lines(START, *messages[2:]))
        run(store, new)
        times = [message["at"] for message in messages]
        assert session_times(store) == (times[2], times[3])
        old.write_bytes(lines({"start": "a", "old": True}, *messages[:2]))
        for again in (False, True):
            run(store, old, again=again)
            assert session_times(store) == (times[0], times[3])
        new.write_bytes(lines(START, *chain("three", "four", "five", first=2, after="m1")))
        run(store, new)
        assert session_times(store) == (times[0], times[3] + 1000)
        store.get_session("toy:a").append({"role": "user", "content": "here"})
        active = session_times(store)[1]
        run(store, tmp_path, again=True)
        assert session_times(store) == (times[0], active)

    def test_a_last_line_without_an_end_is_read_once(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one")).rstrip(b"\n"))
        run(store, file)
        assert texts(store.get_session("toy:a")) == ["one"]
        file.write_bytes(lines(START, *chain("one", "two")))
        run(store, file)
        assert texts(store.get_session("toy:a")) == ["one", "two"]

    def test_a_compressed_file_and_one_in_an_archive_continue(self, store, tmp_path):
        texts_ = [f"{number} {os.urandom(2000).hex()}" for number in range(700)]
        data = lines(START, *chain(*texts_))
        file, archive = tmp_path / "a.jsonl.zst", tmp_path / "a.zip"
        file.write_bytes(zstandard.ZstdCompressor().compress(data[: len(data) // 2]))
        run(store, file, indexes=False)
        assert original(store) == data[: len(data) // 2]
        file.write_bytes(zstandard.ZstdCompressor().compress(data))
        report = run(store, file, indexes=False)
        assert [item.outcome for item in report.conversations] == ["updated"]
        assert original(store) == data
        more = data + lines(*chain("more", first=700, after="m699"))
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as stream:
            stream.writestr("folder/a.jsonl", more)
        report = run(store, archive, indexes=False)
        assert [item.new_messages for item in report.conversations] == [1]
        assert texts(store.get_session("toy:a")) == [*texts_, "more"]
        assert original(store) == more
        file.touch()
        assert [item.outcome for item in run(store, file, indexes=False).conversations] == ["unchanged"]
        assert original(store) == more

    def test_a_file_that_was_moved_continues(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one")))
        run(store, file)
        target = tmp_path / "archive" / "b.jsonl"
        target.parent.mkdir()
        file.rename(target)
        target.write_bytes(lines(START, *chain("one", "two")))
        report = run(store, target)
        assert [(item.outcome, item.new_messages) for item in report.conversations] == [("updated", 1)]
        assert original(store) == target.read_bytes()

    def test_an_older_copy_and_a_truncated_file_change_nothing(self, store, tmp_path):
        file, copy = tmp_path / "a.jsonl", tmp_path / "copy.jsonl"
        data = lines(START, *chain("one", "two", "three"))
        copy.write_bytes(lines(START, *chain("one")))
        file.write_bytes(data)
        run(store, file)
        report = run(store, copy)
        assert [item.outcome for item in report.conversations] == ["unchanged"]
        assert (texts(store.get_session("toy:a")), original(store)) == (["one", "two", "three"], data)
        file.write_bytes(lines(START, *chain("one", "two")))
        run(store, file)
        assert (texts(store.get_session("toy:a")), original(store)) == (["one", "two", "three"], data)
        file.unlink()
        run(store, tmp_path)
        assert texts(store.get_session("toy:a")) == ["one", "two", "three"]

    def test_another_older_copy_does_not_shorten_the_active_path(self, store, tmp_path):
        file, copy = tmp_path / "a.jsonl", tmp_path / "copy.jsonl"
        file.write_bytes(lines(START, *chain("one", "two", "three"), {"active": "m2"}))
        copy.write_bytes(lines({"start": "a", "machine": 2}, *chain("one", "two"), {"active": "m1"}))
        run(store, file)
        assert [item.outcome for item in run(store, copy).conversations] == ["unchanged"]
        assert texts(store.get_session("toy:a")) == ["one", "two", "three"]
        with copy.open("ab") as stream:
            stream.write(lines({"id": "x", "after": "m1", "text": "other", "at": 1_800_000_000_000}, {"active": "x"}))
        run(store, copy)
        assert texts(store.get_session("toy:a")) == ["one", "two", "other"]

    def test_a_rewritten_file_replaces_what_its_tool_changed(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two")))
        run(store, file)
        data = lines(START, *chain("ONE", "two", "three"))
        file.write_bytes(data)
        report = run(store, file)
        assert [(item.updated_messages, item.new_messages) for item in report.conversations] == [(1, 1)]
        session = store.get_session("toy:a")
        assert texts(session) == ["ONE", "two", "three"]
        assert session.message_versions(1) == []
        assert original(store) == data
        assert [hit.message for hit in store.search("ONE")] == [session.messages()[0].id]

    @pytest.mark.parametrize("replaces", [True, False])
    def test_a_change_of_the_same_length_in_the_middle_is_seen(self, store, tmp_path, replaces):
        """An editor writes the file again, in place or as a new file; the end of the file does not change."""
        file = tmp_path / "a.jsonl"
        texts_ = ["first", *[f"{number} " + "x" * 3000 for number in range(600)]]
        file.write_bytes(lines(START, *chain(*texts_)))
        run(store, file, indexes=False)
        texts_[0] = "FIRST"
        if replaces:
            file.unlink()
        file.write_bytes(lines(START, *chain(*texts_)))
        report = run(store, file, indexes=False)
        assert [(item.updated_messages, item.new_messages) for item in report.conversations] == [(1, 0)]
        assert texts(store.get_session("toy:a")) == texts_
        assert original(store) == file.read_bytes()
        texts_[0] = "fIRST"
        new = tmp_path / "new.jsonl"
        new.write_bytes(lines(START, *chain(*texts_, "more")))
        new.replace(file)
        run(store, file, indexes=False)
        assert texts(store.get_session("toy:a")) == [*texts_, "more"]
        assert original(store) == file.read_bytes()

    def test_only_the_last_chunk_is_compared_if_a_file_grows(self, store, tmp_path, monkeypatch):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain(*["x" * 5000] * 900)))
        run(store, file, indexes=False)
        keys = []
        monkeypatch.setattr(
            imports, "read_chunks",
            lambda scope, session, key, *page, read=imports.read_chunks: keys.append(key) or read(scope, session, key, *page),
        )  # fmt: skip
        with file.open("ab") as stream:
            stream.write(lines(*chain("more", first=900, after="m899")))
        run(store, file, indexes=False)
        assert len(keys) == 1

    def test_a_reader_may_ask_to_start_again(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one")))
        run(store, file)
        # A toy line that needs earlier lines: the whole file is read, and there it means nothing.
        file.write_bytes(lines(START, *chain("one"), {"rewind": 0}, *chain("two", first=1, after="m0")))
        run(store, file)
        assert texts(store.get_session("toy:a")) == ["one", "two"]

    def test_images_are_stored_once(self, store, tmp_path):
        payload = os.urandom(300_000)
        item = {**chain("look")[0], "image": base64.b64encode(payload).decode()}
        data = lines(START, item, {"extra": base64.b64encode(payload).decode()})
        file = tmp_path / "a.jsonl"
        file.write_bytes(data)
        run(store, file)
        assert original(store) == data
        if "://" not in store.path:
            assert store.maintenance.space().total < 600_000

    def test_a_compressed_file_that_grows(self, store, tmp_path):
        import zstandard

        file = tmp_path / "a.jsonl.zst"
        data = lines(START, *chain(*["x" * 2000] * 600))
        more = lines(*chain("two", first=600, after="m599"))
        for content in (data, data + more):
            file.write_bytes(zstandard.ZstdCompressor().compress(content))
            run(store, file, indexes=False)
            assert original(store) == content
        session = store.get_session("toy:a")
        assert (session.message_count, len(session.branches.list())) == (601, 1)

    def test_large_files_in_chunks(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        texts_ = [f"{number} " + "x" * 5000 for number in range(900)]
        file.write_bytes(lines(START, *chain(*texts_)))
        run(store, file, indexes=False)
        assert original(store) == file.read_bytes()
        with file.open("ab") as stream:
            stream.write(lines(*chain(*texts_, first=900, after="m899")))
        run(store, file, indexes=False)
        assert original(store) == file.read_bytes()
        assert store.get_session("toy:a").message_count == 1800

    def test_a_line_over_the_limit_is_kept(self, store, tmp_path, monkeypatch):
        monkeypatch.setattr("recollect.sync.line_files.MAX_LINE_BYTES", 2000)
        file = tmp_path / "a.jsonl"
        data = lines(START, *chain("one", "y" * 3_000_000), *chain("three", first=2, after="m0"))
        file.write_bytes(data)
        report = run(store, file)
        assert [note.kind for note in report.notes] == ["skipped"]
        assert (texts(store.get_session("toy:a")), original(store)) == (["one", "three"], data)


class TestTree:
    def test_branches_and_the_active_one(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(
            START, *chain("one", "two", "three"), {"id": "x", "after": "m0", "text": "other"}, {"active": "m2"},
        ))  # fmt: skip
        run(store, file)
        session = store.get_session("toy:a")
        assert texts(session) == ["one", "two", "three"]
        assert len(session.branches.list()) == 2
        with file.open("ab") as stream:
            stream.write(lines({"id": "y", "after": "x", "text": "more"}, {"active": "y"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "other", "more"]
        assert len(session.branches.list()) == 2

    def test_messages_that_a_person_took_back_are_not_on_the_active_path(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two", "three"), {"active": "m0"}))
        run(store, file)
        session = store.get_session("toy:a")
        assert texts(session) == ["one"]
        count = len(session.branches.list())
        run(store, file, again=True)
        session.refresh()
        assert (texts(session), len(session.branches.list())) == (["one"], count)
        with file.open("ab") as stream:
            stream.write(lines({"id": "y", "after": "m0", "text": "other"}, {"active": "y"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "other"]
        with file.open("ab") as stream:
            stream.write(lines({"active": "m2"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "two", "three"]

    def test_what_was_continued_in_recollect_stays(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two"), {"active": "m1"}))
        run(store, file)
        session = store.get_session("toy:a")
        session.append({"role": "user", "content": "mine"})
        with file.open("ab") as stream:
            stream.write(lines(*chain("three", first=2, after="m1"), {"active": "m2"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "two", "mine"]
        branches = session.branches.list()
        assert len(branches) == 2
        session.branches.switch(next(branch for branch in branches if not branch.current))
        assert texts(session) == ["one", "two", "three"]

    def test_the_active_path_stays_where_it_was_moved_in_recollect(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two", "three"), {"active": "m2"}))
        run(store, file)
        session = store.get_session("toy:a")
        session.rewind(2)
        more = lines(*chain("four", first=3, after="m2"), {"active": "m3"})
        with file.open("ab") as stream:
            stream.write(more)
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "two"]
        session.append({"role": "user", "content": "mine"}, key="a key of the program")
        with file.open("ab") as stream:
            stream.write(lines(*chain("five", first=4, after="m3"), {"active": "m4"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "two", "mine"]
        session.branches.switch(1)
        with file.open("ab") as stream:
            stream.write(lines({"id": "other", "after": "m0", "text": "else"}, {"active": "other"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "two", "three", "four", "five"]

    def test_a_message_with_a_key_continues_a_conversation_too(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one"), {"active": "m0"}))
        run(store, file)
        session = store.get_session("toy:a")
        session.append(Draft(role="user", parts=(TextPart(text="mine"),), key="own"))
        with file.open("ab") as stream:
            stream.write(lines(*chain("two", first=1, after="m0"), {"active": "m1"}))
        run(store, file)
        session.refresh()
        assert texts(session) == ["one", "mine"]
        assert session.message(key="m1").text == "two"

    def test_fields_changed_in_recollect_stay(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, {"title": "old", "meta": {"branch": "main", "n": 1}}, *chain("one")))
        run(store, file)
        session = store.get_session("toy:a")
        session.update(title="mine", metadata={**session.metadata, "n": 2, "own": True})
        with file.open("ab") as stream:
            stream.write(lines({"title": "new", "meta": {"branch": "dev", "n": 3}}, *chain("two", first=1, after="m0")))
        run(store, file)
        session.refresh()
        assert (session.title, session.metadata) == ("mine", {"branch": "dev", "n": 2, "own": True})
        assert texts(session) == ["one", "two"]

    def test_texts_that_no_field_can_hold(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        start = {**START, "cwd": "/wo\0rk\ud800"}
        file.write_bytes(lines(start, {"title": "Pl\0ans \udfff"}, {"labels": ["\0x"]}, *chain("one")))
        run(store, file)
        session = store.get_session("toy:a")
        assert (session.title, session.working_dir, session.labels) == ("Plans \\udfff", "/work\\ud800", ("x",))

    def test_labels_are_set_and_cleared(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one"), {"labels": ["pond"]}))
        run(store, file)
        session = store.get_session("toy:a")
        assert session.labels == ("pond",)
        for expected in ("updated", "unchanged"):
            with file.open("ab") as stream:
                stream.write(lines({"labels": []}))
            assert [item.outcome for item in run(store, file).conversations] == [expected]
            session.refresh()
            assert not session.labels

    def test_edited_and_deleted_messages_stay(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two", "three")))
        run(store, file)
        session = store.get_session("toy:a")
        session.replace_message(1, {"role": "user", "content": "edited"})
        session.delete_messages([2])
        file.write_bytes(lines(START, *chain("ONE", "TWO", "three", "four")))
        run(store, file)
        session.refresh()
        assert texts(session) == ["edited", "three", "four"]

    def test_forks_share_their_past(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(START, *chain("one", "two", "three")))
        # It comes before its origin.
        (tmp_path / "0.jsonl").write_bytes(lines(
            {"start": "b"}, {"fork": "toy:a", "last": "m1"}, *chain("one", "two"), {"id": "b2", "after": "m1", "text": "else"}
        ))  # fmt: skip
        (tmp_path / "c.jsonl").write_bytes(lines(
            {"start": "c"}, *chain("one", "two", "three"), {"id": "c3", "after": "m2", "text": "copied past"}
        ))  # fmt: skip
        (tmp_path / "d.jsonl").write_bytes(lines({"start": "d"}, {"fork": "toy:gone", "last": "m1"}, *chain("one")))
        run(store, tmp_path)
        for name, expected in (("b", ["one", "two", "else"]), ("c", ["one", "two", "three", "copied past"])):
            session = store.get_session(f"toy:{name}")
            assert (texts(session), session.parent, session.relation) == (expected, "toy:a", "fork")
            assert session.messages()[1].id == "1.2"
        assert store.get_session("toy:d").parent is None

    def test_messages_that_a_fork_copied_before_its_origin_was_read(self, store, tmp_path):
        origin, copy = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
        origin.write_bytes(lines(START, *chain("one")))
        run(store, origin)
        copy.write_bytes(lines({"start": "b"}, *chain("one", "two"), {"id": "b2", "after": "m1", "text": "else"}))
        run(store, copy)
        origin.write_bytes(lines(START, *chain("one", "two")))
        run(store, origin)
        assert texts(store.get_session("toy:a")) == ["one", "two"]
        assert texts(store.get_session("toy:b")) == ["one", "two", "else"]

    def test_a_sub_agent_that_is_read_long_before_its_parent(self, store, tmp_path):
        child, parent = tmp_path / "child.jsonl", tmp_path / "a.jsonl"
        child.write_bytes(lines({"start": "a:agent"}, {"sub-agent of": "toy:a"}, *chain("sub")))
        run(store, child)
        assert store.get_session("toy:a:agent").parent is None
        parent.write_bytes(lines(START, *chain("one")))
        run(store, parent)
        session = store.get_session("toy:a:agent")
        assert (session.parent, session.relation) == ("toy:a", "delegate")
        assert run_operation(store, imports.read_links(scope_of(store))) == {}

    def test_a_sub_agent_that_shares_the_past_of_its_parent(self, store, tmp_path):
        parent = tmp_path / "a.jsonl"
        parent.write_bytes(lines(START, *chain("one", "two")))
        for name, owner in (("b", "a"), ("c", "later")):
            (tmp_path / f"{name}.jsonl").write_bytes(lines(
                {"start": name}, {"sub-agent of": f"toy:{owner}"}, {"fork": "toy:a", "last": "m1"}, *chain("one", "two"),
                {"id": f"{name}2", "after": "m1", "text": name},
            ))  # fmt: skip
        for again in (False, True):
            run(store, tmp_path, again=again)
            child = store.get_session("toy:b")
            assert (child.parent, child.relation, texts(child)) == ("toy:a", "delegate", ["one", "two", "b"])
            assert child.messages()[1].id == "1.2"
            assert [session.id for session in store.list_sessions()] == ["toy:c", "toy:a"]
        (tmp_path / "later.jsonl").write_bytes(lines({"start": "later"}, {"id": "k", "text": "other"}))
        run(store, tmp_path)
        child = store.get_session("toy:c")
        assert (child.parent, child.relation, texts(child)) == ("toy:later", "delegate", ["one", "two", "c"])
        assert run_operation(store, imports.read_links(scope_of(store))) == {}

    def test_a_relation_that_was_changed_in_recollect_stays(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(START, *chain("one")))
        (tmp_path / "b.jsonl").write_bytes(lines(
            {"start": "b"}, {"sub-agent of": "toy:a"}, {"fork": "toy:a", "last": "m0"}, *chain("one"),
            {"id": "b2", "after": "m0", "text": "else"},
        ))  # fmt: skip
        run(store, tmp_path)
        store.get_session("toy:b").update(relation="fork")
        run(store, tmp_path, again=True)
        assert store.get_session("toy:b").relation == "fork"

    def test_a_new_sub_agent_of_a_deleted_conversation(self, store, tmp_path):
        child, parent = tmp_path / "child.jsonl", tmp_path / "a.jsonl"
        parent.write_bytes(lines(START, *chain("one")))
        child.write_bytes(lines({"start": "a:agent"}, {"sub-agent of": "toy:a"}, *chain("sub")))
        run(store, parent)
        for forget in (store.delete_session, store.erase_session):
            run(store, parent, again=True)
            forget("toy:a")
            child.touch()
            assert [item.outcome for item in run(store, child).conversations] == ["deleted"]
            assert store.get_session("toy:a:agent") is None
        run(store, tmp_path, again=True)
        assert store.get_session("toy:a:agent").parent == "toy:a"

    def test_sub_agents_are_under_their_parent(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(
            START, *chain("one"), {"child": "toy:a:agent:1"}, {"id": "k", "text": "sub", "session": "toy:a:agent:1"}
        ))  # fmt: skip
        run(store, tmp_path)
        child = store.get_session("toy:a:agent:1")
        assert (child.parent, child.relation, texts(child)) == ("toy:a", "delegate", ["sub"])
        assert [session.id for session in store.list_sessions()] == ["toy:a"]

    def test_compactions(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two", "three"), {"compact": "m1", "summary": "so far", "at": 5}))
        run(store, file)
        file.write_bytes(file.read_bytes() + lines(*chain("four", first=3, after="m2")))
        os.utime(file, ns=(0, 0))
        run(store, file)
        run(store, file, again=True)
        session = store.get_session("toy:a")
        [compaction] = session.compactions.list()
        assert (compaction.summary, compaction.created_at_ms) == ("so far", 5)
        contents = [message["content"] for message in session.history("openai")]
        assert "so far" in contents[0]
        assert contents[1:] == ["three", "four"]
        assert texts(session) == ["one", "two", "three", "four"]

    def test_a_compaction_of_a_fork_is_not_one_of_its_origin(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(START, *chain("one", "two", "three")))
        (tmp_path / "b.jsonl").write_bytes(lines(
            {"start": "b"}, {"fork": "toy:a", "last": "m1"}, *chain("one", "two"),
            {"compact": "m1", "summary": "of the fork", "at": 5}, {"id": "b2", "after": "m1", "text": "else"},
        ))  # fmt: skip
        run(store, tmp_path)
        assert store.get_session("toy:a").compactions.list() == []
        [compaction] = store.get_session("toy:b").compactions.list()
        assert compaction.summary == "of the fork"

    def test_a_later_compaction_of_the_origin_is_not_one_of_a_fork(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(
            START, *chain("one", "two", "three"), {"compact": "m0", "summary": "of the origin", "at": 5}
        ))  # fmt: skip
        (tmp_path / "b.jsonl").write_bytes(lines(
            {"start": "b"}, {"fork": "toy:a", "last": "m1"}, *chain("one", "two"), {"id": "b2", "after": "m1", "text": "e"}
        ))  # fmt: skip
        run(store, tmp_path)
        assert store.get_session("toy:b").compactions.list() == []

    @pytest.mark.parametrize("end", [5, 7], ids=["in two imports", "in one"])
    def test_a_compaction_applies_to_the_branches_after_it(self, store, tmp_path, end):
        items = [
            START, *chain("one", "two", "three"), {"compact": "m1", "summary": "so far", "at": 5},
            *chain("four", first=3, after="m2"), {"id": "x", "after": "m2", "text": "other"}, {"active": "x"},
        ]  # fmt: skip
        file = tmp_path / "a.jsonl"
        for content in (lines(*items[:end]), lines(*items)):
            file.write_bytes(content)
            run(store, file)
        contents = [message["content"] for message in store.get_session("toy:a").history("openai")]
        assert "so far" in contents[0]
        assert contents[1:] == ["three", "other"]

    def test_cycles_and_missing_parents(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(
            START, {"id": "p", "after": "q", "text": "1"}, {"id": "q", "after": "p", "text": "2"},
            {"id": "r", "after": "gone", "text": "3"}, {"id": "p", "after": "q", "text": "1 again"},
        ))  # fmt: skip
        run(store, tmp_path)
        session = store.get_session("toy:a")
        assert {session.message(key=key).text for key in "pqr"} == {"1 again", "2", "3"}


class TestFieldsInOtherFiles:
    def test_fields_of_stored_conversations_only(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(START, {"title": "question", "rank": 1}, *chain("one")))
        index = tmp_path / "index.json"
        index.write_text(json.dumps([
            {"id": "a", "title": "Plans", "rank": 3, "pinned": True}, {"id": "gone", "title": "Nothing", "rank": 3},
        ]))  # fmt: skip
        report = run(store, tmp_path)
        assert [item.session for item in report.conversations] == ["toy:a"]
        session = store.get_session("toy:a")
        assert (session.title, session.pinned_at is not None) == ("Plans", True)
        assert store.get_session("toy:gone") is None
        report = run(store, tmp_path)
        assert (report.unchanged_files, report.conversations) == (2, ())
        index.write_text(json.dumps([{"id": "a", "title": "tool", "rank": 2}, {"id": "a", "pinned": False}]))
        report = run(store, tmp_path)
        session.refresh()
        assert (session.title, session.pinned_at) == ("Plans", None)

    def test_a_conversation_that_is_stored_later_gets_its_fields(self, store, tmp_path):
        index, file = tmp_path / "0.json", tmp_path / "a.jsonl"
        index.write_text(json.dumps([{"id": "a", "title": "Plans", "rank": 3}]))
        run(store, index)
        assert run(store, index).unchanged_files == 1
        file.write_bytes(lines(START, {"title": "question", "rank": 1}, *chain("one")))
        run(store, tmp_path / "a.jsonl")
        assert store.get_session("toy:a").title == "question"
        file.write_bytes(lines({"start": "b"}, *chain("one")))
        run(store, tmp_path)  # another new conversation: the index is read again
        assert store.get_session("toy:a").title == "Plans"
        index.write_text(json.dumps([{"id": "a", "title": "Plans", "rank": 3}, {"id": "c", "title": "C"}]))
        (tmp_path / "c.jsonl").write_bytes(lines({"start": "c"}, *chain("one")))
        run(store, tmp_path)  # the index comes before the conversation
        assert store.get_session("toy:c").title == "C"
        assert run(store, tmp_path).unchanged_files == 3

    def test_unchanged_fields_cost_no_transaction(self, store, tmp_path, monkeypatch):
        (tmp_path / "a.json").write_text(json.dumps([{"id": str(n), "items": chain("x")} for n in range(30)]))
        index = tmp_path / "index.json"
        index.write_text(json.dumps([{"id": str(n), "title": f"title {n}"} for n in range(30)]))
        run(store, tmp_path, indexes=False)
        assert store.get_session("toy:7").title == "title 7"
        operations = []
        plain_run = store._run
        monkeypatch.setattr(store, "_run", lambda operation: operations.append(operation) or plain_run(operation))
        os.utime(index, ns=(0, 0))
        report = run(store, tmp_path, indexes=False)
        assert report.count("unchanged") == 30
        assert sum(operation.writes for operation in operations) == 1  # the record of the file
        assert len(operations) < 6
        index.write_text(json.dumps([{"id": str(n), "title": f"title {n + n // 29}"} for n in range(30)]))
        operations.clear()
        report = run(store, tmp_path, indexes=False)
        assert (report.count("unchanged"), report.count("updated")) == (29, 1)
        assert sum(operation.writes for operation in operations) == 2

    def test_fields_changed_in_recollect_stay(self, store, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(lines(START, *chain("one")))
        index = tmp_path / "index.json"
        index.write_text(json.dumps([{"id": "a", "title": "Plans"}]))
        run(store, tmp_path)
        session = store.get_session("toy:a")
        session.update(title="mine")
        index.write_text(json.dumps([{"id": "a", "title": "Other plans"}]))
        run(store, tmp_path)
        session.refresh()
        assert session.title == "mine"


class TestDeletion:
    def test_deleted_and_erased_conversations_are_not_imported_again(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one")))
        for forget in (store.delete_session, store.erase_session):
            run(store, file, again=True)
            assert store.get_session("toy:a") is not None
            forget("toy:a")
            file.write_bytes(file.read_bytes() + b"\n")
            report = run(store, file)
            assert [item.outcome for item in report.conversations] == ["deleted"]
            assert store.get_session("toy:a") is None

    def test_an_erased_conversation_leaves_only_a_hash(self, store, tmp_path):
        file = tmp_path / "Private name.jsonl"
        file.write_bytes(lines({"start": "Private id"}, *chain("Private text")))
        run(store, file)
        store.erase_session("toy:Private id")
        store.close()
        for path in tmp_path.glob("r.db*"):
            assert b"Private" not in path.read_bytes()

    def test_erased_text_is_not_in_the_original(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "a secret")))
        run(store, file)
        session = store.get_session("toy:a")
        session.replace_message(2, {"role": "user", "content": "gone"}, erase=True)
        with pytest.raises(recollect.NotFound, match="erased"):
            read_originals(store, "toy:a")

    def test_an_original_that_was_erased_is_not_written_again(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "XSECRETX")))
        run(store, file)
        store.get_session("toy:a").replace_message(2, {"role": "user", "content": "gone"}, erase=True)
        (tmp_path / "b.jsonl").write_bytes(lines(
            {"start": "b"}, {"fork": "toy:a", "last": "m1"}, *chain("one", "XSECRETX"), {"id": "b2", "after": "m1", "text": "b"}
        ))  # fmt: skip
        with file.open("ab") as stream:
            stream.write(lines(*chain("three", first=2, after="m1")))
        run(store, tmp_path)
        run(store, tmp_path, again=True)
        assert texts(store.get_session("toy:a")) == ["one", "gone", "three"]
        assert texts(store.get_session("toy:b")) == ["one", "gone", "b"]
        for name in "ab":
            assert run_operation(store, imports.read_chunks(scope_of(store), f"toy:{name}", "", "", 100)) == []
            with pytest.raises(recollect.NotFound, match="erased"):
                read_originals(store, f"toy:{name}")

    def test_deleted_conversations_of_a_database_are_not_read(self, store, tmp_path, toy, monkeypatch):
        file = tmp_path / "database.json"
        file.write_text(json.dumps([{"id": name, "version": "1", "items": chain(name)} for name in "abc"]))
        run(store, file)
        store.delete_session("toy:a")
        store.erase_session("toy:b")
        os.utime(file, ns=(0, 0))
        selections = []
        read = toy.read
        monkeypatch.setattr(
            toy, "read",
            lambda tree, transcript, select: read(
                tree, transcript, lambda versions: selections.append(select(versions)) or selections[-1]
            ),
        )  # fmt: skip
        report = run(store, file)
        assert selections == [set()]
        assert {item.session: item.outcome for item in report.conversations} == {
            "toy:a": "deleted", "toy:b": "deleted", "toy:c": "unchanged",
        }  # fmt: skip


class TestDocuments:
    def test_conversations_of_a_document(self, store, tmp_path):
        conversations = [
            {"id": "a", "title": "A", "at": 1_700_000_001_000, "items": chain("one", "two")},
            {"id": "b", "title": "B", "at": 1_700_000_002_000, "items": chain("three")},
        ]
        file = tmp_path / "export.json"
        file.write_text(json.dumps(conversations))
        report = run(store, file)
        assert [(item.session, item.outcome) for item in report.conversations] == [("toy:a", "new"), ("toy:b", "new")]
        assert json.loads(original(store, "toy:b")) == conversations[1]
        assert [session.id for session in store.list_sessions()] == ["toy:b", "toy:a"]
        conversations[0]["items"] += chain("more", first=2, after="m1")
        conversations[0]["at"] += 5000
        newer = tmp_path / "newer.json"
        newer.write_text(json.dumps(conversations))
        report = run(store, newer)
        assert [(item.outcome, item.new_messages) for item in report.conversations] == [
            ("updated", 1),
            ("unchanged", 0),
        ]
        file.write_text(json.dumps(json.loads(file.read_text())) + " ")
        report = run(store, file)  # the older export again
        assert {item.outcome for item in report.conversations} == {"unchanged"}
        assert texts(store.get_session("toy:a")) == ["one", "two", "more"]

    def test_a_conversation_with_the_same_version_is_not_read(self, store, tmp_path):
        file = tmp_path / "database.json"
        rows = [{"id": name, "version": "1", "items": chain(name)} for name in "abc"]
        file.write_text(json.dumps(rows))
        assert run(store, file).count("new") == 3
        rows[0]["items"] += chain("not read", first=1, after="m0")
        rows[1] |= {"version": "2", "items": chain("b", "two")}
        rows[2] |= {"version": "2"}
        file.write_text(json.dumps(rows))
        report = run(store, file)
        assert [(item.session, item.outcome) for item in report.conversations] == [
            ("toy:a", "unchanged"), ("toy:b", "updated"), ("toy:c", "unchanged"),
        ]  # fmt: skip
        assert texts(store.get_session("toy:a")) == ["a"]
        assert texts(store.get_session("toy:b")) == ["b", "two"]
        assert len(json.loads(original(store, "toy:b"))["items"]) == 2
        store.delete_session("toy:b")
        assert run(store, file, again=True).count("new") == 1
        assert texts(store.get_session("toy:a")) == ["a", "not read"]

    def test_times_of_the_tool(self, store, tmp_path):
        store.session("mine")
        file = tmp_path / "export.json"
        file.write_text(json.dumps([{"id": "old", "at": 1_600_000_000_000, "items": chain("one")}]))
        run(store, file)
        assert [session.id for session in store.list_sessions()] == ["mine", "toy:old"]

    def test_a_dry_run_writes_nothing(self, store, tmp_path):
        file = tmp_path / "a.jsonl"
        file.write_bytes(lines(START, *chain("one", "two")))
        report = run(store, file, dry_run=True)
        assert [(item.outcome, item.new_messages) for item in report.conversations] == [("new", 2)]
        assert store.get_session("toy:a") is None
        assert [item.outcome for item in run(store, file).conversations] == ["new"]
