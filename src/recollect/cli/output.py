"""Output of commands: text that is safe for a terminal, its width and colors, tables, and a progress bar."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import click

# Characters that could control a terminal or change the direction of a line: the categories Cc, Cf, Cs, Zl and Zp,
# except the two joiners that scripts and emoji need. A test compares the pattern with all of Unicode.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_DELETE = 0x7F  # the one control character above the space in ASCII
_JOINERS = "\u200c\u200d"
# Below 40 columns a table is unreadable; above 200 the eye loses the row.
_MIN_COLUMNS, _DEFAULT_COLUMNS, _MAX_COLUMNS = 40, 80, 200
_GLYPHS = {"pin": ("★", "*"), "archived": ("▪", "#"), "more": ("…", "~"), "call": ("→", ">"), "result": ("←", "<"),
           "good": ("✓", "ok"), "bad": ("✗", "x"), "fork": ("└", "+"), "dot": ("·", "-"), "bar": ("█", "#"),
           "line": ("─", "-"), "role": ("●", "*"), "thought": ("┊", "|")}  # fmt: skip


def sanitize(text: str) -> str:
    """Return a text as one line that is safe for a terminal; control characters become symbols."""
    return _CONTROL_CHARACTERS.sub(_control_picture, text) if not text.isprintable() else text


def sanitize_lines(text: str) -> list[str]:
    """Return the lines of a text, each safe for a terminal."""
    if text.isprintable():
        return [text] if text else []
    return [sanitize(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def _control_picture(match: re.Match[str]) -> str:
    """Return Unicode's symbol for a control character, or else the replacement character."""
    code = ord(match[0])
    if match[0] in "\t\n":
        return " "
    if code < ord(" "):
        return chr(0x2400 + code)
    return "\u2421" if code == _DELETE else "\ufffd"


def display_width(text: str) -> int:
    """Return the number of columns that a sanitized text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


@functools.cache
def _character_width(character: str) -> int:
    import unicodedata  # noqa: PLC0415  takes a megabyte that ASCII does not need

    if character in _JOINERS or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def truncate(text: str, columns: int) -> str:
    """Truncate a sanitized text to a width, with an ellipsis."""
    if display_width(text) <= columns:
        return text
    mark, remaining = glyph("more"), columns - 1
    characters: list[str] = []
    for character in text:
        remaining -= _character_width(character)
        if remaining < 0:
            break
        characters.append(character)
    return "".join(characters).rstrip() + mark


def pad(text: str, columns: int, align: str = "<") -> str:
    """Pad a sanitized text to a width."""
    space = " " * max(columns - display_width(text), 0)
    return space + text if align == ">" else text + space


def is_terminal() -> bool:
    """Return whether standard output is a terminal now."""
    return sys.stdout.isatty()


def terminal_columns() -> int:
    """Return the number of columns for the output: COLUMNS, or else the width of the terminal."""
    variable = os.environ.get("COLUMNS", "")
    if variable.isdecimal() and len(variable) < 6 and int(variable):  # noqa: PLR2004
        columns = int(variable)
    else:
        try:
            columns = os.get_terminal_size(sys.stdout.fileno()).columns or _DEFAULT_COLUMNS
        except (OSError, ValueError):
            columns = _DEFAULT_COLUMNS
    return min(max(columns, _MIN_COLUMNS), _MAX_COLUMNS)


def color_preference() -> bool | None:
    """Return whether the environment asks for color; None means color only on a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def glyph(name: str) -> str:
    """Return a symbol that the output can encode."""
    unicode, plain = _GLYPHS[name]
    return unicode if _supports_unicode(getattr(sys.stdout, "encoding", None) or "ascii") else plain


@functools.cache
def _supports_unicode(encoding: str) -> bool:
    try:
        "★…→✓─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def paint(text: str, **style: Any) -> str:
    """Return a sanitized text with a style, which click removes if the output is not a terminal."""
    return click.style(text, **style)


def print_error(text: str) -> None:
    """Print an error to standard error, as one line."""
    click.echo(f"recollect: {sanitize(text)}", err=True)


def print_note(text: str) -> None:
    """Print a notice to standard error."""
    click.echo(sanitize(text), err=True)


_GAP = "  "
_MIN_COLUMN_WIDTH = 6  # columns; a shorter text is useless, so a wider table overflows instead


class Column(NamedTuple):
    """A table column and its behavior on a narrow terminal.

    A column with a `min_width` is narrowed down to it. Then columns are dropped, those with the highest `drop` first
    and those with 0 never. If the table is still too wide, columns with a `min_width` are narrowed further.
    """

    title: str
    align: str = "<"
    min_width: int | None = None
    drop: int = 0
    style: dict[str, Any] = {}  # noqa: RUF012  never changed


