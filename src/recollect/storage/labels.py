"""Labels of a session: add some, and remove some, without a change of the others."""

from __future__ import annotations

from collections.abc import Iterable

from recollect.model import labels
from recollect.model.session import SessionInfo
from recollect.storage import sessions
from recollect.storage.operation import Operation, Scope, Steps


def add(scope: Scope, session: str, new: Iterable[str]) -> Operation[SessionInfo]:
    """Add labels to a session. Labels that it has already change nothing."""
    return Operation(_change, scope, session, frozenset(map(labels.check_label, new)), frozenset[str]())


def remove(scope: Scope, session: str, old: Iterable[str]) -> Operation[SessionInfo]:
    """Remove labels from a session. Labels that it does not have change nothing."""
    return Operation(_change, scope, session, frozenset[str](), frozenset(map(labels.check_label, old)))


def _change(scope: Scope, session: str, new: frozenset[str], old: frozenset[str]) -> Steps[SessionInfo]:
    # find() locks the row on an engine with several writers, so that no label of another program is lost.
    current = (yield from sessions.find(scope, session)).value
    result = labels.check_count((new | set(current.labels)) - old)
    if result == current.labels:
        return current
    return (yield from sessions.write_columns(scope, session, {"labels": labels.encode_labels(result)}, None))
