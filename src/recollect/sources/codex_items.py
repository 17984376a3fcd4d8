"""Items of Codex: the lines that hold an item of the Responses API, and what they become in a message."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from recollect import formats
from recollect.model.json import decode, encode_standard, to_json_data
from recollect.model.message import AttachmentPart, DataPart, Draft, Part, TextPart, ToolResultPart
from recollect.sources.json_fields import dict_in, kind_name, list_in, read_or_none, text_in, time_in
from recollect.sources.source import INJECTION_KEY

_FORMAT = "openai-responses"
_UNSENT = ("internal_chat_message_metadata_passthrough", "metadata")  # fields that Codex does not send to a provider
CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "tool_call"})
OUTPUTS = frozenset(
    {
        "function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output",
        "tool_search_output", "tool_result", "function_result",
    }
)  # fmt: skip
_MODEL_OUTPUT = CALLS | {"reasoning", "web_search_call", "image_generation_call", "compaction", "context_compaction"}
ITEMS = _MODEL_OUTPUT | OUTPUTS | {"message", "agent_message", "ghost_snapshot", "compaction_summary"}
_PREFIXES = {
    "<environment_context": "environment",
    "<user_instructions": "instructions",
    "<INSTRUCTIONS": "instructions",
    "# AGENTS.md instructions": "instructions",
    "<apps_instructions": "instructions",
    "<skills_instructions": "instructions",
    "<plugins_instructions": "instructions",
    "<permissions instructions": "instructions",
    "<environments_instructions": "instructions",
    "<tools>": "instructions",
    "<skill>": "skill",
    "<collaboration_mode": "mode",
    "<model_switch": "mode",
    "<personality": "mode",
    "<multi_agent_mode": "mode",
    "<codex_internal_context": "context",
    "<external_": "context",
    "<context_window": "context",
    "<memory": "context",
    "<turn_aborted": "turn_aborted",
    "<user_shell_command": "command",
    "<user_action": "command",
    "<subagent_notification": "agent",
    "<hook": "hook",
    "<system-reminder": "reminder",
}
"""The beginnings of texts that Codex adds to the messages for its model, and the kinds of context that they are."""
_IMAGE_TAG = re.compile(r"<image(?: [^<>]{0,4096})?>|</image>")
"""The texts that Codex writes around an image."""
_EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (-?\d{1,9})")
_WALL_TIME = re.compile(r"Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds")
_FACTS_CHARACTERS = 400  # of an output, in which Codex writes the exit code and the time before the output itself
_MAX_SECONDS = 1e12  # seconds; a larger duration is not one
_OLD_OUTPUT_CHARACTERS = 1 << 22  # a longer output of an old version is not decoded for its exit code


def is_model_output(item: dict[str, Any]) -> bool:
    """Return whether an item is a piece of a model's response."""
    kind = text_in(item, "type")
    return kind in _MODEL_OUTPUT or (kind == "message" and item.get("role") == "assistant")


