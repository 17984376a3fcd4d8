"""Mending roles: messages of one role in a row become one, and a person's message comes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recollect import formats
from recollect.context.answering import Made
from recollect.context.pairs import is_result
from recollect.context.rules import Rules
from recollect.model.compaction import Summary
from recollect.model.message import Draft, Message
from recollect.model.part import Part, TextPart
from recollect.model.repair import Repair

BEGINNING = "(The conversation begins with the assistant.)"


def join(messages: Sequence[Message], rules: Rules, repairs: list[Repair]) -> list[Message]:
    """Make one message of each run of messages that the provider would take for the same speaker's."""
    assert rules.format is not None
    joined: list[Message] = []
    run: list[Message] = []
    for message in messages:
        if run and _speaker(message) != _speaker(run[-1]):
            joined += _joined(run, rules.format, repairs)
            run = []
        run.append(message)
    return joined + _joined(run, rules.format, repairs)


def _speaker(message: Message) -> str:
    return "user" if message.role == "tool" else message.role


def _joined(run: list[Message], format: str, repairs: list[Repair]) -> list[Message]:
    if len(run) < 2 or run[0].role == "system":  # noqa: PLR2004  one message is no run
        return run
    if all(_is_gathered(message, format) for message in run):
        return run
    spoken = [message for message in run if not isinstance(message, Made | Summary)]
    if len(spoken) > 1:
        ids = ", ".join(message.id for message in spoken)
        sentence = f"Messages {ids} have the same role in a row: made one."
        repairs.append(Repair(kind="same_role", message=spoken[0].id, sentence=sentence))
    return [_one(run, format)]


def _is_gathered(message: Message, format: str) -> bool:
    """Whether a message is nothing but results of another format, which writing puts into one message."""
    return message.role == "tool" and message.format != format and all(is_result(part) for part in message.parts)


def _one(run: list[Message], format: str) -> Message:
    """Make one message that is written as all of them would be, one after another, results first."""
    parts: list[Part] = []
    fields: dict[str, Any] = {}
    for message in run:
        for draft in _adopted(message, format):
            parts += draft.parts
            more = (draft.native or {}).get("fields")
            fields = {**more, **fields} if type(more) is dict else fields
    results = [part for part in parts if is_result(part)]
    words = [part for part in parts if not is_result(part)]
    role = run[0].role if run[0].role == "assistant" else "user" if words else "tool"
    native = {"content": "blocks", "fields": fields} if fields else {"content": "blocks"}
    return msgspec.structs.replace(
        run[0], role=role, parts=(*results, *words), format=format, native=native, state="completed"
    )


def _adopted(message: Message, format: str) -> Sequence[Message | Draft]:
    """Give a message as it is read from what would be written, so that nothing of it is lost or foreign."""
    if message.format == format:
        return (message,)
    return formats.read(formats.write([message], format), format)


def begin(messages: list[Message], repairs: list[Repair]) -> list[Message]:
    """Put a few words of a person's before an agent's that come first."""
    first = next((message for message in messages if message.role != "system"), None)
    if first is None or first.role != "assistant":
        return messages
    sentence = f"Message {first.id} comes first and is an agent's: a person's was put before it."
    repairs.append(Repair(kind="first_role", message=first.id, sentence=sentence))
    words = Made(first.branch, first.position, "user", (TextPart(text=BEGINNING),), first.created_at)
    place = messages.index(first)
    return [*messages[:place], words, *messages[place:]]
