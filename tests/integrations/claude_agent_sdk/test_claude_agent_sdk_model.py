"""RecollectSessionStore and the SDK's store in memory return the same after random operations."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from claude_agent_sdk import InMemorySessionStore
from claude_agent_sdk_entries import random_entries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect.integrations.claude_agent_sdk import RecollectSessionStore

_PROJECTS = ("-home-ann", "tenant/2")
_SESSIONS = ("s", "t", ".. \x00 odd \ud800", "5e551000-0000-4000-8000-000000000000")
_KEYS = [
    {"project_key": project, "session_id": session, **({} if path is None else {"subpath": path})}
    for project in _PROJECTS
    for session in _SESSIONS
    for path in (None, "subagents/agent-a", "subagents/workflows/run/agent-a", "other")
]
_OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(_KEYS),
        st.just("delete") | st.lists(random_entries, max_size=6) | st.lists(random_entries, min_size=1, max_size=6),
    ),
    max_size=12,
)


class _Model(InMemorySessionStore):
    """The SDK's store in memory, which leaves out entries with a known uuid, as the protocol asks of other stores."""

    async def append(self, key, entries):
        """Append the new entries."""
        uuids = {entry["uuid"] for entry in await self.load(key) or () if isinstance(entry.get("uuid"), str)}
        new = []
        for entry in entries:
            if entry.get("uuid") not in uuids:
                new.append(entry)
            uuids |= {entry["uuid"]} if "uuid" in entry else set()
        if new:
            await super().append(key, new)


async def _run(url, owner, operations):
    model = _Model()
    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(RecollectSessionStore.from_url(url, owner=owner)) for _ in range(2)]
        for number, key, operation in operations:
            if operation == "delete":
                await writers[number].delete(key)
                await model.delete(key)
            else:
                await writers[number].append(key, operation)
                await model.append(key, operation)
                assert await writers[number].load(key) == await model.load(key)
        for key in _KEYS:
            assert await writers[0].load(key) == await model.load(key)
            assert sorted(await writers[0].list_subkeys(key)) == sorted(await model.list_subkeys(key))
        for project in _PROJECTS:
            sessions = await writers[0].list_sessions(project)
            expected = [item["session_id"] for item in await model.list_sessions(project)]
            assert sorted(item["session_id"] for item in sessions) == sorted(expected)
            summaries = {item["session_id"]: item for item in await writers[0].list_session_summaries(project)}
            assert {id: item["data"] for id, item in summaries.items()} == {
                item["session_id"]: item["data"] for item in await model.list_session_summaries(project)
            }
            assert {id: item["mtime"] for id, item in summaries.items()} == {
                item["session_id"]: item["mtime"] for item in sessions
            }
        store = await stack.enter_async_context(recollect.open_async(url, owner=owner))
        assert (await store.maintenance.check()).ok


def test_random_operations(url):
    numbers = iter(range(10_000))

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operations=_OPERATIONS)
    def check(operations):
        asyncio.run(_run(url, f"owner-{next(numbers)}", operations))

    check()