class Cell(NamedTuple):
    """The text for a person, the value for a program, and an optional style of its own."""

    text: str
    value: str | None = None
    style: dict[str, Any] | None = None


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table; on a pipe, tab-separated values without titles, truncation or color."""
    if not is_terminal():
        for row in rows:
            click.echo("\t".join(sanitize(cell.text if cell.value is None else cell.value) for cell in row))
        return
    for line in format_table(columns, rows, terminal_columns()):
        click.echo(line)


def format_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], max_width: int) -> list[str]:
    """Return the lines of a table at most `max_width` wide. Empty columns are left out."""
    clean = [[cell._replace(text=sanitize(cell.text)) for cell in row] for row in rows]
    visible = [index for index in range(len(columns)) if any(row[index].text for row in clean)]
    widths = {
        index: max([display_width(columns[index].title), *(display_width(row[index].text) for row in clean)])
        for index in visible
    }
    visible = _drop_columns(columns, visible, widths, max_width)
    _shrink_columns(columns, visible, widths, max_width)
    lines = [_join_cells([paint(_format_title(columns[index], widths[index]), dim=True) for index in visible])]
    lines += [
        _join_cells(
            [_format_cell(columns[index], row[index], widths[index], last=index == visible[-1]) for index in visible]
        )
        for row in clean
    ]
    return lines


def _join_cells(cells: list[str]) -> str:
    return _GAP.join(cells).rstrip()


def _format_title(column: Column, width: int) -> str:
    return pad(truncate(column.title, width), width, column.align)


def _format_cell(column: Column, cell: Cell, width: int, *, last: bool) -> str:
    text = truncate(cell.text, width)
    content = text if last and column.align == "<" else pad(text, width, column.align)
    style = column.style if cell.style is None else cell.style
    return paint(content, **style) if style else content


def _min_width(columns: Sequence[Column], visible: list[int], widths: dict[int, int]) -> int:
    minimums = [min(columns[index].min_width or widths[index], widths[index]) for index in visible]
    return sum(minimums) + len(_GAP) * (len(visible) - 1)


def _drop_columns(columns: Sequence[Column], visible: list[int], widths: dict[int, int], max_width: int) -> list[int]:
    """Drop columns until the others fit at their minimum widths."""
    visible = list(visible)
    while _min_width(columns, visible, widths) > max_width:
        candidate = max(visible, key=lambda index: columns[index].drop, default=None)
        if candidate is None or not columns[candidate].drop:
            break
        visible.remove(candidate)
    return visible


def _shrink_columns(columns: Sequence[Column], visible: list[int], widths: dict[int, int], max_width: int) -> None:
    """Narrow columns until the table fits, first the widest in relation to their minimum."""
    minimums = {index: columns[index].min_width or 0 for index in visible if columns[index].min_width is not None}
    excess = sum(widths[index] for index in visible) + len(_GAP) * (len(visible) - 1) - max_width
    while excess > 0:
        shrinkable = [index for index in minimums if widths[index] > minimums[index]] or [
            index for index in minimums if widths[index] > _MIN_COLUMN_WIDTH
        ]
        if not shrinkable:
            return
        widths[max(shrinkable, key=lambda index: widths[index] / minimums[index])] -= 1
        excess -= 1


_REDRAW_SECONDS = 0.1  # often enough to look smooth, rare enough to cost nothing
_BAR_WIDTH = 24  # characters


class ProgressBar:
    """A progress bar on standard error: `with ProgressBar("Copying") as progress: work(progress)`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._enabled = sys.stderr.isatty()
        self._last_draw = 0.0
        self._has_output = False

    def __call__(self, done: int, total: int | None = None, *, label: str | None = None) -> None:
        """Draw the progress, at most ten times per second. Draw nothing if standard error is not a terminal."""
        now = time.monotonic()
        if not self._enabled or now - self._last_draw < _REDRAW_SECONDS:
            return
        self._last_draw, self._has_output = now, True
        click.echo(f"\r\x1b[2K{label or self._label} {_format_bar(done, total)}", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_output:
            click.echo("\r\x1b[2K", err=True, nl=False)


def _format_bar(done: int, total: int | None) -> str:
    if not total:
        return f"{done:,}"
    fraction = min(done / total, 1.0)
    return f"[{'#' * int(fraction * _BAR_WIDTH):<{_BAR_WIDTH}}] {fraction:4.0%}"
