"""docs/reference/formats.md lists the features that carry over between formats, as the code translates them."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats_table import EXAMPLES, FORMATS, NEEDLE, carries, tables, to_messages

from recollect import formats

LACKING = {
    ("bedrock", "image, by URL"),  # it has no addresses except those of S3
    ("ollama", "image, by URL"),
    ("ollama", "PDF, as bytes"),
}
"""What a format cannot express."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


def test_the_documented_tables_match_the_code() -> None:
    assert tables() in PAGE.read_text(encoding="utf-8"), "regenerate the tables: python tests/unit/formats_table.py"


@pytest.mark.parametrize("source", FORMATS)
def test_every_feature_round_trips_in_its_own_format(source: str) -> None:
    for feature, example in EXAMPLES[source].items():
        messages = to_messages(example, source)
        assert formats.write(messages, source) == example, feature
        assert NEEDLE in str(formats.write(messages, "recollect")), feature


@pytest.mark.parametrize("source", EXAMPLES)
@pytest.mark.parametrize("target", FORMATS)
def test_common_features_carry_over_to_every_format(source: str, target: str) -> None:
    for feature in ("text", "tool call", "tool result", "image, as bytes", "image, by URL", "PDF, as bytes"):
        if (source, feature) in LACKING or (target, feature) == ("ollama", "PDF, as bytes"):
            continue
        assert carries(EXAMPLES[source][feature], source, target), feature


@pytest.mark.parametrize("source", EXAMPLES)
@pytest.mark.parametrize("target", ["anthropic", "openai", "openai-responses"])
def test_provider_specific_features_do_not_carry_over(source: str, target: str) -> None:
    for feature in ("signature or encrypted reasoning", "provider-executed call", "cache control, provider options"):
        messages = EXAMPLES[source].get(feature)
        assert messages is None or source == target or not carries(messages, source, target), feature
