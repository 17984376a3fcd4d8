"""Tables: as wide as the terminal for a person, and tab-separated values where the output is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from recollect.cli.screen import columns, cut, is_terminal, pad, paint, safe, width

_GAP = "  "
_NARROWEST = 6


class Column(NamedTuple):
    """A column: its title, and what happens to it where the terminal is narrow.

    One with a `least` width is cut down to it; those with the highest `drop` are left out first, with 0 never. Where
    even that is too wide, what can be cut is cut further.
    """

    title: str
    align: str = "<"
    least: int | None = None
    drop: int = 0
    style: dict[str, Any] = {}  # noqa: RUF012  never changed


class Cell(NamedTuple):
    """What a person sees, what a program gets, and a colour of its own."""

    text: str
    value: str | None = None
    style: dict[str, Any] | None = None


def print_table(shape: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows under their titles; without titles, cuts and colours where no person looks."""
    if not is_terminal():
        for row in rows:
            click.echo("\t".join(safe(cell.text if cell.value is None else cell.value) for cell in row))
        return
    for line in laid_out(shape, rows, columns()):
        click.echo(line)


def laid_out(shape: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> list[str]:
    """Lay a table out in so many columns. What is empty all the way down is left out."""
    clean = [[cell._replace(text=safe(cell.text)) for cell in row] for row in rows]
    kept = [at for at in range(len(shape)) if any(row[at].text for row in clean)]
    widths = {at: max([width(shape[at].title), *(width(row[at].text) for row in clean)]) for at in kept}
    kept = _dropped(shape, kept, widths, room)
    _squeeze(shape, kept, widths, room)
    lines = [_line([paint(_title(shape[at], widths[at]), dim=True) for at in kept])]
    lines += [_line([_painted(shape[at], row[at], widths[at], last=at == kept[-1]) for at in kept]) for row in clean]
    return lines


def _line(cells: list[str]) -> str:
    return _GAP.join(cells).rstrip()


def _title(column: Column, size: int) -> str:
    return pad(cut(column.title, size), size, column.align)


def _painted(column: Column, cell: Cell, size: int, *, last: bool) -> str:
    text = cut(cell.text, size)
    filled = text if last and column.align == "<" else pad(text, size, column.align)
    style = column.style if cell.style is None else cell.style
    return paint(filled, **style) if style else filled


def _smallest(shape: Sequence[Column], kept: list[int], widths: dict[int, int]) -> int:
    least = [min(shape[at].least or widths[at], widths[at]) for at in kept]
    return sum(least) + len(_GAP) * (len(kept) - 1)


def _dropped(shape: Sequence[Column], kept: list[int], widths: dict[int, int], room: int) -> list[int]:
    """Leave columns out until the rest fits when it is cut."""
    kept = list(kept)
    while _smallest(shape, kept, widths) > room:
        worst = max(kept, key=lambda at: shape[at].drop, default=None)
        if worst is None or not shape[worst].drop:
            break
        kept.remove(worst)
    return kept


def _squeeze(shape: Sequence[Column], kept: list[int], widths: dict[int, int], room: int) -> None:
    """Cut columns until the table fits, first those that are widest for what they need."""
    least = {at: shape[at].least or 0 for at in kept if shape[at].least is not None}
    over = sum(widths[at] for at in kept) + len(_GAP) * (len(kept) - 1) - room
    while over > 0:
        able = [at for at in least if widths[at] > least[at]] or [at for at in least if widths[at] > _NARROWEST]
        if not able:
            return
        widths[max(able, key=lambda at: widths[at] / least[at])] -= 1
        over -= 1
