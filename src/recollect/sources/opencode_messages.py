"""Messages of opencode as drafts: the parts of a message, and the second form in which its database keeps messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    MessageState,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.sources.documents import latency, mark_injected, output_of
from recollect.sources.json_fields import (
    as_count,
    as_dict,
    as_list,
    as_text,
    column_text,
    from_milliseconds,
    message_key,
    pick,
)
from recollect.sources.source import INJECTION_KEY

_ROLES: dict[Any, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_MESSAGE_FACTS = (
    "agent", "mode", "variant", "cost", "finish", "path", "system", "tools", "format", "structured", "editorContext",
)  # fmt: skip
_STEP_FACTS = (
    "reason", "cost", "tokens", "snapshot", "hash", "files", "name", "source", "attempt", "error", "auto", "overflow",
    "tail_start_id",
)  # fmt: skip
_STEP_TYPES = frozenset({"step-start", "step-finish", "snapshot", "patch", "agent", "retry"})
_FAILED = frozenset({"error", "failed"})
_UNFINISHED = frozenset({"pending", "running", "streaming"})
_ABORT = "MessageAbortedError"
_INVALID_CALL = "invalid"  # the tool that answers a call of an unknown tool, or with arguments that it cannot read
_COMPACTION_QUESTION = "What did we do so far?"  # opencode sends this for a message with a part `compaction`
_NO_MESSAGES = frozenset({"agent-switched", "model-switched", "location-switched", "idle"})


class StoredMessage(NamedTuple):
    """A message and its parts in the form of the JSON files."""

    id: str
    info: dict[str, Any]
    parts: list[dict[str, Any]]
    created_at: int | None
    compaction: str | None = None
    """The summary of a compaction, which the second form keeps between the messages; it is not a message then."""


class ReadMessage(NamedTuple):
    """A message as a draft, and the types of parts that were not understood."""

    draft: Draft | None
    unknown: list[str]


def read_draft(message: StoredMessage) -> ReadMessage:
    """Return a message as a draft; None for a compaction of the second form."""
    if message.compaction is not None:
        return ReadMessage(None, [])
    info = message.info
    unknown: list[str] = []
    role = _ROLES.get(as_text(info.get("role")))
    if role is None:
        unknown.append("A message has an unknown role.")
        role = "assistant" if any(part.get("type") == "tool" for part in message.parts) else "user"
    reader = _PartReader(message.id, role, unknown)
    parts = reader.read(message.parts)
    body = as_text(as_dict(info.get("summary")).get("body"))
    if not message.parts and body is not None:
        parts = [TextPart(text=body)]  # a storage folder whose parts are missing still has the summary
    model = as_dict(info.get("model"))
    return ReadMessage(
        Draft(
            role=role,
            parts=tuple(parts),
            model=column_text(info.get("modelID") or model.get("modelID")) if role == "assistant" else None,
            **_tokens(as_dict(info.get("tokens"))),
            **_outcome(info, role),
            metadata=_facts(info, model, reader.steps) or None,
            created_at=from_milliseconds(as_dict(info.get("time")).get("created")) or message.created_at,
            key=message_key(message.id),
        ),
        unknown,
    )


def summary_text(message: StoredMessage) -> str:
    """Return the text of a message that is the summary of a compaction."""
    texts = [as_text(part.get("text")) for part in message.parts if part.get("type") == "text"]
    return "\n\n".join([text.strip() for text in texts if text and text.strip()])


def _tokens(tokens: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of tokens. The input includes what the cache held, as in Anthropic's format."""
    cache = as_dict(tokens.get("cache"))
    read, write = as_count(cache.get("read")) or 0, as_count(cache.get("write")) or 0
    input_count, output = as_count(tokens.get("input")), as_count(tokens.get("output"))
    total = as_count(tokens.get("total"))
    if input_count is None or output is None or not (input_count or output or read or write):
        return {}
    input_count += read + write
    if total is not None and total > input_count + output:
        output = total - input_count  # versions that state a total count reasoning separately
    return {"tokens": output, "input_tokens": input_count, "output_tokens": output}


