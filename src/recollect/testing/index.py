"""The search index: it follows every change, sees what was committed before, and can be made anew."""

from __future__ import annotations

import contextlib

import pytest

from recollect.errors import RecollectError
from recollect.store import Store
from recollect.testing.concurrency import at_once
from recollect.testing.place import Place
from recollect.testing.search import found, said, search, some
from recollect.testing.talk import ANTHROPIC_RESPONSE, answers, asks, assistant, user
from recollect.testing.turns import SHORT, after_the_lease


class TestSearchChanges:
    """What was changed is found as it is now."""

    def test_a_rename(self, store: Store):
        session = store.session("a", title="Old heron")
        assert found(store, "heron") == ["title of a"]
        session.update(title="New stork")
        assert found(store, "heron") == []
        assert found(store, "stork") == ["title of a"]
        session.update(title=None)
        assert found(store, "stork") == []
        session.update(title="Old heron", status="failed")
        assert found(store, "heron") == found(store, "heron status:failed") == ["title of a"]
        assert found(store, "eron") == ["title of a"]

    def test_trash_and_restore(self, store: Store):
        said(store, "a heron", title="heron")
        assert some(store, "heron") == {"title of a", "1.1"}
        store.delete_session("a")
        assert found(store, "heron") == found(store, "session:a heron") == []
        assert some(store, "heron", deleted=True) == {"title of a", "1.1"}
        assert found(store, "heron", deleted=True, session="a") == ["1.1"]
        assert all(hit.deleted_at for hit in search(store, "heron", deleted=True))
        store.restore_session("a")
        assert some(store, "heron") == {"title of a", "1.1"}
        assert found(store, "heron", deleted=True) == []

    def test_a_new_session_with_the_id_of_one_in_the_trash(self, store: Store):
        said(store, "old heron")
        store.delete_session("a")
        said(store, "new heron", "one more heron")
        assert [hit.text for hit in search(store, "heron old", session="a")] == []
        assert [hit.text for hit in search(store, "heron", session="a", deleted=True)] == ["old heron"]
        assert {hit.text for hit in search(store, "heron", session="a")} == {"new heron", "one more heron"}

    @pytest.mark.parametrize("indexed", [True, False])
    def test_erase(self, store: Store, indexed: bool):
        said(store, "a heron", "sandpiper", title="heron")
        said(store, "another heron", id="b")
        if indexed:
            store.index()
        store.erase_session("a")
        assert found(store, "heron") == ["b:1.1"]
        assert found(store, "sandpiper") == found(store, "andpip") == found(store, "heron", deleted=True) == []
        said(store, "sandpiper")
        assert found(store, "andpip") == ["1.1"]

    def test_a_deleted_message_and_back(self, store: Store):
        session = said(store, "heron one", "heron two")
        fork = session.fork(id="f")
        assert some(store, "heron") == {"1.1", "1.2"}
        session.delete_message("1.1")
        assert found(store, "heron") == ["1.2"]
        assert found(store, "heron", session="f") == ["f:1.2"]
        fork.restore_message("1.1")
        assert some(store, "heron") == {"1.1", "1.2"}

    def test_a_message_that_is_deleted_before_it_is_indexed(self, store: Store):
        session = said(store, "heron one", "heron two")
        session.delete_message("1.1")
        assert found(store, "heron") == ["1.2"]
        session.restore_message("1.1")
        assert some(store, "heron") == {"1.1", "1.2"}

    def test_rewind_and_switch(self, store: Store):
        session = said(store, "heron one", "heron two")
        store.index()
        session.rewind(1)
        session.append(user("heron three"))
        assert some(store, "heron") == {"1.1", "1.2", "2.2"}
        session.switch(1)
        session.append(user("heron four"))
        assert some(store, "heron") == {"1.1", "1.2", "1.3", "2.2"}
        session.switch(2)
        session.append(user("heron five"))
        assert some(store, "heron", session="a") == {"1.1", "1.2", "1.3", "2.2", "2.3"}

    def test_a_streaming_answer_is_found_when_it_is_closed(self, store: Store):
        session = said(store, "about a heron")
        turn = session.turn("where is the heron?")
        answer = turn.stream()
        answer.write("The heron ")
        answer.flush()
        assert some(store, "heron") == {"1.1", "1.2"}
        answer.write("sits on a stone.")
        answer.close()
        assert some(store, "heron") == {"1.1", "1.2", "1.3"}
        assert found(store, "stone") == ["1.3"]
        turn.complete()
        assert found(store, "stone") == ["1.3"]

    def test_what_comes_after_a_streaming_answer_is_found_at_once(self, store: Store):
        session = store.session("a")
        turn = session.turn("q")
        answer = turn.stream()
        for number in range(3):
            session.append(user(f"heron {number}"))
            assert len(found(store, "heron")) == number + 1
            assert store.index() == 0
        answer.write("heron")
        answer.close()
        turn.complete()
        assert some(store, "heron") == {"1.2", "1.3", "1.4", "1.5"}
        assert store.reindex() == 5
        assert some(store, "heron") == {"1.2", "1.3", "1.4", "1.5"}
        store.erase_session("a")
        assert found(store, "heron") == []

    def test_a_session_is_erased_while_its_answer_streams(self, store: Store):
        session = store.session("a")
        answer = session.turn("q").stream()
        session.append(user("heron"))
        assert found(store, "heron") == ["1.3"]
        store.erase_session("a")
        with contextlib.suppress(RecollectError):
            answer.close()
        assert found(store, "heron") == []

    def test_an_answer_that_is_closed_with_a_message(self, store: Store):
        with store.session("a").turn("q") as turn:
            answer = turn.stream()
            answer.write("something else")
            answer.flush()
            assert found(store, "else") == []
            answer.close(ANTHROPIC_RESPONSE)
        assert found(store, "else") == []
        assert some(store, "tool:read_file") == {"1.2"}

    def test_turns_that_end_early(self, store: Store):
        session = store.session("a")
        answer = session.turn("first heron").stream()
        answer.write("half a heron")
        answer.flush()
        answer.turn.cancel()
        assert some(store, "heron") == {"1.1", "1.2"}
        turn = session.turn("second heron")
        turn.add(assistant("heron"))
        turn.fail("oh")
        assert some(store, "heron") == {"1.1", "1.2", "1.3", "1.4"}

    def test_a_turn_that_goes_on_after_it_was_interrupted(self, store: Store):
        session = store.session("a")
        turn = session.turn("q", lease=SHORT)
        answer = turn.stream()
        answer.write("half a heron")
        answer.flush()
        after_the_lease()
        assert found(store, "heron") == ["1.2"]
        answer.write(" and a whole stork")
        answer.close()
        turn.complete()
        assert found(store, "heron") == found(store, "stork") == ["1.2"]
        store.erase_session("a")
        assert found(store, "heron OR stork OR whole") == []

    def test_a_message_that_says_it_is_pending_is_found(self, store: Store):
        session = store.session("a")
        for state in ("pending", "streaming", "interrupted", "error"):
            session.append({"role": "user", "content": "a heron", "state": state}, format="recollect")
        session.append(user("the last heron"))
        assert len(found(store, "heron")) == 5

    @pytest.mark.parametrize("indexed", [True, False])
    def test_a_fork_of_an_erased_origin(self, store: Store, indexed: bool):
        session = said(store, "heron one", "heron two", "heron three", title="wader")
        session.fork(at=2, id="f", title="other").append(user("heron four"))
        store.session("f").fork(id="g")
        if indexed:
            store.index()
        store.erase_session("a", forks="keep")
        hits = search(store, "heron")
        assert sorted(hit.text for hit in hits) == ["heron four", "heron one", "heron two"]
        assert {hit.session for hit in hits} <= {"f", "g"}
        assert some(store, "heron", session="f") == {"f:1.1", "f:1.2", "f:2.3"}
        assert found(store, "three") == []
        store.erase_session("f", forks="erase")
        assert found(store, "heron") == []

    def test_a_fork_of_an_origin_in_the_trash(self, store: Store):
        session = said(store, "heron one", "heron two")
        session.fork(at=1, id="f")
        store.delete_session("a")
        assert found(store, "heron") == ["f:1.1"]
        assert some(store, "heron", deleted=True) == {"1.1", "1.2"}
        store.delete_session("f")
        assert found(store, "heron") == []
        store.restore_session("a")
        assert some(store, "heron") == {"1.1", "1.2"}

    def test_forks_are_erased_with_what_is_theirs_alone(self, store: Store):
        session = said(store, "heron one")
        fork = session.fork(id="f")
        fork.append([asks("t", tool="fly"), answers("t", text="stork")])
        assert some(store, "stork OR fly OR heron") == {"1.1", "f:2.2", "f:2.3"}
        store.erase_session("f")
        assert found(store, "stork OR fly OR heron") == ["1.1"]

    def test_calls_that_are_answered_long_after(self, store: Store):
        """A message must be taken out of the index with the same words with which it was put in."""
        session = store.session("a")
        session.append([user("start"), asks("t", tool="fly")])
        store.index()
        for _ in range(6):
            session.append([user(f"m{n}") for n in range(197)])
            store.index()
        session.append(answers("t", text="late"))
        session.append([asks("u", tool="swim"), user("x"), answers("u", text="soon")])
        said(store, "keeps the index from being empty", id="b")
        before = some(store, "tool:fly OR tool:swim")
        store.reindex()
        assert some(store, "tool:fly OR tool:swim") == before
        store.erase_session("a")
        assert (
            found(store, "tool:fly") == found(store, "tool:swim") == found(store, "NOT nothing", session="b")[1:] == []
        )

    def test_large_results_are_kept_apart_and_found(self, store: Store):
        session = store.session("a")
        session.append([asks("t"), answers("t", text="heron " + "x y z " * 40_000)])
        session.fork(id="f").append([asks("u"), answers("u", text="heron " + "x y z " * 40_000)])
        assert some(store, "heron") == {"1.2", "f:2.4"}
        store.erase_session("a", forks="keep")
        assert some(store, "heron") == {"f:1.2", "f:2.4"}
        store.erase_session("f")
        assert found(store, "heron") == []


