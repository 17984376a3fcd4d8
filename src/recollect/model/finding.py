"""What a check found, in words, with what to do about it."""

from __future__ import annotations

from typing import Literal

from recollect.model.value import Value

Level = Literal["problem", "notice"]


class Finding(Value, frozen=True, kw_only=True, gc=False):
    """One thing that a check found. A problem should not be there; a notice is good to know."""

    kind: str
    message: str
    advice: str
    level: Level = "problem"
    session: str | None = None
    repaired: bool = False


class Findings(Value, frozen=True, kw_only=True, gc=False):
    """All that a check found, and what it looked at."""

    checked: tuple[str, ...]
    found: tuple[Finding, ...] = ()

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What should not be there and was not repaired."""
        return tuple(finding for finding in self.found if finding.level == "problem" and not finding.repaired)

    @property
    def notices(self) -> tuple[Finding, ...]:
        """What is good to know."""
        return tuple(finding for finding in self.found if finding.level == "notice")

    @property
    def repaired(self) -> tuple[Finding, ...]:
        """What was put right."""
        return tuple(finding for finding in self.found if finding.repaired)

    @property
    def sound(self) -> bool:
        """Whether there is no problem."""
        return not self.problems
