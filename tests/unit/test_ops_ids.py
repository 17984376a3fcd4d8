"""Ids as strangers write them: whatever the text is, it is an id or InvalidValue, and quickly."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidValue, RecollectError
from recollect.export import records
from recollect.model import keys, moment
from recollect.ops import paths
from recollect.ops.search import cursor

LONG = "9" * 10_000
DIGITS = (
    st.text("0123456789", max_size=30) | st.just(LONG) | st.sampled_from(["\u0663", "\u00b2", "-1", "+1", "1_0", " 1"])
)
ODD = st.text() | st.builds(".".join, st.lists(DIGITS, max_size=4)) | st.builds("_".join, st.lists(DIGITS, max_size=10))


@given(ODD | st.integers() | st.sampled_from([10**5_000, -(10**5_000)]) | st.none() | st.booleans() | st.floats())
def test_a_message_id_is_read_or_refused(name):
    try:
        branch, position = paths.parse(name)
    except InvalidValue:
        return
    assert 0 <= position < 10**1_000
    assert branch is None or 0 <= branch < 10**1_000


def test_thousands_of_digits_are_refused():
    for name in (f"1.{LONG}", f"{LONG}.1", f"{LONG}.{LONG}", 10**5_000, -(10**5_000)):
        with pytest.raises(InvalidValue):
            paths.parse(name)


def test_digits_of_other_scripts_are_no_ids():
    for name in ("\u0661.\u0661", "1.\u00b2", "1.+1", "1. 1", "1.1_0", "1.-1"):
        with pytest.raises(InvalidValue):
            paths.parse(name)


@given(ODD)
@pytest.mark.parametrize("read", [records.place, cursor.cursor, keys.place, moment.moment, moment.duration])
def test_every_other_reader_refuses_with_our_own_error(read, text):
    with contextlib.suppress(RecollectError):
        read(text)
