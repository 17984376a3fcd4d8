"""`sessions fork`: a new conversation with the same past."""

from __future__ import annotations

import click

from recollect.cli import names, options, place
from recollect.cli.document import print_json
from recollect.cli.group import Command
from recollect.cli.screen import is_terminal, remark
from recollect.model.amount import many


@click.command(cls=Command)
@click.argument("id", type=names.Name())
@click.option(
    "--at", metavar="MESSAGE", help="The last message of the shared past, such as 1.4; all of it if not given."
)
@click.option("--title", help="The title of the new one; that of the old one if not given.")
@click.option("--as", "new", metavar="NEW_ID", help="The id of the new one; one is made if not given.")
@options.as_json
def fork(id: str, at: str | None, title: str | None, new: str | None, as_json: bool) -> None:
    """Make a new conversation that shares the past of another.

    Nothing is copied, and the old one is not changed. It prints the id of the new one.
    """
    with place.writing() as store:
        origin = store.find_session(id)
        place_in_it = int(at) if at is not None and at.isdecimal() and len(at) < 11 else at  # noqa: PLR2004
        made = origin.fork(place_in_it, id=new, **({} if title is None else {"title": title}))
        [messages] = store.shown_counts([made])
    if as_json:
        print_json({"sessions": [made.to_dict()]})
        return
    click.echo(made.id)
    if is_terminal():
        remark(f"It shares {many(messages, 'message')} with {names.title(origin)}.")
