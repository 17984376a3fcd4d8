"""The slash commands that all channels share."""

from __future__ import annotations

import os
import stat

import pytest
from scripted import Scripted, reply

from recollect.agent import commands
from recollect.agent.last_session import read_last_session
from recollect.model.title import file_name
from recollect_conformance.examples import assistant, tool_call_message, tool_result_message

NAMES = [
    "new",
    "clear",
    "history",
    "resume",
    "rename",
    "fork",
    "rewind",
    "compact",
    "search",
    "pin",
    "archive",
    "delete",
    "export",
    "model",
    "approve",
    "approvals",
    "status",
    "help",
    "quit",
]


@pytest.fixture
def open_conversation(make_agent, demo):
    """Return a context manager that opens a conversation with three turns."""

    class ConversationWithThreeTurns:
        def __init__(self, session="cli:a", **options):
            self._session, self._options = session, options

        async def __aenter__(self):
            self._agent = make_agent(demo, **self._options)
            await self._agent.__aenter__()
            conversation = await self._agent.conversation(self._session)
            for message in ("say one", "say two", "say three"):
                await conversation.ask(message)
            return conversation

        async def __aexit__(self, *_):
            await self._agent.close()

    return ConversationWithThreeTurns


def texts(messages):
    return [m.text for m in messages]


def test_the_set_of_commands_is_complete():
    assert list(commands.COMMANDS) == NAMES
    for command in commands.COMMANDS.values():
        assert command.help
        assert command.usage.startswith(f"/{command.name}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/help", True), ("  /help", True), ("/rename A title", True), ("/nonsense", True), ("help", False), ("", False),
        ("/", False), ("/usr/bin/python is a path", False), ("/ help", False), ("/help\nand more", False), ("//", False),
        ("/1", False),
    ],
)  # fmt: skip
def test_is_command(line, expected):
    assert commands.is_command(line) is expected


async def test_an_unknown_command_suggests_a_similar_one(open_conversation):
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, "/renmae x")
        assert outcome.failed
        assert "/rename" in outcome.text


async def test_new_starts_a_session_and_shows_how_to_resume_the_old_one(open_conversation):
    async with open_conversation() as conversation:
        old = conversation.session.id
        outcome = await commands.run(conversation, "/new Plans")
        assert outcome.action == "moved"
        assert conversation.session.id != old
        assert conversation.session.title == "Plans"
        assert old in outcome.text
        assert (await conversation.ask("How many messages are there?")).text.startswith("I can see 1 messages")
        back = await commands.run(conversation, f"/resume {old}")
        assert conversation.session.id == old
        assert not back.failed


async def test_new_leaves_no_empty_session_behind(open_conversation):
    async with open_conversation() as conversation:
        await commands.run(conversation, "/new")
        await commands.run(conversation, "/new")
        await commands.run(conversation, "/resume cli:a")
        assert [session.id for session in await conversation.session.store.list_sessions()] == ["cli:a"]


async def test_new_keeps_an_empty_session_with_a_chosen_id(open_conversation):
    async with open_conversation() as conversation:
        await conversation.move(await conversation.session.store.session("cli:b"))
        assert "cli:b" in (await commands.run(conversation, "/new")).text
        assert await conversation.session.store.get_session("cli:b") is not None


async def test_a_session_rewound_to_its_start_is_not_empty(open_conversation):
    async with open_conversation() as conversation:
        store = conversation.session.store
        empty_session, rewound_session = await store.session(), await store.session()
        await rewound_session.append({"role": "user", "content": "an answer never came, so it has no title"})
        await rewound_session.rewind(0)
        assert not await commands.keep_unless_empty(empty_session)
        assert await commands.keep_unless_empty(rewound_session)
        assert await store.get_session(empty_session.id) is None
        assert await store.get_session(rewound_session.id) is not None


async def test_clear_keeps_the_session_id_and_the_old_messages(open_conversation):
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, "/clear")
        assert conversation.session.id == "cli:a"
        assert await conversation.session.messages() == []
        old_id = outcome.text.partition("/resume ")[2].strip("`")
        await conversation.ask("say fresh")
        assert texts(await conversation.session.messages()) == ["say fresh", "fresh"]
        await commands.run(conversation, f"/resume {old_id}")
        assert texts(await conversation.session.messages())[:2] == ["say one", "one"]
        assert "nothing to clear" in (await commands.run(await conversation.agent.conversation(), "/clear")).text


async def test_clear_of_a_session_with_a_generated_id(open_conversation):
    async with open_conversation(None) as conversation:
        old = conversation.session.id
        assert old in (await commands.run(conversation, "/clear")).text
        assert conversation.session.id != old


