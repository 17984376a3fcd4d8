"""A format of another distribution, as docs/internals/formats.md describes: the lines of a script.

{"speaker": "user", "line": "Hello"}, with any further fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import common
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import overlay, remaining_fields
from recollect.model.message import Draft, Message, Part, Role, TextPart

NAME = "script"
RULES = ProviderRules(NAME, user_first=True)
_ROLES: dict[Any, Role] = {"user": "user", "assistant": "assistant", "narrator": "system"}
_SPEAKERS = {role: speaker for speaker, role in _ROLES.items()}


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one line."""
    role, line = _ROLES.get(message.get("speaker")), message.get("line")
    if role is None or type(line) is not str:
        raise InvalidValue(
            f'A line must have a speaker ({", ".join(_ROLES)}) and a text. Write {{"speaker": ..., "line": ...}}.'
        )
    fields = remaining_fields(message, "speaker", "line")
    return [Draft(role=role, parts=(TextPart(text=line),), format=NAME, native=fields and {"fields": fields})]


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
    line = "".join(part.text for part in parts if isinstance(part, TextPart))
    return [overlay({"speaker": _SPEAKERS[role], "line": line}, (native or {}).get("fields"))]


_put_verified = common.make_verified_put(_write_own, read)


def put(
    output: list[dict[str, Any]],
    role: Role,
    source_format: str | None,
    parts: Sequence[Part],
    native: dict[str, Any] | None,
) -> bool:
    """Write a line unchanged. Return whether the message is one."""
    return source_format == NAME and _put_verified(output, role, parts, native)


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as lines: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    for message in messages:
        if not put(output, message.role, message.format, message.parts, message.native) and common.is_not_blank(
            message.text
        ):
            output += _write_own(message.role, (TextPart(text=message.text),), None)
    return output


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: there is no complete response in this format."""
    return None


def is_boundary(_previous: Message | None, _message: Message) -> bool:
    """Return True: each message is written alone."""
    return True
