"""Titles as sort keys and file names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.model.title import file_name, safe_file_name, title_sort_key


@pytest.mark.parametrize(
    ("title", "key"),
    [
        ("Éclair", "eclair"), ("STRASSE", "strasse"), ("Straße", "strasse"), ("  x ", "x"), ("Ærø", "aero"), ("ﬁn", "fin"),
        ("Ångström", "angstrom"), ("Łódź", "lodz"), ("日本", "日本"), ("ПРИВЕТ", "привет"), ("", ""), ("İstanbul", "istanbul"),
        ("①", "1"), ("nai\u0308ve", "naive"),
    ],
)  # fmt: skip
def test_sort_keys_of_titles(title, key):
    assert title_sort_key(title) == key


@given(st.text())
def test_the_sort_key_is_idempotent(title):
    assert title_sort_key(title_sort_key(title)) == title_sort_key(title)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_titles_are_only_lowercased_and_stripped(title):
    assert title_sort_key(title) == title.lower().strip() == title_sort_key(title.upper())


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("-rf.html", "_-rf.html"), (".bashrc", "_.bashrc"), ("..", "_.."), ("CON", "_CON"), ("con.html", "_con.html"), ("NUL.tar.gz", "_NUL.tar.gz"),
        ("com1 .txt", "_com1 .txt"), ("LPT\u00b9.md", "_LPT\u00b9.md"), ("CONTRACT.html", "CONTRACT.html"), ("a-b.md", "a-b.md"), ("COM12.md", "COM12.md"),
    ],
)  # fmt: skip
def test_a_file_name_is_never_an_option_a_hidden_file_or_a_device(name, safe):
    assert safe_file_name(name) == safe


def test_a_title_becomes_a_safe_file_name():
    assert [file_name(title) for title in ("-rf", "CON", "nul", "-", "Plans")] == [
        "_-rf",
        "_CON",
        "_nul",
        "_-",
        "Plans",
    ]
