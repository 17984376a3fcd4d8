"""Read the documentation for the tests: pages, their sections, anchors, links and examples."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])
ARROW = "# -> "  # in an example, before the expected value of the expression on the line

_HEADING = re.compile(r"^(#+) (.+)$")
_FENCE = re.compile(r"^```(\w*)$")


class Section(NamedTuple):
    """A heading with its level, and the text up to the next heading."""

    level: int
    title: str
    text: str


class Block(NamedTuple):
    """A fenced code block, and the number of its first line of code."""

    line: int
    text: str


def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def split_sections(page: str) -> list[Section]:
    """Return the sections of a page in order. The first has level 0: the text before any heading."""
    sections: list[tuple[int, str, list[str]]] = [(0, "", [])]
    in_code = False
    for line in read_page(page).splitlines():
        in_code ^= bool(_FENCE.match(line))
        heading = None if in_code else _HEADING.match(line)
        if heading:
            sections.append((len(heading[1]), heading[2], []))
        else:
            sections[-1][2].append(line)
    return [Section(level, title, "\n".join(lines)) for level, title, lines in sections]


def find_section(page: str, title: str) -> Section:
    """Return the section with a title, or the one whose title is `title` followed by arguments in parentheses."""
    for section in split_sections(page):
        if section.title == title or section.title.startswith(title + "("):
            return section
    raise AssertionError(f"{page} has no section {title!r}")


def find_blocks(page: str, language: str = "python") -> list[Block]:
    """Return the fenced code blocks of a page in one language."""
    blocks: list[Block] = []
    lines = read_page(page).splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if not fence:
            continue
        if start is None:
            start, block_language = number + 1, fence[1]
            continue
        if block_language == language:
            blocks.append(Block(start + 1, "\n".join(lines[start:number])))
        start = None
    return blocks


def list_anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub generates them."""
    punctuation = re.compile(r"[^\w\- ]")
    return {punctuation.sub("", section.title.lower()).replace(" ", "-") for section in split_sections(page)}


def find_identifiers(text: str) -> set[str]:
    """Return the identifiers in the inline code of a text."""
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    return set(re.findall(r"\$?\w+", code))


def run_example(page: str, block: Block, namespace: dict[str, Any]) -> int:
    """Run an example and compare each expression before `# -> value` with the value; return the number compared."""
    lines = block.text.splitlines()
    count = 0
    for statement in ast.parse(block.text).body:
        last_line = lines[(statement.end_lineno or 0) - 1]
        code = ast.increment_lineno(statement, block.line - 1)
        if ARROW not in last_line:
            exec(compile(ast.Module([code], []), page, "exec"), namespace)
            continue
        assert isinstance(code, ast.Expr), f"{page}:{block.line}: {last_line}"
        value = eval(compile(ast.Expression(code.value), page, "eval"), namespace)
        assert value == ast.literal_eval(last_line.split(ARROW)[1].strip()), f"{page}:{statement.lineno}"
        count += 1
    return count