def _outcome(info: dict[str, Any], role: Role) -> dict[str, Any]:
    """Return the state and the error of an answer."""
    error = info.get("error")
    if role != "assistant":
        return {}
    if error in (None, "", {}):
        times = as_dict(info.get("time"))
        is_open = "completed" not in times and "finish" not in info and as_dict(info.get("tokens")) and "mode" in info
        return {"state": "interrupted"} if is_open else {}
    state: MessageState = "interrupted" if as_dict(error).get("name") == _ABORT else "error"
    return {"state": state, "error": error}


def _facts(info: dict[str, Any], model: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    facts = pick(info, *_MESSAGE_FACTS)
    provider = as_text(info.get("providerID")) or as_text(model.get("providerID"))
    if provider is not None:
        facts["provider"] = provider
    usage = as_dict(info.get("tokens"))
    if usage:
        facts["usage"] = usage
    completed_at = from_milliseconds(as_dict(info.get("time")).get("completed"))
    if completed_at is not None:
        facts["completed_at"] = completed_at
    if info.get("summary") is True:
        facts["summary"] = True
    if steps:
        facts["steps"] = steps
    return facts


class _PartReader:
    """Reads the parts of one message. The results of a step follow its last call, as providers require."""

    def __init__(self, message_id: str, role: Role, unknown: list[str]) -> None:
        self.steps: list[dict[str, Any]] = []
        self._id = message_id
        self._role = role
        self._unknown = unknown
        self._results: list[Part] = []

    def read(self, parts: list[dict[str, Any]]) -> list[Part]:
        """Return the parts; those without content become facts of the message."""
        output: list[Part] = []
        for index, part in enumerate(parts):
            kind = as_text(part.get("type")) or ""
            if kind in _STEP_TYPES or (kind == "compaction" and self._role != "user"):
                if kind == "step-start":
                    output += self._take_results()
                self.steps.append({"type": kind, **pick(part, *_STEP_FACTS)})
            elif kind == "tool":
                output += self._read_tool(part, index)
            elif self._results and kind in ("text", "reasoning"):
                output += [*self._take_results(), *self._read_content(kind, part)]
            else:
                output += self._read_content(kind, part)
        return [*output, *self._take_results()]

    def _take_results(self) -> list[Part]:
        results, self._results = self._results, []
        return results

    def _read_content(self, kind: str, part: dict[str, Any]) -> list[Part]:
        reader = _CONTENT.get(kind)
        read = reader(part) if reader is not None else None
        if read is None:
            self._unknown.append(f"part {kind[:80] or 'without a type'}")
            return [DataPart(data=part)]
        if part.get("synthetic") is True:
            return mark_injected(read, "synthetic")
        return mark_injected(read, "ignored") if part.get("ignored") is True else read

    def _read_tool(self, part: dict[str, Any], index: int) -> list[Part]:
        """Return a tool call, and keep its result until the end of the step."""
        state = as_dict(part.get("state"))
        tool = as_text(part.get("tool")) or "unknown"
        call_id = as_text(part.get("callID")) or as_text(part.get("id")) or f"{self._id}:{index}"
        status = as_text(state.get("status")) or ""
        arguments, raw = state.get("input"), as_text(state.get("raw"))
        metadata = pick(part, "metadata") or None
        if raw is not None and not arguments:
            call = ToolCallPart(call_id=call_id, tool=tool, arguments_text=raw, metadata=metadata)
        else:
            call = ToolCallPart(call_id=call_id, tool=tool, arguments=arguments or {}, metadata=metadata)
        if status not in _UNFINISHED and (status or "output" in state or "error" in state):
            self._results.append(_result(call_id, tool, status, state))
        if self._role != "assistant":
            self._unknown.append("A message of a person has a tool call.")
        return [call]


def _result(call_id: str, tool: str, status: str, state: dict[str, Any]) -> ToolResultPart:
    """Return the result of a tool: its output or error, with the times and the files that it returned."""
    exit_code = as_dict(state.get("metadata")).get("exit")
    has_failed = status in _FAILED or tool == _INVALID_CALL or (type(exit_code) is int and exit_code != 0)
    error = as_text(state.get("error")) or as_text(as_dict(state.get("error")).get("message"))
    value = state.get("output")
    text = value if type(value) is str else (error if has_failed else None)
    pieces: list[Part] = [] if text is None else [TextPart(text=text)]
    if value is not None and type(value) is not str:
        pieces.append(DataPart(data=value))
    for item in as_list(state.get("attachments")):
        pieces += _read_file(as_dict(item)) or []
    facts = pick(state, "title", "metadata")
    output = as_dict(facts.get("metadata")).get("output")
    if output is not None and output == text:  # a shell repeats its output there
        facts["metadata"] = {name: item for name, item in facts["metadata"].items() if name != "output"}
    times = as_dict(state.get("time"))
    for name, fact in {"start": "started_at", "end": "completed_at", "compacted": "cleared_at"}.items():
        time = from_milliseconds(times.get(name))
        if time is not None:
            facts[fact] = time
    facts |= latency(facts)
    return ToolResultPart(
        call_id=call_id,
        tool=tool,
        status="error" if has_failed else "success",
        error_message=error if has_failed and error != text else None,
        metadata=facts or None,
        **output_of(pieces),
    )


def _read_text(part: dict[str, Any]) -> list[Part] | None:
    text = part.get("text")
    if type(text) is not str:
        return None
    return [TextPart(text=text, metadata=pick(part, "metadata") or None)] if text else []


def _read_reasoning(part: dict[str, Any]) -> list[Part] | None:
    """Return reasoning. What its provider added, such as a signature, is in the metadata of the part."""
    text = part.get("text")
    if type(text) is not str:
        return None
    metadata = as_dict(part.get("metadata"))
    facts = pick(part, "metadata")
    signature = as_text(as_dict(metadata.get("anthropic")).get("signature")) or as_text(metadata.get("signature"))
    for name, fact in {"start": "started_at", "end": "completed_at"}.items():
        time = from_milliseconds(as_dict(part.get("time")).get(name))
        if time is not None:
            facts[fact] = time
    native = {"signature": signature} if signature else None
    return [ReasoningPart(text=text, native=native, metadata=facts or None)] if text or metadata else []


def _read_file(part: dict[str, Any]) -> list[Part] | None:
    """Return a file: the bytes of a data URL, or its address."""
    url = as_text(part.get("url"))
    mime_type, name = as_text(part.get("mime")), as_text(part.get("filename"))
    metadata = pick(part, "source") or None
    if url is None:
        return None
    header, separator, data = url.partition(";base64,")
    if url.startswith("data:") and separator and data.isascii():
        url_type = header.removeprefix("data:").partition(";")[0]
        return [AttachmentPart(mime_type=mime_type or url_type or None, name=name, data=data, metadata=metadata)]
    return [AttachmentPart(mime_type=mime_type, name=name, url=url, metadata=metadata)]


def _read_compaction(part: dict[str, Any]) -> list[Part] | None:
    facts = pick(part, "auto", "overflow", "tail_start_id")
    return [TextPart(text=_COMPACTION_QUESTION, metadata={INJECTION_KEY: "compaction", **facts})]


def _read_subtask(part: dict[str, Any]) -> list[Part] | None:
    prompt = as_text(part.get("prompt"))
    facts = pick(part, "description", "agent", "command", "model")
    return [TextPart(text=prompt, metadata={"subtask": facts})] if prompt else None


_CONTENT: dict[str, Callable[[dict[str, Any]], list[Part] | None]] = {
    "text": _read_text,
    "reasoning": _read_reasoning,
    "file": _read_file,
    "compaction": _read_compaction,
    "subtask": _read_subtask,
}


# The second form


def from_second_form(
    message_id: str, kind: str, data: dict[str, Any], created_at: int | None
) -> StoredMessage | str | None:
    """Return a row of `session_message` in the first form; None for a change of settings, a text if it is unknown."""
    converter = _KINDS.get(kind)
    if converter is None:
        return None if kind in _NO_MESSAGES else f"session_message {kind[:80]}"
    info, parts = converter(data)
    if kind == "compaction":
        summary = as_text(data.get("summary"))
        if summary is None or data.get("status") in ("running", "failed"):
            return None
        recent = as_text(data.get("recent"))
        text = f"{summary}\n\n{recent}" if recent else summary
        return StoredMessage(message_id, info, [], created_at, text)
    info |= {"time": as_dict(data.get("time")), **pick(data, "metadata")}
    return StoredMessage(message_id, info, parts, created_at)


_FirstForm = tuple[dict[str, Any], list[dict[str, Any]]]


def _convert_user(data: dict[str, Any]) -> _FirstForm:
    parts = [{"type": "text", "text": data.get("text")}]
    parts += [_convert_file(as_dict(item)) for item in as_list(data.get("files"))]
    parts += [{"type": "agent", **as_dict(item)} for item in as_list(data.get("agents"))]
    return {"role": "user"}, parts


def _convert_context(data: dict[str, Any]) -> _FirstForm:
    return {"role": "user"}, [{"type": "text", "text": data.get("text"), "synthetic": True}]


def _convert_system(data: dict[str, Any]) -> _FirstForm:
    return {"role": "system"}, [{"type": "text", "text": data.get("text"), "synthetic": True}]


def _convert_shell(data: dict[str, Any]) -> _FirstForm:
    output = data.get("output")
    state = {
        "status": "completed",
        "input": {"command": data.get("command")},
        "output": output if type(output) is str else as_dict(output).get("text", output),
        "metadata": pick(data, "exit", "status"),
        "time": _span(as_dict(data.get("time"))),
    }
    call_id = as_text(data.get("callID")) or as_text(data.get("shellID"))
    return {"role": "assistant"}, [{"type": "tool", "tool": "bash", "callID": call_id, "state": state}]


def _convert_assistant(data: dict[str, Any]) -> _FirstForm:
    model = as_dict(data.get("model"))
    info = {
        "role": "assistant",
        "modelID": model.get("id"),
        "providerID": model.get("providerID"),
        **pick(model, "variant"),
        **pick(data, "agent", "cost", "tokens", "finish", "error"),
    }
    parts = [_convert_content(as_dict(item)) for item in as_list(data.get("content"))]
    if snapshot := as_dict(data.get("snapshot")):
        parts.append({"type": "snapshot", "snapshot": snapshot})
    return info, parts


def _convert_compaction(_data: dict[str, Any]) -> _FirstForm:
    return {}, []


_KINDS: dict[str, Callable[[dict[str, Any]], _FirstForm]] = {
    "user": _convert_user,
    "synthetic": _convert_context,
    "skill": _convert_context,
    "system": _convert_system,
    "shell": _convert_shell,
    "assistant": _convert_assistant,
    "compaction": _convert_compaction,
}


def _convert_content(item: dict[str, Any]) -> dict[str, Any]:
    """Return a piece of an answer as a part of the first form."""
    if item.get("type") != "tool":
        native = item.get("providerMetadata") or item.get("native") or item.get("state")
        times = _span(as_dict(item.get("time")))
        return {**item, "metadata": as_dict(native), "time": times} if native or times else item
    state = as_dict(item.get("state"))
    pieces = [as_dict(piece) for piece in as_list(state.get("content"))]
    texts = [piece["text"] for piece in pieces if type(piece.get("text")) is str]
    files = [piece for piece in pieces if piece.get("type") != "text"] + as_list(state.get("attachments"))
    arguments = state.get("input")
    fields: dict[str, Any] = {
        "status": state.get("status"),
        "input": arguments if type(arguments) is dict else None,
        "raw": arguments if type(arguments) is str else None,
        "output": "\n".join(texts) if texts else state.get("result"),
        "error": state.get("error"),
        "metadata": state.get("structured") or state.get("metadata"),
        "attachments": [_convert_file(as_dict(piece)) for piece in files],
        "time": _span(as_dict(item.get("time"))),
    }
    facts = pick(item, "provider", "native", "providerState", "executed", "providerResultState")
    return {
        "type": "tool",
        "tool": item.get("name"),
        "callID": item.get("id"),
        "metadata": facts,
        "state": {name: value for name, value in fields.items() if value is not None},
    }


def _convert_file(item: dict[str, Any]) -> dict[str, Any]:
    source = as_dict(item.get("source"))
    mime_type = as_text(item.get("mime")) or as_text(item.get("mediaType"))
    url = as_text(item.get("uri")) or as_text(item.get("url")) or as_text(source.get("uri"))
    data = as_text(item.get("data"))
    if data is not None:
        url = data if data.startswith("data:") else f"data:{mime_type or ''};base64,{data}"
    return {"type": "file", "mime": mime_type, "filename": item.get("name"), "url": url, **pick(item, "source")}


def _span(times: dict[str, Any]) -> dict[str, Any]:
    names = {
        "start": times.get("ran") or times.get("created"),
        "end": times.get("completed"),
        "compacted": times.get("pruned"),
    }
    return {name: time for name, time in names.items() if time is not None}
