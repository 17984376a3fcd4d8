"""The feed of a server that runs for long: it remembers what there is, and not what there was."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import recollect
from recollect.server.changes import Changes
from recollect.server.feed import Feed, News

LIMIT = 60
HELLO = {"role": "user", "content": "hello"}


async def told(feed, wanted):
    until = time.monotonic() + LIMIT
    while wanted not in feed.since(0) and time.monotonic() < until:
        await asyncio.sleep(0.01)
    assert wanted in feed.since(0)


def feeding(path, story):
    async def main():
        async with recollect.open_async(path) as store:
            talks = SimpleNamespace(running=lambda _: False, moved=None)
            changes = Changes(store)
            feed = Feed(changes, talks, asyncio.Event())
            await feed.begin()
            try:
                await story(store, feed, talks, changes)
            finally:
                await feed.close()
                await changes.close()

    asyncio.run(main())


def test_erased_sessions_are_forgotten(tmp_path):
    async def story(store, feed, _talks, _changes):
        for name in ("cli:a", "cli:b"):
            session = await store.session(name)
            await session.append(HELLO)
        await told(feed, News("cli:a", (await store.get_session("cli:a")).revision, False))
        await told(feed, News("cli:b", (await store.get_session("cli:b")).revision, False))
        await store.erase_session("cli:a")
        await told(feed, News("cli:a", None, False))
        assert list(feed._revisions) == ["cli:b"]

    feeding(tmp_path / "recollect.db", story)


def test_a_turn_of_a_session_that_did_not_change_leaves_nothing(tmp_path):
    async def story(_store, feed, talks, _changes):
        for number in range(100):
            talks.moved(f"cli:{number}")
        assert feed.count == 100
        assert feed.since(99) == [News("cli:99", 0, False)]
        assert feed._revisions == {}

    feeding(tmp_path / "recollect.db", story)


def test_where_changes_were_missed_no_revision_is_trusted(tmp_path):
    async def story(store, feed, _talks, changes):
        await store.session("cli:a")
        await told(feed, News("cli:a", (await store.get_session("cli:a")).revision, False))
        assert list(feed._revisions) == ["cli:a"]
        changes._tell(None)
        await told(feed, News("", None, False))
        assert feed._revisions == {}

    feeding(tmp_path / "recollect.db", story)


def test_what_is_committed_before_a_lost_watch_is_back_is_looked_for(tmp_path, monkeypatch):
    """That something was missed is told when the store is watched again: who looks earlier would miss the rest."""
    monkeypatch.setattr("recollect.server.changes._RETRY", 0.01)

    async def story(store, feed, _talks, changes):
        plain, away = store.watch, asyncio.Event()

        class Away:
            async def __aenter__(self):
                away.set()
                raise OSError("away")

            async def __aexit__(self, *_):
                pass

        monkeypatch.setattr(store, "watch", Away)
        await changes.close()
        await changes.begin()
        await asyncio.wait_for(away.wait(), LIMIT)
        place = feed.count
        await store.session("cli:meanwhile")
        await asyncio.sleep(0.1)
        seen = feed.since(place)
        monkeypatch.setattr(store, "watch", plain)
        await told(feed, News("", None, False))
        assert seen == []
        await store.session("cli:after")
        await told(feed, News("cli:after", (await store.get_session("cli:after")).revision, False))

    feeding(tmp_path / "recollect.db", story)
