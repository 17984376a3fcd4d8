"""Watching: every watch receives every change, from each store on the database."""

from __future__ import annotations

import threading

import pytest

from recollect.errors import StoreClosed
from recollect.model.session import Change
from recollect.store import Store
from recollect.store.watch import Watch
from recollect_conformance.database import DatabaseUnderTest

_CHANGE_TIMEOUT = 60.0  # seconds. A limit for slow machines; a test continues as soon as the change arrives.
_QUIET_PERIOD = 0.4  # seconds in which no change may arrive


def user_message(text: str) -> dict[str, str]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def read_until(watch: Watch, expected: Change) -> list[Change]:
    """Return the changes up to an expected one."""
    changes: list[Change] = []
    for change in watch:
        changes.append(change)
        if change == expected:
            return changes
    raise AssertionError((expected, changes))


class TestWatch:
    """store.watch() with changes of the same store and of others."""

    def test_own_changes(self, store: Store):
        session = store.session("a")
        with store.watch(timeout=_CHANGE_TIMEOUT) as watch:
            session.append(user_message("x"))
            assert next(watch) == ("a", session.revision)
            session.update(title="T")
            assert next(watch) == ("a", session.revision)

    def test_changes_of_another_store(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        session = other.session("a")
        with store.watch(timeout=_CHANGE_TIMEOUT) as watch:
            session.append(user_message("x"))
            change = next(watch)
            assert change == Change(session="a", revision=session.revision)
            with session.turn("q") as turn:
                turn.add({"role": "assistant", "content": "r"})
            read_until(watch, Change("a", session.refresh().revision))

    def test_earlier_changes_are_not_reported(self, store: Store):
        store.session("a").append(user_message("x"))
        with store.watch(timeout=_QUIET_PERIOD) as watch:
            assert list(watch) == []

    def test_reading_is_not_a_change(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(user_message("x"))
        other = database.open()
        with store.watch(timeout=_QUIET_PERIOD) as watch:
            assert len(other.session("a", create=False).messages()) == 1
            assert len(session.messages()) == 1
            assert list(watch) == []

    def test_one_session_of_many(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        session, other_session = other.session("a"), other.session("b")
        with store.watch("a", timeout=_CHANGE_TIMEOUT) as watch:
            for number in range(5):
                other_session.append(user_message(str(number)))
            session.append(user_message("x"))
            assert next(watch) == ("a", session.revision)

    def test_new_trashed_restored_and_erased(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        with store.watch(timeout=_CHANGE_TIMEOUT) as watch:
            session = other.session("a")
            assert next(watch).session == "a"
            session.append(user_message("x"))
            read_until(watch, Change("a", session.revision))
            other.delete_session("a")
            read_until(watch, Change("a", session.revision + 1))
            assert other.restore_session("a").revision == session.revision + 2
            read_until(watch, Change("a", session.revision + 2))
            other.erase_session("a")
            read_until(watch, Change("a", None))

    def test_a_session_with_the_id_of_one_in_the_trash(self, store: Store):
        first = store.session("a")
        for number in range(3):
            first.append(user_message(str(number)))
        store.delete_session("a")
        with store.watch("a", timeout=_CHANGE_TIMEOUT) as watch:
            second = store.session("a")
            assert next(watch).session == "a"
            second.append(user_message("x"))
            read_until(watch, Change("a", second.revision))

    def test_a_burst_of_changes_ends_with_the_latest_revision(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        session = other.session("a")
        with store.watch(timeout=_CHANGE_TIMEOUT) as watch:
            for number in range(60):
                session.append(user_message(str(number)))
            changes = read_until(watch, Change("a", session.revision))
        revisions = [change.revision for change in changes]
        assert revisions == sorted(set(revisions), key=lambda revision: revision or 0)

    def test_concurrent_writers(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        sessions = {f"s{number}": (store, other)[number % 2].session(f"s{number}") for number in range(4)}

        def write(name: str) -> None:
            for number in range(8):
                sessions[name].append(user_message(str(number)))

        with store.watch(timeout=_CHANGE_TIMEOUT) as watch:
            threads = [threading.Thread(target=write, args=(name,)) for name in sessions]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            expected = {name: session.revision for name, session in sessions.items()}
            latest: dict[str, int | None] = {}
            for change in watch:
                latest[change.session] = change.revision
                if latest == expected:
                    break
            assert latest == expected

    def test_two_watches(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        with (
            store.watch(timeout=_CHANGE_TIMEOUT) as first,
            database.open().watch("a", timeout=_CHANGE_TIMEOUT) as second,
        ):
            session.append(user_message("x"))
            assert next(first) == next(second) == ("a", session.revision)

    def test_changes_of_another_owner_are_not_reported(self, store: Store, database: DatabaseUnderTest):
        other = database.open("someone")
        with other.watch(timeout=_QUIET_PERIOD) as theirs, store.watch(timeout=_QUIET_PERIOD) as ours:
            store.session("a").append(user_message("x"))
            assert list(theirs) == []
            assert {change.session for change in ours} == {"a"}
            other.session("b").append(user_message("x"))
            assert list(ours) == []
            assert {change.session for change in theirs} == {"b"}

    def test_closing_a_watch_ends_its_iteration(self, store: Store):
        watch = store.watch()
        ended: list[list[Change]] = []
        thread = threading.Thread(target=lambda: ended.append(list(watch)))
        thread.start()
        watch.close()
        thread.join(_CHANGE_TIMEOUT)
        assert ended == [[]]
        assert list(watch) == []
        watch.close()

    def test_a_closed_store(self, database: DatabaseUnderTest):
        closed = database.open()
        closed.close()
        with pytest.raises(StoreClosed):
            closed.watch()

    @pytest.mark.parametrize("timeout", [None, _CHANGE_TIMEOUT])
    def test_closing_the_store_ends_its_watches(self, database: DatabaseUnderTest, timeout: float | None):
        store = database.open()
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
            thread.join(_CHANGE_TIMEOUT / 2)
        assert [type(error) for error in ended] == [StoreClosed, StoreClosed]
        with pytest.raises(StoreClosed):  # a watch without a waiter
            next(watches[2])

    def test_a_watch_that_was_closed_before_its_store(self, database: DatabaseUnderTest):
        store = database.open()
        watch = store.watch()
        watch.close()
        store.close()
        assert list(watch) == []