class TestSearchIndex:
    """Bringing it up to date, and making it anew."""

    def test_counts(self, store: Store):
        assert (store.index(), store.reindex()) == (0, 0)
        session = said(store, *(f"word {n}" for n in range(450)), title="word")
        assert store.index() == 450
        assert store.index() == 0
        session.append(user("one more"))
        session.rewind(10)
        session.append([user("aside"), user("and on")])
        assert store.index() == 3
        assert store.reindex() == 453
        assert store.index() == 0
        assert len(store.search("word", 1000)) == 451

    def test_searching_counts_as_indexing(self, store: Store):
        said(store, "one", "two")
        store.search("one")
        assert store.index() == 0

    def test_after_an_erasure(self, store: Store):
        said(store, "one", "two")
        said(store, "three", id="b")
        assert store.index() == 3
        store.erase_session("a")
        assert store.index() <= 1
        assert (store.index(), store.reindex()) == (0, 1)
        said(store, "four")
        assert store.index() == 1

    def test_anew_it_finds_the_same(self, store: Store):
        session = said(store, "heron", "stork", title="heron and stork")
        session.fork(at=1, id="f", title="crane").append([asks("t", tool="crane"), answers("t", text="heron")])
        session.delete_message(2)
        queries = ("heron", "stork", "crane", "ron", "tool:crane", "NOT heron", "heron OR stork")
        before = [search(store, query) for query in queries]
        store.reindex()
        store.reindex()
        assert [search(store, query) for query in queries] == before

    def test_many_search_and_write_at_once(self, store: Store):
        def work(number: int) -> None:
            session = store.session(f"s{number % 3}")
            for n in range(8):
                mine = session.append(user(f"word by{number} n{n}")).ids
                hits = store.search(f"by{number} n{n}")
                assert [hit.message for hit in hits] == mine

        at_once(work)
        assert len(store.search("word", 1000)) == 64
        assert store.index() == 0
        assert store.reindex() == 64

    def test_a_search_is_whole_while_others_erase_and_make_it_anew(self, store: Store):
        said(store, *["heron"] * 40)

        def work(number: int) -> None:
            for n in range(6):
                if number < 2:
                    said(store, "stork", "stork", id=f"s{number}.{n}")
                    store.index()
                    store.erase_session(f"s{number}.{n}")
                elif number == 2:
                    store.reindex()
                else:
                    assert len(store.search("heron", 1000)) == 40

        at_once(work, 6)


