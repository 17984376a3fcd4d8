"""store.as_owner() on a server: owners share connections, and neither a transaction nor a privilege is shared by mistake."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
import traceback
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from loopback_proxy import LoopbackProxy

import recollect
from recollect import storage
from recollect.engine.postgres import change_notifier, migrations, transactions
from recollect.engine.postgres import server as server_module
from recollect.engine.url import parse_target
from recollect.model.message import Draft, TextPart
from recollect.store import open_target

TIMEOUT = 60.0  # seconds; only a failure reaches it
NAMES = [f"owner {number}" for number in range(20)]
HELLO = {"role": "user", "content": "hello"}


def notifier_of(watch) -> Any:
    """Return the change notifier of a watch."""
    return watch._notifier


def user_message(text):
    return {"role": "user", "content": text}


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


def backends(admin, *conditions):
    where = " AND ".join(("datname = current_database()", "usename = 'plain'", *conditions))
    return admin.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {where}").fetchone()[0]


def watchers(admin):
    return dict(admin.execute("SELECT channel, count(*) FROM recollect.watchers GROUP BY channel").fetchall())


def becomes_true(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return condition()


def read_until(watch, expected):
    for change in watch:
        if tuple(change) == tuple(expected):
            return
    raise AssertionError(f"{expected} did not arrive")


class TestRole:
    """A role that bypasses row-level security is refused for a named owner, also after the store was opened."""

    @pytest.fixture(params=["SUPERUSER", "BYPASSRLS"])
    def url(self, request, databases, database, admin):
        role = f"role_{request.param.lower()}_views"
        admin.execute(f"CREATE ROLE {role} LOGIN {request.param}".encode())
        admin.execute(f"GRANT plain TO {role}".encode())
        yield databases.url_of(database, "plain").replace("plain", role, 1)
        admin.execute(f"DROP ROLE {role}".encode())

    def test_every_use_of_a_named_owner_is_refused(self, url, postgres, admin):
        with recollect.open(postgres, owner="ann") as store:
            store.session("a").append(HELLO)
        with recollect.open(url) as store:
            ann = store.as_owner("ann")
            view = store.as_owner("").as_owner("ann")
            for _ in range(2):
                for act in (
                    lambda: ann.session("a"), lambda: ann.session("a", create=False), lambda: ann.get_session("a"),
                    lambda: ann.session("b", exist_ok=False), ann.list_sessions, lambda: ann.search("hello"), ann.watch,
                    ann.maintenance.check, ann.maintenance.recover, ann.stats, ann.maintenance.owners, lambda: ann.records.put("names", "k", 1), view.list_sessions,
                ):  # fmt: skip
                    with pytest.raises(recollect.StoreUnavailable, match="row-level security"):
                        act()
            assert list(store.list_sessions()) == []
            store.session("mine").append(HELLO)
            assert [session.id for session in store.as_owner("").list_sessions()] == ["mine"]
        assert admin.execute("SELECT owner FROM recollect.sessions ORDER BY owner").fetchall() == [("",), ("ann",)]
        assert watchers(admin) == {}

    def test_an_async_store(self, url, admin):
        async def use():
            async with recollect.open_async(url) as store:
                session = await store.session("mine")
                ann = store.as_owner("ann")
                for act in (ann.session("a"), ann.session("a", exist_ok=False), ann.list_sessions(), ann.watch()):
                    with pytest.raises(recollect.StoreUnavailable, match="row-level security"):
                        await act
                foreign = recollect.AsyncSession(ann, session.info)
                results = await asyncio.gather(
                    *(session.append(HELLO) for _ in range(10)),
                    *(foreign.append(HELLO) for _ in range(10)),
                    return_exceptions=True,
                )
                names = [type(result).__name__ for result in results]
                assert names == ["Appended"] * 10 + ["StoreUnavailable"] * 10

        asyncio.run(use())
        assert admin.execute("SELECT owner, message_count FROM recollect.sessions").fetchall() == [("", 10)]

    def test_a_trusted_store_is_not_refused(self, url, postgres):
        with recollect.open(postgres, owner="ann") as store:
            store.session("a").append(HELLO)
        with open_target(parse_target(url), "", 30.0, trusted=True) as store:
            assert [session.id for session in store.as_owner("ann").list_sessions()] == ["a"]

    def test_the_role_is_checked_once_and_only_for_named_owners(self, postgres, monkeypatch):
        checks = []
        monkeypatch.setattr(server_module, "check_role", lambda *row: checks.append(migrations.check_role(*row)))
        with recollect.open(postgres) as store:
            store.session("a")
            store.as_owner("").session("a")
            ann = store.as_owner("ann")  # no round trip
            assert checks == []
            for view in (ann, store.as_owner("bob"), ann):
                view.session("a").append(HELLO)
            assert len(checks) == 1
        with recollect.open(postgres, owner="ann") as store:
            store.as_owner("bob").session("b")
        assert len(checks) == 1


class TestTransactions:
    """A transaction belongs to one owner."""

    def test_operations_of_different_owners_never_share_a_transaction(self, postgres, monkeypatch):
        batches = []
        write = transactions.write

        def record(pipeline, registry, ops, owner, *arguments, **options):
            batches.append((owner, [op.args[0].owner for op, _ in ops]))
            return write(pipeline, registry, ops, owner, *arguments, **options)

        async def append_all():
            async with recollect.open_async(postgres) as store:
                views = [store.as_owner(name) for name in NAMES]
                sessions = [await view.session(f"s{number}") for view in views for number in range(4)]
                batches.clear()
                for _ in range(5):
                    random.shuffle(sessions)
                    appends = [session.append(user_message(session.store._scope().owner)) for session in sessions]
                    busy = [session.append(HELLO, expected=99) for session in sessions[::7]]
                    results = await asyncio.gather(*appends, *busy, return_exceptions=True)
                    errors = [result for result in results if isinstance(result, BaseException)]
                    assert {type(error) for error in errors} == {recollect.StaleRevision}
                    assert len(errors) == len(busy)
                for view in views:
                    for session in await view.list_sessions():
                        texts = [message.text for message in await session.messages()]
                        assert texts == [view._scope().owner] * 5

        monkeypatch.setattr(transactions, "write", record)
        asyncio.run(append_all())
        assert all(set(owners) == {owner} for owner, owners in batches)
        assert max(len(owners) for _, owners in batches) > 1  # operations of one owner do share transactions

    def test_group_commit_of_one_owner_is_not_affected_by_others(self, postgres, monkeypatch):
        batches = []
        write = transactions.write

        def record(pipeline, registry, ops, *arguments, **options):
            batches.append(len(ops))
            return write(pipeline, registry, ops, *arguments, **options)

        async def append_all():
            async with recollect.open_async(f"{postgres}?pool_size=4") as store:
                busy, quiet = store.as_owner("busy"), store.as_owner("quiet")
                sessions = [await busy.session(f"s{number}") for number in range(60)]
                other = await quiet.session("a")
                batches.clear()
                await asyncio.gather(*(session.append(HELLO) for session in sessions), other.append(HELLO))

        monkeypatch.setattr(transactions, "write", record)
        asyncio.run(append_all())
        assert sum(batches) == 61
        assert len(batches) < 25

    def test_an_operation_with_the_scope_of_another_owner_finds_nothing(self, postgres):
        """Row-level security is set by the store, not by the operation: a mistake in a query cannot cross it."""
        with recollect.open(postgres) as store:
            ann, bob = store.as_owner("ann"), store.as_owner("bob")
            session = ann.session("a")
            session.append(HELLO)
            draft = Draft(role="user", parts=(TextPart(text="x"),))
            for operation in (
                storage.appends.append(ann._scope(), "a", [draft]),
                storage.appends.append(ann._scope(), "a", [draft], key="k"),
                storage.sessions.read(ann._scope(), "a"),
                storage.sessions.update(ann._scope(), "a", {"title": "stolen"}),
                storage.sessions.trash(ann._scope(), "a"),
            ):
                with pytest.raises(recollect.SessionNotFound):
                    bob._run(operation)
            with pytest.raises(recollect.RecollectError):
                bob._run(storage.sessions.create(ann._scope(), "b", {}))
            assert [entry.id for entry in ann.list_sessions()] == ["a"]
            assert session.refresh().message_count == 1

    @pytest.mark.parametrize("trap", ["before", "after", "pooler", "late"])
    def test_a_lost_commit_of_an_owner_happens_once(self, postgres, trap):
        proxy = LoopbackProxy(urlsplit(postgres).port)
        parts = urlsplit(postgres)
        url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
        try:
            with recollect.open(url) as store:
                sessions = [store.as_owner(name).session("a") for name in ("ann", "bob")]
                for session in sessions:
                    session.append(user_message("first"))
                for session in sessions:
                    proxy.trap_event.clear()
                    proxy.trap = trap
                    late = threading.Timer(0.3, proxy.release)
                    if trap == "late":
                        late.start()
                    assert session.append(user_message("second")).first == 2
                    assert proxy.trap_event.is_set()
                    if trap == "late":
                        late.join()
                for session in sessions:
                    assert [message.text for message in session.messages()] == ["first", "second"]
        finally:
            proxy.close()

    def test_one_connection_serves_many_owners(self, postgres, admin):
        assert becomes_true(lambda: backends(admin) == 0)  # those of the test before this one end after it
        with recollect.open(f"{postgres}?pool_size=1") as store:
            views = [store.as_owner(name) for name in NAMES]
            for view in views:
                view.session("a").append(user_message(view._scope().owner))
            for view in views:
                assert [message.text for message in view.session("a").messages()] == [view._scope().owner]
            assert backends(admin) == 1
        assert admin.execute("SELECT current_setting('recollect.owner', true)").fetchone()[0] in (None, "")


class TestWatches:
    """The watches of all owners share one connection that listens."""

    def listening(self, admin):
        return backends(admin, "query LIKE 'LISTEN%'")

    def test_many_watches_use_one_connection(self, postgres, admin):
        with recollect.open(postgres) as store:
            views = [store.as_owner(name) for name in NAMES]
            before = backends(admin)
            watches = [view.watch(timeout=TIMEOUT) for view in views for _ in range(2)]
            assert backends(admin) - before == 1
            assert watchers(admin) == {change_notifier._channel_of(name): 1 for name in NAMES}
            sessions = [view.session("a") for view in views]
            for session in sessions:
                session.append(HELLO)
            for watch, session in zip(watches, [session for session in sessions for _ in range(2)], strict=True):
                read_until(watch, ("a", session.revision))
            for watch in watches[::2]:
                watch.close()
            assert len(watchers(admin)) == len(NAMES)
            for watch in watches[1::2][:-1]:
                watch.close()
            assert watchers(admin) == {change_notifier._channel_of(NAMES[-1]): 1}
            sessions[-1].append(HELLO)
            read_until(watches[-1], ("a", sessions[-1].revision))
            watches[-1].close()
            assert watchers(admin) == {}
            assert becomes_true(lambda: backends(admin) <= before)
            with views[0].watch(timeout=TIMEOUT) as watch:  # a new connection
                sessions[0].append(HELLO)
                read_until(watch, ("a", sessions[0].revision))

    @pytest.mark.parametrize("owner", ["", "ann", "a\x10", "\u00e9\U0001f600"])
    def test_the_channel_is_that_of_the_database(self, postgres, owner, admin):
        with recollect.open(postgres, owner=owner) as store:
            store.session("a")
        stored_owner, channel = admin.execute(
            "SELECT owner, recollect.channel(owner) FROM recollect.sessions"
        ).fetchone()
        assert channel == change_notifier._channel_of(owner)
        assert (stored_owner == owner) == ("\x10" not in owner)

    def test_a_lost_connection_is_replaced_for_all_owners(self, postgres, admin, monkeypatch):
        monkeypatch.setattr(change_notifier, "_SECOND_SCAN_AFTER", 3600.0)  # so that the second scan does not find them
        with recollect.open(postgres) as store:
            sessions = [store.as_owner(name).session("a") for name in NAMES]
            watches = [session.store.watch(timeout=TIMEOUT) for session in sessions]
            for _ in range(3):
                assert admin.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND query LIKE 'LISTEN%'"
                ).fetchone() == (1,)
                for session in sessions:
                    session.append(HELLO)
                for watch, session in zip(watches, sessions, strict=True):
                    read_until(watch, ("a", session.revision))
                assert becomes_true(lambda: self.listening(admin) == 1)
            for session, watch in zip(sessions, watches, strict=True):  # by notifications again
                session.append(HELLO)
                read_until(watch, ("a", session.revision))
                watch.close()
            assert watchers(admin) == {}

    def test_a_watch_that_opens_after_the_connection_was_lost(self, postgres, admin):
        with recollect.open(postgres) as store, store.as_owner("ann").watch(timeout=TIMEOUT) as watch:
            session = store.as_owner("ann").session("a")
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND query LIKE 'LISTEN%'"
            )
            with store.as_owner("bob").watch(timeout=TIMEOUT) as other_watch:
                other = store.as_owner("bob").session("b")
                other.append(HELLO)
                read_until(other_watch, ("b", other.revision))
                session.append(HELLO)
                read_until(watch, ("a", session.revision))

    def test_dropped_watches_release_the_connection(self, postgres, admin):
        with recollect.open(postgres) as store:
            before = backends(admin)
            for name in NAMES:
                for _ in store.as_owner(name).watch(timeout=0.001):
                    pass
            assert becomes_true(lambda: watchers(admin) == {})
            assert becomes_true(lambda: backends(admin) <= before)
            assert becomes_true(
                lambda: not [thread for thread in threading.enumerate() if thread.name == "recollect-listen"]
            )

    def test_a_dropped_store_with_watches(self, postgres, admin):
        before = backends(admin)
        store = recollect.open(postgres)
        watches = [store.as_owner(name).watch() for name in NAMES]
        assert backends(admin) > before
        del store, watches
        assert becomes_true(lambda: backends(admin) <= before)
        assert becomes_true(lambda: watchers(admin) == {})

    def test_a_slow_watch_scans_instead_of_keeping_every_change(self, postgres, monkeypatch):
        monkeypatch.setattr(change_notifier, "_MAX_PENDING", 20)
        with recollect.open(postgres) as store:
            ann = store.as_owner("ann")
            with ann.watch(timeout=TIMEOUT) as watch, ann.watch(timeout=TIMEOUT) as fast_watch:
                sessions = [ann.session(f"s{number}") for number in range(60)]
                sessions[-1].append(HELLO)
                read_until(fast_watch, ("s59", sessions[-1].revision))
                assert len(notifier_of(watch)._rows) <= 20
                revisions = {}
                for change in watch:
                    revisions[change.session] = change.revision
                    if len(revisions) == 60 and revisions["s59"] == sessions[-1].revision:
                        break

    def test_watches_open_and_close_at_random_while_owners_write(self, postgres, admin):
        """Every watch sees the changes of its owner that follow its opening, also if others open and close."""
        with recollect.open(postgres) as store:
            errors = []

            def work(number):
                generator = random.Random(number)
                view = store.as_owner(f"owner {number % 4}")
                session = view.session(f"s{number}")
                try:
                    for _ in range(12):
                        with view.watch(f"s{number}", timeout=TIMEOUT) as watch:
                            for _ in range(generator.randrange(3)):
                                session.append(HELLO)
                                read_until(watch, (f"s{number}", session.revision))
                except BaseException:
                    errors.append(traceback.format_exc())
                    raise

            threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            assert watchers(admin) == {}

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
    def test_a_forked_child(self, postgres, monkeypatch, admin):
        """The connection stays with the parent; a watch of the child scans, and a new one listens."""
        monkeypatch.setattr(change_notifier, "_REPLICA_POLL_INTERVAL", 0.1)
        store = recollect.open(postgres)
        ann = store.as_owner("ann")
        session, watch = ann.session("a"), ann.watch(timeout=TIMEOUT)
        assert self.listening(admin) == 1
        child = os.fork()
        if child == 0:
            try:
                session.append(user_message("child"))
                read_until(watch, ("a", session.revision))
                with ann.watch(timeout=TIMEOUT) as own_watch:
                    session.append(user_message("child"))
                    read_until(own_watch, ("a", session.revision))
                    watch.close()
                store.close()
                os._exit(0)
            finally:  # pytest does not report errors of the child
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        read_until(watch, ("a", session.refresh().revision))
        assert self.listening(admin) == 1
        session.append(HELLO)
        read_until(watch, ("a", session.revision))
        store.close()

    def test_closing_the_store_ends_the_listener(self, postgres, admin):
        store = recollect.open(postgres)
        watches = [store.as_owner(name).watch() for name in NAMES]
        store.close()
        for watch in watches:
            with pytest.raises(recollect.StoreClosed):
                next(watch)
        assert watchers(admin) == {}
        assert becomes_true(lambda: self.listening(admin) == 0)

    def test_a_replica_that_is_promoted(self, postgres, monkeypatch):
        """Watches poll until the registration succeeds, and then receive notifications."""
        register, is_replica = change_notifier._ListenerThread._register, True

        def refuse(thread, channels):
            if is_replica:
                thread._listens, thread._renew_at = False, time.monotonic() + 0.05
                return False
            return register(thread, channels)

        monkeypatch.setattr(change_notifier._ListenerThread, "_register", refuse)
        monkeypatch.setattr(change_notifier, "_REPLICA_POLL_INTERVAL", 0.1)
        with recollect.open(postgres) as store:
            ann = store.as_owner("ann")
            with ann.watch(timeout=TIMEOUT) as watch:
                session = ann.session("a")
                read_until(watch, ("a", session.revision))
                assert notifier_of(watch)._polls
                is_replica = False
                assert becomes_true(lambda: not notifier_of(watch)._polls)
                session.append(HELLO)
                read_until(watch, ("a", session.revision))

    def test_an_unexpected_error_in_the_listener(self, postgres, monkeypatch):
        """Watches then scan regularly, and a new watch listens."""
        monkeypatch.setattr(change_notifier, "_REPLICA_POLL_INTERVAL", 0.05)
        with recollect.open(postgres) as store:
            ann = store.as_owner("ann")
            watch, session = ann.watch(timeout=TIMEOUT), ann.session("a")
            with monkeypatch.context() as patch:
                patch.setattr(change_notifier, "_parse_payload", lambda payload: 1 / 0)
                patch.setattr(threading, "excepthook", lambda arguments: None)
                session.append(HELLO)
                read_until(watch, ("a", session.revision))
                assert becomes_true(
                    lambda: not [thread for thread in threading.enumerate() if thread.name == "recollect-listen"]
                )
            with ann.watch(timeout=TIMEOUT) as new_watch:
                session.append(HELLO)
                for each in (watch, new_watch):
                    read_until(each, ("a", session.revision))
