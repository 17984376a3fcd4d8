"""Banned words and phrases, and participles as names."""

from __future__ import annotations

import ast
import bisect
import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from style_files import HERE, File, Violation


@functools.cache
def banned() -> dict[str, Any]:
    """Read the lists of words and exceptions."""
    return tomllib.loads((HERE / "banned.toml").read_text(encoding="utf-8"))


_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of an identifier; scanning a piece at a time is fast
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # str.lower() changes the length of some texts
_GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:(?:#|--|\*|>|//)[ \t]*)?)"


@functools.cache
def _phrases() -> list[tuple[list[str], re.Pattern[str], str]]:
    """Compile the entries of several words: words of which a text has one if it matches, the pattern, the suggestion."""
    return [
        (_hints(pattern), re.compile(rf"(?<![a-z])(?:{pattern.replace(' ', _GAP)})(?![a-z])"), suggestion)
        for pattern, suggestion in banned()["words"]
        if " " in pattern
    ]


def _hints(pattern: str) -> list[str]:
    """Return the longest plain word of each alternative."""
    alternatives = [pattern] if "(" in pattern else pattern.split("|")
    plain = [re.sub(r"\([^)]*\)\??|[a-z]\?", " ", each).split() for each in alternatives]
    return [max(each, key=len, default="") for each in plain]


@functools.cache
def _suggestion(piece: str) -> str:
    """Return what to write instead of one word, or nothing."""
    lowered = piece.lower()
    entries = (each for each in banned()["words"] if " " not in each[0])
    return next((suggestion for pattern, suggestion in entries if re.fullmatch(pattern, lowered)), "")


def words(files: list[File]) -> Iterator[Violation]:
    """Find banned words and phrases in source, SQL, templates, scripts and pages."""
    for file in files:
        skipped = [each["text"] for each in banned()["exceptions"] if fnmatch.fnmatch(file.path, each["path"])]
        if "" not in skipped:
            yield from _words_of(file, skipped)


def _words_of(file: File, skipped: list[str]) -> Iterator[Violation]:
    starts = [match.end() for match in re.finditer("\n", file.text)]
    for start, phrase, suggestion in sorted([*_single(file.text), *_several(file.text)]):
        line = bisect.bisect_right(starts, start)
        if not any(text in file.lines[line] for text in skipped):
            yield Violation(file.path, line + 1, f"{' '.join(phrase.split())!r}: write {suggestion}")


def _single(text: str) -> Iterator[tuple[int, str, str]]:
    refused = {piece: _suggestion(piece) for piece in set(_PIECE.findall(text)) if _suggestion(piece)}
    for match in _PIECE.finditer(text) if refused else ():
        if match[0] in refused:
            yield match.start(), match[0], refused[match[0]]


def _several(text: str) -> Iterator[tuple[int, str, str]]:
    lowered = text.translate(_LOWER)
    covered: set[int] = set()
    for hints, pattern, suggestion in _phrases():
        if any(hint in lowered for hint in hints):
            for match in pattern.finditer(lowered):
                span = range(match.start(), match.end())
                if covered.isdisjoint(span):
                    covered.update(span)
                    yield match.start(), match[0], suggestion


def participles(files: list[File]) -> Iterator[Violation]:
    """Find variables, parameters, functions and fields that are named by a participle alone."""
    for file in files:
        for node in file.nodes if file.python else ():
            for name in _bound(node):
                if is_participle(name):
                    yield Violation(file.path, getattr(node, "lineno", 1), f"{name}: use a noun or a verb")


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        yield node.name or ""


@functools.cache
def is_participle(name: str) -> bool:
    """Tell whether a name is a participle, perhaps with a particle after it."""
    lists = banned()["participles"]
    bare = name.strip("_").lower()
    first, _, rest = bare.partition("_")
    if rest and any(part not in lists["particles"] for part in rest.split("_")):
        return bare in lists["irregular"]
    if first in lists["public"] or (first in lists["allowed"] and not rest):
        return False
    return bare in lists["irregular"] or first in lists["irregular"] or (len(first) > 4 and first.endswith("ed"))
