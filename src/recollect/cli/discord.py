"""`recollect discord`: a bot on Discord whose talks are kept."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import click

from recollect.cli import extra, place
from recollect.cli.ending import DEBUG
from recollect.cli.group import Command
from recollect.cli.screen import remark
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.channels.discord.bot import Options
    from recollect.config.effective import Config

_PREFIX = "channels.discord"


@click.command(cls=Command)
@click.option("-m", "--model", help="The model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
@click.option("--compact", is_flag=True, help="Sum up what is old for the model when its window is nearly full.")
def discord(model: str | None, compact: bool) -> None:
    """Talk to people on Discord, as a bot.

    The token is the setting channels.discord.token; who may talk to it is channels.discord.allow (people),
    channels.discord.guilds (servers) and channels.discord.roles: nobody, unless they are named. Direct messages with a
    person, a channel and a thread are each a conversation of their own. Ctrl-C stops it.
    """
    extra.need("discord", "discord", "aiohttp")
    config = place.settings()
    _check(config)
    import asyncio  # noqa: PLC0415  it costs 40 ms that `recollect --help` need not pay

    from recollect.agent import configured  # noqa: PLC0415
    from recollect.channels.bot.presenting import instructions  # noqa: PLC0415

    if place.retention(config):
        with place.writing():  # lets go of what the configuration says is to go
            pass
    agent = configured(
        place.named(),
        model=model,
        config=config,
        instructions=instructions("Discord"),
        compact=compact,
        name="discord",
    )
    try:
        with _plain_log():
            asyncio.run(_run(agent, config))
    except ImportError as error:
        raise extra.refusal("discord", error.name) from error
    remark("Stopped. Everything that was said is kept.")


def _check(config: Config) -> None:
    if not config[f"{_PREFIX}.token"]:
        raise InvalidValue(
            "The bot has no token. Make one at https://discord.com/developers/applications, on the page Bot of your "
            "application, and set RECOLLECT_DISCORD_TOKEN or channels.discord.token."
        )
    for name in ("allow", "guilds", "roles"):
        wrong = [item for item in config[f"{_PREFIX}.{name}"] if not item.isdecimal()]
        if wrong:
            raise InvalidValue(
                f"{_PREFIX}.{name} takes ids, which are numbers; {wrong[0]!r} is none. In Discord, turn on Developer "
                "Mode (Settings, Advanced), right-click on the name, and choose Copy ID."
            )


def _options(config: Config) -> Options:
    from recollect.channels.bot import Access  # noqa: PLC0415
    from recollect.channels.discord.bot import CATCH_UP, Options  # noqa: PLC0415

    users, guilds, roles = (config[f"{_PREFIX}.{name}"] for name in ("allow", "guilds", "roles"))
    catch_up = config[f"{_PREFIX}.catch_up"]
    return Options(
        access=Access(users=users, guilds=guilds, roles=roles),
        base_url=config[f"{_PREFIX}.base_url"],
        inherit=config[f"{_PREFIX}.inherit"],
        search_everything=config[f"{_PREFIX}.search_everything"],
        max_file_size=config[f"{_PREFIX}.max_file_size"],
        catch_up=CATCH_UP if catch_up is None else catch_up / 1000,
    )


async def _run(agent: Agent, config: Config) -> None:
    import asyncio  # noqa: PLC0415

    from recollect.channels.discord.bot import DiscordBot  # noqa: PLC0415

    async with agent:
        bot, stop = DiscordBot(agent, _options(config), remark), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, stop.set)
            except (NotImplementedError, RuntimeError, ValueError):
                break  # not on this platform: Ctrl-C ends the program, and the next start says what was cut off
        await bot.serve(config[f"{_PREFIX}.token"], stop=stop)


class _Lines(logging.Handler):
    """Shows a record of a log as one line, with its time; where it was raised is for who debugs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it."""
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f" ({type(error).__name__}: {error})"
        remark(f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.getMessage()}{cause}")


@contextlib.contextmanager
def _plain_log() -> Generator[None]:
    """Show warnings as lines. That Discord asked to wait a moment is none: it does so all the time."""
    if os.environ.get(DEBUG):
        logging.basicConfig(level=logging.INFO)
        yield
        return
    for name in ("discord.http", "discord.webhook.async_"):
        logging.getLogger(name).setLevel(logging.ERROR)
    root, lines = logging.getLogger(), _Lines(logging.WARNING)
    root.addHandler(lines)
    try:
        yield
    finally:
        root.removeHandler(lines)
