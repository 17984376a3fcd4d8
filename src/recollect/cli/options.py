"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from recollect.cli.amount import Number
from recollect.cli.moment import Moment
from recollect.model.message import ROLES
from recollect.model.session import STATUSES

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


def yes(help: str = "Do not ask.") -> Callable[[F], F]:
    """Make the option that answers the question before it is asked."""
    return click.option("-y", "--yes", is_flag=True, help=help)


def limit(default: int = 20) -> Callable[[F], F]:
    """Make the option that says how many to print."""
    return click.option(
        "-n",
        "--limit",
        type=Number(),
        default=default,
        show_default=True,
        metavar="N",
        help="How many at most.",
    )


after = click.option("--after", metavar="NEXT", help="Go on after an earlier page: the `next` of its JSON.")
since = click.option("--since", type=Moment(), metavar="WHEN", help="Only from this moment on: 2026-01-31, or 7d.")
until = click.option("--until", type=Moment(), metavar="WHEN", help="Only before this moment.")

_FILTERS: tuple[Callable[[Any], Any], ...] = (
    click.option("--channel", help="Only from this channel, such as cli or discord."),
    click.option("--model", help="Only with this model."),
    click.option("--status", type=click.Choice(STATUSES), help="Only with this status."),
    click.option("--role", type=click.Choice(ROLES), help="Only with a message of this role."),
    click.option("--tool", help="Only with a call of this tool."),
    since,
    until,
    click.option("--pinned/--unpinned", default=None, help="Only pinned ones, or only others."),
    click.option("--archived", is_flag=True, help="Archived ones."),
    click.option("--trash", is_flag=True, help="What is in the trash."),
    click.option("--delegates", is_flag=True, help="Sub-agents' conversations too."),
)


def filters(command: F) -> F:
    """Add the options that choose conversations; chosen() reads them."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def chosen(given: dict[str, Any]) -> dict[str, Any]:
    """Give the filters as the store takes them; what was not asked for is left to its defaults."""
    asked = {name: value for name, value in given.items() if value is not None and value is not False}
    if given.get("pinned") is False:
        asked["pinned"] = False
    if asked.pop("trash", False):
        asked |= {"deleted": True, "archived": given.get("archived") or None}
    return asked
