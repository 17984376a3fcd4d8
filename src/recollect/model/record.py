"""Keyed records: state of a program that is not a message, and the rules for its kinds and keys."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Self

from recollect.errors import InvalidValue, format_value
from recollect.model import json
from recollect.model.value import TimeProperty, Value

MAX_KIND_LENGTH = 64  # characters
MAX_KEY_BYTES = 1_024  # of UTF-8. With kind and owner, it fits into an index entry of PostgreSQL, about 2,700 bytes.
RESERVED_PREFIX = "recollect."
"""Kinds that begin with it are Recollect's own. Programs can read these records, but not write them."""


class Record(Value, frozen=True, kw_only=True, gc=False):
    """A record of a session, or of the store (`session` is None).

    - `kind`, `key`: its kind and key.
    - `revision`: a number that increases with every write.
    - `value`: the JSON value, or bytes. `to_dict()` returns bytes as base64, under `data` in place of `value`.
    - `created_at`, `updated_at`: times of its creation and of the last write.
    - `session`: id of its session, or `None` for a record of the store.
    """

    kind: str
    key: str
    revision: int
    value: Any
    created_at_ms: int
    updated_at_ms: int
    session: str | None = None

    created_at = TimeProperty[datetime]()
    updated_at = TimeProperty[datetime]()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, times as ISO 8601; bytes as base64 in `data` in place of `value`."""
        plain = super().to_dict()
        if isinstance(self.value, bytes):
            plain["data"] = plain.pop("value")
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Convert the result of to_dict() back."""
        if "data" in plain:
            plain = {**plain, "value": base64.b64decode(plain["data"])}
            del plain["data"]
        return super().from_dict(plain)


def check_kind(kind: Any) -> str:
    """Return the kind of a record as a plain str."""
    text = _plain_text(kind)
    if text is not None and 1 <= len(text) <= MAX_KIND_LENGTH:
        return text
    raise InvalidValue(
        f"kind must be a str of 1 to {MAX_KIND_LENGTH} characters without lone surrogates, got {format_value(kind)}."
    )


def check_writable_kind(kind: Any) -> str:
    """Return the kind of a record that a program may write as a plain str."""
    text = check_kind(kind)
    if text.startswith(RESERVED_PREFIX):
        raise InvalidValue(
            f"kind must not begin with {RESERVED_PREFIX!r}, which Recollect reserves for its own records, got "
            f"{format_value(text)}. Use another prefix."
        )
    return text


def check_new_key(name: str, key: Any) -> bytes:
    """Return the key of a record to write in UTF-8."""
    text = _plain_text(key)
    data = b"" if text is None else text.encode()
    if 1 <= len(data) <= MAX_KEY_BYTES:
        return data
    raise InvalidValue(
        f"{name} must be a str of 1 to {MAX_KEY_BYTES:,} bytes of UTF-8 without lone surrogates, got "
        f"{format_value(key)}."
    )


def encode_key(name: str, key: Any) -> bytes:
    """Return a key, or the beginning of one, in UTF-8."""
    text = _plain_text(key)
    if text is None:
        raise InvalidValue(f"{name} must be a str without lone surrogates, got {format_value(key)}.")
    return text.encode()


def _plain_text(value: Any) -> str | None:
    """Return a str as a plain str, also one of a subclass such as an enum; None if a database cannot hold it."""
    text = str.__str__(value) if isinstance(value, str) else None
    return None if text is None or text != json.escape_surrogates(text) else text
