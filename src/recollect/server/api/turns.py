"""Turns and tool calls, for programs that call a model themselves."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post, put

from recollect.errors import TurnExists
from recollect.model.message import ResultStatus, ToolCall
from recollect.model.turn import DEFAULT_LEASE, EndStatus
from recollect.server.account import Account
from recollect.server.api import schemas
from recollect.server.api.messages import MessageFormat, MessageInput, NewMessages, append_response
from recollect.server.api.responses import (
    After,
    IdempotencyKey,
    IfMatch,
    Limit,
    MessagePath,
    SessionPath,
    expected_revision,
    json_response,
    open_session,
    paginate,
    parse_message_id,
)
from recollect.server.path_segments import decode_path_segment
from recollect.store_async import AsyncTurn

TURN_TAGS = ["turns"]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Lease = Annotated[
    float, msgspec.Meta(ge=1, le=86_400, description="Seconds for which the turn stays open after each write.")
]


class NewTurn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The user message that opens a turn."""

    message: MessageInput
    format: MessageFormat = None
    lease: Lease = DEFAULT_LEASE
    wait: Annotated[float, msgspec.Meta(ge=0, le=60, description="Seconds to wait for another open turn to end.")] = 0.0
    take_over: Annotated[bool, msgspec.Meta(description="Whether to end another open turn.")] = False


class Usage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Model, tokens and duration of a turn, as far as known."""

    model: str | None = None
    input_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    latency_ms: NonNegativeInt | None = None


class Failure(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The error of a failed turn, any JSON value."""

    error: Any = None


class CompleteTurn(Usage, kw_only=True, forbid_unknown_fields=True):
    """A complete turn: the user message, and the provider's response or the messages that followed."""

    message: MessageInput
    response: Any = None
    format: MessageFormat = None
    status: EndStatus = "completed"
    error: Any = None


class OpenTurn(msgspec.Struct, frozen=True):
    """An open turn."""

    id: schemas.MessageIdField
    revision: int


