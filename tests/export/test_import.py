"""Imports of damaged, truncated, mixed and hostile files; continued sessions and conflicts."""

from __future__ import annotations

import datetime
import io
import json
import multiprocessing
import os

import pytest
from random_stores import build_store, export_bytes, import_bytes, read_everything

import recollect
from recollect import export
from recollect.export import import_report, importer
from recollect_conformance import examples
from recollect_conformance.examples import texts

FULL_STEPS = [
    ("conversation", 0, "anthropic"), ("fork", 0, 2), ("message", 1, "in the fork"), ("attachment", 0, ""), ("rewind", 0, 1),
    ("message", 0, "other way"), ("turn", 0, "completed"), ("compact", 0, "short"), ("session", 0, "x"), ("message", 2, "hi"),
]  # fmt: skip


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        yield build_store(store, FULL_STEPS)


@pytest.fixture
def target():
    with recollect.open(":memory:") as store:
        yield store


def split_lines(text):
    return text.decode().splitlines()


def join_lines(lines):
    return ("\n".join(lines) + "\n").encode()


def record_type(line):
    return json.loads(line)["type"]


class TestDryRun:
    """A dry run reports what an import would do, and changes nothing."""

    CHAT = b'[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "odd"}]'

    def preview(self, text, store, **options):
        before = export_bytes(store)
        report = export.read(store, io.BytesIO(text), dry_run=True, **options)
        assert export_bytes(store) == before
        assert len(store.list_sessions(archived=None, delegates=None)) == before.count(b'{"type":"session"')
        return report.to_dict()

    @pytest.mark.parametrize("on_conflict", ["skip", "new"])
    @pytest.mark.parametrize("steps", [1, 2, 5, len(FULL_STEPS)])
    def test_a_dry_run_reports_what_an_import_does(self, store, target, steps, on_conflict):
        full_text = export_bytes(store)
        for text in (
            export_bytes(build_store(target, FULL_STEPS[:steps])),
            full_text,
            full_text[: len(full_text) // 2],
            join_lines(["{", *split_lines(full_text)]),
        ):
            with recollect.open(":memory:") as copy:
                for start in (b"", export_bytes(target), full_text):
                    export.read(copy, io.BytesIO(start))
                    expected = self.preview(text, copy, on_conflict=on_conflict)
                    assert export.read(copy, io.BytesIO(text), on_conflict=on_conflict).to_dict() == expected

    def test_a_dry_run_reports_conflicts(self, store, target):
        target.session("cli:first").append(examples.user("something else"))
        for on_conflict in ("skip", "new"):
            expected = self.preview(export_bytes(store), target, on_conflict=on_conflict)
            assert [each["id"] for each in expected["conflicts"]] == ["cli:first"]
            with recollect.open(":memory:") as copy:
                export.read(copy, io.BytesIO(export_bytes(target)))
                assert export.read(copy, io.BytesIO(export_bytes(store)), on_conflict=on_conflict).to_dict() == expected
        with pytest.raises(recollect.SessionExists):
            self.preview(export_bytes(store), target, on_conflict="error")

    def test_a_dry_run_of_a_plain_chat(self, target):
        expected = self.preview(self.CHAT, target)
        assert (expected["messages"], expected["bad_count"], len(expected["created"])) == (2, 1, 1)
        assert export.read(target, io.BytesIO(self.CHAT)).to_dict() == expected
        repetition = self.preview(self.CHAT, target)
        assert (repetition["messages"], repetition["unchanged"]) == (0, expected["created"])
        chats = json.dumps(
            [{"messages": [examples.user("a")], "title": "A"}, {"messages": [examples.user("b")]}]
        ).encode()
        assert self.preview(chats, target) == export.read(target, io.BytesIO(chats)).to_dict()


class TestDamage:
    @pytest.mark.parametrize(
        "bad",
        ["{", "not json", '{"type":"message"}', '{"type":"what"}', "[]", "17", "\x00", '{"type":"message","id":NaN}'],
    )
    def test_a_bad_line_is_reported_with_its_number_and_the_rest_is_imported(self, store, target, bad):
        lines = split_lines(export_bytes(store))
        _, report = import_bytes(join_lines([*lines[:5], bad, *lines[5:]]), target)
        assert [bad_line.line for bad_line in report.bad] == [6]
        assert report.bad[0].reason
        assert export_bytes(target) == join_lines(lines)

    def test_a_file_without_one_line(self, store):
        lines = split_lines(export_bytes(store))
        for number in range(len(lines)):
            copy, report = import_bytes(join_lines(lines[:number] + lines[number + 1 :]))
            with copy:
                read_everything(copy)
                _, repetition = import_bytes(join_lines(lines), copy)
                read_everything(copy)
                assert repetition.bad == [], (number, report.bad)
                messages = sum(record_type(line) == "message" for line in lines)
                assert export_bytes(copy).count(b'{"type":"message"') == messages or repetition.conflicts

    def test_a_truncated_file_imports_its_complete_records(self, store):
        for format in ("jsonl", "json"):
            text = export_bytes(store, format=format)
            for end in range(0, len(text), 331):
                copy, report = import_bytes(text[:end])
                with copy:
                    read_everything(copy)
                    assert report.messages <= text.count(b'"type":"message"')
                    _, repetition = import_bytes(text, copy)
                    assert repetition.conflicts == []
                    assert export_bytes(copy, format=format) == text, end

    def test_a_complete_file_adds_missing_records(self, store, target):
        lines = split_lines(export_bytes(store))
        partial_lines = [line for line in lines if record_type(line) not in ("turn", "tool_call")]
        import_bytes(join_lines(partial_lines[:-1]), target)
        read_everything(target)
        import_bytes(join_lines(lines), target)
        assert export_bytes(target).count(b'{"type":"message"') == sum(record_type(line) == "message" for line in lines)

    def test_records_without_a_session_are_refused(self, store, target):
        lines = split_lines(export_bytes(store))
        _, report = import_bytes(join_lines([line for line in lines if record_type(line) != "session"]), target)
        assert report.created == []
        assert report.bad_count == sum(record_type(line) not in ("session", "header", "blob") for line in lines)

    def test_invalid_utf_8(self, store, target):
        lines = export_bytes(store).splitlines()
        text = b"\n".join([lines[0], b'{"type":"session","id":"\xff\xfe"}', *lines[1:]])
        _, report = import_bytes(text, target)
        assert [line.line for line in report.bad] == [2]
        assert "UTF-8" in report.bad[0].reason
        _, report = import_bytes(export_bytes(store, format="json").replace(b"other way", b"other \xff"))
        assert report.bad

    def test_the_list_of_bad_lines_is_limited(self, target):
        _, report = import_bytes(b"x\n" * (import_report.MAX_BAD_LINES + 5), target)
        assert report.bad_count == import_report.MAX_BAD_LINES + 5
        assert len(report.bad) == import_report.MAX_BAD_LINES

    def test_empty_and_foreign_files_import_nothing(self, target):
        for text in (
            b"",
            b"\n\n",
            b"   ",
            b"\xef\xbb\xbf",
            b"\x89PNG\r\n",
            b"null",
            b"[]",
            b"{}",
            b'"x"',
            b"[[[[",
            b"[1,2",
        ):
            _, report = import_bytes(text, target)
            assert report.created == []
        assert read_everything(target)["sessions"] == {}

    def test_a_newer_format_version_is_refused(self, store, target):
        text = export_bytes(store).replace(b'"version":1', b'"version":2', 1)
        with pytest.raises(recollect.InvalidValue, match="version 2"):
            import_bytes(text, target)
        assert read_everything(target)["sessions"] == {}

    def test_a_byte_order_mark_and_other_line_ends(self, store, target):
        text = export_bytes(store)
        import_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"), target)
        assert export_bytes(target) == text

    def test_a_document_in_another_layout(self, store):
        text = export_bytes(store, format="json")
        value = json.loads(text)
        for options in (
            {"indent": 2},
            {},
            {"sort_keys": True},
            {"indent": 1, "ensure_ascii": False, "sort_keys": True},
        ):
            copy, report = import_bytes(json.dumps(value, **options).encode())
            with copy:
                assert report.bad == []
                assert json.loads(export_bytes(copy, format="json")) == value
                assert import_bytes(text, copy)[1].messages == 0
                assert "sort_keys" in options or export_bytes(copy, format="json") == text

    def test_two_concatenated_files(self, store, target):
        with recollect.open(":memory:") as other:
            other.session("other").append(examples.user("hello"))
            _, report = import_bytes(export_bytes(store) + export_bytes(other), target)
        assert report.bad == []
        assert "other" in report.created
        assert len(report.created) == 4


class TestHostile:
    """Files that an attacker made to break the store."""

    def with_fields(self, store, type, **fields):
        lines = split_lines(export_bytes(store))
        index = next(number for number, line in enumerate(lines) if record_type(line) == type)
        lines[index] = json.dumps({**json.loads(lines[index]), **fields})
        return join_lines(lines), index + 1

    @pytest.mark.parametrize(
        ("type", "fields"),
        [
            ("message", {"id": "1.0"}), ("message", {"id": "9.1"}), ("message", {"id": "1.99999999999"}),
            ("message", {"id": "1.-1"}), ("message", {"id": "1.1.1"}), ("message", {"id": "\u0661.\u0662"}),
            ("message", {"role": "god"}), ("message", {"tokens": -1}), ("message", {"tokens": 1 << 60}),
            ("message", {"created_at": "yesterday"}), ("message", {"created_at": -5}), ("message", {"turn": 77}),
            ("message", {"created_at": "0001-01-01T00:00:00+23:59"}), ("message", {"parts": {}}),
            ("message", {"parts": [{"kind": "text"}]}), ("message", {"parts": [{"kind": "no"}]}), ("message", {"state": "x"}),
            ("message", {"blobs": [], "parts": [{"kind": "attachment", "data": {"$blob": "x", "as": "base64"}}]}),
            ("message", {"blobs": [], "parts": [{"kind": "attachment", "data": {"$blob": "a" * 64, "as": "base64"}}]}),
            ("message", {"blobs": [], "parts": [{"kind": "attachment", "data": {"$blob": "a" * 64}}]}),
            ("message", {"blobs": [], "parts": [{"kind": "attachment", "data": {"$blob": ["a"], "as": "text"}}]}),
            ("message", {"blobs": [], "parts": [{"kind": "attachment", "data": {"$blob": None}}]}),
            ("message", {"metadata": [1]}), ("message", {"native": "x"}), ("message", {"session": "other"}),
            ("branch", {"parent": 1}), ("branch", {"parent": 7}), ("branch", {"fork_at": 3}), ("branch", {"id": 0}),
            ("branch", {"id": 1 << 40}), ("session", {"id": ""}), ("session", {"id": "a\nb"}), ("session", {"id": "x" * 600}),
            ("session", {"title": "\0"}), ("session", {"title": "\ud800"}), ("session", {"status": "deleted"}),
            ("session", {"metadata": 5}), ("session", {"data_schema_version": 99}), ("session", {"revision": -1}),
            ("tool_call", {"message": "1.77777777777"}), ("tool_call", {"branch": 9}), ("tool_call", {"status": "?"}),
            ("tool_call", {"result": None}), ("turn", {"status": "?"}), ("turn", {"id": "5.5"}),
            ("compaction", {"branch": 9}), ("snapshot", {"message": "9.9"}), ("blob", {"data": "!!"}),
            ("blob", {"data": "aGk="}), ("blob", {"hash": "xx"}),
        ],
    )  # fmt: skip
    def test_an_invalid_record_is_refused_and_the_store_stays_valid(self, store, target, type, fields):
        text, line = self.with_fields(store, type, **fields)
        _, report = import_bytes(text, target)
        assert line in [bad.line for bad in report.bad], report
        for session in read_everything(target)["sessions"]:
            target.session(session).append(examples.user("it continues"))
            read_everything(target)

    def test_activity_in_the_far_future_is_ignored(self, store, target):
        text, _ = self.with_fields(store, "session", active_at="9999-01-01T00:00:00Z")
        import_bytes(text, target)
        newest = target.session("new")
        assert newest.info.active_at_ms < 1 << 45
        assert target.list_sessions()[0].id == "new"

    def test_a_time_beyond_the_calendar_round_trips(self, store, target):
        changed, _ = self.with_fields(store, "message", created_at=1 << 52)
        with recollect.open(":memory:") as first:
            import_bytes(changed, first)
            text = export_bytes(first)
            for format in ("md", "html"):
                export_bytes(first, None, format)
        assert b'"created_at":4503599627370496' in text
        import_bytes(text, target)
        assert export_bytes(target) == text
        times = {message.created_at_ms: message for session in target.list_sessions() for message in session.messages()}
        message = times[1 << 52]
        assert message.created_at == datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
        assert message.to_dict()["created_at"] == "9999-12-31T23:59:59.999Z"

    def test_deeply_nested_values_are_refused(self, target):
        deep = "[" * 4000 + "]" * 4000
        text = f'{{"type":"header","format":"recollect-export","version":1}}\n{{"type":"session","metadata":{{"a":{deep}}}}}\n'
        _, report = import_bytes(text.encode(), target)
        assert [bad.line for bad in report.bad] == [2]


class TestLaterImports:
    def test_a_later_export_completes_an_unfinished_answer(self, target):
        with recollect.open(":memory:") as store:
            session = store.session("a")
            turn = session.turn("q")
            answer = turn.stream()
            answer.write("ha")
            first = export_bytes(store)
            import_bytes(first, target)
            assert export_bytes(target) == first
            answer.write("lf")
            answer.close()
            turn.complete()
            text = export_bytes(store)
            _, report = import_bytes(text, target)
            assert report.updated == ["a"]
            assert export_bytes(target) == text

    def test_an_imported_open_turn_is_interrupted_when_the_session_opens(self, target):
        with recollect.open(":memory:") as store:
            turn = store.session("a").turn("q")
            turn.stream().write("x")
            import_bytes(export_bytes(store), target)
        assert target.get_session("a").turns.list()[0].status == "open"
        session = target.session("a")
        assert session.turns.list()[0].status == "interrupted"
        assert session.messages()[-1].state == "interrupted"
        with session.turn("next"):
            pass

    def test_an_imported_open_turn_does_not_block_new_turns(self, target):
        with recollect.open(":memory:") as store:
            store.session("a").turn("q")
            import_bytes(export_bytes(store), target)
        session = target.get_session("a")
        with session.turn("mine"):
            pass
        assert [turn.status for turn in session.turns.list()] == ["interrupted", "completed"]

    def test_a_later_export_deletes_a_message(self, store, target):
        import_bytes(export_bytes(store), target)
        session = store.session("cli:first")
        session.delete_messages([session.messages()[0].id])
        import_bytes(export_bytes(store), target)
        assert read_everything(target)["sessions"].keys() == read_everything(store)["sessions"].keys()
        assert texts(target.session("cli:first")) == texts(session)

    def test_an_older_export_changes_nothing(self, store):
        old_text = export_bytes(store)
        session = store.session("cli:first")
        session.append(examples.user("more"))
        session.rewind(session.messages()[0].id)
        session.append(examples.user("elsewhere"))
        session.update(title="New title")
        new_text = export_bytes(store)
        _, report = import_bytes(old_text, store)
        assert (report.updated, report.created, report.messages, report.conflicts) == ([], [], 0, [])
        assert export_bytes(store) == new_text

    def test_a_session_with_local_changes_keeps_its_branch_and_title(self, target):
        with recollect.open(":memory:") as store:
            session = store.session("a", title="First")
            session.append(examples.numbered_messages(3))
            import_bytes(export_bytes(store), target)
            for number in range(9):
                session.update(title=f"Renamed {number}")
            local_session = target.session("a")
            local_session.rewind("1.1")
            local_session.append(examples.user("mine"))
            before = export_bytes(target)
            _, report = import_bytes(export_bytes(store), target)
            assert (report.unchanged, report.conflicts) == (["a"], [])
            assert export_bytes(target) == before

    def test_a_later_export_updates_the_title(self, target):
        with recollect.open(":memory:") as store:
            session = store.session("a", title="First")
            session.append(examples.numbered_messages(3))
            import_bytes(export_bytes(store), target)
            session.update(title="Second", pinned=True)
            session.rewind("1.2")
            _, report = import_bytes(export_bytes(store), target)
            assert report.updated == ["a"]
            assert export_bytes(target) == export_bytes(store)

    def test_a_new_fork_joins_the_tree_of_its_origin(self, store, target):
        import_bytes(export_bytes(store, ["cli:first"]), target)
        _, report = import_bytes(export_bytes(store), target)
        assert "fork:0:2" in report.created
        with pytest.raises(recollect.errors.SessionHasForks):
            target.erase_session("cli:first")

    def test_a_fork_imported_before_its_origin(self, store, target):
        import_bytes(export_bytes(store, ["fork:0:2"]), target)
        _, report = import_bytes(export_bytes(store), target)
        assert report.unchanged == ["fork:0:2"]
        assert set(report.created) == {"cli:first", "x"}
        for id in ("cli:first", "fork:0:2", "x"):
            assert target.session(id).messages() == store.session(id).messages()
        assert import_bytes(export_bytes(store), target)[1].created == []

    def test_a_fork_whose_branch_number_exists_gets_its_own_tree(self, target):
        with recollect.open(":memory:") as store:
            store.session("a").append(examples.numbered_messages(3))
            import_bytes(export_bytes(store), target)
            store.session("a").fork(id="f").append(examples.user("fork"))
            local_session = target.session("a")
            local_session.rewind("1.1")
            local_session.append(examples.user("my own branch 2"))
            _, report = import_bytes(export_bytes(store), target)
            assert report.created == ["f"]
            assert report.conflicts == []
            assert target.session("f").messages() == store.session("f").messages()
            assert texts(target.session("a")) == ["m1", "my own branch 2"]
            assert import_bytes(export_bytes(store), target)[1].messages == 0


class TestConflicts:
    @pytest.fixture
    def diverged_stores(self, target):
        with recollect.open(":memory:") as store:
            store.session("a").append(examples.numbered_messages(3))
            import_bytes(export_bytes(store), target)
            store.session("a").append(examples.user("theirs"))
            target.session("a").append(examples.user("mine"))
            yield export_bytes(store), target

    def test_a_conflict_is_reported_and_changes_nothing(self, diverged_stores):
        text, store = diverged_stores
        before = export_bytes(store)
        _, report = import_bytes(text, store)
        assert [conflict.id for conflict in report.conflicts] == ["a"]
        assert "1.4" in report.conflicts[0].reason
        assert report.conflicts[0].new_id is None
        assert export_bytes(store) == before

    def test_a_conflict_is_imported_under_a_new_id_once(self, diverged_stores):
        text, store = diverged_stores
        _, report = import_bytes(text, store, on_conflict="new")
        (conflict,) = report.conflicts
        assert report.created == [conflict.new_id]
        assert texts(store.session(conflict.new_id)) == ["m1", "m2", "m3", "theirs"]
        assert texts(store.session("a")) == ["m1", "m2", "m3", "mine"]
        _, repetition = import_bytes(text, store, on_conflict="new")
        assert (repetition.created, repetition.messages) == ([], 0)
        assert repetition.conflicts[0].new_id == conflict.new_id
        assert repetition.unchanged == [conflict.new_id]

    def test_a_conflict_can_be_an_error(self, diverged_stores):
        text, store = diverged_stores
        before = export_bytes(store)
        with pytest.raises(recollect.SessionExists, match="on_conflict"):
            import_bytes(text, store, on_conflict="error")
        assert export_bytes(store) == before

    def test_an_unknown_conflict_option_is_refused(self, diverged_stores):
        text, store = diverged_stores
        with pytest.raises(recollect.InvalidValue, match="skip, new, error"):
            import_bytes(text, store, on_conflict="merge")

    def test_a_redacted_export_does_not_overwrite_its_source(self):
        with recollect.open(":memory:") as store:
            store.session("a").append(examples.user("password=hunter22"))
            text = export_bytes(store, redact=True)
            assert b"hunter22" not in text
            before = export_bytes(store)
            assert import_bytes(text, store)[1].conflicts
            assert export_bytes(store) == before

    def test_a_conflict_of_two_branches(self, target):
        with recollect.open(":memory:") as store:
            store.session("a").append(examples.numbered_messages(3))
            import_bytes(export_bytes(store), target)
            local_session = target.session("a")
            local_session.rewind("1.1")
            local_session.append(examples.user("branch 2"))
            store.session("a").append(examples.user("theirs"))
            assert import_bytes(export_bytes(store), target)[1].conflicts[0].reason.startswith("Both")


class TestHostileIds:
    @pytest.mark.parametrize("id", [".", "..", "a\0b", "a\r\nb", "\x1b[31m", "../../x", "\u202ea", "\0" * 1_024])
    def test_a_session_keeps_its_id(self, target, id):
        with recollect.open(":memory:") as store:
            store.session(id).append({"role": "user", "content": "up"})
            store.session("child", parent=id)
            text = export_bytes(store)
        for outcome in ("created", "unchanged"):
            _, report = import_bytes(text, target)
            assert report.conflicts == []
            assert sorted(getattr(report, outcome)) == sorted([id, "child"])
        assert target.session("child", create=False).parent == id

    def test_a_renamed_session_has_an_id_of_at_most_1024_bytes(self, target):
        for id in ("x" * 1_024, "\U0001f600" * 256, "\u20ac" * 341 + "x", "\0" * 1_024):
            target.session(id).append({"role": "user", "content": "here"})
            with recollect.open(":memory:") as store:
                store.session(id).append({"role": "user", "content": "there"})
                _, report = import_bytes(export_bytes(store), target, on_conflict="new")
            (conflict,) = report.conflicts
            assert conflict.new_id is not None
            assert id.startswith(conflict.new_id[:-9])
            assert 1_000 < len(conflict.new_id.encode()) <= 1_024
            assert target.session(conflict.new_id, create=False).message_count == 1

    @pytest.mark.parametrize("id", ["", "x" * 1_025, "\ud800", 5, None])
    def test_an_invalid_id_is_an_error_of_its_line(self, target, id):
        with recollect.open(":memory:") as store:
            store.session("name").append({"role": "user", "content": "up"})
            text = export_bytes(store).replace(b'"name"', json.dumps(id).encode())
        _, report = import_bytes(text, target)
        assert report.bad_count
        assert list(target.list_sessions()) == []


class TestOwners:
    def test_an_import_does_not_change_other_owners(self, store, tmp_path):
        path = tmp_path / "sessions.db"
        with recollect.open(path, owner="ann") as ann, recollect.open(path, owner="bob") as bob:
            ann.session("cli:first").append(examples.user("ann's own"))
            before = export_bytes(ann)
            import_bytes(export_bytes(store), bob)
            assert export_bytes(ann) == before
            assert export_bytes(bob) == export_bytes(store)
            with pytest.raises(recollect.SessionNotFound):
                export_bytes(ann, ["x"])
            assert import_bytes(export_bytes(store), ann)[1].conflicts[0].id == "cli:first"

    def test_a_parent_of_another_owner_is_ignored(self, tmp_path):
        path = tmp_path / "sessions.db"
        with recollect.open(path, owner="ann") as ann, recollect.open(path, owner="bob") as bob:
            ann.session("p")
            ann.session("p:delegate:d", parent="p")
            text = export_bytes(ann, ["p:delegate:d"])
            import_bytes(text, bob)
            assert bob.session("p:delegate:d").parent is None


class TestParents:
    def test_a_parent_later_in_the_file_is_linked(self, target):
        with recollect.open(":memory:") as store:
            store.session("p")
            store.session("p:delegate:d", parent="p")
            import_bytes(export_bytes(store, ["p:delegate:d", "p"]), target)
            assert target.session("p:delegate:d").parent == "p"

    def test_a_parent_in_the_store_is_linked(self, target):
        with recollect.open(":memory:") as store:
            store.session("p")
            store.session("p:delegate:d", parent="p")
            target.session("p")
            import_bytes(export_bytes(store, ["p:delegate:d"]), target)
            assert target.session("p:delegate:d").parent == "p"


class TestSearchIndex:
    def test_imported_and_changed_messages_are_indexed(self, tmp_path):
        with recollect.open(":memory:") as store, recollect.open(tmp_path / "sessions.db") as copy:
            session = store.session("a", title="Before")
            session.append(examples.numbered_messages(4))
            turn = session.turn("question")
            answer = turn.stream()
            answer.write("half of it")
            answer.flush()
            import_bytes(export_bytes(store), copy)
            assert [hit.message for hit in copy.search("m4")] == ["1.4"]
            copy.session("a")  # interrupts the answer, since no process of this store writes it
            assert [hit.message for hit in copy.search("half")] == ["1.6"]
            answer.write(" and the rest")
            answer.close()
            turn.complete()
            session.append(examples.user("more"))
            session.update(title="After")
            import_bytes(export_bytes(store), copy)
            assert [hit.message for hit in copy.search("rest")] == ["1.6"]
            assert [hit.message for hit in copy.search("more")] == ["1.7"]
            assert [hit.kind for hit in copy.search("after")] == ["title"]
            assert copy.search("before") == []
            assert not copy.maintenance.check().problems


OPENAI = [{"role": "user", "content": "hi"}, *examples.OPENAI_MESSAGES[2:]]


class TestChats:
    @pytest.mark.parametrize("layout", ["array", "lines", "object", "indented"])
    @pytest.mark.parametrize("messages", [examples.ANTHROPIC_MESSAGES, OPENAI], ids=["anthropic", "openai"])
    def test_messages_of_a_provider_become_a_session_once(self, target, layout, messages):
        text = {
            "array": lambda: json.dumps(messages),
            "indented": lambda: json.dumps(messages, indent=2),
            "lines": lambda: "\n".join(json.dumps(message) for message in messages),
            "object": lambda: json.dumps({"title": "My chat", "model": "m", "messages": messages}, indent=1),
        }[layout]().encode()
        _, report = import_bytes(text, target)
        assert report.bad == []
        (id,) = report.created
        session = target.session(id)
        assert session.history("anthropic" if messages is examples.ANTHROPIC_MESSAGES else "openai") == messages
        assert session.title == ("My chat" if layout == "object" else None)
        assert session.channel == "import"
        _, repetition = import_bytes(text, target)
        assert (repetition.created, repetition.unchanged, repetition.messages) == ([], [id], 0)
        assert session.refresh().message_count == len(session.messages())

    def test_one_chat_per_line(self, target):
        chats = [{"messages": [examples.user(f"q{n}"), examples.assistant("a")]} for n in range(3)]
        _, report = import_bytes("\n".join(map(json.dumps, chats)).encode(), target)
        assert len(report.created) == 3
        assert report.messages == 6

    def test_an_array_of_chats(self, target):
        chats = [{"name": f"n{n}", "messages": [examples.user(f"q{n}")]} for n in range(3)]
        _, report = import_bytes(json.dumps(chats).encode(), target)
        assert sorted(target.session(id).title for id in report.created) == ["n0", "n1", "n2"]

    def test_invalid_messages_are_reported(self, target):
        lines = [
            json.dumps(examples.user("a")),
            "{broken",
            json.dumps({"role": "wizard", "content": "x"}),
            json.dumps(examples.user("b")),
        ]
        _, report = import_bytes("\n".join(lines).encode(), target)
        assert [bad.line for bad in report.bad] == [2, 3]
        assert texts(target.session(report.created[0])) == ["a", "b"]

    def test_the_format_option_reads_ambiguous_messages(self, target):
        messages = [{"role": "user", "content": [{"type": "mystery", "x": 1}]}]
        _, report = import_bytes(json.dumps(messages).encode(), target)
        assert report.created == []
        assert "format" in report.bad[0].reason
        _, report = import_bytes(json.dumps(messages).encode(), target, format="anthropic")
        assert target.session(report.created[0]).history("anthropic") == messages
        with pytest.raises(recollect.errors.UnknownFormat):
            import_bytes(json.dumps(messages).encode(), target, format="latin")

    def test_many_messages_in_batches(self, target):
        _, report = import_bytes("\n".join(json.dumps(m) for m in examples.numbered_messages(1000)).encode(), target)
        assert texts(target.session(report.created[0])) == [f"m{n}" for n in range(1, 1001)]


def import_concurrently(path, text, barrier, results):
    with recollect.open(path) as store:
        barrier.wait(30)
        report = export.read(store, io.BytesIO(text), on_conflict="error")
        results.put((report.bad_count, report.messages))


class TestConcurrency:
    def test_two_processes_import_the_same_file_concurrently(self, tmp_path):
        with recollect.open(":memory:") as store:
            build_store(store, FULL_STEPS)
            store.session("long").append(examples.numbered_messages(700))
            for number in range(3):
                store.session("long").fork(at=100 * number + 50, id=f"f{number}").append(examples.numbered_messages(10))
            text = export_bytes(store)
            path = os.fspath(tmp_path / "sessions.db")
            recollect.open(path).close()
            context = multiprocessing.get_context("spawn")
            barrier, results = context.Barrier(2), context.Queue()
            children = [
                context.Process(target=import_concurrently, args=(path, text, barrier, results)) for _ in range(2)
            ]
            for child in children:
                child.start()
            counts = [results.get(timeout=60) for _ in children]
            for child in children:
                child.join(60)
                assert child.exitcode == 0
            with recollect.open(path) as copy:
                assert [bad for bad, _ in counts] == [0, 0]
                assert sum(count for _, count in counts) == text.count(b'{"type":"message"')
                assert export_bytes(copy) == text
                read_everything(copy)

    def test_a_session_created_during_the_comparison(self, store, target, monkeypatch):
        """The session appears after the lookup and before its creation."""
        text = export_bytes(store)
        plan_import = importer.plan_import
        calls = []

        def plan_and_import(scope, group, on_conflict):
            plan = yield from plan_import(scope, group, on_conflict)
            if not calls:
                calls.append(1)
                monkeypatch.setattr(importer, "plan_import", plan_import)
                import_bytes(text, target)
            return plan

        monkeypatch.setattr(importer, "plan_import", plan_and_import)
        _, report = import_bytes(text, target)
        assert report.messages == 0
        assert report.conflicts == []
        assert export_bytes(target) == text

    def test_a_session_written_during_the_import_keeps_its_messages(self, target):
        with recollect.open(":memory:") as store:
            store.session("a").append(examples.numbered_messages(600))
            text = export_bytes(store)
        calls = []

        def progress(count):
            if not calls:
                calls.append(count)
                target.session("a").append(examples.user("meanwhile"))

        _, report = import_bytes(text, target, progress=progress)
        assert [conflict.id for conflict in report.conflicts] == ["a"]
        assert texts(target.session("a"))[-1] == "meanwhile"
        read_everything(target)

    def test_progress_and_the_report_as_a_dict(self, store, target):
        counts = []
        _, report = import_bytes(export_bytes(store), target, progress=counts.append)
        assert counts[-1] == report.messages
        assert json.loads(json.dumps(report.to_dict()))["created"] == report.created


class TestModels:
    """An imported file must not choose the provider that is called."""

    def test_an_imported_model_becomes_metadata(self, target):
        with recollect.open(":memory:") as store:
            session = store.session("a", model="openai:theirs", metadata={"k": 1})
            session.append(examples.user("hi"))
            store.session("b", model="gpt-5").append(examples.user("hi"))
            first = export_bytes(store)
            session.append(examples.user("more"))
            second = export_bytes(store)
        import_bytes(first, target)
        session_copy = target.session("a")
        assert (session_copy.model, session_copy.metadata) == (None, {"k": 1, "imported_model": "openai:theirs"})
        assert target.session("b").model == "gpt-5"  # without a provider, the name cannot be called
        session_copy.update(model="anthropic:mine")
        import_bytes(second, target)
        assert (target.session("a").model, texts(target.session("a"))) == ("anthropic:mine", ["hi", "more"])


class TestDocuments:
    """Documents show the content that reaches a model outside of the common fields."""

    @pytest.mark.parametrize("format", ["markdown", "html"])
    def test_data_and_provider_specific_remainders_are_shown(self, target, format):
        session = target.session("a")
        block = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}, "alt": "IN-A-BLOCK"}
        session.append(
            recollect.Draft(
                role="user",
                parts=(
                    recollect.TextPart(text="shown", native={"context": "IN-A-PART", "cache_control": "UNSHOWN"}),
                    recollect.DataPart(native={"type": "new", "text": "IN-DATA"}),
                    recollect.DataPart(native=block),
                ),
                format="anthropic",
                native={"fields": {"name": "IN-A-MESSAGE"}},
            )
        )
        text = export_bytes(target, None, format).decode()
        for word in ("IN-A-PART", "IN-DATA", "IN-A-BLOCK", "IN-A-MESSAGE"):
            assert word in text
        assert "UNSHOWN" not in text

    @pytest.mark.parametrize("format", ["markdown", "html"])
    def test_an_answer_at_the_length_limit_is_marked(self, target, format):
        answer = {"role": "assistant", "type": "message", "content": [{"type": "text", "text": "half"}]}
        session = target.session("a")
        session.append({**answer, "stop_reason": "end_turn"})
        assert "length limit" not in export_bytes(target, None, format).decode()
        session.append({**answer, "stop_reason": "max_tokens"})
        assert "truncated at the length limit" in export_bytes(target, None, format).decode()