class TestSearchTogether:
    """Several stores on one place."""

    def test_it_sees_what_another_committed_before(self, store: Store, place: Place):
        other = place.open()
        session = other.session("a", title="heron")
        assert found(store, "heron") == ["title of a"]
        for number in range(5):
            session.append(user(f"heron {number}"))
            assert len(store.search("heron")) == number + 2
            assert len(other.search(f"heron {number}")) == 1
        store.erase_session("a")
        assert list(other.search("heron")) == []
        assert list(place.reopen().search("heron")) == []

    def test_two_bring_it_up_to_date_at_once(self, store: Store, place: Place):
        stores = [store, *(place.open() for _ in range(3))]
        for number in range(20):
            said(store, *["heron"] * 30, id=f"s{number}", title="heron")
        counts = at_once(lambda number: stores[number].index(), len(stores))
        assert sum(counts) == 600
        for other in stores:
            assert len(other.search("heron", 1000)) == 620

    def test_owners_are_apart(self, store: Store, place: Place):
        ann, bob = place.open("ann"), place.open("bob")
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            session = said(other, f"heron of {name}", title=f"heron {name}")
            session.fork(id="f", title=f"fork {name}").append(user("heron forked"))
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            assert {hit.title for hit in search(other, "heron")} == {f"heron {name}", f"fork {name}"}
            assert len(search(other, "heron")) == 3
            others = {"nobody", "ann", "bob"} - {name}
            assert [hit.title for word in others for hit in search(other, word)] == []
            assert found(other, "eron session:a") == ["1.1"]
        ann.delete_session("a")
        assert len(search(ann, "heron", deleted=True)) == 2
        assert search(bob, "heron", deleted=True) == search(store, "heron", deleted=True) == []
        bob.erase_session("a", forks="erase")
        assert found(bob, "heron") == []
        assert len(search(store, "heron")) == 3
        assert ann.reindex() == 2
        assert len(search(store, "heron")) == 3
        assert len(search(ann, "heron")) == 2
