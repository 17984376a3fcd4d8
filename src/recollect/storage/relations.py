"""The parent of a session: set, change or clear it, and the relation to it, after the session was created.

A session is never its own ancestor: code that follows the parents must end. On an engine with several writers, the rows
of the session and of its new ancestors are locked while they are compared, so that two programs cannot close a circle
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.model import validation
from recollect.model.session import Relation, SessionInfo
from recollect.storage import labels, sessions
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, fetch_one


class ParentKeyRow(NamedTuple):
    """The key of the parent of a session."""

    parent: int | None


SESSION_PARENT = Query("session_parent", ParentKeyRow)


class ParentChange(NamedTuple):
    """The `parent` and the `relation` that a caller sets; those that it does not set stay."""

    parent: str | None
    relation: Relation | None
    sets_parent: bool
    """Whether the caller sets or clears the parent, and not only the relation."""


def update(
    scope: Scope, session: str, fields: Mapping[str, Any], expected: int | None = None
) -> Operation[SessionInfo]:
    """Change fields of a session like sessions.update(), also its parent and relation, and single labels."""
    fields, label_change = labels.split_fields(fields)
    if not any(name in fields for name in sessions.PARENT_FIELDS):
        if label_change is None:
            return sessions.update(scope, session, fields, expected)
        validation.check_integer("expected", expected)
        columns = sessions.columns_of(fields, scope.now)
        return Operation(_update_with_labels, scope, session, columns, label_change, expected)
    validation.check_integer("expected", expected)
    change = ParentChange(*sessions.check_parent_fields(fields), "parent" in fields)
    if change.sets_parent and change.parent is None and change.relation is not None:
        raise InvalidValue(f"relation must be None if parent is None, got {format_value(change.relation)}.")
    columns = sessions.columns_of(
        {name: value for name, value in fields.items() if name not in sessions.PARENT_FIELDS}, scope.now
    )
    return Operation(_update, scope, session, columns, label_change, change, expected)


def _update_with_labels(
    scope: Scope, session: str, columns: dict[str, Any], label_change: labels.LabelChange, expected: int | None
) -> Steps[SessionInfo]:
    """Change columns and labels. If the session has the labels already and nothing else changes, write nothing."""
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    columns = columns | label_change.columns(current.value)
    return (yield from sessions.write_columns(scope, session, columns, None)) if columns else current.value


def _update(
    scope: Scope,
    session: str,
    columns: dict[str, Any],
    label_change: labels.LabelChange | None,
    change: ParentChange,
    expected: int | None,
) -> Steps[SessionInfo]:
    current = yield from sessions.find(scope, session)
    if label_change is not None:
        columns = columns | label_change.columns(current.value)
    yield from sessions.write_columns(scope, session, columns, expected)
    if change.sets_parent:
        yield from set_parent(scope, current, change)
    else:
        yield from _set_relation(current, change.relation)
    return (yield from sessions.read_by_key(current.session)).value


def set_parent(scope: Scope, current: sessions.StoredSession, change: ParentChange) -> Steps[None]:
    """Write the parent of a session, and its relation to it."""
    if change.parent is None:
        yield from execute("session_set_parent", session=current.session, parent=None, relation=None)
        return
    parent = yield from sessions.find(scope, change.parent)
    if (yield from is_ancestor(current.session, parent.session)):
        raise InvalidValue(
            f"parent must not be the session or one of its descendants, got {format_value(change.parent)} for "
            f"{format_value(current.value.id)}."
        )
    relation = change.relation or current.value.relation or "delegate"
    yield from execute("session_set_parent", session=current.session, parent=parent.session, relation=relation)


def _set_relation(current: sessions.StoredSession, relation: Relation | None) -> Steps[None]:
    """Change the relation to the present parent. Without one, a relation that a parent has left can be cleared."""
    id = format_value(current.value.id)
    if current.value.parent is None and relation is not None:
        raise InvalidValue(
            f"relation must be None without a parent, got {format_value(relation)}. Pass parent too: {id} has none."
        )
    if current.value.parent is not None and relation is None:
        raise InvalidValue(f"relation must not be None while {id} has a parent. Pass parent=None to clear both.")
    yield from execute("session_set_relation", session=current.session, relation=relation)


def is_ancestor(session: int, start: int) -> Steps[bool]:
    """Return whether a session is `start` or one of its ancestors, by keys."""
    key: int | None = start
    ancestors = set[int]()
    while key is not None and key not in ancestors:  # an older version may have stored a circle
        if key == session:
            return True
        ancestors.add(key)
        row = yield from fetch_one(SESSION_PARENT, session=key)
        key = None if row is None else row.parent
    return False
