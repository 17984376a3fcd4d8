"""Labels of a session: validation, and the JSON text that a database column holds.

A session has a set of labels. It is stored as a sorted array, so that equal sets are equal texts on every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recollect.errors import InvalidValue, format_value
from recollect.model import json

MAX_LABELS = 100  # of a session; lists decode them for each session of a page
MAX_LENGTH = 200  # characters, up to 800 bytes; an index key of PostgreSQL has at most 2,700 bytes
_C1_CONTROLS = range(0x7F, 0xA0)
_SEPARATORS = "\u2028\u2029"  # a line and a paragraph separator end a line as a control character does


def check_label(value: Any) -> str:
    """Return a label as a plain str, or raise InvalidValue."""
    if not isinstance(value, str):
        raise InvalidValue(f"A label must be a str, got {format_value(value)}.")
    label = str.__str__(value)
    if not 1 <= len(label) <= MAX_LENGTH:
        raise InvalidValue(f"A label must have 1 to {MAX_LENGTH} characters, got {len(label):,}.")
    if label != label.strip():
        raise InvalidValue(f"A label must not begin or end with a space, got {format_value(label)}.")
    if not _is_storable(label):
        raise InvalidValue(
            f"A label must not contain control characters, line breaks or lone surrogates, got {format_value(label)}."
        )
    return label


def _is_storable(label: str) -> bool:
    # Not str.isprintable(): it refuses the joiners within an emoji, and every space but the ordinary one.
    return label.isprintable() or not any(
        character < " "
        or ord(character) in _C1_CONTROLS
        or character in _SEPARATORS
        or "\ud800" <= character <= "\udfff"
        for character in label
    )


def check_labels(values: Any) -> tuple[str, ...]:
    """Return labels sorted and without duplicates; None is an empty set. Raise InvalidValue if one is invalid."""
    return () if values is None else check_count(check_label_set("labels", "a list of str or None", values))


def check_label_set(name: str, rule: str, values: Any) -> frozenset[str]:
    """Return the labels of an argument. Raise InvalidValue with the rule if it is not a list, or if one is invalid."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidValue(f"{name} must be {rule}, got {format_value(values)}.")
    try:
        items: list[Any] = list(values)
    except Exception as error:  # raised by the caller's iterator
        raise InvalidValue(f"{name} must be {rule}, got {format_value(values)}.") from error
    return frozenset(map(check_label, items))


def check_count(labels: Iterable[str]) -> tuple[str, ...]:
    """Return valid labels sorted; raise InvalidValue if a session cannot have so many."""
    result = tuple(sorted(labels))
    if len(result) > MAX_LABELS:
        raise InvalidValue(f"A session must have at most {MAX_LABELS} labels, got {len(result):,}.")
    return result


def encode_labels(labels: Iterable[str]) -> str | None:
    """Return sorted labels as the text of a column; None if there are none."""
    items = list(labels)
    return json.encode(items) if items else None


def decode_labels(text: str | None) -> tuple[str, ...]:
    """Return the labels in the text of a column."""
    return () if text is None else tuple(json.decode(text))
