"""A line: a message as far as it matters to what a provider is sent. Long histories are read as lines."""

from __future__ import annotations

from typing import Any

from recollect.model.message import Message, Role, State
from recollect.model.part import Part

Line = tuple[Role, str | None, tuple[Part, ...], dict[str, Any] | None, State]
"""Who speaks, the format it came in, its parts, what that format keeps beside them, and its state.

A plain tuple: there are as many as messages, and each is looked at once.
"""


def line(message: Message) -> Line:
    """Give what a provider is sent of a message."""
    return message.role, message.format, message.parts, message.native, message.state
