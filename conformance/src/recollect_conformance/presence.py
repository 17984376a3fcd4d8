"""Presence: arrive, stay, leave and take over."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import pytest
from msgspec.structs import replace

from recollect import InvalidValue, SessionNotFound, TurnClosed
from recollect.engine.process import holder
from recollect.model.record import Record
from recollect.storage import presence
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest

DEAD_HOLDER = f"{holder().rsplit(':', 2)[0]}:4194303:1"
"""The holder of a dead process on this machine: the process id is above the maximum."""


def present_surfaces(store: Store, session: str = "s") -> list[str]:
    """Return the surfaces that have a session open."""
    return sorted(entry.surface for entry in store.session(session).presence.list())


def arrive_from(store: Store, id: str, *, holder: str, silent_ms: int = 0, session: str = "s") -> None:
    """Add a presence of another process that was last seen `silent_ms` milliseconds ago."""
    scope = store._scope()
    store._run(presence.arrive(replace(scope, holder=holder, now=scope.now - silent_ms), session, id, "web"))


def presence_record(store: Store, id: str) -> Record | None:
    """Return the record of a presence."""
    return store.records.get("recollect.presence", id)


class TestPresence:
    """A presence is added when a session is opened, and removed when it is closed."""

    def test_arrive_and_leave(self, store: Store, database: DatabaseUnderTest):
        session = store.session("s")
        first = session.presence.arrive("terminal")
        assert first.others == []
        other = database.open().session("s").presence.arrive("web")
        (first_presence,) = other.others
        assert (first_presence.id, first_presence.session, first_presence.surface, first_presence.holder) == (
            first.id,
            "s",
            "terminal",
            store.holder,
        )
        assert first_presence.since_at <= first_presence.seen_at
        assert present_surfaces(store) == ["terminal", "web"]
        session.presence.leave(first.id)
        session.presence.leave(first.id)
        assert present_surfaces(store) == ["web"]

    def test_a_presence_does_not_change_the_session(self, store: Store):
        session = store.session("s")
        before = session.refresh().info
        own = session.presence.arrive("terminal")
        assert session.presence.stay(own.id)
        session.presence.leave(own.id)
        assert session.refresh().info == before

    def test_a_presence_is_added_again_with_its_time(self, store: Store):
        session = store.session("s")
        own = session.presence.arrive("terminal")
        since = session.presence.list()[0].since_at
        assert session.presence.arrive("terminal", id=own.id) == (own.id, [])
        assert [entry.since_at for entry in session.presence.list()] == [since]

    def test_each_session_has_its_own_presences(self, store: Store):
        store.session("s")
        store.session("s:delegate:x", parent="s").presence.arrive("terminal")
        assert present_surfaces(store.session("s").store) == []
        assert store.session("s").presence.arrive("web").others == []

    def test_each_owner_has_its_own_presences(self, store: Store, database: DatabaseUnderTest):
        ann = database.open("ann")
        if ann is store:
            pytest.skip("This database can be opened only once.")
        store.session("s").presence.arrive("terminal")
        assert ann.session("s").presence.arrive("web").others == []

    def test_a_presence_of_a_dead_process_is_not_listed(self, store: Store):
        store.session("s")
        arrive_from(store, "dead", holder=DEAD_HOLDER)
        assert present_surfaces(store) == []
        assert store.session("s").presence.arrive("terminal").others == []
        assert store.session("s").presence.stay("dead") is False

    def test_a_presence_of_another_machine_expires_after_long_silence(self, store: Store):
        store.session("s")
        arrive_from(store, "far", holder="elsewhere:0:1:1", silent_ms=presence.TIMEOUT * 1000 - 60_000)
        assert present_surfaces(store) == ["web"]
        assert store.session("s").presence.stay("far")
        arrive_from(store, "silent", holder="elsewhere:0:1:1", silent_ms=presence.TIMEOUT * 1000)
        assert [entry.id for entry in store.session("s").presence.list()] == ["far"]

    def test_a_presence_of_this_machine_does_not_expire(self, store: Store):
        store.session("s")
        arrive_from(store, "old", holder=holder(), silent_ms=90 * 24 * 3600 * 1000)
        assert present_surfaces(store) == ["web"]

    def test_taking_over_removes_the_other_presences(self, store: Store, database: DatabaseUnderTest):
        session = store.session("s")
        own = session.presence.arrive("terminal")
        elsewhere = store.session("t").presence.arrive("terminal")
        revision = session.refresh().revision
        other = database.open().session("s").presence.arrive("web", take_over=True)
        assert [entry.id for entry in other.others] == [own.id]
        assert session.presence.stay(own.id) is False
        assert present_surfaces(store) == ["web"]
        assert session.presence.stay(elsewhere.id)
        assert session.refresh().revision > revision
        assert session.presence.arrive("terminal", id=own.id).others[0].surface == "web"

    def test_taking_over_ends_a_turn(self, store: Store):
        session = store.session("s")
        turn = session.turn("question")
        assert [entry.surface for entry in session.presence.list()] == ["program"]
        session.presence.arrive("web", take_over=True)
        assert [info.status for info in session.turns.list()] == ["interrupted"]
        for act in (lambda: turn.add({"role": "assistant", "content": "late"}), turn.stream, turn.complete):
            with pytest.raises(TurnClosed):
                act()
        session.turn("next").complete()

    def test_an_open_turn_counts_as_a_presence(self, store: Store):
        session = store.session("s")
        session.turn("question")
        (turn_presence,) = session.presence.list()
        assert (turn_presence.surface, turn_presence.holder) == ("program", store.holder)
        arrive_from(store, "far", holder="elsewhere:0:1:1")
        (presence_of_turn,) = store._run(
            presence.arrive(replace(store._scope(), holder="x:0:1:1"), "s", "y", "web")
        ).others[1:]
        assert presence_of_turn.surface == "program"
        session.presence.arrive("terminal")
        assert present_surfaces(store) == ["terminal", "web", "web"]

    def test_erasing_a_session_removes_its_presences(self, store: Store):
        own = store.session("s").presence.arrive("terminal")
        other_presence = store.session("t").presence.arrive("terminal")
        store.erase_session("s")
        assert presence_record(store, own.id) is None
        assert presence_record(store, other_presence.id) is not None
        with pytest.raises(SessionNotFound):
            store._run(presence.arrive(store._scope(), "s", "x", "web"))

    def test_pruning_a_session_removes_its_presences(self, store: Store):
        own = store.session("s").presence.arrive("terminal")
        store.session("s").append({"role": "user", "content": "old"})
        other_presence = store.session("t").presence.arrive("terminal")
        store.session("t").append({"role": "user", "content": "new"})
        store.session("u").append({"role": "user", "content": "deleted"})
        third = store.session("u").presence.arrive("web")
        store.delete_session("u")
        store.maintenance.empty_trash()
        assert presence_record(store, third.id) is None
        assert [entry.id for entry in store.maintenance.prune(keep=1, erase=True).sessions] == ["s"]
        assert presence_record(store, own.id) is None
        assert presence_record(store, other_presence.id) is not None

    def test_a_program_cannot_write_presences(self, store: Store):
        own = store.session("s").presence.arrive("terminal")
        with pytest.raises(InvalidValue, match="reserves"):
            store.records.put("recollect.presence", own.id, 1)
        with pytest.raises(InvalidValue, match="reserves"):
            store.records.delete("recollect.presence", own.id)
        assert present_surfaces(store) == ["terminal"]

    @pytest.mark.parametrize("id", ["", "x" * 1_025, "\u4e00" * 342])
    def test_ids_of_presences_have_the_length_of_a_key(self, store: Store, id: str):
        with pytest.raises(InvalidValue, match="id must be a str of 1 to 1,024 bytes"):
            store.session("s").presence.arrive("terminal", id=id)

    @pytest.mark.parametrize("surface", ["", " ", "x" * 41, "two\nlines", "\x1b[2J"])
    def test_invalid_surfaces_are_refused(self, store: Store, surface: str):
        with pytest.raises(InvalidValue):
            store.session("s").presence.arrive(surface)
