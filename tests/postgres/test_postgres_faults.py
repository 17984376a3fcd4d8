"""What goes wrong with a server and on the way to it: a clear error, or none; nothing acknowledged lost, nothing twice."""

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
from recollect.engine.postgres import migration
from recollect.engine.postgres.server import Server


def said(text):
    return {"role": "user", "content": text}


CALL = {
    "role": "assistant", "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}


def await_other_millisecond(at):
    while time.time_ns() // 1_000_000 <= at:
        time.sleep(0.001)


def through(url, port):
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()


@pytest.fixture
def proxy(postgres):
    proxy = LoopbackProxy(urlsplit(postgres).port)
    yield proxy
    proxy.close()


@pytest.fixture
def server():
    """A server of this test's own, to be killed."""
    server = PostgresServer("fsync=off", "shared_buffers=16MB").start()
    yield server
    server.remove()


class TestLostConnections:
    """Connections that end in the middle of something."""

    @pytest.mark.parametrize("owner", ["", "ann"])
    @pytest.mark.parametrize("how", ["before", "after", "told", "late"])
    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_commit_that_is_cut_writes_once(self, postgres, proxy, how, owner, key):
        """Sent with all that it commits, or after it, where a key was looked for first."""
        with recollect.open(through(postgres, proxy.port), owner=owner) as store:
            session = store.session("a")
            session.append(said("first"))
            proxy.trap = how
            late = threading.Timer(0.5, proxy.release)
            if how == "late":
                late.start()
            made = session.append(said("second"), key=key)
            assert proxy.sprung.is_set()
            assert (made.first, made.repeated) == (2, False)
            if how == "late":
                late.join()
            session.append(said("third"))
            assert [message.text for message in session.messages()] == ["first", "second", "third"]
            assert session.refresh().message_count == 3

    @pytest.mark.parametrize("owner", ["", "ann"])
    @pytest.mark.parametrize("how", ["before", "after", "told"])
    def test_a_turn_that_is_cut_is_saved_once(self, postgres, proxy, how, owner):
        with recollect.open(through(postgres, proxy.port), owner=owner) as store:
            session = store.session("a")
            proxy.trap = how
            made = session.save_turn("q", [CALL, RESULT, {"role": "assistant", "content": "done"}])
            assert proxy.sprung.is_set()
            assert (made.first, made.count, made.repeated, made.revision) == (1, 4, False, 1)
            assert [(turn.position, turn.status) for turn in session.turns()] == [(1, "completed")]
            assert [(call.message, call.status, call.result_message) for call in session.tool_calls()] == [
                ("1.2", "success", "1.3")
            ]
            assert session.append(said("next")).ids == ["1.5"]
            assert store.check().problems == ()

    def test_the_answer_is_found_again_among_what_others_wrote_since(self, postgres, proxy):
        """What was appended is known by its transaction, also when it is not the end of the branch any more."""
        with recollect.open(through(postgres, proxy.port)) as store, recollect.open(postgres) as other:
            session = store.session("a")
            session.append(said("same"))
            proxy.trap = "after"
            settled = Server._settled

            def meanwhile(server, mark, until):
                other.session("a").append([said("same"), said("same")])
                other.session("a").fork(id="f").append(said("same"))
                return settled(server, mark, until)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Server, "_settled", meanwhile)
                made = session.append([said("same"), said("same")])
            assert (made.ids, made.repeated) == (["1.2", "1.3"], False)
            assert session.message_count == session.refresh().message_count == 5

    def test_an_answer_that_can_not_be_found_again_is_not_made_up(self, postgres, proxy, databases, database):
        """Nor is it written a second time: what is there was changed by others before it was looked for."""
        with recollect.open(through(postgres, proxy.port)) as store:
            session = store.session("a")
            proxy.trap = "after"
            settled = Server._settled

            def meanwhile(server, mark, until):
                with psycopg.connect(databases.url_of(database, "postgres")) as admin:
                    admin.execute("UPDATE recollect.messages SET metadata = '{}'")
                return settled(server, mark, until)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Server, "_settled", meanwhile)
                with pytest.raises(recollect.StoreUnavailable, match="may have been stored or not"):
                    session.append(said("once"))
            assert [message.text for message in session.messages()] == ["once"]

    @pytest.mark.parametrize("how", ["after", "told"])
    def test_what_met_nothing_is_refused_and_not_in_doubt(self, postgres, proxy, how):
        """The commit of a change that found nothing to change leaves no row that tells its result."""
        with recollect.open(through(postgres, proxy.port)) as store:
            session = store.session("a")
            seen = session.append(recollect.Draft(role="user", parts=(), created_at=1)).revision
            for act, error in (
                (lambda: session.append(said("x"), expected=seen - 1), recollect.StaleRevision),
                (lambda: session.save_turn("x", said("y"), expected=seen - 1), recollect.StaleRevision),
                (lambda: store.create_session("a"), recollect.SessionExists),
            ):
                await_other_millisecond(session.created_at)
                proxy.trap = how
                with pytest.raises(error):
                    act()
            session.turn("left", lease=0.001)
            await_other_millisecond(session.refresh().updated_at)
            proxy.trap = how
            assert session.save_turn("q", said("r")).ids == ["1.3", "1.4"]
            assert session.refresh().message_count == 4

    def test_of_a_batch_only_what_met_nothing_is_refused(self, postgres, proxy):
        async def story():
            async with recollect.open_async(through(postgres, proxy.port)) as store:
                sessions = [await store.session(str(number)) for number in range(4)]
                for session in sessions:
                    await session.append(recollect.Draft(role="user", parts=(), created_at=1))
                await_other_millisecond(sessions[-1].created_at)
                proxy.trap = "after"
                tries = [session.append(said("x"), expected=0 if at % 2 else 1) for at, session in enumerate(sessions)]
                found = await asyncio.gather(*tries, return_exceptions=True)
                return found, [(await session.refresh()).message_count for session in sessions]

        found, counts = asyncio.run(story())
        assert [isinstance(each, recollect.StaleRevision) for each in found] == [False, True, False, True]
        assert counts == [2, 1, 2, 1]

    def test_a_commit_whose_end_is_not_known_in_time(self, postgres, proxy):
        with recollect.open(through(postgres, proxy.port), timeout=3) as store:
            session = store.session("a")
            proxy.trap = "late"
            with pytest.raises(recollect.StoreUnavailable, match="may have been stored or not"):
                session.append(said("x"), key="k")  # a key is looked for first: the server has begun when it is cut
            assert b"COMMIT" in proxy.release()
            assert [message.text for message in session.messages()] == ["x"]

    def test_a_batch_that_is_cut_writes_once(self, postgres, proxy):
        async def story(how):
            async with recollect.open_async(through(postgres, proxy.port)) as store:
                sessions = [await store.session(f"{how}{number}") for number in range(12)]
                for session in sessions:
                    await session.append(said("first"))
                proxy.trap = how
                await asyncio.gather(*(session.append(said("second")) for session in sessions))
                assert proxy.sprung.is_set()
                proxy.sprung.clear()
                for session in sessions:
                    assert [message.text for message in await session.messages()] == ["first", "second"]

        for how in ("before", "after", "told"):
            asyncio.run(story(how))

    def test_cut_again_and_again(self, postgres, proxy):
        """Each writer cuts everyone's connections now and then, wherever the others are with theirs."""
        done = []

        def write(store, name):
            session = store.session(name)
            for number in range(20):
                session.append(said(str(number)))
                if number % 5 == 4:
                    proxy.cut()
            done.append(name)

        with recollect.open(through(postgres, proxy.port)) as store:
            writers = [threading.Thread(target=write, args=(store, f"w{number}")) for number in range(3)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
        assert sorted(done) == ["w0", "w1", "w2"]
        with recollect.open(postgres) as store:
            for name in done:
                assert [message.text for message in store.session(name).messages()] == [str(n) for n in range(20)]

    def test_reads_go_on(self, postgres, proxy):
        with recollect.open(through(postgres, proxy.port)) as store:
            session = store.session("a")
            session.append(said("x"))
            for _ in range(3):
                proxy.cut()
                assert len(session.messages()) == 1

    @pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
    def test_a_server_that_is_killed_and_started_again(self, server, kills):
        """Nothing acknowledged is lost or doubled, and writers go on by themselves."""
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE talks")
        url = server.url("talks")
        acknowledged = {}
        over, dice = threading.Event(), random.Random(kills)

        async def write(store, name):
            session = await store.session(name)
            for number in itertools.count():
                await session.append(said(str(number)))
                acknowledged[name] = number + 1
                if over.is_set():
                    return

        async def story():
            async with recollect.open_async(url) as store:
                tasks = [asyncio.create_task(write(store, f"s{number}")) for number in range(8)]
                for _ in range(kills):
                    enough = sum(acknowledged.values()) + dice.randrange(1, 500)
                    while sum(acknowledged.values()) < enough:  # it is killed while it has work
                        await asyncio.sleep(0.01)
                    await asyncio.get_running_loop().run_in_executor(None, server.kill)
                    await asyncio.get_running_loop().run_in_executor(None, server.start)
                over.set()
                await asyncio.gather(*tasks)

        asyncio.run(asyncio.wait_for(story(), 600))
        assert len(acknowledged) == 8
        with recollect.open(url) as store:
            for name, count in acknowledged.items():
                assert [message.text for message in store.session(name).messages()] == [str(n) for n in range(count)]
        print(f"{kills} kills of the server: {sum(acknowledged.values())} messages acknowledged, none lost or twice")

    def test_a_server_that_stays_away(self, server):
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE talks")
        store = recollect.open(server.url("talks"), timeout=3)
        session = store.session("a")
        server.kill()
        with pytest.raises(recollect.StoreUnavailable, match="can not be reached"):
            session.append(said("x"))
        with pytest.raises(recollect.StoreUnavailable):
            session.messages()
        store.close()
        server.start()
        with recollect.open(server.url("talks")) as store:
            assert store.session("a").messages() == []


class TestRefusedConnections:
    """Servers that do not let us in, or not us."""

    def test_wrong_password(self, databases, database):
        url = databases.url_of(database, "guarded").replace("s3cret", "wr0ng")
        for opening in (recollect.open, lambda url: asyncio.run(_opened(url))):
            with pytest.raises(recollect.StoreUnavailable, match="password") as caught:
                opening(url)
            assert "wr0ng" not in str(caught.value)
            assert "wr0ng" not in "".join(traceback.format_exception(caught.value))

    def test_the_right_password_is_never_shown(self, databases, database):
        with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
            admin.execute("GRANT ALL ON SCHEMA recollect TO guarded")
            admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA recollect TO guarded")
        url = databases.url_of(database, "guarded")
        assert PASSWORD.replace("$", "%24") in url
        with recollect.open(url) as store:
            store.session("a").append(said("x"))
            for shown in (store.path, repr(store)):
                assert "s3cret" not in shown
                assert "guarded@" in shown

    def test_missing_database(self, databases):
        with pytest.raises(recollect.StoreUnavailable, match="does not exist"):
            recollect.open(databases.url_of("nowhere_at_all", "plain"))

    def test_a_role_without_rights(self, databases, database):
        with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
            recollect.open(databases.url_of(database, "plain")).close()
            admin.execute("DROP OWNED BY guarded")  # what another test gave it
            try:
                url = databases.url_of(database, "guarded")
                with pytest.raises(
                    recollect.StoreReadOnly, match="lacks a right: permission denied for schema recollect"
                ):
                    recollect.open(url)
                admin.execute("GRANT USAGE ON SCHEMA recollect TO guarded")
                admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA recollect TO guarded")
                with recollect.open(url) as store:
                    assert len(store.list_sessions()) == 0
                    with pytest.raises(recollect.StoreReadOnly, match="GRANT this one USAGE ON SCHEMA"):
                        store.session("x")
            finally:
                admin.execute("DROP OWNED BY guarded")

    def test_nobody_there(self):
        with pytest.raises(recollect.StoreUnavailable, match=r"Check that the server runs"):
            recollect.open(f"postgresql://plain:hunter2@127.0.0.1:{free_port()}/x")

    @pytest.mark.parametrize("url", ["postgresql://[", "postgresql://h/x?nonsense=hunter2"])
    def test_no_url(self, url):
        with pytest.raises(recollect.InvalidValue, match="URL of a PostgreSQL server") as caught:
            recollect.open(url)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize("size", ["0", "x", "-1"])
    def test_no_size(self, postgres, size):
        with pytest.raises(recollect.InvalidValue, match="pool_size"):
            recollect.open(f"{postgres}?pool_size={size}")

    def test_a_server_that_is_too_old(self, postgres, monkeypatch):
        monkeypatch.setattr(migration, "OLDEST", 990_000)
        with pytest.raises(recollect.StoreUnavailable, match="too old; Recollect needs version 99"):
            recollect.open(postgres)

    def test_another_encoding(self, databases):
        with psycopg.connect(databases.url_of("postgres", "postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C' OWNER plain")
            try:
                with pytest.raises(recollect.StoreUnavailable, match="LATIN1"):
                    recollect.open(databases.url_of("latin", "plain"))
            finally:
                admin.execute("DROP DATABASE latin")

    def test_a_role_that_may_not_make_tables(self, databases):
        name = databases.make()
        with pytest.raises(recollect.StoreReadOnly, match="permission denied"):
            recollect.open(databases.url_of(name, "guarded"))
        databases.drop(name)


async def _opened(url):
    async with recollect.open_async(url):
        pass


class TestBusyServers:
    """Servers that are there and do not do it."""

    def test_a_full_pool(self, postgres):
        store = recollect.open(f"{postgres}?pool_size=1", timeout=1.5)
        session = store.session("a")
        with psycopg.connect(postgres) as other:
            other.execute("LOCK TABLE recollect.sessions")
            errors = []

            def write():
                try:
                    session.append(said("x"))
                except recollect.StoreError as error:
                    errors.append(error)

            threads = [threading.Thread(target=write) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        kinds = {type(error) for error in errors}
        assert len(errors) == 6
        assert kinds <= {recollect.StoreUnavailable, recollect.StoreLocked}
        assert any("all 1 connections were in use" in str(error) for error in errors)
        session.append(said("y"))
        assert [message.text for message in session.messages()] == ["y"]
        store.close()

    def test_a_lock_that_is_held_too_long(self, postgres):
        with recollect.open(postgres, timeout=1.5) as store:
            session = store.session("a")
            with psycopg.connect(postgres) as other:
                other.execute("SELECT FROM recollect.sessions FOR UPDATE")
                with pytest.raises(recollect.StoreLocked, match=r"did not answer within 1\.5 seconds"):
                    session.append(said("x"))
            session.append(said("y"))
            assert [message.text for message in session.messages()] == ["y"]

    def test_a_replica_reads_and_does_not_write(self, server):
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE talks")
        with recollect.open(server.url("talks")) as store:
            store.session("a").append(said("x"))
        replica = PostgresServer("fsync=off", "shared_buffers=16MB", source=server).start()
        try:
            with recollect.open(replica.url("talks")) as there, recollect.open(server.url("talks")) as here:
                session = there.get_session("a")
                assert [message.text for message in session.messages()] == ["x"]
                with pytest.raises(recollect.StoreReadOnly, match="primary"):
                    session.append(said("y"))
                with there.watch(timeout=60) as watch:  # a replica takes no LISTEN: it is looked at now and then
                    written = here.session("a")
                    written.append(said("z"))
                    assert next(watch) == ("a", written.revision)
        finally:
            replica.remove()

    @pytest.mark.parametrize(
        ("state", "kind"),
        [
            ("53100", recollect.DiskFull),
            ("XX001", recollect.Corrupted),
            ("25006", recollect.StoreReadOnly),
            ("22003", recollect.LimitReached),
            ("P0001", recollect.StoreError),
        ],
    )
    def test_errors_of_the_server(self, postgres, databases, database, state, kind):
        with recollect.open(postgres) as store, _raising(databases, database, state):
            session = store.session("a")
            with pytest.raises(kind):
                session.append(said("x"))
            assert session.messages() == []

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    def test_a_conflict_is_tried_again(self, postgres, databases, database, state):
        with recollect.open(postgres) as store, _raising(databases, database, state, times=3):
            session = store.session("a")
            session.append(said("x"))
            assert [message.text for message in session.messages()] == ["x"]
            assert session.refresh().message_count == 1

    def test_not_for_ever(self, postgres, databases, database, monkeypatch):
        from recollect.engine.postgres import server

        monkeypatch.setattr(server, "_STEP", 0.0001)
        with recollect.open(postgres) as store, _raising(databases, database, "40001"):
            session = store.session("a")
            with pytest.raises(recollect.StoreError):
                session.append(said("x"))

    def test_one_that_fails_does_not_fail_the_others(self, postgres):
        async def story():
            async with recollect.open_async(postgres) as store:
                sessions = [await store.session(f"s{number}") for number in range(10)]
                work = [
                    session.append(said("x"), expected=99 if number == 4 else None)
                    for number, session in enumerate(sessions)
                ]
                results = await asyncio.gather(*work, return_exceptions=True)
                assert [type(result).__name__ for result in results] == [
                    "StaleRevision" if n == 4 else "Appended" for n in range(10)
                ]
                for number, session in enumerate(sessions):
                    assert len(await session.messages()) == (0 if number == 4 else 1)

        asyncio.run(story())


class _raising:  # noqa: N801
    """Makes the server fail when a message is written: each time, or so many times."""

    def __init__(self, databases, database, state, times=0):
        self._url = databases.url_of(database, "postgres")
        self._state, self._times = state, times

    def __enter__(self):
        limit = f"IF nextval('recollect.failures') > {self._times} THEN RETURN NEW; END IF;" if self._times else ""
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute("CREATE SEQUENCE recollect.failures")
            admin.execute("GRANT ALL ON SEQUENCE recollect.failures TO plain")
            admin.execute(
                f"CREATE FUNCTION recollect.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {limit} RAISE EXCEPTION 'made to fail' USING ERRCODE = '{self._state}'; END $$"
            )
            admin.execute(
                "CREATE TRIGGER fail BEFORE INSERT ON recollect.messages FOR EACH ROW EXECUTE FUNCTION recollect.fail()"
            )

    def __exit__(self, *_):
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute("DROP FUNCTION recollect.fail CASCADE")
            admin.execute("DROP SEQUENCE recollect.failures")


class TestRemovedUnderneath:
    """What an administrator does while a store is open."""

    def test_tables_that_are_gone(self, databases):
        name = databases.make()
        with recollect.open(databases.url_of(name, "plain")) as store:
            with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
                admin.execute("DROP SCHEMA recollect CASCADE")
            for act in (store.list_sessions, lambda: store.session("a")):
                with pytest.raises(recollect.StoreUnavailable, match="its tables are gone") as caught:
                    act()
                assert "folder" not in str(caught.value)
        databases.drop(name)

    def test_a_database_that_is_gone(self, databases):
        name = databases.make()
        with recollect.open(databases.url_of(name, "plain"), timeout=0.5) as store:
            databases.drop(name)
            with pytest.raises(recollect.StoreUnavailable, match=f'"{name}" does not exist'):
                store.session("a")

    def test_a_limit_of_the_server_is_named(self, databases):
        name = databases.make()
        with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
            admin.execute(f"ALTER ROLE plain IN DATABASE \"{name}\" SET statement_timeout = '300ms'")
        with recollect.open(databases.url_of(name, "plain")) as store:
            session = store.session("a")
            with psycopg.connect(databases.url_of(name, "postgres")) as other:
                other.execute("LOCK TABLE recollect.sessions")
                with pytest.raises(recollect.StoreLocked, match="statement_timeout that is set"):
                    session.append(said("x"))
            assert session.append(said("y")).ids == ["1.1"]
        databases.drop(name)
