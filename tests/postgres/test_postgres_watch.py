"""A watch on a server that becomes unreachable and returns: it reports every change in between."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

import recollect
from recollect.engine.postgres import change_notifier

TIMEOUT = 30.0  # seconds; only a failure reaches it


def user_message(text):
    return {"role": "user", "content": text}


def terminate_listeners(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        return admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'",
            (database,),
        ).fetchone()[0]


def test_a_lost_connection_is_replaced_and_no_change_is_missed(postgres, databases, database, monkeypatch):
    monkeypatch.setattr(change_notifier, "_SECOND_SCAN_AFTER", 3600.0)  # so that the second scan does not find them
    with recollect.open(postgres) as store:
        kept_session, erased_session = store.session("kept"), store.session("erased")
        with store.watch(timeout=TIMEOUT) as watch:
            kept_session.append(user_message("x"))
            assert next(watch) == ("kept", kept_session.revision)
            assert terminate_listeners(databases, database) == 1
            kept_session.append(user_message("y"))
            store.erase_session("erased")
            new = store.session("new")
            new.append(user_message("z"))
            expected = {("kept", kept_session.revision), ("erased", None), ("new", new.revision)}
            changes = set()
            for change in watch:
                changes.add(tuple(change))
                if expected <= changes:
                    break
            assert expected <= changes
    assert erased_session.id == "erased"


def test_an_async_watch_reports_changes_after_a_lost_connection(postgres, databases, database):
    async def watch_changes():
        async with recollect.open_async(postgres) as store:
            session = await store.session("a")
            async with store.watch("a", timeout=TIMEOUT) as watch:
                await asyncio.get_running_loop().run_in_executor(None, terminate_listeners, databases, database)
                await session.append(user_message("x"))
                assert await anext(watch) == ("a", session.revision)
                next_change = asyncio.create_task(anext(watch))
                await asyncio.sleep(0.05)
                next_change.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await next_change
                await session.append(user_message("y"))
                assert await anext(watch) == ("a", session.revision)

    asyncio.run(watch_changes())


def test_a_watch_reports_a_commit_that_was_in_progress_when_it_began(postgres, databases, database, monkeypatch):
    """The trigger of the commit found no watcher; the second scan finds the change."""
    monkeypatch.setattr(change_notifier, "_SECOND_SCAN_AFTER", 0.5)
    with recollect.open(postgres) as store:
        session = store.session("a")
        with psycopg.connect(postgres) as other:
            other.execute("UPDATE recollect.sessions SET revision = revision + 1")
            with store.watch(timeout=TIMEOUT) as watch:
                other.commit()
                assert next(watch) == ("a", session.revision + 1)


def test_no_notification_is_sent_without_a_watcher(postgres):
    with recollect.open(postgres) as store:
        session = store.session("a")
        with psycopg.connect(postgres, autocommit=True) as other:
            channel = other.execute("SELECT recollect.channel('')").fetchone()[0]
            other.execute(f'LISTEN "{channel}"'.encode())
            session.append(user_message("x"))
            assert list(other.notifies(timeout=0.2)) == []
            with store.watch():
                session.append(user_message("y"))
                assert len(list(other.notifies(timeout=60, stop_after=1))) == 1
            session.append(user_message("z"))
            assert list(other.notifies(timeout=0.2)) == []
            assert other.execute("SELECT count(*) FROM recollect.watchers").fetchone() == (0,)


def test_malformed_notifications_are_ignored(postgres):
    with (
        recollect.open(postgres) as store,
        store.watch(timeout=1) as watch,
        psycopg.connect(postgres, autocommit=True) as other,
    ):
        for payload in ("", "x", "1", "1 x y", "- 1 a"):
            other.execute("SELECT pg_notify(recollect.channel(''), %s)", (payload,))
        assert list(watch) == []


def test_the_registration_of_a_watcher_is_renewed(postgres, monkeypatch):
    monkeypatch.setattr(change_notifier, "_RENEW", 0.05)
    with (
        recollect.open(postgres) as store,
        store.watch(timeout=2) as watch,
        psycopg.connect(postgres, autocommit=True) as other,
    ):
        before = other.execute("SELECT until FROM recollect.watchers").fetchone()[0]
        time.sleep(0.01)
        assert list(watch) == []
        assert other.execute("SELECT until FROM recollect.watchers").fetchone()[0] > before
