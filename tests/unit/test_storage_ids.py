"""Any text from outside is parsed as an id or refused with InvalidValue, in a short time."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidValue, RecollectError
from recollect.export import records
from recollect.model import session_ids, times
from recollect.storage import paths
from recollect.storage.search import retrieval

LONG = "9" * 10_000
DIGITS = (
    st.text("0123456789", max_size=30) | st.just(LONG) | st.sampled_from(["\u0663", "\u00b2", "-1", "+1", "1_0", " 1"])
)
ID_TEXTS = (
    st.text() | st.builds(".".join, st.lists(DIGITS, max_size=4)) | st.builds("_".join, st.lists(DIGITS, max_size=10))
)


@given(ID_TEXTS | st.integers() | st.sampled_from([10**5_000, -(10**5_000)]) | st.none() | st.booleans() | st.floats())
def test_a_message_id_is_parsed_or_refused(name):
    try:
        branch, position = paths.parse_message_id(name)
    except InvalidValue:
        return
    assert 0 <= position < 10**1_000
    assert branch is None or 0 <= branch < 10**1_000


def test_thousands_of_digits_are_refused():
    for name in (f"1.{LONG}", f"{LONG}.1", f"{LONG}.{LONG}", 10**5_000, -(10**5_000)):
        with pytest.raises(InvalidValue):
            paths.parse_message_id(name)


def test_digits_of_other_scripts_are_refused():
    for name in ("\u0661.\u0661", "1.\u00b2", "1.+1", "1. 1", "1.1_0", "1.-1"):
        with pytest.raises(InvalidValue):
            paths.parse_message_id(name)


@given(ID_TEXTS)
@pytest.mark.parametrize(
    "parse",
    [records.parse_message_id, retrieval.parse_cursor, session_ids.split_key, times.parse_time, times.parse_duration],
)
def test_other_parsers_raise_only_errors_of_recollect(parse, text):
    with contextlib.suppress(RecollectError):
        parse(text)
