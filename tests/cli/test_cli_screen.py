"""What is made of text, times, sizes and tables before it is printed."""

from __future__ import annotations

import sys
import time
import unicodedata

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.cli import moment, screen
from recollect.cli.progress import Progress
from recollect.cli.table import Cell, Column, laid_out
from recollect.model import amount
from recollect.model.value import milliseconds

DAY = 86_400_000
NOON = 1_763_294_400_000
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other work shares the machine


def test_all_of_unicode_that_could_steer_is_replaced_and_nothing_else():
    replaced, kept = [], []
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        steers = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\u200c\u200d"
        if steers and screen.safe(char) == char:
            kept.append(hex(code))
        elif not steers and screen.safe(char) != char and unicodedata.category(char) != "Cn":
            replaced.append(hex(code))
    assert (kept, replaced) == ([], [])


@calm
@given(st.text())
def test_a_safe_text_is_one_line_that_can_be_printed(text):
    shown = screen.safe(text)
    assert len(shown) == len(text)
    assert not set(shown) & set("\x1b\n\r\t\x07\x7f\x9b\u202e\u2028")
    shown.encode()


@calm
@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])), st.integers(1, 30))
def test_a_cut_text_is_never_wider_than_asked(text, columns):
    shown = screen.cut(screen.safe(text), columns)
    assert screen.width(shown) <= max(columns, 1)


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0), ("\U0001f600", 2), ("a\u200db", 2), ("ｱ", 1)],
)
def test_width(text, columns):
    assert screen.width(text) == columns


def test_pictures_of_control_characters():
    assert screen.safe("a\x1b\x00\x7f\x9b\tb") == "a␛␀␡\ufffd b"
    assert screen.safe_lines("a\tb\r\nc\n\nd\r") == ["a   b", "c", "", "d␍"]


@pytest.mark.parametrize(
    ("passed", "told"),
    [(0, "just now"), (-30_000, "just now"), (61_000, "1m ago"), (3_600_000, "1h ago"), (DAY, "1d ago"),
     (6 * DAY, "6d ago"), (60 * DAY, "17 Sep"), (400 * DAY, "2024-10-12"), (-2 * DAY, "2025-11-18")],
)  # fmt: skip
def test_how_long_ago(monkeypatch, passed, told):
    monkeypatch.setenv("TZ", "UTC")
    assert moment.ago(NOON - passed, NOON) == told


def test_a_time_beyond_the_calendar():
    assert moment.ago(1 << 62)


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (3400, "3.4k"), (99_999, "100k"), (999_999, "1.0M"), (10**15, "1000000G")],
)
def test_short_counts(number, told):
    assert amount.count(number) == told


@pytest.mark.parametrize(("number", "told"), [(0, "0 B"), (1500, "1.5 kB"), (12 * 10**6, "12 MB"), (10**13, "10 TB")])
def test_short_sizes(number, told):
    assert amount.size(number) == told


@pytest.mark.parametrize(
    ("number", "told"), [(None, ""), (0, "0 ms"), (340.4, "340 ms"), (2100, "2.1 s"), (180_000, "3.0 min")]
)
def test_spans(number, told):
    assert amount.lasting(number) == told


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1970-01-02T00:00:00Z", DAY),
        ("1970-01-02T00:00:00+01:00", DAY - 3_600_000),
        ("1970-01-02T00:00:00.5Z", DAY + 500),
    ],
)
def test_moments(text, value):
    assert moment.Moment().convert(text, None, None) == value


def test_moments_before_now(monkeypatch):
    monkeypatch.setattr(moment, "now", lambda: NOON)
    assert moment.Moment().convert("7d", None, None) == NOON - 7 * DAY
    yesterday, today = (moment.Moment().convert(text, None, None) for text in ("yesterday", "today"))
    assert 23 * 3_600_000 <= today - yesterday <= 25 * 3_600_000


@pytest.mark.parametrize(
    ("text", "value"), [("2025-11", "2025-11-01T00:00"), ("2025", "2025-01-01T00:00"), ("Today", "2025-11-16T00:00")]
)
def test_a_moment_without_a_zone_is_meant_here(monkeypatch, text, value):
    monkeypatch.setattr(moment, "now", lambda: NOON)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert moment.Moment().convert(text, None, None) == milliseconds(f"{value}+09:00")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "-7d", "7 parsecs", "9999999999y", "\x1b"])
def test_what_is_no_moment(text):
    with pytest.raises(click.BadParameter):
        moment.Moment().convert(text, None, None)


SHAPE = (Column("ID", least=6), Column("TITLE", least=8), Column("N", ">", drop=1), Column("MODEL", least=5, drop=2))


@calm
@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=30)] * 4), max_size=5),
    st.integers(40, 120),
)
def test_a_table_is_never_wider_than_its_room(rows, room):
    lines = laid_out(SHAPE, [[Cell(text) for text in row] for row in rows], room)
    assert len(lines) == len(rows) + 1
    assert [line for line in lines if screen.width(click.unstyle(line)) > room] == []


def test_what_is_empty_is_left_out_and_what_matters_least_goes_first():
    row = [Cell("1"), Cell("t" * 60), Cell(""), Cell("m" * 60)]
    assert "N" not in click.unstyle(laid_out(SHAPE, [row], 200)[0]).split()
    assert "MODEL" not in laid_out(SHAPE, [[Cell("i" * 30), Cell("t" * 60), Cell("1" * 20), Cell("m" * 60)]], 40)[0]


def test_progress_is_silent_without_a_terminal(capsys):
    with Progress("Copying") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_leaves_nothing_behind(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("Copying") as progress:
        progress(1, 2)
        progress(2, 2)
        progress(3)
    shown = capsys.readouterr().err
    assert "Copying [############            ]  50%" in shown
    assert shown.endswith("\r\x1b[2K")
