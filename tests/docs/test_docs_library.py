"""docs/reference/library.md lists the modules, types, formats and errors, and names only what is public."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re

import pytest
from docs_pages import find_section, read_page

from recollect import errors, types

PAGE = "docs/reference/library.md"
ROOT = pathlib.Path(__file__).parents[2]


def test_every_type_is_documented_and_every_documented_type_exists():
    names = re.findall(r"`([A-Z]\w+)`", "\n".join(row_names(find_section(PAGE, "Types of recollect.types").text)))
    assert sorted(names) == sorted(types.__all__)
    assert [name for name in names if getattr(types, name, None) is None] == []


def row_names(text):
    """Return the first cells of the rows of a table, without its head."""
    return re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)


PAGES = [
    str(path.relative_to(ROOT)) for path in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md")
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_name_that_a_page_qualifies_or_imports_is_public_in_that_module(page):
    text = read_page(page)
    names = re.findall(r"\b(recollect(?:\.(?:types|errors|formats))?)\.([A-Za-z_]\w*)\b(?!\.md|\.db)", text)
    names += [
        (module, name.strip().split(" ")[0])
        for module, line in re.findall(
            r"^(?:>>> )?\s*from (recollect(?:\.(?:types|errors|formats))?) import ([^\n(#]+)", text, re.MULTILINE
        )
        for name in line.split(",")
    ]
    wrong = [
        f"{module}.{name}"
        for module, name in names
        if (module != "recollect" or name[0].isupper()) and not is_public(module, name)
    ]
    assert wrong == []


def is_public(module, name):
    """Return whether a name can be imported from a module and is one of its public names."""
    content = importlib.import_module(module)
    return hasattr(content, name) and name in content.__all__


def test_the_tree_of_errors_equals_the_docstring():
    classes = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, errors.RecollectError)]
    assert sorted(cls.__name__ for cls in classes) == errors.__all__
    tree = [line for line in (errors.__doc__ or "").splitlines() if "─" in line]
    assert len(tree) == len(classes) - 1
    assert [line for line in find_section(PAGE, "Errors").text.splitlines() if "─" in line] == tree


def test_every_format_is_documented():
    from recollect.formats import FORMATS

    text = find_section(PAGE, "Formats").text
    assert [name for name in FORMATS if f'| `"{name}"` |' not in text] == []
