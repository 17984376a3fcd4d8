"""The search index on disk: erased words are not in it, damage is repaired, and a crash loses nothing."""

from __future__ import annotations

import asyncio
import os
import shutil

import apsw
import pytest

import recollect
from recollect.engine.sqlite import search
from recollect.storage.search import index, retrieval

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


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def add_secret_session(store, id: str = "cli:secret", suffix: str = "") -> None:
    """Add a session with every secret, in every kind of text that is indexed."""
    word = {name: value + suffix for name, value in SECRETS.items()}
    session = store.session(id, title=f"about {word['old title']}")
    store.maintenance.index()
    session.update(title=f"about {word['title']}")
    call = {"type": "tool_use", "id": "t", "name": word["tool"], "input": {"path": f"{word['argument']}.md"}}
    thinking = {"type": "thinking", "thinking": f"hm {word['reasoning']}", "signature": "x"}
    large = f"{word['large']} " + "padding for length " * 6_000
    session.append(
        [
            user_message(f"the {word['text']} and the {word['accent']}"),
            {"role": "assistant", "content": [thinking, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": word["result"]}]},
            {"role": "assistant", "content": [{**call, "id": "u"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u", "content": large}]},
            {"role": "assistant", "content": [{**call, "id": "v"}]},
        ]
    )
    session.tools.record_result("v", status="error", error_message=f"no {word['error']}")
    session.rewind(1)
    session.append(user_message(f"the {word['forked']}"))


def add_sessions(store, sessions: int, messages: int) -> None:
    """Add sessions without secrets."""
    for number in range(sessions):
        store.session(f"cli:{number}", title=f"title {number}").append(
            [user_message(f"common words {number} {n} and something more") for n in range(messages)]
        )


def encodings(value: str) -> set[bytes]:
    """Return a word in every encoding that the file could contain: also as a tag, and case-folded."""
    variants = set()
    for text in (value, value.lower(), value.upper(), value.replace("É", "e"), value.replace("É", "é")):
        variants |= {text.encode(), text.encode("utf-16-le"), text.encode().hex().encode(), text[3:].encode()}
    return variants


def find_secrets(folder: str, suffix: str = "") -> list[tuple[str, str]]:
    """Return the secrets that the files of a folder contain."""
    secrets_found = []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read().lower()
        secrets_found += [
            (name, secret_name)
            for secret_name, value in SECRETS.items()
            for form in encodings(value + suffix)
            if form.lower() in data
        ]
    return secrets_found


def copy_files(path: str, tmp_path) -> str:
    """Copy the files of an open store and return the folder."""
    folder = tmp_path / "copy"
    folder.mkdir(exist_ok=True)
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            shutil.copyfile(path + suffix, folder / f"copy.db{suffix}")
    return str(folder)


def check_index(path: str) -> None:
    """Run FTS5's integrity check on both indexes, and compare the number of messages."""
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


class TestErase:
    """Erased words are not in the file, its WAL, or a copy that was taken while the store was open."""

    @pytest.mark.parametrize(("sessions", "messages"), [(0, 0), (3, 5), (40, 60)])
    @pytest.mark.parametrize("deletion", ["rewrite", "secure", "either"])
    def test_erasing_removes_every_word(self, path, tmp_path, monkeypatch, sessions, messages, deletion):
        if deletion != "either":
            monkeypatch.setattr(search, "_REWRITE_FACTOR", 1 << 40 if deletion == "rewrite" else 0)
        folder = tmp_path / "store"
        folder.mkdir()
        path = str(folder / "recollect.db")
        with recollect.open(path) as store:
            add_sessions(store, sessions, messages)
            add_secret_session(store)
            common_hits = len(store.search("common", 1_000))
            for word in SECRETS.values():
                assert word == SECRETS["old title"] or store.search(word), word
            assert {secret_name for _, secret_name in find_secrets(copy_files(path, tmp_path))} >= SECRETS.keys() - {
                "old title"
            }
            store.erase_session("cli:secret")
            assert find_secrets(copy_files(path, tmp_path)) == []
            for word in SECRETS.values():
                assert store.search(word) == store.search(word[3:]) == []
            assert len(store.search("common", 1_000)) == common_hits
        assert find_secrets(str(folder)) == []
        if sessions:
            check_index(path)

    def test_erasing_many_sessions_removes_every_word(self, path, tmp_path):
        names = ["ab", "cd", "ef", "gh", "ij"]
        with recollect.open(path) as store:
            add_sessions(store, 5, 100)
            for name in names:
                add_secret_session(store, f"cli:{name}", name)
                store.maintenance.index()
            for name in names:
                store.erase_session(f"cli:{name}")
                assert find_secrets(copy_files(path, tmp_path), name) == []
                assert len(store.search("common", 1_000)) == 500
        check_index(path)

    def test_erasing_before_indexing_leaves_no_word(self, path, tmp_path):
        with recollect.open(path) as store:
            add_secret_session(store)
            store.erase_session("cli:secret")
            assert find_secrets(copy_files(path, tmp_path)) == []

    def test_erasing_with_secure_delete_and_rewrite(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr(search, "_REWRITE_FACTOR", 300)
        with recollect.open(path) as store:
            add_sessions(store, 2, 700)
            add_secret_session(store)
            store.maintenance.index()
            store.erase_session("cli:secret")
            assert find_secrets(copy_files(path, tmp_path)) == []
            assert store.maintenance.index() == 0
            assert len(store.search("words NOT nothing", 1_000, session="cli:0")) == 700
        check_index(path)

    def test_erasing_keeps_the_words_that_a_fork_shares(self, path, tmp_path):
        with recollect.open(path) as store:
            add_sessions(store, 2, 400)
            add_secret_session(store)
            store.session("cli:secret").fork(at=1, id="cli:fork", title="other")
            store.maintenance.index()
            store.erase_session("cli:secret", forks="keep")
            secrets_found = {secret_name for _, secret_name in find_secrets(copy_files(path, tmp_path))}
            assert secrets_found == {"text", "accent"}
            assert [hit.session for hit in store.search("wombattext")] == ["cli:fork"]
            store.erase_session("cli:fork")
            assert find_secrets(copy_files(path, tmp_path)) == []
        check_index(path)

    def test_erasing_a_turn_that_continued_after_indexing(self, path, tmp_path):
        with recollect.open(path) as store:
            add_sessions(store, 2, 400)
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
            assert find_secrets(copy_files(path, tmp_path)) == []
        check_index(path)

    def test_erasing_tool_calls_with_late_results(self, path, monkeypatch):
        """A message has the same words when it is removed as when it was indexed, also in pages of another size."""
        monkeypatch.setattr(index, "CALL_DISTANCE", 20)
        with recollect.open(path) as store:
            session = store.session("cli:a")
            for number in range(30):
                call = {"type": "tool_use", "id": f"t{number}", "name": f"tool{number}", "input": {}}
                session.append([{"role": "assistant", "content": [call]}])
                monkeypatch.setattr(index, "PAGE_SIZE", 1 + number % 7)
                store.maintenance.index()
                session.append([user_message("between")] * (1 + number % 23))
                block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"result{number}"}
                session.append({"role": "user", "content": [block]})
            monkeypatch.setattr(index, "PAGE_SIZE", 13)
            store.maintenance.index()
            store.session("cli:b").append(user_message("stays"))
            store.maintenance.index()
            store.erase_session("cli:a")
            assert [hit.text for hit in store.search("NOT nothing")] == ["stays"]
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, search_index, row)")
            words = {row[0] for row in connection.execute("SELECT term FROM temp.vocabulary")}
            connection.close()
            assert words == {"stays", "a", "r" + b"user".hex()}
        check_index(path)


DAMAGE = {
    # Not random bytes: FTS5 takes 1% of those for a leaf without the word, which only a check finds.
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
    """The index can be built again from the messages, so damage to it loses nothing."""

    @pytest.fixture(params=DAMAGE.values(), ids=DAMAGE)
    def damaged_path(self, path, request):
        with recollect.open(path) as store:
            add_sessions(store, 3, 50)
            store.maintenance.index()
        connection = apsw.Connection(path)
        connection.execute(request.param)
        connection.close()
        return path

    def test_the_next_search_repairs_the_index(self, damaged_path):
        with recollect.open(damaged_path) as store:
            assert len(store.search("common", 1_000)) == 150
            assert len(store.search("title")) == 3
            assert len(store.search("omething common", 1_000)) == 150
            store.maintenance.reindex()
            assert len(store.search("common", 1_000)) == 150
        check_index(damaged_path)

    def test_the_index_is_repaired_after_further_appends(self, damaged_path):
        with recollect.open(damaged_path) as store:
            add_sessions(store, 4, 1)
            store.session("cli:0").update(title="renamed")
            assert len(store.search("common", 1_000)) == 154
            assert len(store.search("renamed")) == 1
            assert len(store.search("title")) == 3
        check_index(damaged_path)

    @pytest.mark.parametrize("table", ["search_index", "search_titles"])
    def test_an_index_that_looks_empty_is_repaired_when_messages_are_added(self, path, table):
        with recollect.open(path) as store:
            add_sessions(store, 3, 50)
            store.maintenance.index()
        connection = apsw.Connection(path)
        connection.execute(f"UPDATE {table}_data SET block = x'00' WHERE id = 10")
        connection.close()
        with recollect.open(path) as store:
            add_sessions(store, 4, 1)
            assert len(store.search("common", 1_000)) == 154
            assert len(store.search("title")) == 4
        check_index(path)

    def test_a_damaged_index_does_not_fail_a_write(self, damaged_path):
        with recollect.open(damaged_path) as store:
            store.session("cli:0").append(user_message("one more common"))
            store.session("cli:1").update(title="renamed")
            store.session("cli:0").fork(id="cli:fork").append(user_message("common"))
            store.delete_session("cli:2")
            assert store.erase_session("cli:1") == ["cli:1"]
            store.restore_session("cli:2")
            assert len(store.search("title")) == 3
            assert len(store.search("common", 1_000)) == 102
        check_index(damaged_path)

    def test_a_damaged_index_does_not_fail_concurrent_writes(self, damaged_path):
        async def main() -> None:
            async with recollect.open_async(damaged_path) as store:
                sessions = [await store.session(f"new:{number}") for number in range(8)]
                appends = [session.append(user_message("common")) for session in sessions]
                hits, *_ = await asyncio.gather(store.search("common", 1_000), *appends, store.erase_session("cli:1"))
                assert len(hits) >= 100
                assert len(await store.search("title")) == 2
                assert len(await store.search("common", 1_000)) == 108

        asyncio.run(main())
        check_index(damaged_path)


class TestProcesses:
    """Several processes at once, and killed ones."""

    def test_kill_while_indexing_loses_nothing(self, path, spawn, check_database):
        with recollect.open(path) as store:
            add_sessions(store, 6, 40)
        for steps in range(1, 8):
            child = spawn("update_search_index", path)
            assert child.stdout.readline() == b"ready\n"
            child.stdin.write(b"go\n")
            for _ in range(steps):
                assert child.stdout.readline() in (b"step\n", b"done 0\n")
            child.kill()
            child.wait()
        with recollect.open(path) as store:
            assert len(store.search("common", 1_000)) == 240
            assert len(store.search("title")) == 6
        check_index(path)
        check_database(path)

    def test_processes_index_concurrently(self, path, spawn):
        with recollect.open(path) as store:
            add_sessions(store, 8, 50)
        children = [spawn("update_search_index", path) for _ in range(3)]
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"go\n")
        lines = [child.communicate(timeout=60) for child in children]
        assert [stderr for _, stderr in lines] == [b""] * 3
        assert sum(int(out.decode().split()[-1]) for out, _ in lines) == 400
        check_index(path)
        with recollect.open(path) as store:
            assert store.maintenance.index() == 0
            assert len(store.search("common", 1_000)) == 400

    def test_processes_append_and_search_concurrently(self, path, spawn, check_database):
        recollect.open(path).close()
        children = [spawn("append_and_search", path, number, 40) for number in range(4)]
        children += [spawn("search_repeatedly", path, 25) for _ in range(2)]
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"go\n")
        assert [child.communicate(timeout=120)[1] for child in children] == [b""] * 6
        with recollect.open(path) as store:
            assert len(store.search("word", 1_000)) == 160
        check_index(path)
        check_database(path)

    def test_the_unfinished_answer_of_a_killed_process_is_indexed(self, path, spawn):
        child = spawn("hold_turn", path, "cli:a", "streaming")
        assert child.stdout.readline() == b"open\n"
        with recollect.open(path) as store:
            assert [hit.message for hit in store.search("half OR mine")] == ["1.1"]
            child.kill()
            child.wait()
            assert {hit.message for hit in store.search("half OR mine")} == {"1.1", "1.2"}
        check_index(path)


class TestReadOnly:
    """If the index cannot be updated, a search uses the indexed messages."""

    def test_search_in_a_locked_file_uses_the_existing_index(self, path, spawn):
        with recollect.open(path) as store:
            add_sessions(store, 2, 10)
            store.maintenance.index()
            add_sessions(store, 3, 1)
        child = spawn("hold_write_lock", path)
        assert child.stdout.readline() == b"locked\n"
        with recollect.open(path, timeout=0.1) as store:
            assert len(store.search("common", 1_000)) == 20
            child.stdin.write(b"go\n")
            assert child.stdout.readline() == b"free\n"
            assert len(store.search("common", 1_000)) == 23

    def test_search_in_a_read_only_file_uses_the_existing_index(self, path):
        with recollect.open(path) as store:
            add_sessions(store, 1, 10)
            store.maintenance.index()
            add_sessions(store, 2, 1)
            store._engine._file.writer.execute("PRAGMA query_only = ON")  # pyright: ignore[reportAttributeAccessIssue]
            assert len(store.search("common", 1_000)) == 10
            with pytest.raises(recollect.errors.StoreReadOnly):
                store.maintenance.index()
            store._engine._file.writer.execute("PRAGMA query_only = OFF")  # pyright: ignore[reportAttributeAccessIssue]
            assert len(store.search("common", 1_000)) == 12


class TestPools:
    """A query with more matches than are ranked at once."""

    @pytest.mark.parametrize("pool", [1, 2, 7])
    def test_pages_have_every_hit_once_with_a_small_ranking_pool(self, path, monkeypatch, pool):
        monkeypatch.setattr(retrieval, "POOL_SIZE", pool)
        with recollect.open(path) as store:
            for number in range(5):
                store.session(f"cli:{number}", title=f"common {number}").append(
                    [user_message(f"common {'filler ' * (n % 4)} {number}") for n in range(9)]
                )
                store.session(f"cli:{number}").append(user_message(f"uncommonly {number}"))
            session = store.session("cli:2")
            before = {
                (f"cli:{number}", message)
                for number in range(5)
                for message in [None, *(f"1.{n}" for n in range(1, 11))]
            }
            page = store.search("common", 4)
            hit_ids = [(hit.session, hit.message) for hit in page]
            for number in range(1_000):
                session.append(user_message(f"common {number}"))
                store.session(f"new:{number}", title="common").append(user_message("common"))
                page = store.search("common", 4, after=page.next)
                assert page
                hit_ids += [(hit.session, hit.message) for hit in page]
                if page.next is None:
                    break
            assert page.next is None
            assert len(hit_ids) == len(set(hit_ids))
            assert before <= set(hit_ids)
