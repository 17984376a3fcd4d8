"""Letting go: erasing a session for good, with care for the forks that share its past."""

from __future__ import annotations

from typing import NamedTuple

from recollect.errors import SessionHasForks, SessionNotFound
from recollect.model import argument, json
from recollect.op import Op, Row, Scope, Steps, do, each, one, rows
from recollect.ops import leases, paths, presence, search, sessions

FORKS = ("refuse", "keep", "erase")


class _Branch(NamedTuple):
    key: int
    number: int
    session: int | None
    parent: int | None
    fork_at: int


class Erased(NamedTuple):
    """Which sessions were erased."""

    sessions: list[str]


def erase(scope: Scope, session: str, *, forks: str = "refuse", deleted: bool | None = None) -> Op[Erased]:
    """Erase a session, and every branch that no other session reaches.

    `deleted` says where it is: True in the trash, False not; None takes a living one first.
    """
    argument.choice("forks", forks, FORKS)
    return Op(_erase, scope, session, forks, deleted, scrubs=True, unindexes=True, frees=True)


def _erase(scope: Scope, session: str, forks: str, deleted: bool | None) -> Steps[Erased]:
    row = None if deleted is True else (yield from sessions.living(scope, session))
    if row is None and deleted is not False:
        row = yield from sessions.in_trash(scope, session)
    if row is None and deleted is None:  # another process may have restored it between the two looks
        row = yield from sessions.living(scope, session)
    if row is None:
        raise SessionNotFound(session=session)
    here = sessions.here(row)
    branches = yield from _branches_of(here.tree)
    names: dict[int, str] = {key: name for key, name, _, _ in (yield from rows("sessions_of_tree", tree=here.tree))}
    dependent = _dependent(branches, here.session)
    if dependent and forks == "refuse":
        raise SessionHasForks(session=session, forks=tuple(names[key] for key in sorted(dependent)))
    gone = {here.session} | (dependent if forks == "erase" else set())
    yield from _end_turns(scope, branches, gone)
    for key in sorted(gone):
        yield from search.untitle(key)
        yield from do("session_delete", session=key)
    yield from _sweep(scope, here.tree, branches, gone)
    erased = [names[key] for key in sorted(gone)]
    yield from presence.forget(scope, erased)
    return Erased(erased)


def remove(scope: Scope, here: sessions.Here) -> Steps[None]:
    """Erase a session that is at hand; forks are left the past that they share."""
    branches = yield from _branches_of(here.tree)
    yield from _end_turns(scope, branches, {here.session})
    yield from search.untitle(here.session)
    yield from do("session_delete", session=here.session)
    yield from _sweep(scope, here.tree, branches, {here.session})
    yield from presence.forget(scope, [here.value.id])


def alone(here: sessions.Here) -> Steps[dict[int, int]]:
    """Say from where on each branch of a session is its own: after the last position that another session reaches."""
    branches = yield from _branches_of(here.tree)
    needed = _needed(branches, {here.session})
    own = (branch for branch in branches if branch.session == here.session)
    return {branch.key: needed.get(branch.key) or 0 for branch in own}


def _branches_of(tree: int) -> Steps[list[_Branch]]:
    return [_Branch(*row) for row in (yield from rows("branches_of_tree", tree=tree))]


def _dependent(branches: list[_Branch], session: int) -> set[int]:
    """Find the sessions whose past runs through branches of this one."""
    known = {branch.key: branch for branch in branches}
    found: set[int] = set()
    through: dict[int, bool] = {}
    for branch in sorted(branches, key=lambda item: item.key):  # a parent is older than its child
        parent = None if branch.parent is None else known.get(branch.parent)
        through[branch.key] = parent is not None and (parent.session == session or through[parent.key])
        if through[branch.key] and branch.session is not None:
            found.add(branch.session)
    return found - {session}


def _end_turns(scope: Scope, branches: list[_Branch], gone: set[int]) -> Steps[None]:
    """Interrupt the open turns of sessions that go: forks may keep what they stored, and nobody is left to end them."""
    for branch in branches:
        if branch.session in gone:
            row = yield from one("branch_open", branch=branch.key)
            if row is not None:
                yield from leases.interrupt(scope, branch.session, branch.key, row[0])


def _sweep(scope: Scope, tree: int, branches: list[_Branch], gone: set[int]) -> Steps[None]:
    """Delete what no session reaches: whole branches, and the ends of branches beyond the last fork from them."""
    needed = _needed(branches, gone)
    for branch in sorted(branches, key=lambda item: item.key, reverse=True):
        cut = needed.get(branch.key, 0)
        if cut is not None:
            yield from _cut(scope, branch, branches, cut)
    yield from do("tree_delete", tree=tree)


def _needed(branches: list[_Branch], gone: set[int]) -> dict[int, int | None]:
    """Say up to which position the sessions that stay reach into each branch; None: all of it."""
    needed: dict[int, int | None] = {}
    # A child has a higher key than its parent, so that going backwards meets every child first.
    for branch in sorted(branches, key=lambda item: item.key, reverse=True):
        if branch.session is not None and branch.session not in gone:
            needed[branch.key] = None
        if branch.key in needed and branch.parent is not None:
            held = needed.get(branch.parent, 0)
            needed[branch.parent] = None if held is None else max(held, branch.fork_at)
    return needed


def _cut(scope: Scope, branch: _Branch, branches: list[_Branch], cut: int) -> Steps[None]:
    """Delete the messages of a branch beyond a position, and the branch itself where nothing of it is left."""
    yield from search.cut(scope, branch.key, cut)
    found: list[Row] = yield from rows("messages_blobs", branch=branch.key, low=cut, high=paths.LAST)
    dropped = [(scope.owner, name) for row in found for name in json.decode(row[0])]
    yield from each("blob_drop", dropped)
    yield from each("blob_sweep", dropped)
    for query in ("messages_erase", "turns_erase", "tool_calls_erase", "tool_calls_reopen", "pins_erase"):
        yield from do(query, branch=branch.key, low=cut)
    yield from do("compactions_erase", branch=branch.key)  # a fork has its own
    if cut == 0:
        for other in branches:
            yield from do("tool_calls_erase_answers", branch=branch.key, parent=other.key)
        yield from do("branch_delete", branch=branch.key)
