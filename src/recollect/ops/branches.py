"""Branches: fork a session, go back to a message without losing what followed, list and switch.

A fork copies no message. It is a branch that leaves another one after a position, in the same tree. The compactions of
the past that it shares are its own from then on: what is compacted or undone later, on either side, stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import BranchNotFound, SessionExists
from recollect.model import json, keys
from recollect.model.branch import Branch
from recollect.model.session import Session
from recollect.op import Op, Scope, Steps, do, one, rows
from recollect.ops import fields, messages, paths, sessions

# What a fork takes over from its origin.
_INHERITED = (
    "title", "task", "provider", "provider_config", "model", "working_dir", "system_prompt", "color", "metadata",
)  # fmt: skip


def branches(scope: Scope, session: str) -> Op[list[Branch]]:
    """List the branches of a session, oldest first. Empty ones that were left again are not shown."""
    return Op(_branches, scope, session, writes=False)


def _branches(scope: Scope, session: str) -> Steps[list[Branch]]:
    here = yield from sessions.find(scope, session)
    found: list[Branch] = []
    for key, number, parent, fork_at, last, created in (yield from rows("branches_of_session", session=here.session)):
        if last > fork_at or key == here.head:
            found.append(
                Branch(
                    id=number, parent=parent, fork_at=fork_at, last=last, current=key == here.head, created_at=created
                )
            )
    return found


def rewind(scope: Scope, session: str, to: paths.MessageId) -> Op[Session]:
    """Go back to a message: the active path ends with it, and what followed stays on its own branch.

    0 goes back to before the first message.
    """
    return Op(_rewind, scope, session, to)


def _rewind(scope: Scope, session: str, to: paths.MessageId) -> Steps[Session]:
    here = yield from sessions.find(scope, session)
    parent, fork_at = None, 0
    if type(to) is not int or to:
        span = yield from paths.locate(session, here.head, here.session, to)
        parent, fork_at = span.branch, span.high
    path = yield from paths.path(here.head)
    if _tip(path) == (parent, fork_at):
        return here.value
    branch = yield from _ending_at(here, parent, fork_at)
    if branch is None:
        branch, _ = yield from sessions.new_branch(here.tree, here.session, parent, fork_at, scope.now)
        yield from _inherit(branch, here.head, path, parent, fork_at)
    return (yield from _stand(scope, here, branch))


def _inherit(branch: int, head: int, path: list[paths.Span], parent: int | None, fork_at: int) -> Steps[None]:
    """Give a new branch the compactions of the past it shares: as its session sees it, or as the branch has it."""
    if parent is not None:
        seen = any(span.branch == parent and fork_at <= span.high for span in path)
        yield from do("compactions_inherit", branch=branch, origin=head if seen else parent, until=fork_at)


def _tip(spans: list[paths.Span]) -> tuple[int | None, int]:
    """Say where a path ends: the branch and position of its last message."""
    for span in spans:
        if span.low < span.high:
            return span.branch, span.high
    return None, 0


def _ending_at(here: sessions.Here, parent: int | None, fork_at: int) -> Steps[int | None]:
    """Find a branch of the session whose path ends there already: at its last message, or empty and left again."""
    for key, _, _, start, last, _ in (yield from rows("branches_of_session", session=here.session)):
        if key == parent and last == fork_at:
            return key
        if last == start == fork_at:
            row = yield from one("branch_get", branch=key)
            if row is not None and row[3] == parent:
                return key
    return None


def _stand(scope: Scope, here: sessions.Here, branch: int, *, activity: bool = True) -> Steps[Session]:
    """Make a branch the active path, and count it."""
    spans = yield from paths.path(branch)
    totals = yield from messages.totals(spans)
    yield from do("branch_park", session=here.session)
    yield from do("session_stand", session=here.session, head=branch, now=scope.now, **totals._asdict())
    if activity:
        yield from sessions.activate(scope, here.session)
    return (yield from sessions.stored(here.session)).value


def switch(scope: Scope, session: str, number: int) -> Op[Session]:
    """Make another branch of the session its active path."""
    return Op(_switch, scope, session, number)


def _switch(scope: Scope, session: str, number: int) -> Steps[Session]:
    here = yield from sessions.find(scope, session)
    branch = yield from _numbered(here, number)
    if branch == here.head:
        return here.value
    return (yield from _stand(scope, here, branch, activity=False))  # another version is read, and nothing is written


def key(scope: Scope, session: str, number: int) -> Op[int]:
    """Give the key of a branch of the session, by which messages.forward() reads it."""
    return Op(_key, scope, session, number, writes=False)


def _key(scope: Scope, session: str, number: int) -> Steps[int]:
    return (yield from _numbered((yield from sessions.find(scope, session)), number))


def _numbered(here: sessions.Here, number: int) -> Steps[int]:
    row = None
    # True is a number too, and not to every engine
    if type(number) is int and 0 < number <= paths.MOST_BRANCHES:  # pyright: ignore[reportUnnecessaryIsInstance]
        row = yield from one("branch_by_number", tree=here.tree, number=number)
    if row is None or row[2] != here.session:
        raise BranchNotFound(session=here.value.id, branch=number)
    return row[0]


def fork(scope: Scope, session: str, at: paths.MessageId | None, new: str, given: Mapping[str, Any]) -> Op[Session]:
    """Make a new session that shares this one's past up to a message (all of it where none is named)."""
    return Op(_fork, scope, session, at, keys.checked(new), fields.checked(given, scope.now))


def _fork(scope: Scope, session: str, at: paths.MessageId | None, new: str, columns: dict[str, Any]) -> Steps[Session]:
    here = yield from sessions.find(scope, session)
    if (yield from one("session_get", owner=scope.owner, id=new)) is not None:
        raise SessionExists(session=new)
    path = yield from paths.path(here.head)
    if at is None:
        parent, fork_at = _tip(path)
    elif type(at) is int and not at:
        parent, fork_at = None, 0
    else:
        span = yield from paths.locate(session, here.head, here.session, at)
        parent, fork_at = span.branch, span.high
    inherited = {name: getattr(here.value, name) for name in _INHERITED}
    if inherited["metadata"] is not None:
        inherited["metadata"] = json.encode(inherited["metadata"])
    origin = {"parent": here.session, "relation": "fork"}
    key = yield from sessions.insert(scope, new, here.tree, {**inherited, **columns}, origin)
    branch, number = yield from sessions.new_branch(here.tree, key, parent, fork_at, scope.now)
    yield from _inherit(branch, here.head, path, parent, fork_at)
    yield from do("session_head", session=key, head=branch, branch=number, last=fork_at)
    return (yield from _stand(scope, (yield from sessions.stored(key)), branch))
