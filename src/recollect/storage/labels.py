"""Labels of a session: add some and remove some, without a change of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.model import labels
from recollect.model.session import SessionInfo

_FIELDS = ("add_labels", "remove_labels")


class LabelChange(NamedTuple):
    """The labels that a caller adds and removes."""

    additions: frozenset[str]
    removals: frozenset[str]

    def columns(self, session: SessionInfo) -> dict[str, Any]:
        """Return the changed column of a session; nothing if it has the labels already.

        The session must be locked, so that no label of another program is lost.
        """
        result = labels.check_count(self.additions.union(session.labels) - self.removals)
        return {} if result == session.labels else {"labels": labels.encode_labels(result)}


def split_fields(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], LabelChange | None]:
    """Return the fields without `add_labels` and `remove_labels`, and the change of labels that these describe."""
    if not any(name in fields for name in _FIELDS):
        return fields, None
    if "labels" in fields:
        raise InvalidValue("labels must not be combined with add_labels or remove_labels. Pass one or the other.")
    additions, removals = (labels.check_label_set(name, "a list of str", fields.get(name, ())) for name in _FIELDS)
    if both := sorted(additions & removals):
        raise InvalidValue(f"add_labels and remove_labels must not both contain {format_value(both[0])}.")
    return {name: value for name, value in fields.items() if name not in _FIELDS}, LabelChange(additions, removals)
