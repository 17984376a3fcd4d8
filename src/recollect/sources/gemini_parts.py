"""Records of Gemini CLI and the parts of Google's API in them, and what they become in a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from recollect.model.json import UNSET
from recollect.model.message import (
    AttachmentPart,
    Content,
    DataPart,
    Draft,
    Part,
    ReasoningPart,
    ResultStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.sources.json_fields import count_in, dict_in, kind_name, list_in, text_in, time_in
from recollect.sources.source import INJECTION_KEY

ANSWERS = frozenset({"gemini", "model", "assistant"})
REMARKS = frozenset({"info", "error", "warning"})
_PREFIXES = {
    "<session_context>": "environment",
    "This is the Gemini CLI. We are setting up the context": "environment",
    "<hook_context>": "hook",
    "<state_snapshot>": "summary",
}
"""The beginnings of texts that Gemini CLI adds to messages for its model, and the kinds of context that they are."""
SNAPSHOT = "<state_snapshot>"
SNAPSHOT_ANSWER = "Got it. Thanks for the additional context!"
_FILES_FOLLOW = "--- Content from referenced files ---"
_EXIT_CODE = re.compile(r"(?:^|\n|\\n)Exit Code: (-?\d{1,9})\b")
_STATUS: dict[Any, ResultStatus] = {"error": "error", "cancelled": "cancelled"}


def record_kind(record: dict[str, Any]) -> Any:
    """Return the type of a record; in old documents, its role."""
    return record.get("type", record.get("role"))


def parts_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content of a record as parts of the API: it is a text, a part, or a list of both."""
    content = record.get("content")
    if content in (None, "") and "parts" in record:
        content = record["parts"]
    pieces: list[Any] = content if type(content) is list else [content]
    parts = [{"text": piece} if type(piece) is str else piece for piece in pieces if piece]
    return [part for part in parts if type(part) is dict]


def text_of(record: dict[str, Any]) -> str:
    """Return the text of a record."""
    return "".join(part["text"] for part in parts_of(record) if type(part.get("text")) is str)


def is_context(record: dict[str, Any]) -> bool:
    """Return whether a record contains only context that Gemini CLI added."""
    text = text_of(record)
    return record_kind(record) == "user" and _context_kind(text) is not None


def _context_kind(text: str) -> str | None:
    head = text[:200].lstrip()
    return next((kind for prefix, kind in _PREFIXES.items() if head.startswith(prefix)), None)


def read_question(record: dict[str, Any]) -> Draft:
    """Return a message of a person without results of tools. Content of files that it names is marked."""
    parts: list[Part] = []
    has_files = False
    for block in parts_of(record):
        if "functionResponse" in block:
            continue
        part = _read_part(block)
        text = part.text if type(part) is TextPart else ""
        has_files = has_files or text.strip() == _FILES_FOLLOW
        kind = "file" if has_files and type(part) is TextPart else _context_kind(text)
        parts.append(part if kind is None else replace(part, metadata={**(part.metadata or {}), INJECTION_KEY: kind}))
    display = "".join(part["text"] for part in _display_parts(record))
    is_different = display.strip() and display != text_of(record)
    return Draft(role="user", parts=tuple(parts), metadata={"display_content": display} if is_different else None)


