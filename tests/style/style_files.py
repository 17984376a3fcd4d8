"""The files that the style checks read, and the allow-list of what they may still find."""

from __future__ import annotations

import ast
import functools
import pathlib
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
ALLOWED = HERE / "allowed.toml"
SOURCE = "src/recollect"
_TWO_LEVELS = ("channels", "server")
_OTHER_CODE = ("conformance", "tests", "benchmarks", "tools")
_PLANTED = "tests/style/"  # examples of what the checks find
_SUFFIXES = (".py", ".sql", ".html", ".js", ".css")


class File:
    """A file with its text; the syntax tree of a Python file is parsed once."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def python(self) -> bool:
        return self.path.endswith(".py")


class Violation(NamedTuple):
    """A place that a check refuses."""

    path: str
    line: int
    text: str

    @property
    def package(self) -> str:
        return package_of(self.path)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


Check = Callable[[list[File]], Iterable[Violation]]


def package_of(path: str) -> str:
    """Return the key of a file in the allow-list: its package, its folder of tests, or a page's own path."""
    top, *folders = path.split("/")[:-1] or [""]
    if top in _OTHER_CODE:
        return "/".join([top, *folders[:1]]) if top == "tests" else top
    if not path.startswith(SOURCE + "/"):
        return path
    folders = path.removeprefix(SOURCE + "/").split("/")[:-1]
    depth = 2 if folders[:1] and folders[0] in _TWO_LEVELS else 1
    return "/".join([SOURCE, *folders[:depth]]).replace("/static", "").replace("/templates", "")


@functools.cache
def all_files() -> list[File]:
    """Read every file that a check may look at."""
    return [File(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in sorted(_paths())]


def _paths() -> Iterator[pathlib.Path]:
    for path in (ROOT / SOURCE).rglob("*"):
        if path.suffix in _SUFFIXES:
            yield path
    for folder in _OTHER_CODE:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".md"} and not path.relative_to(ROOT).as_posix().startswith(_PLANTED):
                yield path
    yield from ROOT.glob("*.md")
    yield from ROOT.glob("docs/**/*.md")


def read_allowed() -> dict[str, dict[str, int]]:
    """Read the allow-list: check, then package, then count."""
    return tomllib.loads(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else {}


def counts(violations: Iterable[Violation]) -> dict[str, int]:
    """Count violations by package."""
    return dict(sorted(Counter(each.package for each in violations).items()))


def judge(name: str, violations: list[Violation], allowed: dict[str, int]) -> list[str]:
    """Return what is wrong with the violations of a check, measured by the allow-list."""
    problems: list[str] = []
    current = counts(violations)
    for package in sorted(current.keys() | allowed.keys()):
        now, most = current.get(package, 0), allowed.get(package, 0)
        if now > most:
            problems.append(f"{name}: {package} has {now} violations, {most} are allowed:")
            problems += [f"  {each}" for each in violations if each.package == package]
        elif now < most:
            problems.append(
                f"{name}: {package}: lower tests/style/allowed.toml to {now} (python tools/style_counts.py)"
            )
    return problems
