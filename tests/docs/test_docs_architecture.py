"""ARCHITECTURE.md names every module under its package, and stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "recollect"


def read_packages() -> dict[str, str]:
    """Return the text of each package in the list of modules, and of each top-level file."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listing = text.partition("    src/recollect/\n")[2].partition("\n\n")[0]
    texts: dict[str, str] = {}
    name = ""
    for line in listing.splitlines():
        entry = re.match(r" {6}([\w/.]+?)/?(?: (.*))?$", line)
        if entry is not None:
            name = entry[1]
            texts[name] = ""
        texts[name] += line
    return texts


PACKAGES = read_packages()
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.stem != "__init__")


def test_the_list_of_modules_is_parsed():
    assert {"model", "storage/search", "engine/postgres", "errors.py"} <= PACKAGES.keys()
    assert len(MODULES) > 150


@pytest.mark.parametrize("package", PACKAGES)
def test_every_documented_package_exists(package):
    assert (SOURCE / package).exists()


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_is_documented_under_its_package(module):
    package = module.parent.as_posix()
    if package == ".":
        assert module.name in PACKAGES
    else:
        assert re.search(rf"\b{module.stem}\b", PACKAGES[package])


@pytest.mark.parametrize("package", [name for name in PACKAGES if not name.endswith(".py")])
def test_every_documented_module_exists(package):
    names = PACKAGES[package].rpartition(": ")[2].strip() if ": " in PACKAGES[package] else ""
    for name in re.findall(r"\w+", names):
        assert (SOURCE / package / f"{name}.py").exists() or (SOURCE / package / name).is_dir(), name


def test_the_page_has_at_most_270_lines():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 270
