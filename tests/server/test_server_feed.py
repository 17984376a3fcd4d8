"""The change feed of a long-running server: it forgets erased sessions and reports missed changes."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import recollect
from recollect.server.changes import ChangeFeed, ChangeWatcher, SessionUpdate

LIMIT = 60  # seconds. A wait that takes longer is a failure.
HELLO = {"role": "user", "content": "hello"}


async def wait_for_update(feed, update):
    deadline = time.monotonic() + LIMIT
    while update not in feed.since(0) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert update in feed.since(0)


def run_with_feed(path, scenario):
    async def main():
        async with recollect.open_async(path) as store:
            runner = SimpleNamespace(running=lambda _: False, on_change=None)
            changes = ChangeWatcher(store)
            feed = ChangeFeed(changes, runner, asyncio.Event())
            await feed.start()
            try:
                await scenario(store, feed, runner, changes)
            finally:
                await feed.close()
                await changes.close()

    asyncio.run(main())


def test_revisions_of_erased_sessions_are_forgotten(tmp_path):
    async def scenario(store, feed, _runner, _changes):
        for name in ("cli:a", "cli:b"):
            session = await store.session(name)
            await session.append(HELLO)
        await wait_for_update(feed, SessionUpdate("cli:a", (await store.get_session("cli:a")).revision, False))
        await wait_for_update(feed, SessionUpdate("cli:b", (await store.get_session("cli:b")).revision, False))
        await store.erase_session("cli:a")
        await wait_for_update(feed, SessionUpdate("cli:a", None, False))
        assert list(feed._revisions) == ["cli:b"]

    run_with_feed(tmp_path / "recollect.db", scenario)


def test_a_turn_without_a_change_stores_no_revision(tmp_path):
    async def scenario(_store, feed, runner, _changes):
        for number in range(100):
            runner.on_change(f"cli:{number}")
        assert feed.count == 100
        assert feed.since(99) == [SessionUpdate("cli:99", 0, False)]
        assert feed._revisions == {}

    run_with_feed(tmp_path / "recollect.db", scenario)


def test_missed_changes_discard_all_revisions(tmp_path):
    async def scenario(store, feed, _runner, changes):
        await store.session("cli:a")
        await wait_for_update(feed, SessionUpdate("cli:a", (await store.get_session("cli:a")).revision, False))
        assert list(feed._revisions) == ["cli:a"]
        changes._publish(None)
        await wait_for_update(feed, SessionUpdate("", None, False))
        assert feed._revisions == {}

    run_with_feed(tmp_path / "recollect.db", scenario)


def test_missed_changes_are_reported_after_the_watch_is_restored(tmp_path, monkeypatch):
    """An earlier report would be too early: a client that reads then would miss the commits before the new watch."""
    monkeypatch.setattr("recollect.server.changes._RETRY", 0.01)

    async def scenario(store, feed, _runner, changes):
        watch, failure = store.watch, asyncio.Event()

        class LostWatch:
            async def __aenter__(self):
                failure.set()
                raise OSError("lost")

            async def __aexit__(self, *_):
                pass

        monkeypatch.setattr(store, "watch", LostWatch)
        await changes.close()
        await changes.start()
        await asyncio.wait_for(failure.wait(), LIMIT)
        position = feed.count
        await store.session("cli:meanwhile")
        await asyncio.sleep(0.1)
        updates = feed.since(position)
        monkeypatch.setattr(store, "watch", watch)
        await wait_for_update(feed, SessionUpdate("", None, False))
        assert updates == []
        await store.session("cli:after")
        await wait_for_update(feed, SessionUpdate("cli:after", (await store.get_session("cli:after")).revision, False))

    run_with_feed(tmp_path / "recollect.db", scenario)
