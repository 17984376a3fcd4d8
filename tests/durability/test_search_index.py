"""The search index on disk: what is erased can not be read there, damage is mended, and a crash loses nothing."""

from __future__ import annotations

import asyncio
import os
import shutil

import apsw
import pytest

import recollect
from recollect.ops.search import find, index

SECRETS = {
    "title": "quokkatitle",
    "old title": "bilbyoldtitle",
    "text": "wombattext",
    "accent": "Échidnatext",
    "tool": "numbattool",
    "argument": "dunnartargument",
    "result": "pademelonresult",
    "large": "cassowarylarge",
    "reasoning": "galahreasoning",
    "error": "brolgaerror",
    "forked": "currawongforked",
}


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def secret(store, id: str = "cli:secret", end: str = "") -> None:
    """Say every secret in a session, in every place where text can be."""
    word = {name: value + end for name, value in SECRETS.items()}
    session = store.session(id, title=f"about {word['old title']}")
    store.index()
    session.update(title=f"about {word['title']}")
    call = {"type": "tool_use", "id": "t", "name": word["tool"], "input": {"path": f"{word['argument']}.md"}}
    thinking = {"type": "thinking", "thinking": f"hm {word['reasoning']}", "signature": "x"}
    large = f"{word['large']} " + "padding of no note " * 6_000
    session.append(
        [
            said(f"the {word['text']} and the {word['accent']}"),
            {"role": "assistant", "content": [thinking, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": word["result"]}]},
            {"role": "assistant", "content": [{**call, "id": "u"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u", "content": large}]},
            {"role": "assistant", "content": [{**call, "id": "v"}]},
        ]
    )
    session.record_tool_result("v", status="error", error_message=f"no {word['error']}")
    session.rewind(1)
    session.append(said(f"the {word['forked']}"))


def crowd(store, sessions: int, messages: int) -> None:
    """Say much else."""
    for number in range(sessions):
        store.session(f"cli:{number}", title=f"title {number}").append(
            [said(f"common words {number} {n} and something more") for n in range(messages)]
        )


def forms(value: str) -> set[bytes]:
    """Write a word in every way in which it could stand in the file: also as a tag, and as the index folds it."""
    found = set()
    for text in (value, value.lower(), value.upper(), value.replace("É", "e"), value.replace("É", "é")):
        found |= {text.encode(), text.encode("utf-16-le"), text.encode().hex().encode(), text[3:].encode()}
    return found


def leftovers(folder: str, end: str = "") -> list[tuple[str, str]]:
    """Name the secrets that can be read in the files of a folder."""
    left = []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read().lower()
        left += [(name, what) for what, value in SECRETS.items() for form in forms(value + end) if form.lower() in data]
    return left


def copied(path: str, tmp_path) -> str:
    """Copy the files of a store that is open."""
    folder = tmp_path / "copy"
    folder.mkdir(exist_ok=True)
    for end in ("", "-wal"):
        if os.path.exists(path + end):
            shutil.copyfile(path + end, folder / f"copy.db{end}")
    return str(folder)


def check(path: str) -> None:
    """Run FTS5's own check on both indexes, and compare how many messages there are."""
    connection = apsw.Connection(path)
    try:
        for table in ("search_index", "search_titles"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM search_index_docsize), "
            "(SELECT count(*) FROM search_index_docsize WHERE id NOT IN (SELECT key FROM messages))"
        ).fetchall()
    finally:
        connection.close()
    assert counts[0][0] == counts[0][1]
    assert counts[0][2] == 0


class TestErasing:
    """Nothing of what is erased can be read in the file, its log or a copy that was taken while it was open."""

    @pytest.mark.parametrize(("sessions", "messages"), [(0, 0), (3, 5), (40, 60)])
    @pytest.mark.parametrize("way", ["rewrite", "secure", "either"])
    def test_leaves_no_word(self, path, tmp_path, monkeypatch, sessions, messages, way):
        if way != "either":
            monkeypatch.setattr(index, "_WORTH_REWRITING", 1 << 40 if way == "rewrite" else 0)
        folder = tmp_path / "place"
        folder.mkdir()
        path = str(folder / "recollect.db")
        with recollect.open(path) as store:
            crowd(store, sessions, messages)
            secret(store)
            kept = len(store.search("common", 1_000))
            for word in SECRETS.values():
                assert word == SECRETS["old title"] or store.search(word), word
            assert {what for _, what in leftovers(copied(path, tmp_path))} >= SECRETS.keys() - {"old title"}
            store.erase_session("cli:secret")
            assert leftovers(copied(path, tmp_path)) == []
            for word in SECRETS.values():
                assert store.search(word) == store.search(word[3:]) == []
            assert len(store.search("common", 1_000)) == kept
        assert leftovers(str(folder)) == []
        if sessions:
            check(path)

    def test_of_many_one_after_the_other(self, path, tmp_path):
        names = ["ab", "cd", "ef", "gh", "ij"]
        with recollect.open(path) as store:
            crowd(store, 5, 100)
            for name in names:
                secret(store, f"cli:{name}", name)
                store.index()
            for name in names:
                store.erase_session(f"cli:{name}")
                assert leftovers(copied(path, tmp_path), name) == []
                assert len(store.search("common", 1_000)) == 500
        check(path)

    def test_before_it_was_indexed(self, path, tmp_path):
        with recollect.open(path) as store:
            secret(store)
            store.erase_session("cli:secret")
            assert leftovers(copied(path, tmp_path)) == []

    def test_of_one_branch_in_place_and_of_another_by_writing_anew(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr(index, "_WORTH_REWRITING", 300)
        with recollect.open(path) as store:
            crowd(store, 2, 700)
            secret(store)
            store.index()
            store.erase_session("cli:secret")
            assert leftovers(copied(path, tmp_path)) == []
            assert store.index() == 0
            assert len(store.search("words NOT nothing", 1_000, session="cli:0")) == 700
        check(path)

    def test_of_an_origin_leaves_what_its_fork_shares(self, path, tmp_path):
        with recollect.open(path) as store:
            crowd(store, 2, 400)
            secret(store)
            store.session("cli:secret").fork(at=1, id="cli:fork", title="other")
            store.index()
            store.erase_session("cli:secret", forks="keep")
            left = {what for _, what in leftovers(copied(path, tmp_path))}
            assert left == {"text", "accent"}
            assert [hit.session for hit in store.search("wombattext")] == ["cli:fork"]
            store.erase_session("cli:fork")
            assert leftovers(copied(path, tmp_path)) == []
        check(path)

    def test_of_a_turn_that_went_on_after_it_was_indexed(self, path, tmp_path):
        with recollect.open(path) as store:
            crowd(store, 2, 400)
            session = store.session("cli:a")
            turn = session.turn("q", lease=0.01)
            answer = turn.stream()
            answer.write("half wombattext")
            answer.flush()
            for _ in range(1_000):
                if store.search("wombattext"):
                    break
            answer.write(" and pademelonresult")
            answer.close()
            turn.complete()
            assert store.search("half pademelonresult")
            store.erase_session("cli:a")
            assert leftovers(copied(path, tmp_path)) == []
        check(path)

    def test_with_calls_that_were_answered_late(self, path, monkeypatch):
        """Taken out in other pages than put in, a message has the same words."""
        monkeypatch.setattr(index, "NEAR", 20)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            for number in range(30):
                call = {"type": "tool_use", "id": f"t{number}", "name": f"tool{number}", "input": {}}
                session.append([{"role": "assistant", "content": [call]}])
                monkeypatch.setattr(index, "PAGE", 1 + number % 7)
                store.index()
                session.append([said("between")] * (1 + number % 23))
                block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"result{number}"}
                session.append({"role": "user", "content": [block]})
            monkeypatch.setattr(index, "PAGE", 13)
            store.index()
            store.session("cli:b").append(said("stays"))
            store.index()
            store.erase_session("cli:a")
            assert [hit.text for hit in store.search("NOT nothing")] == ["stays"]
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, search_index, row)")
            words = {row[0] for row in connection.execute("SELECT term FROM temp.vocabulary")}
            connection.close()
            assert words == {"stays", "a", "r" + b"user".hex()}
        check(path)


DAMAGE = {
    # Not random bytes: FTS5 takes one in a hundred of those for a leaf without the word, which only a check finds.
    "overwritten": "UPDATE search_index_data SET block = CAST(printf('%.*c', length(block), 'x') AS BLOB) WHERE id > 10",
    "zeroed": "UPDATE search_index_data SET block = zeroblob(length(block)) WHERE id > 10",
    "averages": "UPDATE search_index_data SET block = x'ffff' WHERE id = 1",
    "structure": "UPDATE search_index_data SET block = x'00000001ff00000102' WHERE id = 10",
    "structure gone": "DELETE FROM search_index_data WHERE id = 10",
    "all gone": "DELETE FROM search_index_data",
    "a leaf gone": "DELETE FROM search_index_data WHERE id > 10",
    "lengths gone": "DELETE FROM search_index_docsize",
    "some lengths gone": "DELETE FROM search_index_docsize WHERE id % 3 = 0",
    "lengths overwritten": "UPDATE search_index_docsize SET sz = x'ff'",
    "titles overwritten": "UPDATE search_titles_data SET block = x'00ff' WHERE id > 10",
    "titles' structure": "UPDATE search_titles_data SET block = x'00000001ff00000102' WHERE id = 10",
    "titles gone": "DELETE FROM search_titles_data",
    "titles' lengths gone": "DELETE FROM search_titles_docsize",
}


class TestDamage:
    """The index holds nothing of its own, so damage to it is no loss."""

    @pytest.fixture(params=DAMAGE.values(), ids=DAMAGE)
    def damaged(self, path, request):
        with recollect.open(path) as store:
            crowd(store, 3, 50)
            store.index()
        connection = apsw.Connection(path)
        connection.execute(request.param)
        connection.close()
        return path

    def test_is_mended_by_the_next_search(self, damaged):
        with recollect.open(damaged) as store:
            assert len(store.search("common", 1_000)) == 150
            assert len(store.search("title")) == 3
            assert len(store.search("omething common", 1_000)) == 150
            store.reindex()
            assert len(store.search("common", 1_000)) == 150
        check(damaged)

    def test_is_mended_after_more_was_said(self, damaged):
        with recollect.open(damaged) as store:
            crowd(store, 4, 1)
            store.session("cli:0").update(title="renamed")
            assert len(store.search("common", 1_000)) == 154
            assert len(store.search("renamed")) == 1
            assert len(store.search("title")) == 3
        check(damaged)

    @pytest.mark.parametrize("table", ["search_index", "search_titles"])
    def test_an_index_that_looks_empty_is_mended_when_something_is_added(self, path, table):
        with recollect.open(path) as store:
            crowd(store, 3, 50)
            store.index()
        connection = apsw.Connection(path)
        connection.execute(f"UPDATE {table}_data SET block = x'00' WHERE id = 10")
        connection.close()
        with recollect.open(path) as store:
            crowd(store, 4, 1)
            assert len(store.search("common", 1_000)) == 154
            assert len(store.search("title")) == 4
        check(path)

    def test_never_fails_a_write(self, damaged):
        with recollect.open(damaged) as store:
            store.session("cli:0").append(said("one more common"))
            store.session("cli:1").update(title="renamed")
            store.session("cli:0").fork(id="cli:fork").append(said("common"))
            store.delete_session("cli:2")
            assert store.erase_session("cli:1") == ["cli:1"]
            store.restore_session("cli:2")
            assert len(store.search("title")) == 3
            assert len(store.search("common", 1_000)) == 102
        check(damaged)

    def test_never_fails_a_write_of_many(self, damaged):
        async def main() -> None:
            async with recollect.open_async(damaged) as store:
                sessions = [await store.session(f"new:{number}") for number in range(8)]
                work = [session.append(said("common")) for session in sessions]
                some, *_ = await asyncio.gather(store.search("common", 1_000), *work, store.erase_session("cli:1"))
                assert len(some) >= 100
                assert len(await store.search("title")) == 2
                assert len(await store.search("common", 1_000)) == 108

        asyncio.run(main())
        check(damaged)


class TestProcesses:
    """Several at once, and some that are killed."""

    def test_a_crash_while_it_catches_up(self, path, spawn, sound):
        with recollect.open(path) as store:
            crowd(store, 6, 40)
        for steps in range(1, 8):
            child = spawn("catch_up", path)
            assert child.stdout.readline() == b"ready\n"
            child.stdin.write(b"go\n")
            for _ in range(steps):
                assert child.stdout.readline() in (b"step\n", b"done 0\n")
            child.kill()
            child.wait()
        with recollect.open(path) as store:
            assert len(store.search("common", 1_000)) == 240
            assert len(store.search("title")) == 6
        check(path)
        sound(path)

    def test_two_catch_up_at_once(self, path, spawn):
        with recollect.open(path) as store:
            crowd(store, 8, 50)
        children = [spawn("catch_up", path) for _ in range(3)]
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"go\n")
        lines = [child.communicate(timeout=60) for child in children]
        assert [trouble for _, trouble in lines] == [b""] * 3
        assert sum(int(out.decode().split()[-1]) for out, _ in lines) == 400
        check(path)
        with recollect.open(path) as store:
            assert store.index() == 0
            assert len(store.search("common", 1_000)) == 400

    def test_some_write_and_some_search(self, path, spawn, sound):
        recollect.open(path).close()
        children = [spawn("talkative", path, number, 40) for number in range(4)]
        children += [spawn("look", path, 25) for _ in range(2)]
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"go\n")
        assert [child.communicate(timeout=120)[1] for child in children] == [b""] * 6
        with recollect.open(path) as store:
            assert len(store.search("word", 1_000)) == 160
        check(path)
        sound(path)

    def test_the_answer_of_a_process_that_is_gone(self, path, spawn):
        child = spawn("hold", path, "cli:a", "streaming")
        assert child.stdout.readline() == b"open\n"
        with recollect.open(path) as store:
            assert [hit.message for hit in store.search("half OR mine")] == ["1.1"]
            child.kill()
            child.wait()
            assert {hit.message for hit in store.search("half OR mine")} == {"1.1", "1.2"}
        check(path)


class TestRefused:
    """Where the index can not be brought up to date, a search answers from what there is."""

    def test_a_locked_file_is_searched_as_it_is(self, path, spawn):
        with recollect.open(path) as store:
            crowd(store, 2, 10)
            store.index()
            crowd(store, 3, 1)
        child = spawn("lock", path)
        assert child.stdout.readline() == b"locked\n"
        with recollect.open(path, timeout=0.1) as store:
            assert len(store.search("common", 1_000)) == 20
            child.stdin.write(b"go\n")
            assert child.stdout.readline() == b"free\n"
            assert len(store.search("common", 1_000)) == 23

    def test_a_file_that_has_become_read_only(self, path):
        with recollect.open(path) as store:
            crowd(store, 1, 10)
            store.index()
            crowd(store, 2, 1)
            store._engine._file.writer.execute("PRAGMA query_only = ON")
            assert len(store.search("common", 1_000)) == 10
            with pytest.raises(recollect.StoreReadOnly):
                store.index()
            store._engine._file.writer.execute("PRAGMA query_only = OFF")
            assert len(store.search("common", 1_000)) == 12


class TestPools:
    """A query that fits more than are ranked at once."""

    @pytest.mark.parametrize("pool", [1, 2, 7])
    def test_more_hits_than_are_ranked_at_once(self, path, monkeypatch, pool):
        monkeypatch.setattr(find, "POOL", pool)
        with recollect.open(path) as store:
            for number in range(5):
                store.session(f"cli:{number}", title=f"common {number}").append(
                    [said(f"common {'filler ' * (n % 4)} {number}") for n in range(9)]
                )
                store.session(f"cli:{number}").append(said(f"uncommonly {number}"))
            session = store.session("cli:2")
            before = {
                (f"cli:{number}", message)
                for number in range(5)
                for message in [None, *(f"1.{n}" for n in range(1, 11))]
            }
            page = store.search("common", 4)
            seen = [(hit.session, hit.message) for hit in page]
            for number in range(1_000):
                session.append(said(f"common {number}"))
                store.session(f"new:{number}", title="common").append(said("common"))
                page = store.search("common", 4, after=page.next)
                assert page
                seen += [(hit.session, hit.message) for hit in page]
                if page.next is None:
                    break
            assert page.next is None
            assert len(seen) == len(set(seen))
            assert before <= set(seen)
