"""The search index: it follows every change, contains everything committed before, and can be rebuilt."""

from __future__ import annotations

import contextlib

import pytest

from recollect.errors import RecollectError
from recollect.store import Store
from recollect_conformance.concurrency import run_concurrently
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import ANTHROPIC_RESPONSE, assistant, tool_call_message, tool_result_message, user
from recollect_conformance.search import find_name_set, find_names, search, session_with
from recollect_conformance.turns import SHORT_LEASE, wait_for_lease


class TestSearchChanges:
    """Searches find the current state after every change."""

    def test_rename_a_session(self, store: Store):
        session = store.session("a", title="Old heron")
        assert find_names(store, "heron") == ["title of a"]
        session.update(title="New stork")
        assert find_names(store, "heron") == []
        assert find_names(store, "stork") == ["title of a"]
        session.update(title=None)
        assert find_names(store, "stork") == []
        session.update(title="Old heron", status="failed")
        assert find_names(store, "heron") == find_names(store, "heron status:failed") == ["title of a"]
        assert find_names(store, "eron") == ["title of a"]

    def test_trash_and_restore(self, store: Store):
        session_with(store, "a heron", title="heron")
        assert find_name_set(store, "heron") == {"title of a", "1.1"}
        store.delete_session("a")
        assert find_names(store, "heron") == find_names(store, "session:a heron") == []
        assert find_name_set(store, "heron", deleted=True) == {"title of a", "1.1"}
        assert find_names(store, "heron", deleted=True, session="a") == ["1.1"]
        assert all(hit.deleted_at for hit in search(store, "heron", deleted=True))
        store.restore_session("a")
        assert find_name_set(store, "heron") == {"title of a", "1.1"}
        assert find_names(store, "heron", deleted=True) == []

    def test_a_new_session_with_the_id_of_one_in_the_trash(self, store: Store):
        session_with(store, "old heron")
        store.delete_session("a")
        session_with(store, "new heron", "one more heron")
        assert [hit.text for hit in search(store, "heron old", session="a")] == []
        assert [hit.text for hit in search(store, "heron", session="a", deleted=True)] == ["old heron"]
        assert {hit.text for hit in search(store, "heron", session="a")} == {"new heron", "one more heron"}

    @pytest.mark.parametrize("indexed", [True, False])
    def test_erase(self, store: Store, indexed: bool):
        session_with(store, "a heron", "sandpiper", title="heron")
        session_with(store, "another heron", id="b")
        if indexed:
            store.maintenance.index()
        store.erase_session("a")
        assert find_names(store, "heron") == ["b:1.1"]
        assert (
            find_names(store, "sandpiper")
            == find_names(store, "andpip")
            == find_names(store, "heron", deleted=True)
            == []
        )
        session_with(store, "sandpiper")
        assert find_names(store, "andpip") == ["1.1"]

    def test_delete_and_restore_a_message(self, store: Store):
        session = session_with(store, "heron one", "heron two")
        fork = session.fork(id="f")
        assert find_name_set(store, "heron") == {"1.1", "1.2"}
        session.delete_messages(["1.1"])
        assert find_names(store, "heron") == ["1.2"]
        assert find_names(store, "heron", session="f") == ["f:1.2"]
        fork.restore_messages(["1.1"])
        assert find_name_set(store, "heron") == {"1.1", "1.2"}

    def test_a_message_that_is_deleted_before_it_is_indexed(self, store: Store):
        session = session_with(store, "heron one", "heron two")
        session.delete_messages(["1.1"])
        assert find_names(store, "heron") == ["1.2"]
        session.restore_messages(["1.1"])
        assert find_name_set(store, "heron") == {"1.1", "1.2"}

    def test_rewind_and_switch(self, store: Store):
        session = session_with(store, "heron one", "heron two")
        store.maintenance.index()
        session.rewind(1)
        session.append(user("heron three"))
        assert find_name_set(store, "heron") == {"1.1", "1.2", "2.2"}
        session.branches.switch(1)
        session.append(user("heron four"))
        assert find_name_set(store, "heron") == {"1.1", "1.2", "1.3", "2.2"}
        session.branches.switch(2)
        session.append(user("heron five"))
        assert find_name_set(store, "heron", session="a") == {"1.1", "1.2", "1.3", "2.2", "2.3"}

    def test_a_streaming_answer_is_found_when_it_is_closed(self, store: Store):
        session = session_with(store, "about a heron")
        turn = session.turn("where is the heron?")
        answer = turn.stream()
        answer.write("The heron ")
        answer.flush()
        assert find_name_set(store, "heron") == {"1.1", "1.2"}
        answer.write("sits on a stone.")
        answer.close()
        assert find_name_set(store, "heron") == {"1.1", "1.2", "1.3"}
        assert find_names(store, "stone") == ["1.3"]
        turn.complete()
        assert find_names(store, "stone") == ["1.3"]

    def test_messages_after_a_streaming_answer_are_found_immediately(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        answer = turn.stream()
        for number in range(3):
            session.append(user(f"heron {number}"))
            assert len(find_names(store, "heron")) == number + 1
            assert store.maintenance.index() == 0
        answer.write("heron")
        answer.close()
        turn.complete()
        assert find_name_set(store, "heron") == {"1.2", "1.3", "1.4", "1.5"}
        assert store.maintenance.reindex() == 5
        assert find_name_set(store, "heron") == {"1.2", "1.3", "1.4", "1.5"}
        store.erase_session("a")
        assert find_names(store, "heron") == []

    def test_a_session_is_erased_while_its_answer_streams(self, store: Store):
        session = store.session("a")
        answer = session.turn("q").stream()
        session.append(user("heron"))
        assert find_names(store, "heron") == ["1.3"]
        store.erase_session("a")
        with contextlib.suppress(RecollectError):
            answer.close()
        assert find_names(store, "heron") == []

    def test_an_answer_that_is_closed_with_a_message(self, store: Store):
        with store.session("a").turn("q") as turn:
            answer = turn.stream()
            answer.write("something else")
            answer.flush()
            assert find_names(store, "else") == []
            answer.close(ANTHROPIC_RESPONSE)
        assert find_names(store, "else") == []
        assert find_name_set(store, "tool:read_file") == {"1.2"}

    def test_turns_that_end_early(self, store: Store):
        session = store.session("a")
        answer = session.turn("first heron").stream()
        answer.write("half a heron")
        answer.flush()
        answer.turn.cancel()
        assert find_name_set(store, "heron") == {"1.1", "1.2"}
        turn = session.turn("second heron")
        turn.add(assistant("heron"))
        turn.fail("oh")
        assert find_name_set(store, "heron") == {"1.1", "1.2", "1.3", "1.4"}

    def test_a_turn_that_continues_after_it_was_interrupted(self, store: Store):
        session = store.session("a")
        turn = session.turn("q", lease=SHORT_LEASE)
        answer = turn.stream()
        answer.write("half a heron")
        answer.flush()
        wait_for_lease()
        assert find_names(store, "heron") == ["1.2"]
        answer.write(" and a whole stork")
        answer.close()
        turn.complete()
        assert find_names(store, "heron") == find_names(store, "stork") == ["1.2"]
        store.erase_session("a")
        assert find_names(store, "heron OR stork OR whole") == []

    def test_a_message_with_the_state_pending_is_found(self, store: Store):
        session = store.session("a")
        for state in ("pending", "streaming", "interrupted", "error"):
            session.append({"role": "user", "content": "a heron", "state": state}, format="recollect")
        session.append(user("the last heron"))
        assert len(find_names(store, "heron")) == 5

    @pytest.mark.parametrize("indexed", [True, False])
    def test_a_fork_of_an_erased_origin(self, store: Store, indexed: bool):
        session = session_with(store, "heron one", "heron two", "heron three", title="wader")
        session.fork(at=2, id="f", title="other").append(user("heron four"))
        store.session("f").fork(id="g")
        if indexed:
            store.maintenance.index()
        store.erase_session("a", forks="keep")
        hits = search(store, "heron")
        assert sorted(hit.text for hit in hits) == ["heron four", "heron one", "heron two"]
        assert {hit.session for hit in hits} <= {"f", "g"}
        assert find_name_set(store, "heron", session="f") == {"f:1.1", "f:1.2", "f:2.3"}
        assert find_names(store, "three") == []
        store.erase_session("f", forks="erase")
        assert find_names(store, "heron") == []

    def test_a_fork_of_an_origin_in_the_trash(self, store: Store):
        session = session_with(store, "heron one", "heron two")
        session.fork(at=1, id="f")
        store.delete_session("a")
        assert find_names(store, "heron") == ["f:1.1"]
        assert find_name_set(store, "heron", deleted=True) == {"1.1", "1.2"}
        store.delete_session("f")
        assert find_names(store, "heron") == []
        store.restore_session("a")
        assert find_name_set(store, "heron") == {"1.1", "1.2"}

    def test_forks_are_erased_with_their_own_messages(self, store: Store):
        session = session_with(store, "heron one")
        fork = session.fork(id="f")
        fork.append([tool_call_message("t", tool="fly"), tool_result_message("t", text="stork")])
        assert find_name_set(store, "stork OR fly OR heron") == {"1.1", "f:2.2", "f:2.3"}
        store.erase_session("f")
        assert find_names(store, "stork OR fly OR heron") == ["1.1"]

    def test_calls_that_are_answered_much_later(self, store: Store):
        """Check that a message is removed from the index with the same words with which it was added."""
        session = store.session("a")
        session.append([user("start"), tool_call_message("t", tool="fly")])
        store.maintenance.index()
        for _ in range(6):
            session.append([user(f"m{n}") for n in range(197)])
            store.maintenance.index()
        session.append(tool_result_message("t", text="late"))
        session.append([tool_call_message("u", tool="swim"), user("x"), tool_result_message("u", text="soon")])
        session_with(store, "keeps the index from being empty", id="b")
        before = find_name_set(store, "tool:fly OR tool:swim")
        store.maintenance.reindex()
        assert find_name_set(store, "tool:fly OR tool:swim") == before
        store.erase_session("a")
        assert (
            find_names(store, "tool:fly")
            == find_names(store, "tool:swim")
            == find_names(store, "NOT nothing", session="b")[1:]
            == []
        )

    def test_large_results_stored_as_blobs_are_found(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("t"), tool_result_message("t", text="heron " + "x y z " * 40_000)])
        session.fork(id="f").append(
            [tool_call_message("u"), tool_result_message("u", text="heron " + "x y z " * 40_000)]
        )
        assert find_name_set(store, "heron") == {"1.2", "f:2.4"}
        store.erase_session("a", forks="keep")
        assert find_name_set(store, "heron") == {"f:1.2", "f:2.4"}
        store.erase_session("f")
        assert find_names(store, "heron") == []


