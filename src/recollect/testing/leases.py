"""Who holds a turn, and for how long: beside a live one none is opened, and what a dead one left is marked."""

from __future__ import annotations

import threading
import time

import pytest

from recollect.errors import (
    SessionBusy,
    TurnClosed,
)
from recollect.store import Store
from recollect.testing.place import Place
from recollect.testing.talk import (
    asks,
    assistant,
    counted,
    numbered,
    texts,
    user,
)
from recollect.testing.turns import SHORT, after_the_lease, statuses


class TestHolding:
    """A branch takes one turn at a time; what a gone holder left is found and kept."""

    def test_a_second_turn_is_refused_and_nothing_written(self, store: Store, place: Place):
        session, other = store.session("a"), place.open().session("a")
        turn = session.turn("first")
        for begin in (other.turn, session.turn, other.save_turn):
            with pytest.raises(SessionBusy) as caught:
                begin("second")
            assert caught.value.fields["session"] == "a"
            assert caught.value.fields["holder"]
            assert "Z" in caught.value.fields["until"]
        assert texts(other) == ["first"]
        counted(other.refresh())
        turn.complete()
        other.turn("second").complete()
        assert texts(session) == ["first", "second"]

    def test_waiting_for_it(self, store: Store, place: Place):
        session, other = store.session("a"), place.open().session("a")
        turn = session.turn("first")
        began = time.monotonic()
        with pytest.raises(SessionBusy):
            other.turn("second", wait=0.1)
        assert time.monotonic() - began >= 0.1
        timer = threading.Timer(0.15, turn.complete)
        timer.start()
        with other.turn("second", wait=20) as second:
            second.add(assistant("r"))
        timer.join()
        assert texts(session) == ["first", "second", "r"]
        assert statuses(session) == ["completed", "completed"]

    def test_taking_it_over(self, store: Store):
        session, other = store.session("a"), store.session("a")
        first = session.turn("first")
        first.add(assistant("so far"))
        second = other.turn("second", take_over=True)
        assert statuses(other) == ["interrupted", "open"]
        for act in (lambda: first.add(assistant("late")), first.complete, first.cancel):
            with pytest.raises(TurnClosed, match="interrupted"):
                act()
        second.complete()
        for act in (lambda: first.add(assistant("late")), first.stream, first.complete, first.cancel):
            with pytest.raises(TurnClosed, match="interrupted"):
                act()
        assert session.turns()[0].error["name"] == "TakenOver"
        assert texts(session) == ["first", "so far", "second"]
        assert statuses(session) == ["interrupted", "completed"]
        assert session.turns()[0].holder is None
        counted(session.refresh())

    def test_taking_over_a_branch_that_is_free(self, store: Store):
        session = store.session("a")
        session.turn("q", take_over=True).complete()
        assert statuses(session) == ["completed"]

    def test_renewing_a_turn_that_waits(self, store: Store, place: Place):
        session, other = store.session("a"), place.open().session("a")
        turn = session.turn("first")
        before, revision = session.turns()[0].lease_until_at, session.refresh().revision
        assert before is not None
        time.sleep(0.01)
        turn.renew()
        after = session.turns()[0].lease_until_at
        assert after is not None
        assert after > before
        assert other.refresh().revision == session.revision > revision
        assert texts(session) == ["first"]
        other.turn("second", take_over=True).complete()
        with pytest.raises(TurnClosed, match="interrupted"):
            turn.renew()
        counted(session.refresh())

    def test_another_branch_and_a_fork_are_not_busy(self, store: Store):
        session = store.session("a")
        session.append(numbered(2))
        first = session.turn("first")
        fork = session.fork()
        with fork.turn("in the fork"):
            pass
        session.rewind(1)
        second = session.turn("second")
        first.add(assistant("r1"))
        second.add(assistant("r2"))
        with pytest.raises(SessionBusy):
            session.turn("third")
        first.complete()
        second.complete()
        assert texts(session) == ["m1", "second", "r2"]
        assert texts(session.switch(1)) == ["m1", "m2", "first", "r1"]
        assert texts(fork) == ["m1", "m2", "first", "in the fork"]
        counted(session)

    def test_another_session_is_not_busy(self, store: Store):
        turns = [store.session(id).turn("q") for id in "abc"]
        for turn in turns:
            turn.add(assistant("r"))
            turn.complete()

    def test_a_live_turn_is_not_touched_by_whoever_opens_the_session(self, store: Store, place: Place):
        turn = store.session("a").turn("q", lease=60)
        stream = turn.stream()
        stream.write("so far")
        other = place.open()
        assert statuses(other.session("a")) == ["open"]
        assert other.session("a", create=False).messages()[1].state == "streaming"
        stream.close()
        turn.complete()

    def test_a_lease_that_has_run_out_is_found_when_the_session_is_opened(self, store: Store, place: Place):
        session = store.session("a")
        turn = session.turn("q", lease=SHORT)
        turn.add(asks("t"))
        stream = turn.stream()
        stream.write("half an ans")
        stream.flush()
        after_the_lease()
        assert statuses(session) == ["open"]
        other = place.open().session("a")
        assert statuses(other) == ["interrupted"]
        assert [message.state for message in other.messages()] == ["completed", "completed", "interrupted"]
        assert other.messages()[2].text == "half an ans"
        info = other.turns()[0]
        assert info.ended_at is not None
        assert info.holder is None
        assert other.revision > session.revision
        other.turn("next").complete()
        counted(other)

    def test_what_is_left_open_is_found_without_opening_its_session(self, store: Store, place: Place):
        left, live, closed = (store.session(name) for name in "abc")
        turn = left.turn("q", lease=SHORT)
        stream = turn.stream()
        stream.write("half an ans")
        stream.flush()
        live.turn("still at it")
        closed.turn("done").complete()
        after_the_lease()
        other = place.open()
        active = [session.id for session in other.list_sessions()]
        assert other.recover("b") == other.recover("c") == other.recover("nowhere") == []
        assert other.recover() == ["a"]
        assert other.recover() == other.recover("a") == []
        assert statuses(left) == ["interrupted"]
        assert left.messages()[1].state == "interrupted"
        assert statuses(live) == ["open"]
        assert [session.id for session in other.list_sessions()] == active
        counted(left.refresh())

    def test_turns_of_a_stretch(self, store: Store):
        session = store.session("a")
        for number in range(4):
            with session.turn(f"question {number}") as turn:
                turn.add(assistant("r"))
        session.rewind(4)
        session.save_turn("other", assistant("r"))
        assert [info.id for info in session.turns()] == ["1.1", "1.3", "2.5"]
        assert [info.id for info in session.turns(after=1)] == ["1.3", "2.5"]
        assert [info.id for info in session.turns(after=2, until=4)] == ["1.3"]
        assert session.turns(after=9) == session.turns(until=0) == []

    def test_a_lease_that_has_run_out_does_not_hold_a_branch(self, store: Store):
        session = store.session("a")
        first = session.turn("first", lease=SHORT)
        after_the_lease()
        second = session.turn("second")
        assert statuses(session) == ["interrupted", "open"]
        with pytest.raises(TurnClosed):
            first.add(assistant("late"))
        with pytest.raises(TurnClosed):
            first.stream()
        assert texts(session) == ["first", "second"]
        second.complete()

    def test_each_write_renews_the_lease(self, store: Store):
        session = store.session("a")
        turn = session.turn("q", lease=60)
        ends: list[str] = []
        for n in range(4):
            with pytest.raises(SessionBusy) as caught:
                store.session("a").turn("other")
            ends.append(caught.value.fields["until"])
            time.sleep(0.01)
            turn.add(assistant(f"r{n}"))
        assert ends == sorted(set(ends))
        assert statuses(session) == ["open"]

    def test_a_holder_that_wakes_up_goes_on_unless_another_began(self, store: Store):
        turn = store.session("a").turn("first", lease=SHORT)
        after_the_lease()
        session = store.session("a")
        assert statuses(session) == ["interrupted"]
        turn.add(assistant("awake"))
        assert statuses(session) == ["open"]
        after_the_lease()
        other = store.session("a").turn("second")
        with pytest.raises(TurnClosed):
            turn.add(assistant("too late"))
        other.complete()
        for act in (lambda: turn.add(assistant("too late")), turn.stream, turn.complete, turn.fail):
            with pytest.raises(TurnClosed):
                act()
        assert texts(session) == ["first", "awake", "second"]
        assert statuses(session) == ["interrupted", "completed"]
        counted(session.refresh())

    def test_a_whole_turn_that_was_saved_since_ends_it_too(self, store: Store):
        turn = store.session("a").turn("first", lease=SHORT)
        after_the_lease()
        session = store.session("a")
        session.append(user("no turn"))
        turn.add(assistant("awake"))
        after_the_lease()
        session.save_turn("second", assistant("r"))
        with pytest.raises(TurnClosed):
            turn.add(assistant("too late"))
        assert statuses(session) == ["interrupted", "completed"]

    def test_an_interrupted_turn_can_still_be_ended_by_its_holder(self, store: Store):
        session = store.session("a")
        turn = session.turn("first", lease=SHORT)
        after_the_lease()
        store.session("a")
        assert turn.complete().status == "completed"
        assert statuses(session) == ["completed"]

    def test_a_turn_left_open_is_known_after_all_is_closed(self, store: Store, place: Place):
        store.session("a").turn("q", lease=SHORT).add(assistant("so far"))
        after_the_lease()
        session = place.reopen().session("a")
        assert statuses(session) == ["interrupted"]
        assert texts(session) == ["q", "so far"]
