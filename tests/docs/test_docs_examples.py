"""Every example of the README and the pages runs, and its expressions have the values that the page shows."""

from __future__ import annotations

from typing import Any

import pytest
from docs_pages import ARROW, ROOT, find_blocks, read_page, run_example

REFERENCE = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/reference/api/*.md"))
"""The generated reference pages."""


def run_page(page, tmp_path, monkeypatch):
    """Run the examples of a page in order, in an empty folder; return the number of compared values."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))
    namespace: dict[str, Any] = {"__name__": "example"}
    try:
        return sum(run_example(page, block, namespace) for block in find_blocks(page))
    finally:
        if "store" in namespace:
            namespace["store"].close()


@pytest.mark.parametrize("page", ["README.md", "docs/reference/library.md"])
def test_the_examples_of_a_page_run_in_order_as_one_program(page, tmp_path, monkeypatch, capsys):
    assert len(find_blocks(page)) > 5
    count = run_page(page, tmp_path, monkeypatch)
    assert count == read_page(page).count(ARROW)
    assert count > 5
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", [*REFERENCE, "docs/reference/stability.md"])
def test_the_examples_of_a_reference_page_run_in_order_as_one_program(page, tmp_path, monkeypatch):
    count = run_page(page, tmp_path, monkeypatch)
    assert count == read_page(page).count(ARROW)
    assert count > 0 or page.endswith("README.md")


def test_the_reference_has_the_examples_of_all_docstrings():
    assert len(REFERENCE) > 10
    assert sum(len(find_blocks(page)) for page in REFERENCE) > 40


def test_the_examples_of_the_channels_page_run():
    page = "docs/explanation/channels.md"
    assert (
        sum(run_example(page, block, {"__name__": "example"}) for block in find_blocks(page))
        == read_page(page).count(ARROW)
        == 6
    )


def test_the_first_example_of_the_readme_is_short_and_on_the_first_screen():
    block = find_blocks("README.md")[0]
    assert block.line < 20
    code = [line for line in block.text.splitlines() if line.strip()]
    assert len(code) <= 12


def test_the_readme_shows_the_installation_and_both_scripts():
    top = read_page("README.md").split("```python", maxsplit=1)[0]
    for command in ("scripts/run", "scripts/test", "pip install ."):
        assert command in top


def test_an_example_with_a_wrong_value_fails():
    from docs_pages import Block

    with pytest.raises(AssertionError):
        run_example("page", Block(1, "1 + 1    # -> 3"), {})


def test_the_examples_of_the_search_page_run():
    page = "docs/reference/search.md"
    assert (
        sum(run_example(page, block, {"__name__": "example"}) for block in find_blocks(page))
        == read_page(page).count(ARROW)
        == 3
    )
