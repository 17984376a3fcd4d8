"""A UI message of the AI SDK as model messages, by the rules of its own convertToModelMessages().

Both are the AI SDK's, so more carries over than a translation through our fields would keep: options and metadata of
providers, approvals, and tools that a provider ran. Data parts and sources stay behind, as they do there.
"""

from __future__ import annotations

from typing import Any

from recollect.formats.native import is_dict, is_list

_OMITTED = "Tool output omitted because the tool is no longer available."
_DENIED = "Tool call execution denied."


def model_messages(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert one UI message."""
    parts = [part for part in message.get("parts") or () if is_dict(part)]
    if message["role"] == "system":
        return [_system(parts)]
    if message["role"] == "user":
        content = [said for part in parts if (said := _said(part)) is not None]
        return [{"role": "user", "content": content}]
    written: list[dict[str, Any]] = []
    step: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start":
            written += _step(step)
            step = []
        else:
            step.append(part)
    return [*written, *_step(step)]


def tool_name(part: dict[str, Any]) -> str | None:
    """Give the tool of a tool part; None if it is none."""
    kind = part.get("type")
    if kind == "dynamic-tool":
        name = part.get("toolName")
        return name if type(name) is str else None
    return kind.removeprefix("tool-") if type(kind) is str and kind.startswith("tool-") else None


def _system(parts: list[dict[str, Any]]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in parts:
        if part.get("type") == "text" and is_dict(part.get("providerMetadata")):
            options |= part["providerMetadata"]
    text = "".join(_text(part) for part in parts if part.get("type") == "text")
    return _with({"role": "system", "content": text}, providerOptions=options or None)


def _text(part: dict[str, Any]) -> str:
    text = part.get("text")
    return text if type(text) is str else ""


def _said(part: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a text or a file."""
    options = part.get("providerMetadata")
    if part.get("type") == "text":
        return _with({"type": "text", "text": _text(part)}, providerOptions=options)
    if part.get("type") == "file":
        data = part.get("url", part.get("data"))
        file = {"type": "file", "mediaType": part.get("mediaType", part.get("mimeType")), "data": data}
        return _with(file, filename=part.get("filename"), providerOptions=options)
    return None


def _step(step: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert a step: what the agent said and asked, then the answers to that."""
    content: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for part in step:
        said = _said(part)
        if said is not None:
            content.append(said)
        elif part.get("type") == "reasoning":
            text = part.get("text", part.get("reasoning"))
            thought = {"type": "reasoning", "text": text if type(text) is str else ""}
            content.append(_with(thought, providerOptions=part.get("providerMetadata")))
        elif part.get("type") == "tool-invocation":
            _older_tool(part, content, answers)
        elif tool_name(part) is not None:
            content += _asked(part)
            answers += _answered(part)
    written: list[dict[str, Any]] = []
    if content:
        written.append({"role": "assistant", "content": content})
    if answers:
        written.append({"role": "tool", "content": answers})
    return written


def _asked(part: dict[str, Any]) -> list[dict[str, Any]]:
    state, approval = part.get("state"), part.get("approval")
    if state == "input-streaming":
        return []
    options = part.get("callProviderMetadata")
    call = _call("tool-call", part)
    if "input" in part:
        call["input"] = part["input"]
    if state == "output-error":
        options = part.get("resultProviderMetadata") if options is None else options
        if call.get("input") is None:
            call.pop("input", None)
            call |= {"input": part["rawInput"]} if "rawInput" in part else {}
    asked = [_with(call, providerExecuted=part.get("providerExecuted"), providerOptions=options)]
    if is_dict(approval):
        asked.append(_approval(part, approval))
    if part.get("providerExecuted") is True and state in ("output-available", "output-error"):
        options = part.get("resultProviderMetadata")
        options = part.get("callProviderMetadata") if options is None else options
        failed = {"type": "error-json", "value": part.get("errorText")}
        output = failed if state == "output-error" else _output(part)
        asked.append(_with({**_call("tool-result", part), "output": output}, providerOptions=options))
    return asked


def _approval(part: dict[str, Any], approval: dict[str, Any]) -> dict[str, Any]:
    asked = {"type": "tool-approval-request", "approvalId": approval.get("id"), "toolCallId": part.get("toolCallId")}
    if "inputSchemaInput" in approval:
        asked["inputSchemaInput"] = approval["inputSchemaInput"]
    return _with(asked, signature=approval.get("signature"))


def _answered(part: dict[str, Any]) -> list[dict[str, Any]]:
    state, approval, ran = part.get("state"), part.get("approval"), part.get("providerExecuted")
    answers: list[dict[str, Any]] = []
    reason = None
    if is_dict(approval):
        reason = approval.get("reason")
        if approval.get("approved") is not None:
            told = {
                "type": "tool-approval-response",
                "approvalId": approval.get("id"),
                "approved": approval["approved"],
            }
            answers.append(_with(told, reason=reason, providerExecuted=ran))
    if ran is True:
        return answers
    if state == "output-denied":
        output = {"type": "error-text", "value": _DENIED if reason is None else reason}
    elif state == "output-error":
        output = {"type": "error-text", "value": _error(part.get("errorText"))}
    elif state == "output-available":
        output = _output(part)
    else:
        return answers
    result = {**_call("tool-result", part), "output": output}
    return [*answers, _with(result, providerOptions=part.get("callProviderMetadata"))]


def _output(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "dynamic-tool" and part.get("dynamic") is False:
        return {"type": "text", "value": _OMITTED}
    output = part.get("output")
    return {"type": "text" if type(output) is str else "json", "value": output}


def _older_tool(part: dict[str, Any], content: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    """Convert a tool part as the AI SDK had it before its fifth version."""
    used = part.get("toolInvocation")
    if not is_dict(used) or used.get("state") == "partial-call":
        return
    content.append({**_call("tool-call", used), "input": used.get("args")})
    if used.get("state") == "result":
        answers.append({**_call("tool-result", used), "output": _output({"output": used.get("result")})})


def _call(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    tool = tool_name(part) if "type" in part else part.get("toolName")
    return {"type": kind, "toolCallId": part.get("toolCallId"), "toolName": tool}


def _error(value: Any) -> str:
    if type(value) is str:
        return value
    return "unknown error" if value is None or is_list(value) else str(value)


def _with(block: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add the fields that are there."""
    return {**block, **{name: value for name, value in more.items() if value is not None}}
