"""`sessions search`: what was said, and where."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click

from recollect.cli import names, options, place
from recollect.cli.document import print_page
from recollect.cli.group import Command
from recollect.cli.moment import ago
from recollect.cli.screen import columns, cut, glyph, is_terminal, paint, remark, safe, width
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
    with place.reading() as store:
        if session is not None:
            asked["session"] = store.find_session(session).id
        found = store.search(" ".join(query), limit, after=after, **asked)
    if found.hindered is not None:
        remark(f"What was said last was not looked at, because it could not be indexed: {safe(found.hindered)}")
    if as_json:
        print_page("hits", found, found.next)
        return
    if is_terminal():
        _lay_out(found)
    else:
        for hit in found:
            click.echo(_line(hit))
    if not found:
        remark("Nothing was found.")
    elif found.next and is_terminal():
        remark("There is more: -n N shows so many.")


def _line(hit: Any) -> str:
    fields = (hit.session, hit.message or "", hit.role or "", iso(hit.created_at), hit.title or "", hit.text)
    return "\t".join(safe(field) for field in fields)


def _lay_out(hits: Iterable[Any]) -> None:
    """Print hits under the conversation they are in; the order stays that of the search."""
    dot = f" {glyph('dot')} "
    for at, (session, group) in enumerate(itertools.groupby(hits, key=lambda hit: hit.session)):
        found = list(group)
        title = paint(cut(safe(found[0].title or "(no title)"), columns()), bold=True)
        click.echo(f"{'' if at == 0 else chr(10)}{title}\n{paint(cut(session, columns()), fg='cyan')}")
        for hit in found:
            facts = [hit.message or "title", hit.tool or hit.role, ago(hit.created_at)]
            click.echo("  " + paint(dot.join(safe(fact) for fact in facts if fact), dim=True))
            for line in _excerpt(hit.text, hit.marks, columns() - 4):
                click.echo(f"    {line}")


def _excerpt(text: str, marks: Iterable[tuple[int, int]], room: int) -> Iterator[str]:
    """Lay an excerpt out in lines, with what was found in colour. Marks count in the text as it came."""
    lines: list[str] = [""]
    used = done = 0
    for start, end in [*marks, (len(text), len(text))]:
        for piece, found in ((text[done:start], False), (text[start:end], True)):
            for word in re.findall(r"\S+|\s+", safe(piece)):
                if used and used + width(word) > room:
                    lines.append("")
                    used = 0
                if used or word.strip():
                    lines[-1] += paint(word, fg="yellow", bold=True) if found and word.strip() else word
                    used += width(word)
        done = end
    return (line.rstrip() for line in lines)
