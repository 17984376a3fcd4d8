"""Branches: fork a session, rewind to a message without losing what followed, list branches and switch between them.

A fork copies no message. It is a branch that leaves another one after a position, in the same tree. It inherits the
compactions of the past that it shares as its own: later compactions and undos on either side stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import BranchNotFound, SessionExists
from recollect.model import json, labels, session_ids, validation
from recollect.model.session import FLAG_FIELDS, SETTABLE, Branch, SessionInfo
from recollect.storage import messages, paths, sessions
from recollect.storage.operation import Operation, Scope, Steps, execute, fetch_all, fetch_one

# Not the fields that identify or place the origin: its id in another system, its progress,
# its channel, and its state in lists.
_FORK_FIELDS = tuple(
    name for name in SETTABLE if name not in ("external_id", "status", "channel", "channel_id", *FLAG_FIELDS)
)


def list_branches(scope: Scope, session: str) -> Operation[list[Branch]]:
    """List the branches of a session, oldest first, without empty ones that are not the head."""
    return Operation(_list_branches, scope, session, writes=False)


def _list_branches(scope: Scope, session: str) -> Steps[list[Branch]]:
    current = yield from sessions.find(scope, session)
    result: list[Branch] = []
    for row in (yield from fetch_all(paths.BRANCHES_OF_SESSION, session=current.session)):
        is_head = row.key == current.head
        if row.last > row.fork_at or is_head:
            result.append(
                Branch(
                    id=row.number,
                    parent=row.parent_number,
                    fork_at=row.fork_at,
                    last=row.last,
                    current=is_head,
                    created_at_ms=row.created_at,
                )
            )
    return result


def rewind(scope: Scope, session: str, to: paths.MessageId, expected: int | None = None) -> Operation[SessionInfo]:
    """Rewind to a message: the active path ends with it, and later messages stay on their branch.

    0 rewinds to before the first message. Raise StaleRevision if the revision of the session is not `expected`.
    """
    validation.check_integer("expected", expected)
    return Operation(_rewind, scope, session, to, expected)


def _rewind(scope: Scope, session: str, to: paths.MessageId, expected: int | None) -> Steps[SessionInfo]:
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    branch = yield from make_branch_ending_at(scope, current, to)
    if branch == current.head:
        return current.value
    yield from switch_head(scope, current, branch)
    return (yield from sessions.read_by_key(current.session)).value


def make_branch_ending_at(
    scope: Scope, current: sessions.StoredSession, to: paths.MessageId, *, reuses_empty: bool = True
) -> Steps[int]:
    """Return the key of a branch whose path ends with a message: the head, another branch, or a new one.

    0 is the end of an empty path. Raise MessageNotFound if the session does not have the message. `reuses_empty`
    prefers an empty branch to a new one; the search for it takes a microsecond per branch of the session.
    """
    parent, fork_at = None, 0
    if type(to) is not int or to:
        span = yield from paths.find_span(current.value.id, current.head, current.session, to)
        parent, fork_at = span.branch, span.high
    return (yield from find_or_make_branch(scope, current, parent, fork_at, reuses_empty=reuses_empty))


def find_or_make_branch(
    scope: Scope, current: sessions.StoredSession, parent: int | None, fork_at: int, *, reuses_empty: bool = True
) -> Steps[int]:
    """Return the key of a branch whose path ends at a position of a branch, or is empty if `parent` is None."""
    path = yield from paths.read_path(current.head)
    if end_of_path(path) == (parent, fork_at):
        return current.head
    branch = yield from _find_continuable(current, parent, fork_at)
    if branch is None and reuses_empty:
        branch = yield from _find_empty(current, parent, fork_at)
    if branch is None:
        branch, _ = yield from sessions.new_branch(current.tree, current.session, parent, fork_at, scope.now)
        yield from _inherit_compactions(branch, current.head, path, parent, fork_at)
    return branch


def _inherit_compactions(
    branch: int, head: int, path: list[paths.PathSpan], parent: int | None, fork_at: int
) -> Steps[None]:
    """Copy the compactions of the shared past to a new branch: those of the head, or those of the parent."""
    if parent is not None:
        is_on_path = any(span.branch == parent and fork_at <= span.high for span in path)
        yield from execute("compactions_inherit", branch=branch, origin=head if is_on_path else parent, until=fork_at)


def end_of_path(spans: list[paths.PathSpan]) -> tuple[int | None, int]:
    """Return the branch and position of the last message of a path."""
    for span in spans:
        if span.low < span.high:
            return span.branch, span.high
    return None, 0


def _find_continuable(current: sessions.StoredSession, branch: int | None, end: int) -> Steps[int | None]:
    """Return a branch if it belongs to the session and ends at this position."""
    row = None if branch is None else (yield from fetch_one(paths.BRANCH_GET, branch=branch))
    return branch if row is not None and row.session == current.session and row.last == end else None


def _find_empty(current: sessions.StoredSession, parent: int | None, fork_at: int) -> Steps[int | None]:
    """Return an empty branch of the session that leaves its parent at this position."""
    for row in (yield from fetch_all(paths.BRANCHES_OF_SESSION, session=current.session)):
        if row.last == row.fork_at == fork_at:
            branch = yield from fetch_one(paths.BRANCH_GET, branch=row.key)
            if branch is not None and branch.parent == parent:
                return row.key
    return None


def switch_head(
    scope: Scope,
    current: sessions.StoredSession,
    branch: int,
    *,
    activity: bool = True,
    raises_revision: bool = True,
) -> Steps[None]:
    """Make a branch the head, and count its path.

    Without `raises_revision`, a later statement of the operation raises the revision.
    """
    spans = yield from paths.read_path(branch)
    totals = yield from messages.count_path(spans)
    yield from execute("branch_store_last", session=current.session)
    yield from execute(
        "session_switch", session=current.session, head=branch, now=scope.now, step=int(raises_revision),
        **totals._asdict(),
    )  # fmt: skip
    if activity:
        yield from sessions.activate(scope, current.session)


def switch(scope: Scope, session: str, number: int, expected: int | None = None) -> Operation[SessionInfo]:
    """Make another branch of the session its head; raise StaleRevision if its revision is not `expected`."""
    validation.check_integer("expected", expected)
    return Operation(_switch, scope, session, number, expected)


def _switch(scope: Scope, session: str, number: int, expected: int | None) -> Steps[SessionInfo]:
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    branch = yield from _find_by_number(current, number)
    if branch == current.head:
        return current.value
    # A switch shows another version of the conversation; it is not activity.
    yield from switch_head(scope, current, branch, activity=False)
    return (yield from sessions.read_by_key(current.session)).value


def branch_key(scope: Scope, session: str, number: int) -> Operation[int]:
    """Return the key of a branch of the session, for messages.read_forward()."""
    return Operation(_branch_key, scope, session, number, writes=False)


def _branch_key(scope: Scope, session: str, number: int) -> Steps[int]:
    return (yield from _find_by_number((yield from sessions.find(scope, session)), number))


def _find_by_number(current: sessions.StoredSession, number: int) -> Steps[int]:
    row = None
    # bool is an int in Python, but not for PostgreSQL
    if type(number) is int and 0 < number <= paths.MAX_BRANCH_NUMBER:  # pyright: ignore[reportUnnecessaryIsInstance]
        row = yield from fetch_one(paths.BRANCH_BY_NUMBER, tree=current.tree, number=number)
    if row is None or row.session != current.session:
        raise BranchNotFound(session=current.value.id, branch=number)
    return row.key


def fork(
    scope: Scope,
    session: str,
    at: paths.MessageId | None,
    new: str,
    fields: Mapping[str, Any],
    expected: int | None = None,
) -> Operation[SessionInfo]:
    """Create a session that shares the past of this one up to a message; without one, all of it.

    Raise StaleRevision if the revision of this session is not `expected`.
    """
    validation.check_integer("expected", expected)
    id, columns = session_ids.check_new_id(new), sessions.columns_of(fields, scope.now)
    return Operation(_fork, scope, session, at, id, columns, expected)


def _fork(
    scope: Scope,
    session: str,
    at: paths.MessageId | None,
    new: str,
    columns: dict[str, Any],
    expected: int | None,
) -> Steps[SessionInfo]:
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    if (yield from sessions.find_live_row(scope, new)) is not None:
        raise SessionExists(session=new)
    path = yield from paths.read_path(current.head)
    if at is None:
        parent, fork_at = end_of_path(path)
    elif type(at) is int and not at:
        parent, fork_at = None, 0
    else:
        span = yield from paths.find_span(session, current.head, current.session, at)
        parent, fork_at = span.branch, span.high
    fields = {name: getattr(current.value, name) for name in _FORK_FIELDS}
    fields["labels"] = labels.encode_labels(fields["labels"])
    if fields["metadata"] is not None:
        fields["metadata"] = json.encode(fields["metadata"])
    return (yield from fork_after(scope, current, (parent, fork_at), new, {**fields, **columns}))


def fork_after(
    scope: Scope,
    current: sessions.StoredSession,
    last: tuple[int | None, int],
    new: str,
    columns: dict[str, Any],
    *,
    inherits: bool = True,
) -> Steps[SessionInfo]:
    """Create a session that shares the past of another one up to a branch and position, with these columns.

    With `inherits`, it begins with the compactions of this past.
    """
    parent, fork_at = last
    path = yield from paths.read_path(current.head)
    origin = {"parent": current.session, "relation": "fork"}
    key = yield from sessions.insert(scope, new, current.tree, columns, origin)
    branch, _ = yield from sessions.new_branch(current.tree, key, parent, fork_at, scope.now)
    if inherits:
        yield from _inherit_compactions(branch, current.head, path, parent, fork_at)
    yield from execute("session_head", session=key, head=branch, last=fork_at)
    yield from switch_head(scope, (yield from sessions.read_by_key(key)), branch)
    return (yield from sessions.read_by_key(key)).value
