"""Files as they come: damaged, cut off, mixed, hostile; sessions that go on and sessions that contradict."""

from __future__ import annotations

import io
import json
import multiprocessing
import os

import pytest
from worlds import build, everything, exported, imported

import recollect
from recollect import export
from recollect.export import intake, report
from recollect.model import keys
from recollect.testing import talk
from recollect.testing.talk import texts

FULL = [
    ("talk", 0, "anthropic"), ("fork", 0, 2), ("said", 1, "in the fork"), ("picture", 0, ""), ("rewind", 0, 1),
    ("said", 0, "other way"), ("turn", 0, "completed"), ("compact", 0, "short"), ("session", 0, "x"), ("said", 2, "hi"),
]  # fmt: skip


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        yield build(store, FULL)


@pytest.fixture
def empty():
    with recollect.open(":memory:") as store:
        yield store


def lines(text):
    return text.decode().splitlines()


def joined(given):
    return ("\n".join(given) + "\n").encode()


def kind(line):
    return json.loads(line)["type"]


class TestDryRun:
    """It says what an import then does, and does nothing."""

    CHAT = b'[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "odd"}]'

    def foreseen(self, text, store, **how):
        before = exported(store)
        found = export.read(store, io.BytesIO(text), dry_run=True, **how)
        assert exported(store) == before
        assert len(store.list_sessions(archived=None, delegates=None)) == before.count(b'{"type":"session"')
        return found.to_dict()

    @pytest.mark.parametrize("on_conflict", ["skip", "new"])
    @pytest.mark.parametrize("steps", [1, 2, 5, len(FULL)])
    def test_of_what_goes_on(self, store, empty, steps, on_conflict):
        whole = exported(store)
        for text in (
            exported(build(empty, FULL[:steps])),
            whole,
            whole[: len(whole) // 2],
            joined(["{", *lines(whole)]),
        ):
            with recollect.open(":memory:") as copy:
                for start in (b"", exported(empty), whole):
                    export.read(copy, io.BytesIO(start))
                    told = self.foreseen(text, copy, on_conflict=on_conflict)
                    assert export.read(copy, io.BytesIO(text), on_conflict=on_conflict).to_dict() == told

    def test_of_a_contradiction(self, store, empty):
        empty.session("cli:first").append(talk.user("something else"))
        for how in ("skip", "new"):
            told = self.foreseen(exported(store), empty, on_conflict=how)
            assert [each["id"] for each in told["conflicts"]] == ["cli:first"]
            with recollect.open(":memory:") as copy:
                export.read(copy, io.BytesIO(exported(empty)))
                assert export.read(copy, io.BytesIO(exported(store)), on_conflict=how).to_dict() == told
        with pytest.raises(recollect.SessionExists):
            self.foreseen(exported(store), empty, on_conflict="error")

    def test_of_a_plain_chat(self, empty):
        told = self.foreseen(self.CHAT, empty)
        assert (told["messages"], told["bad_count"], len(told["created"])) == (2, 1, 1)
        assert export.read(empty, io.BytesIO(self.CHAT)).to_dict() == told
        again = self.foreseen(self.CHAT, empty)
        assert (again["messages"], again["unchanged"]) == (0, told["created"])
        many = json.dumps([{"messages": [talk.user("a")], "title": "A"}, {"messages": [talk.user("b")]}]).encode()
        assert self.foreseen(many, empty) == export.read(empty, io.BytesIO(many)).to_dict()


class TestDamage:
    @pytest.mark.parametrize(
        "bad",
        ["{", "not json", '{"type":"message"}', '{"type":"what"}', "[]", "17", "\x00", '{"type":"message","id":NaN}'],
    )
    def test_a_bad_line_is_reported_with_its_number_and_the_rest_is_imported(self, store, empty, bad):
        whole = lines(exported(store))
        _, found = imported(joined([*whole[:5], bad, *whole[5:]]), empty)
        assert [line.line for line in found.bad] == [6]
        assert found.bad[0].reason
        assert exported(empty) == joined(whole)

    def test_every_line_may_be_missing(self, store):
        whole = lines(exported(store))
        for number in range(len(whole)):
            copy, found = imported(joined(whole[:number] + whole[number + 1 :]))
            with copy:
                everything(copy)
                _, again = imported(joined(whole), copy)
                everything(copy)
                assert again.bad == [], (number, found.bad)
                messages = sum(kind(line) == "message" for line in whole)
                assert exported(copy).count(b'{"type":"message"') == messages or again.conflicts

    def test_a_file_that_is_cut_off_anywhere_gives_what_is_whole(self, store):
        for format in ("jsonl", "json"):
            whole = exported(store, format=format)
            for end in range(0, len(whole), 331):
                copy, found = imported(whole[:end])
                with copy:
                    everything(copy)
                    assert found.messages <= whole.count(b'"type":"message"')
                    _, again = imported(whole, copy)
                    assert again.conflicts == []
                    assert exported(copy, format=format) == whole, end

    def test_what_is_left_out_later_is_added_by_a_whole_file(self, store, empty):
        whole = lines(exported(store))
        without = [line for line in whole if kind(line) not in ("turn", "tool_call")]
        imported(joined(without[:-1]), empty)
        everything(empty)
        imported(joined(whole), empty)
        assert exported(empty).count(b'{"type":"message"') == sum(kind(line) == "message" for line in whole)

    def test_records_of_no_session_are_refused(self, store, empty):
        whole = lines(exported(store))
        _, found = imported(joined([line for line in whole if kind(line) != "session"]), empty)
        assert found.created == []
        assert found.bad_count == sum(kind(line) not in ("session", "header", "blob") for line in whole)

    def test_bytes_that_are_no_text(self, store, empty):
        whole = exported(store).splitlines()
        text = b"\n".join([whole[0], b'{"type":"session","id":"\xff\xfe"}', *whole[1:]])
        _, found = imported(text, empty)
        assert [line.line for line in found.bad] == [2]
        assert "UTF-8" in found.bad[0].reason
        _, found = imported(exported(store, format="json").replace(b"other way", b"other \xff"))
        assert found.bad

    def test_no_more_than_so_many_bad_lines_are_kept(self, empty):
        _, found = imported(b"x\n" * (report.MOST + 5), empty)
        assert found.bad_count == report.MOST + 5
        assert len(found.bad) == report.MOST

    def test_an_empty_file_and_a_strange_one(self, empty):
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
            _, found = imported(text, empty)
            assert found.created == []
        assert everything(empty)["sessions"] == {}

    def test_a_newer_version_is_refused_whole(self, store, empty):
        text = exported(store).replace(b'"version":1', b'"version":2', 1)
        with pytest.raises(recollect.InvalidValue, match="version 2"):
            imported(text, empty)
        assert everything(empty)["sessions"] == {}

    def test_a_mark_of_byte_order_and_other_line_ends(self, store, empty):
        text = exported(store)
        imported(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"), empty)
        assert exported(empty) == text

    def test_a_document_in_another_layout(self, store):
        text = exported(store, format="json")
        value = json.loads(text)
        for options in (
            {"indent": 2},
            {},
            {"sort_keys": True},
            {"indent": 1, "ensure_ascii": False, "sort_keys": True},
        ):
            copy, found = imported(json.dumps(value, **options).encode())
            with copy:
                assert found.bad == []
                assert json.loads(exported(copy, format="json")) == value
                assert imported(text, copy)[1].messages == 0
                assert "sort_keys" in options or exported(copy, format="json") == text

    def test_two_files_in_one(self, store, empty):
        with recollect.open(":memory:") as other:
            other.session("other").append(talk.user("hello"))
            _, found = imported(exported(store) + exported(other), empty)
        assert found.bad == []
        assert "other" in found.created
        assert len(found.created) == 4


class TestHostile:
    """A file that somebody made to break the store."""

    def spoiled(self, store, type, **fields):
        whole = lines(exported(store))
        index = next(number for number, line in enumerate(whole) if kind(line) == type)
        whole[index] = json.dumps({**json.loads(whole[index]), **fields})
        return joined(whole), index + 1

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
            ("session", {"title": "\0"}), ("session", {"title": "\ud800"}), ("session", {"status": "gone"}),
            ("session", {"metadata": 5}), ("session", {"data_schema_version": 99}), ("session", {"revision": -1}),
            ("tool_call", {"message": "1.77777777777"}), ("tool_call", {"branch": 9}), ("tool_call", {"status": "?"}),
            ("tool_call", {"result": None}), ("turn", {"status": "?"}), ("turn", {"id": "5.5"}),
            ("compaction", {"branch": 9}), ("snapshot", {"message": "9.9"}), ("blob", {"data": "!!"}),
            ("blob", {"data": "aGk="}), ("blob", {"hash": "xx"}),
        ],
    )  # fmt: skip
    def test_a_record_that_can_not_be_is_refused_and_the_store_stays_sound(self, store, empty, type, fields):
        text, line = self.spoiled(store, type, **fields)
        _, found = imported(text, empty)
        assert line in [bad.line for bad in found.bad], found
        for session in everything(empty)["sessions"]:
            empty.session(session).append(talk.user("it goes on"))
            everything(empty)

    def test_activity_is_not_taken_from_the_far_future(self, store, empty):
        text, _ = self.spoiled(store, "session", active_at="9999-01-01T00:00:00Z")
        imported(text, empty)
        newest = empty.session("new")
        assert newest.active_at < 1 << 45
        assert empty.list_sessions()[0].id == "new"

    def test_a_time_beyond_the_calendar_goes_out_and_comes_back(self, empty):
        with recollect.open(":memory:") as store:
            store.session("a").append(
                recollect.Draft(role="user", parts=(recollect.TextPart(text="x"),), created_at=1 << 52)
            )
            text = exported(store)
            for format in ("md", "html"):
                exported(store, None, format)
        imported(text, empty)
        assert exported(empty) == text
        assert empty.session("a").messages()[0].created_at == 1 << 52

    def test_deep_values(self, empty):
        deep = "[" * 4000 + "]" * 4000
        text = f'{{"type":"header","format":"recollect-export","version":1}}\n{{"type":"session","metadata":{{"a":{deep}}}}}\n'
        _, found = imported(text.encode(), empty)
        assert [bad.line for bad in found.bad] == [2]


