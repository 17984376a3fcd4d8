"""Single items of the Responses API as parts, and the blocks of its messages.

What our fields hold is taken out of the item and the rest kept beside it. Tool calls are those that the caller has to
run; what OpenAI ran itself (searches, code, MCP) has its result inside and is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recollect.formats import attachment
from recollect.formats.native import (
    BLOCK,
    as_it_came,
    is_dict,
    is_list,
    is_taken,
    overlay,
    rest,
    restored,
    taken,
    write_blocks,
)
from recollect.model.json import UNSET
from recollect.model.message import Role
from recollect.model.part import (
    AttachmentPart,
    Content,
    DataPart,
    Part,
    ReasoningPart,
    ResultStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_FUNCTION, _FUNCTION_OUTPUT = "function_call", "function_call_output"
CUSTOM = "custom_tool_call"
_COMPUTER = "computer_call"
_LOCAL_SHELL, _SHELL, _PATCH = "local_shell_call", "shell_call", "apply_patch_call"
_SCREENSHOT = "computer_call_output"
# The field with the arguments of a call, and the tool where the item does not name it.
_CALLS: dict[str, tuple[str, str | None]] = {
    _FUNCTION: ("arguments", None),
    CUSTOM: ("input", None),
    _COMPUTER: ("action", "computer"),
    _LOCAL_SHELL: ("action", "local_shell"),
    _SHELL: ("action", "shell"),
    _PATCH: ("operation", "apply_patch"),
}
# The field with the id of the call that an output answers.
_OUTPUTS: dict[str, str] = {
    _FUNCTION_OUTPUT: "call_id",
    "custom_tool_call_output": "call_id",
    _SCREENSHOT: "call_id",
    "local_shell_call_output": "id",
    "shell_call_output": "call_id",
    "apply_patch_call_output": "call_id",
}
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_PRINTED = frozenset({"stdout", "stderr", "outcome"})
_MIME_TYPES = {
    "png": "image/png",
    "webp": "image/webp",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "svg": "image/svg+xml",
}


def read(item: dict[str, Any]) -> Part:
    """Read an item that is no message."""
    kind = item.get("type")
    if type(kind) is not str:
        return kept(item)
    if kind in _CALLS:
        return _read_call(item, kind)
    if kind in _OUTPUTS:
        return _read_output(item, kind)
    if kind == "reasoning":
        return _read_reasoning(item)
    if kind == "image_generation_call":
        mime_type = _MIME_TYPES.get(str(item.get("output_format", "png")), attachment.IMAGE)
        return attachment.read(item, ("result",), mime_type=mime_type, holds="base64")
    return kept(item)


def kept(item: dict[str, Any]) -> Part:
    """Keep an item as it is."""
    return DataPart(native=item)


def write(part: Part) -> dict[str, Any] | None:
    """Give the item that a part came in; None for a part that never was one."""
    if part.native is None:  # most of what agents write
        if type(part) is ToolResultPart and part.text is not None:
            return {"type": _FUNCTION_OUTPUT, "call_id": part.call_id, "output": part.text}
        if type(part) is ToolCallPart and part.arguments_text is not None:
            arguments = part.arguments_text
            return {"type": _FUNCTION, "call_id": part.call_id, "name": part.tool, "arguments": arguments}
    match part:
        case ToolCallPart():
            return _call(part)
        case ToolResultPart():
            return _output(part)
        case ReasoningPart():
            return restored(part.native, part.text) if is_taken(part.native) else None
        case _:
            return as_it_came(part)


def kind_of(part: ToolCallPart) -> str:
    """Name the type of the item that a call came in."""
    kind = part.native.get("type") if is_dict(part.native) else None
    return kind if type(kind) is str and kind in _CALLS else _FUNCTION


def is_screen_call(part: Part) -> bool:
    """Say whether this is a call that only a picture of the screen answers."""
    return type(part) is ToolCallPart and kind_of(part) == _COMPUTER


def output(part: ToolResultPart, kind: str | None, told: str | list[dict[str, Any]]) -> dict[str, Any] | None:
    """Write what came in no item as the output of a call of a type; None where it can not be that."""
    call_id, failed = part.call_id, part.status != "success"
    interrupted = part.error_code == "interrupted"
    words = told if isinstance(told, str) else "\n".join(block["text"] for block in told if "text" in block)
    match kind:
        case "custom_tool_call":
            return {"type": "custom_tool_call_output", "call_id": call_id, "output": told}
        case "local_shell_call":
            item = {"type": "local_shell_call_output", "id": call_id, "output": words}
            return {**item, "status": "incomplete"} if interrupted else item
        case "shell_call":
            item = {"type": "shell_call_output", "call_id": call_id, "output": _shell_output(part, words)}
            return {**item, "status": "incomplete"} if interrupted else item
        case "apply_patch_call":
            status = "failed" if failed else "completed"
            return {"type": "apply_patch_call_output", "call_id": call_id, "status": status, "output": words}
        case "computer_call":
            picture = screenshot(part)
            return None if picture is None else {"type": _SCREENSHOT, "call_id": call_id, "output": picture}
        case _:
            return {"type": _FUNCTION_OUTPUT, "call_id": call_id, "output": told}


def _shell_output(part: ToolResultPart, words: str) -> list[dict[str, Any]]:
    """Write what commands printed. What never ran has printed nothing and has no exit code."""
    if part.error_code == "interrupted":
        return []
    if is_list(part.data) and all(is_dict(piece) and piece.keys() >= _PRINTED for piece in part.data):
        return part.data
    failed = part.status != "success"
    outcome = {"type": "exit", "exit_code": 1 if failed else 0}
    return [{"stdout": "" if failed else words, "stderr": words if failed else "", "outcome": outcome}]


def screenshot(part: ToolResultPart) -> dict[str, Any] | None:
    """Give the picture in a result as the output of a computer call; None where there is none."""
    for piece in part.content or ():
        found = attachment.file(piece) if type(piece) is AttachmentPart else None
        if found is not None and found.is_image and (found.data is not None or attachment.is_web(found.url)):
            return {"type": "computer_screenshot", "image_url": found.link}
    return None


def reader(role: Role) -> Callable[[dict[str, Any]], Content]:
    """Give what reads the blocks of a message of this role."""
    return _read_said if role == "assistant" else _read_given


def writer(role: Role) -> Callable[[Part], dict[str, Any] | None]:
    """Give what writes the blocks of a message of this role."""
    return _said_block if role == "assistant" else _given_block


def _read_call(item: dict[str, Any], kind: str) -> Part:
    field, tool = _CALLS[kind]
    held = ["call_id"]
    if kind == _FUNCTION:
        held.append("type")
    if tool is None:
        tool = item.get("name")
        held.append("name")
    if kind == _COMPUTER and "action" not in item and is_list(item.get("actions")):
        field = "actions"
    call_id, arguments = item.get("call_id"), item.get(field, UNSET)
    if type(call_id) is not str or type(tool) is not str or (kind == _COMPUTER and not _is_action(field, arguments)):
        return kept(item)
    written = kind == _FUNCTION and type(arguments) is str
    return ToolCallPart(
        call_id=call_id,
        tool=tool,
        arguments=UNSET if written else arguments,
        arguments_text=arguments if written else None,
        native=rest(item, *held, field),
    )


def _is_action(field: str, arguments: Any) -> bool:
    """Say whether the field can be told from the value again: one action is a dict, several are a list."""
    return is_dict(arguments) if field == "action" else is_list(arguments)


def _call(part: ToolCallPart) -> dict[str, Any]:
    native = part.native if is_dict(part.native) else {}
    kind = native.get("type", _FUNCTION)
    field, tool = _CALLS[kind]
    item: dict[str, Any] = {"type": kind, "call_id": part.call_id}
    if tool is None:
        item["name"] = part.tool
    if kind == _COMPUTER and is_list(part.arguments):
        field = "actions"
    if part.arguments_text is not None:
        item[field] = part.arguments_text
    elif part.arguments is not UNSET:
        item[field] = part.arguments
    return overlay(item, native)


def _read_output(item: dict[str, Any], kind: str) -> Part:
    field = _OUTPUTS[kind]
    call_id, output = item.get(field), item.get("output")
    if type(call_id) is not str:
        return kept(item)
    held = [field] if kind != _FUNCTION_OUTPUT else [field, "type"]
    text: str | None = None
    data: Any = UNSET
    content: tuple[Content, ...] | None = None
    if type(output) is str:
        text = output
    elif kind == _SCREENSHOT and is_dict(output):
        content = (_read_screenshot(output),)
    elif kind == "shell_call_output" and is_list(output):
        data = output
    elif kind != _SCREENSHOT and is_list(output) and all(is_dict(piece) for piece in output):
        content = tuple([_read_given(piece) for piece in output])
    if text is not None or data is not UNSET or content is not None:
        held.append("output")
    status: ResultStatus = "error" if item.get("status") == "failed" else "success"
    native = rest(item, *held)
    return ToolResultPart(call_id=call_id, status=status, text=text, data=data, content=content, native=native)


def _read_screenshot(output: dict[str, Any]) -> Content:
    if type(output.get("image_url")) is str:
        return attachment.read(output, ("image_url",), mime_type=attachment.IMAGE)
    return attachment.elsewhere(output, mime_type=attachment.IMAGE)


def _output(part: ToolResultPart) -> dict[str, Any]:
    native = part.native if is_dict(part.native) else {}
    kind = native.get("type", _FUNCTION_OUTPUT)
    item: dict[str, Any] = {"type": kind, _OUTPUTS[kind]: part.call_id}
    if part.text is not None:
        item["output"] = part.text
    elif part.data is not UNSET:
        item["output"] = part.data
    elif part.content is not None:
        blocks = write_blocks(part.content, _given_block)
        item["output"] = blocks[0] if kind == _SCREENSHOT else blocks
    return overlay(item, native)


def _read_reasoning(item: dict[str, Any]) -> Part:
    """Read the summary of what a model thought, or where there is none the thoughts themselves."""
    for field in ("summary", "content"):
        pieces = item.get(field)
        if is_list(pieces) and pieces:
            found = taken(item, *[(field, index, "text") for index in range(len(pieces))])
            if found is not None:
                return ReasoningPart(text=found[0], native=found[1])
    return ReasoningPart(native={BLOCK: item})


def _read_said(block: dict[str, Any]) -> Content:
    return _read_block(block, "output_text")


def _read_given(block: dict[str, Any]) -> Content:
    return _read_block(block, "input_text")


def _read_block(block: dict[str, Any], usual: str) -> Content:
    match block.get("type"):
        case str(kind) if kind in _TEXTS:
            text = block.get("text")
            native = rest(block, "text", "type") if kind == usual else rest(block, "text")
            if type(text) is not str or (native is not None and BLOCK in native):
                return DataPart(native=block)
            return TextPart(text=text, native=native)
        case "refusal":
            found = taken(block, ("refusal",))
            return DataPart(native=block) if found is None else TextPart(text=found[0], native=found[1])
        case "input_image":
            if type(block.get("image_url")) is str:
                return attachment.read(block, ("image_url",), mime_type=attachment.IMAGE)
            return attachment.elsewhere(block, mime_type=attachment.IMAGE)
        case "input_file":
            return _read_file(block)
        case _:
            return DataPart(native=block)


def _read_file(block: dict[str, Any]) -> Content:
    name = block.get("filename")
    if type(block.get("file_data")) is str:
        return attachment.read(block, ("file_data",), name=name, holds="either")
    if type(block.get("file_url")) is str:
        return attachment.read(block, ("file_url",), name=name)
    return attachment.elsewhere(block, name=name)


def _said_block(part: Part) -> dict[str, Any] | None:
    return _block(part, "output_text")


def _given_block(part: Part) -> dict[str, Any] | None:
    return _block(part, "input_text")


def _block(part: Part, usual: str) -> dict[str, Any] | None:
    match part:
        case TextPart():
            if is_taken(part.native):
                return restored(part.native, part.text)
            kind = part.native.get("type") if is_dict(part.native) else usual
            return overlay({"type": kind if kind in _TEXTS else usual, "text": part.text}, part.native)
        case _:
            return as_it_came(part)
