"""The command line: `recollect`. One module for each group of commands, loaded when it is used.

It stands on the store and on the configuration, and never on SQL. What a command prints from the store goes through
screen.safe(), so that no stored text can steer a terminal.
"""

from __future__ import annotations

import sys

import click

from recollect import __version__
from recollect.cli.group import Group
from recollect.cli.screen import wants_colour

__all__ = ["main", "recollect"]


@click.group(
    cls=Group,
    lazy={
        "chat": ("recollect.cli.chat:chat", "Talk to an agent. Everything that is said is kept."),
        "serve": ("recollect.cli.serve:serve", "Serve the web app, and the HTTP API under /api/v1."),
        "discord": ("recollect.cli.discord:discord", "Talk to people on Discord, as a bot."),
        "telegram": ("recollect.cli.telegram:telegram", "Talk to people on Telegram, as a bot."),
        "sessions": ("recollect.cli.sessions:sessions", "Find, read, change, keep and let go of conversations."),
        "db": ("recollect.cli.db:db", "Look after the database itself."),
        "config": ("recollect.cli.settings:config", "Show the settings, and where each comes from."),
        "completion": ("recollect.cli.completion:completion", "Print the script that completes words in a shell."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="recollect")
@click.pass_context
def recollect(context: click.Context) -> None:
    """Conversations with agents that are never lost.

    The database is what --db names, or RECOLLECT_DB, or the configuration file, or else a file in your data folder:
    `recollect db path` shows it. Every command has --help, and what it lists it also gives as --json.
    """
    context.color = wants_colour()


def main() -> None:
    """Run the command and end with the status that scripts can rely on."""
    from recollect.cli.ending import run  # noqa: PLC0415

    sys.exit(run(recollect, sys.argv[1:]))