class TestGoingOn:
    def test_an_unfinished_answer_is_brought_to_its_end(self, empty):
        with recollect.open(":memory:") as store:
            session = store.session("a")
            turn = session.turn("q")
            answer = turn.stream()
            answer.write("ha")
            first = exported(store)
            imported(first, empty)
            assert exported(empty) == first
            answer.write("lf")
            answer.close()
            turn.complete()
            later = exported(store)
            _, found = imported(later, empty)
            assert found.updated == ["a"]
            assert exported(empty) == later

    def test_an_open_turn_is_interrupted_by_whoever_opens_the_session(self, empty):
        with recollect.open(":memory:") as store:
            turn = store.session("a").turn("q")
            turn.stream().write("x")
            imported(exported(store), empty)
        assert empty.get_session("a").turns()[0].status == "open"
        opened = empty.session("a")
        assert opened.turns()[0].status == "interrupted"
        assert opened.messages()[-1].state == "interrupted"
        with opened.turn("next"):
            pass

    def test_an_open_turn_does_not_keep_anybody_out(self, empty):
        with recollect.open(":memory:") as store:
            store.session("a").turn("q")
            imported(exported(store), empty)
        session = empty.get_session("a")
        with session.turn("mine"):
            pass
        assert [turn.status for turn in session.turns()] == ["interrupted", "completed"]

    def test_a_deleted_message_is_deleted_there_too(self, store, empty):
        imported(exported(store), empty)
        session = store.session("cli:first")
        session.delete_message(session.messages()[0].id)
        imported(exported(store), empty)
        assert everything(empty)["sessions"].keys() == everything(store)["sessions"].keys()
        assert texts(empty.session("cli:first")) == texts(session)

    def test_an_older_export_changes_nothing(self, store):
        old = exported(store)
        session = store.session("cli:first")
        session.append(talk.user("more"))
        session.rewind(session.messages()[0].id)
        session.append(talk.user("elsewhere"))
        session.update(title="New title")
        now = exported(store)
        _, found = imported(old, store)
        assert (found.updated, found.created, found.messages, found.conflicts) == ([], [], 0, [])
        assert exported(store) == now

    def test_a_session_that_went_on_here_keeps_its_branch_and_title(self, empty):
        with recollect.open(":memory:") as store:
            session = store.session("a", title="First")
            session.append(talk.numbered(3))
            imported(exported(store), empty)
            for number in range(9):
                session.update(title=f"Renamed {number}")
            mine = empty.session("a")
            mine.rewind("1.1")
            mine.append(talk.user("mine"))
            before = exported(empty)
            _, found = imported(exported(store), empty)
            assert (found.unchanged, found.conflicts) == (["a"], [])
            assert exported(empty) == before

    def test_a_title_that_changed_there_is_taken_over(self, empty):
        with recollect.open(":memory:") as store:
            session = store.session("a", title="First")
            session.append(talk.numbered(3))
            imported(exported(store), empty)
            session.update(title="Second", pinned=True)
            session.rewind("1.2")
            _, found = imported(exported(store), empty)
            assert found.updated == ["a"]
            assert exported(empty) == exported(store)

    def test_a_new_fork_joins_the_tree_of_its_origin(self, store, empty):
        imported(exported(store, ["cli:first"]), empty)
        _, found = imported(exported(store), empty)
        assert "fork:0:2" in found.created
        with pytest.raises(recollect.SessionHasForks):
            empty.erase_session("cli:first")

    def test_a_fork_comes_alone_and_its_origin_later(self, store, empty):
        imported(exported(store, ["fork:0:2"]), empty)
        _, found = imported(exported(store), empty)
        assert found.unchanged == ["fork:0:2"]
        assert set(found.created) == {"cli:first", "x"}
        for id in ("cli:first", "fork:0:2", "x"):
            assert empty.session(id).messages() == store.session(id).messages()
        assert imported(exported(store), empty)[1].created == []

    def test_a_fork_whose_number_is_taken_gets_a_tree_of_its_own(self, empty):
        with recollect.open(":memory:") as store:
            store.session("a").append(talk.numbered(3))
            imported(exported(store), empty)
            store.session("a").fork(id="f").append(talk.user("fork"))
            mine = empty.session("a")
            mine.rewind("1.1")
            mine.append(talk.user("my own branch 2"))
            _, found = imported(exported(store), empty)
            assert found.created == ["f"]
            assert found.conflicts == []
            assert empty.session("f").messages() == store.session("f").messages()
            assert texts(empty.session("a")) == ["m1", "my own branch 2"]
            assert imported(exported(store), empty)[1].messages == 0


