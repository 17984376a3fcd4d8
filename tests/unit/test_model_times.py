"""Times and durations that callers pass."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidValue
from recollect.model.times import parse_duration, parse_time, parse_utc_offset
from recollect.model.value import format_iso

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@given(st.integers(86_400_000_000, 1 << 57).map(lambda number: EPOCH + datetime.timedelta(microseconds=number)))
def test_every_form_of_a_time_is_parsed_to_the_same_time(when):
    time_ms = parse_time(when)
    assert time_ms == (when - EPOCH) // datetime.timedelta(milliseconds=1)
    assert parse_time(time_ms) == time_ms
    assert parse_time(format_iso(time_ms)) == time_ms
    assert parse_time(when.replace(tzinfo=None)) == time_ms
    assert parse_time(when.astimezone(datetime.timezone(datetime.timedelta(hours=-7)))) == time_ms
    assert parse_time(when.date()) == time_ms - time_ms % 86_400_000


@pytest.mark.parametrize(
    "value", [None, True, 1.5, -1, 1 << 60, "", "x", "2025-02-30", b"2025", [], datetime.timedelta(1)]
)
def test_an_invalid_time_is_refused(value):
    with pytest.raises(InvalidValue, match="since"):
        parse_time(value, "since")


@pytest.mark.parametrize(
    "value", [-1, "1969-12-31T23:59:59.999Z", datetime.date(1969, 1, 1), EPOCH - datetime.timedelta(1)]
)
def test_a_time_before_1970_is_refused_with_the_reason(value):
    with pytest.raises(InvalidValue, match="created_at must be 1970 or later, got "):
        parse_time(value, "created_at")


@pytest.mark.parametrize(
    ("duration", "days"),
    [("1d", 1), ("24h", 1), ("1w", 7), ("1y", 365), ("1D 24H", 2), (86_400, 1), (86_400.0, 1), (datetime.timedelta(3), 3), ("0s", 0), ("1440m", 1),
     ("1 d", 1), ("1.5d", 1.5), ("12h30m 690 minutes", 1), ("2 weeks", 14)],
)  # fmt: skip
def test_durations(duration, days):
    assert parse_duration(duration) == days * 86_400_000


@pytest.mark.parametrize(
    "value",
    [None, True, -1, "", "d", "1", "-1d", "1dd", "1 parsec", "٣d", float("nan"), float("inf"), [], "9" * 20 + "d"],
)
def test_an_invalid_duration_is_refused(value):
    with pytest.raises(InvalidValue, match="older_than"):
        parse_duration(value, "older_than")


def test_utc_offsets():
    assert (parse_utc_offset(60), parse_utc_offset(-480), parse_utc_offset(0)) == (3_600_000, -28_800_000, 0)
    for value in (1_440, -1_440, True, 1.0, "60", None):
        with pytest.raises(InvalidValue):
            parse_utc_offset(value)
