"""Titles as lists put them in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.model.title import folded


@pytest.mark.parametrize(
    ("title", "key"),
    [
        ("Éclair", "eclair"), ("STRASSE", "strasse"), ("Straße", "strasse"), ("  x ", "x"), ("Ærø", "aero"), ("ﬁn", "fin"),
        ("Ångström", "angstrom"), ("Łódź", "lodz"), ("日本", "日本"), ("ПРИВЕТ", "привет"), ("", ""), ("İstanbul", "istanbul"),
        ("①", "1"), ("nai\u0308ve", "naive"),
    ],
)  # fmt: skip
def test_examples(title, key):
    assert folded(title) == key


@given(st.text())
def test_folding_twice_is_folding_once_and_case_does_not_count(title):
    assert folded(folded(title)) == folded(title)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_is_only_made_small(title):
    assert folded(title) == title.lower().strip() == folded(title.upper())