class TestConflicts:
    @pytest.fixture
    def both(self, empty):
        with recollect.open(":memory:") as store:
            store.session("a").append(talk.numbered(3))
            imported(exported(store), empty)
            store.session("a").append(talk.user("theirs"))
            empty.session("a").append(talk.user("mine"))
            yield exported(store), empty

    def test_it_is_reported_and_left_alone(self, both):
        text, store = both
        before = exported(store)
        _, found = imported(text, store)
        assert [refused.id for refused in found.conflicts] == ["a"]
        assert "1.4" in found.conflicts[0].reason
        assert found.conflicts[0].new_id is None
        assert exported(store) == before

    def test_it_comes_under_a_new_id_once(self, both):
        text, store = both
        _, found = imported(text, store, on_conflict="new")
        (refused,) = found.conflicts
        assert found.created == [refused.new_id]
        assert texts(store.session(refused.new_id)) == ["m1", "m2", "m3", "theirs"]
        assert texts(store.session("a")) == ["m1", "m2", "m3", "mine"]
        _, again = imported(text, store, on_conflict="new")
        assert (again.created, again.messages) == ([], 0)
        assert again.conflicts[0].new_id == refused.new_id
        assert again.unchanged == [refused.new_id]

    def test_it_is_an_error(self, both):
        text, store = both
        before = exported(store)
        with pytest.raises(recollect.SessionExists, match="on_conflict"):
            imported(text, store, on_conflict="error")
        assert exported(store) == before

    def test_an_unknown_way_is_refused(self, both):
        text, store = both
        with pytest.raises(recollect.InvalidValue, match="skip, new, error"):
            imported(text, store, on_conflict="merge")

    def test_a_masked_export_does_not_overwrite_what_it_was_made_from(self):
        with recollect.open(":memory:") as store:
            store.session("a").append(talk.user("password=hunter22"))
            text = exported(store, redact=True)
            assert b"hunter22" not in text
            before = exported(store)
            assert imported(text, store)[1].conflicts
            assert exported(store) == before

    def test_both_went_on_elsewhere(self, empty):
        with recollect.open(":memory:") as store:
            store.session("a").append(talk.numbered(3))
            imported(exported(store), empty)
            mine = empty.session("a")
            mine.rewind("1.1")
            mine.append(talk.user("branch 2"))
            store.session("a").append(talk.user("theirs"))
            assert imported(exported(store), empty)[1].conflicts[0].reason.startswith("Both")


