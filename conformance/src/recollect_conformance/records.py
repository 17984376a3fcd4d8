"""Keyed records of the store and of sessions: values, revisions, order, and concurrent changes."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import enum
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from recollect import export
from recollect.errors import (
    InvalidValue,
    SessionInTrash,
    SessionNotFound,
    StaleRecord,
)
from recollect.model.record import Record
from recollect.model.value import to_datetime
from recollect.store import Records, Store
from recollect_conformance.concurrency import run_concurrently
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import NAN, user

WORKERS = 20  # threads that change one record
INCREMENTS = 5  # of each worker. Enough for the workers to overlap, few enough for a short test.

JSON_VALUES: tuple[Any, ...] = (
    None, "text", "", 0, False, -1.5, [], {}, {"a": [None, 1.5, {"b": "c"}]}, 2**80, "\ud800\0", "\ud83d\ude00", "\x10",
    "long " * 100_000,
)  # fmt: skip
BYTES_VALUES: tuple[bytes, ...] = (b"", b"\0", b"\xff\xfe", b'{"a":1}', bytes(range(256)) * 5_000)
ODD_CHARACTERS = "\0\x01\x02\x0f\x10\x11\x1f %'\\_09ap\x7f\x80é\u0fff\u2028\ud7ff\ue000\uffff\U00010000\U0010ffff"
"""Characters whose order differs between encodings, and those that engines or SQL treat specially."""


class Word(str, enum.Enum):  # noqa: UP042  str() of a member is its name, not its value
    """A kind and a key that are members of an enum, as programs define them."""

    KIND = "kind"
    KEY = "key"


def value_of(record: Record | None) -> Any:
    """Return the value of a record that exists."""
    assert record is not None
    return record.value


def keys(records: list[Record]) -> list[str]:
    """Return the keys of a page."""
    return [record.key for record in records]


def all_keys(records: Records, kind: str, limit: int, **filters: Any) -> list[str]:
    """Return the keys of a kind, read page by page."""
    page = records.list(kind, limit=limit, **filters)
    names = keys(page)
    while page.next is not None:
        assert len(page) == limit
        page = records.list(kind, limit=limit, **{**filters, "after": page.next})
        assert page
        names += keys(page)
    return names


def increment(records: Records, kind: str = "counter", key: str = "n") -> int:
    """Add 1 to a number by comparing and swapping, and return the number of attempts."""
    for attempt in itertools.count(1):
        record = records.get(kind, key)
        number, revision = (0, 0) if record is None else (record.value, record.revision)
        try:
            records.put(kind, key, number + 1, expected=revision)
        except StaleRecord:
            continue
        return attempt
    raise AssertionError("unreachable")


class RecordsFixture:
    """Base of classes whose tests run with the records of the store, and with those of a session."""

    @pytest.fixture(params=["store", "session"])
    def records(self, request: pytest.FixtureRequest, store: Store) -> Records:
        """Return the records of the store or of a session."""
        return store.records if request.param == "store" else store.session("s").records


class TestRecords(RecordsFixture):
    """The same for the records of the store and of a session."""

    @pytest.mark.parametrize("value", [*JSON_VALUES, *BYTES_VALUES], ids=lambda value: repr(value)[:20])
    def test_values_are_returned_unchanged(self, records: Records, value: Any):
        assert records.get("kind", "key") is None
        for record in (records.put("kind", "key", value), records.get("kind", "key"), records.list("kind")[0]):
            assert value_of(record) == value
            assert type(value_of(record)) is type(value)

    def test_a_record_has_its_names_and_times(self, store: Store, records: Records):
        before = store._scope().now
        first = records.put("kind", "key", 1)
        second = records.put("kind", "key", b"2")
        assert (second.kind, second.key, second.value) == ("kind", "key", b"2")
        assert (first.revision, second.revision) == (1, 2)
        assert to_datetime(before) <= first.created_at == first.updated_at == second.created_at <= second.updated_at
        assert records.get("kind", "key") == second
        assert list(records.list("kind")) == [second]

    def test_buffers_are_stored_as_bytes(self, records: Records):
        for buffer in (bytearray(b"abc"), memoryview(b"abc"), memoryview(b"axbxcx")[::2]):
            assert records.put("kind", "key", buffer).value == b"abc"
            assert value_of(records.get("kind", "key")) == b"abc"
        buffer = memoryview(b"abc")
        buffer.release()
        with pytest.raises(InvalidValue, match="value must be readable bytes"):
            records.put("kind", "key", buffer)

    def test_a_returned_value_is_independent_of_the_stored_one(self, records: Records):
        value = {"a": [1]}
        record = records.put("kind", "key", value)
        value["a"].append(2)
        assert record.value == {"a": [1]}
        record.value["a"].append(3)
        assert value_of(records.get("kind", "key")) == {"a": [1]}

    def test_a_value_that_is_not_json_is_refused(self, records: Records):
        records.put("kind", "key", "kept")
        for invalid in (NAN, object(), {1: 2}, {"a": b"x"}, {1, 2}):
            with pytest.raises(InvalidValue):
                records.put("kind", "key", invalid)
        assert value_of(records.get("kind", "key")) == "kept"

    def test_expected_revisions(self, records: Records):
        with pytest.raises(StaleRecord) as info:
            records.put("kind", "key", 1, expected=1)
        error: Any = info.value
        assert (error.kind, error.key, error.revision, error.expected) == ("kind", "key", 0, 1)
        assert records.get("kind", "key") is None
        assert records.put("kind", "key", 1, expected=0).revision == 1
        for stale in (0, 2, 2**53 - 1):
            with pytest.raises(StaleRecord, match=f"is at revision 1, expected {stale}"):
                records.put("kind", "key", 2, expected=stale)
            with pytest.raises(StaleRecord, match=f"is at revision 1, expected {stale}"):
                records.delete("kind", "key", expected=stale)
        assert value_of(records.get("kind", "key")) == 1
        assert records.put("kind", "key", 2, expected=1).revision == 2
        assert records.put("kind", "key", 2).revision == 3

    def test_deleting_returns_whether_the_record_existed(self, records: Records):
        assert records.delete("kind", "key") is False
        assert records.delete("kind", "key", expected=0) is False
        records.put("kind", "key", 1)
        with pytest.raises(StaleRecord):
            records.delete("kind", "key", expected=2)
        assert records.delete("kind", "key", expected=1) is True
        assert records.delete("kind", "key") is False
        with pytest.raises(StaleRecord, match="is at revision 0, expected 1"):
            records.delete("kind", "key", expected=1)
        assert records.get("kind", "key") is None
        assert list(records.list("kind")) == []

    def test_a_record_that_is_created_again_has_a_new_revision(self, records: Records):
        """A writer that read the deleted record must not replace or delete the new one."""
        revisions: list[int] = []
        for expected in (None, 0, None):
            revisions += [
                records.put("lock", "key", 1, expected=expected).revision,
                records.put("lock", "key", 2).revision,
            ]
            assert records.delete("lock", "key", expected=revisions[-1])
        assert revisions == sorted(set(revisions))
        new = records.put("lock", "key", "new", expected=0)
        for stale in revisions:
            with pytest.raises(StaleRecord):
                records.put("lock", "key", "lost", expected=stale)
            with pytest.raises(StaleRecord):
                records.delete("lock", "key", expected=stale)
        assert records.get("lock", "key") == new
        assert records.put("other", "key", 1).revision == 1

    def test_kinds_are_separate(self, records: Records):
        for number, kind in enumerate(("a", "b", "ab", "a\0", "A")):
            records.put(kind, "key", number)
        assert [value_of(records.get(kind, "key")) for kind in ("a", "b", "ab", "a\0", "A")] == [0, 1, 2, 3, 4]
        records.delete("a", "key")
        assert [len(records.list(kind)) for kind in ("a", "b", "ab", "a\0", "A", "c")] == [0, 1, 1, 1, 1, 0]

    def test_members_of_a_string_enum(self, records: Records):
        record = records.put(Word.KIND, Word.KEY, 1)
        assert (record.kind, type(record.kind), record.key, type(record.key)) == ("kind", str, "key", str)
        assert records.get("kind", "key") == records.get(Word.KIND, Word.KEY) == record
        assert keys(records.list(Word.KIND, prefix=Word.KEY)) == ["key"]

    @pytest.mark.parametrize("kind", ["", "k" * 65, "\ud800", None, 5, b"k", "recollect.", "recollect.presence"])
    def test_invalid_kinds_are_refused(self, records: Records, kind: Any):
        calls: list[Callable[[], Any]] = [lambda: records.put(kind, "key", 1), lambda: records.delete(kind, "key")]
        if not str(kind).startswith("recollect."):
            calls += [lambda: records.get(kind, "key"), lambda: records.list(kind)]
        for call in calls:
            with pytest.raises(InvalidValue, match="kind must"):
                call()

    def test_reserved_kinds_are_readable(self, records: Records):
        assert records.get("recollect.other", "key") is None
        assert list(records.list("recollect.other")) == []
        assert records.put("recollector", "key", 1).revision == 1

    @pytest.mark.parametrize("key", ["", "k" * 1_025, "\u4e00" * 342, "\ud800", None, 5, b"k"])
    def test_invalid_keys_are_refused(self, records: Records, key: Any):
        with pytest.raises(InvalidValue, match="key must"):
            records.put("kind", key, 1)
        assert list(records.list("kind")) == []

    def test_a_key_that_no_record_can_have_is_not_found(self, records: Records):
        for key in ("", "k" * 1_025):
            assert records.get("kind", key) is None
            assert records.delete("kind", key) is False

    @pytest.mark.parametrize(
        "arguments",
        [
            {"limit": 0}, {"limit": 1_001}, {"limit": None}, {"limit": True}, {"limit": 1.5}, {"after": "\ud800"},
            {"after": 5}, {"prefix": None}, {"prefix": b"x"}, {"prefix": "\ud800"},
        ],
    )  # fmt: skip
    def test_invalid_arguments_of_a_list_are_refused(self, records: Records, arguments: dict[str, Any]):
        (name,) = arguments
        with pytest.raises(InvalidValue, match=f"^{name} must"):
            records.list("kind", **arguments)

    @pytest.mark.parametrize("expected", [-1, 1.0, True, "1", 2**53])
    def test_invalid_expected_revisions_are_refused(self, records: Records, expected: Any):
        for call in (
            lambda: records.put("kind", "key", 1, expected=expected),
            lambda: records.delete("kind", "key", expected=expected),
        ):
            with pytest.raises(InvalidValue, match="expected must be a non-negative integer"):
                call()

    def test_the_longest_names(self, records: Records):
        kind = "".join(map(chr, range(0x1F600, 0x1F640)))
        incompressible = "".join(map(chr, range(0x4E00, 0x4E00 + 341))) + "k"
        for key in (incompressible, "\0" * 1_024, "\x10" * 1_024, "k" * 1_024, "\0\x01\x10\x02" * 256):
            records.put(kind, key, key)
            assert value_of(records.get(kind, key)) == key
        records.delete(kind, incompressible)
        assert len(records.list(kind)) == 4

    def test_records_are_plain_data(self, records: Records):
        for value in ({"a": [1]}, None, b"\0\xff", b""):
            record = records.put("kind", "key", value)
            plain = record.to_dict()
            assert ("data" in plain, "value" in plain) == (isinstance(value, bytes), not isinstance(value, bytes))
            assert Record.from_dict(plain) == Record.from_json(record.to_json()) == record


class TestRecordOrder(RecordsFixture):
    """Lists are ordered by code point, with every character in keys."""

    def test_keys_are_listed_in_the_order_of_code_points(self, records: Records):
        names = sorted({*ODD_CHARACTERS, *(a + b for a in ODD_CHARACTERS for b in ODD_CHARACTERS)})
        for name in reversed(names):
            records.put("kind", name, None)
        assert all_keys(records, "kind", 1_000) == names
        assert all_keys(records, "kind", 37) == names
        for prefix in ODD_CHARACTERS:
            expected = [name for name in names if name.startswith(prefix)]
            assert all_keys(records, "kind", 5, prefix=prefix) == expected
            assert keys(records.list("kind", prefix=prefix, after=prefix, limit=1_000)) == expected[1:]
        for after in (*ODD_CHARACTERS, "", "a\ufffe", "0\0\0"):
            assert keys(records.list("kind", after=after, limit=1_000)) == [name for name in names if name > after]
        assert keys(records.list("kind", prefix="0", after="9")) == []
        assert (
            keys(records.list("kind", prefix="9", after="0", limit=3)) == [name for name in names if name[0] == "9"][:3]
        )

    def test_a_page_that_ends_with_the_last_record_has_no_next(self, records: Records):
        for number in range(4):
            records.put("kind", str(number), number)
        first = records.list("kind", limit=2)
        second = records.list("kind", after=first.next, limit=2)
        assert (keys(first), first.next, keys(second), second.next) == (["0", "1"], "1", ["2", "3"], None)
        assert records.list("kind", limit=4).next is None
        assert records.list("kind", after="3").next is None

    def test_changes_between_pages_repeat_and_skip_nothing(self, records: Records):
        for number in range(10):
            records.put("kind", f"{number}", number)
        page = records.list("kind", limit=5)
        for key in ("4", "0"):
            records.delete("kind", key)
        records.put("kind", "00", "before")
        records.put("kind", "55", "after")
        assert keys(records.list("kind", after=page.next)) == ["5", "55", "6", "7", "8", "9"]


class TestSessionRecords:
    """Records of a session: they live as long as it does."""

    def test_the_store_and_sessions_have_their_own_records(self, store: Store):
        first, second = store.session("a").records, store.session("b").records
        for number, records in enumerate((store.records, first, second)):
            assert records.put("kind", "key", number, expected=0).revision == 1
        assert [value_of(records.get("kind", "key")) for records in (store.records, first, second)] == [0, 1, 2]
        assert [record.session for records in (store.records, first) for record in records.list("kind")] == [None, "a"]
        first.delete("kind", "key")
        assert [len(records.list("kind")) for records in (store.records, first, second)] == [1, 0, 1]

    def test_a_record_does_not_change_its_session(self, store: Store):
        session = store.session("a")
        session.append(user("x"))
        store.session("b")
        before = session.refresh().info
        session.records.put("kind", "key", 1)
        session.records.put("kind", "key", 2)
        session.records.list("kind")
        session.records.delete("kind", "key")
        assert session.refresh().info == before
        assert [other.id for other in store.list_sessions()] == ["b", "a"]

    def test_missing_sessions_and_sessions_in_the_trash(self, store: Store):
        session = store.session("a")
        records = session.records
        record = records.put("kind", "key", 1)
        calls: list[Callable[[], Any]] = [
            lambda: records.put("kind", "key", 2), lambda: records.get("kind", "key"), lambda: records.list("kind"),
            lambda: records.delete("kind", "key"),
        ]  # fmt: skip
        store.delete_session("a")
        for call in calls:
            with pytest.raises(SessionInTrash):
                call()
        store.restore_session("a")
        assert records.get("kind", "key") == record
        store.erase_session("a")
        for call in calls:
            with pytest.raises(SessionNotFound) as info:
                call()
            assert not isinstance(info.value, SessionInTrash)

    def test_a_session_in_the_trash_keeps_its_records_while_another_has_its_id(self, store: Store):
        store.session("a").records.put("kind", "key", "old")
        store.delete_session("a")
        new = store.session("a").records
        assert new.get("kind", "key") is None
        new.put("kind", "key", "new")
        assert store.erase_session("a", deleted=False) == ["a"]
        assert value_of(store.restore_session("a").records.get("kind", "key")) == "old"

    def test_a_new_session_with_the_id_of_an_erased_one_has_no_records(self, store: Store):
        for _ in range(3):
            records = store.session("a").records
            assert list(records.list("kind")) == []
            assert records.put("kind", "key", b"secret").revision == 1
            records.put("kind", "other", 1)
            records.delete("kind", "other")
            store.erase_session("a")
        assert store.maintenance.owners().names == ()
        assert store.maintenance.check().problems == ()

    def test_pruning_erases_records(self, store: Store):
        for name in ("a", "b", "c"):
            session = store.session(name)
            session.append(user(name))
            session.records.put("kind", "key", name)
        store.delete_session("a")
        store.maintenance.empty_trash()
        store.maintenance.prune(keep=1, erase=True)
        assert [store.session(name).records.get("kind", "key") is None for name in ("a", "b", "c")] == [
            True,
            True,
            False,
        ]

    def test_a_fork_inherits_no_records(self, store: Store):
        session = store.session("a")
        session.append([user("1"), user("2")])
        session.records.put("kind", "key", "original")
        fork = session.fork(1, id="f")
        assert list(fork.records.list("kind")) == []
        fork.records.put("kind", "key", "fork")
        session.rewind(1)
        assert value_of(session.records.get("kind", "key")) == "original"
        store.erase_session("a", forks="keep")
        assert value_of(fork.records.get("kind", "key")) == "fork"

    def test_erasing_forks_erases_their_records(self, store: Store):
        session = store.session("a")
        session.append(user("1"))
        session.fork(id="f").records.put("kind", "key", "fork")
        store.erase_session("a", forks="erase")
        assert list(store.session("f").records.list("kind")) == []

    @pytest.mark.parametrize("format", ["jsonl", "json"])
    def test_records_of_sessions_are_exported_and_imported(self, store: Store, format: str):
        records_before = [
            store.session("a").records.put(kind, key, value)
            for number, value in enumerate((*JSON_VALUES, *BYTES_VALUES))
            for kind, key in ((f"kind{number % 3}\0", f"{number}\0\x01\x10"),)
        ]
        records_before.append(store.session("a").records.put("kind0\0", "0\0\x01\x10", "second"))
        del records_before[0]
        store.records.put("kind", "of the store", 1)
        buffer = io.BytesIO()
        export.write(store, None, format, buffer)
        store.erase_session("a")
        assert export.read(store, io.BytesIO(buffer.getvalue())).created == ["a"]
        records = store.session("a").records
        for record in records_before:
            if record.value != "\ud83d\ude00":  # an export has the character that adjacent surrogates encode
                assert records.get(record.kind, record.key) == record
        report = export.read(store, io.BytesIO(buffer.getvalue()))
        assert (report.unchanged, report.updated, report.bad) == (["a"], [], [])

    def test_an_import_keeps_the_newer_record(self, store: Store):
        records = store.session("a").records
        records.put("kind", "older", 1)
        records.put("kind", "newer", 1)
        records.put("kind", "newer", 2)
        records.put("kind", "deleted", 1)
        buffer = io.BytesIO()
        export.write(store, None, "jsonl", buffer)
        records.put("kind", "older", 2)
        records.put("kind", "extra", 1)
        revision = store.session("a").revision
        assert export.read(store, io.BytesIO(buffer.getvalue())).unchanged == ["a"]
        assert [record.value for record in records.list("kind")] == [1, 1, 2, 2]
        records.delete("kind", "deleted")
        records.delete("kind", "newer")
        stale = records.put("kind", "newer", "stale")
        report = export.read(store, io.BytesIO(buffer.getvalue()))
        assert (report.updated, report.conflicts, report.bad) == (["a"], [], [])
        assert store.session("a").revision == revision
        assert {record.key: record.value for record in records.list("kind")} == {
            "deleted": 1, "extra": 1, "newer": "stale", "older": 2,
        }  # fmt: skip
        assert records.get("kind", "newer") == stale
        assert export.read(store, io.BytesIO(buffer.getvalue())).unchanged == ["a"]

    def test_newer_records_are_imported_into_a_session_that_continued(self, store: Store):
        session = store.session("a")
        session.append(user("1"))
        session.records.put("kind", "key", 1)
        session.records.put("kind", "key", 2)
        buffer = io.BytesIO()
        export.write(store, None, "jsonl", buffer)
        store.erase_session("a")
        session = store.session("other")
        export.read(store, io.BytesIO(buffer.getvalue().replace(b'"revision":2,"value":2', b'"revision":1,"value":1')))
        session = store.session("a")
        session.append(user("2"))
        report = export.read(store, io.BytesIO(buffer.getvalue()))
        assert (report.updated, report.conflicts) == (["a"], [])
        assert value_of(session.records.get("kind", "key")) == 2
        assert [message.text for message in session.messages()] == ["1", "2"]

    def test_damaged_records_of_a_file_are_refused(self, store: Store):
        store.session("a").records.put("kind", "key", b"abc")
        buffer = io.BytesIO()
        export.write(store, None, "jsonl", buffer)
        *lines, record = buffer.getvalue().splitlines()
        changes = [
            (b'"kind":"kind"', b'"kind":"recollect.presence"'), (b'"kind":"kind"', b'"kind":""'),
            (b'"key":"key"', b'"key":""'), (b'"key":"key"', b'"key":"\\ud800"'), (b'"YWJj"', b'"?"'),
            (b'"revision":1', b'"revision":0'), (b'"revision":1', b'"revision":9007199254740992'),
        ]  # fmt: skip
        store.erase_session("a")
        for before, after in changes:
            assert before in record
            file = b"\n".join([*lines, record.replace(before, after)])
            report = export.read(store, io.BytesIO(file))
            assert (report.created, len(report.bad)) == (["a"], 1)
            assert list(store.session("a").records.list("kind")) == []
            store.erase_session("a")


class TestSharedRecords:
    """Concurrent changes: no update is lost."""

    def test_workers_that_compare_and_swap_lose_no_update(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        other = database.open()
        owners = [store.records, other.records, session.records, other.session("a", create=False).records]

        def work(number: int) -> None:
            for _ in range(INCREMENTS):
                increment(owners[number % 4])

        run_concurrently(work, WORKERS)
        for records in (store.records, session.records):
            record = records.get("counter", "n")
            assert record is not None
            assert (record.value, record.revision) == (WORKERS // 2 * INCREMENTS,) * 2

    def test_one_of_many_creates_a_record(self, store: Store, database: DatabaseUnderTest):
        other = database.open()

        def create(number: int) -> bool:
            try:
                (store if number % 2 else other).records.put("lock", "key", number, expected=0)
            except StaleRecord:
                return False
            return True

        for _ in range(3):
            assert sum(run_concurrently(create)) == 1
            store.records.delete("lock", "key")

    def test_one_of_many_deletes_a_record(self, store: Store):
        store.records.put("job", "key", 1)
        assert sum(run_concurrently(lambda _: store.records.delete("job", "key"))) == 1

    def test_a_lock_that_is_created_and_deleted_has_one_holder(self, store: Store, database: DatabaseUnderTest):
        """Each holder creates the record and deletes it; a revision of an earlier holder never matches again."""
        other = database.open()
        revisions: list[int] = []
        holders = 0

        def work(number: int) -> None:
            nonlocal holders
            records = (store if number % 2 else other).records
            for _ in range(INCREMENTS):
                while True:
                    try:
                        lock = records.put("lock", "key", number, expected=0)
                        break
                    except StaleRecord:
                        continue
                holders += 1
                assert holders == 1
                revisions.append(lock.revision)
                holders -= 1
                assert records.delete("lock", "key", expected=lock.revision)

        run_concurrently(work, 4)
        assert revisions == sorted(set(revisions))
        assert len(revisions) == 4 * INCREMENTS

    def test_erasing_a_session_while_others_write_its_records(self, store: Store, database: DatabaseUnderTest):
        """No record is left behind: a new session with the same key would get it."""
        records = database.open().session("a").records

        def work(number: int) -> None:
            if number == 0:
                for _ in range(INCREMENTS):
                    store.session("a")
                    store.erase_session("a")
                return
            for n in range(4 * INCREMENTS):
                try:
                    records.put("kind", f"{number}.{n}", b"x" * 1_000)
                except SessionNotFound:
                    continue

        run_concurrently(work, 4)
        assert list(store.session("a").records.list("kind")) == []
        assert store.maintenance.check().problems == ()

    def test_each_owner_has_its_own_records(self, database: DatabaseUnderTest):
        ann, bob = database.open("ann"), database.open("bob")
        for number, store in enumerate((ann, bob)):
            store.records.put("kind", "key", number, expected=0)
            store.session("a").records.put("kind", "key", number, expected=0)
        assert [value_of(store.records.get("kind", "key")) for store in (ann, bob)] == [0, 1]
        assert [value_of(store.session("a").records.get("kind", "key")) for store in (ann, bob)] == [0, 1]
        ann.records.delete("kind", "key")
        ann.erase_session("a")
        assert value_of(bob.session("a").records.get("kind", "key")) == 1
        assert keys(bob.records.list("kind")) == ["key"]
        assert (ann.maintenance.check(file=False).problems, bob.maintenance.check(file=False).problems) == ((), ())

    def test_records_are_read_after_reopening(self, store: Store, database: DatabaseUnderTest):
        record, state = store.records.put("kind", "key", {"a": 1}), store.session("a").records.put("kind", "key", b"\0")
        store = database.reopen()
        assert store.records.get("kind", "key") == record
        assert store.session("a").records.get("kind", "key") == state
