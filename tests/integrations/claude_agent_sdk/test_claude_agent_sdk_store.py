"""RecollectSessionStore: the SDK's own suite, writers side by side, cancellation, kills, sub-agents, trash and erasing."""

from __future__ import annotations

import base64
import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap

import anyio
import pytest
from claude_agent_sdk import list_sessions_from_store
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk_entries import make_entries

import recollect
from recollect.errors import InvalidValue, NotFound
from recollect.integrations.claude_agent_sdk import RecollectSessionStore
from recollect.sources.claude_code import ClaudeCodeReader
from recollect.storage import messages
from recollect.sync import read_originals

SESSION = "5e551000-0000-4000-8000-000000000000"
KEY = {"project_key": "-home-ann-project", "session_id": SESSION}
AGENT_KEY = {**KEY, "subpath": "subagents/agent-a1"}
ID = f"claude-code:{SESSION}"


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    """Return a function that runs a coroutine in one of the event loops."""

    def run_in_loop(function):
        async def main():
            with anyio.fail_after(120):
                await function()

        anyio.run(main, backend=request.param)

    return run_in_loop


def test_the_suite_of_the_sdk(url, run):
    async def main():
        async with recollect.open_async(url) as store:
            numbers = itertools.count()
            await run_session_store_conformance(lambda: RecollectSessionStore(store.as_owner(f"owner-{next(numbers)}")))
            assert next(numbers) == 15  # 14 contracts and a probe

    run(main)


def test_messages_are_typed(url, run):
    async def main():
        async with recollect.open_async(url) as store:
            sessions = RecollectSessionStore(store)
            await sessions.append(KEY, make_entries(10))
            session = await store.session(ID, create=False)
            assert (session.title, session.model, session.working_dir) == (
                "Title 9",
                "claude-test",
                "/home/ann/project",
            )
            rows = await session.messages()
            assert [message.text for message in rows] == [f"Message {number}" for number in range(10)]
            assert rows[9].output_tokens == 9
            assert (await session.history("openai"))[-1] == {"role": "assistant", "content": "Message 9"}
            assert [hit.session for hit in await store.search('"message 7"')] == [ID]
            [info] = await list_sessions_from_store(sessions, directory="/home/ann/project")
            assert (info.session_id, info.custom_title) == (SESSION, "Title 9")
            await sessions.aclose()
            assert await store.get_session(ID) is not None  # an open store that was passed stays open

    run(main)


def test_a_batch_that_overlaps_is_stored_once(url, run):
    async def main():
        async with RecollectSessionStore.from_url(url) as one, RecollectSessionStore.from_url(url) as other:
            entries = make_entries(30)
            await one.append(KEY, entries[:8])
            await one.append(KEY, [*entries[4:12], *entries[9:13]])
            await other.append(KEY, entries[2:20])  # from another process, which has not read the log
            await one.append(KEY, entries[19:])
            result = await one.load(KEY)
            assert [entry for entry in result if "uuid" in entry] == [entry for entry in entries if "uuid" in entry]
            titles = [entry["customTitle"] for entry in result if "uuid" not in entry]
            assert titles == ["Title 9", "Title 9", "Title 9", "Title 19", "Title 29"]  # without an id, each is new

    run(main)


def test_batches_of_two_writers_do_not_mix(url, run):
    async def main():
        async with RecollectSessionStore.from_url(url) as one, RecollectSessionStore.from_url(url) as other:
            entries = make_entries(200)
            batches = [entries[start : start + 4] for start in range(0, len(entries), 4)]

            async def write(sessions, mine):
                for batch in mine:
                    await sessions.append(KEY, batch)

            async with anyio.create_task_group() as tasks:
                for number, sessions in enumerate([one, other, one, other]):
                    tasks.start_soon(write, sessions, batches[number::4])
            result = await one.load(KEY)
            assert len(result) == len(entries)
            places = {repr(entry): number for number, entry in enumerate(result)}
            for batch in batches:
                first = places[repr(batch[0])]
                assert result[first : first + len(batch)] == batch
            for number in range(4):  # each writer in its order
                firsts = [places[repr(batch[0])] for batch in batches[number::4]]
                assert firsts == sorted(firsts)
        async with recollect.open_async(url) as store:
            session = await store.session(ID, create=False)
            texts = set()
            for branch in await session.branches.list():
                await session.branches.switch(branch)
                texts |= {message.text for message in await session.messages()}
            assert texts == {f"Message {number}" for number in range(200)}
            assert (await store.maintenance.check()).ok

    run(main)