class TestIdsThatNoUrlCarries:
    @pytest.mark.parametrize("on_conflict", ["skip", "new", "error"])
    @pytest.mark.parametrize("id", [".", ".."])
    def test_they_get_a_new_id_each_time_the_same(self, empty, id, on_conflict):
        with recollect.open(":memory:") as store:
            store.session("dots").append({"role": "user", "content": "up"})
            store.session("child", parent="dots")
            text = exported(store).replace(b'"dots"', f'"{id}"'.encode())
        for _ in range(2):
            _, report = imported(text, empty, on_conflict=on_conflict)
            (renamed,) = report.conflicts
            assert (renamed.id, "URL" in renamed.reason) == (id, True)
            assert renamed.new_id.startswith(f"{id}-")
            assert [m.text for m in empty.session(renamed.new_id, create=False).messages()] == ["up"]
            assert empty.session("child", create=False).parent == renamed.new_id
            assert empty.get_session(id) is None
        assert len(empty.list_sessions(delegates=True)) == 2

    def test_a_store_of_an_older_version_keeps_them(self, tmp_path, monkeypatch):
        path = tmp_path / "old.db"
        with recollect.open(path) as store, monkeypatch.context() as older:
            older.setattr(keys, "_DOT_SEGMENTS", frozenset())
            store.session("..").append({"role": "user", "content": "up"})
        with recollect.open(path) as store:
            assert [session.id for session in store.list_sessions()] == [".."]
            assert store.check().problems == ()
            assert imported(exported(store), store)[1].unchanged == [".."]
            session = store.session("..", create=False)
            session.append({"role": "user", "content": "more"})
            assert session.fork(id="elsewhere").message_count == store.get_session("..").message_count == 2
            store.delete_session("..")
            assert store.restore_session("..").id == ".."
            store.erase_session("..", forks="keep")
            assert [session.id for session in store.list_sessions()] == ["elsewhere"]


