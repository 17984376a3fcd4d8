"""Where a conversation was taken up again: the steps between branches, and the tree of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recollect import ops
from recollect.errors import MessageNotFound
from recollect.model.branch import Branch
from recollect.model.message import Message
from recollect.store_async import AsyncSession

_LINE = 90


class Step(NamedTuple):
    """A place where there are several ways on: which of how many this is, and the branches before and after it."""

    number: int
    ways: int
    before: int | None
    after: int | None
    under_answer: bool


class Twig(NamedTuple):
    """A branch in the tree: its first words, its own messages without tool steps, and the branches that leave it."""

    branch: Branch
    words: str
    messages: int
    on_path: bool
    twigs: list[Twig]


def path(branches: Sequence[Branch]) -> dict[int, tuple[int, int]]:
    """Give the stretches of the active path: by branch, the positions after the first up to the second."""
    by_number = {branch.id: branch for branch in branches}
    found: dict[int, tuple[int, int]] = {}
    here = next((branch for branch in branches if branch.current), None)
    high = here.last if here is not None else 0
    while here is not None:
        found[here.id] = (here.fork_at, high)
        high = here.fork_at
        here = by_number.get(here.parent) if here.parent is not None else None
    return found


def forks(branches: Sequence[Branch]) -> dict[int, list[int]]:
    """Give the positions of the active path that have several ways on, and the branches that have a message there."""
    spans = path(branches)
    by_number = {branch.id: branch for branch in branches}
    places: dict[tuple[int | None, int], list[int]] = {}
    for branch in branches:
        if branch.last > branch.fork_at:
            places.setdefault((branch.parent, branch.fork_at), []).append(branch.id)
    found: dict[int, list[int]] = {}
    for (parent, fork_at), ways in places.items():
        origin = by_number.get(parent) if parent is not None else None
        if origin is not None and origin.last > fork_at:
            ways.insert(0, origin.id)
        taken = [way for way in ways if way in spans and spans[way][0] <= fork_at < spans[way][1]]
        if len(ways) > 1 and taken:
            found[fork_at + 1] = sorted(ways)
    return found


def tip(branches: Sequence[Branch], way: int, position: int) -> int:
    """Give the newest branch that goes through a branch's message at a position."""
    reached = {way}
    newest = way
    for branch in sorted(branches, key=lambda item: item.id):
        if branch.parent in reached and (branch.parent != way or branch.fork_at >= position) and branch.id != way:
            reached.add(branch.id)
            newest = max(newest, branch.id) if branch.last > branch.fork_at else newest
    return newest


async def steps(session: AsyncSession, messages: Sequence[Message], branches: Sequence[Branch]) -> dict[str, Step]:
    """Give the steps at these messages, by the message's id."""
    ways = forks(branches)
    found: dict[str, Step] = {}
    for message in messages:
        here = ways.get(message.position)
        if here is None or message.branch not in here:
            continue
        at = here.index(message.branch)
        reach = [tip(branches, way, message.position) for way in here]
        found[message.id] = Step(
            number=at + 1,
            ways=len(here),
            before=reach[at - 1] if at else None,
            after=reach[at + 1] if at + 1 < len(here) else None,
            under_answer=message.role == "user" and await _same(session, message, here),
        )
    return found


async def _same(session: AsyncSession, message: Message, ways: Sequence[int]) -> bool:
    """Whether all the ways begin with the same question: then it is the answers that differ."""
    for way in ways:
        if way == message.branch:
            continue
        try:
            other = await session.message(f"{way}.{message.position}")
        except MessageNotFound:
            return False
        if (other.role, other.parts) != (message.role, message.parts):
            return False
    return True


async def tree(session: AsyncSession, branches: Sequence[Branch]) -> list[Twig]:
    """Draw all branches of a session as a tree."""
    spans = path(branches)
    counts = await session.store.run(ops.messages.shown_by_branch(session.store.scope(), session.id))
    known = {branch.id for branch in branches}
    children: dict[int | None, list[Branch]] = {}
    for branch in branches:
        children.setdefault(branch.parent if branch.parent in known else None, []).append(branch)

    async def grown(branch: Branch) -> Twig:
        twigs = [await grown(child) for child in children.get(branch.id, ())]
        return Twig(branch, await _words(session, branch), counts.get(branch.id, 0), branch.id in spans, twigs)

    return [await grown(branch) for branch in children.get(None, ())]


async def _words(session: AsyncSession, branch: Branch) -> str:
    if branch.last <= branch.fork_at:
        return "Nothing was said here yet"
    try:
        first = await session.message(f"{branch.id}.{branch.fork_at + 1}")
    except MessageNotFound:
        return f"Branch {branch.id}"
    line = " ".join(first.text.split())
    return (line if len(line) <= _LINE else line[: _LINE - 1] + "\u2026") or f"Branch {branch.id}"
