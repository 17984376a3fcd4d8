"""Which features of each format carry over to each other one, computed by translating one example of each.

Run it to print the tables of docs/reference/formats.md:  python tests/unit/formats_table.py
"""

from __future__ import annotations

import base64
import json
from typing import Any

from recollect import formats
from recollect.model.message import Message

FORMATS = formats.PROVIDERS
NEEDLE = "Tm9lZGxl"  # valid base64, and plain text as well
PNG = f"data:image/png;base64,{NEEDLE}"
PDF = f"data:application/pdf;base64,{NEEDLE}"
LINK = f"https://example.org/{NEEDLE}.png"

Messages = list[dict[str, Any]]


def user(*blocks: dict[str, Any]) -> Messages:
    return [{"role": "user", "content": list(blocks)}]


def agent(*blocks: dict[str, Any]) -> Messages:
    return [{"role": "assistant", "content": list(blocks)}]


def ui(role: str, *parts: dict[str, Any]) -> Messages:
    return [{"id": "m", "role": role, "parts": list(parts)}]


def _anthropic() -> dict[str, Messages]:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    text = {"type": "text", "text": "words"}

    def tool_exchange(content: Any) -> Messages:
        return agent(call) + user({"type": "tool_result", "tool_use_id": "c", "content": content})

    def image(source: dict[str, Any]) -> dict[str, Any]:
        return {"type": "image", "source": source}

    png = {"type": "base64", "media_type": "image/png", "data": NEEDLE}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": NEEDLE}
    search_call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": NEEDLE}}
    citation = {"type": "page_location", "cited_text": NEEDLE, "document_index": 0}
    return {
        "text": user({"type": "text", "text": NEEDLE}),
        "system message": [{"role": "system", "content": NEEDLE}],
        "reasoning": agent({"type": "thinking", "thinking": NEEDLE, "signature": "s"}, text),
        "signature or encrypted reasoning": agent({"type": "thinking", "thinking": "t", "signature": NEEDLE}, text),
        "tool call": agent({**call, "input": {"a": NEEDLE}}),
        "tool result": tool_exchange(NEEDLE),
        "image, as bytes": user(image(png)),
        "image, by URL": user(image({"type": "url", "url": LINK})),
        "PDF, as bytes": user({"type": "document", "source": pdf}),
        "text document": user(
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": NEEDLE}}
        ),
        "image in a tool result": tool_exchange([image(png)]),
        "search result in a tool result": tool_exchange(
            [{"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": NEEDLE}]}]
        ),
        "file by provider id": user(image({"type": "file", "file_id": NEEDLE})),
        "citations": agent({**text, "citations": [citation]}),
        "provider-executed call": agent(search_call, text),
        "cache control, provider options": user({**text, "cache_control": {"type": NEEDLE}}),
    }


