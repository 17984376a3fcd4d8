"""Markdown tables on platforms that have none: laid out, cut between messages, and written by someone hostile."""

from __future__ import annotations

import re

import pytest

from recollect.channels.bot.splitting import split, utf16
from recollect.channels.bot.tables import laid_out

TABLE = "| name | age |\n|---|---:|\n| ann | 7 |\n| bob | 41 |"
SHOWN = "```\nname  age\n────  ───\nann   7\nbob   41\n```"


@pytest.mark.parametrize(
    "around", ["{}", "before\n{}\n\nafter", "```\ncode\n```\n{}\n```\n| a |\n|---|\n```", "\n\n{}\n"]
)
def test_a_table_is_laid_out_and_what_is_around_it_stays(around):
    assert laid_out(around.format(TABLE)) == around.format(SHOWN)


@pytest.mark.parametrize("text", [
    "a | b", "a | b\nc | d", "a | b\n---", "no pipes\n|---|", "|---|", "```\n" + TABLE + "\n```", "```\n" + TABLE,
    "a | b\n|---|-x-|\nc | d", "a | b\n|---||\n",
])  # fmt: skip
def test_what_is_no_table_stays(text):
    assert laid_out(text) == text


def test_a_row_of_more_columns_than_fit_is_written_in_lines():
    wide = "|" + "x|" * 60
    assert laid_out(f"| a | b |\n|---|---|\n{wide}").startswith("- **a**: x\n- **b**: x\n- x\n")


def test_a_table_that_is_cut_has_its_head_again():
    rows = [f"| row {n} | {n * n} |" for n in range(400)]
    text = "Here it is:\n\n" + "\n".join(["| name | square |", "|:---|---:|", *rows]) + "\n\nThat was all."
    pieces = split(text, 1_000, lambda piece: max(utf16(piece), utf16(laid_out(piece))))
    assert len(pieces) > 3
    for piece in pieces[1:]:
        assert piece.startswith("| name | square |\n|:---|---:|\n| row ")
    for piece in pieces:
        shown = laid_out(piece)
        assert "|" not in shown
        assert len(re.findall("name +square\n", shown)) == 1
        assert len(shown) <= 1_000
    said = [line for piece in pieces for line in piece.split("\n") if line.startswith("| row")]
    assert said == rows
    assert pieces[-1].endswith("That was all.")


def test_a_second_table_does_not_get_the_head_of_the_first():
    first, second = (f"| {name} |\n|---|\n" + "\n".join(f"| {name} {n} |" for n in range(20)) for name in "ab")
    one, other = split(f"{first}\n\n{second}", len(first) + 30)
    assert (one, other) == (first, second)


@pytest.mark.parametrize("text", [
    "|" * 200_000, "|\n" * 100_000, "| " * 100_000 + "\n" + "-" * 100_000, "a|b\n" + " " * 200_000 + "x",
    "|a\n" + "|-" * 100_000 + "x", "a|b\n" + "-| " * 70_000 + "\n|\n" + "c\n|" * 50_000,
    "|a|\n|-|\n" + "|" * 20_000 + "\n" + "|\n" * 20_000, "|" + "**" * 50_000 + "|\n|-|\n|" + "`" * 99_999 + "|",
])  # fmt: skip
def test_hostile_tables_take_no_more_than_their_length(text):
    assert isinstance(laid_out(text), str)  # minutes, or all of the memory, where it grows with the square
