"""A model on loopback that speaks OpenAI's protocol: it calls a tool for `pay NAME` and echoes every other text."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from recollect.agent import McpServer

LEDGER = pathlib.Path(__file__).parent / "agent" / "mcp_recording_server.py"


class _ModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        delta, finish_reason = _reply_to(request["messages"][-1])
        if not request.get("stream"):
            body = {
                "choices": [{"index": 0, "message": {"role": "assistant", **delta}, "finish_reason": finish_reason}]
            }
            return self._send("application/json", json.dumps(_with_envelope(body, "chat.completion")).encode())
        steps = [
            {"delta": {"role": "assistant", **delta}, "finish_reason": None},
            {"delta": {}, "finish_reason": finish_reason},
        ]
        events = [{"choices": [{"index": 0, **step}]} for step in steps]
        events_text = "".join(
            f"data: {json.dumps(_with_envelope(event, 'chat.completion.chunk'))}\n\n" for event in events
        )
        return self._send("text/event-stream", f"{events_text}data: [DONE]\n\n".encode())

    def _send(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """Ignore the broken connection of a client that was killed."""


def _with_envelope(body, kind):
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    return {"id": "c", "object": kind, "created": 1, "model": "m", "usage": usage, **body}


def _reply_to(message):
    content = message["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or [])
    if message["role"] == "tool":
        return {"content": f"The tool said: {text}"}, "stop"
    text = re.sub(r"^\[[^\]]*\] ", "", text)  # in a group, the author's name comes first
    if message["role"] == "user" and text.startswith("pay "):
        to, _, note = text.removeprefix("pay ").partition(" ")
        note = note.replace("<rtl>", "\u202e")
        arguments = json.dumps({"to": to, "note": note} if note else {"to": to})
        call = {"index": 0, "id": f"call-{to}", "type": "function"}
        return {"tool_calls": [{**call, "function": {"name": "ledger_pay", "arguments": arguments}}]}, "tool_calls"
    return {"content": "Payments" if "Write a title" in text else f"You said: {text}"}, "stop"


class PaymentModel:
    """The address of the model, a configuration with the MCP server, and the calls that the MCP server received."""

    def __init__(self, url, folder):
        self.url = url
        self._record = folder / "record"
        self.config = folder / "paying.toml"
        self.config.write_text(
            f'[model]\nname = "openai:m"\nbase_url = "{url}"\n\n'
            f"[mcp.ledger]\ncommand = {json.dumps([sys.executable, str(LEDGER)])}\ntimeout = 120\n"
            f'env = {{ RECORD = "{self._record}" }}\n'
        )

    @property
    def agent(self):
        """The arguments of an agent that uses this model and the payment tool."""
        server = McpServer("ledger", (sys.executable, str(LEDGER)), env={"RECORD": str(self._record)}, timeout=120)
        return {"model": "openai:m", "base_url": self.url, "api_key": "none", "mcp": [server], "title": lambda _: "T"}

    @property
    def runs(self):
        return self._record.read_text().splitlines() if self._record.exists() else []


@contextlib.contextmanager
def run_payment_model(folder):
    """Run the model until the block ends."""
    server = _Server(("127.0.0.1", 0), _ModelHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield PaymentModel(f"http://127.0.0.1:{server.server_port}", folder)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
