"""Many at once: threads on one store (tasks, for an async one), several stores on one place, two handles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from recollect.errors import SessionBusy, StaleRevision
from recollect.store import Store
from recollect.testing.place import Place, listed
from recollect.testing.talk import answers, asks, assistant, counted, texts, user

WRITERS = 8
EACH = 12


def at_once(work: Callable[[int], Any], count: int = WRITERS) -> list[Any]:
    """Do a work many times at once, beginning together; raise what one of them raised."""
    start = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            start.wait(30)
            results[number] = work(number)
        except BaseException as error:  # noqa: BLE001  it is raised where the threads are awaited
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def by_writer(said: list[str]) -> dict[str, list[str]]:
    """Sort what was said by who said it."""
    found: dict[str, list[str]] = {}
    for text in said:
        found.setdefault(text.partition(":")[0], []).append(text)
    return found


EXPECTED = {f"w{writer}": [f"w{writer}:{n}" for n in range(EACH)] for writer in range(WRITERS)}


class TestAtOnce:
    """Nothing is lost, doubled or put in another order."""

    def test_many_write_to_one_session(self, store: Store, place: Place):
        store.session("a")

        def write(writer: int) -> list[str]:
            session = store.session("a")
            return [id for n in range(EACH) for id in session.append(user(f"w{writer}:{n}")).ids]

        made = [id for ids in at_once(write) for id in ids]
        session = place.reopen().session("a")
        assert by_writer(texts(session)) == EXPECTED
        assert sorted(made) == sorted(message.id for message in session.messages())
        assert session.messages()[-1].position == WRITERS * EACH
        counted(session)

    def test_many_share_one_handle(self, store: Store):
        session = store.session("a")
        at_once(lambda writer: [session.append(user(f"w{writer}:{n}")) for n in range(EACH)])
        assert by_writer(texts(session)) == EXPECTED
        counted(session.refresh())

    def test_many_write_each_to_its_own(self, store: Store, place: Place):
        def write(writer: int) -> None:
            session = store.session(f"w{writer}")
            for n in range(EACH):
                with session.turn(f"w{writer}:{n}") as turn:
                    turn.add([asks("t"), answers("t")])
                    turn.add(assistant("r"))

        at_once(write)
        store = place.reopen()
        for writer in range(WRITERS):
            session = store.session(f"w{writer}")
            assert [text for text in texts(session) if text.startswith("w")] == EXPECTED[f"w{writer}"]
            assert [turn.status for turn in session.turns()] == ["completed"] * EACH
            assert [call.status for call in session.tool_calls()] == ["success"] * EACH
            counted(session)

    def test_many_stores_on_one_place(self, store: Store, place: Place):
        store.session("a")
        stores = [place.open() for _ in range(4)]

        def write(writer: int) -> None:
            session = stores[writer % 4].session("a")
            for n in range(EACH):
                session.append(user(f"w{writer}:{n}"))

        at_once(write)
        assert by_writer(texts(store.session("a"))) == EXPECTED
        counted(store.session("a"))

    def test_many_create_the_same(self, store: Store):
        handles = at_once(lambda _: store.session("a"))
        assert len({handle.info.created_at for handle in handles}) == 1
        assert len(listed(store)) == 1

    def test_many_send_the_same_key(self, store: Store):
        store.session("a")
        made = at_once(lambda _: store.session("a").append([user("once"), assistant("only")], key="k"))
        assert {tuple(each.ids) for each in made} == {("1.1", "1.2")}
        assert sorted(each.repeated for each in made) == [False] + [True] * (WRITERS - 1)
        assert texts(store.session("a")) == ["once", "only"]

    def test_many_open_a_turn_and_one_gets_it(self, store: Store):
        session = store.session("a")

        def begin(writer: int) -> Any:
            try:
                return store.session("a").turn(f"w{writer}")
            except SessionBusy:
                return None

        turns = [turn for turn in at_once(begin) if turn is not None]
        assert len(turns) == 1
        assert len(texts(session)) == 1
        turns[0].complete()

    def test_many_wait_for_their_turn(self, store: Store):
        session = store.session("a")

        def run(writer: int) -> None:
            with store.session("a").turn(f"q{writer}", wait=30) as turn:
                turn.add(assistant(f"r{writer}"))

        at_once(run, 4)
        said = texts(session)
        assert sorted(said[::2]) == ["q0", "q1", "q2", "q3"]
        assert [text.replace("r", "q") for text in said[1::2]] == said[::2]

    def test_one_of_many_changes_wins_at_a_revision(self, store: Store):
        session = store.session("a")

        def change(writer: int) -> bool:
            try:
                store.session("a").append(user(f"w{writer}"), expected=session.revision)
            except StaleRevision:
                return False
            return True

        assert sum(at_once(change)) == 1
        assert len(texts(session)) == 1

    def test_many_fork_and_rewind(self, store: Store):
        session = store.session("a")
        session.append([user(f"m{n}") for n in range(1, 6)])

        def branch(writer: int) -> None:
            fork = store.session("a").fork(1 + writer % 5, id=f"f{writer}")
            for n in range(4):
                fork.append([user(f"w{writer}:{n}"), user("left")])
                fork.rewind(2 + writer % 5)

        at_once(branch)
        for writer in range(WRITERS):
            fork = store.session(f"f{writer}")
            assert texts(fork) == [*(f"m{n}" for n in range(1, 2 + writer % 5)), f"w{writer}:0"]
            assert len(fork.branches()) == 5
            counted(fork)
        assert texts(session) == ["m1", "m2", "m3", "m4", "m5"]

    def test_readers_see_whole_turns_while_others_write(self, store: Store, place: Place):
        store.session("a")
        reader = place.open()

        def work(number: int) -> None:
            session = (store if number % 2 else reader).session("a", create=False)
            for n in range(EACH):
                if number % 2:
                    session.save_turn(f"q{n}", assistant(f"r{n}"))
                else:
                    said = texts(session)
                    assert len(said) % 2 == 0
                    assert [text.replace("r", "q") for text in said[1::2]] == said[::2]

        at_once(work)
        assert len(texts(store.session("a"))) == WRITERS // 2 * EACH * 2

    def test_an_error_of_one_does_not_touch_the_others(self, store: Store):
        store.session("a")

        def work(number: int) -> int:
            session = store.session("a")
            wrong = 0
            for n in range(EACH):
                try:
                    session.append(user(f"w{number}:{n}"), expected=10**9 if number % 2 else None)
                except StaleRevision:
                    wrong += 1
            return wrong

        assert sum(at_once(work)) == EACH * WRITERS // 2
        assert by_writer(texts(store.session("a"))) == {f"w{n}": EXPECTED[f"w{n}"] for n in range(0, WRITERS, 2)}
        counted(store.session("a"))


class TestHandles:
    """Two handles on one session."""

    def test_each_sees_what_the_other_did(self, store: Store, place: Place):
        first, second = store.session("a"), place.open().session("a")
        first.append(user("one"))
        second.append(assistant("two"))
        assert texts(first) == texts(second) == ["one", "two"]
        assert (first.message_count, second.message_count) == (1, 2)
        counted(first.refresh())
        second.rewind(1)
        first.append(user("after the rewind"))
        assert texts(second) == ["one", "after the rewind"]
        first.update(title="named")
        assert second.refresh().title == "named"

    def test_a_handle_that_was_left_behind_writes_where_the_session_is_now(self, store: Store):
        first, second = store.session("a"), store.session("a")
        first.append([user("1"), user("2")])
        second.rewind(1)
        second.append(user("x"))
        second.switch(1)
        assert first.append(user("3")).ids == ["1.3"]
        counted(first)
