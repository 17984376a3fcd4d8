"""Watching: who changed what, told to everyone who watches, whoever committed it."""

from __future__ import annotations

import threading

import pytest

from recollect.errors import StoreClosed
from recollect.model.change import Change
from recollect.store import Store
from recollect.store.watch import Watch
from recollect.testing.place import Place

_LONG = 60.0  # seconds that a change may take on a busy machine; nothing waits for them where it is there
_NOTHING = 0.4


def said(text: str) -> dict[str, str]:
    """Give a message."""
    return {"role": "user", "content": text}


def until(watch: Watch, wanted: Change) -> list[Change]:
    """Take changes up to the one that is looked for."""
    found: list[Change] = []
    for change in watch:
        found.append(change)
        if change == wanted:
            return found
    raise AssertionError((wanted, found))


class TestWatch:
    """store.watch() on its own store and beside another."""

    def test_own_changes(self, store: Store):
        session = store.session("a")
        with store.watch(timeout=_LONG) as watch:
            session.append(said("x"))
            assert next(watch) == ("a", session.revision)
            session.update(title="T")
            assert next(watch) == ("a", session.revision)

    def test_changes_of_others(self, store: Store, place: Place):
        other = place.open()
        session = other.session("a")
        with store.watch(timeout=_LONG) as watch:
            session.append(said("x"))
            change = next(watch)
            assert change == Change(session="a", revision=session.revision)
            with session.turn("q") as turn:
                turn.add({"role": "assistant", "content": "r"})
            until(watch, Change("a", session.refresh().revision))

    def test_what_was_before_is_not_told(self, store: Store):
        store.session("a").append(said("x"))
        with store.watch(timeout=_NOTHING) as watch:
            assert list(watch) == []

    def test_reading_is_no_change(self, store: Store, place: Place):
        session = store.session("a")
        session.append(said("x"))
        other = place.open()
        with store.watch(timeout=_NOTHING) as watch:
            assert len(other.session("a", create=False).messages()) == 1
            assert len(session.messages()) == 1
            assert list(watch) == []

    def test_one_session_of_many(self, store: Store, place: Place):
        other = place.open()
        wanted, noise = other.session("a"), other.session("b")
        with store.watch("a", timeout=_LONG) as watch:
            for number in range(5):
                noise.append(said(str(number)))
            wanted.append(said("x"))
            assert next(watch) == ("a", wanted.revision)

    def test_new_trashed_restored_and_erased(self, store: Store, place: Place):
        other = place.open()
        with store.watch(timeout=_LONG) as watch:
            made = other.session("a")
            assert next(watch).session == "a"
            made.append(said("x"))
            until(watch, Change("a", made.revision))
            other.delete_session("a")
            until(watch, Change("a", made.revision + 1))
            assert other.restore_session("a").revision == made.revision + 2
            until(watch, Change("a", made.revision + 2))
            other.erase_session("a")
            until(watch, Change("a", None))

    def test_a_session_that_takes_the_place_of_one_in_the_trash(self, store: Store):
        first = store.session("a")
        for number in range(3):
            first.append(said(str(number)))
        store.delete_session("a")
        with store.watch("a", timeout=_LONG) as watch:
            second = store.session("a")
            assert next(watch).session == "a"
            second.append(said("x"))
            until(watch, Change("a", second.revision))

    def test_a_burst_ends_with_the_latest(self, store: Store, place: Place):
        other = place.open()
        session = other.session("a")
        with store.watch(timeout=_LONG) as watch:
            for number in range(60):
                session.append(said(str(number)))
            found = until(watch, Change("a", session.revision))
        revisions = [change.revision for change in found]
        assert revisions == sorted(set(revisions), key=lambda revision: revision or 0)

    def test_writers_at_once(self, store: Store, place: Place):
        other = place.open()
        sessions = {f"s{number}": (store, other)[number % 2].session(f"s{number}") for number in range(4)}

        def write(name: str) -> None:
            for number in range(8):
                sessions[name].append(said(str(number)))

        with store.watch(timeout=_LONG) as watch:
            threads = [threading.Thread(target=write, args=(name,)) for name in sessions]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wanted = {name: session.revision for name, session in sessions.items()}
            seen: dict[str, int | None] = {}
            for change in watch:
                seen[change.session] = change.revision
                if seen == wanted:
                    break
            assert seen == wanted

    def test_two_watches(self, store: Store, place: Place):
        session = store.session("a")
        with store.watch(timeout=_LONG) as one, place.open().watch("a", timeout=_LONG) as two:
            session.append(said("x"))
            assert next(one) == next(two) == ("a", session.revision)

    def test_another_owner_is_not_told(self, store: Store, place: Place):
        other = place.open("someone")
        with other.watch(timeout=_NOTHING) as theirs, store.watch(timeout=_NOTHING) as ours:
            store.session("a").append(said("x"))
            assert list(theirs) == []
            assert {change.session for change in ours} == {"a"}
            other.session("b").append(said("x"))
            assert list(ours) == []
            assert {change.session for change in theirs} == {"b"}

    def test_closing_ends_it(self, store: Store):
        watch = store.watch()
        ended: list[list[Change]] = []
        thread = threading.Thread(target=lambda: ended.append(list(watch)))
        thread.start()
        watch.close()
        thread.join(_LONG)
        assert ended == [[]]
        assert list(watch) == []
        watch.close()

    def test_a_closed_store(self, place: Place):
        closed = place.open()
        closed.close()
        with pytest.raises(StoreClosed):
            closed.watch()

    @pytest.mark.parametrize("timeout", [None, _LONG])
    def test_closing_the_store_ends_its_watches(self, place: Place, timeout: float | None):
        store = place.open()
        store.session("a")
        watches = [store.watch(session, timeout=timeout) for session in (None, "a", "a")]
        ended: list[BaseException | None] = []

        def follow(watch: Watch) -> None:
            try:
                for _ in watch:
                    pass
                ended.append(None)
            except StoreClosed as error:
                ended.append(error)

        threads = [threading.Thread(target=follow, args=(watch,), daemon=True) for watch in watches[:2]]
        for thread in threads:
            thread.start()
        store.close()
        for thread in threads:
            thread.join(_LONG / 2)
        assert [type(error) for error in ended] == [StoreClosed, StoreClosed]
        with pytest.raises(StoreClosed):  # one that nobody waited at
            next(watches[2])

    def test_a_watch_that_was_closed_before_its_store(self, place: Place):
        store = place.open()
        watch = store.watch()
        watch.close()
        store.close()
        assert list(watch) == []
