"""The AI SDK's UI messages, in and out: an id, a role and typed parts.

A tool part is a call and its result in one. It is read as both, and they are put together again on the way out. Parts
of version 4 (`tool-invocation`, `reasoning` under its own name) and messages before parts (`content` with
`toolInvocations`) are read too. What a provider ran itself, sources and data parts are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import attachment, neutral
from recollect.formats.ai_sdk_conversion import tool_name
from recollect.formats.native import (
    WHOLE,
    as_it_came,
    is_dict,
    is_list,
    is_taken,
    overlay,
    rest,
    restored,
    role_of,
    taken,
)
from recollect.model.json import UNSET
from recollect.model.message import Draft, Message, Role
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "ai-sdk-ui"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_JOINED = {"joined": True}  # a result that stands in the part of its call
_SHADOW = {"shadow": True}  # what is said in a field of the message that is kept whole
_ASKED = frozenset({"input-available", "approval-requested", "approval-responded"})
_ANSWERED = frozenset({"output-available", "output-error", "output-denied"})
_ANSWERS = {"output-available": "output", "output-error": "errorText"}
_DENIED = "The tool was not run."


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message."""
    role, parts = role_of(message, _ROLES, "The AI SDK"), message.get("parts")
    if parts is None and type(message.get("content")) is str:
        return [_read_older(message, role)]
    if not is_list(parts):
        raise InvalidValue('A UI message has parts. Write {"role": "user", "parts": [{"type": "text", "text": ...}]}.')
    found: list[Part] = []
    for place, part in enumerate(parts):
        if not is_dict(part):
            raise InvalidValue(f'parts[{place}] is not a dict. Write text as {{"type": "text", "text": ...}}.')
        found += _read_part(part)
    fields = rest(message, "role", "parts")
    return [Draft(role=role, parts=tuple(found), format=NAME, native={"fields": fields} if fields else None)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for useChat(): what came in this format as it came, the rest translated."""
    return _Page().written(neutral.joined(messages, "openai-responses"))


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Give None: no provider answers in this format."""
    return None


def is_older(message: Draft | Message) -> bool:
    """Say whether a message of this format has no parts, as it was before there were any."""
    return (message.native or {}).get("content") == "string"


def put(
    written: list[dict[str, Any]], role: Role, came: str | None, parts: Sequence[Part], native: dict[str, Any] | None
) -> bool:
    """Write a message that came in this format as it came."""
    return came == NAME and _put_faithful(written, role, parts, native)


def put_own(written: list[dict[str, Any]], message: Message) -> bool:
    """Write a message of this format as it came."""
    return put(written, message.role, message.format, message.parts, message.native)


def _own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Give a message that came in this format back as it came."""
    first = parts[0] if len(parts) == 1 else None
    if type(first) is TextPart and first.native is None:  # most of what people write
        blocks = [{"type": "text", "text": first.text}]
    else:
        blocks = _parts(parts)
    if native is None:
        return {"role": role, "parts": blocks}
    if native.get("content") == "string":
        said = parts[0].text if parts and type(parts[0]) is TextPart else ""
        return overlay({"role": role, "content": said}, native.get("fields"))
    return overlay({"role": role, "parts": blocks}, native.get("fields"))


def _read_older(message: dict[str, Any], role: Role) -> Draft:
    """Read a message as it was before there were parts."""
    used = message.get("toolInvocations")
    found: list[Part] = [TextPart(text=message["content"])]
    for invocation in used if is_list(used) else ():
        if is_dict(invocation):
            found += _read_invocation(invocation, _SHADOW)
    fields = rest(message, "role", "content") or {}
    return Draft(role=role, parts=tuple(found), format=NAME, native={"content": "string", "fields": fields})


def _read_part(part: dict[str, Any]) -> list[Part]:
    kind = part.get("type")
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is not None:
        return [reader(part)]
    if kind == "tool-invocation":
        used = part.get("toolInvocation")
        return (_read_invocation(used, {WHOLE: part}) if is_dict(used) else None) or [DataPart(native=part)]
    tool = tool_name(part)
    return [DataPart(native=part)] if tool is None else _read_tool(part, tool)


def _read_text(part: dict[str, Any]) -> Part:
    text = part.get("text")
    return TextPart(text=text, native=rest(part, "type", "text")) if type(text) is str else DataPart(native=part)


def _read_reasoning(part: dict[str, Any]) -> Part:
    found = taken(part, ("text",)) or taken(part, ("reasoning",))
    return DataPart(native=part) if found is None else ReasoningPart(text=found[0], native=found[1])


def _read_file(part: dict[str, Any]) -> Part:
    mime_type, name = part.get("mediaType", part.get("mimeType")), part.get("filename")
    if "url" in part:
        return attachment.read(part, ("url",), mime_type=mime_type, name=name)
    return attachment.read(part, ("data",), mime_type=mime_type, name=name, holds="base64")


_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "text": _read_text,
    "reasoning": _read_reasoning,
    "file": _read_file,
}


def _read_tool(part: dict[str, Any], tool: str) -> list[Part]:
    call_id, state = part.get("toolCallId"), part.get("state")
    answered = _is_one_of(state, _ANSWERED)
    asked = answered or _is_one_of(state, _ASKED)
    if type(call_id) is not str or part.get("providerExecuted") is True or not asked:
        return [DataPart(native=part)]
    held = ["toolCallId", "input", "toolName" if part["type"] == "dynamic-tool" else "type"]
    if not answered:
        return [_tool_call(part, call_id, tool, held)]
    field = _answer_field(state)
    if field is not None:
        held.append(field)
    return [_tool_call(part, call_id, tool, held), _tool_result(part, call_id, tool, field)]


def _is_one_of(value: Any, names: frozenset[str]) -> bool:
    return type(value) is str and value in names


def _tool_call(part: dict[str, Any], call_id: str, tool: str, held: list[str]) -> ToolCallPart:
    return ToolCallPart(call_id=call_id, tool=tool, arguments=part.get("input", UNSET), native=rest(part, *held))


def _tool_result(part: dict[str, Any], call_id: str, tool: str, field: str | None) -> ToolResultPart:
    value = UNSET if field is None else part.get(field, UNSET)
    approval = part.get("approval")
    reason = approval.get("reason") if field is None and is_dict(approval) else None
    denied = field is None
    return ToolResultPart(
        call_id=call_id,
        tool=tool,
        status="canceled" if denied else "error" if field == "errorText" else "success",
        text=value if type(value) is str else None,
        data=UNSET if type(value) is str else value,
        error_message=(reason if type(reason) is str else _DENIED) if denied else None,
        native=dict(_JOINED),
    )


def _answer_field(state: Any) -> str | None:
    """Name the field that has the answer; None where the tool was not allowed to run."""
    return _ANSWERS.get(state)


def _read_invocation(used: dict[str, Any], native: dict[str, Any]) -> list[Part]:
    """Read a call, and its result if it has one, as they were written before version 5."""
    call_id, tool, state = used.get("toolCallId"), used.get("toolName"), used.get("state")
    if type(call_id) is not str or type(tool) is not str or state not in ("call", "result"):
        return []
    call = ToolCallPart(call_id=call_id, tool=tool, arguments=used.get("args", UNSET), native=native)
    if state == "call":
        return [call]
    result = used.get("result", UNSET)
    text, data = (result, UNSET) if type(result) is str else (None, result)
    return [call, ToolResultPart(call_id=call_id, tool=tool, text=text, data=data, native=dict(_SHADOW))]


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Give the parts of a message that came in this format, a call and its result in one."""
    written: list[dict[str, Any]] = []
    last = len(parts) - 1
    for index, part in enumerate(parts):
        kind, native = type(part), part.native
        if kind is ToolResultPart:
            continue
        if type(part) is ToolCallPart:
            if native != _SHADOW:
                following = parts[index + 1] if index < last else None
                result = following if type(following) is ToolResultPart and following.native == _JOINED else None
                written.append(_tool_part(part, result))
        elif type(part) is TextPart and native is None:
            written.append({"type": "text", "text": part.text})
        elif kind is DataPart and type(native) is dict:
            written.append(native.copy())
        else:
            block = _own_part(part)
            if block is not None:
                written.append(block)
    return written


def _tool_part(part: ToolCallPart, result: ToolResultPart | None) -> dict[str, Any]:
    native: dict[str, Any] = part.native if type(part.native) is dict else {}
    state = native.get("state")
    if state is None and WHOLE in native and "state" not in native:
        return dict(native[WHOLE])
    if native.get("type") == "dynamic-tool":
        written: dict[str, Any] = {"toolCallId": part.call_id, "toolName": part.tool}
    else:
        written = {"toolCallId": part.call_id, "type": f"tool-{part.tool}"}
    if part.arguments is not UNSET:
        written["input"] = part.arguments
    field = None if result is None else _ANSWERS.get(state)  # type: ignore[arg-type]
    if result is not None and field is not None:
        if result.text is not None:
            written[field] = result.text
        elif result.data is not UNSET:
            written[field] = result.data
    return overlay(written, native)


def _own_part(part: Part) -> dict[str, Any] | None:
    native = part.native
    match part:
        case TextPart():
            return overlay({"type": "text", "text": part.text}, native)
        case ReasoningPart():
            return restored(native, part.text) if is_taken(native) else None
        case _:
            return as_it_came(part)


_put_faithful = neutral.faithful_putter(lambda role, parts, native: [_own(role, parts, native)], read)


class _Page:
    """Messages as they are written: a run of an agent's messages and its tools' results becomes one UI message."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.answer: list[dict[str, Any]] | None = None  # the parts of the agent's message under way
        self.asked: dict[str, dict[str, Any]] = {}  # tool parts without a result, by call id

    def written(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        for message in messages:
            if put_own(self.messages, message):
                self._take(self.messages[-1])
            elif message.role == "assistant":
                self._answer(message)
            else:
                self._say(message)
        return self.messages

    def _take(self, message: dict[str, Any]) -> None:
        self.answer = None
        for part in message.get("parts", ()):
            if _is_one_of(part.get("state"), _ASKED) and "toolCallId" in part and tool_name(part) is not None:
                self.asked[str(part.get("toolCallId"))] = part

    def _say(self, message: Message) -> None:
        for part in message.parts:
            if type(part) is ToolResultPart:
                self._complete(part)
        parts = list(_said([part for part in message.parts if type(part) in (TextPart, AttachmentPart)]))
        if parts:
            role = "system" if message.role == "system" else "user"
            self.messages.append({"id": message.id, "role": role, "parts": parts})
            self.answer = None

    def _answer(self, message: Message) -> None:
        for told, results in neutral.steps(message.parts):
            parts = list(_said(told))
            if parts:
                if self.answer is None:
                    self.answer = []
                    self.messages.append({"id": message.id, "role": "assistant", "parts": self.answer})
                else:
                    self.answer.append({"type": "step-start"})
                self.answer += parts
            self.asked |= {part["toolCallId"]: part for part in parts if "toolCallId" in part}
            for result in results:
                self._complete(result)

    def _complete(self, result: ToolResultPart) -> None:
        """Put a result into the part of its call; one that nobody asked for has no place in a UI message."""
        part = self.asked.pop(result.call_id, None)
        if part is None:
            return
        if result.status == "success":
            data = result.text is None and result.content is None and result.data is not UNSET
            part |= {"state": "output-available", "output": result.data if data else _text(result)}
        else:
            part |= {"state": "output-error", "errorText": _text(result)}


def _said(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Write what has a place in a UI message: texts that are not blank, reasoning, calls and files."""
    for part in parts:
        match part:
            case TextPart() if neutral.is_said(part.text):
                yield {"type": "text", "text": part.text}
            case ReasoningPart() if neutral.is_said(part.text):
                yield {"type": "reasoning", "text": part.text}
            case ToolCallPart():
                call = {"type": f"tool-{part.tool}", "toolCallId": part.call_id, "state": "input-available"}
                yield {**call, "input": neutral.input(part)}
            case AttachmentPart():
                yield from _file_part(attachment.file(part))
            case _:
                pass


def _file_part(found: attachment.File) -> Iterator[dict[str, Any]]:
    if found.data is None and found.text is not None:
        found = found._replace(data=attachment.encoded(found.text))
    if found.data is None and not attachment.is_web(found.url):
        return
    file = {"type": "file", "mediaType": found.mime_type or attachment.BYTES, "url": found.link}
    yield {**file, "filename": found.name} if found.name else file


def _text(result: ToolResultPart) -> str:
    answer = neutral.answer(result)
    return answer if type(answer) is str else "\n".join(block["text"] for block in answer if is_dict(block))
