"""Every example of the README and the pages runs, and its expressions have the values that the page shows."""

from __future__ import annotations

import pytest
from docs_pages import ARROW, find_blocks, read_page, run_example


@pytest.mark.parametrize("page", ["README.md", "docs/reference/library.md"])
def test_the_examples_of_a_page_run_in_order_as_one_program(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))
    namespace = {"__name__": "example"}
    blocks = find_blocks(page)
    assert len(blocks) > 5
    count = sum(run_example(page, block, namespace) for block in blocks)
    assert count == read_page(page).count(ARROW)
    assert count > 5
    assert capsys.readouterr().out


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