class TestOwners:
    def test_another_owner_is_not_touched(self, store, tmp_path):
        path = tmp_path / "talks.db"
        with recollect.open(path, owner="ann") as ann, recollect.open(path, owner="bob") as bob:
            ann.session("cli:first").append(talk.user("ann's own"))
            before = exported(ann)
            imported(exported(store), bob)
            assert exported(ann) == before
            assert exported(bob) == exported(store)
            with pytest.raises(recollect.SessionNotFound):
                exported(ann, ["x"])
            assert imported(exported(store), ann)[1].conflicts[0].id == "cli:first"

    def test_a_parent_of_another_owner_is_no_parent(self, tmp_path):
        path = tmp_path / "talks.db"
        with recollect.open(path, owner="ann") as ann, recollect.open(path, owner="bob") as bob:
            ann.session("p")
            ann.session("p:delegate:d", parent="p")
            text = exported(ann, ["p:delegate:d"])
            imported(text, bob)
            assert bob.session("p:delegate:d").parent is None


class TestParents:
    def test_a_parent_that_comes_later_is_named(self, empty):
        with recollect.open(":memory:") as store:
            store.session("p")
            store.session("p:delegate:d", parent="p")
            imported(exported(store, ["p:delegate:d", "p"]), empty)
            assert empty.session("p:delegate:d").parent == "p"

    def test_a_parent_that_is_in_the_store_is_named(self, empty):
        with recollect.open(":memory:") as store:
            store.session("p")
            store.session("p:delegate:d", parent="p")
            empty.session("p")
            imported(exported(store, ["p:delegate:d"]), empty)
            assert empty.session("p:delegate:d").parent == "p"