def _display_parts(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in parts_of({"content": record.get("displayContent")}):
        if type(part.get("text")) is str:
            yield part


def question_of(draft: Draft) -> str | None:
    """Return the words of a person in a message: what the screen showed, or its first text that is not context."""
    display = text_in(draft.metadata, "display_content")
    texts = [part.text for part in draft.parts if type(part) is TextPart and not _is_marked(part)]
    return display if display and texts else next((text for text in texts if text.strip()), None)


def _is_marked(part: Part) -> bool:
    return part.metadata is not None and INJECTION_KEY in part.metadata


def read_remark(record: dict[str, Any]) -> Draft:
    """Return a line for the screen: an information, a warning or an error. Models do not receive it."""
    kind = kind_name(record_kind(record))
    data = {"type": kind, "text": text_of(record)}
    return Draft(role="system", parts=(DataPart(data=data, metadata={INJECTION_KEY: kind}),))


def read_answer(record: dict[str, Any], key: str, model: str | None) -> Draft:
    """Return a message of the model: reasoning, text and calls of tools, each once."""
    blocks = parts_of(record)
    parts: list[Part] = []
    if not any(block.get("thought") or "functionCall" in block for block in blocks):
        parts += [_read_thought(entry) for entry in list_in(record, "thoughts") if type(entry) is dict]
    parts += [_read_part(block, f"{key}:{index}") for index, block in enumerate(blocks)]
    call_ids = {part.call_id for part in parts if type(part) is ToolCallPart}
    for index, call in enumerate(list_in(record, "toolCalls")):
        part = _read_call(call, f"{key}:{index}")
        if part is not None and part.call_id not in call_ids:
            call_ids.add(part.call_id)
            parts.append(part)
    tokens = dict_in(record, "tokens")
    output = _sum_counts(tokens, "output", "thoughts")
    return Draft(
        role="assistant",
        parts=tuple(parts),
        model=text_in(record, "model") or model,
        tokens=output,
        input_tokens=_sum_counts(tokens, "input", "tool"),
        output_tokens=output,
        metadata={"usage": tokens} if tokens else None,
    )


def _sum_counts(tokens: dict[str, Any], *names: str) -> int | None:
    """Return the sum of counts: Google counts reasoning and the input of tools apart from the rest."""
    counts = [count for name in names if (count := count_in(tokens, name)) is not None]
    return sum(counts) if counts else None


def _read_thought(entry: dict[str, Any]) -> Part:
    """Return a thought as Gemini CLI sends it to its model again."""
    subject, text = text_in(entry, "subject"), text_in(entry, "description") or ""
    return ReasoningPart(text=f"**{subject}** {text}" if subject else text)


def _read_call(call: Any, default_id: str) -> ToolCallPart | None:
    if type(call) is not dict:
        return None
    name = text_in(call, "name") or "unknown"
    return ToolCallPart(
        call_id=text_in(call, "id") or default_id, tool=name, arguments=call.get("args", {}), metadata=_signature(call)
    )


def _signature(block: dict[str, Any]) -> dict[str, Any] | None:
    signature = text_in(block, "thoughtSignature", "thought_signature")
    return None if signature is None else {"thought_signature": signature}


def _read_part(block: dict[str, Any], default_id: str = "call") -> Part:
    """Return a part of Google's API."""
    metadata = _signature(block)
    text, call = block.get("text"), block.get("functionCall")
    if type(text) is str:
        return (
            ReasoningPart(text=text, metadata=metadata)
            if block.get("thought")
            else TextPart(text=text, metadata=metadata)
        )
    part = _read_call(call, default_id)
    if part is not None:
        return replace(part, metadata=metadata)
    return _read_file(block) or DataPart(data=block, metadata=metadata)


def _read_file(block: dict[str, Any]) -> AttachmentPart | None:
    """Return bytes or a link as an attachment."""
    for name, field in (("inlineData", "data"), ("fileData", "fileUri")):
        file = dict_in(block, name)
        content = text_in(file, field)
        if content is not None:
            mime_type, file_name = text_in(file, "mimeType"), text_in(file, "displayName")
            if name == "inlineData":
                return AttachmentPart(mime_type=mime_type, name=file_name, data=content)
            return AttachmentPart(mime_type=mime_type, name=file_name, url=content)
    return None


def calls_of(draft: Draft) -> dict[str, str]:
    """Return the tools of the calls in a message, by call id."""
    return {part.call_id: part.tool for part in draft.parts if type(part) is ToolCallPart}


def results_of_calls(record: dict[str, Any], draft: Draft) -> list[ToolResultPart]:
    """Return the results that a record of the model holds next to its calls."""
    parts: list[ToolResultPart] = []
    default_ids = iter(calls_of(draft))
    for call in list_in(record, "toolCalls"):
        if type(call) is not dict:
            continue
        call_id = text_in(call, "id") or next(default_ids, None)
        has_result = call.get("result") not in (None, [], "") or call.get("status") in ("success", *_STATUS)
        if call_id is not None and has_result and all(part.call_id != call_id for part in parts):
            parts.append(_read_result(call, call_id))
    return parts


def _read_result(call: dict[str, Any], call_id: str) -> ToolResultPart:
    """Return the result of a call: the response with its id, and files next to it."""
    result = call.get("result")
    blocks = [block for block in (result if type(result) is list else [result]) if type(block) is dict]
    groups = _group_responses(blocks)
    own = [group for group in groups if text_in(group.response, "id") == call_id]  # a resumed call has those of others
    group = (own or groups or [None])[0]
    response = {} if group is None else dict_in(group.response, "response")
    files = list(filter(None, map(_read_file, blocks))) if group is None or not groups[1:] else group.files
    screen = call.get("resultDisplay")
    if not response:
        text = result if type(result) is str else text_of({"content": result}) or screen
        response = {"output": text if type(text) is str else ""}
    part = _response_part(call_id, text_in(call, "name"), response, files)
    time = time_in(call, "timestamp")
    metadata = {**(part.metadata or {}), **({} if time is None else {"completed_at": time})}
    status = _STATUS.get(call.get("status") if type(call.get("status")) is str else None, part.status)
    return replace(part, status=status, metadata=metadata or None)


def _response_part(
    call_id: str, tool: str | None, response: dict[str, Any], files: list[AttachmentPart]
) -> ToolResultPart:
    error, output = response.get("error"), response.get("output")
    is_plain = len(response) == 1 and (type(error) is str or type(output) is str)
    text = (error if type(error) is str else output) if is_plain else None
    exit_code = _EXIT_CODE.search(text) if type(text) is str else None
    content: tuple[Content, ...] | None = None
    if files:
        content = (*([TextPart(text=text)] if text else [] if is_plain else [DataPart(data=response)]), *files)
    failed = "error" in response or (exit_code is not None and int(exit_code[1]) != 0)
    return ToolResultPart(
        call_id=call_id,
        tool=tool,
        status="error" if failed else "success",
        text=None if files else text,
        data=UNSET if files or is_plain else response,
        content=content,
        error_message=error if type(error) is str else None,
        metadata=None if exit_code is None else {"exit_code": int(exit_code[1])},
    )


class _ResponseGroup(NamedTuple):
    """The response of a tool, and the files behind it, which belong to it."""

    response: dict[str, Any]
    files: list[AttachmentPart]


def _group_responses(blocks: list[dict[str, Any]]) -> list[_ResponseGroup]:
    groups: list[_ResponseGroup] = []
    for block in blocks:
        if response := dict_in(block, "functionResponse"):
            files = [_read_file(dict_in(each)) for each in list_in(response, "parts")]
            groups.append(_ResponseGroup(response, list(filter(None, files))))
        elif groups and (file := _read_file(block)) is not None:
            groups[-1].files.append(file)
    return groups


def responses_of(record: dict[str, Any]) -> list[ToolResultPart]:
    """Return the results of tools in a record of the user, which the model received."""
    results: list[ToolResultPart] = []
    for response, files in _group_responses(parts_of(record)):
        call_id = text_in(response, "id") or text_in(response, "name") or "call"
        results.append(_response_part(call_id, text_in(response, "name"), dict_in(response, "response"), files))
    return results


def holds_only_results(record: dict[str, Any]) -> bool:
    """Return whether a record of the user holds nothing but results of tools and their files."""
    blocks = parts_of(record)
    has_text = any("functionResponse" not in block and _read_file(block) is None for block in blocks)
    return not has_text and bool(blocks) and "functionResponse" in blocks[0]