async def test_history(open_conversation):
    async with open_conversation() as conversation:
        assert "say one" in (await commands.run(conversation, "/history")).text
        short = (await commands.run(conversation, "/history 2")).text
        assert "say three" in short
        assert "say one" not in short
        assert (await commands.run(conversation, "/history many")).failed


@pytest.mark.parametrize("name", ["Titled", "cli:b", "cli:b"[:5]])
async def test_resume_by_id_title_and_prefix(open_conversation, name):
    async with open_conversation() as conversation:
        await conversation.session.store.session("cli:b", title="Titled")
        assert not (await commands.run(conversation, f"/resume {name}")).failed
        assert conversation.session.id == "cli:b"
        assert await read_last_session(conversation.session.store) == conversation.session


async def test_resume_without_a_session_opens_the_picker(open_conversation):
    async with open_conversation() as conversation:
        assert (await commands.run(conversation, "/resume")).action == "pick"
        assert (await commands.run(conversation, "/resume nowhere")).failed
        assert conversation.session.id == "cli:a"


async def test_command_errors_do_not_mention_the_python_api(open_conversation):
    async with open_conversation() as conversation:
        outcomes = [
            await commands.run(conversation, line) for line in ("/resume nowhere", "/fork 1.99", "/rewind 1.99")
        ]
        await commands.run(conversation, "/new")
        outcomes.append(await commands.run(conversation, "/compact"))
        for outcome in outcomes:
            assert outcome.failed, outcome.text
            assert "store." not in outcome.text, outcome.text
            assert "session." not in outcome.text, outcome.text
            assert "=" not in outcome.text, outcome.text


async def test_rename_pin_archive(open_conversation):
    async with open_conversation() as conversation:
        await commands.run(conversation, "/rename  A better title ")
        assert conversation.session.title == "A better title"
        assert (await commands.run(conversation, "/rename")).failed
        await commands.run(conversation, "/pin")
        await commands.run(conversation, "/archive")
        assert conversation.session.pinned_at
        assert conversation.session.archived_at
        await commands.run(conversation, "/pin")
        await commands.run(conversation, "/archive")
        assert conversation.session.pinned_at is None
        assert conversation.session.archived_at is None


async def test_fork(open_conversation):
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, "/fork 1.2")
        assert "cli:a" in outcome.text
        await conversation.ask("say other")
        assert texts(await conversation.session.messages()) == ["say one", "one", "say other", "other"]
        assert conversation.session.parent == "cli:a"
        await commands.run(conversation, "/resume cli:a")
        assert len(await conversation.session.messages()) == 6
        assert (await commands.run(conversation, "/fork 9.9")).failed


async def test_rewind_returns_the_message_and_keeps_the_later_ones(open_conversation):
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, "/rewind")
        assert (outcome.action, outcome.data) == ("edit", "say three")
        assert len(await conversation.session.messages()) == 4
        outcome = await commands.run(conversation, "/rewind 2")
        assert outcome.data == "say one"
        assert await conversation.session.messages() == []
        await conversation.ask("say new")
        assert texts(await conversation.session.messages()) == ["say new", "new"]
        await conversation.session.branches.switch(1)
        assert len(await conversation.session.messages()) == 6
        assert (await commands.run(conversation, "/rewind 1.2")).action == "moved"
        assert texts(await conversation.session.messages()) == ["say one", "one"]
        for line in ("/rewind 99", "/rewind 0", "/rewind x", "/rewind 9.9"):
            assert (await commands.run(conversation, line)).failed
        assert "a message id such as 1.4, got 'x'" in (await commands.run(conversation, "/rewind x")).text
        await conversation.session.rewind(0)
        assert "nothing to rewind" in (await commands.run(conversation, "/rewind")).text


async def test_resuming_an_ambiguous_prefix_lists_conversations(open_conversation):
    async with open_conversation() as conversation:
        for name in ("cli:same1", "cli:same2"):
            await conversation.session.store.session(name)
        outcome = await commands.run(conversation, "/resume cli:same")
        assert outcome.failed
        assert "matches 2 conversations" in outcome.text


async def test_delete_moves_to_the_trash_and_shows_how_to_restore(open_conversation):
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, "/delete")
        assert "recollect sessions restore cli:a" in outcome.text
        assert conversation.session.id != "cli:a"
        store = conversation.session.store
        assert await store.get_session("cli:a") is None
        assert len(await (await store.restore_session("cli:a")).messages()) == 6
        assert (await conversation.ask("say on")).text == "on"