class TestSearchIndex:
    def test_what_is_imported_waits_to_be_indexed_and_what_is_changed_is_indexed_again(self, tmp_path):
        with recollect.open(":memory:") as store, recollect.open(tmp_path / "talks.db") as copy:
            session = store.session("a", title="Before")
            session.append(talk.numbered(4))
            turn = session.turn("question")
            answer = turn.stream()
            answer.write("half of it")
            answer.flush()
            imported(exported(store), copy)
            assert [hit.message for hit in copy.search("m4")] == ["1.4"]
            copy.session("a")  # nobody is writing the answer here, so it is interrupted
            assert [hit.message for hit in copy.search("half")] == ["1.6"]
            answer.write(" and the rest")
            answer.close()
            turn.complete()
            session.append(talk.user("more"))
            session.update(title="After")
            imported(exported(store), copy)
            assert [hit.message for hit in copy.search("rest")] == ["1.6"]
            assert [hit.message for hit in copy.search("more")] == ["1.7"]
            assert [hit.kind for hit in copy.search("after")] == ["title"]
            assert copy.search("before") == []
            assert not copy.check().problems


OPENAI = [{"role": "user", "content": "hi"}, *talk.OPENAI_TALK[2:]]


class TestChats:
    @pytest.mark.parametrize("layout", ["array", "lines", "object", "indented"])
    @pytest.mark.parametrize("said", [talk.ANTHROPIC_TALK, OPENAI], ids=["anthropic", "openai"])
    def test_messages_of_a_provider_become_a_session_once(self, empty, layout, said):
        text = {
            "array": lambda: json.dumps(said),
            "indented": lambda: json.dumps(said, indent=2),
            "lines": lambda: "\n".join(json.dumps(message) for message in said),
            "object": lambda: json.dumps({"title": "My chat", "model": "m", "messages": said}, indent=1),
        }[layout]().encode()
        _, found = imported(text, empty)
        assert found.bad == []
        (id,) = found.created
        session = empty.session(id)
        assert session.history("anthropic" if said is talk.ANTHROPIC_TALK else "openai") == said
        assert session.title == ("My chat" if layout == "object" else None)
        assert session.channel == "import"
        _, again = imported(text, empty)
        assert (again.created, again.unchanged, again.messages) == ([], [id], 0)
        assert session.refresh().message_count == len(session.messages())

    def test_a_line_for_each_chat(self, empty):
        chats = [{"messages": [talk.user(f"q{n}"), talk.assistant("a")]} for n in range(3)]
        _, found = imported("\n".join(map(json.dumps, chats)).encode(), empty)
        assert len(found.created) == 3
        assert found.messages == 6

    def test_an_array_of_chats(self, empty):
        chats = [{"name": f"n{n}", "messages": [talk.user(f"q{n}")]} for n in range(3)]
        _, found = imported(json.dumps(chats).encode(), empty)
        assert sorted(empty.session(id).title for id in found.created) == ["n0", "n1", "n2"]

    def test_what_is_no_message_is_reported(self, empty):
        said = [
            json.dumps(talk.user("a")),
            "{broken",
            json.dumps({"role": "wizard", "content": "x"}),
            json.dumps(talk.user("b")),
        ]
        _, found = imported("\n".join(said).encode(), empty)
        assert [bad.line for bad in found.bad] == [2, 3]
        assert texts(empty.session(found.created[0])) == ["a", "b"]

    def test_a_format_can_be_given(self, empty):
        unclear = [{"role": "user", "content": [{"type": "mystery", "x": 1}]}]
        _, found = imported(json.dumps(unclear).encode(), empty)
        assert found.created == []
        assert "format" in found.bad[0].reason
        _, found = imported(json.dumps(unclear).encode(), empty, format="anthropic")
        assert empty.session(found.created[0]).history("anthropic") == unclear
        with pytest.raises(recollect.UnknownFormat):
            imported(json.dumps(unclear).encode(), empty, format="latin")

    def test_many_messages_in_batches(self, empty):
        _, found = imported("\n".join(json.dumps(m) for m in talk.numbered(1000)).encode(), empty)
        assert texts(empty.session(found.created[0])) == [f"m{n}" for n in range(1, 1001)]


def bring(path, text, barrier, results):
    with recollect.open(path) as store:
        barrier.wait(30)
        found = export.read(store, io.BytesIO(text), on_conflict="error")
        results.put((found.bad_count, found.messages))