def test_a_cancelled_append_can_be_repeated(url, run):
    async def main():
        generator = random.Random(5)
        entries = [entry for entry in make_entries(120) if "uuid" in entry]
        async with RecollectSessionStore.from_url(url) as sessions:
            cancelled = 0
            for start in range(0, len(entries), 6):
                while True:
                    with anyio.move_on_after(generator.random() * 0.004) as scope:
                        await sessions.append(KEY, entries[start : start + 6])
                    if not scope.cancelled_caught:
                        break
                    cancelled += 1
                    result = await sessions.load(KEY) or []
                    assert result in (entries[:start], entries[: start + 6])
            assert cancelled
            assert await sessions.load(KEY) == entries
        async with recollect.open_async(url) as store:
            rows = await (await store.session(ID, create=False)).messages()
            assert [message.text for message in rows] == [f"Message {number}" for number in range(120)]

    run(main)


_WRITER = """
    import anyio, itertools, sys
    sys.path.insert(0, sys.argv[2])
    from claude_agent_sdk_entries import make_entries
    from recollect.integrations.claude_agent_sdk import RecollectSessionStore

    async def main():
        entries = [entry for entry in make_entries(5_000) if "uuid" in entry]
        async with RecollectSessionStore.from_url(sys.argv[1]) as sessions:
            for start in range(0, len(entries), 7):
                await sessions.append({"project_key": "p", "session_id": "s"}, entries[start : start + 7])
                print(start + 7, flush=True)

    anyio.run(main)
"""


def test_a_killed_writer_loses_nothing(url):
    arguments = [sys.executable, "-c", textwrap.dedent(_WRITER), url, os.path.dirname(__file__)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        for _ in range(25):
            count = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        count = max([count, *map(int, writer.stdout.read().split())])

    async def main():
        entries = [entry for entry in make_entries(5_000) if "uuid" in entry]
        async with RecollectSessionStore.from_url(url) as sessions:
            result = await sessions.load({"project_key": "p", "session_id": "s"})
            assert len(result) in (count, count + 7)
            assert result == entries[: len(result)]
            await sessions.append({"project_key": "p", "session_id": "s"}, entries[: len(result) + 7])
            assert await sessions.load({"project_key": "p", "session_id": "s"}) == entries[: len(result) + 7]
        async with recollect.open_async(url) as store:
            assert len(await (await store.session("claude-code:s", create=False)).messages()) == len(result) + 7
            assert (await store.maintenance.check()).ok

    anyio.run(main)


def test_a_sub_agent_is_a_delegate_in_any_order(url, run):
    async def main():
        async with recollect.open_async(url) as store:
            sessions = RecollectSessionStore(store)
            lines = make_entries(4, start=1000, agentId="a1", isSidechain=True)
            lines[0]["parentUuid"] = None
            metadata = {"type": "agent_metadata", "agentType": "Explore", "description": "Look around"}
            await sessions.append(AGENT_KEY, [metadata, *lines])
            await sessions.append(KEY, make_entries(4))
            [info] = await store.list_sessions(parent=ID, delegates=None)
            assert (info.id, info.relation, info.title) == (f"{ID}:agent:a1", "delegate", "Look around")
            assert info.metadata["agent_type"] == "Explore"
            assert await sessions.list_subkeys(KEY) == ["subagents/agent-a1"]
            assert await sessions.load(AGENT_KEY) == [metadata, *lines]
            nested = {**KEY, "subpath": "subagents/workflows/run-1/agent-a1"}  # the same id in another folder
            await sessions.append(nested, make_entries(2, start=2000))
            assert await sessions.load(AGENT_KEY) == [metadata, *lines]
            assert len(await store.list_sessions(parent=ID, delegates=None)) == 2
            await sessions.delete(KEY)
            assert await store.list_sessions(delegates=None) == []

    run(main)


def test_a_conversation_in_the_trash_takes_nothing(url, run):
    async def main():
        async with recollect.open_async(url) as store:
            sessions = RecollectSessionStore(store)
            entries = make_entries(6)
            await sessions.append(KEY, entries[:4])
            await store.delete_session(ID)
            assert await sessions.load(KEY) is None
            assert await sessions.list_sessions(KEY["project_key"]) == []
            with pytest.raises(recollect.SessionInTrash):
                await sessions.append(KEY, entries[4:])
            await store.restore_session(ID)
            await sessions.append(KEY, entries[4:])
            assert await sessions.load(KEY) == entries
            await store.erase_session(ID)
            assert await sessions.load(KEY) is None
            await sessions.append(KEY, entries[4:])  # as after delete()
            assert await sessions.load(KEY) == entries[4:]

    run(main)


def test_erased_content_is_in_no_entry(url, run):
    async def main():
        async with recollect.open_async(url) as store:
            sessions = RecollectSessionStore(store)
            await sessions.append(KEY, make_entries(4))
            assert "Message 0" in str(await sessions.list_session_summaries(KEY["project_key"]))
            session = await store.session(ID, create=False)
            [_, answer, *_] = await session.messages()
            await session.replace_message(answer.id, {"role": "assistant", "content": "Gone"}, erase=True)
            with pytest.raises(NotFound, match="was erased"):
                await sessions.load(KEY)
            with pytest.raises(NotFound, match="was erased"):
                await sessions.append(KEY, make_entries(2, start=4))
            assert await sessions.list_session_summaries(KEY["project_key"]) == []

    run(main)


def test_an_image_is_stored_once(url, run):
    async def main():
        async with recollect.open_async(url) as store:
            sessions = RecollectSessionStore(store)
            image = random.Random(3).randbytes(300_000)
            [entry] = make_entries(1)
            source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(image).decode()}
            entry["message"]["content"] = [{"type": "image", "source": source}, {"type": "text", "text": "Look"}]
            await sessions.append(KEY, [entry])
            assert await sessions.load(KEY) == [entry]
            records = await (await store.session(ID, create=False)).records.list("recollect.original")
            assert [len(record.value) < 1_000 for record in records] == [True]

    run(main)


