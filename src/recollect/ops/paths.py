"""A path through the tree: the stretches of branches that lead from the first message to the last."""

from __future__ import annotations

from typing import NamedTuple

from recollect.op import Steps, rows


class Span(NamedTuple):
    """A stretch of a path: the positions of one branch after `low`, up to `high`."""

    branch: int
    number: int
    low: int
    high: int


def path(branch: int) -> Steps[list[Span]]:
    """Read the stretches that a path is made of, the newest first."""
    return [Span(*row) for row in (yield from rows("branch_path", branch=branch))]