async def test_status_and_model(open_conversation):
    async with open_conversation() as conversation:
        status = (await commands.run(conversation, "/status")).text
        for word in ("cli:a", "demo", "say one", "recollect chat --session a", conversation.session.store.path):
            assert word in status
        assert "| messages | 6 |" in status
        await conversation.session.append([tool_call_message("one"), tool_result_message("one"), assistant("done")])
        assert "| messages | 7 |" in (await commands.run(conversation, "/status")).text
        assert "demo" in (await commands.run(conversation, "/model")).text
        assert (await commands.run(conversation, "/model nobody:nothing")).failed
        assert conversation.model.name == "demo"
        assert not (await commands.run(conversation, "/model demo")).failed


async def test_help_lists_every_command_and_quit_quits(open_conversation):
    async with open_conversation() as conversation:
        help_text = (await commands.run(conversation, "/help")).text
        assert [name for name in NAMES if f"/{name}" not in help_text] == []
        assert (await commands.run(conversation, "/quit")).action == "quit"
        assert (await commands.run(conversation, "/HELP")).text == help_text


async def test_commands_that_fail_during_an_answer(make_agent):
    import asyncio

    async with make_agent(Scripted([30], reply("x"))) as agent:
        conversation = await agent.conversation("cli:a")
        run = asyncio.create_task(conversation.ask("Go"))
        while not conversation.busy:
            await asyncio.sleep(0.01)
        assert (await commands.run(conversation, "/new")).failed
        assert not (await commands.run(conversation, "/status")).failed
        conversation.stop()
        await run


async def test_search(open_conversation):
    async with open_conversation() as conversation:
        assert "cli:a" in (await commands.run(conversation, "/search three")).text
        assert "No messages match" in (await commands.run(conversation, "/search unheard-of")).text
        assert (await commands.run(conversation, "/search")).failed


async def test_compact(open_conversation):
    async with open_conversation() as conversation:
        await conversation.ask("say four")
        assert not (await commands.run(conversation, "/compact")).failed
        assert len(await conversation.session.compactions.list()) == 1


async def test_export(open_conversation, tmp_path):
    umask = os.umask(0o022)
    try:
        async with open_conversation() as conversation:
            for format in ("md", "json", "jsonl", "html"):
                path = tmp_path / f"out.{format}"
                assert not (await commands.run(conversation, f"/export {format} {path}")).failed
                assert os.path.getsize(path)
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            existing_file = tmp_path / "out.md"
            content = existing_file.read_bytes()
            outcome = await commands.run(conversation, f"/export md {existing_file}")
            assert outcome.failed
            assert "already" in outcome.text
            assert existing_file.read_bytes() == content
    finally:
        os.umask(umask)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("pdf", "FORMAT must be one of md, json, jsonl, html, got 'pdf'."),
        ("notes", "FORMAT must be one of md, json, jsonl, html, got 'notes'."),
        ("out.pdf", "The format of 'out.pdf' is unknown. Use one of md, json, jsonl, html"),
        ("no/such/folder/out.md", "cannot be written: No such file"),
    ],
)
async def test_an_export_in_an_unknown_format_fails(open_conversation, tmp_path, monkeypatch, argument, reason):
    monkeypatch.chdir(tmp_path)
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, f"/export {argument}")
    assert outcome.failed
    assert reason in outcome.text
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("store.db")] == []


@pytest.mark.parametrize(
    ("argument", "file", "start"),
    [
        ("notes.json", "notes.json", "{"),
        ("JSON", "say one.json", "{"),
        ("my notes.html", "my notes.html", "<!doctype html>"),
        ("./notes", "notes", "#"),
        ("md notes", "notes", "#"),
        ("md notes.txt", "notes.txt", "#"),
    ],
)
async def test_export_infers_the_format_from_the_file_name(
    open_conversation, tmp_path, monkeypatch, argument, file, start
):
    monkeypatch.chdir(tmp_path)
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, f"/export {argument}")
    assert not outcome.failed, outcome.text
    assert (tmp_path / file).read_text().lower().startswith(start)


async def test_an_export_to_an_unknown_home_folder_fails(open_conversation):
    async with open_conversation() as conversation:
        outcome = await commands.run(conversation, "/export md ~nobody-is-called-so/out.md")
        assert outcome.failed
        assert "The home folder ~nobody-is-called-so of " in outcome.text


async def test_an_export_is_named_after_the_conversation(open_conversation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_conversation() as conversation:
        for title, file in (("Coats: ../../wet?", "Coats wet.md"), ("…", None)):
            await conversation.session.update(title=title)
            text = (await commands.run(conversation, "/export")).text
            name = file or file_name(conversation.session.id) + ".md"
            assert str(tmp_path / name) in text
            assert (tmp_path / name).stat().st_size
