"""The examples of the how-to page."""

from __future__ import annotations


def test_the_page(run_page):
    assert run_page("docs/how-to/frameworks/openai-agents.md") == 8
