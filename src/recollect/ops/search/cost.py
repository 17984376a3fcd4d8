"""Which way to the hits costs least, on a server whose index of words does not give the newest first.

All is reckoned in messages that are walked past, from a few that were looked at: how many of them fit, how many have
the words in any order, of how many; how many messages the owner has, how many are there, and on how many pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from recollect.ops.search.query import Both, Either, Node

_NAMED, _FETCHED = 1.2, 4
"""Messages that are walked past while one that an index names is looked at, and while the page it is on is fetched."""

_RANGED = 0.1
"""Messages that are walked past while the index notes that one is among the newest, or has a word."""

_AMPLE, _MOST_NEWEST, _FEWEST_HITS = 2, 0.7, 5
"""How many more are taken for the newest than should do, which part of all they may be, and hits of a sample for it."""


def walked(hits: int, candidates: int, sampled: int, mine: float, whole: float, pages: int, *, pool: int) -> bool:
    """Whether walking back to where enough hits are is quicker than looking at all that an index of words names.

    Of a sample, so many fit, and so many have the words in any order. It stands for the messages of one owner, which
    lie among those of all. What few messages have is on a page of its own each time, what many have shares them.
    """
    passed, named = _costs(hits, candidates, sampled, mine, whole, pages, pool)
    return passed <= named


def newest(hits: int, candidates: int, sampled: int, mine: float, whole: float, pages: int, *, pool: int) -> int | None:
    """How many of the newest messages have enough hits, where asking the index for what is among them is quickest."""
    part = _AMPLE * pool * sampled / (hits * mine) if hits >= _FEWEST_HITS and mine else 1.0
    if part > _MOST_NEWEST:
        return None
    passed, named = _costs(hits, candidates, sampled, mine, whole, pages, pool)
    cost = part * (named + _RANGED * whole) + _RANGED * mine * candidates / sampled
    return math.ceil(part * mine) if cost < min(passed, named) else None


def _costs(
    hits: int, candidates: int, sampled: int, mine: float, whole: float, pages: int, pool: int
) -> tuple[float, float]:
    """Give what walking back costs, and what looking at all that an index of words names, in messages walked past."""
    if not mine:  # so few that none of them was met
        return 1.0, 0.0
    share = min(1.0, pool * sampled / (hits * mine)) if hits else 1.0
    part = candidates / sampled
    fetched = pages * mine / whole * (1 - (1 - part) ** (whole / max(pages, 1)))
    return share * whole, _NAMED * mine * part + _FETCHED * fetched


def at_most(node: Node | None, counts: Mapping[str, float]) -> float:
    """How many messages can have what is looked for, by how many have each word; one that is not counted is in all."""
    if node is None:
        return math.inf
    if isinstance(node, Either):
        return sum([at_most(each, counts) for each in node.any_of])
    if isinstance(node, Both):
        return min([at_most(each, counts) for each in node.these], default=math.inf)
    whole = node.tokens[:-1] if node.prefix else node.tokens
    return min([counts.get(token, math.inf) for token in whole], default=math.inf)