def normal_item(line: Any, number: int, calls: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return an item as the Responses API has it, without Codex's own fields; None if it is not an item.

    Versions and other programs write calls and results without a call id: a call gets one from its number, and a result
    that of the last call of its tool, from `calls`, which holds the facts of recent calls by call id.
    """
    if type(line) is not dict:
        return None
    item = {name: value for name, value in line.items() if name not in _UNSENT}
    kind = item.get("type")
    if kind is None and type(item.get("role")) is str:
        content = next((item[name] for name in ("content", "message", "text") if name in item), None)
        return {"type": "message", "role": item["role"], "content": content if content is not None else ""}
    if type(kind) is not str:
        return None
    if kind in ("tool_call", "function_call") and type(item.get("call_id")) is not str:
        tool = text_in(item, "name") or text_in(dict_in(item, "function"), "name") or "unknown"
        arguments = item.get("arguments", item.get("input", {}))
        return {"type": "function_call", "call_id": f"call-{number}", "name": tool, "arguments": as_json(arguments)}
    if kind in ("tool_result", "function_result"):
        tool = text_in(item, "name")
        call_id = text_in(item, "call_id") or _last_call(calls, tool) or f"call-{number}"
        output = item.get("result", item.get("output"))
        return {"type": "function_call_output", "call_id": call_id, "output": as_json(output)}
    if kind in ("function_call_output", "custom_tool_call_output"):
        item["output"] = _normal_output(item.get("output"))
    return item


def _last_call(calls: dict[str, dict[str, Any]], tool: str | None) -> str | None:
    return next((call_id for call_id, facts in reversed(calls.items()) if tool in (None, facts.get("tool"))), None)


def as_json(value: Any) -> str:
    """Return a text as it is, and another value as JSON; "" for a value that JSON cannot represent."""
    if type(value) is str:
        return value
    return encode_standard(value) if read_or_none(to_json_data, value) is not None or value is None else ""


def _normal_output(output: Any) -> Any:
    """Return an output as Codex sends it: a text, or a list of blocks."""
    if type(output) is dict:
        if "content" in output:
            return _normal_output(output["content"])
        return [output] if type(output.get("type")) is str else as_json(output)
    if type(output) is list:
        return output if all(type(block) is dict for block in output) else as_json(output)
    return as_json(output)


def read_response(items: list[dict[str, Any]]) -> Draft | None:
    """Return the items of one response as one message; None if the format refuses them."""
    drafts = read_or_none(lambda output: formats.read({"output": output}, _FORMAT), items)
    if not drafts:
        return None
    native = {name: value for name, value in (drafts[0].native or {}).items() if name != "response"}
    return replace(drafts[0], native=native or None)


def read_item(item: dict[str, Any], line: dict[str, Any]) -> Draft | None:
    """Return an item that no model wrote as a message, with its context marked; None if the format refuses it."""
    kind = text_in(item, "type")
    if kind == "agent_message":
        return _read_agent_message(item)
    if kind not in ITEMS:
        return Draft(role="assistant", parts=(DataPart(data=item),))
    drafts = read_or_none(lambda value: formats.read(value, _FORMAT), item)
    if not drafts:
        return None
    draft: Draft = drafts[0]
    return replace(draft, parts=_mark_context(draft, line)) if kind == "message" else draft


def _read_agent_message(item: dict[str, Any]) -> Draft:
    """Return a message of another agent. It is text for the model, but no text of a person."""
    parts: list[Part] = []
    for block in list_in(item, "content"):
        text = text_in(block, "text")
        metadata = {INJECTION_KEY: "agent"}
        parts.append(
            DataPart(data=block, metadata=metadata) if text is None else TextPart(text=text, metadata=metadata)
        )
    author, recipient = text_in(item, "author"), text_in(item, "recipient")
    names = {name: value for name, value in (("author", author), ("recipient", recipient)) if value}
    return Draft(role="user", parts=tuple(parts), metadata=names or None)


def _mark_context(draft: Draft, line: dict[str, Any]) -> tuple[Part, ...]:
    """Return the parts of a message, those marked that Codex added."""
    kinds = list_in(dict_in(line, _UNSENT[0]), "content_item_kinds")
    default = "instructions" if draft.role == "system" else None
    parts: list[Part] = []
    for index, part in enumerate(draft.parts):
        kind = _context_kind(part) or default
        label = kinds[index] if len(kinds) == len(draft.parts) else None
        if kind is None and type(label) is str and not label.startswith(("user.", "unknown")):
            kind = kind_name(label)
        parts.append(part if kind is None else replace(part, metadata={INJECTION_KEY: kind}))
    return tuple(parts)


def _context_kind(part: Part) -> str | None:
    """Return the kind of context that a part is by its beginning; None if it is none."""
    if type(part) is not TextPart:
        return None
    if _IMAGE_TAG.fullmatch(part.text):
        return "image"
    text = part.text[:200].lstrip()
    return next((kind for prefix, kind in _PREFIXES.items() if text.startswith(prefix)), None)


def is_context(part: Part) -> bool:
    """Return whether a part is marked as context that Codex added."""
    return part.metadata is not None and INJECTION_KEY in part.metadata


def question_of(draft: Draft) -> str | None:
    """Return what a person wrote in a message: its text, or "" if there is only an image; None if there is nothing."""
    own_parts = [part for part in draft.parts if not is_context(part)]
    texts = [part.text for part in own_parts if type(part) is TextPart and part.text.strip()]
    if draft.role != "user" or not (texts or any(type(part) is AttachmentPart for part in own_parts)):
        return None
    return texts[0] if texts else ""


def text_of_history(items: list[Any]) -> str:
    """Return what remains readable of a conversation whose summary is encrypted: the messages that were kept."""
    texts: list[str] = []
    for item in items:
        draft = read_item(item, item) if type(item) is dict and item.get("type") == "message" else None
        if draft is not None and draft.role in ("user", "assistant"):
            texts += [part.text for part in draft.parts if type(part) is TextPart and not is_context(part)]
    return "\n\n".join(texts)


def finish_result(draft: Draft, line: dict[str, Any], facts: dict[str, Any], created_at: int | None) -> Draft:
    """Return a message with the result of a tool, with its tool, status and timing as far as they are known."""
    part = draft.parts[0] if draft.parts else None
    if type(part) is not ToolResultPart:
        return draft
    timing = {**_facts_of_output(part, line), **{name: facts[name] for name in _FACTS if name in facts}}
    if created_at is not None:
        timing.setdefault("completed_at", created_at)
    failed = timing.pop("failed", None)
    if failed is None:
        failed = timing.get("exit_code", 0) != 0 or part.status == "error"
    tool = facts.get("tool")
    finished = replace(
        part,
        tool=tool if type(tool) is str else part.tool,
        status="error" if failed else part.status,
        metadata=timing or None,
    )
    return replace(draft, parts=(finished, *draft.parts[1:]))


_FACTS = ("exit_code", "duration_ms", "started_at", "completed_at", "failed")


def _facts_of_output(part: ToolResultPart, line: dict[str, Any]) -> dict[str, Any]:
    """Return the exit code and the time that Codex wrote into an output."""
    output = line.get("output")
    if type(output) is dict and type(output.get("success")) is bool:
        return {"failed": not output["success"]}
    text = part.output if part.text is None else part.text
    if text.startswith('{"output"') and len(text) < _OLD_OUTPUT_CHARACTERS:
        value = _decode(text)
        return command_facts({**dict_in(value, "metadata")})
    facts: dict[str, Any] = {}
    head = text[:_FACTS_CHARACTERS].partition("\nOutput:")[0]
    exit_code, wall_time = _EXIT_CODE.search(head), _WALL_TIME.search(head)
    if exit_code:
        facts["exit_code"] = int(exit_code[1])
    if wall_time:
        facts["duration_ms"] = round(float(wall_time[1]) * 1000)
    return facts


def _decode(text: str) -> Any:
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return None


def command_facts(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the exit code, the duration, the times and the failure that an event or an output names."""
    facts: dict[str, Any] = {}
    exit_code = fields.get("exit_code")
    if type(exit_code) is int and abs(exit_code) < 1 << 33:
        facts["exit_code"] = exit_code
    duration = fields.get("duration")
    seconds = fields.get("duration_seconds")
    if type(duration) is dict:
        seconds = _number(duration.get("secs")) + _number(duration.get("nanos")) / 1e9
    if seconds is not None and _number(seconds) >= 0:
        facts["duration_ms"] = round(_number(seconds) * 1000)
    for name, field in (("started_at", "started_at_ms"), ("completed_at", "completed_at_ms")):
        time = time_in(fields, field)
        if time is not None:
            facts[name] = time
    failed = _failure(fields)
    return facts if failed is None else {**facts, "failed": failed}


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) and abs(value) < _MAX_SECONDS else 0.0


