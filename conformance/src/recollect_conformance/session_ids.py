"""Session ids: any text of up to 1,024 bytes in UTF-8 works in every operation that takes or returns an id."""

from __future__ import annotations

import io
import random

import pytest

from recollect import export
from recollect.errors import (
    AmbiguousName,
    InvalidValue,
    KeyReused,
    SessionBusy,
    SessionExists,
    SessionInTrash,
    SessionNotFound,
)
from recollect.model import session_ids
from recollect.model.session import Change
from recollect.storage.listing import Order
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import assistant, texts, tool_call_message, user
from recollect_conformance.transfer import export_bytes
from recollect_conformance.watch import read_until

_CHANGE_TIMEOUT = 60.0  # seconds. A limit for slow machines; a test continues as soon as the change arrives.
_RANDOM = random.Random(9)  # noqa: S311  the same ids in each run
SESSION_IDS = (
    "discord:dm:42", "a b", "%", "_", "'; --", "\U0001f916", "a.b", "0", ".", "..", "~.", "~~..", "\ue000s\ue000m/",
    "a\r\nX-Injected: y", "\x1b[31mred\x1b[0m", "../../etc/passwd", "a/b%2Fc", "a\0b", "a\0c", "a", "\0", "\0\0",
    "\x10", "\x100", "\x10p", "\x10\0\x10p", "a\x100b", "\u202egnp.exe", " ", "\t", "\n", "a ", " a", "\ufeffa",
    "\u200b", "\x7f", "\x85", "a\u2028b", "\U0010ffff", "\ufffd", "<b>&amp;</b>", '"', "\\u0000", "{}", "[]", "null",
    "--help", "-", "#x", "?x=1", "a\0b:c\0d", "cli:a\nb", "\n:x", ":", "::", ":x", "x:", "a:delegate:b", "x" * 1_024,
    "\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a", "A", "\ufb01", "fi", "K", "\u212a", "<script>alert(1)</script>",
    "\0" * 1_024, "\x10" * 1_024, "\U0001f600" * 256, "\u20ac" * 341,
    "".join(_RANDOM.choice("\0\x10") for _ in range(1_024)),
    "".join(chr(_RANDOM.randrange(0x80)) for _ in range(1_024)),
)  # fmt: skip
"""Ids that are hostile to storage, URLs, terminals or people, and the longest ones."""


