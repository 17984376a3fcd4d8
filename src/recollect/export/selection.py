"""What goes into an export: which sessions, which branches of them, and how much of a past that they share.

Sessions that share branches are taken together, in the order in which they were made, so that a branch is written
once, by the first session that needs it, and before those that leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue
from recollect.export.flow import Flow, ask
from recollect.model.session import Session
from recollect.op import Scope
from recollect.ops import transfer


class Cut(NamedTuple):
    """A branch, as far as it is needed."""

    branch: transfer.Branch
    parent: int | None
    """The number of the branch that it leaves."""
    high: int
    shared: bool
    """Whether it belongs to a session that is not in the export."""


class Chosen(NamedTuple):
    """A session of an export: its key, the branches that are written with it, and what its tree has in the export."""

    key: int
    value: Session
    tree: int
    branches: list[Cut]
    reach: dict[int, Cut]
    """All branches of the tree that are in the export, by key."""


Visit = Callable[[Chosen], Flow[None]]


def visit(scope: Scope, ids: Sequence[str] | None, each: Visit) -> Flow[None]:
    """Go through the sessions: those named, or all that are not in the trash, the oldest first."""
    if ids is None:
        yield from _visit_all(scope, each)
        return
    if isinstance(ids, str):
        raise InvalidValue("ids is a list of session ids, or None for all of them.")
    named = list(dict.fromkeys(ids))
    found: dict[str, int] = yield from ask(transfer.trees(scope, named))
    chosen = frozenset(named)
    for number, key in enumerate(dict.fromkeys(found.values()), 1):
        yield from _visit_tree(key, chosen, number, each)


def _visit_all(scope: Scope, each: Visit) -> Flow[None]:
    seen: set[int] = set()
    after: tuple[int, int] | None = None
    while True:
        page: transfer.Listed = yield from ask(transfer.listed(scope, after))
        for _, key in page.sessions:
            if key not in seen:
                seen.add(key)
                yield from _visit_tree(key, None, len(seen), each)
        if page.more is None:
            return
        after = page.more


def _visit_tree(key: int, ids: frozenset[str] | None, number: int, each: Visit) -> Flow[None]:
    tree: transfer.Tree = yield from ask(transfer.tree(key, ids))
    reach = _reach(tree)
    written: set[int] = set()
    for session, value in sorted(tree.sessions.items()):
        needed = _needed(session, reach) - written
        written |= needed
        cuts = sorted((reach[branch] for branch in needed), key=lambda cut: cut.branch.number)
        yield from each(Chosen(session, value, number, cuts, reach))


def _reach(tree: transfer.Tree) -> dict[int, Cut]:
    """Say how far each branch is needed: all of it for a session that is in, else up to the last fork from it."""
    numbers = {branch.key: branch.number for branch in tree.branches}
    high: dict[int, int] = {}
    for branch in reversed(tree.branches):  # a child has a higher number than its parent
        if branch.session in tree.sessions:
            high[branch.key] = branch.last
        if branch.key in high and branch.parent is not None and branch.parent not in high:
            high[branch.parent] = 0
        if branch.key in high and branch.parent is not None:
            high[branch.parent] = max(high[branch.parent], branch.fork_at)
    found: dict[int, Cut] = {}
    for branch in tree.branches:
        if branch.key in high:
            shared = branch.session not in tree.sessions
            parent = None if branch.parent is None else numbers[branch.parent]
            found[branch.key] = Cut(branch, parent, high[branch.key] if shared else branch.last, shared)
    return found


def _needed(session: int, reach: dict[int, Cut]) -> set[int]:
    """Name the branches of a session, and those that its past runs through."""
    found: set[int] = set()
    for cut in reach.values():
        if cut.branch.session == session:
            key: int | None = cut.branch.key
            while key is not None and key not in found:
                found.add(key)
                key = reach[key].branch.parent
    return found


def spans(head: int, reach: dict[int, Cut], *, own: bool = False) -> list[tuple[Cut, int, int]]:
    """Give the stretches of the path that ends with a branch, the oldest first; or only what is its own."""
    found: list[tuple[Cut, int, int]] = []
    key: int | None = head
    high: Any = None
    while key is not None:
        cut = reach[key]
        end = cut.high if high is None else high
        found.append((cut, cut.branch.fork_at, end))
        high, key = cut.branch.fork_at, None if own else cut.branch.parent
    return found[::-1]
