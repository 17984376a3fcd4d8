"""`recollect telegram`: a bot on Telegram whose talks are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.cli import bot, extra, place
from recollect.cli.group import Command
from recollect.cli.screen import remark
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.config.effective import Config


@click.command(cls=Command)
@bot.options
def telegram(model: str | None, compact: bool) -> None:
    """Talk to people on Telegram, as a bot.

    The token is the setting channels.telegram.token; who may talk to it is channels.telegram.allow (people) and
    channels.telegram.chats (groups): nobody, unless they are named. Each chat and each topic is a conversation of its
    own, telegram:CHAT or telegram:CHAT:TOPIC. Ctrl-C stops it.
    """
    extra.need("telegram", "telegram")
    config = place.settings()
    _check(config)
    bot.run("Telegram", _serve, config, model=model, compact=compact)


def _check(config: Config) -> None:
    if not config["channels.telegram.token"]:
        raise InvalidValue(
            "The bot has no token. Ask @BotFather on Telegram for one, and set RECOLLECT_TELEGRAM_TOKEN or "
            "channels.telegram.token."
        )
    for name in ("allow", "chats"):
        wrong = [item for item in config[f"channels.telegram.{name}"] if not item.removeprefix("-").isdecimal()]
        if wrong:
            raise InvalidValue(
                f"channels.telegram.{name} takes ids, which are numbers; {wrong[0]!r} is none. Somebody whom the bot "
                "does not know is told their id when they write to it."
            )


def _chosen(config: Config) -> dict[str, Any]:
    names = ("token", "base_url", "chats", "max_file_size", "search_everything", "inherit")
    chosen = {name: config[f"channels.telegram.{name}"] for name in names}
    return {**chosen, "users": config["channels.telegram.allow"]}


async def _serve(agent: Agent, config: Config) -> None:
    from recollect.channels.telegram.bot import Settings, TelegramBot  # noqa: PLC0415

    there = TelegramBot(agent, Settings(**_chosen(config)), remark)
    bot.stopped_by(there.stop)
    await there.run()
