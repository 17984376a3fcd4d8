"""The documentation as the tests read it: pages, their sections and their examples."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ARROW = "# -> "

_HEADING = re.compile(r"^(#+) (.+)$")
_FENCE = re.compile(r"^```(\w*)$")


class Section(NamedTuple):
    """A heading, how deep it is, and what stands under it up to the next heading."""

    level: int
    title: str
    text: str


class Block(NamedTuple):
    """A fenced piece of code, and the line that it begins on."""

    line: int
    text: str


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def sections(page: str) -> list[Section]:
    found: list[tuple[int, str, list[str]]] = [(0, "", [])]
    fenced = False
    for line in read(page).splitlines():
        fenced ^= bool(_FENCE.match(line))
        heading = None if fenced else _HEADING.match(line)
        if heading:
            found.append((len(heading[1]), heading[2], []))
        else:
            found[-1][2].append(line)
    return [Section(level, title, "\n".join(lines)) for level, title, lines in found]


def section(page: str, title: str) -> Section:
    """Give the section with a title, or the one whose title goes on with its arguments."""
    for found in sections(page):
        if found.title == title or found.title.startswith(title + "("):
            return found
    raise AssertionError(f"{page} has no section {title!r}")


def blocks(page: str, language: str = "python") -> list[Block]:
    found: list[Block] = []
    lines = read(page).splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if not fence:
            continue
        if start is None:
            start, kind = number + 1, fence[1]
            continue
        if kind == language:
            found.append(Block(start + 1, "\n".join(lines[start:number])))
        start = None
    return found


def anchors(page: str) -> set[str]:
    """Name the places that a link into a page may lead to, as GitHub names them."""
    kept = re.compile(r"[^\w\- ]")
    return {kept.sub("", found.title.lower()).replace(" ", "-") for found in sections(page)}


def names(text: str) -> set[str]:
    """Give the identifiers that a page sets as code."""
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    return set(re.findall(r"\$?\w+", code))


def run(page: str, block: Block, space: dict[str, Any]) -> int:
    """Run an example, and compare each line that ends with `# -> value` with what it gives; say how many did."""
    told = block.text.splitlines()
    compared = 0
    for statement in ast.parse(block.text).body:
        last = told[statement.end_lineno - 1]
        code = ast.increment_lineno(statement, block.line - 1)
        if ARROW not in last:
            exec(compile(ast.Module([code], []), page, "exec"), space)
            continue
        assert isinstance(code, ast.Expr), f"{page}:{block.line}: {last}"
        given = eval(compile(ast.Expression(code.value), page, "eval"), space)
        assert given == ast.literal_eval(last.split(ARROW)[1].strip()), f"{page}:{statement.lineno}"
        compared += 1
    return compared
