"""The pages hold together: links lead somewhere, nothing private is written down."""

from __future__ import annotations

import re

import pytest
from docs_pages import PAGES, ROOT, anchors, read

import recollect

SKIPPED = {
    ".git", ".peers", ".venv", ".hypothesis", ".ruff_cache", ".pytest_cache", ".import_linter_cache", "__pycache__", "build", "dist",
    "node_modules",
}  # fmt: skip
# Written in pieces, so that this file does not hold what it looks for.
PRIVATE = [
    "/" + "work/",
    "/" + "root/",
    "python" + "hosted.org",
    "py" + "pi.org/simple",
    "registry." + "npmjs.org",
    "index" + "-url",
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_to_pages_and_places_that_exist(page):
    for link in LINK.findall(read(page)):
        if link.startswith(("http://", "https://")):
            continue
        target, _, place = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.is_file(), f"{page}: {link}"
        assert not place or place in anchors(str(path.resolve().relative_to(ROOT))), f"{page}: {link}"


def test_the_index_links_to_every_page():
    index = set(LINK.findall(read("docs/README.md")))
    for page in NAMES:
        if page.startswith("docs/") and page != "docs/README.md":
            assert page.removeprefix("docs/") in index


def files():
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if SKIPPED.isdisjoint(parts) and not any(part.startswith(".venv") for part in parts) and path.is_file():
            yield path


def test_no_file_holds_a_path_of_a_machine_or_the_address_of_a_registry():
    found = []
    for path in files():
        if path.suffix in {".db", ".gz", ".pyc", ".png"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in PRIVATE if word in text]
    assert found == []


def test_the_changelog_has_a_place_for_what_comes_next():
    assert "\n## Unreleased\n" in read("CHANGELOG.md")
    assert re.fullmatch(r"\d+\.\d+\.\d+", recollect.__version__)


def test_every_room_and_every_folder_of_tests_is_in_the_architecture():
    text = read("ARCHITECTURE.md")
    rooms = [
        path.name for path in (ROOT / "src/recollect").iterdir() if path.name[:2] != "__" and path.suffix in ("", ".py")
    ]
    folders = [f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[:2] != "__"]
    assert [name for name in [*rooms, *folders] if name not in text] == []
    assert [name for name in folders if name not in read("CONTRIBUTING.md")] == []
