"""Mending each message by itself: what a provider would not read, or would refuse, is left out of the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recollect import formats
from recollect.context.pairs import is_call, is_reasoning, is_result
from recollect.context.rules import Rules
from recollect.model import json
from recollect.model.message import Message
from recollect.model.part import Part, TextPart, ToolCallPart
from recollect.model.repair import Repair, RepairKind

# Fields of a chat completion's message that say something where the content does not.
_SAYING = ("refusal", "audio", "function_call")
# Blocks that Recollect reads; one that was kept unread is malformed, and refused.
_READ = frozenset({"text", "thinking", "tool_use", "tool_result"})

replace = msgspec.structs.replace


def clean(messages: Sequence[Message], rules: Rules, repairs: list[Repair]) -> list[Message]:
    """Leave out of each message what can not be sent, and messages of which nothing is left."""
    answered = {part.call_id for message in messages for part in message.parts if is_result(part)}
    kept: list[Message] = []
    for message in messages:
        if message.role == "system" and not _is_written(message, rules):
            continue  # the provider takes instructions apart: it is between nothing
        view = _without_raw_calls(message, rules, repairs)
        view = _parts(view, rules, answered, repairs)
        if is_visible(view, rules):
            kept.append(_of_a_speaker(view, repairs))
        elif _is_written(message, rules):
            repairs.append(_dropped(message))
    return kept


def _of_a_speaker(message: Message, repairs: list[Repair]) -> Message:
    """Give words that are said to be a tool's, and answer no call, to the person."""
    if message.role != "tool" or any(is_result(part) for part in message.parts):
        return message
    if (message.native or {}).get("role") == "function":  # how results were sent before calls had ids
        return message
    sentence = f"Message {message.id} is a tool's and has no result: it is a person's here."
    repairs.append(Repair(kind="wrong_role", message=message.id, sentence=sentence))
    return replace(message, role="user")


def _dropped(message: Message) -> Repair:
    if message.role == "assistant" and any(is_reasoning(part) for part in message.parts):
        return Repair(
            kind="only_reasoning", message=message.id, sentence=f"Message {message.id} has only reasoning: left out."
        )
    return Repair(kind="empty_message", message=message.id, sentence=f"Message {message.id} is empty: left out.")


def _without_raw_calls(message: Message, rules: Rules, repairs: list[Repair]) -> Message:
    """Leave out a list of calls of which one could not be read, so that none was."""
    fields = (message.native or {}).get("fields")
    if rules.format != "openai" or message.format != rules.format or not fields or "tool_calls" not in fields:
        return message
    sentence = f"The list of tool calls of message {message.id} is empty or can not be read: left out."
    repairs.append(Repair(kind="unreadable_block", message=message.id, sentence=sentence))
    left = {name: value for name, value in fields.items() if name != "tool_calls"}
    return replace(message, native={**(message.native or {}), "fields": left})


def _parts(message: Message, rules: Rules, answered: set[str], repairs: list[Repair]) -> Message:
    kept: list[Part] = []
    changed = False
    for part in message.parts:
        mended, kind = _part(part, message, rules, answered)
        if mended is not None:
            kept.append(mended)
        changed = changed or mended is not part
        if kind is not None:
            call_id = part.call_id if isinstance(part, ToolCallPart) else None
            sentence = _SENTENCES[kind].format(message=message.id, call=repr(call_id))
            repairs.append(Repair(kind=kind, message=message.id, sentence=sentence, call_id=call_id))
    if not changed:
        return message
    if not any(is_visible(replace(message, parts=(part,)), rules) for part in kept):
        # Said once, for the message: a blank text in it is not told apart.
        while repairs and repairs[-1].message == message.id and repairs[-1].kind == "blank_text":
            repairs.pop()
    return replace(message, parts=tuple(kept))


def _part(part: Part, message: Message, rules: Rules, answered: set[str]) -> tuple[Part | None, RepairKind | None]:
    """Give a part as it can be sent, and what is wrong with it if something is."""
    own = message.format == rules.format
    if isinstance(part, TextPart):
        if rules.no_blanks and is_blank(part.text):
            return None, "blank_text"
    elif is_call(part):
        if message.role != "assistant":
            return None, "misplaced_call"
        if message.state != "completed" and not _is_json(part) and part.call_id not in answered:
            return None, "partial_call"
        if rules.objects and own and type(part.arguments) is not dict:
            return replace(part, arguments=_object(part), arguments_text=None), "arguments"
    elif (
        own
        and rules.format == "anthropic"
        and (_malformed(part) or (message.role != "assistant" and is_reasoning(part)))
    ):
        return None, "unreadable_block"
    return part, None


