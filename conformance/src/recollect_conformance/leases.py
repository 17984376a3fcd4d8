"""Leases: one open turn per branch, and turns of dead holders are marked as interrupted."""

from __future__ import annotations

import threading
import time

import pytest

from recollect.errors import (
    SessionBusy,
    TurnClosed,
)
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import assistant, check_counts, numbered_messages, texts, tool_call_message, user
from recollect_conformance.turns import SHORT_LEASE, statuses, wait_for_lease


class TestLeases:
    """A branch has one open turn at a time; an abandoned turn is interrupted and its messages are kept."""

    def test_a_second_turn_is_refused_and_nothing_is_written(self, store: Store, database: DatabaseUnderTest):
        session, other = store.session("a"), database.open().session("a")
        turn = session.turn("first")
        for start in (other.turn, session.turn, other.save_turn):
            with pytest.raises(SessionBusy) as excinfo:
                start("second")
            assert excinfo.value.fields["session"] == "a"
            assert excinfo.value.fields["holder"]
            assert "Z" in excinfo.value.fields["until"]
        assert texts(other) == ["first"]
        check_counts(other.refresh())
        turn.complete()
        other.turn("second").complete()
        assert texts(session) == ["first", "second"]

    def test_waiting_for_an_open_turn(self, store: Store, database: DatabaseUnderTest):
        session, other = store.session("a"), database.open().session("a")
        turn = session.turn("first")
        started = time.monotonic()
        with pytest.raises(SessionBusy):
            other.turn("second", wait=0.1)
        assert time.monotonic() - started >= 0.1
        timer = threading.Timer(0.15, turn.complete)
        timer.start()
        with other.turn("second", wait=20) as second:
            second.add(assistant("r"))
        timer.join()
        assert texts(session) == ["first", "second", "r"]
        assert statuses(session) == ["completed", "completed"]

    def test_taking_over_an_open_turn(self, store: Store):
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
        assert session.turns.list()[0].error["name"] == "TakenOver"
        assert texts(session) == ["first", "so far", "second"]
        assert statuses(session) == ["interrupted", "completed"]
        assert session.turns.list()[0].holder is None
        check_counts(session.refresh())

    def test_taking_over_a_branch_that_is_free(self, store: Store):
        session = store.session("a")
        session.turn("q", take_over=True).complete()
        assert statuses(session) == ["completed"]

    def test_renewing_the_lease_of_a_turn(self, store: Store, database: DatabaseUnderTest):
        session, other = store.session("a"), database.open().session("a")
        turn = session.turn("first")
        before, revision = session.turns.list()[0].lease_until_at, session.refresh().revision
        assert before is not None
        time.sleep(0.01)
        turn.renew()
        after = session.turns.list()[0].lease_until_at
        assert after is not None
        assert after > before
        assert other.refresh().revision == session.revision > revision
        assert texts(session) == ["first"]
        other.turn("second", take_over=True).complete()
        with pytest.raises(TurnClosed, match="interrupted"):
            turn.renew()
        check_counts(session.refresh())

    def test_another_branch_and_a_fork_are_not_busy(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
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
        assert texts(session.branches.switch(1)) == ["m1", "m2", "first", "r1"]
        assert texts(fork) == ["m1", "m2", "first", "in the fork"]
        check_counts(session)

    def test_another_session_is_not_busy(self, store: Store):
        turns = [store.session(id).turn("q") for id in "abc"]
        for turn in turns:
            turn.add(assistant("r"))
            turn.complete()

    def test_opening_a_session_does_not_change_a_live_turn(self, store: Store, database: DatabaseUnderTest):
        turn = store.session("a").turn("q", lease=60)
        stream = turn.stream()
        stream.write("so far")
        other = database.open()
        assert statuses(other.session("a")) == ["open"]
        assert other.session("a", create=False).messages()[1].state == "streaming"
        stream.close()
        turn.complete()

    def test_opening_a_session_interrupts_a_turn_with_an_expired_lease(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        turn = session.turn("q", lease=SHORT_LEASE)
        turn.add(tool_call_message("t"))
        stream = turn.stream()
        stream.write("half an ans")
        stream.flush()
        wait_for_lease()
        assert statuses(session) == ["open"]
        other = database.open().session("a")
        assert statuses(other) == ["interrupted"]
        assert [message.state for message in other.messages()] == ["completed", "completed", "interrupted"]
        assert other.messages()[2].text == "half an ans"
        info = other.turns.list()[0]
        assert info.ended_at is not None
        assert info.holder is None
        assert other.revision > session.revision
        other.turn("next").complete()
        check_counts(other)

    def test_recover_interrupts_abandoned_turns_without_opening_the_session(
        self, store: Store, database: DatabaseUnderTest
    ):
        expired, live, closed = (store.session(name) for name in "abc")
        turn = expired.turn("q", lease=SHORT_LEASE)
        stream = turn.stream()
        stream.write("half an ans")
        stream.flush()
        live.turn("still at it")
        closed.turn("done").complete()
        wait_for_lease()
        other = database.open()
        active = [session.id for session in other.list_sessions()]
        assert (
            other.maintenance.recover("b")
            == other.maintenance.recover("c")
            == other.maintenance.recover("nowhere")
            == []
        )
        assert other.maintenance.recover() == ["a"]
        assert other.maintenance.recover() == other.maintenance.recover("a") == []
        assert statuses(expired) == ["interrupted"]
        assert expired.messages()[1].state == "interrupted"
        assert statuses(live) == ["open"]
        assert [session.id for session in other.list_sessions()] == active
        check_counts(expired.refresh())

    def test_turns_between_two_positions(self, store: Store):
        session = store.session("a")
        for number in range(4):
            with session.turn(f"question {number}") as turn:
                turn.add(assistant("r"))
        session.rewind(4)
        session.save_turn("other", assistant("r"))
        assert [info.id for info in session.turns.list()] == ["1.1", "1.3", "2.5"]
        assert [info.id for info in session.turns.list(after=1)] == ["1.3", "2.5"]
        assert [info.id for info in session.turns.list(after=2, until=4)] == ["1.3"]
        assert session.turns.list(after=9) == session.turns.list(until=0) == []

    def test_an_expired_lease_does_not_block_a_branch(self, store: Store):
        session = store.session("a")
        first = session.turn("first", lease=SHORT_LEASE)
        wait_for_lease()
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
            with pytest.raises(SessionBusy) as excinfo:
                store.session("a").turn("other")
            ends.append(excinfo.value.fields["until"])
            time.sleep(0.01)
            turn.add(assistant(f"r{n}"))
        assert ends == sorted(set(ends))
        assert statuses(session) == ["open"]

    def test_a_late_holder_continues_unless_another_turn_started(self, store: Store):
        turn = store.session("a").turn("first", lease=SHORT_LEASE)
        wait_for_lease()
        session = store.session("a")
        assert statuses(session) == ["interrupted"]
        turn.add(assistant("awake"))
        assert statuses(session) == ["open"]
        wait_for_lease()
        other = store.session("a").turn("second")
        with pytest.raises(TurnClosed):
            turn.add(assistant("too late"))
        other.complete()
        for act in (lambda: turn.add(assistant("too late")), turn.stream, turn.complete, turn.fail):
            with pytest.raises(TurnClosed):
                act()
        assert texts(session) == ["first", "awake", "second"]
        assert statuses(session) == ["interrupted", "completed"]
        check_counts(session.refresh())

    def test_a_turn_saved_after_expiry_closes_the_expired_turn(self, store: Store):
        turn = store.session("a").turn("first", lease=SHORT_LEASE)
        wait_for_lease()
        session = store.session("a")
        session.append(user("no turn"))
        turn.add(assistant("awake"))
        wait_for_lease()
        session.save_turn("second", assistant("r"))
        with pytest.raises(TurnClosed):
            turn.add(assistant("too late"))
        assert statuses(session) == ["interrupted", "completed"]

    def test_an_interrupted_turn_can_still_be_ended_by_its_holder(self, store: Store):
        session = store.session("a")
        turn = session.turn("first", lease=SHORT_LEASE)
        wait_for_lease()
        store.session("a")
        assert turn.complete().status == "completed"
        assert statuses(session) == ["completed"]

    def test_an_open_turn_is_interrupted_after_the_store_is_reopened(self, store: Store, database: DatabaseUnderTest):
        store.session("a").turn("q", lease=SHORT_LEASE).add(assistant("so far"))
        wait_for_lease()
        session = database.reopen().session("a")
        assert statuses(session) == ["interrupted"]
        assert texts(session) == ["q", "so far"]
