"""`sessions list`: the list of conversations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from recollect.cli import options, store_access
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_page
from recollect.cli.output import Cell, Column, glyph, is_terminal, print_note, print_table, sanitize
from recollect.cli.times import now
from recollect.model.humanize import escape_unprintable, format_count, format_relative
from recollect.model.value import format_iso

_PAGE = 1_000  # sessions per query with --all; the maximum of the store
_UUID_LENGTH = 36  # characters of a generated id
_MIN_ID_LENGTH = 13  # characters of a UUIDv7: its timestamp, which is almost always unique

_COLUMNS = (
    Column("", style={"fg": "yellow"}),
    Column("ID", min_width=13, style={"fg": "cyan"}),
    Column("TITLE", min_width=24, style={"bold": True}),
    Column("MSGS", ">", drop=1),
    Column("TOKENS", ">", drop=4),
    Column("SUBS", ">", drop=2, style={"dim": True}),
    Column("CHANNEL", min_width=8, drop=5, style={"dim": True}),
    Column("MODEL", min_width=12, drop=3, style={"dim": True}),
    Column("ACTIVE", style={"fg": "green"}),
)


@click.command("list", cls=StoreCommand)
@options.limit()
@click.option("--all", "everything", is_flag=True, help="List all conversations.")
@options.after
@click.option(
    "--sort",
    type=click.Choice(["activity", "created", "title"]),
    default="activity",
    show_default=True,
    help="Sort by latest activity, by creation (newest first), or by title.",
)
@click.option("--oldest-first", is_flag=True, help="Reverse the order: oldest first, or titles from Z to A.")
@click.option("--pinned-first", is_flag=True, help="List pinned conversations first.")
@options.filters
@options.as_json
def list_(*, limit: int, everything: bool, after: str | None, sort: str, as_json: bool, **filter_options: Any) -> None:
    """List conversations, most recently active first.

    Leaves out archived conversations, those of sub-agents and the trash, unless an option includes them. On a pipe,
    each line has tab-separated fields: id, title, messages, tokens, sub-agents, channel, model, last activity, marks.
    """
    filters = options.to_store_filters(filter_options)
    if sort != "activity":
        filters["order"] = sort
    with store_access.open_for_reading() as store:
        page = store.list_sessions(_PAGE if everything else limit, after=after, **filters)
        sessions: list[Any] = list(page)
        while everything and page.next:
            page = store.list_sessions(_PAGE, after=page.next, **filters)
            sessions += page
        counts = [] if as_json else store.shown_counts(sessions)
    if as_json:
        print_page("sessions", sessions, page.next)
        return
    columns = (*_COLUMNS[:-1], _COLUMNS[-1]._replace(title="DELETED")) if filter_options["trash"] else _COLUMNS
    print_table(columns, list(_rows(sessions, counts)))
    _print_notes(sessions, page.next, filter_options)


def _rows(sessions: list[Any], counts: list[int]) -> Iterator[list[Cell]]:
    short_ids = _short_ids([session.id for session in sessions])
    for session, messages in zip(sessions, counts, strict=True):
        info = session.info
        marks = [name for name, at in (("pinned", info.pinned_at_ms), ("archived", info.archived_at_ms)) if at]
        delegates = str(session.delegate_count or "")
        title_style = None if session.title else {"dim": True}
        cells = [
            Cell(escape_unprintable(short_ids[session.id]), escape_unprintable(session.id)),
            Cell(session.title or glyph("line"), session.title or "", title_style),
            Cell(f"{messages:,}", str(messages)),
            Cell(format_count(session.token_count), str(session.token_count)),
            Cell(f"+{delegates}" if delegates else "", delegates),
            Cell(session.channel or ""),
            Cell(session.model or ""),
            Cell(format_relative(info.deleted_at_ms or info.active_at_ms, now()), format_iso(info.active_at_ms)),
        ]
        mark = Cell("".join(glyph("pin" if name == "pinned" else name) for name in marks), ",".join(marks))
        yield [mark, *cells] if is_terminal() else [*cells, mark]


def _short_ids(ids: list[str]) -> dict[str, str]:
    """Return each id with its short form: generated ids as a prefix that is unique in this list, others unchanged."""
    uuids = sorted(id for id in ids if len(id) == _UUID_LENGTH and id.count("-") == 4)  # noqa: PLR2004
    result = {id: id for id in ids}
    for index, id in enumerate(uuids):
        neighbors = [uuids[other] for other in (index - 1, index + 1) if 0 <= other < len(uuids) and uuids[other] != id]
        length = _MIN_ID_LENGTH
        while any(other.startswith(id[:length]) for other in neighbors):
            length += 1
        result[id] = id[:length]
    return result


def _print_notes(sessions: list[Any], next: str | None, filter_options: dict[str, Any]) -> None:
    """Print a notice if the list is empty or incomplete."""
    if not sessions and any(value for value in filter_options.values()):
        print_note("No matching conversations.")
    elif not sessions:
        print_note(f"No conversations yet in {sanitize(store_access.database_location())}.")
    elif next and is_terminal():
        print_note("There are more conversations. Use -n N or --all to list them.")
