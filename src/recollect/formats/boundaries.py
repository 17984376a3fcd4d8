"""Boundaries: the messages from which on the output of a format no longer depends on the messages before them.

The end of a long session is rendered without reading its beginning. Some writers join messages: adjacent items of an
answer, results in one message, files of tools in the next user message. So rendering begins at a boundary, which none
of them crosses. A tool result also depends on its call, which may be far away; the caller looks up calls by their ids.

A format that another distribution registers may define is_boundary(previous, message) in its module. Without it, only
the beginning of a session is a boundary.
"""

from __future__ import annotations

from collections.abc import Callable

from recollect.formats import ai_sdk, ai_sdk_ui, anthropic, openai_chat, openai_responses, recollect_format, registry
from recollect.model.message import Message, ToolResultPart

BoundaryTest = Callable[[Message | None, Message], bool]
"""Returns whether a message is a boundary; the message before it is None if it is not known."""


def boundary_test(format: str) -> BoundaryTest:
    """Return the function that tests whether a message is a boundary of a format."""
    if format in (recollect_format.NAME, openai_responses.NAME):
        return _every_message
    if format == ai_sdk_ui.NAME:
        return _is_ui_boundary
    if format in (anthropic.NAME, openai_chat.NAME, ai_sdk.NAME):
        return lambda previous, message: _is_boundary(format, previous, message)
    return getattr(registry.load_module(format), "is_boundary", _no_message)


def _every_message(_previous: Message | None, _message: Message) -> bool:
    return True


def _no_message(_previous: Message | None, _message: Message) -> bool:
    return False


def _is_boundary(format: str, previous: Message | None, message: Message) -> bool:
    """Return whether a message is rendered alone, and closes a message of results or files before it."""
    if any(type(part) is ToolResultPart for part in message.parts) or _may_be_joined(previous, message):
        return False
    return bool(registry.write([message], format))


def _is_ui_boundary(previous: Message | None, message: Message) -> bool:
    """Return whether a message begins a UI message: of its own format always, of others if it is not an answer."""
    if ai_sdk_ui.put_own([], message):
        return True
    return message.role != "assistant" and not _may_be_joined(previous, message) and bool(ai_sdk_ui.write([message]))


def _may_be_joined(previous: Message | None, message: Message) -> bool:
    """Return whether a message may be an item of the same answer as the message before it."""
    return _is_answer_item(message) and (previous is None or _is_answer_item(previous))


def _is_answer_item(message: Message) -> bool:
    return message.format == openai_responses.NAME and message.role == "assistant"
