"""Watching a server that goes away and comes back: what changed meanwhile is told."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

import recollect
from recollect.engine.postgres import watch as watching

LONG = 30.0


def said(text):
    return {"role": "user", "content": text}


def end_listeners(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        return admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'",
            (database,),
        ).fetchone()[0]


def test_a_lost_connection_is_replaced_and_nothing_missed(postgres, databases, database, monkeypatch):
    monkeypatch.setattr(watching, "_AGAIN", 3600.0)  # not by the second look
    with recollect.open(postgres) as store:
        kept, erased = store.session("kept"), store.session("erased")
        with store.watch(timeout=LONG) as watch:
            kept.append(said("x"))
            assert next(watch) == ("kept", kept.revision)
            assert end_listeners(databases, database) == 1
            kept.append(said("y"))
            store.erase_session("erased")
            new = store.session("new")
            new.append(said("z"))
            wanted = {("kept", kept.revision), ("erased", None), ("new", new.revision)}
            seen = set()
            for change in watch:
                seen.add(tuple(change))
                if wanted <= seen:
                    break
            assert wanted <= seen
    assert erased.id == "erased"


def test_a_task_that_watches_meanwhile(postgres, databases, database):
    async def story():
        async with recollect.open_async(postgres) as store:
            session = await store.session("a")
            async with store.watch("a", timeout=LONG) as watch:
                await asyncio.get_running_loop().run_in_executor(None, end_listeners, databases, database)
                await session.append(said("x"))
                assert await anext(watch) == ("a", session.revision)
                waiting = asyncio.create_task(anext(watch))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await session.append(said("y"))
                assert await anext(watch) == ("a", session.revision)

    asyncio.run(story())


def test_a_commit_that_was_under_way_when_the_watch_began(postgres, databases, database, monkeypatch):
    """Its trigger knew of nobody who watches; a second look finds it."""
    monkeypatch.setattr(watching, "_AGAIN", 0.5)
    with recollect.open(postgres) as store:
        session = store.session("a")
        with psycopg.connect(postgres) as other:
            other.execute("UPDATE recollect.sessions SET revision = revision + 1")
            with store.watch(timeout=LONG) as watch:
                other.commit()
                assert next(watch) == ("a", session.revision + 1)


def test_nobody_is_notified_where_nobody_watches(postgres):
    with recollect.open(postgres) as store:
        session = store.session("a")
        with psycopg.connect(postgres, autocommit=True) as other:
            channel = other.execute("SELECT recollect.channel('')").fetchone()[0]
            other.execute(f'LISTEN "{channel}"')
            session.append(said("x"))
            assert list(other.notifies(timeout=0.2)) == []
            with store.watch():
                session.append(said("y"))
                assert len(list(other.notifies(timeout=60, stop_after=1))) == 1
            session.append(said("z"))
            assert list(other.notifies(timeout=0.2)) == []
            assert other.execute("SELECT count(*) FROM recollect.watchers").fetchone() == (0,)


def test_strange_notifications_are_passed_over(postgres):
    with (
        recollect.open(postgres) as store,
        store.watch(timeout=1) as watch,
        psycopg.connect(postgres, autocommit=True) as other,
    ):
        for payload in ("", "x", "1", "1 x y", "- 1 a"):
            other.execute("SELECT pg_notify(recollect.channel(''), %s)", (payload,))
        assert list(watch) == []


def test_watching_is_renewed(postgres, monkeypatch):
    monkeypatch.setattr(watching, "_RENEW", 0.05)
    with (
        recollect.open(postgres) as store,
        store.watch(timeout=2) as watch,
        psycopg.connect(postgres, autocommit=True) as other,
    ):
        before = other.execute("SELECT until FROM recollect.watchers").fetchone()[0]
        time.sleep(0.01)
        assert list(watch) == []
        assert other.execute("SELECT until FROM recollect.watchers").fetchone()[0] > before
