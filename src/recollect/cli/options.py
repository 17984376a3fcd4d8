"""Options that several commands share, the number and size types, and confirmation of irreversible actions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from recollect.cli.output import sanitize
from recollect.cli.times import TimeParam
from recollect.config.settings import parse_size
from recollect.errors import NotConfirmed
from recollect.model import json
from recollect.model.message import ROLES
from recollect.model.session import SESSION_STATUSES

_MAX_NUMBER = 1_000_000  # rows or messages; far more than anyone prints, and small enough for every engine


class NumberParam(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """An integer option, at least 1 (or 0)."""

    name = "number"

    def __init__(self, minimum: int = 1) -> None:
        self.minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        if not value.isascii() or not value.isdecimal() or not self.minimum <= int(value[:20]) <= _MAX_NUMBER:
            self.fail(f"{value!r} is not an integer between {self.minimum} and {_MAX_NUMBER:,}.", param, ctx)
        return int(value)


class SizeParam(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A size option, such as 2GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the size in bytes."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a valid size. Use a number with a unit, such as 2GB, 500MB or 64KiB.", param, ctx
            )


class FieldParam(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A metadata field and its value, KEY=VALUE. A JSON number, string, boolean or null is read as such."""

    name = "field"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Return the field and its value."""
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        name, equals, text = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is not a metadata field. Use KEY=VALUE, such as project=alpha.", param, ctx)
        try:
            plain = json.decode(text)
        except (ValueError, RecursionError):
            return name, text
        is_scalar = not isinstance(plain, list | dict) and not (isinstance(plain, float) and not math.isfinite(plain))
        return name, plain if is_scalar else text


F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")


def yes(help: str = "Do not ask for confirmation.") -> Callable[[F], F]:
    """Return the option that confirms without a question."""
    return click.option("-y", "--yes", is_flag=True, help=help)


def limit(default: int = 20) -> Callable[[F], F]:
    """Return the option that limits the number of results."""
    return click.option(
        "-n",
        "--limit",
        type=NumberParam(),
        default=default,
        show_default=True,
        metavar="N",
        help="Maximum number of results.",
    )


after = click.option("--after", metavar="NEXT", help="Continue after an earlier page: the `next` field of its JSON.")
since = click.option(
    "--since", type=TimeParam(), metavar="WHEN", help="Only since this time, such as 2026-01-31 or 7d."
)
until = click.option("--until", type=TimeParam(), metavar="WHEN", help="Only before this time.")

_FILTERS: tuple[Callable[[Any], Any], ...] = (
    click.option("--channel", help="Only this channel, such as cli or discord."),
    click.option("--model", help="Only this model."),
    click.option("--status", type=click.Choice(SESSION_STATUSES), help="Only this status."),
    click.option("--label", metavar="LABEL", multiple=True, help="Only with this label; with all, if repeated."),
    click.option("--external-id", metavar="ID", help="Only with this id in another program."),
    click.option("--id-prefix", metavar="TEXT", help="Only with an id that begins with this text."),
    click.option(
        "--metadata",
        type=FieldParam(),
        metavar="KEY=VALUE",
        multiple=True,
        help="Only with this metadata field; with all, if repeated.",
    ),
    click.option("--role", type=click.Choice(ROLES), help="Only with a message of this role."),
    click.option("--tool", help="Only with calls of this tool."),
    since,
    until,
    click.option("--pinned/--unpinned", default=None, help="Only pinned, or only unpinned, conversations."),
    click.option("--archived", is_flag=True, help="Only archived conversations."),
    click.option("--trash", is_flag=True, help="Only conversations in the trash."),
    click.option("--delegates", is_flag=True, help="Include conversations of sub-agents."),
)


def filters(command: F) -> F:
    """Add the options that filter conversations; to_store_filters() reads them."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def to_store_filters(options: dict[str, Any]) -> dict[str, Any]:
    """Return the filters as arguments of the store. Options that were not used are left out."""
    store_filters = {name: value for name, value in options.items() if value is not None and value is not False}
    if options.get("pinned") is False:
        store_filters["pinned"] = False
    for name, convert in (("label", list), ("metadata", dict)):
        if values := store_filters.pop(name, ()):
            store_filters[name] = convert(values)
    if store_filters.pop("trash", False):
        store_filters |= {"deleted": True, "archived": options.get("archived") or None}
    return store_filters


def confirm(question: str, action: str, *, yes: bool) -> None:
    """Ask for confirmation, unless `yes` is set. Raise NotConfirmed on a no, or without a terminal.

    `action` completes the sentence "Pass --yes to ...".
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"Confirmation needed, but this is not a terminal. Pass --yes to {action}.")
    if not click.confirm(sanitize(question), default=False, err=True):
        raise NotConfirmed("Cancelled. Nothing was changed.")