def _failure(fields: dict[str, Any]) -> bool | None:
    """Return whether a tool failed; None if the event does not tell."""
    if type(fields.get("success")) is bool:
        return not fields["success"]
    result = fields.get("result")
    if type(result) is dict and ("Err" in result or "Ok" in result):
        return "Err" in result or dict_in(result, "Ok").get("isError") is True
    if text_in(fields, "status") in ("failed", "declined", "error"):
        return True
    return False if fields.get("status") == "completed" and "exit_code" not in fields else None


def items_of_event(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items that an event of a file without items repeats."""
    match event.get("type"):
        case "user_message":
            blocks: list[dict[str, Any]] = [{"type": "input_text", "text": as_json(event.get("message") or "")}]
            urls = [url for url in list_in(event, "images") if type(url) is str]
            blocks += [{"type": "input_image", "image_url": url} for url in urls]
            return [{"type": "message", "role": "user", "content": blocks}]
        case "agent_message":
            content = [{"type": "output_text", "text": as_json(event.get("message") or "")}]
            return [{"type": "message", "role": "assistant", "content": content}]
        case "agent_reasoning" | "agent_reasoning_raw_content":
            summary = [{"type": "summary_text", "text": as_json(event.get("text") or "")}]
            return [{"type": "reasoning", "summary": summary}]
        case "exec_command_end":
            return _command_items(event, "shell", event.get("command"), _first(event, "aggregated_output", "stdout"))
        case "mcp_tool_call_end":
            invocation = dict_in(event, "invocation")
            tool = f"{text_in(invocation, 'server') or 'mcp'}.{text_in(invocation, 'tool') or 'unknown'}"
            return _command_items(event, tool, invocation.get("arguments"), event.get("result"))
        case _:
            return []


def _first(event: dict[str, Any], *names: str) -> Any:
    return next((event[name] for name in names if event.get(name)), "")


def _command_items(event: dict[str, Any], tool: str, arguments: Any, output: Any) -> list[dict[str, Any]]:
    call_id = text_in(event, "call_id")
    if call_id is None:
        return []
    arguments = arguments if type(arguments) is dict else {"command": arguments}
    return [
        {"type": "function_call", "call_id": call_id, "name": tool, "arguments": as_json(arguments)},
        {"type": "function_call_output", "call_id": call_id, "output": as_json(output)},
    ]
