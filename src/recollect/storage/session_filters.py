"""Filters by label, external id, id prefix and metadata field, which lists and searches share.

Both engines compare a metadata field as JSON text, because their JSON functions convert values in different ways: one
reads an integer over 64 bits as a float, the other rejects NUL. json.encode() has two forms of a text, so a filter has
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.model import json, session_ids, validation

FilterValues = str | Iterable[str]
"""One value of a filter of a search, or several of which one must match."""

_SCALARS = (str, int, float, bool, type(None))


class SessionFilters(NamedTuple):
    """Filters of sessions, as parameters of the queries; None does not filter."""

    labels: str | None = None
    """A JSON array. A session must have all of them."""
    external_id: str | None = None
    id_prefix: str | None = None
    id_limit: str | None = None
    """The upper bound of the ids with the prefix."""
    metadata: str | None = None
    """A JSON array of fields, each its name and the JSON texts of its value. A session must have all of them."""

    @property
    def label_list(self) -> list[str]:
        """The labels, of which a session must have all."""
        return [] if self.labels is None else json.decode(self.labels)


NO_SESSION_FILTERS = SessionFilters()


def session_filters(
    *,
    label: FilterValues | None = None,
    external_id: str | None = None,
    id_prefix: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> SessionFilters:
    """Return the filters of a caller; raise InvalidValue if one is invalid."""
    labels = sorted({validation.check_plain_text("label", value) for value in filter_values(label)})
    prefix = None if id_prefix is None else validation.check_plain_text("id_prefix", id_prefix)
    return SessionFilters(
        labels=json.encode(labels) if labels else None,
        external_id=None if external_id is None else validation.check_plain_text("external_id", external_id),
        id_prefix=prefix or None,
        id_limit=session_ids.last_with_prefix(prefix) if prefix else None,
        metadata=_encode_fields(metadata),
    )


def filter_values(values: FilterValues | None) -> frozenset[str]:
    """Return one value or several as a set."""
    if values is None:
        return frozenset()
    try:
        items: list[object] = [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)  # pyright: ignore[reportUnnecessaryIsInstance]
    except Exception as error:  # raised by the caller's iterator
        raise InvalidValue(f"A filter must be a string or several strings, got {format_value(values)}.") from error
    texts = [str.__str__(item) for item in items if isinstance(item, str)]
    if len(texts) < len(items):
        raise InvalidValue(f"A filter must be a string or several strings, got {format_value(values)}.")
    return frozenset(texts)


def _encode_fields(metadata: Any) -> str | None:
    """Return metadata fields as the parameter of a query."""
    if metadata is None:
        return None
    fields = json.to_json_data(metadata)
    if not isinstance(fields, dict):
        raise InvalidValue(f"metadata must be a dict of fields and values, got {format_value(metadata)}.")
    entries = [_encode_field(name, value) for name, value in fields.items()]
    return json.encode(entries) if entries else None


def _encode_field(name: str, value: Any) -> tuple[str, str, str]:
    if "\0" in validation.check_plain_text("A metadata field", name):
        raise InvalidValue(f"A metadata field must be a str without NUL, got {format_value(name)}.")
    if not isinstance(value, _SCALARS):
        raise InvalidValue(
            f"A metadata field must be compared with a str, a number, True, False or None, got {format_value(value)}."
        )
    return (name, *json.encode_forms(value))
