"""`sessions list`: what conversations there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from recollect.cli import options, place
from recollect.cli.document import print_page
from recollect.cli.group import Command
from recollect.cli.moment import ago
from recollect.cli.screen import glyph, is_terminal, remark, safe
from recollect.cli.table import Cell, Column, print_table
from recollect.model.amount import count
from recollect.model.value import iso

_PAGE = 1_000
_UUID, _SHORTEST = 36, 13

_SHAPE = (
    Column("", style={"fg": "yellow"}),
    Column("ID", least=13, style={"fg": "cyan"}),
    Column("TITLE", least=24, style={"bold": True}),
    Column("MSGS", ">", drop=1),
    Column("TOKENS", ">", drop=4),
    Column("SUBS", ">", drop=2, style={"dim": True}),
    Column("CHANNEL", least=8, drop=5, style={"dim": True}),
    Column("MODEL", least=12, drop=3, style={"dim": True}),
    Column("ACTIVE", style={"fg": "green"}),
)


@click.command("list", cls=Command)
@options.limit()
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@options.after
@click.option(
    "--sort",
    type=click.Choice(["activity", "created", "title"]),
    default="activity",
    show_default=True,
    help="What comes first: the newest activity, the newest, or the first by title.",
)
@click.option("--pinned-first", is_flag=True, help="Pinned ones before the others.")
@options.filters
@options.as_json
def list_(*, limit: int, everything: bool, after: str | None, sort: str, as_json: bool, **given: Any) -> None:
    """List conversations, the newest activity first.

    Archived ones, sub-agents' and the trash are left out unless asked for. On a terminal it is a table. On a pipe each
    line has, between tabs: id, title, messages, tokens, sub-agents, channel, model, last activity, marks.
    """
    asked = options.chosen(given)
    if sort != "activity":
        asked["order"] = sort
    with place.reading() as store:
        page = store.list_sessions(_PAGE if everything else limit, after=after, **asked)
        found: list[Any] = list(page)
        while everything and page.next:
            page = store.list_sessions(_PAGE, after=page.next, **asked)
            found += page
        counts = [] if as_json else store.shown_counts(found)
    if as_json:
        print_page("sessions", found, page.next)
        return
    shape = (*_SHAPE[:-1], _SHAPE[-1]._replace(title="DELETED")) if given["trash"] else _SHAPE
    print_table(shape, list(_rows(found, counts)))
    _remarks(found, page.next, given)


def _rows(found: list[Any], counts: list[int]) -> Iterator[list[Cell]]:
    shortened = _short_ids([session.id for session in found])
    for session, messages in zip(found, counts, strict=True):
        marks = [name for name, at in (("pinned", session.pinned_at), ("archived", session.archived_at)) if at]
        delegates = str(session.delegate_count or "")
        untitled = None if session.title else {"dim": True}
        cells = [
            Cell(shortened[session.id], session.id),
            Cell(session.title or glyph("line"), session.title or "", untitled),
            Cell(f"{messages:,}", str(messages)),
            Cell(count(session.token_count), str(session.token_count)),
            Cell(f"+{delegates}" if delegates else "", delegates),
            Cell(session.channel or ""),
            Cell(session.model or ""),
            Cell(ago(session.deleted_at or session.active_at), iso(session.active_at)),
        ]
        mark = Cell("".join(glyph("pin" if name == "pinned" else name) for name in marks), ",".join(marks))
        yield [mark, *cells] if is_terminal() else [*cells, mark]


def _short_ids(ids: list[str]) -> dict[str, str]:
    """Shorten made-up ids to what still names each of them here; ids that somebody chose stay as they are."""
    made = sorted(id for id in ids if len(id) == _UUID and id.count("-") == 4)  # noqa: PLR2004
    short = {id: id for id in ids}
    for at, id in enumerate(made):
        near = [made[other] for other in (at - 1, at + 1) if 0 <= other < len(made) and made[other] != id]
        size = _SHORTEST
        while any(other.startswith(id[:size]) for other in near):
            size += 1
        short[id] = id[:size]
    return short


def _remarks(found: list[Any], next: str | None, given: dict[str, Any]) -> None:
    """Say beside the list that it is empty, or that there is more."""
    if not found and any(value for value in given.values()):
        remark("No conversation fits.")
    elif not found:
        remark(f"No conversations yet in {safe(place.where())}")
    elif next and is_terminal():
        remark("There are more: -n N lists so many, --all all of them.")
