"""Path segments: any text has one that no browser resolves, and that a server decodes to the same text."""

from __future__ import annotations

import re
from urllib.parse import unquote, urljoin

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect.server.path_segments import decode_path_segment, encode_path_segment, preserve_escaped_slashes

TEXTS = st.text(st.sampled_from("./~%\ue000smab \0\r\n2F"), min_size=1, max_size=8) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20
)


def received(segment):
    """Return the segment as a handler receives it."""
    raw = f"/api/v1/sessions/{segment}/messages"
    scope = {"raw_path": raw.encode("ascii"), "path": unquote(raw)}
    preserve_escaped_slashes(scope)
    _, api, version, sessions, value, messages = scope["path"].split("/")
    assert (api, version, sessions, messages) == ("api", "v1", "sessions", "messages")
    return value


@settings(max_examples=2_000, deadline=None)
@given(TEXTS)
@example("\ue000s")
@example("\ue000/")
@example("~~..")
@example("%2F\ue000m")
def test_a_segment_decodes_to_its_text(text):
    segment = encode_path_segment(text)
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", segment)
    assert decode_path_segment(received(segment)) == text


@settings(max_examples=2_000, deadline=None)
@given(TEXTS, TEXTS)
def test_different_texts_have_different_segments(one, other):
    assert (encode_path_segment(one) == encode_path_segment(other)) is (one == other)


@pytest.mark.parametrize("text", [".", "..", "~.", "~..", "~~..", "../..", "a/../b", "%2e%2e", "..\\", "\0..", "..\n"])
def test_no_segment_is_resolved(text):
    """A browser resolves `.` and `..`, also with encoded dots, and removes line breaks and tabs from a URL."""
    segment = encode_path_segment(text)
    assert unquote(segment) not in (".", "..")
    assert not re.fullmatch(r"(?:\.|%2e){1,2}", re.sub(r"[\t\r\n]", "", segment), re.IGNORECASE)
    assert urljoin("http://host/c/x", f"/c/{segment}") == f"http://host/c/{segment}"


@pytest.mark.parametrize("value", [".", "..", "a", "~", "~~", "~a", "...", "~..."])
def test_other_values_stay_as_they_are(value):
    assert decode_path_segment(value) == value


def test_a_path_without_escaped_slashes_is_not_changed():
    for raw in ("/c/a%20b", "/static/app.js", "/", "/c/%ff", "/c/%zz"):
        scope = {"raw_path": raw.encode(), "path": unquote(raw)}
        preserve_escaped_slashes(scope)
        assert scope["path"] == unquote(raw)