def _refuse(*_):
    raise InvalidValue("A message is refused.")


def test_an_entry_that_cannot_be_a_message_is_stored(url, run, monkeypatch):
    async def main():
        async with recollect.open_async(url) as store:
            sessions = RecollectSessionStore(store)
            entries = make_entries(4)
            deep = "end"
            for _ in range(700):
                deep = [deep]
            entries[1]["message"]["content"] = [
                {"type": "tool_use", "id": "call-1", "name": "deep", "input": {"x": deep}}
            ]
            await sessions.append(KEY, entries[:1])
            await sessions.append(KEY, entries[1:2])
            await sessions.append(KEY, entries[2:])
            assert await sessions.load(KEY) == entries
            assert (await (await store.session(ID)).messages())[0].text == "Message 0"
            more = make_entries(4, start=4)
            with monkeypatch.context() as patch:
                patch.setattr(messages, "encode_draft", _refuse)
                await sessions.append(KEY, more[:2])
            with monkeypatch.context() as patch:
                patch.setattr(ClaudeCodeReader, "read_line", lambda *_: 1 / 0)
                await sessions.append(KEY, more[2:])
            assert await RecollectSessionStore(store).load(KEY) == entries + more

    run(main)


def test_the_original_is_a_file_of_lines(tmp_path):
    path = str(tmp_path / "conversations.db")

    async def main():
        async with RecollectSessionStore.from_url(path) as sessions:
            await sessions.append(KEY, make_entries(4))

    anyio.run(main)
    with recollect.open(path) as store:
        [(name, data)] = read_originals(store, ID)
        assert (name, data.count(b"\n")) == (f"{SESSION}.jsonl", 4)


def test_a_closed_store_is_not_opened_again(tmp_path, run):
    async def main():
        sessions = RecollectSessionStore.from_url(str(tmp_path / "conversations.db"))
        await sessions.aclose()
        with pytest.raises(recollect.StoreClosed):
            await sessions.load(KEY)

    run(main)
