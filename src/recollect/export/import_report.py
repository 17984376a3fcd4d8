"""The report of an import: sessions created and updated, conflicts, and lines that were not imported."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_BAD_LINES = 1_000
"""Maximum number of bad lines that are listed, so that a report stays small. All of them are counted."""


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that was not imported, and the reason."""

    line: int
    reason: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A session that conflicts with the stored one, and its new id if it was imported under one."""

    id: str
    reason: str
    new_id: str | None = None


class Report(msgspec.Struct, gc=False):
    """The result of an import."""

    created: list[str] = msgspec.field(default_factory=list[str])
    updated: list[str] = msgspec.field(default_factory=list[str])
    unchanged: list[str] = msgspec.field(default_factory=list[str])
    conflicts: list[Refused] = msgspec.field(default_factory=list[Refused])
    messages: int = 0
    bad: list[BadLine] = msgspec.field(default_factory=list[BadLine])
    bad_count: int = 0
    redacted: bool = False

    def refuse(self, line: int, reason: object) -> None:
        """Record a line that cannot be imported."""
        self.bad_count += 1
        if len(self.bad) < MAX_BAD_LINES:
            self.bad.append(BadLine(line, str(reason)))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return msgspec.to_builtins(self)
