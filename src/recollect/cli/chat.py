"""`recollect chat`: a talk with an agent that is kept, in this terminal or through a pipe."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from recollect.cli import extra, place
from recollect.cli.ending import INTERRUPTED
from recollect.cli.group import Command
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent, Conversation
    from recollect.channels.terminal.ahead import TypeAhead
    from recollect.store_async import AsyncSession, AsyncStore

_PICK = "\0pick"
_SESSION = "default"


class Choice(NamedTuple):
    """What was asked for on the command line."""

    last: bool
    resume: str | None
    session: str | None
    fork: bool
    name: str | None
    model: str | None
    context: str | None
    as_json: bool


@click.command(cls=Command)
@click.option("-c", "--continue", "last", is_flag=True, help="Go on with the last conversation.")
@click.option(
    "-r", "--resume", is_flag=False, flag_value=_PICK, metavar="[SESSION]",
    help="Go on with a conversation: its id, the beginning of its id, or its title. Without one, choose from a list.",
)  # fmt: skip
@click.option(
    "--session", is_flag=False, flag_value=_SESSION, metavar="[NAME]",
    help="Talk in the session cli:NAME, made where there is none; cli:default without a name.",
)  # fmt: skip
@click.option("--fork", is_flag=True, help="Go on in a copy of the conversation; the original stays as it is.")
@click.option("-n", "--name", help="The conversation's title.")
@click.option("-m", "--model", help="The model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
@click.option("--base-url", help="A server that speaks OpenAI's protocol, such as a local one.")
@click.option("--ephemeral", is_flag=True, help="Keep nothing: the conversation is gone when you leave.")
@click.option("--context", metavar="SESSION", help="Begin with what was said there; search:WORDS searches for it.")
@click.option("--compact", is_flag=True, help="Sum up what is old for the model when its window is nearly full.")
@click.option("--json", "as_json", is_flag=True, help="Print what happens as JSON, one object on a line.")
def chat(base_url: str | None, ephemeral: bool, compact: bool, **chosen: Any) -> None:
    """Talk to an agent. Everything that is said is kept.

    Through a pipe it answers once: echo question | recollect chat -c
    """
    choice = Choice(**chosen)
    _check(choice, ephemeral=ephemeral)
    from recollect.channels.terminal import ahead  # noqa: PLC0415

    at_terminal = ahead.interactive() and not choice.as_json
    with ahead.kept() if at_terminal else contextlib.nullcontext() as typed:
        status = _chat(choice, typed, base_url=base_url, ephemeral=ephemeral, compact=compact)
    click.get_current_context().exit(status)


def _chat(choice: Choice, typed: TypeAhead | None, *, base_url: str | None, ephemeral: bool, compact: bool) -> int:
    import asyncio  # noqa: PLC0415  it costs 40 ms that `recollect --help` need not pay

    from recollect.agent import configured  # noqa: PLC0415

    config = place.settings()
    if not ephemeral:
        place.retain(config)
    agent = configured(
        ":memory:" if ephemeral else place.named(),
        model=choice.model,
        base_url=base_url,
        config=config,
        compact=compact,
        name="chat",
    )
    try:
        return asyncio.run(_run(agent, choice, typed, ephemeral=ephemeral))
    except KeyboardInterrupt:
        return INTERRUPTED
    except ImportError as error:
        raise extra.refusal("chat", error.name) from error


def _check(choice: Choice, *, ephemeral: bool) -> None:
    ways = [choice.last, choice.resume is not None, choice.session is not None]
    if sum(ways) > 1:
        raise click.UsageError("Give one of --continue, --resume and --session.")
    if ephemeral and (any(ways) or choice.context):
        raise click.UsageError("--ephemeral keeps nothing and knows nothing: leave the other options out.")
    if choice.fork and not any(ways):
        raise click.UsageError("--fork needs --continue, --resume or --session: what is to be copied?")


async def _run(agent: Agent, choice: Choice, typed: TypeAhead | None, *, ephemeral: bool) -> int:
    from recollect.agent.models import talkable  # noqa: PLC0415
    from recollect.agent.session_commands import kept  # noqa: PLC0415

    async with agent:
        session = await _session(agent.store, choice, typed)
        if session is None:
            return 0
        fresh = session.message_count == 0
        try:
            talk = await agent.talk(session, context=choice.context, model=choice.model or talkable(session.model))
        except BaseException:
            if fresh:  # a model that can not be asked, or a context that is not there: nothing was said
                await kept(session)
            raise
        if choice.name:
            await session.update(title=choice.name)
        if choice.model or session.model is None:
            await session.update(model=talk.model.name)
        await agent.store.set_last_session(session.id)
        if typed is not None:
            typed.hand_over()
            await _at_terminal(talk, ephemeral=ephemeral)
            return 0
        return await _through_pipe(talk, choice, fresh=fresh)


async def _session(store: AsyncStore, choice: Choice, typed: TypeAhead | None) -> AsyncSession | None:
    """Open the session that is meant; None where the person chose none."""
    if choice.session is not None:
        name = choice.session if ":" in choice.session else f"cli:{choice.session}"
        session = await store.session(name)
    elif choice.last:
        session = await store.last_session()
        if session is None:
            session = await store.create_session()
    elif choice.resume is not None:
        session = await _resumed(store, choice.resume, typed)
    else:
        return await store.create_session()
    if session is None:
        return None
    session = await store.session(session.id, create=False)
    if choice.fork:
        return await session.fork(title=f"{session.title} (fork)" if session.title else None)
    return session


async def _resumed(store: AsyncStore, name: str, typed: TypeAhead | None) -> AsyncSession | None:
    if name != _PICK:
        return await store.find_session(name)
    if typed is None:
        raise InvalidValue("Choosing needs a terminal. Name the conversation: recollect chat -r ID")
    from recollect.channels.terminal.picker import Picker  # noqa: PLC0415

    typed.hand_over()
    chosen = await Picker(store).run()
    return None if chosen is None else await store.get_session(chosen)


async def _at_terminal(talk: Conversation, *, ephemeral: bool) -> None:
    from recollect.agent.session_commands import kept  # noqa: PLC0415
    from recollect.channels.terminal.entry import Entry  # noqa: PLC0415
    from recollect.channels.terminal.screen import Screen  # noqa: PLC0415
    from recollect.channels.terminal.talk import TerminalTalk, goodbye  # noqa: PLC0415

    screen = Screen()
    there = TerminalTalk(talk, screen, Entry("Enter sends \u00b7 Alt-Enter new line \u00b7 /help \u00b7 Ctrl-D leaves"))
    try:
        await there.run()
    finally:
        await there.leave()
        if ephemeral:
            screen.notice("Nothing of this conversation was kept.")
        elif await kept(talk.session):
            screen.notice(goodbye(talk))


async def _through_pipe(talk: Conversation, choice: Choice, *, fresh: bool) -> int:
    from recollect.agent import Notice  # noqa: PLC0415
    from recollect.agent.session_commands import kept  # noqa: PLC0415
    from recollect.channels.terminal.busy import since  # noqa: PLC0415
    from recollect.channels.terminal.plain import JsonScreen, PlainScreen  # noqa: PLC0415
    from recollect.channels.terminal.talk import once, rescued  # noqa: PLC0415

    shows = JsonScreen() if choice.as_json else PlainScreen()
    for other in await talk.session.present():
        shows.event(Notice(text=since(other), level="warning"))
    status = 0
    for said in _inputs():
        status = await once(talk, said, shows)
    if not await talk.close():
        click.echo(rescued(talk), err=True)
    if fresh:
        await kept(talk.session)
    return status


def _inputs() -> list[str]:
    """Read what is to be said: a pipe is one message, a keyboard one on each line."""
    read = sys.stdin.read()
    if sys.stdin.isatty():
        return [line for line in read.splitlines() if line.strip()]
    return [read.strip()] if read.strip() else []
