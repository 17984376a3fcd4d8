"""A history that is written while it is read: no message is made of what goes out just as it came.

It is for what needs neither mending nor translating, which is nearly every history in the format that it came in. The
rest is not taken, and is read and written the long way.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect import formats
from recollect.context.history import History
from recollect.context.rules import RULES
from recollect.context.soundness import Look
from recollect.formats.native import MALFORMED
from recollect.model.line import Line


class Sheet:
    """What was written so far, and whether it is all of it."""

    def __init__(self, format: str) -> None:
        self.history = History()
        self.whole = False
        self._look = Look(RULES[format])
        self._put = formats.putter(format)

    def take(self, lines: Sequence[Line]) -> bool:
        """Write the next lines; False where one of them can not be written by itself."""
        passes, put, written = self._look.passes, self._put, self.history
        try:
            for role, came, parts, native, state in lines:
                if not passes(role, came, parts, native, state) or not put(written, role, came, parts, native):
                    return False
        except MALFORMED:  # a remainder that no reader made; the long way leaves it out
            return False
        return True

    def end(self) -> bool:
        """Look at the end; whether what was written is the history."""
        self.whole = self._look.ended()
        return self.whole


def sheet(format: str) -> Sheet | None:
    """Give an empty sheet for a provider's format; None for a format that has no provider."""
    return Sheet(format) if type(format) is str and format in RULES else None
