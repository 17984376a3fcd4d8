"""`recollect discord` and `recollect telegram`: bots whose conversations are stored."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import optional_dependencies, store_access
from recollect.cli.exit_codes import DEBUG
from recollect.cli.group import StoreCommand
from recollect.cli.output import print_note
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.channels.discord.bot import DiscordOptions
    from recollect.config.loader import Config

ServeBot = Callable[["Agent", "Config"], Awaitable[None]]


def bot_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every bot command has."""
    model = click.option("-m", "--model", help="Model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
    compact = click.option(
        "--compact", is_flag=True, help="Summarize older messages for the model when its context window is nearly full."
    )
    return model(compact(command))


def run_bot(
    platform: str,
    serve: ServeBot,
    config: Config,
    *,
    model: str | None,
    compact: bool,
    log: AbstractContextManager[None] | None = None,
) -> None:
    """Run a bot with the configured agent until Ctrl-C."""
    import asyncio  # noqa: PLC0415  it costs 40 ms, which `recollect --help` does not need

    from recollect.agent import agent_from_config  # noqa: PLC0415
    from recollect.channels.bot.incoming import platform_instructions  # noqa: PLC0415

    name = platform.lower()
    store_access.apply_retention_at_start(config)
    agent = agent_from_config(
        store_access.database_option(),
        model=model,
        config=config,
        instructions=platform_instructions(platform),
        compact=compact,
        name=name,
    )

    async def run() -> None:
        async with agent:
            await serve(agent, config)

    try:
        with log or nullcontext():
            asyncio.run(run())
    except ImportError as error:
        raise optional_dependencies.missing_extra(name, error.name) from error
    print_note("Stopped. All messages are stored.")


def stop_on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` on Ctrl-C and on SIGTERM, so that the bot finishes in order."""
    import asyncio  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop)
        except (NotImplementedError, RuntimeError, ValueError):
            break  # not on this platform: Ctrl-C ends the program, and the next start reports interrupted answers


_DISCORD = "channels.discord"


@click.command(cls=StoreCommand)
@bot_options
def discord(model: str | None, compact: bool) -> None:
    """Run a Discord bot.

    Set the bot token as channels.discord.token. The settings channels.discord.allow (people), channels.discord.guilds
    (servers) and channels.discord.roles list who may use the bot; by default, nobody may. Each direct message, channel
    and thread is a separate conversation. Press Ctrl-C to stop the bot.
    """
    optional_dependencies.require_extra("discord", "discord", "aiohttp")
    config = store_access.load_settings()
    _check_discord(config)
    run_bot("Discord", _serve_discord, config, model=model, compact=compact, log=_log_to_terminal())


def _check_discord(config: Config) -> None:
    if not config[f"{_DISCORD}.token"]:
        raise InvalidValue(
            "The bot has no token. Create one at https://discord.com/developers/applications, on the Bot page of your "
            "application, and set RECOLLECT_DISCORD_TOKEN or channels.discord.token."
        )
    for name in ("allow", "guilds", "roles"):
        invalid = [item for item in config[f"{_DISCORD}.{name}"] if not item.isdecimal()]
        if invalid:
            raise InvalidValue(
                f"{_DISCORD}.{name} must contain numeric ids, got {invalid[0]!r}. In Discord, turn on "
                "Developer Mode (Settings, Advanced), right-click the name and choose Copy ID."
            )


def _discord_options(config: Config) -> DiscordOptions:
    from recollect.channels.bot import AllowList  # noqa: PLC0415
    from recollect.channels.discord.bot import CATCH_UP_SECONDS, DiscordOptions  # noqa: PLC0415

    users, guilds, roles = (config[f"{_DISCORD}.{name}"] for name in ("allow", "guilds", "roles"))
    catch_up = config[f"{_DISCORD}.catch_up"]
    return DiscordOptions(
        access=AllowList(users=users, guilds=guilds, roles=roles),
        base_url=config[f"{_DISCORD}.base_url"],
        inherit=config[f"{_DISCORD}.inherit"],
        search_everything=config[f"{_DISCORD}.search_everything"],
        max_file_size=config[f"{_DISCORD}.max_file_size"],
        catch_up=CATCH_UP_SECONDS if catch_up is None else catch_up / 1000,
    )


async def _serve_discord(agent: Agent, config: Config) -> None:
    import asyncio  # noqa: PLC0415

    from recollect.channels.discord.bot import DiscordBot  # noqa: PLC0415

    stop = asyncio.Event()
    stop_on_signals(stop.set)
    await DiscordBot(agent, _discord_options(config), print_note).serve(config[f"{_DISCORD}.token"], stop=stop)


class _OneLineHandler(logging.Handler):
    """Prints a log record as one line with its time. RECOLLECT_DEBUG=1 prints tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record to standard error."""
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f" ({type(error).__name__}: {error})"
        print_note(f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.getMessage()}{cause}")


@contextlib.contextmanager
def _log_to_terminal() -> Generator[None]:
    """Print warnings as lines. Rate limits of Discord are left out: they are routine."""
    if os.environ.get(DEBUG):
        logging.basicConfig(level=logging.INFO)
        yield
        return
    for name in ("discord.http", "discord.webhook.async_"):
        logging.getLogger(name).setLevel(logging.ERROR)
    root, handler = logging.getLogger(), _OneLineHandler(logging.WARNING)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@click.command(cls=StoreCommand)
@bot_options
def telegram(model: str | None, compact: bool) -> None:
    """Run a Telegram bot.

    Set the bot token as channels.telegram.token. The settings channels.telegram.allow (people) and
    channels.telegram.chats (groups) list who may use the bot; by default, nobody may. Each chat and each topic is a
    separate conversation, telegram:CHAT or telegram:CHAT:TOPIC. Press Ctrl-C to stop the bot.
    """
    optional_dependencies.require_extra("telegram", "telegram")
    config = store_access.load_settings()
    _check_telegram(config)
    run_bot("Telegram", _serve_telegram, config, model=model, compact=compact)


def _check_telegram(config: Config) -> None:
    if not config["channels.telegram.token"]:
        raise InvalidValue(
            "The bot has no token. Ask @BotFather on Telegram for one, and set RECOLLECT_TELEGRAM_TOKEN or "
            "channels.telegram.token."
        )
    for name in ("allow", "chats"):
        invalid = [item for item in config[f"channels.telegram.{name}"] if not item.removeprefix("-").isdecimal()]
        if invalid:
            raise InvalidValue(
                f"channels.telegram.{name} must contain numeric ids, got {invalid[0]!r}. The bot replies with "
                "the sender's id to people who are not on the list."
            )


def _telegram_options(config: Config) -> dict[str, Any]:
    names = ("token", "base_url", "chats", "max_file_size", "search_everything", "inherit")
    options = {name: config[f"channels.telegram.{name}"] for name in names}
    return {**options, "users": config["channels.telegram.allow"]}


async def _serve_telegram(agent: Agent, config: Config) -> None:
    from recollect.channels.telegram.bot import TelegramBot, TelegramOptions  # noqa: PLC0415

    bot = TelegramBot(agent, TelegramOptions(**_telegram_options(config)), print_note)
    stop_on_signals(bot.stop)
    await bot.run()
