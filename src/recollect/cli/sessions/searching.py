"""`sessions search`: what was said, and where."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli import names, options, place
from recollect.cli.document import print_page
from recollect.cli.group import Command
from recollect.cli.moment import ago
from recollect.cli.screen import columns, cut, glyph, is_terminal, paint, remark, safe
from recollect.model.value import iso


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@options.limit()
@click.option("--in", "session", type=names.Name(), metavar="ID", help="Only in this conversation.")
@options.after
@options.filters
@options.as_json
def search(
    *, query: tuple[str, ...], limit: int, session: str | None, after: str | None, as_json: bool, **given: Any
) -> None:
    """Find what was said, in all conversations or in one.

    Words must all be there; "a phrase" as it stands; begin* by its beginning; OR, NOT. Also role:user, tool:read,
    model:NAME, channel:cli, before:2026-01-31, after:2026-01-01, pinned:yes, archived:yes. On a terminal hits are laid
    out. On a pipe each line has, between tabs: conversation, message, role, time, title, excerpt.
    """
    asked = options.chosen(given)
    with place.reading() as opened:
        store: Any = opened
        if session is not None:
            asked["session"] = store.find_session(session).id
        found = store.search(" ".join(query), limit, after=after, **asked)
    if as_json:
        print_page("hits", found, found.next)
        return
    for hit in found:
        click.echo(_laid_out(hit) if is_terminal() else _line(hit))
    if not found:
        remark("Nothing was found.")
    elif found.next and is_terminal():
        remark("There is more: -n N shows so many.")


def _line(hit: Any) -> str:
    fields = (hit.session, hit.message or "", hit.role or "", iso(hit.created_at), hit.title or "", hit.text)
    return "\t".join(safe(field) for field in fields)


def _laid_out(hit: Any) -> str:
    """Lay a hit out in two lines: where it is, and the excerpt with what was found marked."""
    dot = f" {glyph('dot')} "
    place = dot.join(
        safe(part) for part in (hit.session, hit.message, hit.tool or hit.role, ago(hit.created_at)) if part
    )
    room = columns()
    title = paint(cut(safe(hit.title or "(no title)"), room), bold=True)
    return f"{title}\n{paint(cut(place, room), dim=True)}\n  {_marked(hit.text, hit.marks)}\n"


def _marked(text: str, marks: list[tuple[int, int]]) -> str:
    """Colour what was found in an excerpt. Marks count in the text as it came, so each piece is made safe by itself."""
    pieces: list[str] = []
    done = 0
    for start, end in marks:
        pieces += [safe(text[done:start]), paint(safe(text[start:end]), fg="yellow", bold=True)]
        done = end
    return "".join([*pieces, safe(text[done:])])
