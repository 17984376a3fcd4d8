"""`recollect discord`: a bot on Discord whose talks are kept."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import click

from recollect.cli import bot, extra, place
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
@bot.options
def discord(model: str | None, compact: bool) -> None:
    """Talk to people on Discord, as a bot.

    The token is the setting channels.discord.token; who may talk to it is channels.discord.allow (people),
    channels.discord.guilds (servers) and channels.discord.roles: nobody, unless they are named. Direct messages with a
    person, a channel and a thread are each a conversation of their own. Ctrl-C stops it.
    """
    extra.need("discord", "discord", "aiohttp")
    config = place.settings()
    _check(config)
    bot.run("Discord", _serve, config, model=model, compact=compact, log=_plain_log())


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


async def _serve(agent: Agent, config: Config) -> None:
    import asyncio  # noqa: PLC0415

    from recollect.channels.discord.bot import DiscordBot  # noqa: PLC0415

    stop = asyncio.Event()
    bot.stopped_by(stop.set)
    await DiscordBot(agent, _options(config), remark).serve(config[f"{_PREFIX}.token"], stop=stop)


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
