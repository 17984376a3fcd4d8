"""A server on loopback with the Messages API of Anthropic, whose model follows a script.

The model reads its script in the last text of the user: `bash: <command>` calls the tool, `agent: <prompt>` starts a
sub-agent, `wait` never answers, anything else is the text of its answer. Steps are separated by ` | `, one for each response.
"""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from contextlib import contextmanager

_NUMBERS = itertools.count(1)


@contextmanager
def serve_model():
    """Run the server and yield it: its `url`, the bodies of its `requests`, and `is_waiting`, set by the step `wait`."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stops.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.requests, self.is_waiting, self.stops = [], threading.Event(), threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass  # the client was killed


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815  the name is that of the request

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            self._send(b'{"input_tokens": 10}', "application/json")
            return
        self.server.requests.append(body)
        step = _next_step(body["messages"])
        if step == "wait":
            self.server.is_waiting.set()
            self.server.stops.wait(60)
            return
        message = _make_message(body["model"], step, [tool["name"] for tool in body.get("tools", [])])
        if not body.get("stream"):
            self._send(json.dumps(message).encode(), "application/json")
            return
        data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _make_events(message))
        self._send(data.encode(), "text/event-stream")

    def _send(self, data, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _next_step(messages):
    """Return the step that follows the responses to the last text of the user."""
    script, done = "", 0
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            done += 1
        texts = [block["text"] for block in blocks if block["type"] == "text" and "script:" in block["text"]]
        if message["role"] == "user" and texts:
            script, done = texts[-1].partition("script:")[2].strip(), 0
    steps = script.split(" | ") if script else []
    return steps[done] if done < len(steps) else "Done."


def _make_message(model, step, tools):
    number = next(_NUMBERS)
    if step.startswith("bash: "):
        block = _tool_use(number, "Bash", {"command": step.removeprefix("bash: "), "description": "Run a command"})
    elif step.startswith("agent: "):
        prompt = f"script: {step.removeprefix('agent: ')}".replace(" + ", " | ")
        name = "Agent" if "Agent" in tools else "Task"
        block = _tool_use(
            number, name, {"description": "Count files", "prompt": prompt, "subagent_type": "general-purpose"}
        )
    else:
        block = {"type": "text", "text": step}
    return {
        "id": f"msg_{number:08d}", "type": "message", "role": "assistant", "model": model, "content": [block],
        "stop_reason": "end_turn" if block["type"] == "text" else "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 100 + number, "output_tokens": 10 + number},
    }  # fmt: skip


def _tool_use(number, name, arguments):
    return {"type": "tool_use", "id": f"toolu_{number:08d}", "name": name, "input": arguments}


def _make_events(message):
    [block] = message["content"]
    is_text = block["type"] == "text"
    start = {**block, "text": ""} if is_text else {**block, "input": {}}
    delta = (
        {"type": "text_delta", "text": block["text"]}
        if is_text
        else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    )
    return [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": message["usage"],
        },
        {"type": "message_stop"},
    ]  # fmt: skip
