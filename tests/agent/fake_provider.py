"""Servers on loopback that implement the wire protocols of the providers: a subset of HTTP, and streamed events."""

from __future__ import annotations

import asyncio
import contextlib
import json

HANG_UP = object()
"""A step: the server closes the connection."""
SILENCE = object()
"""A step: the server sends nothing more."""


class FakeProvider:
    """A server that answers each request with the next reply: (status, body) or (200, list of events to stream)."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self._tasks = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._tasks.append(asyncio.current_task())
        try:
            await self._serve_requests(reader, writer)
        finally:
            writer.close()

    async def _serve_requests(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (int(h.split(":")[1]) for h in head.splitlines() if h.lower().startswith("content-length")), 0
                )
                body = json.loads(await reader.readexactly(length) or b"{}")
                self.requests.append({"line": head.splitlines()[0], "head": head, **body})
                reply = self.replies.pop(0) if self.replies else (500, {"error": {"message": "no more replies"}})
                if not await self._reply(writer, *reply):
                    break

    async def _reply(self, writer, status, content):
        is_stream = isinstance(content, list)
        content_type = "text/event-stream" if is_stream else "application/json"
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n"
        if not is_stream:
            body = json.dumps(content).encode()
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            return True
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        for event in content:
            if event is HANG_UP:
                return False
            if event is SILENCE:
                await asyncio.sleep(30)
                return False
            chunk = event.encode()
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def openai(*steps, finish="stop", calls=()):
    """Return the events of an answer in OpenAI's chat completions API."""

    def chunk(delta, reason=None, **more):
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}] if delta is not None else []
        data = {
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "local-model",
            "choices": choices, **more,
        }  # fmt: skip
        return f"data: {json.dumps(data)}\n\n"

    events = [chunk({"role": "assistant", "content": ""})]
    events += [step if not isinstance(step, str) else chunk({"content": step}) for step in steps]
    for index, (id, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(chunk({"tool_calls": [call]}))
        pieces = (arguments[:half], arguments[half:])
        events += [chunk({"tool_calls": [{"index": index, "function": {"arguments": p}}]}) for p in pieces]
    events.append(chunk({}, "tool_calls" if calls else finish))
    events.append(chunk(None, usage={"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}))
    return [*events, "data: [DONE]\n\n"]


def anthropic(*steps, thinking=None, calls=(), stop="end_turn"):
    """Return the events of an answer in Anthropic's Messages API."""

    def event(name, **data):
        return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"

    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 12, "output_tokens": 1},
    }  # fmt: skip
    events, index = [event("message_start", message=message)], 0

    def block(content_block, *deltas):
        nonlocal index
        block_events = [event("content_block_start", index=index, content_block=content_block)]
        block_events += [
            d if not isinstance(d, dict) else event("content_block_delta", index=index, delta=d) for d in deltas
        ]
        block_events.append(event("content_block_stop", index=index))
        index += 1
        return block_events

    if thinking:
        events += block(
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        )
    if steps:
        deltas = [{"type": "text_delta", "text": step} if isinstance(step, str) else step for step in steps]
        events += block({"type": "text", "text": ""}, *deltas)
    for id, name, arguments in calls:
        events += block(
            {"type": "tool_use", "id": id, "name": name, "input": {}},
            {"type": "input_json_delta", "partial_json": arguments},
        )
    stop = "tool_use" if calls else stop
    events.append(
        event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 9})
    )
    return [*events, event("message_stop")]


class _Response:
    """The items and events of one answer in the Responses API."""

    def __init__(self):
        self.output = []
        self.number = 0

    def event(self, kind, **data):
        self.number += 1
        return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': self.number, **data})}\n\n"

    def snapshot(self, status, **more):
        return {
            "id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "gpt-5-test",
            "output": self.output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
            "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0,
            "usage": None, **more,
        }  # fmt: skip

    def item(self, initial, final, *steps):
        index = len(self.output)
        events = [self.event("response.output_item.added", output_index=index, item=initial)]
        events += [
            step if not isinstance(step, tuple) else self.event(step[0], output_index=index, **step[1])
            for step in steps
        ]
        self.output.append(final)
        return [*events, self.event("response.output_item.done", output_index=index, item=final)]

    def reasoning(self, thinking):
        initial = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}
        part = {"type": "summary_text", "text": thinking}
        position = {"item_id": "rs_1", "summary_index": 0}
        return self.item(
            initial, {**initial, "summary": [part], "encrypted_content": "ZW5jcnlwdGVk"},
            ("response.reasoning_summary_part.added", {**position, "part": {**part, "text": ""}}),
            ("response.reasoning_summary_text.delta", {**position, "delta": thinking}),
            ("response.reasoning_summary_text.done", {**position, "text": thinking}),
            ("response.reasoning_summary_part.done", {**position, "part": part}),
        )  # fmt: skip

    def message(self, steps):
        initial = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        text = "".join(step for step in steps if isinstance(step, str))
        part = {"type": "output_text", "text": text, "annotations": []}
        position = {"item_id": "msg_1", "content_index": 0}
        deltas = [
            ("response.output_text.delta", {**position, "delta": step, "logprobs": []})
            if isinstance(step, str)
            else step
            for step in steps
        ]
        return self.item(
            initial, {**initial, "status": "completed", "content": [part]},
            ("response.content_part.added", {**position, "part": {**part, "text": ""}}), *deltas,
            ("response.output_text.done", {**position, "text": text, "logprobs": []}),
            ("response.content_part.done", {**position, "part": part}),
        )  # fmt: skip

    def function_call(self, id, name, arguments):
        call = {
            "id": f"fc_{id}", "type": "function_call", "call_id": id, "name": name, "arguments": arguments,
            "status": "completed",
        }  # fmt: skip
        return self.item(
            {**call, "arguments": "", "status": "in_progress"}, call,
            ("response.function_call_arguments.delta", {"item_id": f"fc_{id}", "delta": arguments}),
            ("response.function_call_arguments.done", {"item_id": f"fc_{id}", "name": name, "arguments": arguments}),
        )  # fmt: skip


def responses(*steps, thinking=None, calls=()):
    """Return the events of an answer in OpenAI's Responses API, with encrypted reasoning if `thinking` is set."""
    response = _Response()
    events = [response.event("response.created", response=response.snapshot("in_progress"))]
    if thinking:
        events += response.reasoning(thinking)
    if steps:
        events += response.message(steps)
    for call in calls:
        events += response.function_call(*call)
    usage = {
        "input_tokens": 11, "output_tokens": 7, "total_tokens": 18, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return [*events, response.event("response.completed", response=response.snapshot("completed", usage=usage))]
