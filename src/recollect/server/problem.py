"""Errors as problem+json (RFC 9457), with codes that stay: a client may rely on `code`, a person reads `detail`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from recollect import errors
from recollect.model import json

TYPE = "application/problem+json"

_STATUS: tuple[tuple[type[errors.RecollectError], int], ...] = (
    (errors.StaleRevision, 412),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.InvalidValue, 400),
    (errors.NotSupported, 501),
    (errors.DiskFull, 507),
    (errors.LimitReached, 507),
    (errors.StoreError, 503),
    (errors.ModelNotConfigured, 409),
    (errors.ModelError, 502),
)


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong: a code that stays, and a sentence that says what to do."""

    status: int
    code: str
    title: str
    detail: str
    type: str = "about:blank"
    fields: dict[str, Any] | None = None

    def body(self) -> bytes:
        """Write it as JSON; it may tell of a text with half of a surrogate pair in it."""
        return json.encode(msgspec.to_builtins(self)).lstrip().encode()


def status_of(error: errors.RecollectError) -> int:
    """Say with which HTTP status an error is answered."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def code_of(error: errors.RecollectError) -> str:
    """Name an error for programs: SessionNotFound is session-not-found."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def problem(error: errors.RecollectError) -> Problem:
    """Say what a client is told about an error."""
    words = code_of(error).replace("-", " ")
    fields = {name: value for name, value in error.fields.items() if isinstance(value, str | int | float | list)}
    return Problem(
        status=status_of(error), code=code_of(error), title=words[:1].upper() + words[1:], detail=str(error),
        fields=fields or None,
    )  # fmt: skip
