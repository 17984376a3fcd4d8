"""The examples of docs/reference/formats.md run with the providers' clients, against a fake server on loopback."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from docs_pages import ARROW, find_blocks, read_page, run_example

pytest.importorskip("anthropic")
pytest.importorskip("openai")

PAGE = "docs/reference/formats.md"
CALL = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}


def _anthropic_message(*content, reason="end_turn"):
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "some-model", "content": list(content),
        "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 3},
    }  # fmt: skip


REPLIES = [
    _anthropic_message(CALL, reason="tool_use"),
    _anthropic_message({"type": "text", "text": "Yes."}),
    {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "some-model",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "That too."}}],
    },
    {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "some-model", "status": "completed",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "output": [{"id": "m1", "type": "message", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "No.", "annotations": []}]}],
    },
    [
        {"type": "message_start", "message": {**_anthropic_message(), "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Warm "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ones."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ],
]  # fmt: skip


def _format_event(event):
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


@pytest.fixture
def provider():
    """Start a server that answers each request with the next reply; yield its URL and the list of requests."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            reply = REPLIES[len(requests) - 1]
            is_stream = isinstance(reply, list)
            body = "".join(map(_format_event, reply)).encode() if is_stream else json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_examples_run_with_the_clients_of_the_providers(provider, tmp_path, monkeypatch):
    url, requests = provider
    for name, value in {
        "RECOLLECT_DB": str(tmp_path / "r.db"), "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url, "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": f"{url}/v1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    namespace = {"__name__": "example"}
    assert sum(run_example(PAGE, block, namespace) for block in find_blocks(PAGE)) == read_page(PAGE).count(ARROW) == 4
    first, second, chat, responses, stream = (body for _, body in requests)
    assert [path for path, _ in requests] == [
        "/v1/messages", "/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/messages",
    ]  # fmt: skip
    assert stream["messages"][-1] == {"role": "user", "content": "And gloves?"}
    assert first["messages"] == [{"role": "user", "content": "Do I need a coat in Oslo?"}]
    assert second["messages"][-1]["content"][0]["tool_use_id"] == "t1"
    assert [message["role"] for message in chat["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert {"type": "function_call", "call_id": "t1"}.items() <= responses["input"][1].items()
    assert responses["input"][-1]["content"] in ("And boots?", [{"type": "input_text", "text": "And boots?"}])
