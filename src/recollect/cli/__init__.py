"""The command line: `recollect`. One module per group of commands, imported when it is used."""

from __future__ import annotations

import sys

import click

from recollect import __version__
from recollect.cli.chat import chat
from recollect.cli.db import db
from recollect.cli.sessions import sessions
from recollect.errors import RecollectError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="recollect")
def recollect() -> None:
    """Conversations with agents that are never lost.

    The database is the file that RECOLLECT_DB names, or one in your data folder: `recollect db path` shows it.
    """


recollect.add_command(chat)
recollect.add_command(sessions)
recollect.add_command(db)


def main() -> None:
    """Run the command; an error of ours is a sentence, not a traceback."""
    try:
        recollect.main(prog_name="recollect")
    except RecollectError as error:
        click.echo(f"recollect: {error}", err=True)
        sys.exit(1)
