"""`recollect db`: the database itself."""

from __future__ import annotations

import click

from recollect.engine.url import target


@click.group()
def db() -> None:
    """Look after the database itself."""


@db.command()
def path() -> None:
    """Print where the database is."""
    click.echo(target(None).path)