_SENTENCES: dict[RepairKind, str] = {
    "blank_text": "A blank text in message {message} was left out.",
    "misplaced_call": "Tool call {call} in message {message} is not an agent's: left out.",
    "partial_call": "Tool call {call} in message {message} was cut off in its arguments: left out.",
    "arguments": "The arguments of tool call {call} in message {message} are no object: made one.",
    "unreadable_block": "A malformed block in message {message} was left out.",
}


def is_blank(text: str) -> bool:
    """Whether a text says nothing."""
    return not text or text.isspace()


def _is_json(part: ToolCallPart) -> bool:
    if part.arguments_text is None:
        return True
    try:
        json.decode(part.arguments_text)
    except (ValueError, RecursionError):
        return False
    return True


def _object(part: ToolCallPart) -> dict[str, Any]:
    value = part.input
    if type(value) is dict:
        return value
    return {} if value is None else {"arguments": value}


def _malformed(part: Part) -> bool:
    native = part.native
    return part.__struct_config__.tag == "data" and type(native) is dict and native.get("type") in _READ


def is_visible(message: Message, rules: Rules) -> bool:
    """Whether anything of a message is left when it is written."""
    said = False
    doubtful = False
    for part in message.parts:
        if isinstance(part, TextPart):
            said = said or not is_blank(part.text)
        elif is_call(part) or is_result(part):
            said = True
        elif not is_reasoning(part):
            doubtful = True
    if said or _is_told_by_fields(message, rules) or (doubtful and message.format == rules.format):
        return True
    if rules.reasoning_alone and message.format == rules.format and message.parts:
        return all(is_reasoning(part) for part in message.parts)
    return doubtful and _is_written(message, rules)


def _is_told_by_fields(message: Message, rules: Rules) -> bool:
    fields = (message.native or {}).get("fields")
    if rules.format != "openai" or message.format != rules.format or not fields:
        return False
    return any(fields.get(name) for name in _SAYING)


def _is_written(message: Message, rules: Rules) -> bool:
    """Whether a message is more than nothing in this provider's words."""
    if rules.format is None or rules.format not in formats.FORMATS:
        return True
    return bool(formats.write([message], rules.format))


def conclude(messages: list[Message], rules: Rules, repairs: list[Repair]) -> list[Message]:
    """Leave out reasoning that nothing follows. Of another format it is not written anyway."""
    kept: list[Message] = []
    for message in reversed(messages):  # what follows is known first: it may be reasoning that is left out itself
        following = kept[-1] if kept else None
        own = message.role == "assistant" and message.format == rules.format and rules.format is not None
        if not own or not message.parts or not is_reasoning(message.parts[-1]):
            kept.append(message)
            continue
        if rules.reasoning_alone and following is not None and following.role == "assistant":
            kept.append(message)
            continue
        parts = message.parts
        while parts and is_reasoning(parts[-1]):
            parts = parts[:-1]
        if not parts:
            repairs.append(_dropped(message))
            continue
        sentence = f"Reasoning at the end of message {message.id} was left out: nothing follows it."
        repairs.append(Repair(kind="last_reasoning", message=message.id, sentence=sentence))
        kept.append(replace(message, parts=parts))
    return kept[::-1]


def end(messages: list[Message], rules: Rules, repairs: list[Repair]) -> list[Message]:
    """Leave out white space at the very end of what an agent said last."""
    place = next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role != "system"), None)
    if place is None or messages[place].role != "assistant":
        return messages
    last = messages[place]
    inner = next((i for i in range(len(last.parts) - 1, -1, -1) if _may_end(last.parts[i], last, rules)), 0)
    part = last.parts[inner]
    if not isinstance(part, TextPart) or not part.text[-1:].isspace():
        return messages
    sentence = f"White space at the end of message {last.id} was left out."
    repairs.append(Repair(kind="last_space", message=last.id, sentence=sentence))
    parts = (*last.parts[:inner], replace(part, text=part.text.rstrip()), *last.parts[inner + 1 :])
    return [*messages[:place], replace(last, parts=parts), *messages[place + 1 :]]


def _may_end(part: Part, message: Message, rules: Rules) -> bool:
    """Whether a part is surely written, so that it can be the end."""
    return isinstance(part, TextPart) or is_call(part) or (message.format == rules.format and not is_reasoning(part))
