"""Links and anchors exist, every page is reachable, and no file contains a private path or address."""

from __future__ import annotations

import posixpath
import re

import pytest
from docs_pages import PAGES, ROOT, list_anchors, read_page

import recollect

SKIPPED_FOLDERS = {
    ".git", ".peers", ".venv", ".hypothesis", ".ruff_cache", ".pytest_cache", ".import_linter_cache", "__pycache__", "build", "dist",
    "node_modules",
}  # fmt: skip
# Concatenated, so that this file does not contain the texts itself.
PRIVATE = [
    "/" + "work/",
    "/" + "root/",
    "python" + "hosted.org",
    "py" + "pi.org/simple",
    "registry." + "npmjs.org",
    "index" + "-url",
]
# The target of an inline link or image, with or without a title, and of a reference definition.
LINK = re.compile(r"""\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)|^\[[^\]]+\]: +(\S+)""", re.MULTILINE)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def find_links(text: str) -> list[str]:
    """Return the targets of the links of a page to other files or to its own headings."""
    targets = [inline or reference for inline, reference in LINK.findall(text)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def find_broken_links(page: str, text: str) -> list[str]:
    """Return the links of a page whose file or anchor does not exist."""
    broken = []
    for link in find_links(text):
        target, _, anchor = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.is_file() or (anchor and anchor not in list_anchors(str(path.resolve().relative_to(ROOT)))):
            broken.append(link)
    return broken


def find_unreachable(pages: dict[str, str], starts: list[str]) -> set[str]:
    """Return the pages that cannot be reached through links from the start pages."""
    unreachable, queue = set(pages) - set(starts), list(starts)
    while queue:
        page = queue.pop()
        for link in find_links(pages[page]):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0]))
            if target in unreachable:
                unreachable.remove(target)
                queue.append(target)
    return unreachable


@pytest.mark.parametrize("page", NAMES)
def test_every_link_and_anchor_exists(page):
    assert find_broken_links(page, read_page(page)) == []


def test_a_broken_link_is_reported():
    text = '[a](search.md) [b](missing.md) ![c](missing.png "title") [d](https://example.org)\n[e]: missing-too.md\n'
    assert find_broken_links("docs/reference/library.md", text) == ["missing.md", "missing.png", "missing-too.md"]


def test_a_broken_anchor_is_reported():
    text = "[a](#errors) [b](#missing) [c](search.md#the-index) [d](search.md#missing)"
    assert find_broken_links("docs/reference/library.md", text) == ["#missing", "search.md#missing"]


def test_every_page_is_reachable_from_the_readme():
    assert find_unreachable({page: read_page(page) for page in NAMES}, ["README.md", "docs/README.md"]) == set()


def test_an_unreachable_page_is_reported():
    pages = {
        "README.md": "[a](docs/a.md#x)",
        "docs/a.md": "[b](deep/b.md)",
        "docs/deep/b.md": "",
        "docs/c.md": "[a](a.md)",
    }
    assert find_unreachable(pages, ["README.md"]) == {"docs/c.md"}


def test_the_index_links_to_every_page():
    index = set(find_links(read_page("docs/README.md")))
    for page in NAMES:
        if page.startswith("docs/") and page != "docs/README.md":
            assert page.removeprefix("docs/") in index


def walk_files():
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if SKIPPED_FOLDERS.isdisjoint(parts) and not any(part.startswith(".venv") for part in parts) and path.is_file():
            yield path


def test_no_file_contains_a_local_path_or_a_registry_address():
    violations = []
    for path in walk_files():
        if path.suffix in {".db", ".gz", ".pyc", ".png"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        violations += [f"{path.relative_to(ROOT)}: {word}" for word in PRIVATE if word in text]
    assert violations == []


def test_the_changelog_has_an_unreleased_section():
    assert "\n## Unreleased\n" in read_page("CHANGELOG.md")
    assert re.fullmatch(r"\d+\.\d+\.\d+", recollect.__version__)


def test_every_package_and_test_folder_is_documented():
    text = read_page("ARCHITECTURE.md")
    packages = [
        path.name for path in (ROOT / "src/recollect").iterdir() if path.name[:2] != "__" and path.suffix in ("", ".py")
    ]
    folders = [f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[:2] != "__"]
    assert [name for name in [*packages, *folders] if name not in text] == []
    assert [name for name in folders if name not in read_page("CONTRIBUTING.md")] == []
