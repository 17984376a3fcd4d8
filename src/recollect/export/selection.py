"""The sessions and branches of an export, and how much of a shared path each session needs.

Sessions that share branches are visited together, in the order of their creation, so that each branch is written once:
by the first session that needs it, and before the branches that fork from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue
from recollect.export.pipeline import Pipeline, execute
from recollect.model.session import SessionInfo
from recollect.storage import row_stream
from recollect.storage.operation import Scope


class BranchExtent(NamedTuple):
    """A branch, up to the last position that the export needs."""

    branch: row_stream.BranchOutline
    parent: int | None
    """The number of the parent branch."""
    high: int
    shared: bool
    """Whether it belongs to a session outside the export."""


class SelectedSession(NamedTuple):
    """A session of an export: its key, the branches that are written with it, and the exported branches of its tree."""

    key: int
    value: SessionInfo
    tree: int
    branches: list[BranchExtent]
    extents: dict[int, BranchExtent]
    """All exported branches of the tree, by key."""


SessionVisitor = Callable[[SelectedSession], Pipeline[None]]


SelectedTrees = dict[str, int] | None
"""The tree of each selected session by its id; None selects all sessions."""


def select_trees(scope: Scope, ids: Sequence[str] | None) -> Pipeline[SelectedTrees]:
    """Select the sessions with these ids, or all. Raise SessionNotFound for a missing one, before any output."""
    if ids is None:
        return None
    if isinstance(ids, str):
        raise InvalidValue("ids must be a list of session ids, or None for all sessions, got a str.")
    return (yield from execute(row_stream.find_trees(scope, list(dict.fromkeys(ids)))))


def visit_sessions(scope: Scope, trees: SelectedTrees, visit: SessionVisitor) -> Pipeline[None]:
    """Visit the selected sessions, or all that are not in the trash, oldest first."""
    if trees is None:
        yield from _visit_all(scope, visit)
        return
    ids = frozenset(trees)
    for number, key in enumerate(dict.fromkeys(trees.values()), 1):
        yield from _visit_tree(key, ids, number, visit)


def _visit_all(scope: Scope, visit: SessionVisitor) -> Pipeline[None]:
    tree_keys: set[int] = set()
    at = last_key = -1
    while rows := (yield from execute(row_stream.list_created_sessions(scope, at, last_key))):
        for row in rows:
            if row.tree not in tree_keys:
                tree_keys.add(row.tree)
                yield from _visit_tree(row.tree, None, len(tree_keys), visit)
        at, last_key = rows[-1].created_at, rows[-1].key


def _visit_tree(key: int, ids: frozenset[str] | None, number: int, visit: SessionVisitor) -> Pipeline[None]:
    tree: row_stream.TreeOutline = yield from execute(row_stream.read_tree(key, ids))
    extents = _branch_extents(tree)
    written_keys: set[int] = set()
    for session_key, session in sorted(tree.sessions.items()):
        keys = _needed_branches(session_key, extents) - written_keys
        written_keys |= keys
        own_extents = sorted((extents[branch] for branch in keys), key=lambda extent: extent.branch.number)
        yield from visit(SelectedSession(session_key, session.value, number, own_extents, extents))


def _branch_extents(tree: row_stream.TreeOutline) -> dict[int, BranchExtent]:
    """Return each needed branch: all of it if its session is exported, otherwise up to the last fork from it."""
    numbers = {branch.key: branch.number for branch in tree.branches}
    high: dict[int, int] = {}
    for branch in reversed(tree.branches):  # children before parents: a child has a higher number
        if branch.session in tree.sessions:
            high[branch.key] = branch.last
        if branch.key in high and branch.parent is not None and branch.parent not in high:
            high[branch.parent] = 0
        if branch.key in high and branch.parent is not None:
            high[branch.parent] = max(high[branch.parent], branch.fork_at)
    extents: dict[int, BranchExtent] = {}
    for branch in tree.branches:
        if branch.key in high:
            shared = branch.session not in tree.sessions
            parent = None if branch.parent is None else numbers[branch.parent]
            extents[branch.key] = BranchExtent(branch, parent, high[branch.key] if shared else branch.last, shared)
    return extents


def _needed_branches(session: int, extents: dict[int, BranchExtent]) -> set[int]:
    """Return the keys of the branches of a session, and of those that their paths go through."""
    keys: set[int] = set()
    for extent in extents.values():
        if extent.branch.session == session:
            key: int | None = extent.branch.key
            while key is not None and key not in keys:
                keys.add(key)
                key = extents[key].branch.parent
    return keys


def path_spans(head: int, extents: dict[int, BranchExtent]) -> list[tuple[BranchExtent, int, int]]:
    """Return the spans of the path that ends with a branch, oldest first."""
    spans: list[tuple[BranchExtent, int, int]] = []
    key: int | None = head
    high: Any = None
    while key is not None:
        extent = extents[key]
        end = extent.high if high is None else high
        spans.append((extent, extent.branch.fork_at, end))
        high, key = extent.branch.fork_at, extent.branch.parent
    return spans[::-1]
