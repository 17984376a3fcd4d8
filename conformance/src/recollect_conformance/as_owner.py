"""store.as_owner(): stores of several owners that share the connections and threads of one."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from recollect.errors import InvalidValue, SessionNotFound, StoreClosed
from recollect.model.session import Change
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions, read_contents
from recollect_conformance.examples import assistant, texts, tool_call_message, user
from recollect_conformance.watch import read_until

_CHANGE_TIMEOUT = 60.0  # seconds. A limit for slow machines; a test continues as soon as the change arrives.
_QUIET_PERIOD = 0.4  # seconds in which no change may arrive
_HOSTILE_NAMES = ("a\x10", "a\x10p", "a\x100", "a'; --", "\U0001f600" * 128, "ANN", " ann", "%", "\x01\r\n")


class OwnerModel:
    """What an owner must see: the texts of each session. Runs random operations on a store and on this model."""

    def __init__(self, store: Store, name: str, seed: int) -> None:
        self.store = store
        self.name = name
        self.sessions: dict[str, list[str]] = {}
        self.steps = 0
        self._random = random.Random(seed)  # noqa: S311  a test repeats its sequence

    def run(self, count: int) -> None:
        """Run random operations, and compare after each."""
        operations = (self.append, self.append, self.save_turn, self.rewind, self.erase, self.put_record, self.find)
        for _ in range(count):
            self.steps += 1
            self._random.choice(operations)(f"s{self._random.randrange(4)}")
            self.check()

    def append(self, id: str) -> None:
        """Append a message; every owner uses the same ids."""
        text = f"{self.name} {self.steps}"
        self.store.session(id).append(user(text))
        self.sessions.setdefault(id, []).append(text)

    def save_turn(self, id: str) -> None:
        """Save a turn in one step."""
        text = f"{self.name} {self.steps}"
        self.store.session(id).save_turn(text, assistant(f"reply to {text}"))
        self.sessions.setdefault(id, []).extend([text, f"reply to {text}"])

    def rewind(self, id: str) -> None:
        """Rewind to the first message."""
        session = self.store.get_session(id)
        assert (session is None) == (id not in self.sessions)
        if session is not None and self.sessions[id]:
            session.rewind(session.messages()[0].id)
            del self.sessions[id][1:]

    def erase(self, id: str) -> None:
        """Erase a session, if this owner has it."""
        if id in self.sessions:
            self.store.erase_session(id)
            del self.sessions[id]
        else:
            with pytest.raises(SessionNotFound):
                self.store.erase_session(id)

    def put_record(self, id: str) -> None:
        """Store a record under a key that every owner uses."""
        assert self.store.records.put("names", "name", self.name) == self.store.records.get("names", "name")
        assert self.store.records.get("names", f"never {id}") is None

    def find(self, id: str) -> None:
        """Search for a word that the messages of every owner have."""
        hits = self.store.search("reply", session=id) if id in self.sessions else self.store.search("reply")
        assert all(self.name in hit.text or self.name in self.sessions[hit.session][0] for hit in hits)
        assert {hit.session for hit in hits} <= set(self.sessions)

    def check(self) -> None:
        """Compare everything that the store has with the model."""
        assert {session.id for session in list_all_sessions(self.store)} == set(self.sessions)
        for id, expected in self.sessions.items():
            session = self.store.get_session(id)
            assert session is not None
            assert texts(session) == expected


class TestAsOwner:
    """Each store sees the data of its owner only."""

    def test_owners_do_not_see_one_another(self, store: Store):
        ann, bob = store.as_owner("ann"), store.as_owner("bob")
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            assert other.get_session("a") is None
            other.session("a", exist_ok=False).append(user(name), key="k")
            other.records.put("names", "k", name)
        bob.delete_session("a")
        assert [len(list_all_sessions(other)) for other in (store, ann, bob)] == [1, 1, 0]
        records = [other.records.get("names", "k") for other in (store, ann, bob)]
        assert [record and record.value for record in records] == ["nobody", "ann", "bob"]
        assert ann.erase_session("a") == ["a"]
        assert texts(store.session("a")) == ["nobody"]
        assert texts(bob.restore_session("a")) == ["bob"]
        assert [hit.session for hit in bob.search("bob")] == ["a"]
        assert (list(bob.search("nobody")), list(ann.search("bob"))) == ([], [])
        assert store.maintenance.owners().names == ("", "ann", "bob")
        assert [other.maintenance.check(file=False).problems for other in (store, ann, bob)] == [(), (), ()]

    def test_views_of_views_and_of_the_same_owner(self, store: Store):
        ann = store.as_owner("ann")
        ann.session("a").append(user("ann"))
        same = ann.as_owner("bob").as_owner("ann")
        assert texts(same.session("a", create=False)) == ["ann"]
        same.session("a").append(user("again"))
        assert texts(ann.session("a")) == ["ann", "again"]
        store.session("a").append(user("nobody"))
        assert texts(ann.as_owner("").session("a", create=False)) == ["nobody"]
        assert same.path == store.path

    @pytest.mark.parametrize("name", _HOSTILE_NAMES, ids=ascii)
    def test_any_name(self, store: Store, name: str):
        others = [store.as_owner(other) for other in _HOSTILE_NAMES if other != name]
        for number, other in enumerate(others):
            other.session("a").append(user(f"other {number}"))
        owner = store.as_owner(name)
        assert owner.get_session("a") is None
        with owner.watch(timeout=_CHANGE_TIMEOUT) as watch:
            session = owner.session("a")
            session.append(user("mine"))
            read_until(watch, Change("a", session.revision))
        assert texts(store.as_owner(name).session("a", create=False)) == ["mine"]
        assert [texts(other.session("a")) for other in others] == [[f"other {n}"] for n in range(len(others))]

    def test_invalid_names(self, store: Store):
        names: list[Any] = [
            None,
            5,
            b"ann",
            "a\0b",
            "\ud800",
            "x" * 257,
            "\U0001f600" * 129,
            type("S", (str,), {})("a"),
        ]
        for name in names:
            with pytest.raises(InvalidValue, match="owner must"):
                store.as_owner(name)

    def test_turns_and_streams_of_several_owners(self, store: Store):
        views = [store.as_owner(f"owner {number}") for number in range(3)]
        turns = [view.session("a").turn(f"q{number}") for number, view in enumerate(views)]
        streams = [turn.stream() for turn in turns]
        for number, stream in enumerate(streams):
            stream.write(f"r{number}")
        for stream, turn in zip(streams, turns, strict=True):
            stream.close()
            turn.add(tool_call_message("t"))
            turn.complete()
        for number, view in enumerate(views):
            session = view.session("a", create=False)
            assert texts(session)[:2] == [f"q{number}", f"r{number}"]
            assert [call.call_id for call in session.tools.list()] == ["t"]

    def test_watches_report_the_changes_of_one_owner(self, store: Store):
        ann, bob = store.as_owner("ann"), store.as_owner("bob")
        with (
            store.watch(timeout=_QUIET_PERIOD) as ours,
            ann.watch(timeout=_CHANGE_TIMEOUT) as first,
            store.as_owner("ann").watch("a", timeout=_CHANGE_TIMEOUT) as second,
            bob.watch(timeout=_QUIET_PERIOD) as theirs,
        ):
            session = ann.session("a")
            session.append(user("x"))
            for watch in (first, second):
                read_until(watch, Change("a", session.revision))
            assert list(theirs) == list(ours) == []
            first.close()
            session.append(user("y"))
            read_until(second, Change("a", session.revision))
            bob.session("b").append(user("x"))
            assert {change.session for change in theirs} == {"b"}
            assert list(ours) == []

    def test_closing_a_view_closes_nothing_else(self, store: Store):
        ann, bob = store.as_owner("ann"), store.as_owner("bob")
        session, watch, other_watch = ann.session("a"), ann.watch(), bob.watch(timeout=_CHANGE_TIMEOUT)
        stream = session.turn("q").stream()
        stream.write("x")
        for _ in range(2):
            ann.close()
        for act in (
            lambda: ann.session("a"), ann.list_sessions, lambda: ann.search("q"), ann.watch, ann._scope,
            lambda: session.append(user("x")), session.messages, ann.maintenance.check,
            ann.maintenance.space, lambda: ann.as_owner("bob"),
            lambda: next(watch), ann.maintenance.owners, stream.flush,
        ):  # fmt: skip
            with pytest.raises(StoreClosed):
                act()
        assert ann.path == store.path
        bobs_session = bob.session("b")
        bobs_session.append(user("x"))
        read_until(other_watch, Change("b", bobs_session.revision))
        other_watch.close()
        assert texts(store.as_owner("ann").session("a")) == ["q", ""]
        store.session("c").append(user("x"))

    def test_a_view_as_a_context_manager(self, store: Store):
        with store.as_owner("ann") as ann:
            ann.session("a")
        with pytest.raises(StoreClosed):
            ann.session("a")
        assert store.as_owner("ann").get_session("a") is not None

    def test_random_operations_of_many_owners_at_once(self, store: Store, database: DatabaseUnderTest):
        """They share connections, transactions and threads. Each owner sees exactly its rows after every operation."""
        owners, steps = (24, 60) if database.thorough else (8, 12)
        models = [OwnerModel(store.as_owner(f"owner{number}!"), f"owner{number}!", number) for number in range(owners)]
        errors: list[BaseException] = []

        def run(model: OwnerModel) -> None:
            try:
                model.run(steps)
            except BaseException as error:  # noqa: BLE001  raised below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error
        for model in models:
            model.check()
            assert model.store.maintenance.check(file=False).problems == ()


class TestAsOwnerOfClosedStore:
    """Closing the store that was opened closes all stores that came from it."""

    def test_closing_the_store_closes_its_views(self, database: DatabaseUnderTest):
        store = database.open()
        ann = store.as_owner("ann")
        bob = ann.as_owner("bob")
        session = ann.session("a")
        watches = [view.watch() for view in (store, ann, bob)]
        store.close()
        for view in (store, ann, bob):
            for act in (view.list_sessions, lambda view=view: view.session("a"), view.watch):
                with pytest.raises(StoreClosed):
                    act()
            with pytest.raises(StoreClosed):
                view.as_owner("x")
            view.close()
        for watch in watches:
            with pytest.raises(StoreClosed):
                next(watch)
        with pytest.raises(StoreClosed):
            session.append(user("x"))

    def test_a_view_is_the_store_of_its_owner(self, store: Store, database: DatabaseUnderTest):
        view, own = store.as_owner("ann"), database.open("ann")
        view.session("a", title="T").append([user("x"), assistant("r")])
        own.session("b").append(user("y"))
        assert read_contents(view) == read_contents(own)
        assert read_contents(own.as_owner("")) == read_contents(store)
