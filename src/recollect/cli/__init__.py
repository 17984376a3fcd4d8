"""The command line, `recollect`. Each group of commands is a module that is loaded on first use.

It uses the store and the configuration, never SQL. Stored text passes output.sanitize() before it is printed, so that
it cannot control a terminal.
"""

from __future__ import annotations

import sys

import click

from recollect import __version__
from recollect.cli.group import LazyGroup
from recollect.cli.output import color_preference

__all__ = ["main", "recollect"]


@click.group(
    cls=LazyGroup,
    lazy={
        "chat": ("recollect.cli.chat:chat", "Chat with an agent. Every message is stored."),
        "serve": ("recollect.cli.serve:serve", "Serve the web app and the HTTP API (/api/v1)."),
        "discord": ("recollect.cli.bots:discord", "Run a Discord bot."),
        "telegram": ("recollect.cli.bots:telegram", "Run a Telegram bot."),
        "import": ("recollect.cli.imports:import_", "Import conversations of other tools."),
        "sync": ("recollect.cli.sync:sync", "Import new messages of other tools, once or continuously."),
        "sessions": ("recollect.cli.sessions:sessions", "Manage conversations."),
        "db": ("recollect.cli.db:db", "Maintain the database."),
        "config": ("recollect.cli.config:config", "Show the settings and their sources."),
        "completion": ("recollect.cli.completion:completion", "Print a shell completion script."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="recollect")
@click.pass_context
def recollect(context: click.Context) -> None:
    """Never lose a conversation with an AI agent.

    The database comes from --db, else RECOLLECT_DB, else the configuration file, else it is a file in your data
    directory. `recollect db path` prints its location. Every command has --help, and every list is also available
    as JSON with --json.
    """
    context.color = color_preference()


def main() -> None:
    """Run the command and exit with its status."""
    from recollect.cli.exit_codes import run_command  # noqa: PLC0415

    sys.exit(run_command(recollect, sys.argv[1:]))
