"""Labels of sessions: set, add and remove them, also from several programs at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from recollect.errors import InvalidValue, KeyReused, SessionInTrash, SessionNotFound, StaleRevision
from recollect.store import Store
from recollect_conformance.concurrency import WRITERS, run_concurrently
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import user

MAX_LABELS, MAX_LENGTH = 100, 200
HOSTILE_LABELS = (
    "' OR 1=1 --",
    "%",
    "a,b",
    '["a"]',
    "💥",
    "👩\u200d🚀",
    "a\u00a0b",
    "\\u0000",
    "é",
    "e\u0301",
    "-a",
    "NULL",
)


class Text(str):
    """A subclass of str, as an enum of a program is."""

    __slots__ = ()


def list_ids(store: Store, **filters: Any) -> list[str]:
    """Return the ids of a complete list."""
    return [session.id for session in list_all_sessions(store, **filters)]


class TestLabels:
    """A session has a set of labels, by which lists find it."""

    def test_labels_are_a_sorted_set(self, store: Store, database: DatabaseUnderTest):
        assert store.session("none").labels == ()
        session = store.session("a", labels=["work", "b", "work"])
        assert session.labels == ("b", "work")
        assert list(session.to_dict()["labels"]) == ["b", "work"]
        assert session.update(labels={"c", "b"}).labels == ("b", "c")
        assert store.session("new", exist_ok=False, labels=cast("Any", iter(["x"]))).labels == ("x",)
        store = database.reopen()
        session = store.session("a", labels=["ignored"])
        assert (session.labels, session.info.labels) == (("b", "c"), ("b", "c"))
        assert [list(entry.labels) for entry in list_all_sessions(store, label="c")] == [["b", "c"]]
        assert (list_ids(store, label="work"), list_ids(store, label="ignored")) == ([], [])
        assert session.update(labels=None).labels == ()
        assert session.update(labels=[]).labels == ()
        assert list_ids(store, label="b") == []
        database.verify()

    def test_labels_are_added_and_removed(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", labels=["a"])
        other = store.session("a")
        before = session.revision
        assert session.update(add_labels=["c", "b", "a"]) == session
        assert (session.labels, session.revision) == (("a", "b", "c"), before + 1)
        assert other.update(add_labels=["d"]).labels == ("a", "b", "c", "d")
        assert session.update(remove_labels=["a", "missing"]).labels == ("b", "c", "d")
        before = session.revision
        for unchanged in (
            session.update(add_labels=["b"]),
            session.update(add_labels=[]),
            session.update(remove_labels=["a"]),
        ):
            assert (unchanged.labels, unchanged.revision) == (("b", "c", "d"), before)
        assert store.get_session("a") == session
        assert list_ids(store, label=["b", "d"]) == ["a"]
        assert session.update(remove_labels=["b", "c", "d"]).labels == ()
        assert list_ids(store, label="b") == []
        session.append(user("x"))
        assert session.update(add_labels=["z"]).message_count == 1
        database.verify()

    def test_labels_change_with_other_fields_in_one_step(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", labels=["a", "b"])
        revision = session.revision
        session.update(add_labels=["c"], remove_labels=["a", "missing"], title="T", expected=revision)
        assert (session.labels, session.title, session.revision) == (("b", "c"), "T", revision + 1)
        session.update(add_labels=["c"], title="U")
        assert (session.labels, session.title, session.revision) == (("b", "c"), "U", revision + 2)
        parent = store.session("parent")
        session.update(add_labels=["d"], parent=parent.id)
        assert (session.labels, session.parent) == (("b", "c", "d"), "parent")
        revision = session.revision
        assert session.update(add_labels=["d"], expected=revision).revision == revision
        with pytest.raises(StaleRevision):
            session.update(add_labels=["d"], expected=revision - 1)
        for fields in ({"labels": ["x"], "add_labels": ["y"]}, {"add_labels": ["x"], "remove_labels": ["x"]}):
            with pytest.raises(InvalidValue, match="must not"):
                session.update(**cast("Any", fields))
        for call in (store.session, session.fork):
            with pytest.raises(InvalidValue, match="no settable field 'add_labels'"):
                call(id="new", **cast("Any", {"add_labels": ["x"]}))
        assert (store.get_session("new"), session.refresh().revision) == (None, revision)
        database.verify()

    def test_an_append_changes_labels(self, store: Store, database: DatabaseUnderTest):
        session, other = store.session("a", labels=["a"]), store.session("a")
        other.update(add_labels=["of another program"])
        revision = other.revision
        first = session.append(user("1"), key="k", update={"add_labels": ["b"], "remove_labels": ["a"]})
        assert (session.labels, session.revision) == (("b", "of another program"), revision + 1)
        again = session.append(user("1"), key="k", update={"add_labels": ["b"], "remove_labels": ["a"]})
        assert (again.ids, again.repeated, session.revision) == (first.ids, True, revision + 1)
        with pytest.raises(KeyReused):
            session.append(user("1"), key="k", update={"add_labels": ["c"]})
        session.append([], update={"add_labels": ["b"]})
        assert session.revision == revision + 1
        session.append(user("2"), update={"add_labels": ["b"]})
        assert (session.labels, session.revision) == (("b", "of another program"), revision + 2)
        assert list_ids(store, label="b") == ["a"]
        database.verify()

    def test_other_changes_keep_labels(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", labels=["x"], metadata={"k": 1})
        session.update(title="T")
        session.append([user("1"), user("2")])
        session.rewind(1)
        session.update(metadata=None)
        assert session.refresh().labels == ("x",)
        store.delete_session("a")
        assert (list_ids(store, label="x"), list_ids(store, label="x", deleted=True)) == ([], ["a"])
        store.session("a", labels=["y"])
        assert (list_ids(store, label="x"), list_ids(store, label="y")) == ([], ["a"])
        store.erase_session("a", deleted=False)
        assert store.restore_session("a").labels == ("x",)
        assert (list_ids(store, label="x"), list_ids(store, label="y")) == (["a"], [])
        database.verify()

    def test_a_fork_inherits_labels(self, store: Store):
        session = store.session("a", labels=["x", "y"])
        session.append(user("1"))
        copy = session.fork(id="inherited")
        others = [session.fork(id="other", labels=["z"]), session.fork(id="empty", labels=[])]
        assert (copy.labels, [other.labels for other in others]) == (("x", "y"), [("z",), ()])
        copy.update(remove_labels=["x"])
        assert (session.refresh().labels, list_ids(store, label="y")) == (("x", "y"), ["inherited", "a"])
        store.erase_session("a", forks="keep")
        assert list_ids(store, label="y") == ["inherited"]
        assert store.maintenance.check(file=False).problems == ()

    @pytest.mark.parametrize("label", HOSTILE_LABELS)
    def test_any_printable_text_is_a_label(self, store: Store, database: DatabaseUnderTest, label: str):
        store.session("other", labels=["other"])
        store.session("a", labels=[label]).update(add_labels=["b" * MAX_LENGTH, Text("c")])
        store = database.reopen()
        session = store.session("a")
        assert session.labels == tuple(sorted((label, "b" * MAX_LENGTH, "c")))
        assert {type(label) for label in session.labels} == {str}
        assert list_ids(store, label=label) == list_ids(store, label=[label, "c"]) == ["a"]
        assert session.update(remove_labels=[label]).labels == ("b" * MAX_LENGTH, "c")
        assert list_ids(store, label=label) == []

    def test_invalid_labels_are_refused(self, store: Store):
        session = store.session("a", labels=["kept"])
        revision = session.revision
        invalid_labels: tuple[Any, ...] = (
            "", " ", " a", "a ", "\ta", "a\nb", "a\0b", "\x1b[0m", "a\x7fb", "a\x85b", "a\u2028b", "\ud800",
            "x" * (MAX_LENGTH + 1), 5, None, b"x", ["x"], True,
        )  # fmt: skip
        for label in invalid_labels:
            for change in ({"add_labels": ["fine", label]}, {"remove_labels": ["fine", label]}):
                with pytest.raises(InvalidValue, match="label"):
                    session.update(**cast("Any", change))
                with pytest.raises(InvalidValue, match="label"):
                    session.append(user("x"), update=cast("Any", change))
            with pytest.raises(InvalidValue, match="label"):
                session.update(labels=["fine", label])
            with pytest.raises(InvalidValue, match="label"):
                store.session("new", labels=cast("Any", [label]))
        for labels in ("text", b"text", 5, {"a": 1}, True, NotIterable()):
            with pytest.raises(InvalidValue, match="labels must be a list of str"):
                session.update(labels=cast("Any", labels))
            with pytest.raises(InvalidValue, match="labels must be a list of str"):
                session.fork(labels=cast("Any", labels))
            with pytest.raises(InvalidValue, match="add_labels must be a list of str"):
                session.update(add_labels=cast("Any", labels))
        assert store.get_session("new") is None
        assert (session.refresh().labels, session.revision) == (("kept",), revision)

    def test_a_session_has_at_most_100_labels(self, store: Store):
        labels = [f"l{number:03}" for number in range(MAX_LABELS)]
        session = store.session("a", labels=[*labels, labels[0]])
        assert session.labels == tuple(labels)
        assert list_ids(store, label=labels) == ["a"]
        for call in (lambda: session.update(add_labels=["x"]), lambda: session.update(labels=[*labels, "x"])):
            with pytest.raises(InvalidValue, match="at most 100 labels, got 101"):
                call()
        assert session.refresh().labels == tuple(labels)
        session.update(remove_labels=[labels[0]])
        assert "x" in session.update(add_labels=["x"]).labels

    def test_a_missing_session_has_no_labels(self, store: Store):
        session = store.session("a")
        store.delete_session("a")
        changes: tuple[Any, ...] = ({"add_labels": ["x"]}, {"remove_labels": ["x"]})
        for change in changes:
            with pytest.raises(SessionInTrash):
                session.update(**change)
        store.erase_session("a")
        for change in changes:
            with pytest.raises(SessionNotFound):
                session.update(**change)

    def test_concurrent_changes_lose_no_label(self, store: Store, database: DatabaseUnderTest):
        """Threads share a store, and half of them another store on the same database."""
        store.session("a", labels=[f"old{number}" for number in range(WRITERS)])
        stores = [store, database.open()]

        def change(writer: int) -> None:
            session = stores[writer % 2].get_session("a")
            assert session is not None
            for number in range(5):
                session.update(add_labels=[f"w{writer}-{number}", "shared"])
            session.update(remove_labels=[f"old{writer}"])
            session.update(remove_labels=[f"w{writer}-0"])

        run_concurrently(change)
        expected = {"shared", *(f"w{writer}-{number}" for writer in range(WRITERS) for number in range(1, 5))}
        session = store.session("a")
        assert session.labels == tuple(sorted(expected))
        assert {label for label in expected if list_ids(store, label=label) == ["a"]} == expected
        assert list_ids(store, label="old0") == []
        assert store.maintenance.check(file=False).problems == ()

    def test_each_owner_has_its_own_labels(self, store: Store, database: DatabaseUnderTest):
        for name in ("", "ann", "bob"):
            other = database.open(name)
            other.session("a", exist_ok=False, labels=["shared", f"of-{name}"])
        ann = database.open("ann")
        assert [session.labels for session in list_all_sessions(ann, label="shared")] == [("of-ann", "shared")]
        assert list_ids(ann, label="of-bob") == []
        ann.erase_session("a")
        assert (list_ids(ann, label="shared"), list_ids(store, label="shared")) == ([], ["a"])
        assert store.maintenance.check(file=False).problems == ()


class NotIterable:
    """An object whose iterator raises an error."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")
