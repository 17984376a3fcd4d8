"""Branches of a conversation: the versions at each message, and the tree of branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recollect.errors import MessageNotFound
from recollect.model.humanize import one_line
from recollect.model.message import Message
from recollect.model.session import Branch
from recollect.store_async import AsyncSession

_MAX_EXCERPT = 90  # characters of a branch's first message: one line of the panel


class BranchChoice(NamedTuple):
    """A message with several versions: the number of this one, their total, and the branches before and after it."""

    number: int
    total: int
    before: int | None
    after: int | None
    under_answer: bool


class BranchNode(NamedTuple):
    """A branch in the tree: its first words, its number of messages without tool steps, and its child branches."""

    branch: Branch
    excerpt: str
    messages: int
    on_path: bool
    children: list[BranchNode]


def active_path(branches: Sequence[Branch]) -> dict[int, tuple[int, int]]:
    """Return the active path by branch: the positions after the first number, up to the second."""
    by_number = {branch.id: branch for branch in branches}
    ranges: dict[int, tuple[int, int]] = {}
    head = next((branch for branch in branches if branch.current), None)
    high = head.last if head is not None else 0
    while head is not None:
        ranges[head.id] = (head.fork_at, high)
        high = head.fork_at
        head = by_number.get(head.parent) if head.parent is not None else None
    return ranges


def fork_points(branches: Sequence[Branch]) -> dict[int, list[int]]:
    """Return the positions of the active path with several versions, and the branches with a message there."""
    spans = active_path(branches)
    by_number = {branch.id: branch for branch in branches}
    siblings: dict[tuple[int | None, int], list[int]] = {}
    for branch in branches:
        if branch.last > branch.fork_at:
            siblings.setdefault((branch.parent, branch.fork_at), []).append(branch.id)
    by_position: dict[int, list[int]] = {}
    for (parent, fork_at), sibling_ids in siblings.items():
        origin = by_number.get(parent) if parent is not None else None
        if origin is not None and origin.last > fork_at:
            sibling_ids.insert(0, origin.id)
        active_siblings = [id for id in sibling_ids if id in spans and spans[id][0] <= fork_at < spans[id][1]]
        if len(sibling_ids) > 1 and active_siblings:
            by_position[fork_at + 1] = sorted(sibling_ids)
    return by_position


def newest_branch(branches: Sequence[Branch], start: int, position: int) -> int:
    """Return the newest branch that contains the message of branch `start` at a position."""
    reachable = {start}
    newest = start
    for branch in sorted(branches, key=lambda item: item.id):
        if branch.parent in reachable and (branch.parent != start or branch.fork_at >= position) and branch.id != start:
            reachable.add(branch.id)
            newest = max(newest, branch.id) if branch.last > branch.fork_at else newest
    return newest


async def branch_choices(
    session: AsyncSession, messages: Sequence[Message], branches: Sequence[Branch]
) -> dict[str, BranchChoice]:
    """Return the version choices at these messages, by message id."""
    siblings_by_position = fork_points(branches)
    choices: dict[str, BranchChoice] = {}
    for message in messages:
        siblings = siblings_by_position.get(message.position)
        if siblings is None or message.branch not in siblings:
            continue
        index = siblings.index(message.branch)
        targets = [newest_branch(branches, sibling, message.position) for sibling in siblings]
        choices[message.id] = BranchChoice(
            number=index + 1,
            total=len(siblings),
            before=targets[index - 1] if index else None,
            after=targets[index + 1] if index + 1 < len(siblings) else None,
            under_answer=message.role == "user" and await _same_question(session, message, siblings),
        )
    return choices


async def _same_question(session: AsyncSession, message: Message, siblings: Sequence[int]) -> bool:
    """Return whether all branches begin with the same question, so that only the answers differ."""
    for sibling in siblings:
        if sibling == message.branch:
            continue
        try:
            other = await session.message(f"{sibling}.{message.position}")
        except MessageNotFound:
            return False
        if (other.role, other.parts) != (message.role, message.parts):
            return False
    return True


async def branch_tree(session: AsyncSession, branches: Sequence[Branch]) -> list[BranchNode]:
    """Return the branches of a session as a tree."""
    spans = active_path(branches)
    counts = await session.branches.shown_counts()
    branch_ids = {branch.id for branch in branches}
    children: dict[int | None, list[Branch]] = {}
    for branch in branches:
        children.setdefault(branch.parent if branch.parent in branch_ids else None, []).append(branch)

    async def build_node(branch: Branch) -> BranchNode:
        child_nodes = [await build_node(child) for child in children.get(branch.id, ())]
        return BranchNode(
            branch, await _branch_excerpt(session, branch), counts.get(branch.id, 0), branch.id in spans, child_nodes
        )

    return [await build_node(branch) for branch in children.get(None, ())]


async def _branch_excerpt(session: AsyncSession, branch: Branch) -> str:
    if branch.last <= branch.fork_at:
        return "Empty branch"
    try:
        first = await session.message(f"{branch.id}.{branch.fork_at + 1}")
    except MessageNotFound:
        return f"Branch {branch.id}"
    return one_line(first.text, _MAX_EXCERPT) or f"Branch {branch.id}"
