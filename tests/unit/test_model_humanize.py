"""Relative times and truncated text."""

from __future__ import annotations

import datetime

import pytest

from recollect.model import humanize

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOON = int(datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC).timestamp() * 1000)
TOKYO = datetime.timezone(datetime.timedelta(hours=9))


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (NOON, "now"), (NOON - 59_999, "now"), (NOON + 59_999, "now"), (NOON - MINUTE, "1 min ago"),
        (NOON - HOUR + 1, "59 min ago"), (NOON - HOUR, "1 h ago"), (NOON - 12 * HOUR, "12 h ago"),
        (NOON - 12 * HOUR - 1, "yesterday"), (NOON - 2 * DAY, "Sun"), (NOON - 6 * DAY, "Wed"), (NOON - 7 * DAY, "3 Mar"),
        (NOON - 400 * DAY, "3 Feb 2025"), (NOON + 2 * HOUR, "10 Mar"), (NOON + 3 * DAY, "13 Mar"), (1 << 62, "31 Dec 9999"),
        (0, "1 Jan 1970"),
    ],
)  # fmt: skip
def test_relative_times(time_ms, text):
    assert humanize.format_relative(time_ms, NOON, datetime.UTC) == text


def test_days_are_in_the_time_zone():
    just_after_midnight_in_tokyo = NOON + 4 * HOUR
    assert humanize.format_relative(NOON, just_after_midnight_in_tokyo, datetime.UTC) == "4 h ago"
    assert humanize.format_relative(NOON, just_after_midnight_in_tokyo, TOKYO) == "yesterday"


@pytest.mark.parametrize(
    ("text", "limit", "result"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab\u2026"),
        ("", 0, ""),
        ("abc", 1, "\u2026"),
        ("abc", 0, "\u2026"),
        ("a\nb c", 9, "a\nb c"),
    ],
)
def test_truncate(text, limit, result):
    assert humanize.truncate(text, limit) == result


def test_one_line_and_clause():
    assert humanize.one_line(" a\n\tb  c ", 20) == "a b c"
    assert humanize.one_line("a\nbcd", 4) == "a b\u2026"
    assert humanize.clause("It failed.\n", 20) == "It failed"
    assert humanize.clause("One. Two.", 20) == "One. Two"
