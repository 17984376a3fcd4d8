"""Tool calls of a session: what was called, and results that come by themselves."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post, put

from recollect.model.part import ResultStatus
from recollect.model.tool_call import ToolCall
from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import After, Limit, SessionPath, found, page, told
from recollect.server.api.turns import Count
from recollect.server.names import session_id

TAGS = ["tools"]


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a tool answered, or how it failed."""

    output: Annotated[Any, msgspec.Meta(description="Text, or any JSON value.")] = None
    status: ResultStatus = "success"
    error_code: str | None = None
    error_message: str | None = None
    latency_ms: Count | None = None
    metadata: dict[str, Any] | None = None


def _name(call: ToolCall) -> str:
    return f"{call.message}/{call.part}"


@get("/sessions/{session:str}/tool-calls", tags=TAGS, operation_id="list_tool_calls")
async def list_tool_calls(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[shapes.ToolCalls]:
    """List the tool calls of the active path, the oldest first."""
    opened = await found(account, session)
    some, more = page(await opened.tool_calls(), _name, limit, after)
    return told({"tool_calls": [call.to_dict() for call in some], "next": more}, revision=opened.revision)


@post("/sessions/{session:str}/tool-calls/{call:str}/start", tags=TAGS, operation_id="start_tool_call", status_code=204)
async def start_tool_call(account: Account, session: SessionPath, call: str) -> None:
    """Mark a tool call as running."""
    await (await found(account, session)).start_tool_call(session_id(call))


@put("/sessions/{session:str}/tool-calls/{call:str}/result", tags=TAGS, operation_id="record_tool_result")
async def record_tool_result(
    account: Account, session: SessionPath, call: str, data: Result
) -> Response[shapes.Message]:
    """Store the result of a tool call. The same result twice is stored once; another one is refused."""
    opened = await found(account, session)
    message = await opened.record_tool_result(
        session_id(call), data.output, status=data.status, error_code=data.error_code,
        error_message=data.error_message, latency_ms=data.latency_ms, metadata=data.metadata,
    )  # fmt: skip
    return told(message.to_dict(), revision=opened.revision)


ROUTES: list[Any] = [list_tool_calls, start_tool_call, record_tool_result]
