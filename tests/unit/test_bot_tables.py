"""Markdown tables on platforms without tables: the layout, the split between messages, and hostile input."""

from __future__ import annotations

import re

import pytest

from recollect.channels.bot.chat_markdown import render_tables, split, utf16_length

TABLE = "| name | age |\n|---|---:|\n| ann | 7 |\n| bob | 41 |"
LAYOUT = "```\nname  age\n────  ───\nann   7\nbob   41\n```"


@pytest.mark.parametrize(
    "around", ["{}", "before\n{}\n\nafter", "```\ncode\n```\n{}\n```\n| a |\n|---|\n```", "\n\n{}\n"]
)
def test_a_table_is_laid_out_and_the_text_around_it_is_unchanged(around):
    assert render_tables(around.format(TABLE)) == around.format(LAYOUT)


@pytest.mark.parametrize("text", [
    "a | b", "a | b\nc | d", "a | b\n---", "no pipes\n|---|", "|---|", "```\n" + TABLE + "\n```", "```\n" + TABLE,
    "a | b\n|---|-x-|\nc | d", "a | b\n|---||\n",
])  # fmt: skip
def test_text_without_a_table_is_unchanged(text):
    assert render_tables(text) == text


def test_a_row_with_too_many_columns_becomes_a_list():
    wide = "|" + "x|" * 60
    assert render_tables(f"| a | b |\n|---|---|\n{wide}").startswith("- **a**: x\n- **b**: x\n- x\n")


def test_every_piece_of_a_split_table_repeats_the_header():
    rows = [f"| row {n} | {n * n} |" for n in range(400)]
    text = "Here it is:\n\n" + "\n".join(["| name | square |", "|:---|---:|", *rows]) + "\n\nThat was all."
    pieces = split(text, 1_000, lambda piece: max(utf16_length(piece), utf16_length(render_tables(piece))))
    assert len(pieces) > 3
    for piece in pieces[1:]:
        assert piece.startswith("| name | square |\n|:---|---:|\n| row ")
    for piece in pieces:
        layout = render_tables(piece)
        assert "|" not in layout
        assert len(re.findall("name +square\n", layout)) == 1
        assert len(layout) <= 1_000
    row_lines = [line for piece in pieces for line in piece.split("\n") if line.startswith("| row")]
    assert row_lines == rows
    assert pieces[-1].endswith("That was all.")


def test_a_second_table_does_not_get_the_header_of_the_first():
    first, second = (f"| {name} |\n|---|\n" + "\n".join(f"| {name} {n} |" for n in range(20)) for name in "ab")
    one, other = split(f"{first}\n\n{second}", len(first) + 30)
    assert (one, other) == (first, second)


@pytest.mark.parametrize("text", [
    "|" * 200_000, "|\n" * 100_000, "| " * 100_000 + "\n" + "-" * 100_000, "a|b\n" + " " * 200_000 + "x",
    "|a\n" + "|-" * 100_000 + "x", "a|b\n" + "-| " * 70_000 + "\n|\n" + "c\n|" * 50_000,
    "|a|\n|-|\n" + "|" * 20_000 + "\n" + "|\n" * 20_000, "|" + "**" * 50_000 + "|\n|-|\n|" + "`" * 99_999 + "|",
])  # fmt: skip
def test_hostile_tables_take_linear_time(text):
    assert isinstance(render_tables(text), str)  # quadratic code would take minutes or all memory
