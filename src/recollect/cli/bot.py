"""What the commands of bots share: the agent that answers, and how a bot runs until someone ends it."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import extra, place
from recollect.cli.screen import remark

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.config.effective import Config

Run = Callable[["Agent", "Config"], Awaitable[None]]


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what every bot can be told."""
    model = click.option("-m", "--model", help="The model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
    compact = click.option(
        "--compact", is_flag=True, help="Sum up what is old for the model when its window is nearly full."
    )
    return model(compact(command))


def run(
    platform: str,
    serve: Run,
    config: Config,
    *,
    model: str | None,
    compact: bool,
    log: AbstractContextManager[None] | None = None,
) -> None:
    """Answer people on a platform, with an agent of the configuration, until Ctrl-C."""
    import asyncio  # noqa: PLC0415  it costs 40 ms that `recollect --help` need not pay

    from recollect.agent import configured  # noqa: PLC0415
    from recollect.channels.bot.presenting import instructions  # noqa: PLC0415

    name = platform.lower()
    place.retain(config)
    agent = configured(
        place.named(), model=model, config=config, instructions=instructions(platform), compact=compact, name=name
    )

    async def served() -> None:
        async with agent:
            await serve(agent, config)

    try:
        with log or nullcontext():
            asyncio.run(served())
    except ImportError as error:
        raise extra.refusal(name, error.name) from error
    remark("Stopped. Everything that was said is kept.")


def stopped_by(stop: Callable[[], object]) -> None:
    """Have Ctrl-C and the end of a service stop the bot in order."""
    import asyncio  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop)
        except (NotImplementedError, RuntimeError, ValueError):
            break  # not on this platform: Ctrl-C ends the program, and the next start says what was cut off
