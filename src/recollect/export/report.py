"""What an import did: the sessions it made and changed, and the lines that it could not read."""

from __future__ import annotations

from typing import Any

import msgspec

MOST = 1_000
"""Of how many bad lines the number and the reason are kept; the others are only counted."""


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that was not imported, and why."""

    line: int
    reason: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A session that is not the one in the store, and the id that it was imported under, if it was."""

    id: str
    reason: str
    new_id: str | None = None


class Report(msgspec.Struct, gc=False):
    """What an import did."""

    created: list[str] = msgspec.field(default_factory=list[str])
    updated: list[str] = msgspec.field(default_factory=list[str])
    unchanged: list[str] = msgspec.field(default_factory=list[str])
    conflicts: list[Refused] = msgspec.field(default_factory=list[Refused])
    messages: int = 0
    bad: list[BadLine] = msgspec.field(default_factory=list[BadLine])
    bad_count: int = 0
    redacted: bool = False

    def refuse(self, line: int, reason: object) -> None:
        """Note a line that can not be imported."""
        self.bad_count += 1
        if len(self.bad) < MOST:
            self.bad.append(BadLine(line, str(reason)))

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry."""
        return msgspec.to_builtins(self)