class TestTogether:
    def test_two_processes_that_import_the_same_file_at_once(self, tmp_path):
        with recollect.open(":memory:") as store:
            build(store, FULL)
            store.session("long").append(talk.numbered(700))
            for number in range(3):
                store.session("long").fork(at=100 * number + 50, id=f"f{number}").append(talk.numbered(10))
            text = exported(store)
            path = os.fspath(tmp_path / "talks.db")
            recollect.open(path).close()
            context = multiprocessing.get_context("spawn")
            barrier, results = context.Barrier(2), context.Queue()
            children = [context.Process(target=bring, args=(path, text, barrier, results)) for _ in range(2)]
            for child in children:
                child.start()
            told = [results.get(timeout=60) for _ in children]
            for child in children:
                child.join(60)
                assert child.exitcode == 0
            with recollect.open(path) as copy:
                assert [bad for bad, _ in told] == [0, 0]
                assert sum(count for _, count in told) == text.count(b'{"type":"message"')
                assert exported(copy) == text
                everything(copy)

    def test_a_store_that_changes_while_it_is_compared(self, store, empty, monkeypatch):
        """The session appears after it was looked for and before it is made."""
        text = exported(store)
        real = intake.placed
        calls = []

        def placed(scope, group, on_conflict):
            plan = yield from real(scope, group, on_conflict)
            if not calls:
                calls.append(1)
                monkeypatch.setattr(intake, "placed", real)
                imported(text, empty)
            return plan

        monkeypatch.setattr(intake, "placed", placed)
        _, found = imported(text, empty)
        assert found.messages == 0
        assert found.conflicts == []
        assert exported(empty) == text

    def test_a_session_that_is_written_to_during_the_import_keeps_what_was_written(self, empty):
        with recollect.open(":memory:") as store:
            store.session("a").append(talk.numbered(600))
            text = exported(store)
        done = []

        def progress(count):
            if not done:
                done.append(count)
                empty.session("a").append(talk.user("meanwhile"))

        _, found = imported(text, empty, progress=progress)
        assert [refused.id for refused in found.conflicts] == ["a"]
        assert texts(empty.session("a"))[-1] == "meanwhile"
        everything(empty)

    def test_progress_and_the_plain_form_of_a_report(self, store, empty):
        told = []
        _, found = imported(exported(store), empty, progress=told.append)
        assert told[-1] == found.messages
        assert json.loads(json.dumps(found.to_dict()))["created"] == found.created


class TestModels:
    """A file does not decide which provider is called."""

    def test_a_model_that_can_be_called_is_kept_as_information(self, empty):
        with recollect.open(":memory:") as store:
            session = store.session("a", model="openai:theirs", metadata={"k": 1})
            session.append(talk.user("hi"))
            store.session("b", model="gpt-5").append(talk.user("hi"))
            first = exported(store)
            session.append(talk.user("more"))
            second = exported(store)
        imported(first, empty)
        here = empty.session("a")
        assert (here.model, here.metadata) == (None, {"k": 1, "imported_model": "openai:theirs"})
        assert empty.session("b").model == "gpt-5"  # the name of another program's model, which nobody can call
        here.update(model="anthropic:mine")
        imported(second, empty)
        assert (empty.session("a").model, texts(empty.session("a"))) == ("anthropic:mine", ["hi", "more"])


class TestShown:
    """What goes to a model and has no common field is shown in what people read."""

    @pytest.mark.parametrize("format", ["markdown", "html"])
    def test_data_and_remainders(self, empty, format):
        session = empty.session("a")
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
        text = exported(empty, None, format).decode()
        for word in ("IN-A-PART", "IN-DATA", "IN-A-BLOCK", "IN-A-MESSAGE"):
            assert word in text
        assert "UNSHOWN" not in text

    @pytest.mark.parametrize("format", ["markdown", "html"])
    def test_an_answer_that_reached_its_length_limit(self, empty, format):
        cut = {"role": "assistant", "type": "message", "content": [{"type": "text", "text": "half"}]}
        session = empty.session("a")
        session.append({**cut, "stop_reason": "end_turn"})
        assert "length limit" not in exported(empty, None, format).decode()
        session.append({**cut, "stop_reason": "max_tokens"})
        assert "cut at its length limit" in exported(empty, None, format).decode()
