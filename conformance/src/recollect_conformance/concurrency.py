"""Concurrency: threads on one store (tasks on an async one), several stores on one database, two handles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from recollect.errors import SessionBusy, StaleRevision
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import assistant, check_counts, texts, tool_call_message, tool_result_message, user

WRITERS = 8  # threads. More than the cores of a small machine, so that writers wait for one another.
MESSAGES_PER_WRITER = 12  # messages. Enough for writers to overlap, few enough for a short test.


def run_concurrently(work: Callable[[int], Any], count: int = WRITERS) -> list[Any]:
    """Call a function in many threads that start together; raise the first error of any thread."""
    start = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            start.wait(30)
            results[number] = work(number)
        except BaseException as error:  # noqa: BLE001  raised after the threads are joined
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def group_by_writer(lines: list[str]) -> dict[str, list[str]]:
    """Group lines by their writer."""
    groups: dict[str, list[str]] = {}
    for text in lines:
        groups.setdefault(text.partition(":")[0], []).append(text)
    return groups


EXPECTED = {f"w{writer}": [f"w{writer}:{n}" for n in range(MESSAGES_PER_WRITER)] for writer in range(WRITERS)}


class TestConcurrency:
    """Nothing is lost, duplicated or reordered."""

    def test_many_write_to_one_session(self, store: Store, database: DatabaseUnderTest):
        store.session("a")

        def write(writer: int) -> list[str]:
            session = store.session("a")
            return [id for n in range(MESSAGES_PER_WRITER) for id in session.append(user(f"w{writer}:{n}")).ids]

        created_ids = [id for ids in run_concurrently(write) for id in ids]
        session = database.reopen().session("a")
        assert group_by_writer(texts(session)) == EXPECTED
        assert sorted(created_ids) == sorted(message.id for message in session.messages())
        assert session.messages()[-1].position == WRITERS * MESSAGES_PER_WRITER
        check_counts(session)

    def test_many_share_one_handle(self, store: Store):
        session = store.session("a")
        run_concurrently(lambda writer: [session.append(user(f"w{writer}:{n}")) for n in range(MESSAGES_PER_WRITER)])
        assert group_by_writer(texts(session)) == EXPECTED
        check_counts(session.refresh())

    def test_many_write_to_their_own_sessions(self, store: Store, database: DatabaseUnderTest):
        def write(writer: int) -> None:
            session = store.session(f"w{writer}")
            for n in range(MESSAGES_PER_WRITER):
                with session.turn(f"w{writer}:{n}") as turn:
                    turn.add([tool_call_message("t"), tool_result_message("t")])
                    turn.add(assistant("r"))

        run_concurrently(write)
        store = database.reopen()
        for writer in range(WRITERS):
            session = store.session(f"w{writer}")
            assert [text for text in texts(session) if text.startswith("w")] == EXPECTED[f"w{writer}"]
            assert [turn.status for turn in session.turns.list()] == ["completed"] * MESSAGES_PER_WRITER
            assert [call.status for call in session.tools.list()] == ["success"] * MESSAGES_PER_WRITER
            check_counts(session)

    def test_many_stores_on_one_database(self, store: Store, database: DatabaseUnderTest):
        store.session("a")
        stores = [database.open() for _ in range(4)]

        def write(writer: int) -> None:
            session = stores[writer % 4].session("a")
            for n in range(MESSAGES_PER_WRITER):
                session.append(user(f"w{writer}:{n}"))

        run_concurrently(write)
        assert group_by_writer(texts(store.session("a"))) == EXPECTED
        check_counts(store.session("a"))

    def test_many_create_the_same_session(self, store: Store):
        handles = run_concurrently(lambda _: store.session("a"))
        assert len({handle.info.created_at for handle in handles}) == 1
        assert len(list_all_sessions(store)) == 1

    def test_many_send_the_same_key(self, store: Store):
        store.session("a")
        results = run_concurrently(lambda _: store.session("a").append([user("once"), assistant("only")], key="k"))
        assert {tuple(result.ids) for result in results} == {("1.1", "1.2")}
        assert sorted(result.repeated for result in results) == [False] + [True] * (WRITERS - 1)
        assert texts(store.session("a")) == ["once", "only"]

    def test_many_open_a_turn_and_one_succeeds(self, store: Store):
        session = store.session("a")

        def begin(writer: int) -> Any:
            try:
                return store.session("a").turn(f"w{writer}")
            except SessionBusy:
                return None

        turns = [turn for turn in run_concurrently(begin) if turn is not None]
        assert len(turns) == 1
        assert len(texts(session)) == 1
        turns[0].complete()

    def test_many_wait_for_an_open_turn(self, store: Store):
        session = store.session("a")

        def run(writer: int) -> None:
            with store.session("a").turn(f"q{writer}", wait=30) as turn:
                turn.add(assistant(f"r{writer}"))

        run_concurrently(run, 4)
        all_texts = texts(session)
        assert sorted(all_texts[::2]) == ["q0", "q1", "q2", "q3"]
        assert [text.replace("r", "q") for text in all_texts[1::2]] == all_texts[::2]

    def test_one_of_many_writes_with_the_same_expected_revision_succeeds(self, store: Store):
        session = store.session("a")

        def change(writer: int) -> bool:
            try:
                store.session("a").append(user(f"w{writer}"), expected=session.revision)
            except StaleRevision:
                return False
            return True

        assert sum(run_concurrently(change)) == 1
        assert len(texts(session)) == 1

    def test_many_fork_and_rewind(self, store: Store):
        session = store.session("a")
        session.append([user(f"m{n}") for n in range(1, 6)])

        def branch(writer: int) -> None:
            fork = store.session("a").fork(1 + writer % 5, id=f"f{writer}")
            for n in range(4):
                fork.append([user(f"w{writer}:{n}"), user("left")])
                fork.rewind(2 + writer % 5)

        run_concurrently(branch)
        for writer in range(WRITERS):
            fork = store.session(f"f{writer}")
            assert texts(fork) == [*(f"m{n}" for n in range(1, 2 + writer % 5)), f"w{writer}:0"]
            assert len(fork.branches.list()) == 5
            check_counts(fork)
        assert texts(session) == ["m1", "m2", "m3", "m4", "m5"]

    def test_readers_see_complete_turns_while_others_write(self, store: Store, database: DatabaseUnderTest):
        store.session("a")
        reader = database.open()

        def work(number: int) -> None:
            session = (store if number % 2 else reader).session("a", create=False)
            for n in range(MESSAGES_PER_WRITER):
                if number % 2:
                    session.save_turn(f"q{n}", assistant(f"r{n}"))
                else:
                    all_texts = texts(session)
                    assert len(all_texts) % 2 == 0
                    assert [text.replace("r", "q") for text in all_texts[1::2]] == all_texts[::2]

        run_concurrently(work)
        assert len(texts(store.session("a"))) == WRITERS // 2 * MESSAGES_PER_WRITER * 2

    def test_an_error_in_one_thread_does_not_affect_the_others(self, store: Store):
        store.session("a")

        def work(number: int) -> int:
            session = store.session("a")
            errors = 0
            for n in range(MESSAGES_PER_WRITER):
                try:
                    session.append(user(f"w{number}:{n}"), expected=10**9 if number % 2 else None)
                except StaleRevision:
                    errors += 1
            return errors

        assert sum(run_concurrently(work)) == MESSAGES_PER_WRITER * WRITERS // 2
        assert group_by_writer(texts(store.session("a"))) == {f"w{n}": EXPECTED[f"w{n}"] for n in range(0, WRITERS, 2)}
        check_counts(store.session("a"))


class TestHandles:
    """Two handles on one session."""

    def test_each_handle_sees_the_changes_of_the_other(self, store: Store, database: DatabaseUnderTest):
        first, second = store.session("a"), database.open().session("a")
        first.append(user("one"))
        second.append(assistant("two"))
        assert texts(first) == texts(second) == ["one", "two"]
        assert (first.message_count, second.message_count) == (1, 2)
        check_counts(first.refresh())
        second.rewind(1)
        first.append(user("after the rewind"))
        assert texts(second) == ["one", "after the rewind"]
        first.update(title="named")
        assert second.refresh().title == "named"

    def test_a_stale_handle_writes_to_the_current_branch(self, store: Store):
        first, second = store.session("a"), store.session("a")
        first.append([user("1"), user("2")])
        second.rewind(1)
        second.append(user("x"))
        second.branches.switch(1)
        assert first.append(user("3")).ids == ["1.3"]
        check_counts(first)
