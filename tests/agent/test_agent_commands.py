"""The slash commands, on a conversation, as every surface runs them."""

from __future__ import annotations

import os
import stat

import pytest
from scripted import Scripted, say

from recollect.agent import commands, session_commands
from recollect.model.title import file_name
from recollect.testing.talk import answers, asks, assistant

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
def talking(agent, demo):
    """A talk with three turns in a session."""

    class Talking:
        def __init__(self, session="cli:a", **options):
            self._session, self._options = session, options

        async def __aenter__(self):
            self._agent = agent(demo, **self._options)
            await self._agent.__aenter__()
            talk = await self._agent.talk(self._session)
            for said in ("say one", "say two", "say three"):
                await talk.ask(said)
            return talk

        async def __aexit__(self, *_):
            await self._agent.close()

    return Talking


def texts(messages):
    return [m.text for m in messages]


def test_there_is_one_set_and_it_is_complete():
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
def test_what_is_a_command(line, expected):
    assert commands.is_command(line) is expected


async def test_an_unknown_command_says_what_was_meant(talking):
    async with talking() as talk:
        outcome = await commands.run(talk, "/renmae x")
        assert outcome.failed
        assert "/rename" in outcome.text


async def test_new_begins_another_and_says_how_to_get_back(talking):
    async with talking() as talk:
        old = talk.session.id
        outcome = await commands.run(talk, "/new Plans")
        assert outcome.action == "moved"
        assert talk.session.id != old
        assert talk.session.title == "Plans"
        assert old in outcome.text
        assert (await talk.ask("How many messages are there?")).text.startswith("I can see 1 messages")
        back = await commands.run(talk, f"/resume {old}")
        assert talk.session.id == old
        assert not back.failed


async def test_new_leaves_no_empty_session_behind(talking):
    async with talking() as talk:
        await commands.run(talk, "/new")
        await commands.run(talk, "/new")
        await commands.run(talk, "/resume cli:a")
        assert [found.id for found in await talk.session.store.list_sessions()] == ["cli:a"]


async def test_a_session_that_somebody_named_stays_though_nothing_was_said(talking):
    async with talking() as talk:
        await talk.move(await talk.session.store.session("cli:b"))
        assert "cli:b" in (await commands.run(talk, "/new")).text
        assert await talk.session.store.get_session("cli:b") is not None


async def test_what_was_rewound_to_its_beginning_is_not_empty(talking):
    async with talking() as talk:
        store = talk.session.store
        empty, rewound = await store.create_session(), await store.create_session()
        await rewound.append({"role": "user", "content": "an answer never came, so it has no title"})
        await rewound.rewind(0)
        assert not await session_commands.kept(empty)
        assert await session_commands.kept(rewound)
        assert await store.get_session(empty.id) is None
        assert await store.get_session(rewound.id) is not None


async def test_clear_keeps_the_name_of_the_session_and_the_old_talk(talking):
    async with talking() as talk:
        outcome = await commands.run(talk, "/clear")
        assert talk.session.id == "cli:a"
        assert await talk.session.messages() == []
        past = outcome.text.partition("/resume ")[2].strip("`")
        await talk.ask("say fresh")
        assert texts(await talk.session.messages()) == ["say fresh", "fresh"]
        await commands.run(talk, f"/resume {past}")
        assert texts(await talk.session.messages())[:2] == ["say one", "one"]
        assert "nothing to clear" in (await commands.run(await talk.agent.talk(), "/clear")).text


async def test_clear_of_a_talk_without_a_name_of_its_own(talking):
    async with talking(None) as talk:
        old = talk.session.id
        assert old in (await commands.run(talk, "/clear")).text
        assert talk.session.id != old


async def test_history(talking):
    async with talking() as talk:
        assert "say one" in (await commands.run(talk, "/history")).text
        short = (await commands.run(talk, "/history 2")).text
        assert "say three" in short
        assert "say one" not in short
        assert (await commands.run(talk, "/history many")).failed