class TestSearchIndex:
    """Updating and rebuilding the index."""

    def test_index_and_reindex_return_counts(self, store: Store):
        assert (store.maintenance.index(), store.maintenance.reindex()) == (0, 0)
        session = session_with(store, *(f"word {n}" for n in range(450)), title="word")
        assert store.maintenance.index() == 450
        assert store.maintenance.index() == 0
        session.append(user("one more"))
        session.rewind(10)
        session.append([user("another"), user("branch")])
        assert store.maintenance.index() == 3
        assert store.maintenance.reindex() == 453
        assert store.maintenance.index() == 0
        assert len(store.search("word", 1000)) == 451

    def test_searching_counts_as_indexing(self, store: Store):
        session_with(store, "one", "two")
        store.search("one")
        assert store.maintenance.index() == 0

    def test_index_after_an_erasure(self, store: Store):
        session_with(store, "one", "two")
        session_with(store, "three", id="b")
        assert store.maintenance.index() == 3
        store.erase_session("a")
        assert store.maintenance.index() <= 1
        assert (store.maintenance.index(), store.maintenance.reindex()) == (0, 1)
        session_with(store, "four")
        assert store.maintenance.index() == 1

    def test_a_rebuilt_index_returns_the_same_hits(self, store: Store):
        session = session_with(store, "heron", "stork", title="heron and stork")
        session.fork(at=1, id="f", title="crane").append(
            [tool_call_message("t", tool="crane"), tool_result_message("t", text="heron")]
        )
        session.delete_messages([2])
        queries = ("heron", "stork", "crane", "ron", "tool:crane", "NOT heron", "heron OR stork")
        before = [search(store, query) for query in queries]
        store.maintenance.reindex()
        store.maintenance.reindex()
        assert [search(store, query) for query in queries] == before

    def test_concurrent_searches_and_writes(self, store: Store):
        def work(number: int) -> None:
            session = store.session(f"s{number % 3}")
            for n in range(8):
                ids = session.append(user(f"word by{number} n{n}")).ids
                hits = store.search(f"by{number} n{n}")
                assert [hit.message for hit in hits] == ids

        run_concurrently(work)
        assert len(store.search("word", 1000)) == 64
        assert store.maintenance.index() == 0
        assert store.maintenance.reindex() == 64

    def test_a_search_is_complete_while_others_erase_and_rebuild(self, store: Store):
        session_with(store, *["heron"] * 40)

        def work(number: int) -> None:
            for n in range(6):
                if number < 2:
                    session_with(store, "stork", "stork", id=f"s{number}.{n}")
                    store.maintenance.index()
                    store.erase_session(f"s{number}.{n}")
                elif number == 2:
                    store.maintenance.reindex()
                else:
                    assert len(store.search("heron", 1000)) == 40

        run_concurrently(work, 6)


