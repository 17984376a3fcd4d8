"""Every example in the README and in the pages runs, and gives what it says it gives."""

from __future__ import annotations

import pytest
from docs_pages import ARROW, blocks, read, run


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_the_examples_of_a_page_run_in_order_as_one_program(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))
    space = {"__name__": "example"}
    found = blocks(page)
    assert len(found) > 5
    compared = sum(run(page, block, space) for block in found)
    assert compared == read(page).count(ARROW)
    assert compared > 5
    assert capsys.readouterr().out


def test_the_examples_of_places_run():
    page = "docs/places.md"
    assert sum(run(page, block, {"__name__": "example"}) for block in blocks(page)) == read(page).count(ARROW) == 5


def test_the_first_example_of_the_readme_stands_on_its_first_screen_and_is_short():
    first = blocks("README.md")[0]
    assert first.line < 20
    code = [line for line in first.text.splitlines() if line.strip()]
    assert len(code) <= 12


def test_the_readme_names_both_commands_and_the_installation():
    top = read("README.md").split("```python", maxsplit=1)[0]
    for command in ("scripts/run", "scripts/test", "pip install ."):
        assert command in top


def test_an_example_that_gives_something_else_is_found():
    from docs_pages import Block

    with pytest.raises(AssertionError):
        run("page", Block(1, "1 + 1    # -> 3"), {})
