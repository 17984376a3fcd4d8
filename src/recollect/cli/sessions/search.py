"""`sessions search`: full-text search in conversations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click

from recollect.cli import options, store_access
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_page
from recollect.cli.output import (
    display_width,
    glyph,
    is_terminal,
    paint,
    print_note,
    sanitize,
    terminal_columns,
    truncate,
)
from recollect.cli.sessions import lookup
from recollect.cli.times import now
from recollect.model.humanize import escape_unprintable, format_relative
from recollect.model.value import format_iso


@click.command(cls=StoreCommand)
@click.argument("query", nargs=-1, required=True)
@options.limit()
@click.option("--in", "session", type=lookup.SessionParam(), metavar="ID", help="Only in this conversation.")
@options.after
@options.filters
@options.as_json
def search(
    *, query: tuple[str, ...], limit: int, session: str | None, after: str | None, as_json: bool, **filter_options: Any
) -> None:
    """Search messages in all conversations or in one.

    A message must contain every word. Use "a phrase" for an exact phrase, prefix* for a prefix, and OR and NOT.
    Filters: role:user, tool:read, context:WORD, model:NAME, channel:cli, label:NAME, before:2026-01-31,
    after:2026-01-01, pinned:yes, archived:yes. On a pipe, each line has tab-separated fields: conversation, message,
    role, time, title, excerpt.
    """
    filters = options.to_store_filters(filter_options)
    with store_access.open_for_reading() as store:
        if session is not None:
            filters["session"] = store.find_session(session).id
        page = store.search(" ".join(query), limit, after=after, **filters)
    if page.index_error is not None:
        print_note(
            f"The newest messages were not searched: the index could not be updated. {sanitize(page.index_error)}"
        )
    if as_json:
        print_page("hits", page, page.next)
        return
    if is_terminal():
        _print_hits(page)
    else:
        for hit in page:
            click.echo(_format_line(hit))
    if not page:
        print_note("No matching messages.")
    elif page.next and is_terminal():
        print_note("There are more results. Use -n N to show them.")


def _format_line(hit: Any) -> str:
    fields = (
        escape_unprintable(hit.session),
        hit.message or "",
        hit.role or "",
        format_iso(hit.created_at_ms),
        hit.title or "",
        hit.text,
    )
    return "\t".join(sanitize(field) for field in fields)


def _print_hits(hits: Iterable[Any]) -> None:
    """Print hits grouped by conversation, in the order of the search."""
    dot = f" {glyph('dot')} "
    for index, (session, group) in enumerate(itertools.groupby(hits, key=lambda hit: hit.session)):
        session_hits = list(group)
        title = paint(truncate(sanitize(session_hits[0].title or "(no title)"), terminal_columns()), bold=True)
        id = paint(truncate(escape_unprintable(session), terminal_columns()), fg="cyan")
        click.echo(f"{'' if index == 0 else chr(10)}{title}\n{id}")
        for hit in session_hits:
            facts = [hit.message or "title", hit.tool or hit.role, format_relative(hit.created_at_ms, now())]
            click.echo("  " + paint(dot.join(sanitize(fact) for fact in facts if fact), dim=True))
            for line in _format_excerpt(hit.text, hit.marks, terminal_columns() - 4):
                click.echo(f"    {line}")


def _format_excerpt(text: str, marks: Iterable[tuple[int, int]], max_width: int) -> Iterator[str]:
    """Wrap an excerpt into lines, with matches in color. Marks are positions in the unsanitized text."""
    lines: list[str] = [""]
    width = offset = 0
    for start, end in [*marks, (len(text), len(text))]:
        for piece, is_match in ((text[offset:start], False), (text[start:end], True)):
            for word in re.findall(r"\S+|\s+", sanitize(piece)):
                if width and width + display_width(word) > max_width:
                    lines.append("")
                    width = 0
                if width or word.strip():
                    lines[-1] += paint(word, fg="yellow", bold=True) if is_match and word.strip() else word
                    width += display_width(word)
        offset = end
    return (line.rstrip() for line in lines)
