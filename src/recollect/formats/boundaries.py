"""Boundaries: the messages from which on the output of a format no longer depends on the messages before them.

The end of a long session is rendered without reading its beginning. Some writers join messages: adjacent items of an
answer, results in one message, files of tools in the next user message. So rendering begins at a boundary, which none
of them crosses. A tool result also depends on its call, which may be far away; the caller looks up calls by their ids.

A format defines is_boundary(previous, message) in its module, with the functions below. Without it, only the beginning
of a session is a boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.model.message import Message, ToolResultPart

BoundaryTest = Callable[[Message | None, Message], bool]
"""Returns whether a message is a boundary; the message before it is None if it is not known."""

_ITEMS = "openai-responses"  # the format whose answers may be stored as several messages


def every_message(_previous: Message | None, _message: Message) -> bool:
    """Return True: the format renders every message without regard to the others."""
    return True


def no_message(_previous: Message | None, _message: Message) -> bool:
    """Return False: any message may depend on the messages before it."""
    return False


def make_boundary_test(write: Callable[[Sequence[Message]], list[dict[str, Any]]]) -> BoundaryTest:
    """Return the is_boundary() of a format that joins results and files with a message, from its write()."""

    def is_boundary(previous: Message | None, message: Message) -> bool:
        """Return whether a message is rendered alone, and closes a message of results or files before it."""
        if any(type(part) is ToolResultPart for part in message.parts) or may_be_joined(previous, message):
            return False
        return bool(write([message]))

    return is_boundary


def is_separate(previous: Message | None, message: Message) -> bool:
    """Return whether a format that joins nothing itself renders a message without regard to those before it."""
    return not may_be_joined(previous, message)


def may_be_joined(previous: Message | None, message: Message) -> bool:
    """Return whether a message may be an item of the same answer as the message before it."""
    return _is_answer_item(message) and (previous is None or _is_answer_item(previous))


def _is_answer_item(message: Message) -> bool:
    return message.format == _ITEMS and message.role == "assistant"
