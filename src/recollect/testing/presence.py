"""Who is in a session: arriving, staying, leaving, taking over."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from recollect import InvalidValue, SessionNotFound, TurnClosed
from recollect.engine.process import holder
from recollect.ops import presence
from recollect.store import Store
from recollect.testing.place import Place

GONE = f"{holder().rsplit(':', 2)[0]}:4194303:1"
"""A process of this machine that is not there: no process has so high an id."""


def there(store: Store, session: str = "s") -> list[str]:
    """Give the surfaces on which someone talks in a session."""
    return sorted(one.surface for one in store.session(session).present())


def come(store: Store, id: str, *, by: str, seen: int = 0, session: str = "s") -> None:
    """Have someone of another process arrive, who was last seen so many milliseconds ago."""
    scope = store.scope()
    store.run(presence.arrive(replace(scope, holder=by, now=scope.now - seen), session, id, "web"))


class TestPresence:
    """A place is taken when a talk begins, and given up when it ends."""

    def test_one_after_another(self, store: Store, place: Place):
        session = store.session("s")
        first = session.arrive("terminal")
        assert first.others == []
        other = place.open().session("s").arrive("web")
        (seen,) = other.others
        assert (seen.id, seen.session, seen.surface, seen.holder) == (first.id, "s", "terminal", store.scope().holder)
        assert seen.since_at <= seen.seen_at
        assert there(store) == ["terminal", "web"]
        session.leave(first.id)
        session.leave(first.id)
        assert there(store) == ["web"]

    def test_it_changes_nothing_in_the_session(self, store: Store):
        session = store.session("s")
        before = session.refresh().info
        mine = session.arrive("terminal")
        assert session.stay(mine.id)
        session.leave(mine.id)
        assert session.refresh().info == before

    def test_a_place_is_taken_again_with_its_time(self, store: Store):
        session = store.session("s")
        mine = session.arrive("terminal")
        since = session.present()[0].since_at
        assert session.arrive("terminal", id=mine.id) == (mine.id, [])
        assert [one.since_at for one in session.present()] == [since]

    def test_each_session_has_its_own(self, store: Store):
        store.session("s")
        store.session("s:delegate:x", parent="s").arrive("terminal")
        assert there(store.session("s").store) == []
        assert store.session("s").arrive("web").others == []

    def test_each_owner_has_its_own(self, store: Store, place: Place):
        ann = place.open("ann")
        if ann is store:
            pytest.skip("one store is all there is")
        store.session("s").arrive("terminal")
        assert ann.session("s").arrive("web").others == []

    def test_one_whose_process_died_is_not_there(self, store: Store):
        store.session("s")
        come(store, "dead", by=GONE)
        assert there(store) == []
        assert store.session("s").arrive("terminal").others == []
        assert store.session("s").stay("dead") is False

    def test_one_of_another_machine_is_there_until_it_is_silent_for_long(self, store: Store):
        store.session("s")
        come(store, "far", by="elsewhere:0:1:1", seen=presence.STAYS * 1000 - 60_000)
        assert there(store) == ["web"]
        assert store.session("s").stay("far")
        come(store, "silent", by="elsewhere:0:1:1", seen=presence.STAYS * 1000)
        assert [one.id for one in store.session("s").present()] == ["far"]

    def test_one_of_this_machine_may_be_silent_for_ever(self, store: Store):
        store.session("s")
        come(store, "old", by=holder(), seen=90 * 24 * 3600 * 1000)
        assert there(store) == ["web"]

    def test_taking_over_sends_the_others_away(self, store: Store, place: Place):
        session = store.session("s")
        mine = session.arrive("terminal")
        elsewhere = store.session("t").arrive("terminal")
        revision = session.refresh().revision
        other = place.open().session("s").arrive("web", take_over=True)
        assert [one.id for one in other.others] == [mine.id]
        assert session.stay(mine.id) is False
        assert there(store) == ["web"]
        assert session.stay(elsewhere.id)
        assert session.refresh().revision > revision
        assert session.arrive("terminal", id=mine.id).others[0].surface == "web"

    def test_taking_over_ends_a_turn(self, store: Store):
        session = store.session("s")
        turn = session.turn("question")
        assert [one.surface for one in session.present()] == ["program"]
        session.arrive("web", take_over=True)
        assert [info.status for info in session.turns()] == ["interrupted"]
        for act in (lambda: turn.add({"role": "assistant", "content": "late"}), turn.stream, turn.complete):
            with pytest.raises(TurnClosed):
                act()
        session.turn("next").complete()

    def test_an_open_turn_is_someone_too(self, store: Store):
        session = store.session("s")
        session.turn("question")
        (seen,) = session.present()
        assert (seen.surface, seen.holder) == ("program", store.scope().holder)
        come(store, "far", by="elsewhere:0:1:1")
        (found,) = store.run(presence.arrive(replace(store.scope(), holder="x:0:1:1"), "s", "y", "web")).others[1:]
        assert found.surface == "program"
        session.arrive("terminal")
        assert there(store) == ["terminal", "web", "web"]

    def test_an_erased_session_leaves_nothing(self, store: Store):
        mine = store.session("s").arrive("terminal")
        kept = store.session("t").arrive("terminal")
        store.erase_session("s")
        assert store.setting(f"presence:{mine.id}") is None
        assert store.setting(f"presence:{kept.id}") is not None
        with pytest.raises(SessionNotFound):
            store.run(presence.arrive(store.scope(), "s", "x", "web"))

    def test_a_pruned_session_leaves_nothing(self, store: Store):
        mine = store.session("s").arrive("terminal")
        store.session("s").append({"role": "user", "content": "old"})
        kept = store.session("t").arrive("terminal")
        store.session("t").append({"role": "user", "content": "new"})
        store.session("u").append({"role": "user", "content": "thrown away"})
        thrown = store.session("u").arrive("web")
        store.delete_session("u")
        store.empty_trash()
        assert store.setting(f"presence:{thrown.id}") is None
        assert [one.id for one in store.prune(keep=1, erase=True).sessions] == ["s"]
        assert store.setting(f"presence:{mine.id}") is None
        assert store.setting(f"presence:{kept.id}") is not None

    def test_what_others_wrote_under_such_a_key_is_left_alone(self, store: Store):
        session = store.session("s")
        for odd in (1, "text", [], {}, {"session": "s"}, {"session": "s", "surface": 1, "holder": "h", "since": 1}):
            store.set_setting("presence:odd", odd)
            assert session.arrive("terminal", id="me").others == []
        assert store.setting("presence:odd") is not None

    @pytest.mark.parametrize("surface", ["", " ", "x" * 41, "two\nlines", "\x1b[2J"])
    def test_a_surface_is_a_word(self, store: Store, surface: str):
        with pytest.raises(InvalidValue):
            store.session("s").arrive(surface)
