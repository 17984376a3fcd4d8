"""Formatting of text, times, sizes and tables for the terminal."""

from __future__ import annotations

import sys
import time
import unicodedata

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.cli import output, times
from recollect.cli.output import Cell, Column, ProgressBar, format_table
from recollect.model import humanize
from recollect.model.value import parse_iso

DAY = 86_400_000  # milliseconds, as the store counts time
NOON = 1_763_294_400_000  # milliseconds since 1970: 2025-11-16 12:00 UTC, the same day in every usual time zone
# Other processes may slow the machine.
no_deadline = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_exactly_the_control_characters_of_unicode_are_replaced():
    wrong_replacements, missing_replacements = [], []
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        is_control = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\u200c\u200d"
        if is_control and output.sanitize(char) == char:
            missing_replacements.append(hex(code))
        elif not is_control and output.sanitize(char) != char and unicodedata.category(char) != "Cn":
            wrong_replacements.append(hex(code))
    assert (missing_replacements, wrong_replacements) == ([], [])


@no_deadline
@given(st.text())
def test_sanitized_text_is_one_printable_line(text):
    line = output.sanitize(text)
    assert len(line) == len(text)
    assert not set(line) & set("\x1b\n\r\t\x07\x7f\x9b\u202e\u2028")
    line.encode()


@no_deadline
@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])), st.integers(1, 30))
def test_truncated_text_is_never_wider_than_the_limit(text, columns):
    line = output.truncate(output.sanitize(text), columns)
    assert output.display_width(line) <= max(columns, 1)


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0), ("\U0001f600", 2), ("a\u200db", 2), ("ｱ", 1)],
)
def test_display_width(text, columns):
    assert output.display_width(text) == columns


def test_control_characters_become_symbols():
    assert output.sanitize("a\x1b\x00\x7f\x9b\tb") == "a␛␀␡\ufffd b"
    assert output.sanitize_lines("a\tb\r\nc\n\nd\r") == ["a   b", "c", "", "d␍"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (3400, "3.4k"), (99_999, "100k"), (999_999, "1.0M"), (10**15, "1000000G")],
)
def test_format_count(number, expected):
    assert humanize.format_count(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0 B"), (1500, "1.5 kB"), (12 * 10**6, "12 MB"), (10**13, "10 TB")]
)
def test_format_size(number, expected):
    assert humanize.format_size(number) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(None, ""), (0, "0 ms"), (340.4, "340 ms"), (2100, "2.1 s"), (180_000, "3 min"), (90_000, "1.5 min")],
)
def test_format_duration(milliseconds, expected):
    assert humanize.format_duration(milliseconds) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1970-01-02T00:00:00Z", DAY),
        ("1970-01-02T00:00:00+01:00", DAY - 3_600_000),
        ("1970-01-02T00:00:00.5Z", DAY + 500),
    ],
)
def test_times_with_a_zone(text, value):
    assert times.TimeParam().convert(text, None, None) == value


def test_relative_times(monkeypatch):
    monkeypatch.setattr(times, "now", lambda: NOON)
    assert times.TimeParam().convert("7d", None, None) == NOON - 7 * DAY
    yesterday, today = (times.TimeParam().convert(text, None, None) for text in ("yesterday", "today"))
    assert 23 * 3_600_000 <= today - yesterday <= 25 * 3_600_000


@pytest.mark.parametrize(
    ("text", "value"), [("2025-11", "2025-11-01T00:00"), ("2025", "2025-01-01T00:00"), ("Today", "2025-11-16T00:00")]
)
def test_a_time_without_a_zone_is_local(monkeypatch, text, value):
    monkeypatch.setattr(times, "now", lambda: NOON)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert times.TimeParam().convert(text, None, None) == parse_iso(f"{value}+09:00")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "-7d", "7 parsecs", "9999999999y", "\x1b"])
def test_invalid_times(text):
    with pytest.raises(click.BadParameter):
        times.TimeParam().convert(text, None, None)


COLUMNS = (
    Column("ID", min_width=6),
    Column("TITLE", min_width=8),
    Column("N", ">", drop=1),
    Column("MODEL", min_width=5, drop=2),
)


@no_deadline
@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=30)] * 4), max_size=5),
    st.integers(40, 120),
)
def test_a_table_is_never_wider_than_the_limit(rows, width):
    lines = format_table(COLUMNS, [[Cell(text) for text in row] for row in rows], width)
    assert len(lines) == len(rows) + 1
    assert [line for line in lines if output.display_width(click.unstyle(line)) > width] == []


def test_a_table_omits_empty_columns_and_drops_the_least_important_first():
    row = [Cell("1"), Cell("t" * 60), Cell(""), Cell("m" * 60)]
    assert "N" not in click.unstyle(format_table(COLUMNS, [row], 200)[0]).split()
    assert (
        "MODEL" not in format_table(COLUMNS, [[Cell("i" * 30), Cell("t" * 60), Cell("1" * 20), Cell("m" * 60)]], 40)[0]
    )


def test_progress_is_silent_without_a_terminal(capsys):
    with ProgressBar("Copying") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_clears_its_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ProgressBar("Copying") as progress:
        progress(1, 2)
        progress(2, 2)
        progress(3)
    screen = capsys.readouterr().err
    assert "Copying [############            ]  50%" in screen
    assert screen.endswith("\r\x1b[2K")