@pytest.mark.parametrize("name", ["Titled", "cli:b", "cli:b"[:5]])
async def test_resume_by_id_title_and_prefix(talking, name):
    async with talking() as talk:
        await talk.session.store.session("cli:b", title="Titled")
        assert not (await commands.run(talk, f"/resume {name}")).failed
        assert talk.session.id == "cli:b"
        assert (await talk.session.store.last_session()).id == "cli:b"


async def test_resume_of_nothing_lets_the_person_choose(talking):
    async with talking() as talk:
        assert (await commands.run(talk, "/resume")).action == "pick"
        assert (await commands.run(talk, "/resume nowhere")).failed
        assert talk.session.id == "cli:a"


async def test_what_is_not_there_is_told_in_words_of_the_talk(talking):
    async with talking() as talk:
        told = [await commands.run(talk, line) for line in ("/resume nowhere", "/fork 1.99", "/rewind 1.99")]
        await commands.run(talk, "/new")
        told.append(await commands.run(talk, "/compact"))
        for outcome in told:
            assert outcome.failed, outcome.text
            assert "store." not in outcome.text, outcome.text
            assert "session." not in outcome.text, outcome.text
            assert "=" not in outcome.text, outcome.text


async def test_rename_pin_archive(talking):
    async with talking() as talk:
        await commands.run(talk, "/rename  A better title ")
        assert talk.session.title == "A better title"
        assert (await commands.run(talk, "/rename")).failed
        await commands.run(talk, "/pin")
        await commands.run(talk, "/archive")
        assert talk.session.pinned_at
        assert talk.session.archived_at
        await commands.run(talk, "/pin")
        await commands.run(talk, "/archive")
        assert talk.session.pinned_at is None
        assert talk.session.archived_at is None


async def test_fork(talking):
    async with talking() as talk:
        outcome = await commands.run(talk, "/fork 1.2")
        assert "cli:a" in outcome.text
        await talk.ask("say other")
        assert texts(await talk.session.messages()) == ["say one", "one", "say other", "other"]
        assert talk.session.parent == "cli:a"
        await commands.run(talk, "/resume cli:a")
        assert len(await talk.session.messages()) == 6
        assert (await commands.run(talk, "/fork 9.9")).failed


async def test_rewind_gives_back_what_was_said_and_keeps_what_followed(talking):
    async with talking() as talk:
        outcome = await commands.run(talk, "/rewind")
        assert (outcome.action, outcome.data) == ("edit", "say three")
        assert len(await talk.session.messages()) == 4
        outcome = await commands.run(talk, "/rewind 2")
        assert outcome.data == "say one"
        assert await talk.session.messages() == []
        await talk.ask("say new")
        assert texts(await talk.session.messages()) == ["say new", "new"]
        await talk.session.switch(1)
        assert len(await talk.session.messages()) == 6
        assert (await commands.run(talk, "/rewind 1.2")).action == "moved"
        assert texts(await talk.session.messages()) == ["say one", "one"]
        for wrong in ("/rewind 99", "/rewind 0", "/rewind x", "/rewind 9.9"):
            assert (await commands.run(talk, wrong)).failed


async def test_delete_goes_to_the_trash_and_says_how_to_undo_it(talking):
    async with talking() as talk:
        outcome = await commands.run(talk, "/delete")
        assert "recollect sessions restore cli:a" in outcome.text
        assert talk.session.id != "cli:a"
        store = talk.session.store
        assert await store.get_session("cli:a") is None
        assert len(await (await store.restore_session("cli:a")).messages()) == 6
        assert (await talk.ask("say on")).text == "on"


async def test_status_and_model(talking):
    async with talking() as talk:
        shown = (await commands.run(talk, "/status")).text
        for word in ("cli:a", "demo", "say one", "recollect chat --session a", talk.session.store.path):
            assert word in shown
        assert "| messages | 6 |" in shown
        await talk.session.append([asks("one"), answers("one"), assistant("done")])
        assert "| messages | 7 |" in (await commands.run(talk, "/status")).text
        assert "demo" in (await commands.run(talk, "/model")).text
        assert (await commands.run(talk, "/model nobody:nothing")).failed
        assert talk.model.name == "demo"
        assert not (await commands.run(talk, "/model demo")).failed