@get("/sessions/{session:str}/turns", tags=TURN_TAGS, operation_id="list_turns")
async def list_turns(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[schemas.TurnsSchema]:
    """List the turns of the active path, oldest first."""
    handle = await open_session(account, session)
    page, next_cursor = paginate(await handle.turns.list(), lambda turn: turn.id, limit, after)
    return json_response({"turns": [turn.to_dict() for turn in page], "next": next_cursor}, revision=handle.revision)


@post("/sessions/{session:str}/turns", tags=TURN_TAGS, operation_id="begin_turn")
async def begin_turn(
    account: Account, session: SessionPath, data: NewTurn, key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response[OpenTurn]:
    """Open a turn with a user message. It is on disk when the response is sent. A branch has at most one open turn."""
    handle = await open_session(account, session)
    try:
        turn = await handle.turn(
            data.message, data.format, lease=data.lease, wait=data.wait, take_over=data.take_over, key=key,
            expected=expected_revision(if_match),
        )  # fmt: skip
    except TurnExists as before:
        return json_response({"id": before.fields["turn"], "revision": handle.revision}, revision=handle.revision)
    return json_response({"id": turn.id, "revision": handle.revision}, 201, revision=handle.revision)


@post("/sessions/{session:str}/turns/save", tags=TURN_TAGS, operation_id="save_turn")
async def save_turn(
    account: Account, session: SessionPath, data: CompleteTurn, key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response[schemas.AppendedSchema]:
    """Store a complete turn atomically."""
    handle = await open_session(account, session)
    append = await handle.save_turn(
        data.message, data.response, data.format, status=data.status, model=data.model, error=data.error,
        input_tokens=data.input_tokens, output_tokens=data.output_tokens, latency_ms=data.latency_ms, key=key,
        expected=expected_revision(if_match),
    )  # fmt: skip
    return append_response(append)


async def _resume_turn(account: Account, session: str, turn: str) -> AsyncTurn:
    return await (await open_session(account, session)).turns.resume(parse_message_id(turn))


@post("/sessions/{session:str}/turns/{turn:str}/messages", tags=TURN_TAGS, operation_id="add_to_turn")
async def add_to_turn(
    account: Account, session: SessionPath, turn: MessagePath, data: NewMessages, key: IdempotencyKey = None
) -> Response[schemas.AppendedSchema]:
    """Add steps to an open turn: messages, or a provider's response. They are on disk when the response is sent."""
    handle = await _resume_turn(account, session, turn)
    return append_response(await handle.add(data.messages, data.format, key=key))


@post(
    "/sessions/{session:str}/turns/{turn:str}/complete", tags=TURN_TAGS, operation_id="complete_turn", status_code=200
)
async def complete_turn(
    account: Account, session: SessionPath, turn: MessagePath, data: Usage | None = None
) -> Response[schemas.TurnSchema]:
    """Complete a turn, with its token usage."""
    handle, usage = await _resume_turn(account, session, turn), data or Usage()
    ended = await handle.complete(
        model=usage.model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        latency_ms=usage.latency_ms,
    )
    return json_response(ended.to_dict())


@post("/sessions/{session:str}/turns/{turn:str}/fail", tags=TURN_TAGS, operation_id="fail_turn", status_code=200)
async def fail_turn(
    account: Account, session: SessionPath, turn: MessagePath, data: Failure | None = None
) -> Response[schemas.TurnSchema]:
    """Mark a turn as failed, with the error."""
    handle = await _resume_turn(account, session, turn)
    return json_response((await handle.fail((data or Failure()).error)).to_dict())


@post("/sessions/{session:str}/turns/{turn:str}/cancel", tags=TURN_TAGS, operation_id="cancel_turn", status_code=200)
async def cancel_turn(account: Account, session: SessionPath, turn: MessagePath) -> Response[schemas.TurnSchema]:
    """Mark a turn as cancelled."""
    return json_response((await (await _resume_turn(account, session, turn)).cancel()).to_dict())


TURN_ROUTES: list[Any] = [list_turns, begin_turn, save_turn, add_to_turn, complete_turn, fail_turn, cancel_turn]


TOOL_TAGS = ["tools"]


class ToolResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The output or the error of a tool call."""

    output: Annotated[Any, msgspec.Meta(description="Text, or any JSON value.")] = None
    status: ResultStatus = "success"
    error_code: str | None = None
    error_message: str | None = None
    latency_ms: NonNegativeInt | None = None
    metadata: dict[str, Any] | None = None


def _tool_call_cursor(call: ToolCall) -> str:
    return f"{call.message}/{call.part}"


@get("/sessions/{session:str}/tool-calls", tags=TOOL_TAGS, operation_id="list_tool_calls")
async def list_tool_calls(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[schemas.ToolCallsSchema]:
    """List the tool calls of the active path, oldest first."""
    handle = await open_session(account, session)
    page, next_cursor = paginate(await handle.tools.list(), _tool_call_cursor, limit, after)
    return json_response(
        {"tool_calls": [call.to_dict() for call in page], "next": next_cursor}, revision=handle.revision
    )


@post(
    "/sessions/{session:str}/tool-calls/{call:str}/start",
    tags=TOOL_TAGS,
    operation_id="start_tool_call",
    status_code=204,
)
async def start_tool_call(account: Account, session: SessionPath, call: str) -> None:
    """Mark a tool call as running."""
    await (await open_session(account, session)).tools.start(decode_path_segment(call))


@put("/sessions/{session:str}/tool-calls/{call:str}/result", tags=TOOL_TAGS, operation_id="record_tool_result")
async def record_tool_result(
    account: Account, session: SessionPath, call: str, data: ToolResult
) -> Response[schemas.MessageSchema]:
    """Store the result of a tool call. Repeating the same result stores nothing; a different one is refused."""
    handle = await open_session(account, session)
    message = await handle.tools.record_result(
        decode_path_segment(call), data.output, status=data.status, error_code=data.error_code,
        error_message=data.error_message, latency_ms=data.latency_ms, metadata=data.metadata,
    )  # fmt: skip
    return json_response(message.to_dict(), revision=handle.revision)


TOOL_CALL_ROUTES: list[Any] = [list_tool_calls, start_tool_call, record_tool_result]
