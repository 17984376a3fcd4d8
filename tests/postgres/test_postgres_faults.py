"""Faults of the server and the network: a clear error or a retry; no acknowledged write is lost, none happens twice."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
import traceback
from urllib.parse import urlsplit

import psycopg
import pytest
from loopback_proxy import LoopbackProxy

import recollect
from postgres_server import PASSWORD, PostgresServer, free_port
from recollect.engine.postgres import migrations
from recollect.engine.postgres.server import DatabaseServer


def user_message(text):
    return {"role": "user", "content": text}


CALL = {
    "role": "assistant", "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}


def wait_for_next_millisecond(time_ms):
    while time.time_ns() // 1_000_000 <= time_ms:
        time.sleep(0.001)


def url_through_proxy(url, port):
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()


@pytest.fixture
def proxy(postgres):
    proxy = LoopbackProxy(urlsplit(postgres).port)
    yield proxy
    proxy.close()


@pytest.fixture
def server():
    """Start a server that the test may kill."""
    server = PostgresServer("fsync=off", "shared_buffers=16MB").start()
    yield server
    server.remove()


class TestLostConnections:
    """Connections that are lost during an operation."""

    @pytest.mark.parametrize("owner", ["", "ann"])
    @pytest.mark.parametrize("trap", ["before", "after", "pooler", "late"])
    @pytest.mark.parametrize("key", [None, "k"])
    def test_an_append_with_a_lost_commit_happens_once(self, postgres, proxy, trap, owner, key):
        """COMMIT is pipelined with the append, or sent after it if the idempotency key is looked up first."""
        with recollect.open(url_through_proxy(postgres, proxy.port), owner=owner) as store:
            session = store.session("a")
            session.append(user_message("first"))
            proxy.trap = trap
            late = threading.Timer(0.5, proxy.release)
            if trap == "late":
                late.start()
            result = session.append(user_message("second"), key=key)
            assert proxy.trap_event.is_set()
            assert (result.first, result.repeated) == (2, False)
            if trap == "late":
                late.join()
            session.append(user_message("third"))
            assert [message.text for message in session.messages()] == ["first", "second", "third"]
            assert session.refresh().message_count == 3

    @pytest.mark.parametrize("owner", ["", "ann"])
    @pytest.mark.parametrize("trap", ["before", "after", "pooler"])
    def test_a_turn_with_a_lost_commit_is_saved_once(self, postgres, proxy, trap, owner):
        with recollect.open(url_through_proxy(postgres, proxy.port), owner=owner) as store:
            session = store.session("a")
            proxy.trap = trap
            result = session.save_turn("q", [CALL, RESULT, {"role": "assistant", "content": "done"}])
            assert proxy.trap_event.is_set()
            assert (result.first, result.count, result.repeated, result.revision) == (1, 4, False, 1)
            assert [(turn.position, turn.status) for turn in session.turns.list()] == [(1, "completed")]
            assert [(call.message, call.status, call.result_message) for call in session.tools.list()] == [
                ("1.2", "success", "1.3")
            ]
            assert session.append(user_message("next")).ids == ["1.5"]
            assert store.maintenance.check().problems == ()

    def test_the_result_is_recovered_after_appends_of_others(self, postgres, proxy):
        """The appended messages are found by their transaction id, also if others have appended since."""
        with recollect.open(url_through_proxy(postgres, proxy.port)) as store, recollect.open(postgres) as other:
            session = store.session("a")
            session.append(user_message("same"))
            proxy.trap = "after"
            resolve_commit = DatabaseServer._resolve_commit

            def write_and_resolve(server, commit_token, deadline):
                other.session("a").append([user_message("same"), user_message("same")])
                other.session("a").fork(id="f").append(user_message("same"))
                return resolve_commit(server, commit_token, deadline)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(DatabaseServer, "_resolve_commit", write_and_resolve)
                result = session.append([user_message("same"), user_message("same")])
            assert (result.ids, result.repeated) == (["1.2", "1.3"], False)
            assert session.message_count == session.refresh().message_count == 5

    def test_a_result_that_cannot_be_recovered_raises(self, postgres, proxy, databases, database):
        """No result is made up, and the message is not written twice: others changed the row before it was looked up."""
        with recollect.open(url_through_proxy(postgres, proxy.port)) as store:
            session = store.session("a")
            proxy.trap = "after"
            resolve_commit = DatabaseServer._resolve_commit

            def change_and_resolve(server, commit_token, deadline):
                with psycopg.connect(databases.url_of(database, "postgres")) as admin:
                    admin.execute("UPDATE recollect.messages SET metadata = '{}'")
                return resolve_commit(server, commit_token, deadline)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(DatabaseServer, "_resolve_commit", change_and_resolve)
                with pytest.raises(recollect.StoreUnavailable, match="may or may not have been stored"):
                    session.append(user_message("once"))
            assert [message.text for message in session.messages()] == ["once"]

    @pytest.mark.parametrize("trap", ["after", "pooler"])
    def test_a_lost_commit_that_matched_no_rows_raises_the_conflict(self, postgres, proxy, trap):
        """A statement that matched no rows leaves no row from which its result could be recovered."""
        with recollect.open(url_through_proxy(postgres, proxy.port)) as store:
            session = store.session("a")
            revision = session.append(recollect.Draft(role="user", parts=(), created_at=1)).revision
            for action, error in (
                (lambda: session.append(user_message("x"), expected=revision - 1), recollect.StaleRevision),
                (lambda: session.save_turn("x", user_message("y"), expected=revision - 1), recollect.StaleRevision),
                (lambda: store.session("a", exist_ok=False), recollect.SessionExists),
            ):
                wait_for_next_millisecond(session.info.created_at_ms)
                proxy.trap = trap
                with pytest.raises(error):
                    action()
            session.turn("left", lease=0.001)
            wait_for_next_millisecond(session.refresh().info.updated_at_ms)
            proxy.trap = trap
            assert session.save_turn("q", user_message("r")).ids == ["1.3", "1.4"]
            assert session.refresh().message_count == 4

    def test_only_conflicting_operations_of_a_batch_with_a_lost_commit_raise(self, postgres, proxy):
        async def append_concurrently():
            async with recollect.open_async(url_through_proxy(postgres, proxy.port)) as store:
                sessions = [await store.session(str(number)) for number in range(4)]
                for session in sessions:
                    await session.append(recollect.Draft(role="user", parts=(), created_at=1))
                wait_for_next_millisecond(sessions[-1].info.created_at_ms)
                proxy.trap = "after"
                appends = [
                    session.append(user_message("x"), expected=0 if number % 2 else 1)
                    for number, session in enumerate(sessions)
                ]
                results = await asyncio.gather(*appends, return_exceptions=True)
                return results, [(await session.refresh()).message_count for session in sessions]

        results, counts = asyncio.run(append_concurrently())
        assert [isinstance(result, recollect.StaleRevision) for result in results] == [False, True, False, True]
        assert counts == [2, 1, 2, 1]

    def test_a_commit_with_an_unknown_outcome_raises_after_the_timeout(self, postgres, proxy):
        with recollect.open(url_through_proxy(postgres, proxy.port), timeout=3) as store:
            session = store.session("a")
            proxy.trap = "late"
            with pytest.raises(recollect.StoreUnavailable, match="may or may not have been stored"):
                session.append(user_message("x"), key="k")  # with a key, the transaction has begun before COMMIT
            assert b"COMMIT" in proxy.release()
            assert [message.text for message in session.messages()] == ["x"]

    def test_a_batch_with_a_lost_commit_happens_once(self, postgres, proxy):
        async def append_batch(trap):
            async with recollect.open_async(url_through_proxy(postgres, proxy.port)) as store:
                sessions = [await store.session(f"{trap}{number}") for number in range(12)]
                for session in sessions:
                    await session.append(user_message("first"))
                proxy.trap = trap
                await asyncio.gather(*(session.append(user_message("second")) for session in sessions))
                assert proxy.trap_event.is_set()
                proxy.trap_event.clear()
                for session in sessions:
                    assert [message.text for message in await session.messages()] == ["first", "second"]

        for trap in ("before", "after", "pooler"):
            asyncio.run(append_batch(trap))

    def test_appends_happen_once_while_connections_are_cut(self, postgres, proxy):
        """Each writer cuts all connections repeatedly, while the others are at any point of their operations."""
        finished_writers = []

        def write(store, name):
            session = store.session(name)
            for number in range(20):
                session.append(user_message(str(number)))
                if number % 5 == 4:
                    proxy.cut()
            finished_writers.append(name)

        with recollect.open(url_through_proxy(postgres, proxy.port)) as store:
            writers = [threading.Thread(target=write, args=(store, f"w{number}")) for number in range(3)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
        assert sorted(finished_writers) == ["w0", "w1", "w2"]
        with recollect.open(postgres) as store:
            for name in finished_writers:
                assert [message.text for message in store.session(name).messages()] == [str(n) for n in range(20)]

    def test_reads_continue_after_lost_connections(self, postgres, proxy):
        with recollect.open(url_through_proxy(postgres, proxy.port)) as store:
            session = store.session("a")
            session.append(user_message("x"))
            for _ in range(3):
                proxy.cut()
                assert len(session.messages()) == 1

    @pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
    def test_acknowledged_messages_survive_if_the_server_is_killed_and_started_again(self, server, kills):
        """No acknowledged message is lost or duplicated, and writers continue automatically."""
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE chats")
        url = server.url("chats")
        acknowledged_counts = {}
        stop, rng = threading.Event(), random.Random(kills)

        async def write(store, name):
            session = await store.session(name)
            for number in itertools.count():
                await session.append(user_message(str(number)))
                acknowledged_counts[name] = number + 1
                if stop.is_set():
                    return

        async def write_through_kills():
            async with recollect.open_async(url) as store:
                tasks = [asyncio.create_task(write(store, f"s{number}")) for number in range(8)]
                for _ in range(kills):
                    target_count = sum(acknowledged_counts.values()) + rng.randrange(1, 500)
                    while sum(acknowledged_counts.values()) < target_count:  # so that it is killed under load
                        await asyncio.sleep(0.01)
                    await asyncio.get_running_loop().run_in_executor(None, server.kill)
                    await asyncio.get_running_loop().run_in_executor(None, server.start)
                stop.set()
                await asyncio.gather(*tasks)

        asyncio.run(asyncio.wait_for(write_through_kills(), 600))
        assert len(acknowledged_counts) == 8
        with recollect.open(url) as store:
            for name, count in acknowledged_counts.items():
                assert [message.text for message in store.session(name).messages()] == [str(n) for n in range(count)]
        print(
            f"{kills} kills of the server: {sum(acknowledged_counts.values())} messages acknowledged, none lost or twice"
        )

    def test_an_unreachable_server_raises_after_the_timeout(self, server):
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE chats")
        store = recollect.open(server.url("chats"), timeout=3)
        session = store.session("a")
        server.kill()
        with pytest.raises(recollect.StoreUnavailable, match="cannot be reached"):
            session.append(user_message("x"))
        with pytest.raises(recollect.StoreUnavailable):
            session.messages()
        store.close()
        server.start()
        with recollect.open(server.url("chats")) as store:
            assert store.session("a").messages() == []


class TestRefusedConnections:
    """Servers that refuse the connection or the role."""

    def test_a_wrong_password_raises_without_showing_it(self, databases, database):
        url = databases.url_of(database, "guarded").replace("s3cret", "wr0ng")
        for open_store in (recollect.open, lambda url: asyncio.run(_open_async(url))):
            with pytest.raises(recollect.StoreUnavailable, match="password") as exc_info:
                open_store(url)
            assert "wr0ng" not in str(exc_info.value)
            assert "wr0ng" not in "".join(traceback.format_exception(exc_info.value))

    def test_the_password_is_not_displayed(self, databases, database):
        with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
            admin.execute("GRANT ALL ON SCHEMA recollect TO guarded")
            admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA recollect TO guarded")
        url = databases.url_of(database, "guarded")
        assert PASSWORD.replace("$", "%24") in url
        with recollect.open(url) as store:
            store.session("a").append(user_message("x"))
            for text in (store.path, repr(store)):
                assert "s3cret" not in text
                assert "guarded@" in text

    def test_a_missing_database_raises(self, databases):
        with pytest.raises(recollect.StoreUnavailable, match="does not exist"):
            recollect.open(databases.url_of("nowhere_at_all", "plain"))

    def test_a_role_without_privileges_is_named_in_the_error(self, databases, database):
        with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
            recollect.open(databases.url_of(database, "plain")).close()
            admin.execute("DROP OWNED BY guarded")  # privileges from another test
            try:
                url = databases.url_of(database, "guarded")
                with pytest.raises(
                    recollect.errors.StoreReadOnly, match="lacks a privilege: permission denied for schema recollect"
                ):
                    recollect.open(url)
                admin.execute("GRANT USAGE ON SCHEMA recollect TO guarded")
                admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA recollect TO guarded")
                with recollect.open(url) as store:
                    assert len(store.list_sessions()) == 0
                    with pytest.raises(recollect.errors.StoreReadOnly, match="GRANT this one USAGE ON SCHEMA"):
                        store.session("x")
            finally:
                admin.execute("DROP OWNED BY guarded")

    def test_a_refused_connection_raises(self):
        with pytest.raises(recollect.StoreUnavailable, match=r"Check that the server runs"):
            recollect.open(f"postgresql://plain:hunter2@127.0.0.1:{free_port()}/x")

    @pytest.mark.parametrize("url", ["postgresql://[", "postgresql://h/x?nonsense=hunter2"])
    def test_an_invalid_url_raises(self, url):
        with pytest.raises(recollect.InvalidValue, match="This is not a PostgreSQL URL") as exc_info:
            recollect.open(url)
        assert "hunter2" not in str(exc_info.value)

    @pytest.mark.parametrize("size", ["0", "x", "-1"])
    def test_an_invalid_pool_size_raises(self, postgres, size):
        with pytest.raises(recollect.InvalidValue, match="pool_size"):
            recollect.open(f"{postgres}?pool_size={size}")

    def test_an_old_server_version_is_refused(self, postgres, monkeypatch):
        monkeypatch.setattr(migrations, "OLDEST_VERSION", 990_000)
        with pytest.raises(recollect.StoreUnavailable, match="too old; Recollect needs version 99"):
            recollect.open(postgres)

    def test_a_database_with_another_encoding_is_refused(self, databases):
        with psycopg.connect(databases.url_of("postgres", "postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C' OWNER plain")
            try:
                with pytest.raises(recollect.StoreUnavailable, match="LATIN1"):
                    recollect.open(databases.url_of("latin", "plain"))
            finally:
                admin.execute("DROP DATABASE latin")

    def test_a_role_that_cannot_create_tables_raises(self, databases):
        name = databases.make()
        with pytest.raises(recollect.errors.StoreReadOnly, match="permission denied"):
            recollect.open(databases.url_of(name, "guarded"))
        databases.drop(name)


async def _open_async(url):
    async with recollect.open_async(url):
        pass


class TestBusyServers:
    """Servers that are reachable and fail an operation."""

    def test_an_exhausted_pool_raises(self, postgres):
        store = recollect.open(f"{postgres}?pool_size=1", timeout=1.5)
        session = store.session("a")
        with psycopg.connect(postgres) as other:
            other.execute("LOCK TABLE recollect.sessions")
            errors = []

            def write():
                try:
                    session.append(user_message("x"))
                except recollect.StoreError as error:
                    errors.append(error)

            threads = [threading.Thread(target=write) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        error_types = {type(error) for error in errors}
        assert len(errors) == 6
        assert error_types <= {recollect.StoreUnavailable, recollect.StoreLocked}
        assert any("all 1 connections were in use" in str(error) for error in errors)
        session.append(user_message("y"))
        assert [message.text for message in session.messages()] == ["y"]
        store.close()

    def test_append_raises_store_locked_after_the_timeout(self, postgres):
        with recollect.open(postgres, timeout=1.5) as store:
            session = store.session("a")
            with psycopg.connect(postgres) as other:
                other.execute("SELECT FROM recollect.sessions FOR UPDATE")
                with pytest.raises(recollect.StoreLocked, match=r"did not answer within 1\.5 seconds"):
                    session.append(user_message("x"))
            session.append(user_message("y"))
            assert [message.text for message in session.messages()] == ["y"]

    def test_a_replica_reads_and_refuses_writes(self, server):
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE chats")
        with recollect.open(server.url("chats")) as store:
            store.session("a").append(user_message("x"))
        replica = PostgresServer("fsync=off", "shared_buffers=16MB", source=server).start()
        try:
            with (
                recollect.open(replica.url("chats")) as replica_store,
                recollect.open(server.url("chats")) as primary_store,
            ):
                session = replica_store.get_session("a")
                assert [message.text for message in session.messages()] == ["x"]
                with pytest.raises(recollect.errors.StoreReadOnly, match="primary"):
                    session.append(user_message("y"))
                with replica_store.watch(timeout=60) as watch:  # a replica does not accept LISTEN: it is polled
                    primary_session = primary_store.session("a")
                    primary_session.append(user_message("z"))
                    assert next(watch) == ("a", primary_session.revision)
        finally:
            replica.remove()

    @pytest.mark.parametrize(
        ("state", "error"),
        [
            ("53100", recollect.errors.DiskFull),
            ("XX001", recollect.errors.Corrupted),
            ("25006", recollect.errors.StoreReadOnly),
            ("22003", recollect.errors.LimitReached),
            ("P0001", recollect.StoreError),
        ],
    )
    def test_server_errors_are_translated(self, postgres, databases, database, state, error):
        with recollect.open(postgres) as store, FailingInserts(databases, database, state):
            session = store.session("a")
            with pytest.raises(error):
                session.append(user_message("x"))
            assert session.messages() == []

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    def test_a_conflict_is_retried(self, postgres, databases, database, state):
        with recollect.open(postgres) as store, FailingInserts(databases, database, state, times=3):
            session = store.session("a")
            session.append(user_message("x"))
            assert [message.text for message in session.messages()] == ["x"]
            assert session.refresh().message_count == 1

    def test_a_conflict_is_not_retried_forever(self, postgres, databases, database, monkeypatch):
        from recollect.engine.postgres import server

        monkeypatch.setattr(server, "_BACKOFF", 0.0001)
        with recollect.open(postgres) as store, FailingInserts(databases, database, "40001"):
            session = store.session("a")
            with pytest.raises(recollect.StoreError):
                session.append(user_message("x"))

    def test_a_failing_operation_does_not_fail_its_batch(self, postgres):
        async def append_batch():
            async with recollect.open_async(postgres) as store:
                sessions = [await store.session(f"s{number}") for number in range(10)]
                appends = [
                    session.append(user_message("x"), expected=99 if number == 4 else None)
                    for number, session in enumerate(sessions)
                ]
                results = await asyncio.gather(*appends, return_exceptions=True)
                assert [type(result).__name__ for result in results] == [
                    "StaleRevision" if n == 4 else "Appended" for n in range(10)
                ]
                for number, session in enumerate(sessions):
                    assert len(await session.messages()) == (0 if number == 4 else 1)

        asyncio.run(append_batch())


class FailingInserts:
    """Makes the server fail inserts of messages: each one, or the first `times`."""

    def __init__(self, databases, database, state, times=0):
        self._url = databases.url_of(database, "postgres")
        self._state, self._times = state, times

    def __enter__(self):
        limit = f"IF nextval('recollect.failures') > {self._times} THEN RETURN NEW; END IF;" if self._times else ""
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute("CREATE SEQUENCE recollect.failures")
            admin.execute("GRANT ALL ON SEQUENCE recollect.failures TO plain")
            admin.execute(
                f"CREATE FUNCTION recollect.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {limit} RAISE EXCEPTION 'injected failure' USING ERRCODE = '{self._state}'; END $$".encode()
            )
            admin.execute(
                "CREATE TRIGGER fail BEFORE INSERT ON recollect.messages FOR EACH ROW EXECUTE FUNCTION recollect.fail()"
            )

    def __exit__(self, *_):
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute("DROP FUNCTION recollect.fail CASCADE")
            admin.execute("DROP SEQUENCE recollect.failures")


class TestRemovedUnderneath:
    """Changes by an administrator while a store is open."""

    def test_dropped_tables_raise(self, databases):
        name = databases.make()
        with recollect.open(databases.url_of(name, "plain")) as store:
            with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
                admin.execute("DROP SCHEMA recollect CASCADE")
            for action in (store.list_sessions, lambda: store.session("a")):
                with pytest.raises(recollect.StoreUnavailable, match="its tables do not exist any more") as exc_info:
                    action()
                assert "folder" not in str(exc_info.value)
        databases.drop(name)

    def test_a_dropped_database_raises(self, databases):
        name = databases.make()
        with recollect.open(databases.url_of(name, "plain"), timeout=0.5) as store:
            databases.drop(name)
            with pytest.raises(recollect.StoreUnavailable, match=f'"{name}" does not exist'):
                store.session("a")

    def test_a_statement_timeout_is_named_in_the_error(self, databases):
        name = databases.make()
        with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
            admin.execute(f"ALTER ROLE plain IN DATABASE \"{name}\" SET statement_timeout = '300ms'".encode())
        with recollect.open(databases.url_of(name, "plain")) as store:
            session = store.session("a")
            with psycopg.connect(databases.url_of(name, "postgres")) as other:
                other.execute("LOCK TABLE recollect.sessions")
                with pytest.raises(recollect.StoreLocked, match="statement_timeout that is set"):
                    session.append(user_message("x"))
            assert session.append(user_message("y")).ids == ["1.1"]
        databases.drop(name)
