"""Descriptions of SQL queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from style_files import File, Violation

_NAME = re.compile(r"-- name: *(\w+)")
_MARK = re.compile(r"-- [a-z ]+: ?\w*$")


def sql(files: list[File]) -> Iterator[Violation]:
    """Find named queries without a comment in the line above or below their name."""
    for file in files:
        for number, line in enumerate(file.lines if file.path.endswith(".sql") else ()):
            name = _NAME.match(line)
            if name:
                around = [*file.lines[max(number - 1, 0) : number], *file.lines[number + 1 : number + 2]]
                if not any(each.startswith("-- ") and not _MARK.match(each) for each in around):
                    yield Violation(file.path, number + 1, f"{name[1]} has no description")
