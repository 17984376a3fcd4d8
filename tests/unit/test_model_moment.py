"""Times and durations as callers give them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidValue
from recollect.model.moment import duration, moment, offset
from recollect.model.value import iso

AT = 1_763_287_200_123


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@given(st.integers(86_400_000_000, 1 << 57).map(lambda number: EPOCH + datetime.timedelta(microseconds=number)))
def test_every_form_of_a_time_is_the_same_time(when):
    found = moment(when)
    assert found == (when - EPOCH) // datetime.timedelta(milliseconds=1)
    assert moment(found) == found
    assert moment(iso(found)) == found
    assert moment(when.replace(tzinfo=None)) == found
    assert moment(when.astimezone(datetime.timezone(datetime.timedelta(hours=-7)))) == found
    assert moment(when.date()) == found - found % 86_400_000


@pytest.mark.parametrize(
    "odd", [None, True, 1.5, -1, 1 << 60, "", "x", "2025-02-30", b"2025", [], datetime.timedelta(1)]
)
def test_what_is_no_time(odd):
    with pytest.raises(InvalidValue, match="since"):
        moment(odd, "since")


@pytest.mark.parametrize(
    ("given", "days"),
    [("1d", 1), ("24h", 1), ("1w", 7), ("1y", 365), ("1D 24H", 2), (86_400, 1), (86_400.0, 1), (datetime.timedelta(3), 3), ("0s", 0), ("1440m", 1),
     ("1 d", 1), ("1.5d", 1.5), ("12h30m 690 minutes", 1), ("2 weeks", 14)],
)  # fmt: skip
def test_durations(given, days):
    assert duration(given) == days * 86_400_000


@pytest.mark.parametrize(
    "odd",
    [None, True, -1, "", "d", "1", "-1d", "1dd", "1 parsec", "٣d", float("nan"), float("inf"), [], "9" * 20 + "d"],
)
def test_what_is_no_duration(odd):
    with pytest.raises(InvalidValue, match="older_than"):
        duration(odd, "older_than")


def test_offsets():
    assert (offset(60), offset(-480), offset(0)) == (3_600_000, -28_800_000, 0)
    for odd in (1_440, -1_440, True, 1.0, "60", None):
        with pytest.raises(InvalidValue):
            offset(odd)
