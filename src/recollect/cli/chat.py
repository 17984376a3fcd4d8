"""`recollect chat`: a stored conversation with an agent, in this terminal or through a pipe."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from recollect.cli import optional_dependencies, store_access
from recollect.cli.exit_codes import INTERRUPTED
from recollect.cli.group import StoreCommand
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent, Conversation
    from recollect.channels.terminal.type_ahead import TypeAhead
    from recollect.store_async import AsyncSession, AsyncStore

_PICK_SESSION = "\0pick"
_DEFAULT_SESSION = "default"


class ChatOptions(NamedTuple):
    """The options of `recollect chat`."""

    last: bool
    resume: str | None
    session: str | None
    fork: bool
    name: str | None
    model: str | None
    context: str | None
    as_json: bool


@click.command(cls=StoreCommand)
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the last conversation.")
@click.option(
    "-r", "--resume", is_flag=False, flag_value=_PICK_SESSION, metavar="[SESSION]",
    help="Continue a conversation, by id, id prefix or title. Without a value, choose from a list.",
)  # fmt: skip
@click.option(
    "--session", is_flag=False, flag_value=_DEFAULT_SESSION, metavar="[NAME]",
    help="Use the conversation cli:NAME (without a value: cli:default); create it if it does not exist.",
)  # fmt: skip
@click.option("--fork", is_flag=True, help="Continue in a fork of the conversation; the original is not changed.")
@click.option("-n", "--name", help="Title of the conversation.")
@click.option("-m", "--model", help="Model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
@click.option("--base-url", help="URL of an OpenAI-compatible server, such as a local one.")
@click.option("--ephemeral", is_flag=True, help="Store nothing: the conversation is gone when you quit.")
@click.option(
    "--context",
    metavar="SESSION",
    help="Add the end of another conversation as context; search:WORDS adds search results.",
)
@click.option(
    "--compact", is_flag=True, help="Summarize older messages for the model when its context window is nearly full."
)
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one object per line.")
def chat(base_url: str | None, ephemeral: bool, compact: bool, **arguments: Any) -> None:
    """Chat with an agent. Every message is stored.

    With input from a pipe, it answers once: echo question | recollect chat -c
    """
    options = ChatOptions(**arguments)
    _check_options(options, ephemeral=ephemeral)
    from recollect.channels.terminal import type_ahead  # noqa: PLC0415

    interactive = type_ahead.is_interactive() and not options.as_json
    with type_ahead.line_mode_off() if interactive else contextlib.nullcontext() as pending_keys:
        status = _chat(options, pending_keys, base_url=base_url, ephemeral=ephemeral, compact=compact)
    click.get_current_context().exit(status)


def _chat(
    options: ChatOptions, pending_keys: TypeAhead | None, *, base_url: str | None, ephemeral: bool, compact: bool
) -> int:
    import asyncio  # noqa: PLC0415  it costs 40 ms, which `recollect --help` does not need

    from recollect.agent import agent_from_config  # noqa: PLC0415

    config = store_access.load_settings()
    if not ephemeral:
        store_access.apply_retention_at_start(config)
    agent = agent_from_config(
        ":memory:" if ephemeral else store_access.database_option(),
        model=options.model,
        base_url=base_url,
        config=config,
        compact=compact,
        name="chat",
    )
    try:
        return asyncio.run(_run(agent, options, pending_keys, ephemeral=ephemeral))
    except KeyboardInterrupt:
        return INTERRUPTED
    except ImportError as error:
        raise optional_dependencies.missing_extra("chat", error.name) from error


def _check_options(options: ChatOptions, *, ephemeral: bool) -> None:
    sources = [options.last, options.resume is not None, options.session is not None]
    if sum(sources) > 1:
        raise click.UsageError("Use only one of --continue, --resume and --session.")
    if ephemeral and (any(sources) or options.context):
        raise click.UsageError("--ephemeral cannot be combined with --continue, --resume, --session or --context.")
    if options.fork and not any(sources):
        raise click.UsageError("--fork needs a conversation: pass --continue, --resume or --session.")


async def _run(agent: Agent, options: ChatOptions, pending_keys: TypeAhead | None, *, ephemeral: bool) -> int:
    from recollect.agent.commands import keep_unless_empty  # noqa: PLC0415
    from recollect.agent.last_session import store_last_session  # noqa: PLC0415
    from recollect.agent.models import callable_model  # noqa: PLC0415

    async with agent:
        session = await _open_session(agent.store, options, pending_keys)
        if session is None:
            return 0
        is_new = session.message_count == 0
        try:
            conversation = await agent.conversation(
                session, context=options.context, model=options.model or callable_model(session.model)
            )
        except BaseException:
            if is_new:  # unknown model or context: the new session has no messages
                await keep_unless_empty(session)
            raise
        if options.name:
            await session.update(title=options.name)
        if options.model or session.model is None:
            await session.update(model=conversation.model.name)
        await store_last_session(session)
        if pending_keys is not None:
            pending_keys.hand_over()
            await _run_at_terminal(conversation, ephemeral=ephemeral)
            return 0
        return await _run_through_pipe(conversation, options, is_new=is_new)


async def _open_session(store: AsyncStore, options: ChatOptions, pending_keys: TypeAhead | None) -> AsyncSession | None:
    """Open the selected session. Return None if the person closed the picker."""
    if options.session is not None:
        name = options.session if ":" in options.session else f"cli:{options.session}"
        session = await store.session(name)
    elif options.last:
        from recollect.agent.last_session import read_last_session  # noqa: PLC0415

        session = await read_last_session(store)
        if session is None:
            session = await store.session()
    elif options.resume is not None:
        session = await _resume_session(store, options.resume, pending_keys)
    else:
        return await store.session()
    if session is None:
        return None
    session = await store.session(session.id, create=False)
    if options.fork:
        return await session.fork(title=f"{session.title} (fork)" if session.title else None)
    return session


async def _resume_session(store: AsyncStore, name: str, pending_keys: TypeAhead | None) -> AsyncSession | None:
    if name != _PICK_SESSION:
        return await store.find_session(name)
    if pending_keys is None:
        raise InvalidValue("The list of conversations needs a terminal. Pass an id instead: recollect chat -r ID.")
    from recollect.channels.terminal.picker import Picker  # noqa: PLC0415

    pending_keys.hand_over()
    session_id = await Picker(store).run()
    return None if session_id is None else await store.get_session(session_id)


async def _run_at_terminal(conversation: Conversation, *, ephemeral: bool) -> None:
    from recollect.agent.commands import keep_unless_empty  # noqa: PLC0415
    from recollect.channels.terminal.conversation import TerminalConversation, resume_message  # noqa: PLC0415
    from recollect.channels.terminal.prompt import InputPrompt  # noqa: PLC0415
    from recollect.channels.terminal.screen import Screen  # noqa: PLC0415

    screen = Screen()
    terminal = TerminalConversation(
        conversation, screen, InputPrompt("Enter: send \u00b7 Alt-Enter: new line \u00b7 /help \u00b7 Ctrl-D: quit")
    )
    try:
        await terminal.run()
    finally:
        await terminal.leave()
        if ephemeral:
            screen.notice("This conversation was not stored.")
        elif await keep_unless_empty(conversation.session):
            screen.notice(resume_message(conversation))


async def _run_through_pipe(conversation: Conversation, options: ChatOptions, *, is_new: bool) -> int:
    from recollect.agent import Notice  # noqa: PLC0415
    from recollect.agent.commands import keep_unless_empty  # noqa: PLC0415
    from recollect.channels.terminal.conversation import presence_notice, run_once, save_unsaved  # noqa: PLC0415
    from recollect.channels.terminal.plain import JsonScreen, PlainScreen  # noqa: PLC0415

    view = JsonScreen() if options.as_json else PlainScreen()
    for presence in await conversation.session.presence.list():
        view.event(Notice(text=presence_notice(presence), level="warning"))
    status = 0
    for message in _read_inputs():
        status = await run_once(conversation, message, view)
    if not await conversation.close():
        click.echo(save_unsaved(conversation), err=True)
    if is_new:
        await keep_unless_empty(conversation.session)
    return status


def _read_inputs() -> list[str]:
    """Read the messages from standard input: a pipe is one message, a terminal one per line."""
    text = sys.stdin.read()
    if sys.stdin.isatty():
        return [line for line in text.splitlines() if line.strip()]
    return [text.strip()] if text.strip() else []
