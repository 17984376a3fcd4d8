"""docs/formats.md says what carries over between formats, and it is what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats_table import EXAMPLES, FORMATS, NEEDLE, carries, stored, tables

from recollect import formats

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_the_tables_on_the_page_are_what_the_code_does() -> None:
    assert tables() in PAGE.read_text(encoding="utf-8"), "print the tables anew: python tests/unit/formats_table.py"


@pytest.mark.parametrize("source", FORMATS)
def test_nothing_leaves_the_store(source: str) -> None:
    for what, messages in EXAMPLES[source].items():
        kept = stored(messages, source)
        assert formats.write(kept, source) == messages, what
        assert NEEDLE in str(formats.write(kept, "recollect")), what


@pytest.mark.parametrize("source", EXAMPLES)
@pytest.mark.parametrize("target", FORMATS)
def test_what_every_format_has_carries_over(source: str, target: str) -> None:
    for what in ("text", "tool call", "tool result", "image, as bytes", "image, by address", "PDF, as bytes"):
        assert carries(EXAMPLES[source][what], source, target), what


@pytest.mark.parametrize("source", EXAMPLES)
@pytest.mark.parametrize("target", ["anthropic", "openai", "openai-responses"])
def test_what_one_provider_can_use_stays_out_of_anothers_view(source: str, target: str) -> None:
    for what in ("signature or encrypted reasoning", "call that the provider ran", "cache marks, provider options"):
        messages = EXAMPLES[source].get(what)
        assert messages is None or source == target or not carries(messages, source, target), what