def _openai() -> dict[str, Messages]:
    def tool_exchange(arguments: str, content: Any = "") -> Messages:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": content},
        ]

    audio = {"type": "input_audio", "input_audio": {"data": NEEDLE, "format": "wav"}}
    citation = {"type": "url_citation", "url_citation": {"url": NEEDLE}}
    return {
        "text": user({"type": "text", "text": NEEDLE}),
        "system message": [{"role": "developer", "content": NEEDLE}],
        "tool call": tool_exchange(json.dumps({"a": NEEDLE})),
        "custom tool call": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": NEEDLE}}],
            }
        ],
        "tool result": tool_exchange("{}", NEEDLE),
        "image, as bytes": user({"type": "image_url", "image_url": {"url": PNG}}),
        "image, by URL": user({"type": "image_url", "image_url": {"url": LINK}}),
        "PDF, as bytes": user({"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}}),
        "audio": user(audio),
        "refusal": [{"role": "assistant", "content": None, "refusal": NEEDLE}],
        "transcript of an audio answer": [
            {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": NEEDLE}}
        ],
        "file by provider id": user({"type": "file", "file": {"file_id": NEEDLE}}),
        "citations": [{"role": "assistant", "content": "words", "annotations": [citation]}],
        "cache control, provider options": user(
            {"type": "text", "text": "words", "prompt_cache_breakpoint": {"mode": NEEDLE}}
        ),
    }


def _responses() -> dict[str, Messages]:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output_text = {"type": "output_text", "text": "words", "annotations": []}

    def answer(block: dict[str, Any]) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [block]}

    def tool_exchange(output: Any) -> Messages:
        return [call, {"type": "function_call_output", "call_id": "c", "output": output}]

    def reasoning(text: str, signature: str) -> Messages:
        summary = [{"type": "summary_text", "text": text}]
        return [
            {"type": "reasoning", "id": "r", "summary": summary, "encrypted_content": signature},
            answer(output_text),
        ]

    def image(url: str) -> dict[str, Any]:
        return {"type": "input_image", "detail": "auto", "image_url": url}

    search_call = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": NEEDLE}}
    image_call = {"type": "image_generation_call", "id": "i", "status": "completed", "result": NEEDLE}
    return {
        "text": [answer({**output_text, "text": NEEDLE})],
        "system message": [{"role": "developer", "content": NEEDLE}],
        "reasoning": reasoning(NEEDLE, "e"),
        "signature or encrypted reasoning": reasoning("t", NEEDLE),
        "tool call": [{**call, "arguments": json.dumps({"a": NEEDLE})}],
        "custom tool call": [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": NEEDLE}],
        "tool result": tool_exchange(NEEDLE),
        "image, as bytes": user(image(PNG)),
        "image, by URL": user(image(LINK)),
        "PDF, as bytes": user({"type": "input_file", "file_data": PDF, "filename": "a.pdf"}),
        "image in a tool result": tool_exchange([image(PNG)]),
        "generated image": [image_call, answer(output_text)],
        "refusal": [answer({"type": "refusal", "refusal": NEEDLE})],
        "file by provider id": user({"type": "input_file", "file_id": NEEDLE}),
        "citations": [answer({**output_text, "annotations": [{"type": "url_citation", "url": NEEDLE}]})],
        "provider-executed call": [search_call, answer(output_text)],
    }


def _ai_sdk() -> dict[str, Messages]:
    call = {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {"a": 1}}
    text = {"type": "text", "text": "words"}

    def tool_exchange(output: dict[str, Any]) -> Messages:
        result = {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": output}
        return [*agent(call), {"role": "tool", "content": [result]}]

    def file(data: str, media_type: str) -> Messages:
        return user({"type": "file", "data": data, "mediaType": media_type})

    image = {"type": "image-data", "data": NEEDLE, "mediaType": "image/png"}
    return {
        "text": user({"type": "text", "text": NEEDLE}),
        "system message": [{"role": "system", "content": NEEDLE}],
        "reasoning": agent({"type": "reasoning", "text": NEEDLE}, text),
        "signature or encrypted reasoning": agent(
            {"type": "reasoning", "text": "t", "providerOptions": {"anthropic": {"signature": NEEDLE}}}, text
        ),
        "tool call": agent({**call, "input": {"a": NEEDLE}}),
        "tool result": tool_exchange({"type": "text", "value": NEEDLE}),
        "image, as bytes": user({"type": "image", "image": NEEDLE, "mediaType": "image/png"}),
        "image, by URL": user({"type": "image", "image": LINK}),
        "PDF, as bytes": file(NEEDLE, "application/pdf"),
        "audio": file(NEEDLE, "audio/wav"),
        "image in a tool result": tool_exchange({"type": "content", "value": [image]}),
        "provider-executed call": agent({**call, "input": {"a": NEEDLE}, "providerExecuted": True}, text),
        "cache control, provider options": user({**text, "providerOptions": {"openai": {"x": NEEDLE}}}),
    }


def _ai_sdk_ui() -> dict[str, Messages]:
    tool = {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {"a": 1}, "output": "words"}
    text = {"type": "text", "text": "words"}

    def file(url: str, media_type: str) -> Messages:
        return ui("user", {"type": "file", "url": url, "mediaType": media_type})

    return {
        "text": ui("user", {"type": "text", "text": NEEDLE}),
        "system message": ui("system", {"type": "text", "text": NEEDLE}),
        "reasoning": ui("assistant", {"type": "reasoning", "text": NEEDLE}, text),
        "signature or encrypted reasoning": ui(
            "assistant",
            {"type": "reasoning", "text": "t", "providerMetadata": {"anthropic": {"signature": NEEDLE}}},
            text,
        ),
        "tool call": ui("assistant", {**tool, "input": {"a": NEEDLE}}),
        "tool result": ui("assistant", {**tool, "output": NEEDLE}),
        "image, as bytes": file(PNG, "image/png"),
        "image, by URL": file(LINK, "image/png"),
        "PDF, as bytes": file(PDF, "application/pdf"),
        "audio": file(f"data:audio/wav;base64,{NEEDLE}", "audio/wav"),
        "provider-executed call": ui("assistant", {**tool, "output": NEEDLE, "providerExecuted": True}, text),
        "sources": ui("assistant", {"type": "source-url", "sourceId": "s", "url": NEEDLE}, text),
        "data parts, metadata": ui("assistant", {"type": "data-x", "data": NEEDLE}, text),
        "cache control, provider options": ui("user", {**text, "providerMetadata": {"openai": {"x": NEEDLE}}}),
    }


def _pydantic_ai() -> dict[str, Messages]:
    text = {"part_kind": "text", "content": "words"}

    def request(*parts: dict[str, Any]) -> Messages:
        return [{"kind": "request", "parts": list(parts)}]

    def reply(*parts: dict[str, Any]) -> Messages:
        return [{"kind": "response", "parts": list(parts)}]

    def prompt(*items: Any) -> Messages:
        return request({"part_kind": "user-prompt", "content": list(items)})

    def tool_exchange(args: Any, content: Any = "") -> Messages:
        call = {"tool_name": "f", "tool_call_id": "c"}
        answer = request({"part_kind": "tool-return", **call, "content": content})
        return reply({"part_kind": "tool-call", **call, "args": args}) + answer

    def binary(media_type: str) -> dict[str, Any]:
        return {"kind": "binary", "data": NEEDLE, "media_type": media_type}

    native_call = {"part_kind": "builtin-tool-call", "tool_name": "web_search", "tool_call_id": "s"}
    citation = {"sources": [{"kind": "web", "url": NEEDLE}]}
    file = {"kind": "uploaded-file", "file_id": NEEDLE, "provider_name": "openai"}
    return {
        "text": request({"part_kind": "user-prompt", "content": NEEDLE}),
        "system message": request({"part_kind": "system-prompt", "content": NEEDLE}, *prompt("words")[0]["parts"]),
        "instructions": [{**prompt("words")[0], "instructions": NEEDLE}],
        "reasoning": reply({"part_kind": "thinking", "content": NEEDLE}, text),
        "signature or encrypted reasoning": reply({"part_kind": "thinking", "content": "t", "signature": NEEDLE}, text),
        "tool call": tool_exchange({"a": NEEDLE}),
        "tool result": tool_exchange({}, NEEDLE),
        "tool result with data": tool_exchange({}, {"a": [NEEDLE]}),
        "request to retry a tool": tool_exchange({})[:1]
        + request({"part_kind": "retry-prompt", "tool_name": "f", "tool_call_id": "c", "content": NEEDLE}),
        "request to retry an answer": request({"part_kind": "retry-feedback", "content": NEEDLE}),
        "image, as bytes": prompt(binary("image/png")),
        "image, by URL": prompt({"kind": "image-url", "url": LINK}),
        "PDF, as bytes": prompt(binary("application/pdf")),
        "text document": prompt(binary("text/plain")),
        "audio": prompt(binary("audio/wav")),
        "transcript of an audio answer": reply(
            {"part_kind": "speech", "speaker": "assistant", "transcript": NEEDLE, "audio": binary("audio/wav")}
        ),
        "generated image": reply({"part_kind": "file", "content": binary("image/png")}, text),
        "image in a tool result": tool_exchange({}, ["words", binary("image/png")]),
        "file by provider id": prompt(file),
        "citations": reply({**text, "citations": [citation]}),
        "provider-executed call": reply({**native_call, "args": {"query": NEEDLE}}, text),
        "cache control, provider options": prompt("words", {"kind": "cache-point", "ttl": NEEDLE}),
    }


def _langchain() -> dict[str, Messages]:
    text = {"type": "text", "text": "words"}

    def human(*blocks: Any) -> Messages:
        return [{"type": "human", "content": list(blocks)}]

    def ai(*blocks: Any, **fields: Any) -> Messages:
        return [{"type": "ai", "content": list(blocks), **fields}]

    def tool_exchange(args: dict[str, Any], content: Any = "") -> Messages:
        call = {"name": "f", "args": args, "id": "c", "type": "tool_call"}
        return [*ai(text, tool_calls=[call]), {"type": "tool", "content": content, "tool_call_id": "c"}]

    def image(**fields: str) -> dict[str, Any]:
        return {"type": "image", "mime_type": "image/png", **fields}

    citation = {"type": "citation", "url": NEEDLE}
    reasoning = {"type": "reasoning", "reasoning": "t", "extras": {"signature": NEEDLE}}
    server_call = {"type": "server_tool_call", "id": "s", "name": "web_search", "args": {"query": NEEDLE}}
    file = {"type": "file", "mime_type": "application/pdf", "base64": NEEDLE}
    return {
        "text": [{"type": "human", "content": NEEDLE}],
        "system message": [{"type": "system", "content": NEEDLE}],
        "reasoning": ai({"type": "reasoning", "reasoning": NEEDLE}, text),
        "signature or encrypted reasoning": ai(reasoning, text),
        "tool call": tool_exchange({"a": NEEDLE}),
        "tool result": tool_exchange({}, NEEDLE),
        "image, as bytes": human(image(base64=NEEDLE)),
        "image, by URL": human(image(url=LINK)),
        "PDF, as bytes": human(file),
        "text document": human({"type": "text-plain", "mime_type": "text/plain", "text": NEEDLE}),
        "audio": human({"type": "audio", "mime_type": "audio/wav", "base64": NEEDLE}),
        "refusal": ai({"type": "refusal", "refusal": NEEDLE}),
        "image in a tool result": tool_exchange({}, ["words", image(base64=NEEDLE)]),
        "file by provider id": human(image(file_id=NEEDLE)),
        "citations": ai({**text, "annotations": [citation]}),
        "provider-executed call": ai(server_call, text),
        "artifact of a tool": [*tool_exchange({})[:1], {**tool_exchange({})[1], "artifact": NEEDLE}],
        "cache control, provider options": human({**text, "cache_control": {"type": NEEDLE}}),
    }


def _ag_ui() -> dict[str, Messages]:
    def message(role: str, content: Any, **fields: Any) -> Messages:
        return [{"id": "m", "role": role, "content": content, **fields}]

    def file(kind: str, mime_type: str, **source: str) -> dict[str, Any]:
        return {"type": kind, "source": {"type": "data", "value": NEEDLE, "mimeType": mime_type, **source}}

    def tool_exchange(arguments: str, content: Any = "") -> Messages:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return message("assistant", "words", toolCalls=[call]) + message("tool", content, toolCallId="c")

    png = file("image", "image/png")
    return {
        "text": message("user", NEEDLE),
        "system message": message("developer", NEEDLE),
        "reasoning": message("reasoning", NEEDLE) + message("assistant", "words"),
        "signature or encrypted reasoning": message("reasoning", "t", encryptedValue=NEEDLE)
        + message("assistant", "words"),
        "tool call": tool_exchange(json.dumps({"a": NEEDLE})),
        "tool result": tool_exchange("{}", NEEDLE),
        "image, as bytes": message("user", [png]),
        "image, by URL": message("user", [file("image", "image/png", type="url", value=LINK)]),
        "PDF, as bytes": message("user", [file("document", "application/pdf")]),
        "text document": message("user", [file("document", "text/plain")]),
        "audio": message("user", [file("audio", "audio/wav")]),
        "image in a tool result": tool_exchange("{}", [png]),
        "file by provider id": message("user", [file("image", "image/png", type="file")]),
        "activity": message("activity", {"step": NEEDLE}, activityType="PLAN") + message("assistant", "words"),
    }


def _gemini() -> dict[str, Messages]:
    call = {"id": "c", "name": "f", "args": {"a": 1}}
    text = {"text": "words"}

    def content(role: str, *parts: dict[str, Any]) -> Messages:
        return [{"role": role, "parts": list(parts)}]

    def tool_exchange(**fields: Any) -> Messages:
        result = {"id": "c", "name": "f", **fields}
        return content("model", {"functionCall": call}) + content("user", {"functionResponse": result})

    def blob(mime_type: str) -> dict[str, Any]:
        return {"inlineData": {"mimeType": mime_type, "data": NEEDLE}}

    def file(uri: str) -> Messages:
        return content("user", {"fileData": {"mimeType": "image/png", "fileUri": uri}})

    code = {"executableCode": {"language": "PYTHON", "code": NEEDLE}}
    return {
        "text": content("user", {"text": NEEDLE}),
        "system message": content("system", {"text": NEEDLE}),
        "reasoning": content("model", {"text": NEEDLE, "thought": True}, text),
        "signature or encrypted reasoning": content("model", {**text, "thoughtSignature": NEEDLE}),
        "tool call": content("model", {"functionCall": {**call, "args": {"a": NEEDLE}}}),
        "tool call without an id": content("model", {"functionCall": {"name": "f", "args": {"a": NEEDLE}}}),
        "tool result": tool_exchange(response={"output": NEEDLE}),
        "tool result with data": tool_exchange(response={"a": [NEEDLE]}),
        "image, as bytes": content("user", blob("image/png")),
        "image, by URL": file(LINK),
        "PDF, as bytes": content("user", blob("application/pdf")),
        "audio": content("user", blob("audio/wav")),
        "image in a tool result": tool_exchange(response={}, parts=[blob("image/png")]),
        "file by provider id": file(f"https://generativelanguage.googleapis.com/v1beta/files/{NEEDLE}"),
        "provider-executed call": content("model", code, text),
    }


def _bedrock() -> dict[str, Messages]:
    payload = base64.b64decode(NEEDLE)
    call = {"toolUseId": "c", "name": "f", "input": {"a": 1}}
    text = {"text": "words"}

    def tool_exchange(*content: dict[str, Any]) -> Messages:
        return agent({"toolUse": call}) + user({"toolResult": {"toolUseId": "c", "content": list(content)}})

    def file(kind: str, format: str, source: dict[str, Any]) -> dict[str, Any]:
        return {kind: {"format": format, "source": source, **({"name": "a"} if kind == "document" else {})}}

    image = file("image", "png", {"bytes": payload})
    search = {"source": "s", "title": "t", "content": [{"text": NEEDLE}]}
    citation = {"content": [text], "citations": [{"title": NEEDLE}]}
    server_call = {"toolUse": {**call, "input": {"a": NEEDLE}, "type": "server_tool_use"}}
    return {
        "text": user({"text": NEEDLE}),
        "system message": [{"role": "system", "content": [{"text": NEEDLE}]}],
        "reasoning": agent({"reasoningContent": {"reasoningText": {"text": NEEDLE, "signature": "s"}}}, text),
        "signature or encrypted reasoning": agent({"reasoningContent": {"redactedContent": payload}}, text),
        "tool call": agent({"toolUse": {**call, "input": {"a": NEEDLE}}}),
        "tool result": tool_exchange({"text": NEEDLE}),
        "tool result with data": tool_exchange({"json": {"a": [NEEDLE]}}),
        "image, as bytes": user(image),
        "PDF, as bytes": user(file("document", "pdf", {"bytes": payload})),
        "text document": user(file("document", "txt", {"text": NEEDLE})),
        "audio": user(file("audio", "wav", {"bytes": payload})),
        "image in a tool result": tool_exchange(image),
        "search result in a tool result": tool_exchange({"searchResult": search}),
        "file by provider id": user(file("image", "png", {"s3Location": {"uri": f"s3://bucket/{NEEDLE}"}})),
        "guarded text": user({"guardContent": {"text": {"text": NEEDLE, "qualifiers": ["query"]}}}),
        "citations": agent({"citationsContent": citation}),
        "provider-executed call": agent(server_call, text),
        "cache control, provider options": user({"cachePoint": {"type": "default", "ttl": NEEDLE}}, text),
    }


def _ollama() -> dict[str, Messages]:
    def tool_exchange(arguments: dict[str, Any], content: str = "") -> Messages:
        call = {"function": {"name": "f", "arguments": arguments}}
        return [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": content, "tool_name": "f"},
        ]

    return {
        "text": [{"role": "user", "content": NEEDLE}],
        "system message": [{"role": "system", "content": NEEDLE}],
        "reasoning": [{"role": "assistant", "content": "words", "thinking": NEEDLE}],
        "tool call": tool_exchange({"a": NEEDLE}),
        "tool result": tool_exchange({}, NEEDLE),
        "image, as bytes": [{"role": "user", "content": "words", "images": [NEEDLE]}],
    }


def _mistral() -> dict[str, Messages]:
    text = {"type": "text", "text": "words"}

    def reasoning(text: str, **fields: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **fields}

    examples = {
        name: messages
        for name, messages in _openai().items()
        if name in ("text", "tool call", "tool result", "image, as bytes", "image, by URL")
    }
    return {
        **examples,
        "system message": [{"role": "system", "content": NEEDLE}],
        "reasoning": agent(reasoning(NEEDLE), text),
        "signature or encrypted reasoning": agent(reasoning("t", signature=NEEDLE), text),
        "PDF, as bytes": user({"type": "document_url", "document_url": PDF}),
        "PDF, by URL": user({"type": "document_url", "document_url": LINK}),
        "image in a tool result": [
            examples["tool call"][0],
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": PNG}]},
        ],
        "file by provider id": user({"type": "file", "file_id": NEEDLE}),
        "citations": agent(text, {"type": "reference", "reference_ids": [NEEDLE]}),
    }


def _recollect() -> dict[str, Messages]:
    call = {"kind": "tool_call", "call_id": "c", "tool": "f", "arguments": {"a": 1}}

    def message(role: str, *parts: dict[str, Any]) -> Messages:
        return [{"role": role, "parts": list(parts)}]

    def file(**fields: str) -> Messages:
        return message("user", {"kind": "attachment", **fields})

    def tool_exchange(**fields: Any) -> Messages:
        return message("assistant", call) + message("tool", {"kind": "tool_result", "call_id": "c", **fields})

    return {
        "text": message("user", {"kind": "text", "text": NEEDLE}),
        "system message": message("system", {"kind": "text", "text": NEEDLE}),
        "reasoning": message("assistant", {"kind": "reasoning", "text": NEEDLE}, {"kind": "text", "text": "words"}),
        "tool call": message("assistant", {**call, "arguments": {"a": NEEDLE}}),
        "tool result": tool_exchange(text=NEEDLE),
        "tool result with data": tool_exchange(data={"a": [NEEDLE]}),
        "image, as bytes": file(mime_type="image/png", data=NEEDLE),
        "image, by URL": file(mime_type="image/png", url=LINK),
        "PDF, as bytes": file(mime_type="application/pdf", data=NEEDLE),
        "text document": file(mime_type="text/plain", text=NEEDLE),
        "audio": file(mime_type="audio/wav", data=NEEDLE),
        "image in a tool result": tool_exchange(
            content=[{"kind": "attachment", "mime_type": "image/png", "data": NEEDLE}]
        ),
        "data parts, metadata": message("user", {"kind": "data", "data": NEEDLE}, {"kind": "text", "text": "words"}),
    }


EXAMPLES = {
    "anthropic": _anthropic(),
    "openai": _openai(),
    "openai-responses": _responses(),
    "ai-sdk": _ai_sdk(),
    "ai-sdk-ui": _ai_sdk_ui(),
    "pydantic-ai": _pydantic_ai(),
    "langchain": _langchain(),
    "ag-ui": _ag_ui(),
    "gemini": _gemini(),
    "bedrock": _bedrock(),
    "ollama": _ollama(),
    "mistral": _mistral(),
    "recollect": _recollect(),
}


def to_messages(messages: Messages, name: str) -> list[Message]:
    return [
        Message(
            branch=1,
            position=position,
            role=draft.role,
            parts=draft.parts,
            format=draft.format,
            native=draft.native,
            created_at_ms=0,
        )
        for position, draft in enumerate(formats.read(messages, name), 1)
    ]


def encode_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def carries(messages: Messages, source: str, target: str) -> bool:
    """Return whether the messages in the other format contain the text of the example."""
    output = json.dumps(formats.write(to_messages(messages, source), target), default=encode_bytes)
    return NEEDLE in output or base64.b64encode(NEEDLE.encode()).decode() in output


def tables() -> str:
    """Return a table for each format: which of its features carry over to each other one."""
    lines: list[str] = []
    for source, examples in EXAMPLES.items():
        targets = [target for target in FORMATS if target != source]
        lines += ["", f"### From `{source}`", "", f"| | {' | '.join(f'`{target}`' for target in targets)} |"]
        lines.append(f"|---|{'---|' * len(targets)}")
        for feature, messages in examples.items():
            cells = ["yes" if carries(messages, source, target) else "–" for target in targets]  # noqa: RUF001
            lines.append(f"| {feature} | {' | '.join(cells)} |")
    return "\n".join(lines[1:]) + "\n"


if __name__ == "__main__":
    print(tables())