class TestSearchIndexSeveralStores:
    """Several stores on one database."""

    def test_a_search_finds_messages_that_another_store_committed(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        session = other.session("a", title="heron")
        assert find_names(store, "heron") == ["title of a"]
        for number in range(5):
            session.append(user(f"heron {number}"))
            assert len(store.search("heron")) == number + 2
            assert len(other.search(f"heron {number}")) == 1
        store.erase_session("a")
        assert list(other.search("heron")) == []
        assert list(database.reopen().search("heron")) == []

    def test_stores_update_the_index_concurrently(self, store: Store, database: DatabaseUnderTest):
        stores = [store, *(database.open() for _ in range(3))]
        for number in range(20):
            session_with(store, *["heron"] * 30, id=f"s{number}", title="heron")
        counts = run_concurrently(lambda number: stores[number].maintenance.index(), len(stores))
        assert sum(counts) == 600
        for other in stores:
            assert len(other.search("heron", 1000)) == 620

    def test_owners_are_separate(self, store: Store, database: DatabaseUnderTest):
        ann, bob = database.open("ann"), database.open("bob")
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            session = session_with(other, f"heron of {name}", title=f"heron {name}")
            session.fork(id="f", title=f"fork {name}").append(user("heron forked"))
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            assert {hit.title for hit in search(other, "heron")} == {f"heron {name}", f"fork {name}"}
            assert len(search(other, "heron")) == 3
            others = {"nobody", "ann", "bob"} - {name}
            assert [hit.title for word in others for hit in search(other, word)] == []
            assert find_names(other, "eron session:a") == ["1.1"]
        ann.delete_session("a")
        assert len(search(ann, "heron", deleted=True)) == 2
        assert search(bob, "heron", deleted=True) == search(store, "heron", deleted=True) == []
        bob.erase_session("a", forks="erase")
        assert find_names(bob, "heron") == []
        assert len(search(store, "heron")) == 3
        assert ann.maintenance.reindex() == 2
        assert len(search(store, "heron")) == 3
        assert len(search(ann, "heron")) == 2