async def test_help_names_every_command_and_quit_quits(talking):
    async with talking() as talk:
        shown = (await commands.run(talk, "/help")).text
        assert [name for name in NAMES if f"/{name}" not in shown] == []
        assert (await commands.run(talk, "/quit")).action == "quit"
        assert (await commands.run(talk, "/HELP")).text == shown


async def test_what_must_wait_while_an_answer_is_in_progress(agent):
    import asyncio

    async with agent(Scripted([30], say("x"))) as there:
        talk = await there.talk("cli:a")
        run = asyncio.create_task(talk.ask("Go"))
        while not talk.busy:
            await asyncio.sleep(0.01)
        assert (await commands.run(talk, "/new")).failed
        assert not (await commands.run(talk, "/status")).failed
        talk.stop()
        await run


async def test_search(talking):
    async with talking() as talk:
        assert "cli:a" in (await commands.run(talk, "/search three")).text
        assert "Nothing" in (await commands.run(talk, "/search unheard-of")).text
        assert (await commands.run(talk, "/search")).failed


async def test_compact(talking):
    async with talking() as talk:
        await talk.ask("say four")
        assert not (await commands.run(talk, "/compact")).failed
        assert len(await talk.session.compactions()) == 1


async def test_export(talking, tmp_path):
    umask = os.umask(0o022)
    try:
        async with talking() as talk:
            for format in ("md", "json", "jsonl", "html"):
                path = tmp_path / f"out.{format}"
                assert not (await commands.run(talk, f"/export {format} {path}")).failed
                assert os.path.getsize(path)
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            there = tmp_path / "out.md"
            before = there.read_bytes()
            outcome = await commands.run(talk, f"/export md {there}")
            assert outcome.failed
            assert "already" in outcome.text
            assert there.read_bytes() == before
    finally:
        os.umask(umask)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("pdf", "'pdf' is not a format: use md, json, jsonl, html."),
        ("notes", "'notes' is not a format"),
        ("out.pdf", "The format of 'out.pdf' is not known. Name one of md, json, jsonl, html"),
        ("no/such/folder/out.md", "cannot be written: No such file"),
    ],
)
async def test_an_export_of_an_unknown_format_is_refused(talking, tmp_path, monkeypatch, argument, reason):
    monkeypatch.chdir(tmp_path)
    async with talking() as talk:
        outcome = await commands.run(talk, f"/export {argument}")
    assert outcome.failed
    assert reason in outcome.text
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("talks.db")] == []


@pytest.mark.parametrize(
    ("argument", "file", "begins"),
    [
        ("notes.json", "notes.json", "{"),
        ("JSON", "say one.json", "{"),
        ("my notes.html", "my notes.html", "<!doctype html>"),
        ("./notes", "notes", "#"),
        ("md notes", "notes", "#"),
        ("md notes.txt", "notes.txt", "#"),
    ],
)
async def test_the_format_of_an_export_comes_from_its_name(talking, tmp_path, monkeypatch, argument, file, begins):
    monkeypatch.chdir(tmp_path)
    async with talking() as talk:
        outcome = await commands.run(talk, f"/export {argument}")
    assert not outcome.failed, outcome.text
    assert (tmp_path / file).read_text().lower().startswith(begins)


async def test_an_export_to_a_home_that_is_not_known_is_refused(talking):
    async with talking() as talk:
        said = await commands.run(talk, "/export md ~nobody-is-called-so/out.md")
        assert said.failed
        assert "home folder that is not known" in said.text


async def test_an_export_is_called_as_the_conversation_is(talking, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with talking() as talk:
        for title, file in (("Coats: ../../wet?", "Coats wet.md"), ("…", None)):
            await talk.session.update(title=title)
            said = (await commands.run(talk, "/export")).text
            name = file or file_name(talk.session.id) + ".md"
            assert str(tmp_path / name) in said
            assert (tmp_path / name).stat().st_size
