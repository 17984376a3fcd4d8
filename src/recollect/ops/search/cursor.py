"""A place in a search, from which its next page is read."""

from __future__ import annotations

from typing import NamedTuple

from recollect.errors import InvalidValue, displayed
from recollect.ops.paths import LAST, MOST_BRANCHES

TITLES, EXACT, WIDE_TITLES, WIDE, END = range(5)
"""The stages of a search, in their order: titles, messages, and both again with the words inside of others."""

Place = tuple[int, int]
TOP: Place = (MOST_BRANCHES, LAST)
BOTTOM: Place = (0, 0)
_FARTHEST = (1 << 62) - 1


class Cursor(NamedTuple):
    """How far a search has been read: which stage, between which places its candidates are, and the last hit.

    With the counts of the words goes what a hit was ranked by, so that the next page ranks alike though messages were
    appended meanwhile; they can not push others out of the candidates either.
    """

    stage: int = TITLES
    below: Place = TOP
    low: Place = BOTTOM
    score: float | None = None
    place: Place = TOP
    counts: tuple[int, ...] | None = None

    def written(self) -> str:
        """Write it as text."""
        score = "" if self.score is None else repr(self.score)
        counts = "-".join(map(str, self.counts or ()))
        return "_".join((str(self.stage), *map(str, (*self.below, *self.low)), score, *map(str, self.place), counts))


def cursor(text: str) -> Cursor:
    """Read a cursor."""
    try:
        stage, branch, position, low, low_position, score, at_branch, at_position, counts = text.split("_")
        found = Cursor(
            int(stage),
            (int(branch), int(position)),
            (int(low), int(low_position)),
            float(score) if score else None,
            (int(at_branch), int(at_position)),
            tuple(map(int, counts.split("-"))) if counts else None,
        )
    except (ValueError, AttributeError, TypeError):
        found = Cursor(END)
    places = (*found.below, *found.low, *found.place)
    if found.stage not in range(END) or not 0 <= min(places) <= max(places) <= _FARTHEST:
        raise InvalidValue(f"{displayed(text)} is no place in a search. Use the `next` of the page before.")
    return found
