"""The AI SDK's UI messages (an id, a role and typed parts), and their conversion to model messages.

A tool part is a call and its result in one. It is read as two parts, which are joined again when written. Parts of
version 4 (`tool-invocation`, `reasoning` under its own name) and messages without parts (`content` with
`toolInvocations`) are read too. Calls that a provider ran itself, sources and data parts are stored whole.

The conversion follows the AI SDK's convertToModelMessages(). It preserves more than a translation through the common
fields would: provider options and metadata, approvals, and provider-run tools. Data parts and sources are dropped, as
they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import attachments, boundaries, common
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    WHOLE,
    extract_text,
    is_dict,
    is_extracted,
    is_list,
    original_block,
    overlay,
    read_role,
    remaining_fields,
    restore_block,
)
from recollect.model.json import UNSET
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "ai-sdk-ui"
RULES = ProviderRules(
    NAME,
    results_apart=False,
    hidden_keys=frozenset(
        {"providerMetadata", "callProviderMetadata", "resultProviderMetadata", "state", "mediaType", "mimeType"}
        | {"createdAt", "metadata", "toolInvocations", "joined", "shadow"}
    ),
)
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_JOINED_RESULT = {"joined": True}  # the remainder of a result that is in the part of its call
_FROM_FIELD = {"shadow": True}  # the remainder of a part that is in a field of the message
_PENDING_STATES = frozenset({"input-available", "approval-requested", "approval-responded"})
_ANSWERED_STATES = frozenset({"output-available", "output-error", "output-denied"})
_RESULT_FIELDS = {"output-available": "output", "output-error": "errorText"}
_NOT_RUN = "The tool was not run."


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message."""
    role, parts = read_role(message, _ROLES, "The AI SDK"), message.get("parts")
    if parts is None and type(message.get("content")) is str:
        return [_read_older(message, role)]
    if not is_list(parts):
        raise InvalidValue(
            'A UI message must have a list of parts. Write {"role": "user", "parts": [{"type": "text", "text": ...}]}.'
        )
    result: list[Part] = []
    for index, part in enumerate(parts):
        if not is_dict(part):
            raise InvalidValue(f'parts[{index}] must be a dict. Write text as {{"type": "text", "text": ...}}.')
        result += _read_part(part)
    fields = remaining_fields(message, "role", "parts")
    return [Draft(role=role, parts=tuple(result), format=NAME, native={"fields": fields} if fields else None)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for useChat(): those of this format unchanged, others translated."""
    return _UiMessageWriter().write(common.join_items(messages, "openai-responses"))


def is_boundary(previous: Message | None, message: Message) -> bool:
    """Return whether a message begins a UI message: of its own format always, of others if it is not an answer."""
    if put_own([], message):
        return True
    return message.role != "assistant" and not boundaries.may_be_joined(previous, message) and bool(write([message]))


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: no provider answers in this format."""
    return None


def has_no_parts(message: Draft | Message) -> bool:
    """Return whether a message has `content` instead of parts, as in versions without parts."""
    return (message.native or {}).get("content") == "string"


def put(
    output: list[dict[str, Any]],
    role: Role,
    source_format: str | None,
    parts: Sequence[Part],
    native: dict[str, Any] | None,
) -> bool:
    """Write a message of this format unchanged. Return whether it was written."""
    return source_format == NAME and _put_verified(output, role, parts, native)


def put_own(output: list[dict[str, Any]], message: Message) -> bool:
    """Write a message of this format unchanged. Return whether it was written."""
    return put(output, message.role, message.format, message.parts, message.native)


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format unchanged."""
    first = parts[0] if len(parts) == 1 else None
    if type(first) is TextPart and first.native is None:  # the most common message of users
        blocks = [{"type": "text", "text": first.text}]
    else:
        blocks = _write_parts(parts)
    if native is None:
        return {"role": role, "parts": blocks}
    if native.get("content") == "string":
        text = parts[0].text if parts and type(parts[0]) is TextPart else ""
        return overlay({"role": role, "content": text}, native.get("fields"))
    return overlay({"role": role, "parts": blocks}, native.get("fields"))


def _read_older(message: dict[str, Any], role: Role) -> Draft:
    """Read a message of versions without parts."""
    invocations = message.get("toolInvocations")
    parts: list[Part] = [TextPart(text=message["content"])]
    for invocation in invocations if is_list(invocations) else ():
        if is_dict(invocation):
            parts += _read_invocation(invocation, _FROM_FIELD)
    fields = remaining_fields(message, "role", "content") or {}
    return Draft(role=role, parts=tuple(parts), format=NAME, native={"content": "string", "fields": fields})


def _read_part(part: dict[str, Any]) -> list[Part]:
    kind = part.get("type")
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is not None:
        return [reader(part)]
    if kind == "tool-invocation":
        invocation = part.get("toolInvocation")
        return (_read_invocation(invocation, {WHOLE: part}) if is_dict(invocation) else None) or [DataPart(native=part)]
    tool = tool_name(part)
    return [DataPart(native=part)] if tool is None else _read_tool(part, tool)


def _read_text(part: dict[str, Any]) -> Part:
    text = part.get("text")
    return (
        TextPart(text=text, native=remaining_fields(part, "type", "text"))
        if type(text) is str
        else DataPart(native=part)
    )


def _read_reasoning(part: dict[str, Any]) -> Part:
    extraction = extract_text(part, ("text",)) or extract_text(part, ("reasoning",))
    return DataPart(native=part) if extraction is None else ReasoningPart(text=extraction[0], native=extraction[1])


def _read_file(part: dict[str, Any]) -> Part:
    mime_type, name = part.get("mediaType", part.get("mimeType")), part.get("filename")
    if "url" in part:
        return attachments.read_attachment(part, ("url",), mime_type=mime_type, name=name)
    return attachments.read_attachment(part, ("data",), mime_type=mime_type, name=name, holds="base64")


_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "text": _read_text,
    "reasoning": _read_reasoning,
    "file": _read_file,
}


def _read_tool(part: dict[str, Any], tool: str) -> list[Part]:
    call_id, state = part.get("toolCallId"), part.get("state")
    answered = _is_one_of(state, _ANSWERED_STATES)
    has_call = answered or _is_one_of(state, _PENDING_STATES)
    if type(call_id) is not str or part.get("providerExecuted") is True or not has_call:
        return [DataPart(native=part)]
    common_fields = ["toolCallId", "input", "toolName" if part["type"] == "dynamic-tool" else "type"]
    if not answered:
        return [_tool_call(part, call_id, tool, common_fields)]
    field = _result_field(state)
    if field is not None:
        common_fields.append(field)
    return [_tool_call(part, call_id, tool, common_fields), _tool_result(part, call_id, tool, field)]


def _is_one_of(value: Any, names: frozenset[str]) -> bool:
    return type(value) is str and value in names


def _tool_call(part: dict[str, Any], call_id: str, tool: str, common_fields: list[str]) -> ToolCallPart:
    return ToolCallPart(
        call_id=call_id, tool=tool, arguments=part.get("input", UNSET), native=remaining_fields(part, *common_fields)
    )


def _tool_result(part: dict[str, Any], call_id: str, tool: str, field: str | None) -> ToolResultPart:
    value = UNSET if field is None else part.get(field, UNSET)
    approval = part.get("approval")
    reason = approval.get("reason") if field is None and is_dict(approval) else None
    denied = field is None
    return ToolResultPart(
        call_id=call_id,
        tool=tool,
        status="cancelled" if denied else "error" if field == "errorText" else "success",
        text=value if type(value) is str else None,
        data=UNSET if type(value) is str else value,
        error_message=(reason if type(reason) is str else _NOT_RUN) if denied else None,
        native=dict(_JOINED_RESULT),
    )


def _result_field(state: Any) -> str | None:
    """Return the field with the result; None if the tool was not allowed to run."""
    return _RESULT_FIELDS.get(state)


def _read_invocation(invocation: dict[str, Any], native: dict[str, Any]) -> list[Part]:
    """Read a call, and its result if it has one, in the shape before version 5."""
    call_id, tool, state = invocation.get("toolCallId"), invocation.get("toolName"), invocation.get("state")
    if type(call_id) is not str or type(tool) is not str or state not in ("call", "result"):
        return []
    call = ToolCallPart(call_id=call_id, tool=tool, arguments=invocation.get("args", UNSET), native=native)
    if state == "call":
        return [call]
    result = invocation.get("result", UNSET)
    text, data = (result, UNSET) if type(result) is str else (None, result)
    return [call, ToolResultPart(call_id=call_id, tool=tool, text=text, data=data, native=dict(_FROM_FIELD))]


def _write_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the parts of a message of this format, a call and its result in one."""
    blocks: list[dict[str, Any]] = []
    last = len(parts) - 1
    for index, part in enumerate(parts):
        kind, native = type(part), part.native
        if kind is ToolResultPart:
            continue
        if type(part) is ToolCallPart:
            if native != _FROM_FIELD:
                following = parts[index + 1] if index < last else None
                result = following if type(following) is ToolResultPart and following.native == _JOINED_RESULT else None
                blocks.append(_write_tool_part(part, result))
        elif type(part) is TextPart and native is None:
            blocks.append({"type": "text", "text": part.text})
        elif kind is DataPart and type(native) is dict:
            blocks.append(native.copy())
        else:
            block = _write_part(part)
            if block is not None:
                blocks.append(block)
    return blocks


def _write_tool_part(part: ToolCallPart, result: ToolResultPart | None) -> dict[str, Any]:
    native: dict[str, Any] = part.native if type(part.native) is dict else {}
    state = native.get("state")
    if state is None and WHOLE in native and "state" not in native:
        return dict(native[WHOLE])
    if native.get("type") == "dynamic-tool":
        block: dict[str, Any] = {"toolCallId": part.call_id, "toolName": part.tool}
    else:
        block = {"toolCallId": part.call_id, "type": f"tool-{part.tool}"}
    if part.arguments is not UNSET:
        block["input"] = part.arguments
    field = None if result is None else _RESULT_FIELDS.get(state)  # type: ignore[arg-type]
    if result is not None and field is not None:
        if result.text is not None:
            block[field] = result.text
        elif result.data is not UNSET:
            block[field] = result.data
    return overlay(block, native)


def _write_part(part: Part) -> dict[str, Any] | None:
    native = part.native
    match part:
        case TextPart():
            return overlay({"type": "text", "text": part.text}, native)
        case ReasoningPart():
            return restore_block(native, part.text) if is_extracted(native) else None
        case _:
            return original_block(part)


_put_verified = common.make_verified_put(lambda role, parts, native: [_write_own(role, parts, native)], read)


class _UiMessageWriter:
    """Writes messages; consecutive assistant messages and tool results become one UI message."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.assistant_parts: list[dict[str, Any]] | None = None  # the parts of the current assistant message
        self.pending_calls: dict[str, dict[str, Any]] = {}  # tool parts without a result, by call id

    def write(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        for message in messages:
            if put_own(self.messages, message):
                self._track_pending_calls(self.messages[-1])
            elif message.role == "assistant":
                self._add_answer(message)
            else:
                self._add_message(message)
        return self.messages

    def _track_pending_calls(self, message: dict[str, Any]) -> None:
        self.assistant_parts = None
        for part in message.get("parts", ()):
            if _is_one_of(part.get("state"), _PENDING_STATES) and "toolCallId" in part and tool_name(part) is not None:
                self.pending_calls[str(part.get("toolCallId"))] = part

    def _add_message(self, message: Message) -> None:
        for part in message.parts:
            if type(part) is ToolResultPart:
                self._add_result(part)
        parts = list(_translate_parts([part for part in message.parts if type(part) in (TextPart, AttachmentPart)]))
        if parts:
            role = "system" if message.role == "system" else "user"
            self.messages.append({"id": message.id, "role": role, "parts": parts})
            self.assistant_parts = None

    def _add_answer(self, message: Message) -> None:
        for step, results in common.split_steps(message.parts):
            parts = list(_translate_parts(step))
            if parts:
                if self.assistant_parts is None:
                    self.assistant_parts = []
                    self.messages.append({"id": message.id, "role": "assistant", "parts": self.assistant_parts})
                else:
                    self.assistant_parts.append({"type": "step-start"})
                self.assistant_parts += parts
            self.pending_calls |= {part["toolCallId"]: part for part in parts if "toolCallId" in part}
            for result in results:
                self._add_result(result)

    def _add_result(self, result: ToolResultPart) -> None:
        """Add a result to the part of its call; a result without a call is dropped."""
        part = self.pending_calls.pop(result.call_id, None)
        if part is None:
            return
        if result.status == "success":
            data = result.text is None and result.content is None and result.data is not UNSET
            part |= {"state": "output-available", "output": result.data if data else _result_text(result)}
        else:
            part |= {"state": "output-error", "errorText": _result_text(result)}


def _translate_parts(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Yield texts that are not blank, reasoning, calls and files as parts."""
    for part in parts:
        match part:
            case TextPart() if common.is_not_blank(part.text):
                yield {"type": "text", "text": part.text}
            case ReasoningPart() if common.is_not_blank(part.text):
                yield {"type": "reasoning", "text": part.text}
            case ToolCallPart():
                call = {"type": f"tool-{part.tool}", "toolCallId": part.call_id, "state": "input-available"}
                yield {**call, "input": common.arguments_object(part)}
            case AttachmentPart():
                yield from _translate_file(attachments.content_of_attachment(part))
            case _:
                pass


def _translate_file(content: attachments.AttachmentContent) -> Iterator[dict[str, Any]]:
    if content.data is None and content.text is not None:
        content = content._replace(data=attachments.encode_base64(content.text))
    if content.data is None and not attachments.is_web_url(content.url):
        return
    file = {"type": "file", "mediaType": content.mime_type or attachments.BYTES, "url": content.link}
    yield {**file, "filename": content.name} if content.name else file


def _result_text(result: ToolResultPart) -> str:
    answer = common.result_content(result)
    return answer if type(answer) is str else "\n".join(block["text"] for block in answer if is_dict(block))


_OUTPUT_OMITTED = "Tool output omitted because the tool is no longer available."
_EXECUTION_DENIED = "Tool call execution denied."


def to_model_messages(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert one UI message to model messages."""
    parts = [part for part in message.get("parts") or () if is_dict(part)]
    if message["role"] == "system":
        return [_convert_system(parts)]
    if message["role"] == "user":
        content = [block for part in parts if (block := _convert_content(part)) is not None]
        return [{"role": "user", "content": content}]
    output: list[dict[str, Any]] = []
    step: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start":
            output += _convert_step(step)
            step = []
        else:
            step.append(part)
    return [*output, *_convert_step(step)]


def tool_name(part: dict[str, Any]) -> str | None:
    """Return the tool of a tool part; None for other parts."""
    kind = part.get("type")
    if kind == "dynamic-tool":
        name = part.get("toolName")
        return name if type(name) is str else None
    return kind.removeprefix("tool-") if type(kind) is str and kind.startswith("tool-") else None


def _convert_system(parts: list[dict[str, Any]]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in parts:
        if part.get("type") == "text" and is_dict(part.get("providerMetadata")):
            options |= part["providerMetadata"]
    text = "".join(_part_text(part) for part in parts if part.get("type") == "text")
    return _add_fields({"role": "system", "content": text}, providerOptions=options or None)


def _part_text(part: dict[str, Any]) -> str:
    text = part.get("text")
    return text if type(text) is str else ""


def _convert_content(part: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a text or a file; None for other parts."""
    options = part.get("providerMetadata")
    if part.get("type") == "text":
        return _add_fields({"type": "text", "text": _part_text(part)}, providerOptions=options)
    if part.get("type") == "file":
        data = part.get("url", part.get("data"))
        file = {"type": "file", "mediaType": part.get("mediaType", part.get("mimeType")), "data": data}
        return _add_fields(file, filename=part.get("filename"), providerOptions=options)
    return None


def _convert_step(step: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert a step: the content of the assistant with its calls, then the results."""
    content: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for part in step:
        block = _convert_content(part)
        if block is not None:
            content.append(block)
        elif part.get("type") == "reasoning":
            text = part.get("text", part.get("reasoning"))
            reasoning = {"type": "reasoning", "text": text if type(text) is str else ""}
            content.append(_add_fields(reasoning, providerOptions=part.get("providerMetadata")))
        elif part.get("type") == "tool-invocation":
            _convert_invocation(part, content, answers)
        elif tool_name(part) is not None:
            content += _convert_call(part)
            answers += _convert_results(part)
    output: list[dict[str, Any]] = []
    if content:
        output.append({"role": "assistant", "content": content})
    if answers:
        output.append({"role": "tool", "content": answers})
    return output


def _convert_call(part: dict[str, Any]) -> list[dict[str, Any]]:
    state, approval = part.get("state"), part.get("approval")
    if state == "input-streaming":
        return []
    options = part.get("callProviderMetadata")
    call = _tool_block("tool-call", part)
    if "input" in part:
        call["input"] = part["input"]
    if state == "output-error":
        options = part.get("resultProviderMetadata") if options is None else options
        if call.get("input") is None:
            call.pop("input", None)
            call |= {"input": part["rawInput"]} if "rawInput" in part else {}
    blocks = [_add_fields(call, providerExecuted=part.get("providerExecuted"), providerOptions=options)]
    if is_dict(approval):
        blocks.append(_approval_request(part, approval))
    if part.get("providerExecuted") is True and state in ("output-available", "output-error"):
        options = part.get("resultProviderMetadata")
        options = part.get("callProviderMetadata") if options is None else options
        error = {"type": "error-json", "value": part.get("errorText")}
        output = error if state == "output-error" else _convert_output(part)
        blocks.append(_add_fields({**_tool_block("tool-result", part), "output": output}, providerOptions=options))
    return blocks


def _approval_request(part: dict[str, Any], approval: dict[str, Any]) -> dict[str, Any]:
    request = {"type": "tool-approval-request", "approvalId": approval.get("id"), "toolCallId": part.get("toolCallId")}
    if "inputSchemaInput" in approval:
        request["inputSchemaInput"] = approval["inputSchemaInput"]
    return _add_fields(request, signature=approval.get("signature"))


def _convert_results(part: dict[str, Any]) -> list[dict[str, Any]]:
    state, approval, provider_executed = part.get("state"), part.get("approval"), part.get("providerExecuted")
    answers: list[dict[str, Any]] = []
    reason = None
    if is_dict(approval):
        reason = approval.get("reason")
        if approval.get("approved") is not None:
            approval_response = {
                "type": "tool-approval-response",
                "approvalId": approval.get("id"),
                "approved": approval["approved"],
            }
            answers.append(_add_fields(approval_response, reason=reason, providerExecuted=provider_executed))
    if provider_executed is True:
        return answers
    if state == "output-denied":
        output = {"type": "error-text", "value": _EXECUTION_DENIED if reason is None else reason}
    elif state == "output-error":
        output = {"type": "error-text", "value": _error_text(part.get("errorText"))}
    elif state == "output-available":
        output = _convert_output(part)
    else:
        return answers
    result = {**_tool_block("tool-result", part), "output": output}
    return [*answers, _add_fields(result, providerOptions=part.get("callProviderMetadata"))]


def _convert_output(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "dynamic-tool" and part.get("dynamic") is False:
        return {"type": "text", "value": _OUTPUT_OMITTED}
    output = part.get("output")
    return {"type": "text" if type(output) is str else "json", "value": output}


def _convert_invocation(part: dict[str, Any], content: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    """Convert a tool part in the shape before version 5."""
    invocation = part.get("toolInvocation")
    if not is_dict(invocation) or invocation.get("state") == "partial-call":
        return
    content.append({**_tool_block("tool-call", invocation), "input": invocation.get("args")})
    if invocation.get("state") == "result":
        answers.append(
            {**_tool_block("tool-result", invocation), "output": _convert_output({"output": invocation.get("result")})}
        )


def _tool_block(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    tool = tool_name(part) if "type" in part else part.get("toolName")
    return {"type": kind, "toolCallId": part.get("toolCallId"), "toolName": tool}


def _error_text(value: Any) -> str:
    if type(value) is str:
        return value
    return "unknown error" if value is None or is_list(value) else str(value)


def _add_fields(block: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a block with the fields that are not None."""
    return {**block, **{name: value for name, value in fields.items() if value is not None}}
