"""Slash commands in sessions with hostile ids: their replies are Markdown without control characters."""

from __future__ import annotations

import re

import pytest

from recollect.agent import commands

HOSTILE_IDS = (
    "a\r\nX: y", "\x1b[31mred", "a\0b", "../../etc/passwd", "\u202egnp.exe", "`code` ``more``", "`", " padded ", "a  b", "|",
    "a\n# heading", "--help", "x" * 1_024, "\U0001f600" * 256, "\0" * 1_024,
)  # fmt: skip


def check(outcome, *, failed=False):
    assert outcome.failed is failed, outcome
    assert not [char for char in outcome.text if char != "\n" and not char.isprintable()]
    return outcome.text


def code_spans(text):
    """Return the content of the inline code of a text, as CommonMark reads it."""
    spans = []
    for match in re.finditer(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", text, re.DOTALL):
        span = match[2]
        strips = span.startswith(" ") and span.endswith(" ") and span.strip()
        spans.append(span[1:-1] if strips else span)
    return spans


@pytest.mark.parametrize("id", HOSTILE_IDS, ids=range(len(HOSTILE_IDS)))
async def test_commands_in_a_session_with_a_hostile_id(make_agent, demo, id, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with make_agent(demo) as agent:
        await (await agent.store.session(id)).append({"role": "user", "content": "before"})
        await agent.store.session("another", title="Another")
        conversation = await agent.conversation(id)
        await conversation.ask("say one")
        await conversation.session.update(title=None)
        for line in (
            "/status",
            "/history",
            "/pin",
            "/search one",
            "/export md",
            "/export html",
            "/compact",
            "/approvals",
        ):
            check(await commands.run(conversation, line))
        status = code_spans(check(await commands.run(conversation, "/status")))
        shown_id = commands.humanize.escape_unprintable(id)
        assert shown_id in status
        assert commands.resume_hint(conversation.session) in status
        names = sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".md", ".html"))
        assert len(names) == 2
        assert all(
            name.isprintable() and not name.startswith((".", "-")) and len(name.encode()) < 255 for name in names
        )
        text = check(await commands.run(conversation, "/fork"))
        assert shown_id in code_spans(text)
        check(await commands.run(conversation, "/new"))
        outcome = await commands.resume(conversation, id)
        assert shown_id in code_spans(check(outcome))
        assert conversation.session.id == id
        text = check(await commands.run(conversation, "/delete"))
        assert await agent.store.get_session(id) is None
        assert shown_id in code_spans(text)
        assert commands.humanize.restore_command(id) in code_spans(text)
        text = check(await commands.resume(conversation, id), failed=True)
        assert code_spans(text) == [shown_id, commands.humanize.restore_command(id)]


@pytest.mark.parametrize("id", HOSTILE_IDS, ids=range(len(HOSTILE_IDS)))
async def test_a_session_with_a_hostile_id_and_a_channel_is_cleared(make_agent, demo, id):
    async with make_agent(demo) as agent:
        session = await agent.store.session(id, channel="custom")
        conversation = await agent.conversation(session)
        await conversation.ask("say one")
        await session.refresh()
        await session.update(title=None)
        text = check(await commands.run(conversation, "/clear"))
        assert commands.humanize.escape_unprintable(id) in code_spans(text)
        past = next(entry for entry in await agent.store.list_sessions() if entry.id != id)
        assert past.parent == id
        assert past.title.isprintable()


@pytest.mark.parametrize("id", ["cli:default", "cli:-x", "-x", "cli: a", "a'b", "plain:1", "a\nb", "a\0b", "cli:a\0b"])
async def test_the_command_that_resumes_a_session(make_agent, demo, id):
    async with make_agent(demo) as agent:
        hint = commands.resume_hint(await agent.store.session(id))
        expected = {
            "cli:default": "recollect chat --session", "cli:-x": "recollect chat --session=-x",
            "-x": "recollect chat --resume=-x", "cli: a": "recollect chat --session ' a'",
            "a'b": "recollect chat -r 'a'\\''b'", "plain:1": "recollect chat -r plain:1",
            "a\nb": "recollect chat -r $'a\\012b'", "a\0b": "recollect chat -r", "cli:a\0b": "recollect chat -r",
        }  # fmt: skip
        assert hint == expected[id]
