"""import_sqlite(): the files of the SDK's SQLite sessions."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from agents import Agent, Runner, SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession
from agents.testing import ScriptedModel, assistant_message
from agents.usage import Usage
from openai_agents_items import ALL_ITEMS, answer, call, output, user

import recollect
from recollect.integrations.openai_agents import RecollectSession, SqliteImport, import_sqlite


def test_items_and_times_are_imported_once_and_new_ones_later(url, tmp_path):
    path = tmp_path / "sdk.db"

    async def main():
        one, two = SQLiteSession("one", path), SQLiteSession("two", path)
        await one.add_items(ALL_ITEMS)
        await two.add_items([user("x")])
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE agent_messages SET created_at = '2025-03-04 05:06:07' WHERE id = 1")
            connection.execute("UPDATE agent_sessions SET updated_at = '2025-01-01 00:00:00' WHERE session_id = 'two'")
        connection.close()
        async with recollect.open_async(url) as store:
            assert await import_sqlite(path, store) == SqliteImport({"two": 1, "one": len(ALL_ITEMS)}, [], [])
            session = RecollectSession(store, "one")
            assert await session.get_items() == ALL_ITEMS
            first = (await (await store.session("one")).messages(limit=1))[0]
            assert first.created_at.isoformat() == "2025-03-04T05:06:07+00:00"
            assert (await import_sqlite(path, store)).new_items == {"two": 0, "one": 0}
            await session.add_items([answer("in Recollect", "msg_r")])
            await session.pop_item()
            await session.pop_item()
            await one.add_items([user("in the SDK"), call(1), output(1)])
            assert (await import_sqlite(path, store)).new_items == {"two": 0, "one": 3}
            assert await session.get_items() == [*ALL_ITEMS[:-1], user("in the SDK"), call(1), output(1)]
            await session.clear_session()
            assert (await import_sqlite(path, store)).new_items == {"two": 0, "one": 0}
            assert await session.get_items() == []
        one.close()
        two.close()

    asyncio.run(main())


def test_branches_and_usage_of_an_advanced_session(url, tmp_path):
    path = tmp_path / "sdk.db"

    async def main():
        session = AdvancedSQLiteSession(session_id="s", db_path=path, create_tables=True)
        model = ScriptedModel([[assistant_message(text)] for text in ("one", "two", "other two", "third")])
        agent = Agent(name="A", model=model)

        async def ask(question, tokens):
            model.set_default_usage(Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1))
            await session.store_run_usage(await Runner.run(agent, question, session=session))

        await ask("1", 10)
        await ask("2", 20)
        await session.create_branch_from_turn(2, "second try")
        await ask("2 again", 30)
        await session.create_branch_from_turn(1, "from the start")
        await ask("1 again", 40)
        expected = {
            branch: await session.get_items(branch_id=branch) for branch in ("main", "second try", "from the start")
        }
        session.close()
        async with recollect.open_async(url) as store:
            assert (await import_sqlite(path, store)).new_items == {"s": 8}
            conversation = await store.session("s")
            assert await RecollectSession(store, "s").get_items() == expected["main"]
            histories = []
            for branch in await conversation.branches.list():
                await conversation.branches.switch(branch)
                histories.append(list(await conversation.history("openai-responses", repair=False)))
            assert histories == list(expected.values())
            stats = await conversation.stats()
            assert (stats.input_tokens, stats.output_tokens) == (100, 4)
            assert (await import_sqlite(path, store)).new_items == {"s": 0}

    asyncio.run(main())


def test_an_import_that_was_interrupted_continues(url, tmp_path, monkeypatch):
    path = tmp_path / "sdk.db"
    items = [user(str(number)) for number in range(25)]
    monkeypatch.setattr("recollect.integrations.openai_agents._IMPORT_BATCH", 10)

    async def main():
        session = SQLiteSession("s", path)
        await session.add_items(items)
        session.close()
        async with recollect.open_async(url) as store:
            append, calls = recollect.AsyncSession.append, []

            async def fail_second(self, *args, **options):
                calls.append(1)
                if len(calls) == 2:
                    raise ConnectionError
                return await append(self, *args, **options)

            monkeypatch.setattr(recollect.AsyncSession, "append", fail_second)
            with pytest.raises(ConnectionError):
                await import_sqlite(path, store)
            assert len(await RecollectSession(store, "s").get_items()) == 10
            await import_sqlite(path, store)
            assert await RecollectSession(store, "s").get_items() == items

    asyncio.run(main())


def test_what_cannot_be_imported_is_reported(url, tmp_path):
    path = tmp_path / "sdk.db"

    async def main():
        session = SQLiteSession("s", path)
        await session.add_items([user("a"), user("b"), user("c")])
        session.close()
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE agent_messages SET message_data = '{not JSON', created_at = 'yesterday' WHERE id = 2"
            )
            connection.execute("UPDATE agent_messages SET created_at = 'yesterday' WHERE id = 3")
            connection.execute("INSERT INTO agent_sessions (session_id) VALUES ('taken')")
            connection.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('taken', '{}')")
        connection.close()
        async with recollect.open_async(url) as store:
            await RecollectSession(store, "taken").add_items([user("of another program")])
            result = await import_sqlite(path, store)
            assert (result.new_items, result.conflicts, result.unreadable) == ({"s": 2}, ["taken"], [2])
            assert await RecollectSession(store, "s").get_items() == [user("a"), user("c")]
            assert await RecollectSession(store, "taken").get_items() == [user("of another program")]

    asyncio.run(main())


def test_other_tables_and_other_files(url, tmp_path):
    async def main():
        session = SQLiteSession("s", tmp_path / "sdk.db", sessions_table="my_sessions", messages_table="my_messages")
        await session.add_items([user("a")])
        session.close()
        (tmp_path / "text.txt").write_text("not a database, but a text that is long enough " * 30)
        async with recollect.open_async(url) as store:
            options = {"sessions_table": "my_sessions", "messages_table": "my_messages"}
            assert (await import_sqlite(tmp_path / "sdk.db", store, **options)).new_items == {"s": 1}
            for name in ("sdk.db", "text.txt", "missing.db"):
                with pytest.raises(recollect.InvalidValue, match="path must be"):
                    await import_sqlite(tmp_path / name, store)
        assert not (tmp_path / "missing.db").exists()

    asyncio.run(main())