class TestSessionIds:
    """Operations on sessions with hostile ids."""

    def test_sessions_with_any_id(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        for number, id in enumerate(SESSION_IDS):
            session = store.session(id, title=f"T{number}")
            assert session.id == id
            session.append(user("one"), key="k")
            assert session.append(user("one"), key="k").repeated
            with pytest.raises(KeyReused) as excinfo:
                session.append(user("two"), key="k")
            assert excinfo.value.fields["session"] == id
            with pytest.raises(SessionExists):
                store.session(id, exist_ok=False)
            with session.turn("question") as turn:
                with pytest.raises(SessionBusy):
                    store.session(id).turn("another")
                turn.add(assistant("answer"))
            for copy in (
                other.session(id), other.session(id, create=False), other.get_session(id), other.find_session(id),
                other.find_session(f"T{number}"), other.list_sessions()[0], session.refresh(),
            ):  # fmt: skip
                assert copy is not None
                assert (copy.id, copy.title, copy.message_count) == (id, f"T{number}", 3)
            assert texts(other.session(id)) == ["one", "question", "answer"]
            assert [message.text for message in session.messages(last=1)] == ["answer"]
            assert session.rewind(1).message_count == 1

    def test_related_sessions(self, store: Store):
        for number, id in enumerate(SESSION_IDS):
            session = store.session(id)
            session.append([user("one"), assistant("two")])
            fork = session.fork(id=f"fork {number}")
            delegate = store.session(f"delegate {number}", parent=id)
            assert (fork.parent, delegate.parent) == (id, id)
            assert [entry.parent for entry in store.list_sessions(parent=id, delegates=None)] == [id, id]
            session.presence.arrive("terminal", id="p")
            assert [presence.session for presence in session.presence.list()] == [id]
            session.presence.leave("p")

    def test_parents_and_labels_of_sessions_that_exist(self, store: Store):
        for number, id in enumerate(SESSION_IDS):
            session = store.session(id).update(labels=[f"label {number}"])
            child = store.session(f"child {number}").update(parent=id, relation="fork")
            assert child.parent == id
            assert [entry.id for entry in store.list_sessions(label=f"label {number}")] == [id]
            assert [entry.id for entry in store.list_sessions(parent=id, relation="fork")] == [child.id]
            with pytest.raises(InvalidValue):
                session.update(parent=child.id)
            assert child.update(parent=None).parent is None

    def test_records_and_tool_calls(self, store: Store):
        for number, id in enumerate(SESSION_IDS):
            session = store.session(id)
            session.records.put("state", "key", {"number": number}, expected=0)
            session.append([tool_call_message("c"), user("next")])
            session.tools.record_result("c", f"result {number}")
            assert [call.status for call in session.tools.list()] == ["success"]
        for number, id in enumerate(SESSION_IDS):
            record = store.session(id).records.get("state", "key")
            assert record is not None
            assert record.value == {"number": number}
            assert store.session(id).stats().messages == store.session(id).message_count
        store.erase_session(SESSION_IDS[0])
        assert store.session(SESSION_IDS[0]).records.get("state", "key") is None

    @pytest.mark.parametrize("order", ["activity", "created", "title"])
    def test_pages_of_lists(self, store: Store, order: Order):
        for number, id in enumerate(SESSION_IDS):
            store.session(id, title=None if number % 3 else f"T{number % 7}")
        for oldest_first in (False, True):
            ids: list[str] = []
            after = None
            while True:
                page = store.list_sessions(7, order=order, oldest_first=oldest_first, after=after)
                ids += [session.id for session in page]
                if page.next is None:
                    break
                after = page.next
            assert sorted(ids) == sorted(SESSION_IDS)

    def test_id_prefixes_in_filters(self, store: Store):
        ids = {
            *SESSION_IDS,
            "p\0a",
            "p\0b",
            "p\x10",
            "p\x100",
            "p\x10p",
            "p",
            "p\n",
            "p\U0010ffff" * 3,
            "p" + "\U0010ffff" * 9,
        }
        for id in sorted(ids):
            store.session(id).append(user("word"))
        prefixes = {id[:length] for id in ids for length in (1, 2, 3)} | {
            "p" + "\U0010ffff" * 4,
            "x" * 1_024,
            "x" * 1_025,
        }
        for prefix in sorted(prefixes):
            expected = {id for id in ids if id.startswith(prefix)}
            assert {session.id for session in store.list_sessions(200, id_prefix=prefix)} == expected, prefix
            assert {hit.session for hit in store.search("word", 200, id_prefix=prefix)} == expected, prefix

    def test_the_trash(self, store: Store):
        for id in SESSION_IDS:
            store.session(id).append(user("one"))
            store.delete_session(id)
            with pytest.raises(SessionInTrash) as excinfo:
                store.session(id, create=False)
            assert excinfo.value.fields["session"] == id
            assert [entry.id for entry in store.list_sessions(deleted=True)] == [id]
            assert store.restore_session(id).id == id
            store.delete_session(id)
            assert store.maintenance.empty_trash().count == 1
            with pytest.raises(SessionNotFound) as excinfo:
                store.erase_session(id)
            assert excinfo.value.fields["session"] == id

    def test_watches(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        with store.watch(timeout=_CHANGE_TIMEOUT) as watch:
            for id in SESSION_IDS:
                session = other.session(id)
                session.append(user("x"))
                read_until(watch, Change(id, session.revision))
                other.erase_session(id)
                read_until(watch, Change(id, None))

    def test_a_watch_on_one_session(self, store: Store, database: DatabaseUnderTest):
        other = database.open()
        for id in ("a\0b", "\x10", "a\r\nb c"):
            with store.watch(id, timeout=_CHANGE_TIMEOUT) as watch:
                session = other.session(id)
                session.append(user("x"))
                read_until(watch, Change(id, session.revision))

    def test_searches(self, store: Store):
        for number, id in enumerate(SESSION_IDS):
            store.session(id).append(user(f"w{number}w common"))
        for number, id in enumerate(SESSION_IDS):
            assert [hit.session for hit in store.search(f"w{number}w")] == [id]
            assert [hit.session for hit in store.search("common", session=id)] == [id]
            if not any(character.isspace() or character == '"' for character in id):
                hits = store.search(f'common -session:"{id}"', 100)
                assert {hit.session for hit in hits} == {*SESSION_IDS} - {id}

    def test_all_of_them_at_once(self, store: Store, database: DatabaseUnderTest):
        """No id is taken for another one."""
        for number, id in enumerate(SESSION_IDS):
            store.session(id).append([user(f"number {number}")] * (number + 1))
        assert {entry.id for entry in list_all_sessions(store)} == set(SESSION_IDS)
        assert store.shown_counts(SESSION_IDS) == list(range(1, len(SESSION_IDS) + 1))
        store = database.reopen()
        for number, id in enumerate(SESSION_IDS):
            assert texts(store.session(id))[0] == f"number {number}"
            assert store.find_session(id).id == id
        assert store.maintenance.check().problems == ()

    def test_prefixes(self, store: Store):
        for id in ("a\0b", "a\0c", "a\x10", "b\n1", "b\n2", "c\x100", "c\0", "d\U0010ffff\U0010ffff\U0010ffff"):
            store.session(id)
        for prefix, expected in (
            ("d\U0010ffff", "d\U0010ffff\U0010ffff\U0010ffff"),
            ("a\0b", "a\0b"),
            ("a\x10", "a\x10"),
            ("c\x10", "c\x100"),
            ("c\0", "c\0"),
        ):
            assert store.find_session(prefix).id == expected
        for prefix in ("a", "a\0", "b\n", "c"):
            with pytest.raises(AmbiguousName):
                store.find_session(prefix)

    @pytest.mark.parametrize("format", ["json", "jsonl"])
    def test_export_and_import(self, store: Store, database: DatabaseUnderTest, format: str):
        for id in SESSION_IDS:
            store.session(id).append(user("x"))
        data = export_bytes(store, format=format)
        other = database.open("importer")
        report = export.read(other, io.BytesIO(data))
        assert sorted(report.created) == sorted(SESSION_IDS)
        assert {entry.id for entry in list_all_sessions(other)} == set(SESSION_IDS)
        assert sorted(export.read(other, io.BytesIO(data)).unchanged) == sorted(SESSION_IDS)
        for id in SESSION_IDS:
            other.session(id).append(user("more here"))
            store.session(id).append(user("more there"))
        report = export.read(other, io.BytesIO(export_bytes(store, format=format)), on_conflict="new")
        new_ids = {conflict.new_id for conflict in report.conflicts}
        assert None not in new_ids
        assert len(new_ids) == len(SESSION_IDS)
        assert {entry.id for entry in list_all_sessions(other)} == {*SESSION_IDS, *new_ids}

    def test_channels(self, store: Store):
        """An id whose parts cannot be a channel and a channel id is not a key."""
        for id, expected in (
            ("discord:dm:42", ("discord", "dm:42")), ("cli:a\nb", ("cli", "a\nb")), ("cli:a\0b", (None, None)),
            ("\0:x", (None, None)), ("a\nb:x", (None, None)), ("x" * 513 + ":y", (None, None)), (":x", (None, None)),
            ("\u20ac" * 300 + ":y", ("\u20ac" * 300, "y")),
        ):  # fmt: skip
            session = store.session(id)
            assert (session.channel, session.channel_id) == expected
            assert session.fork().channel in (None, expected[0])
        assert store.list_sessions(channel="discord")[0].id == "discord:dm:42"

    def test_longer_ids_of_earlier_versions(
        self, store: Store, database: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
    ):
        """Earlier versions accepted 512 characters of any size. Their sessions keep their ids; no new one gets one."""
        id, other_id = "\U0001f600" * 512, "\U0001f600" * 511
        with monkeypatch.context() as patch:
            patch.setattr(session_ids, "MAX_BYTES", 2_048)
            store.session(id, title="Old").append(user("one"))
        session = store.session(id, title="ignored")
        with session.turn("question") as turn:
            turn.add(assistant("answer"))
        assert texts(store.session(id, create=False)) == ["one", "question", "answer"]
        assert session.fork(id="fork").parent == id
        assert store.find_session("\U0001f600" * 100).id == id
        assert [entry.id for entry in store.list_sessions(id_prefix="\U0001f600")] == [id]
        other = database.open("importer")
        assert id in export.read(other, io.BytesIO(export_bytes(store))).created
        assert texts(other.session(id)) == texts(session)
        store.delete_session(id)
        for create in (
            lambda: store.session(id), lambda: store.session(other_id), lambda: store.session(other_id, exist_ok=False),
            lambda: session.fork(id=other_id),
        ):  # fmt: skip
            with pytest.raises(InvalidValue, match="at most 1,024 bytes"):
                create()
        assert store.restore_session(id).id == id
        store.erase_session(id, forks="keep")
        assert store.get_session(id) is None
