"""Messages of other formats as chat completions have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.formats import attachment, neutral
from recollect.model.message import Message
from recollect.model.part import AttachmentPart, Part, ToolCallPart, ToolResultPart

_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def show(written: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    """Write what tools showed as a message of the person, which may hold it where a tool's may not."""
    if shown:
        written.append({"role": "user", "content": list(shown)})
        shown.clear()


def translate(message: Message, written: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    """Write a message of another format, its tool results as messages of their own."""
    if message.role == "assistant":
        for told, results in neutral.steps(message.parts):
            show(written, shown)
            calls = [_translated_call(part) for part in told if type(part) is ToolCallPart]
            written += _assistant(neutral.said(told), calls)
            _answer(results, written, shown)
        return
    _answer([part for part in message.parts if type(part) is ToolResultPart], written, shown)
    said = neutral.words(message.parts) if message.role == "system" else _content(message.parts)
    if said:
        role = "system" if message.role == "system" else "user"
        written.append({"role": role, "content": neutral.content([*shown, *said])})
        shown.clear()


def _answer(results: list[ToolResultPart], written: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    for part in results:
        written.append({"role": "tool", "tool_call_id": part.call_id, "content": neutral.answer(part)})
        if part.content is not None:
            shown += [block for piece in part.content if (block := _file_of(piece)) is not None]


def _assistant(said: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not said and not calls:
        return []
    written: dict[str, Any] = {"role": "assistant", "content": neutral.content(said) if said else None}
    if calls:
        written["tool_calls"] = calls
    return [written]


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write texts that are not blank, and the files that the API takes."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _file_of(part)
        if block is not None:
            blocks.append(block)
        else:
            blocks += neutral.words((part,))
    return blocks


def _file_of(part: Part) -> dict[str, Any] | None:
    return _file_block(attachment.file(part)) if type(part) is AttachmentPart else None


def _file_block(found: attachment.File) -> dict[str, Any] | None:
    """Write a file; None where the API has no place for it, or where it is text and goes as such."""
    if found.is_image:
        is_usable = found.data is not None or attachment.is_web(found.url)
        return {"type": "image_url", "image_url": {"url": found.link}} if is_usable else None
    if found.text is not None or found.data is None:
        return None
    if found.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": found.data, "format": _SOUNDS[found.mime_type]}}
    return {"type": "file", "file": {"file_data": found.link, "filename": found.name or "file"}}


def _translated_call(part: ToolCallPart) -> dict[str, Any]:
    custom = neutral.custom_input(part)
    if custom is not None:
        return {"id": part.call_id, "type": "custom", "custom": {"name": part.tool, "input": custom}}
    function = {"name": part.tool, "arguments": neutral.arguments(part)}
    return {"id": part.call_id, "type": "function", "function": function}
