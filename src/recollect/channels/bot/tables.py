"""Markdown tables for platforms that have none: in columns of a code block, or as lines where they have no head."""

from __future__ import annotations

import re
import unicodedata

from recollect.channels.bot.splitting import is_rule, outside_blocks

_CELL = re.compile(r"(?<!\\)\|")
_WIDEST = 48


def laid_out(text: str) -> str:
    """Give a text with its tables written so that they can be read without tables. Code blocks stay as they are."""
    return outside_blocks(text, _without_tables)


def _without_tables(text: str) -> str:
    """Write the tables of a text without code blocks. Each line is looked at once: a model may write a million."""
    if "|" not in text:
        return text
    lines, given, at = text.split("\n"), list[str](), 0
    while at < len(lines):
        end = at + 1
        if "|" in lines[at] and end < len(lines) and is_rule(lines[end]):
            end += 1
            while end < len(lines) and "|" in lines[end]:
                end += 1
            given.append(_written(lines[at:end]))
        else:
            given.append(lines[at])
        at = end
    return "\n".join(given)


def _written(table: list[str]) -> str:
    head, _, *body = [_cells(line) for line in table]
    rows = [row for row in body if any(row)]
    if not any(head):
        told = "\n".join(_pair(row) for row in rows)
        return told or "\n".join(table)  # no platform takes a message without a word
    plain = [[_bare(cell) for cell in row] for row in (head, *rows)]
    count = max(len(row) for row in plain)
    if 2 * count > _WIDEST:
        return _records(head, rows)
    grid = [row + [""] * (count - len(row)) for row in plain]
    widths = [max(_width(row[column]) for row in grid) for column in range(count)]
    if sum(widths) + 2 * count > _WIDEST:
        return _records(head, rows)
    lines = ["  ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
    lines.insert(1, "  ".join("\u2500" * width for width in widths))
    return "```\n" + "\n".join(lines).replace("```", "'''") + "\n```"


def _cells(line: str) -> list[str]:
    trimmed = line.strip()
    trimmed = trimmed.removeprefix("|")
    trimmed = trimmed[:-1] if trimmed.endswith("|") and not trimmed.endswith("\\|") else trimmed
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(trimmed)]


def _pair(row: list[str]) -> str:
    first, *rest = row
    told = " \u00b7 ".join(cell for cell in rest if cell)
    return f"**{first}**: {told}" if first else told


def _records(head: list[str], rows: list[list[str]]) -> str:
    return "\n\n".join(_record(head, row) for row in rows) or " | ".join(head)


def _record(head: list[str], row: list[str]) -> str:
    """Write a row of a table that is too wide for a phone: each value on a line, after the name of its column."""
    named = [
        f"- **{_bare(name)}**: {cell}" if name else f"- {cell}" for name, cell in zip(head, row, strict=False) if cell
    ]
    return "\n".join([*named, *(f"- {cell}" for cell in row[len(head) :] if cell)])


def _bare(cell: str) -> str:
    """Give a cell without the marks that a code block would show."""
    return re.sub(r"(\*\*|__|`)(.+?)\1", r"\2", cell)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
